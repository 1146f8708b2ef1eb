"""A real Dask worker: how far it is, whether it sees the study directory, what time it has."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from ..clusters.existing import ExistingScheduler
from ..errors import StudyError
from ..executors.dask import connect
from ..worker import devices
from ..worker.addresses import outward
from ..worker.dask import versions
from ..worker.dask.plugin import granted_by
from .findings import Finding, Subject, failed, passed, warned
from .storage import MOST_SKEW_SECONDS, folder_for

_CALLS = 10
_NAMED = 3
_SLOW_SECONDS = 0.5


def check_workers(subject: Subject) -> Iterator[Finding]:
    """A worker on this machine, or all workers of a scheduler."""
    yield passed("network", f"{socket.gethostname()}, {outward() or 'no interface'} leads out")
    with contextlib.ExitStack() as stack:
        try:
            client = _client(subject.connect, stack)
        except StudyError as error:
            yield failed("workers", error.message, "then run hptune doctor again")
            return
        except (OSError, TimeoutError) as error:
            yield failed(
                "workers",
                f"a cluster on this machine does not start: {error}",
                "is the loopback interface up, and can processes be started?",
            )
            return
        addresses = sorted(client.nthreads())
        if not addresses:
            yield warned(
                "workers",
                f"the scheduler at {subject.connect} has none yet",
                f"start some: hptune worker {subject.connect}",
            )
            return
        yield _round_trip(client, addresses)
        same = _versions(client, addresses)
        yield same
        if "not installed" not in same.found:
            if subject.connect:
                yield from _offers(client, addresses)
            yield _clocks(client, addresses)
            yield _visible(client, addresses, subject)


def _client(address: str, stack: contextlib.ExitStack) -> Any:
    if address:
        return stack.enter_context(
            connect(ExistingScheduler(address).address, name="hptune-doctor")
        )
    cluster = LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        memory_limit=None,
    )
    return stack.enter_context(Client(stack.enter_context(cluster)))


def _round_trip(client: Any, addresses: list[str]) -> Finding:
    times = []
    for _ in range(_CALLS):
        began = time.monotonic()
        client.run(os.getpid, workers=addresses)
        times.append(time.monotonic() - began)
    typical = statistics.median(times)
    count = "1 worker" if len(addresses) == 1 else f"{len(addresses)} workers"
    words = f"{count} answered in {typical * 1e3:.3g} ms"
    if typical > _SLOW_SECONDS:
        return warned("workers", words, "is the network, or this machine, very busy?")
    return passed("workers", words)


def _versions(client: Any, addresses: list[str]) -> Finding:
    name, advice = "same versions", "use one environment on all machines"
    here = versions.installed()
    there = client.run(versions.installed, workers=addresses, on_error="return")
    wrong, trained_with = [], {}
    needed = (*versions.OF_MASTER_AND_WORKER, *versions.OF_PICKLED_CODE)
    for address, found in there.items():
        if isinstance(found, Exception):
            return failed(name, f"hptune is not installed at {address}: {found}", advice)
        if different := versions.differences(here, found, needed):
            wrong.append(versions.told(different, here="this machine", there=address))
        frameworks = {each: found.get(each, "") for each in versions.OF_FRAMEWORKS}
        trained_with[tuple(frameworks.items())] = address
    if wrong:
        return failed(name, "; ".join(wrong[:3]), advice)
    if len(trained_with) > 1:
        return warned(
            name,
            f"Keras or its backend differ between {' and '.join([*trained_with.values()][:2])}",
            "results of trials cannot be compared then; " + advice,
        )
    return passed(name, "hptune, Python, Dask and the framework are the same everywhere")


def _offers(client: Any, addresses: list[str]) -> Iterator[Finding]:
    """What the workers give to studies; those that give the same in one line."""
    alike: dict[str, list[str]] = {}
    answers = client.run(_offered, workers=addresses, on_error="return")
    for address in addresses:
        answer = answers[address]
        if isinstance(answer, Exception):
            yield failed("they offer", f"{address} does not say: {answer!r}", "see its own output")
        else:
            node, what = answer
            alike.setdefault(what, []).append(node)
    for what, nodes in sorted(alike.items(), key=lambda each: -len(each[1])):
        named = sorted(set(nodes))
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        where = f"on {', '.join(named[:_NAMED])}{more}"
        count = f"{len(nodes)} workers, each " if len(nodes) > 1 else ""
        yield passed("they offer", f"{count}{what}, {where}")


def _offered(dask_worker: Any = None) -> tuple[str, str]:
    """This worker's machine, and what studies may use of it."""
    granted = granted_by(dask_worker)
    cores, gpus = len(granted.cpus), len(granted.gpus)
    parts = [f"{cores} core" + ("s" if cores > 1 else "")]
    parts.append(f"{gpus} GPU" + ("s" if gpus > 1 else "") if gpus else "no GPU")
    return devices.node(), ", ".join([*parts, f"{granted.memory_bytes / 1e9:.3g} GB of memory"])


def _clocks(client: Any, addresses: list[str]) -> Finding:
    skews = {}
    for address in addresses[:32]:
        before = time.time()
        there = client.run(time.time, workers=[address])[address]
        after = time.time()
        skews[address] = max(before - there, there - after, 0.0)
    worst = max(skews, key=lambda address: skews[address])
    if skews[worst] > MOST_SKEW_SECONDS:
        return warned(
            "clocks",
            f"{worst} is {skews[worst]:.3g} s off this machine",
            "hptune does not mind; times in logs do not fit together (NTP?)",
        )
    return passed("clocks", f"workers' clocks are within {max(skews[worst], 0.1):.1g} s")


def _visible(client: Any, addresses: list[str], subject: Subject) -> Finding:
    name = "seen by workers"
    try:
        with folder_for(subject) as folder:
            word = secrets.token_hex(8)
            (folder / "word").write_text(word)
            answers = client.run(_read_and_answer, str(folder), workers=addresses)
            blind = [address for address, answer in answers.items() if answer != word]
            if blind:
                return failed(
                    name,
                    f"{', '.join(blind[:3])} cannot read what is written here: {answers[blind[0]]}",
                    "put the study on a file system that all nodes share (--study DIR)",
                )
            back = [path for path in folder.iterdir() if path.name.startswith("answer-")]
            if len(back) != len(set(answers)):
                return warned(
                    name,
                    f"{len(answers) - len(back)} workers' files are not seen here at once",
                    "the file system caches: trials' files may be seen late, by some seconds",
                )
    except OSError as error:
        return failed(name, str(error), "see the study directory above")
    return passed(name, "they read what is written here, and the other way round")


def _read_and_answer(folder: str) -> str:
    try:
        word = Path(folder, "word").read_text()
        Path(folder, f"answer-{socket.gethostname()}-{os.getpid()}").write_text(word)
    except OSError as error:
        return str(error)
    return word

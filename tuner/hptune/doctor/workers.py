"""Checks of workers: response time, resources, clocks, the study directory."""

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

from distributed import Client

from ..clusters.existing import ExistingScheduler
from ..core.resources import size
from ..errors import HptuneError
from ..executors.dask_client import connect
from ..executors.local_cluster import own_cluster
from ..text import plural, some
from ..worker import devices
from ..worker.addresses import outward
from ..worker.dask.offer import granted_by
from ..worker.private_folder import server_folder
from .findings import Finding, Status, Subject, failed, passed, warned
from .storage import folder_for

_CALLS = 10
_NAMED = 3
_SLOW_SECONDS = 0.5
_CLOCKS_READ = 32
"""Workers whose clocks are read, one after the other."""
_MOST_SKEW_SECONDS = 2.0
"""Difference of two clocks above which times in logs confuse."""


def check_workers(subject: Subject) -> Iterator[Finding]:
    """Check a worker on this machine, or all workers of a scheduler."""
    interface = outward() or "none"
    yield passed("network", f"{socket.gethostname()}, outgoing interface {interface}")
    with contextlib.ExitStack() as stack:
        try:
            client = _client(subject, stack)
        except HptuneError as error:
            yield failed("workers", error.message, "then run hptune doctor again")
            return
        except (OSError, TimeoutError) as error:
            yield failed(
                "workers",
                f"a cluster on this machine does not start: {error}",
                "check the loopback interface, and that processes can be started",
            )
            return
        addresses = sorted(client.nthreads())
        if not addresses:
            yield warned(
                "workers",
                f"the scheduler at {subject.connect} has no workers yet",
                f"start some: hptune worker {subject.connect}",
            )
            return
        yield _round_trip(client, addresses)
        offers = [*_resources(client, addresses)] if subject.connect else []
        yield from offers
        yield _clocks(client, addresses)
        if not any(offer.status is Status.FAIL for offer in offers):
            yield _files(client, addresses, subject)


def _client(subject: Subject, stack: contextlib.ExitStack) -> Any:
    if subject.connect:
        there = ExistingScheduler(subject.connect, certs=subject.certs, insecure=subject.insecure)
        client = connect(there.address, name="hptune-doctor", identity=there.identity())
        return stack.enter_context(client)
    cluster = stack.enter_context(own_cluster([(0,)], (), stack.enter_context(server_folder())))
    return stack.enter_context(Client(cluster))


def _round_trip(client: Any, addresses: list[str]) -> Finding:
    times = []
    for _ in range(_CALLS):
        began = time.monotonic()
        client.run(os.getpid, workers=addresses)
        times.append(time.monotonic() - began)
    typical = statistics.median(times)
    words = f"{plural(len(addresses), 'worker')} answered in {typical * 1e3:.3g} ms"
    if typical > _SLOW_SECONDS:
        return warned("workers", words, "the network or this machine is very busy")
    return passed("workers", words)


def _resources(client: Any, addresses: list[str]) -> Iterator[Finding]:
    """Yield what the workers give to studies, one line for all that give the same."""
    name = "worker resources"
    nodes_with: dict[str, list[str]] = {}
    answers = client.run(_resources_here, workers=addresses, on_error="return")
    for address in addresses:
        answer = answers[address]
        if isinstance(answer, Exception):
            yield failed(name, f"no answer from {address}: {answer!r}", "see the worker's output")
        else:
            node, resources = answer
            nodes_with.setdefault(resources, []).append(node)
    for resources, nodes in sorted(nodes_with.items(), key=lambda each: -len(each[1])):
        named = some(sorted(set(nodes)), _NAMED)
        count = f"{len(nodes)} workers, each " if len(nodes) > 1 else ""
        yield passed(name, f"{count}{resources}, on {named}")


def _resources_here(dask_worker: Any = None) -> tuple[str, str]:
    """Return this worker's machine, and what studies may use of it in words."""
    granted = granted_by(dask_worker)
    gpus = plural(len(granted.gpus), "GPU") if granted.gpus else "no GPU"
    memory = f"{size(granted.memory_bytes)} of memory"
    return devices.node(), f"{plural(len(granted.cpus), 'core')}, {gpus}, {memory}"


def _clocks(client: Any, addresses: list[str]) -> Finding:
    skews = {}
    for address in addresses[:_CLOCKS_READ]:
        before = time.time()
        there = client.run(time.time, workers=[address])[address]
        after = time.time()
        skews[address] = max(before - there, there - after, 0.0)
    worst = max(skews, key=lambda address: skews[address])
    skew = skews[worst]
    if skew > _MOST_SKEW_SECONDS:
        found = f"the clock of {worst} differs by {skew:.3g} s from this machine's"
        return warned("clocks", found, "times in logs will not match: synchronise the clocks (NTP)")
    return passed("clocks", f"within {max(skew, 0.1):.1g} s of this machine's")


def _files(client: Any, addresses: list[str], subject: Subject) -> Finding:
    name = "files"
    try:
        with folder_for(subject) as folder:
            word = secrets.token_hex(8)
            (folder / "word").write_text(word)
            answers = client.run(_read_and_answer, str(folder), workers=addresses)
            unseen = [address for address, answer in answers.items() if answer != word]
            back = [path for path in folder.iterdir() if path.name.startswith("answer-")]
            if len(back) != len(answers) - len(unseen):
                return warned(
                    name,
                    f"files of {len(answers) - len(unseen) - len(back)} workers are not visible "
                    "here at once",
                    "the file system caches: trials' files may appear some seconds late",
                )
            if unseen:
                others = "" if len(unseen) == len(answers) else "; the others share the directory"
                return passed(
                    name,
                    f"files go over the connection to {plural(len(unseen), 'worker')} "
                    f"({some(unseen, _NAMED)}), which cannot use {folder.parent} "
                    f"({answers[unseen[0]]}){others}",
                )
    except OSError as error:
        return failed(name, str(error), "see the study's directory above")
    return passed(name, "shared directory: workers read files written here, and back")


def _read_and_answer(folder: str) -> str:
    try:
        word = Path(folder, "word").read_text()
        Path(folder, f"answer-{secrets.token_hex(8)}").write_text(word)
    except OSError as error:
        return str(error)
    return word

"""A worker that studies may refuse, without a scheduler."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler
from distributed.scheduler import heartbeat_interval

from hptune.core.resources import Capacity
from hptune.errors import StudyError
from hptune.worker.dask import worker
from hptune.worker.dask.offer import Offer, WorkerOptions
from hptune.worker.dask.worker import HEARTBEAT_SECONDS, _seconds_to_near_end, _Worker

REFUSED = SimpleNamespace(announcement=object(), is_accepted=False)
ACCEPTED = SimpleNamespace(announcement=object(), is_accepted=True)
JOINING = SimpleNamespace(announcement=None, is_accepted=False)


@pytest.mark.parametrize(
    ("plugins", "is_useless"),
    [([REFUSED], True), ([REFUSED, ACCEPTED], False), ([REFUSED, JOINING], False), ([], True)],
)
def test_a_refused_worker_goes_only_if_no_study_uses_it_or_may_still_do_so(
    plugins: list[Any], *, is_useless: bool
) -> None:
    worker: Any = SimpleNamespace(study_plugins=plugins, is_useless=asyncio.Event())
    _Worker._look_for_studies(worker)
    assert worker.is_useless.is_set() is is_useless


def test_a_worker_sends_fewer_heartbeats_than_its_scheduler_asks_for() -> None:
    """With ten workers, a scheduler spends 3 % of a core on two a second from each."""

    async def intervals() -> list[float]:
        async with (
            Scheduler(host="127.0.0.1", dashboard=False, dashboard_address="127.0.0.1:0") as there,
            _Worker(
                there.address, granted=Capacity(cpus=(0,)), say=print, host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
            ) as worker,
        ):  # fmt: skip
            timer = worker.periodic_callbacks["heartbeat"]
            await worker.heartbeat()
            seen = there.workers[worker.address].last_seen
            await worker.heartbeat()
            assert there.workers[worker.address].last_seen > seen
            return [heartbeat_interval(1), timer.callback_time / 1000]

    asked, used = asyncio.run(intervals())
    assert asked < used == HEARTBEAT_SECONDS


@pytest.mark.parametrize(
    ("seconds_left", "notice", "is_near"),
    [(566, "60", False), (120, "60", True), (566, "", True), (900, "", False), (30, "60", True)],
)
def test_a_signal_is_explained_by_the_walltime_when_that_announces_its_end(
    monkeypatch: pytest.MonkeyPatch, seconds_left: int, notice: str, is_near: bool
) -> None:
    """A SIGTERM long before that is a requeue, a preemption or scancel."""
    monkeypatch.setenv("HPTUNE_WORKER_ENDS_AT", str(int(time.time()) + seconds_left))
    monkeypatch.setenv("HPTUNE_WORKER_NOTICE", notice)
    assert (_seconds_to_near_end() is not None) == is_near


ADDRESS = "tls://10.9.8.7:1"


@pytest.mark.parametrize(
    ("error", "waits", "ends"),
    [
        (
            errno.ENETUNREACH,
            f"waiting for a scheduler at {ADDRESS} (by FILE): Network is unreachable",
            f"{ADDRESS} cannot be reached from this machine (Network is unreachable); 0 s have",
        ),
        (
            errno.ECONNREFUSED,
            f"waiting for a scheduler at {ADDRESS} (by FILE): Connection refused",
            "no scheduler answered at FILE within 0 s. Start one with `hptune scheduler`, or cont",
        ),
        (
            None,
            "waiting for a scheduler at FILE, which this machine does not see",
            "no scheduler answered at FILE within 0 s. Start one with ",
        ),
    ],
    ids=["no route", "master gone", "file hidden"],
)
def test_a_worker_says_at_once_which_address_it_cannot_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int | None, waits: str, ends: str
) -> None:
    def unreached(_: str, **__: float) -> str:
        raise OSError(error, os.strerror(error or 0))

    file, said = tmp_path / "scheduler.json", list[str]()
    if error is not None:
        file.write_text(json.dumps({"address": ADDRESS}))
    monkeypatch.setattr(worker, "reach", unreached)
    options: Any = SimpleNamespace(scheduler=str(file), death_timeout_seconds=0.0)
    offer: Any = SimpleNamespace(note="")

    async def joined() -> None:
        await worker._Joining(
            options, offer, said.append, tmp_path, tmp_path, is_quiet=True
        )._joined()

    with pytest.raises(StudyError) as ended:
        asyncio.run(joined())
    assert [line.replace(str(file), "FILE") for line in said] == [waits]
    assert ended.value.message.replace(str(file), "FILE").startswith(ends)


def test_a_worker_waits_for_its_name_until_the_scheduler_has_noticed_that_it_was_cut_off(
    tmp_path: Path,
) -> None:
    async def said() -> list[str]:
        lines = list[str]()
        served: Any = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
        async with (
            Scheduler(**served, dashboard=False) as there,
            _Worker(
                there.address, granted=Capacity(cpus=(0,)), say=print, name="twin", **served
            ) as before,
        ):

            def say(line: str) -> None:
                lines.append(line.replace(there.address, "ADDRESS"))
                closing.append(asyncio.ensure_future(before.close()))

            closing = list[asyncio.Future[Any]]()
            options = WorkerOptions(there.address, name="twin", insecure=True)
            offer = Offer(Capacity(cpus=(0,)))
            joined = await worker._Joining(
                options, offer, say, tmp_path, tmp_path, is_quiet=True
            )._joined()
            assert joined is not None
            await joined.close()
            await asyncio.gather(*closing)
        return lines

    assert asyncio.run(said()) == [
        "waiting for a scheduler at ADDRESS: it has another worker called 'twin'"
    ]


@pytest.mark.parametrize("is_under_nohup", [False, True])
def test_a_worker_leaves_when_its_terminal_is_closed_but_not_under_nohup(
    tmp_path: Path, is_under_nohup: bool
) -> None:
    def say(line: str) -> None:
        # The kernel and the shell both send the first.
        for each in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM) if "waiting" in line else ():
            signal.raise_signal(each)

    options = WorkerOptions(str(tmp_path / "scheduler.json"))
    joining = worker._Joining(
        options, Offer(Capacity(cpus=(0,))), say, tmp_path, tmp_path, is_quiet=True
    )
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if is_under_nohup else lambda *_: None)
    try:
        asyncio.run(joining.run())
    finally:
        signal.signal(signal.SIGHUP, before)
    assert joining._why == ("SIGTERM" if is_under_nohup else "SIGHUP")


def test_no_line_of_a_trial_comes_before_that_of_joining(tmp_path: Path) -> None:
    said = list[str]()

    def say(line: str) -> None:
        other.start()
        other.join(0.1)  # it waits for this line
        said.append(line)

    def start() -> None:
        joining._say_joined(ADDRESS)
        said.append("trial 0 starts")

    offer: Any = SimpleNamespace(capacity=Capacity((0,)))
    joining = worker._Joining(SimpleNamespace(), offer, say, tmp_path, tmp_path, is_quiet=True)  # type: ignore[arg-type]
    other = threading.Thread(target=start)
    joining._say_joined(ADDRESS)
    other.join()
    assert [line.partition(" with ")[0] for line in said] == [f"joined {ADDRESS}", "trial 0 starts"]

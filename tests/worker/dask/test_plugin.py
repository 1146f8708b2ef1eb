"""A study's plugin whose worker leaves, without Dask."""

from __future__ import annotations

import asyncio
import pickle
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from distributed import Status

from attempt_orders import BRIEF
from hptune.core.attempt import AttemptId, Cause, Ending, Halt
from hptune.core.messages import AttemptEnded, AttemptWaits, Start
from hptune.core.resources import Capacity, Placement
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.dask.plugin import StudyPlugin
from hptune.worker.dask.study_access import StudyAccess
from hptune.worker.dask.study_attempts import StudyAttempts
from hptune.worker.dask.words import ending_text
from hptune.worker.device_queue import DEVICE_QUEUE, WAITS
from hptune.worker.orders import AttemptOrder, StopOrder
from hptune.worker.transport.notices import FilesWanted

ATTEMPT = AttemptId(3, 1)


def test_a_worker_that_is_cut_off_waits_for_its_trials_and_then_ends(tmp_path: Path) -> None:
    did: list[Any] = []
    said: list[str] = []
    plugin, worker, _ = plain(tmp_path)
    worker.status, worker.batched_stream, worker.say = Status.closing, None, said.append

    async def leave() -> None:
        await plugin.setup(worker)
        attempts: Any = plugin.attempts
        assert attempts.runner is not None
        attempts.runner.close()
        attempts.remote = SimpleNamespace(close=lambda: did.append("closed"))
        attempts.runner = SimpleNamespace(
            outlive_master=lambda: did.append("waited"), close=lambda: did.append("stopped")
        )
        events = ("cut_off", "leave", "study_ends", "runner_closed")
        nothing = dict.fromkeys(events, lambda *_: ())
        attempts.state = SimpleNamespace(attempts=[ATTEMPT], announcement=None, **nothing)
        await plugin.teardown(worker)

    asyncio.run(leave())
    assert did == ["waited", "stopped", "closed"]
    assert "study study: the connection to its master is lost; trials here stop" in said


def test_the_worker_gives_no_reason_that_only_the_master_knows(tmp_path: Path) -> None:
    said: list[str] = []
    worker = SimpleNamespace(log_event=lambda *_: None)
    attempts = StudyAttempts("study", worker, said.append)
    for ending in (
        Ending(Halt.PRUNE.cause, reason=Halt.PRUNE.reason),  # by a pruner, or by a user
        Ending(Cause.RETURNED),
        Ending(Cause.EXCEPTION, reason="ValueError: bad"),
    ):
        attempts._carry_out(AttemptEnded(0.0, ATTEMPT, ending))
    assert [line.partition(" is over: ")[2] for line in said] == [
        "pruned",
        str(Cause.RETURNED),
        f"{Cause.EXCEPTION} (ValueError: bad)",
    ]


def test_the_worker_says_that_an_attempt_waits_for_another_study(tmp_path: Path) -> None:
    said: list[str] = []
    stops = threading.Event()
    plugin, worker, sent = plain(tmp_path)

    def say(line: str) -> None:
        said.append(line.removeprefix("study study: "))
        if "waits" in line:
            stops.set()

    worker.say = say
    placement = Placement(worker.address, (0,))
    order = AttemptOrder(BRIEF, Start(AttemptId(0, 0), {}, placement, 7), ())

    async def wait() -> None:
        await plugin.setup(worker)
        other = DEVICE_QUEUE.enter("another study", placement, lambda: None)
        running = asyncio.ensure_future(asyncio.to_thread(plugin.attempts.run, order))
        try:
            assert await asyncio.to_thread(stops.wait, 60.0), said
        finally:
            plugin.attempts.tell(StopOrder(order.attempt, Halt.STOP))
            await running
            DEVICE_QUEUE.release(other)
            await plugin.teardown(worker)

    asyncio.run(wait())
    assert AttemptWaits(0.0, order.attempt, WAITS) in sent
    assert [each for each in said if each.startswith("trial")] == [
        f"trial 0 {WAITS}",
        f"trial 0 is over: {ending_text(Halt.STOP.ending)}",
    ]


def plain(tmp_path: Path) -> tuple[StudyPlugin, Any, list[Any]]:
    """Return a plugin, a worker for it, and what the plugin sends."""
    source = ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py"))
    sent: list[Any] = []
    worker = SimpleNamespace(
        address="tcp://127.0.0.1:1",
        name="one",
        log_event=lambda _, message: sent.append(pickle.loads(message)),
        status=Status.running,
    )
    plugin = StudyPlugin(name="study", source=source, fork_server_address=None, cores={"one": (0,)})
    return plugin, worker, sent


def runner_threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name == "hptune-attempts"]


def test_a_study_that_ends_while_a_worker_joins_leaves_nothing_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, worker, sent = plain(tmp_path)
    looks, has_ended = threading.Event(), threading.Event()

    def granted(*_: object) -> Capacity:
        looks.set()
        assert has_ended.wait(60.0)
        return Capacity((0,), (), 0)

    async def join() -> None:
        joining = asyncio.ensure_future(plugin.setup(worker))
        assert await asyncio.to_thread(looks.wait, 60.0)
        await plugin.teardown(worker)
        has_ended.set()
        await joining

    before = runner_threads()
    monkeypatch.setattr("hptune.worker.dask.announcement.granted_by", granted)
    asyncio.run(join())
    assert runner_threads() == before
    assert sent == []


def test_a_worker_that_can_run_nothing_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, worker, sent = plain(tmp_path)

    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("hptune.worker.dask.plugin.AttemptRunner", no_thread)
    asyncio.run(plugin.setup(worker))
    (announced,) = sent
    assert plugin.announcement == announced
    assert announced.event.reason == "no trial can run there: can't start new thread"


def test_a_worker_measures_what_is_free_of_the_memory_that_its_user_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, worker, _ = plain(tmp_path)
    worker.granted = Capacity((0,), (), 16)
    runner = Mock()
    monkeypatch.setattr("hptune.worker.dask.plugin.AttemptRunner", runner)
    asyncio.run(plugin.setup(worker))
    assert runner.call_args.kwargs["memory_bytes"] == 16


def test_what_a_worker_offers_is_found_out_beside_its_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take seconds, as nvidia-smi does; Dask's worker answers meanwhile."""
    source = ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py"))
    elsewhere = str(tmp_path / "elsewhere" / "study")
    access = StudyAccess(elsewhere, "token", source, {"model.py": ""}, ("code/model.py",))
    plugin = StudyPlugin(
        name="study", source=source, fork_server_address=None, cores={}, access=access
    )
    looked: list[int] = []

    def granted(*_: object) -> Capacity:
        looked.append(threading.get_ident())
        return Capacity((0,), (), 0)

    async def join() -> None:
        joined = asyncio.Event()
        loop = asyncio.get_running_loop()

        def log_event(_: str, message: bytes) -> None:
            told = pickle.loads(message)
            if isinstance(told, FilesWanted):
                assert plugin.attempts.remote is not None
                plugin.attempts.remote.brought(told.ticket, "")
            else:
                assert told.event.capacity.cpus == (0,)
                loop.call_soon_threadsafe(joined.set)

        worker = SimpleNamespace(
            address="tcp://127.0.0.1:1",
            local_directory=str(tmp_path),
            log_event=log_event,
            status=Status.running,
        )
        await plugin.setup(worker)
        await asyncio.wait_for(joined.wait(), 60.0)
        await plugin.teardown(worker)

    monkeypatch.setattr("hptune.worker.dask.announcement.granted_by", granted)
    asyncio.run(join())
    assert len(looked) == 1
    assert looked != [threading.get_ident()]

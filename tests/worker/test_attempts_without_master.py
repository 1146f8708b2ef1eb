"""Attempts whose master is gone: when it counts as lost, and what becomes of them."""

from __future__ import annotations

import itertools
import json
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import pytest

from hptune.config.objectives import resolve_goals
from hptune.core.attempt import AttemptId, Cause, Halt
from hptune.core.messages import (
    AttemptEnded,
    Event,
    Reported,
    Start,
)
from hptune.core.resources import Placement
from hptune.master.recovery import collect
from hptune.storage.attempt_journal import AttemptJournal, journal_path, read_journal
from hptune.storage.directory import StudyDirectory
from hptune.user_code.model_file import check_path
from hptune.worker import runner
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.monitoring import master_liveness
from hptune.worker.monitoring.master_liveness import MasterLiveness, MasterState
from hptune.worker.orders import AttemptLimits, AttemptOrder, ProbeOrder, StudyBrief
from hptune.worker.runner import AttemptRunner
from real_runs import wait_for

NAME = AttemptId(3, 1)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    times = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: times[0])
    return times


def test_a_master_that_gives_no_sign_of_life_is_lost(
    directory: StudyDirectory, now: list[float]
) -> None:
    with directory.acquire() as lock:
        watch = MasterLiveness(directory.path, lock.owner.token)
        for _ in range(100):
            now[0] += 10
            os.utime(directory.path / "lease")
            assert watch.look() is MasterState.LIVES
        now[0] += 50
        assert watch.look() is MasterState.LIVES
        now[0] += 50
        assert watch.look() is MasterState.LOST
        assert watch.silent_seconds == 100
        os.utime(directory.path / "lease")
        now[0] += 5
        assert watch.look() is MasterState.LIVES  # it was suspended
    now[0] += 5
    assert watch.look() is MasterState.LIVES
    now[0] += 5
    assert watch.look() is MasterState.LOST  # it has ended, and may have had to


def test_only_a_master_that_goes_on_has_outlived_a_moment(
    directory: StudyDirectory, now: list[float]
) -> None:
    with directory.acquire() as lock:
        watch = MasterLiveness(directory.path, lock.owner.token)
        cut_off_at = now[0]
        for beat in range(3):
            now[0] += 5
            os.utime(directory.path / "lease", ns=(0, 1 + beat))
            watch.look()
            # The first beat may be from before, the second a dying master's last.
            assert watch.outlived(cut_off_at) == (beat > 0)
        assert not watch.outlived(now[0])
        now[0] += 60
        watch.look()
        assert not watch.outlived(now[0] - 60)


def test_another_master(directory: StudyDirectory, now: list[float]) -> None:
    with directory.acquire() as lock:
        watch = MasterLiveness(directory.path, lock.owner.token)
    with directory.acquire():
        assert watch.look() is MasterState.LIVES
        now[0] += 5
        assert watch.look() is MasterState.REPLACED


def test_who_writes_a_note_on_the_study_of_a_lost_master_replaces_it_not(
    directory: StudyDirectory, now: list[float]
) -> None:
    with directory.acquire() as lock:
        watch = MasterLiveness(directory.path, lock.owner.token)
        assert watch.look() is MasterState.LIVES
    for _ in range(3):  # each holds the lock for a moment
        now[0] += 5
        with directory.acquire():
            assert watch.look() is not MasterState.REPLACED
    for _ in range(2):
        now[0] += 5
        state = watch.look()
    assert (state, watch.silent_seconds) == (MasterState.LOST, 25)


MODEL = """
import os, time

def objective(hp, trial):
    hp.Float("x", 0, 1)
    for step in range(1, 1000):
        trial.report(step, loss=1.0 / step)
        if os.path.exists("go"):
            return 0.5
        if trial.should_stop():
            (trial.checkpoint_dir / "left").touch()
            return None
        time.sleep(0.05)
"""


class Running:
    """An attempt with a grace time, and its runner."""

    def __init__(
        self, warm: ForkServer, directory: StudyDirectory, token: str, grace_seconds: float
    ) -> None:
        self.directory = directory
        home = directory.path.parent
        (home / "model.py").write_text(MODEL)
        source = check_path(home / "model.py")
        found = warm.probe(ProbeOrder(source, str(home), str(home)))
        goals, _ = resolve_goals(found, ["loss:min"], [])
        brief = StudyBrief(
            name="test",
            directory=str(directory.path),
            working_directory=str(home),
            source=source,
            goals=goals,
            master=token,
            limits=AttemptLimits(master_grace_seconds=grace_seconds),
        )
        self.order = AttemptOrder(
            brief, Start(NAME, {"x": 0.5}, Placement("w", (0,)), 1), found.space
        )
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.runner = AttemptRunner(source, self.events.put, fork_server_address=warm.address)
        self.runner.start(self.order)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.runner.close()

    def wait_for(self, condition: Callable[[Event], Any]) -> None:
        while not condition(self.events.get(timeout=200)):
            pass

    @property
    def journal(self) -> list[Event]:
        return read_journal(journal_path(self.directory.trial(NAME.trial), NAME))


def test_an_attempt_goes_on_without_its_master_and_its_result_is_collected(
    warm: ForkServer, directory: StudyDirectory
) -> None:
    with directory.acquire() as lock:
        with Running(warm, directory, lock.owner.token, grace_seconds=600) as running:
            running.wait_for(lambda event: isinstance(event, Reported))
            waiting = threading.Thread(target=running.runner.outlive_master)
            waiting.start()
            (directory.path.parent / "go").touch()
            waiting.join(timeout=200)
            assert not waiting.is_alive()
        # All events of the runner can be collected.
        collected = collect(directory, [NAME], {})
        assert isinstance(collected[-1], AttemptEnded)
        assert collected[-1].ending.cause is Cause.RETURNED
        steps = [event.report.step for event in collected if isinstance(event, Reported)]
        assert steps == [*range(1, len(steps) + 1)]


def test_an_attempt_leaves_whose_worker_alone_was_cut_off(
    warm: ForkServer, directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_liveness, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(master_liveness, "_ENDS_WITHIN_SECONDS", 0.2)
    with directory.acquire() as lock:
        with Running(warm, directory, lock.owner.token, grace_seconds=600) as running:
            running.wait_for(lambda event: isinstance(event, Reported))
            waiting = threading.Thread(target=running.runner.outlive_master)
            waiting.start()
            waiting.join(timeout=1.0)
            assert waiting.is_alive(), "it left before the master gave a sign of life"
            beats = itertools.count(1)

            def leaves() -> bool:
                os.utime(directory.path / "lease", ns=(0, next(beats)))
                return not waiting.is_alive()

            wait_for(leaves, "the attempt to leave")
        ended = running.journal[-1]
        assert isinstance(ended, AttemptEnded)
        assert ended.ending.cause is Cause.RELEASED


def test_an_attempt_leaves_whose_retry_has_begun(
    warm: ForkServer, directory: StudyDirectory
) -> None:
    with directory.acquire() as lock:
        with Running(warm, directory, lock.owner.token, grace_seconds=600) as running:
            running.wait_for(lambda event: isinstance(event, Reported))
            AttemptJournal(directory.trial(NAME.trial), AttemptId(NAME.trial, NAME.number + 1))
            running.wait_for(
                lambda event: (
                    isinstance(event, AttemptEnded) and event.ending.cause is Cause.RELEASED
                )
            )
        assert running.journal == []


def test_nothing_is_started_once_the_runner_is_closed(
    warm: ForkServer, directory: StudyDirectory
) -> None:
    with directory.acquire() as lock:
        running = Running(warm, directory, lock.owner.token, grace_seconds=0)
        running.runner.close()
        while not running.events.empty():
            running.events.get()
        running.runner.start(running.order)
        ended = running.events.get(timeout=0)
        assert isinstance(ended, AttemptEnded)
        assert ended.ending.cause is Cause.RELEASED
        assert not running.runner._processes


def test_the_grace_over_an_attempt_leaves_with_a_checkpoint(
    warm: ForkServer, directory: StudyDirectory
) -> None:
    with directory.acquire() as lock:
        with Running(warm, directory, lock.owner.token, grace_seconds=0.2) as running:
            running.wait_for(lambda event: isinstance(event, Reported))
            running.runner.outlive_master()
        ended = running.journal[-1]
        assert isinstance(ended, AttemptEnded)
        assert ended.ending.cause is Halt.STOP.cause
        assert (directory.trial(NAME.trial) / "checkpoint" / "left").exists()


def test_an_attempt_leaves_when_another_master_takes_over(
    warm: ForkServer, directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_liveness, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.05)
    with directory.acquire() as lock:
        running = Running(warm, directory, lock.owner.token, grace_seconds=600)
    try:
        running.wait_for(lambda event: isinstance(event, Reported))
        with directory.acquire():
            collected = collect(directory, [NAME], {})
            assert isinstance(collected[-1], AttemptEnded)
            assert collected[-1].ending.cause is Halt.STOP.cause
    finally:
        running.runner.close()


def test_where_there_is_no_grace_there_is_no_journal(
    warm: ForkServer, directory: StudyDirectory
) -> None:
    with directory.acquire() as lock:
        with Running(warm, directory, lock.owner.token, grace_seconds=0) as running:
            running.wait_for(lambda event: isinstance(event, Reported))
            running.runner.outlive_master()  # returns at once
        assert running.journal == []
        assert not journal_path(directory.trial(NAME.trial), NAME).parent.exists()
        assert json.loads((directory.path / "lease").read_text())["token"] == lock.owner.token

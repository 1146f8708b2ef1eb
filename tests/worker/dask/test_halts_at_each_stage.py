"""What an attempt on a Dask worker ends with: by the stage at which it is told to stop, and why.

The worker's states, threads and files are real; the test plays the process and the master.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import pickle
import queue
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attempt_orders import BRIEF
from hptune.core.attempt import AttemptId, Cause, Ending, Halt
from hptune.core.messages import AttemptEnded, AttemptWaits, Start, WorkerJoined
from hptune.core.resources import Capacity, Placement
from hptune.worker.dask.announcement import Announcement
from hptune.worker.dask.study_attempts import StudyAttempts
from hptune.worker.device_queue import DeviceQueue
from hptune.worker.orders import AttemptOrder, StopOrder
from hptune.worker.runner_state import EndAttempt, Instructions, Kill, RunnerState
from hptune.worker.transport.notices import FilesChanged, FilesWanted
from hptune.worker.transport.remote_study import RemoteStudy

SECONDS = 10.0
ATTEMPT = AttemptId(3, 1)
PLACEMENT = Placement("w", (0,))
ORDER = AttemptOrder(BRIEF, Start(ATTEMPT, {}, PLACEMENT, 7, resume_from=1), ())
RETURNED = Ending(Cause.RETURNED, {"loss": 1.0}, step=2)


class Stage(enum.Enum):
    NOT_HERE = "the order to start has not arrived"
    WAITING = "another study holds its devices"
    BRINGING = "its files are brought"
    STARTING = "the fork server is awaited"
    RUNNING = "its process runs"
    ENDING = "its process has sent a result, and still runs"
    SENDING = "its last files are sent"


HAS_RESULT = (Stage.ENDING, Stage.SENDING)


def order_to_stop(halt: Halt) -> Callable[[StudyAttempts], object]:
    return lambda worker: worker.tell(StopOrder(ATTEMPT, halt))


ORDERS: dict[str, tuple[Cause, Callable[[StudyAttempts], object]]] = {
    **{halt.name: (halt.cause, order_to_stop(halt)) for halt in Halt},
    "the worker leaves": (
        Cause.RELEASED,
        lambda worker: worker.deliver(worker.state.leave, "SIGTERM"),
    ),
    "the scheduler is lost": (
        Cause.RELEASED,
        lambda worker: (
            worker.deliver(worker.state.cut_off),
            worker.deliver(worker.state.leave, "its scheduler is gone"),
        ),
    ),
    "the master is lost": (
        Cause.RELEASED,
        lambda worker: worker.deliver(worker.state.orphaned, ATTEMPT),
    ),
}
"""How an attempt ends that obeys each order, and the order."""

LOSE_FILES = ("the scheduler is lost", "the master is lost")
"""After these, nobody takes the last files of an attempt."""


class PlayedRunner:
    """A runner of one attempt, whose process does what the test says."""

    def __init__(self, listener: Callable[[AttemptEnded], object]) -> None:
        self._listener = listener
        self._state = RunnerState()
        self._lock = threading.Lock()
        self._has_sent = False
        self.has_order = threading.Event()
        self.halts: list[Halt] = []
        self.was_killed = False

    def start(self, order: AttemptOrder) -> None:
        self._play(lambda: self._state.start(order.attempt, order.brief))
        self.has_order.set()

    def stop(self, attempt: AttemptId, halt: Halt) -> None:
        self._play(lambda: self._state.stop(attempt, halt, now=1.0))

    def close(self) -> None:
        self._state.close()

    def process_starts(self) -> None:
        self._state.forked(ATTEMPT, now=0.0)

    def process_sends(self, ending: Ending) -> None:
        self._has_sent = True
        event = AttemptEnded(0.0, ATTEMPT, ending)
        self._play(lambda: self._state.message(ATTEMPT, event, now=2.0))

    def process_exits(self) -> None:
        self._play(lambda: self._state.channel_closed(ATTEMPT))
        self._play(lambda: self._state.exited(ATTEMPT, -9 if self.was_killed else 0))

    def process_obeys(self) -> None:
        """Let the process, if there is one, do as it was told."""
        if self._state.open_channels:
            if self.halts and not self._has_sent:
                self.process_sends(self.halts[0].ending)
            self.process_exits()
        assert not self._state.is_starting(ATTEMPT), "it starts nevertheless"

    def _play(self, event: Callable[[], Instructions]) -> None:
        with self._lock:
            instructions = event()
        for each in instructions:
            match each:
                case EndAttempt(attempt, ending):
                    self._listener(AttemptEnded(0.0, attempt, ending))
                case AttemptEnded():
                    self._listener(each)
                case StopOrder(_, halt):
                    self.halts.append(halt)
                case Kill():
                    self.was_killed = True


class OneAttempt:
    """The master and the worker of one attempt; another study holds its devices first."""

    def __init__(self, copy: Path | None, devices: DeviceQueue) -> None:
        self._devices = devices
        self._ends: list[Ending] = []
        self._notices = queue.SimpleQueue[FilesWanted | FilesChanged | None]()
        self._waits = threading.Event()
        self.worker = StudyAttempts(
            "study", SimpleNamespace(address="w", log_event=self._receive), lambda _: None
        )
        state = self.worker.state
        self._runner = PlayedRunner(lambda event: self.worker.deliver(state.from_runner, event))
        self.worker.runner, self.worker.source = self._runner, BRIEF.source  # type: ignore[assignment]
        if copy is not None:
            self.worker.remote = RemoteStudy(
                copy, worker="w", limit_bytes=10**9, tell=self.worker.send
            )
        joined = WorkerJoined(0.0, "w", "node", Capacity((0,)))
        self.worker.deliver(state.announced, Announcement(joined, sees_directory=copy is None))
        self._other = devices.enter("another study", PLACEMENT, lambda: None)
        self._task = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        self.worker.run(ORDER)
        self._notices.put(None)

    def _receive(self, _: str, message: bytes) -> None:
        match pickle.loads(message):
            case AttemptEnded(_, _, ending):
                self._ends.append(ending)
            case AttemptWaits():
                self._waits.set()
            case FilesWanted() | FilesChanged() as notice:
                self._notices.put(notice)

    def reach(self, stage: Stage) -> None:
        """Let everything happen that comes before a stage."""
        for earlier in itertools.takewhile(lambda each: each is not stage, Stage):
            self._leave(earlier)

    def _leave(self, stage: Stage) -> None:
        remote, runner = self.worker.remote, self._runner
        match stage:
            case Stage.NOT_HERE:
                self._task.start()
                assert self._waits.wait(SECONDS)
            case Stage.WAITING:
                self._devices.release(self._other)
                self._unanswered = None if remote is None else self._notices.get(timeout=SECONDS)
            case Stage.BRINGING:
                self._answer(self._unanswered)
                assert runner.has_order.wait(SECONDS)
            case Stage.STARTING:
                runner.process_starts()
            case Stage.RUNNING:
                if remote is not None:
                    (remote.path / "trials" / "3" / "log.txt").write_text("an epoch\n")
                runner.process_sends(RETURNED)
            case Stage.ENDING:
                runner.process_exits()

    def _answer(self, notice: FilesWanted | FilesChanged | None) -> None:
        remote: Any = self.worker.remote
        match notice:
            case FilesWanted(_, ticket, _):
                remote.brought(ticket, "")
            case FilesChanged(_, ticket, _, changes, _):
                remote.taken(ticket, [each.state.path for each in changes.changed], None)

    def end(self) -> Ending:
        """Let the rest happen, but what was not answered; return how the attempt ended."""
        if self._task.ident is None:
            self._task.start()
        self._runner.process_obeys()
        while (notice := self._notices.get(timeout=SECONDS)) is not None:
            self._answer(notice)
        self._devices.release(self._other)
        self.worker.close()
        assert not self._devices._entries, "it still holds its devices"
        (ending,) = self._ends
        return ending


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    order: str
    stage: Stage
    is_remote: bool
    cause: Cause

    def __str__(self) -> str:
        return f"{self.order}, {self.stage.value}{', remote' if self.is_remote else ''}"


def cases() -> list[Case]:
    found = []
    for order, is_remote, stage in itertools.product(ORDERS, (False, True), Stage):
        if stage in (Stage.BRINGING, Stage.SENDING) and not is_remote:
            continue  # no files travel
        if stage is Stage.NOT_HERE and order == "the master is lost":
            continue  # it is lost to no attempt
        obeyed, _ = ORDERS[order]
        cause = Cause.RETURNED if stage in HAS_RESULT else obeyed
        if is_remote and cause is Cause.RETURNED and order in LOSE_FILES:
            cause = Cause.WORKER_LOST
        found.append(Case(order, stage, is_remote, cause))
    return found


@pytest.mark.parametrize("case", cases(), ids=str)
def test_an_attempt_ends_once_by_the_order_or_by_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case
) -> None:
    devices = DeviceQueue()
    monkeypatch.setattr("hptune.worker.dask.study_attempts.DEVICE_QUEUE", devices)
    attempt = OneAttempt(tmp_path if case.is_remote else None, devices)
    attempt.reach(case.stage)
    ORDERS[case.order][1](attempt.worker)
    assert attempt.end().cause is case.cause

"""The conformance suite can fail: each broken executor is caught by the test that is meant for it.

Every broken executor here is the simulated one with one fault.
"""

from __future__ import annotations

import inspect
import math
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from hptune.core.attempt import AttemptId, Cause, Ending, Halt
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Reported,
    WorkerJoined,
    WorkerLeft,
)
from hptune.errors import StudyError
from hptune.executors.base import Executor
from hptune.testing.executor_driver import open_stage
from hptune.testing.executors import ExecutorSuite, Stage
from hptune.worker.orders import AttemptOrder, ProcessOrder
from simulated import SimulatedExecutor
from simulated_parts import Faults, SimulatedWorker
from simulated_suite import SimulatedSuite, curve


class Sound(SimulatedExecutor):
    """Executor with two workers of two cores, to be broken by subclasses."""

    has_workers = True

    def __init__(self) -> None:
        names = ("one", "two") if self.has_workers else ()
        super().__init__(
            curve=curve,
            seconds_per_epoch=lambda params, worker: 1.0,
            workers=[SimulatedWorker(name=name, cores=2) for name in names],
            faults=Faults(replaced_after_seconds=3.0),
        )

    def events(self, timeout_seconds: float) -> list[Event]:
        return self.spoilt(super().events(timeout_seconds))

    def spoilt(self, events: list[Event]) -> list[Event]:
        return events


class JoinsTwice(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [*events, *events[:1]]


class DropsTheEnd(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [event for event in events if not isinstance(event, AttemptEnded)]


class EndsTwice(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [*events, *(event for event in events if isinstance(event, AttemptEnded))]


class ReportsAfterTheEnd(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return sorted(events, key=lambda event: isinstance(event, Reported))


class ForgetsTheStart(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [event for event in events if not isinstance(event, AttemptStarted)]


class LosesReports(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [e for e in events if not (isinstance(e, Reported) and e.report.step == 2)]


class MixesUpSeeds(Sound):
    def start(self, order: AttemptOrder) -> None:
        super().start(replace(order, start=replace(order.start, seed=order.start.seed + 1)))


class OneAtATime(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.queue: list[AttemptOrder] = []
        self.busy = False

    def start(self, order: AttemptOrder) -> None:
        if self.busy:
            self.queue.append(order)
        else:
            self.busy = True
            super().start(order)

    def spoilt(self, events: list[Event]) -> list[Event]:
        if any(isinstance(event, AttemptEnded) for event in events):
            self.busy = False
            if self.queue:
                self.start(self.queue.pop())
        return events


class NeverStops(Sound):
    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        pass


class KnowsOneReasonToStop(Sound):
    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        super().stop(attempt)


class StopsOnlyWhatHasBegun(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.begun: set[AttemptId] = set()

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        if attempt in self.begun:
            super().stop(attempt, halt)

    def spoilt(self, events: list[Event]) -> list[Event]:
        self.begun.update(e.attempt for e in events if isinstance(e, AttemptStarted))
        return events


class StopsOnlyTheWilling(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.unwilling: set[AttemptId] = set()

    def start(self, order: AttemptOrder) -> None:
        if order.start.params["behaviour"] == "ignore":
            self.unwilling.add(order.attempt)
        super().start(order)

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        if attempt not in self.unwilling:
            super().stop(attempt, halt)


class AnswersEveryStop(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Event] = []

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        super().stop(attempt, halt)
        self.answers.append(
            AttemptEnded(self.clock.now(), attempt, Ending(Cause.STOPPED, reason="told to"))
        )

    def spoilt(self, events: list[Event]) -> list[Event]:
        said, self.answers = self.answers, []
        return [*(replace(each, at=self.clock.now()) for each in said), *events]


class AnswersEveryOrder(Sound):
    def tell(self, order: ProcessOrder) -> None:
        ending = Ending(Cause.RETURNED, {"score": 0.0})
        self.deliver(0.0, AttemptEnded(self.clock.now(), order.attempt, ending))


class KnowsOneFailure(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [
            replace(event, ending=replace(event.ending, cause=Cause.EXCEPTION))
            if isinstance(event, AttemptEnded) and event.ending.cause is not Cause.RETURNED
            else event
            for event in events
        ]


class GivesNoReason(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [
            replace(event, ending=replace(event.ending, reason=""))
            if isinstance(event, AttemptEnded)
            else event
            for event in events
        ]


class BreaksWithAnAttempt(Sound):
    broken = False

    def start(self, order: AttemptOrder) -> None:
        if not self.broken:
            super().start(order)

    def spoilt(self, events: list[Event]) -> list[Event]:
        ended = [event.ending.cause for event in events if isinstance(event, AttemptEnded)]
        self.broken |= Cause.KILLED in ended
        return events


class MendsResults(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        repaired: list[Event] = []
        for event in events:
            if isinstance(event, AttemptEnded):
                metrics = {
                    name: value if math.isfinite(value) else 0.0
                    for name, value in event.ending.metrics.items()
                }
                repaired.append(replace(event, ending=replace(event.ending, metrics=metrics)))
            else:
                repaired.append(event)
        return repaired


class SleepsThroughWakes(Sound):
    def wake(self) -> None:
        pass


class KeepsALossToItself(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [event for event in events if not isinstance(event, WorkerLeft)]


class SpeaksForTheDead(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.known: set[AttemptId] = set()

    def start(self, order: AttemptOrder) -> None:
        self.known.add(order.attempt)
        super().start(order)

    def spoilt(self, events: list[Event]) -> list[Event]:
        lost = Ending(Cause.WORKER_LOST, reason="its worker is gone")
        return [
            *events,
            *(
                AttemptEnded(event.at, name, lost)
                for event in events
                if isinstance(event, WorkerLeft)
                for name in sorted(self.known)
            ),
        ]


class TakesTheSameNameAgain(Sound):
    def spoilt(self, events: list[Event]) -> list[Event]:
        return [
            replace(event, worker=event.worker.removesuffix("-2"))
            if isinstance(event, WorkerJoined)
            else event
            for event in events
        ]


class TripsOverLateOrders(Sound):
    def start(self, order: AttemptOrder) -> None:
        if any(at <= self.clock.now() for at, *_ in self._happenings):  # the worker leaves
            raise KeyError(order.placement.worker)
        super().start(order)


class NeedsWorkers(Sound):
    def events(self, timeout_seconds: float) -> list[Event]:
        if not self._places and not self._happenings:
            raise StudyError("there are no workers")
        return super().events(timeout_seconds)


class LeavesAProcess(Sound):
    def open(self) -> None:
        super().open()
        LEFT.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))


class LeavesAPort(Sound):
    def open(self) -> None:
        super().open()
        LEFT.append(socket.create_server(("127.0.0.1", 0)))


class LeavesAFolder(Sound):
    def open(self) -> None:
        super().open()
        tempfile.mkdtemp(prefix="hptune-")


class ClosesOnce(Sound):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True
        super().close()


LEFT: list[Any] = []


@pytest.fixture(autouse=True)
def _what_is_left_ends() -> Iterator[None]:
    yield
    while LEFT:
        left = LEFT.pop()
        if isinstance(left, subprocess.Popen):
            left.communicate()
        else:
            left.close()


def suite_of(broken: type[Sound]) -> ExecutorSuite:
    class Suite(SimulatedSuite):
        limit_seconds = 30.0
        tidy_seconds = 0.2

        @contextmanager
        def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
            executor = broken()
            executor.open()
            try:
                yield executor
            finally:
                if broken is not ClosesOnce:
                    executor.close()

        @contextmanager
        def executor_without_workers(self, stage: Stage) -> Iterator[Executor]:
            executor = type("Deserted", (broken,), {"has_workers": False})()
            executor.open()
            yield executor
            executor.close()

    return Suite()


CAUGHT_BY: list[tuple[type[Sound], str]] = [
    (JoinsTwice, "test_a_worker_joins_before_anything_else"),
    (DropsTheEnd, "test_an_attempt_starts_reports_and_returns"),
    (EndsTwice, "test_an_attempt_starts_reports_and_returns"),
    (ReportsAfterTheEnd, "test_an_attempt_starts_reports_and_returns"),
    (ForgetsTheStart, "test_an_attempt_starts_reports_and_returns"),
    (LosesReports, "test_an_attempt_starts_reports_and_returns"),
    (MixesUpSeeds, "test_an_attempt_starts_reports_and_returns"),
    (OneAtATime, "test_a_worker_with_two_cores_runs_two_at_once"),
    (NeverStops, "test_an_attempt_can_be_stopped"),
    (KnowsOneReasonToStop, "test_an_attempt_can_be_stopped"),
    (NeverStops, "test_an_attempt_can_be_killed_at_once"),
    (AnswersEveryOrder, "test_an_attempt_learns_that_it_may_continue_after_a_rung"),
    (StopsOnlyWhatHasBegun, "test_an_attempt_can_be_stopped_before_it_has_begun"),
    (StopsOnlyTheWilling, "test_an_attempt_that_ignores_the_order_ends_after_the_grace_time"),
    (AnswersEveryStop, "test_stopping_again_or_too_late_does_nothing"),
    (KnowsOneFailure, "test_failures_are_reported_as_what_they_are"),
    (GivesNoReason, "test_failures_are_reported_as_what_they_are"),
    (BreaksWithAnAttempt, "test_failures_are_reported_as_what_they_are"),
    (MendsResults, "test_results_that_make_no_sense_are_passed_on_for_the_engine"),
    (SleepsThroughWakes, "test_a_wake_makes_a_waiting_call_return"),
    (KeepsALossToItself, "test_a_lost_worker_is_reported_and_its_attempts_end_with_it"),
    (SpeaksForTheDead, "test_a_lost_worker_is_reported_and_its_attempts_end_with_it"),
    (TakesTheSameNameAgain, "test_a_lost_worker_is_reported_and_its_attempts_end_with_it"),
    (TripsOverLateOrders, "test_an_order_for_a_worker_that_is_gone_does_no_harm"),
    (NeedsWorkers, "test_having_no_worker_is_a_state"),
    (LeavesAProcess, "test_closing_kills_what_runs_and_leaves_nothing"),
    (LeavesAPort, "test_closing_kills_what_runs_and_leaves_nothing"),
    (LeavesAFolder, "test_closing_kills_what_runs_and_leaves_nothing"),
    (ClosesOnce, "test_closing_twice_is_closing_once"),
]
TESTS = [name for name in vars(ExecutorSuite) if name.startswith("test_")]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with open_stage() as stage:
        yield stage


def run(broken: type[Sound], test: str, stage: Stage) -> None:
    """Run an inherited test as pytest would, with each of its arguments."""
    suite = suite_of(broken)
    method = getattr(suite, test)
    marks = [mark for mark in getattr(method, "pytestmark", []) if mark.name == "parametrize"]
    for arguments in marks[0].args[1] if marks else [()]:
        if "shared" in inspect.signature(method).parameters:
            with suite.driver(stage) as shared:
                method(shared, *arguments)
        else:
            method(stage, *arguments)


@pytest.mark.parametrize(("broken", "test"), CAUGHT_BY)
def test_a_broken_executor_is_rejected(broken: type[Sound], test: str, stage: Stage) -> None:
    # An executor that raises where it may not is caught by that.
    caught = (AssertionError, KeyError, StudyError, RuntimeError)
    with pytest.raises(caught):
        run(broken, test, stage)


@pytest.mark.parametrize("test", TESTS)
def test_every_test_of_the_suite_rejects_something(test: str) -> None:
    assert test in {name for _, name in CAUGHT_BY}


@pytest.mark.parametrize("test", TESTS)
def test_the_sound_executor_passes(test: str, stage: Stage) -> None:
    run(Sound, test, stage)

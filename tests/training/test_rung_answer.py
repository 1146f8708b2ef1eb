"""The wait for the study's answer at a rung: how long, and when not at all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from hptune.core.attempt import AttemptId, Halt
from hptune.core.goals import Goals
from hptune.core.messages import Event, Reported, Start
from hptune.core.resources import Placement
from hptune.core.trial import Direction, Goal
from hptune.training import rung_answer
from hptune.training.context import TrialContext
from hptune.training.rung_answer import MOST_SECONDS, RungAnswer

_T = TypeVar("_T")


class Clock:
    """A clock that each test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


class Waits(threading.Condition):
    """Notes how long each wait may last, and waits so long by the clock of the test."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.most_seconds: list[float] = []

    def wait_for(self, predicate: Callable[[], _T], timeout: float | None = None) -> _T:
        if not predicate():
            assert timeout is not None
            self.most_seconds.append(timeout)
            self._clock.seconds += timeout
        return predicate()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> list[float]:
    condition = Waits(clock)
    monkeypatch.setattr(rung_answer, "Condition", lambda: condition)
    return condition.most_seconds


def answer(clock: Clock, *rungs: int, last_step: int = 0) -> RungAnswer:
    return RungAnswer(rungs, last_step=last_step, clock=clock)


@pytest.mark.parametrize(("step_seconds", "most"), [(0.4, 0.2), (1.0, 0.5), (600.0, MOST_SECONDS)])
def test_it_waits_for_a_share_of_the_step_at_rungs_alone(
    clock: Clock, waits: list[float], step_seconds: float, most: float
) -> None:
    at = answer(clock, 2, 6)
    for step in range(1, 4):
        clock.seconds += step_seconds
        at.reported(step)
        at.continue_after(0)  # an answer to something else
        at.wait()
        at.wait()  # once for each report
        assert waits == ([] if step == 1 else [pytest.approx(most)]), step


def test_a_report_that_passes_a_rung_is_one_at_it(clock: Clock, waits: list[float]) -> None:
    at = answer(clock, 2, 6, last_step=2)
    for step, expected in ((2, 0), (4, 0), (8, 1), (7, 1)):
        clock.seconds += 4.0
        at.reported(step)
        at.wait()
        assert len(waits) == expected, step


def test_an_answer_that_is_there_is_not_waited_for(clock: Clock, waits: list[float]) -> None:
    at = answer(clock, 1, 3)
    clock.seconds += 4.0
    at.reported(1)
    at.continue_after(1)
    at.wait()
    assert at.continued == 1
    clock.seconds += 4.0
    at.reported(3)
    at.stop()
    at.wait()
    assert not waits


def test_who_got_no_answer_waits_again_only_after_one(clock: Clock, waits: list[float]) -> None:
    at = answer(clock, 1, 3, 9, 27)
    for step in (1, 3, 9):
        if step == 9:
            at.continue_after(3)  # the master is back
        clock.seconds += 4.0
        at.reported(step)
        at.wait()
    assert len(waits) == 2, "at 1 and at 9"


def test_waits_do_not_make_the_next_ones_longer(clock: Clock, waits: list[float]) -> None:
    at = answer(clock, *range(1, 9))
    for step in range(1, 9):
        clock.seconds += 1.0
        at.reported(step)
        at.wait()
        at.continue_after(step)  # late, as each time
    assert waits == [pytest.approx(0.5)] * 8


def context(tmp_path: Path, send: list[Event], *, answer: Halt | None, at: int) -> TrialContext:
    """Return a trial whose study answers the report at a step from another thread."""

    def reply(event: Event) -> None:
        send.append(event)
        if isinstance(event, Reported) and event.report.step == at:
            threading.Timer(0.05, tell).start()

    def tell() -> None:
        if answer is None:
            trial.may_continue(at)
        else:
            trial.request_stop(answer)

    trial = TrialContext(
        Start(AttemptId(0, 0), {}, Placement("worker", (0,)), 0, rungs=(1, 3)),
        directory=tmp_path,
        goals=Goals((Goal("score", Direction.MAX),)),
        epochs=9,
        send=reply,
    )
    return trial


@pytest.mark.parametrize("answer", [Halt.PRUNE, Halt.PAUSE, None])
def test_a_trial_that_asks_right_after_its_report_gets_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Halt | None
) -> None:
    monkeypatch.setattr(rung_answer, "SHARE_OF_STEP", 1e9)
    monkeypatch.setattr(rung_answer, "MOST_SECONDS", 60.0)
    trial = context(tmp_path, [], answer=answer, at=1)
    trial.report(1, score=0.1)
    assert trial.should_stop() == (answer is not None)
    assert trial.halt is answer
    assert trial.continued == (0 if answer else 1)


def test_a_report_without_the_objective_is_not_waited_for(
    tmp_path: Path, waits: list[float]
) -> None:
    trial = context(tmp_path, [], answer=Halt.PRUNE, at=9)
    trial.report(1, other=0.1)
    assert not trial.should_stop()
    assert not waits

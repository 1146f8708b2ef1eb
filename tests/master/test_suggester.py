"""Suggestions outside the loop: it continues; their order is the engine's, errors are reported."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import pytest

from engine_checks import check_engine
from hptune.core.clock import SystemClock
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import (
    AttemptEnded,
    Event,
    FinishReason,
    Reported,
    Suggested,
)
from hptune.core.sampler import Sampler
from hptune.core.space.space import FloatParameter, IntParameter, SearchSpace
from hptune.core.trial import Direction, Goal, Params, Suggestion, Trial, TrialState
from hptune.errors import StudyError, UsageError
from hptune.master.suggester import (
    InformedSampler,
    SuggestingThread,
    ask_ahead,
)
from hptune.samplers.registry import SAMPLERS
from simulated import SimulatedExecutor
from simulated_parts import Curve, SimulatedWorker
from simulated_studies import Memory, play

SPACE = SearchSpace((FloatParameter("x", 0.0, 1.0),))
GOAL = Goal("score", Direction.MAX)


class Scripted(Sampler):
    """Sampler that answers with the trials that it has seen; it may wait, or fail."""

    def __init__(self, *, go: threading.Event | None = None, fails_at: int | None = None) -> None:
        self.heard: list[tuple[int, TrialState]] = []
        self.asked = threading.Event()
        self.go = go
        self.fails_at = fails_at
        self.error: BaseException = ZeroDivisionError("nothing to divide")

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        self.asked.set()
        if self.go is not None:
            assert self.go.wait(200.0)
        if self.fails_at in numbers:
            raise self.error
        return [Suggestion({"x": number / 1e4}, str(len(self.heard))) for number in numbers]

    def tell(self, trial: Trial) -> None:
        self.heard.append((trial.number, trial.state))


def curve(params: Params, seed: int) -> Curve:
    return [{"score": float(str(params["x"]))}] * 4


def study(
    sampler: Sampler,
    *,
    trials: int,
    workers: int = 1,
    ahead: float = 0.0,
    seconds: Callable[[int], float] | None = None,
    memory: Memory | None = None,
    make_executor: Callable[..., SimulatedExecutor] = SimulatedExecutor,
) -> Engine:
    """Run a study of trials of 8 seconds on a simulated cluster.

    `seconds` is how long the sampler thinks by the virtual clock; without it, it runs in a thread.
    """
    executor = make_executor(
        curve=curve,
        seconds_per_epoch=lambda params, _: 2.0 + float(str(params["x"])),
        workers=[SimulatedWorker(name=f"w{number}") for number in range(workers)],
    )
    played = play(
        executor,
        space=SPACE,
        goals=Goals((GOAL,)),
        trials=trials,
        make_sampler=lambda _: sampler,
        memory=memory or Memory(),
        suggest_seconds=seconds,
        ask_ahead=ahead,
    )
    assert played.finish.finish_reason is FinishReason.DONE
    return played.engine


# --- the thread -----------------------------------------------------------------------------


def thread_of(sampler: Sampler) -> tuple[SuggestingThread, threading.Event]:
    awake = threading.Event()
    informed = InformedSampler(lambda _: sampler, SPACE, [])
    return SuggestingThread(informed, SystemClock(), awake.set), awake


def trial(number: int, state: TrialState = TrialState.WAITING) -> Trial:
    return Trial(number, {"x": 0.5}, "", state)


def test_what_is_told_after_a_question_is_heard_after_it() -> None:
    go = threading.Event()
    sampler = Scripted(go=go)
    thread, awake = thread_of(sampler)
    thread.tell(trial(0))
    begin = time.monotonic()
    thread.ask([1])
    thread.tell(trial(0, TrialState.COMPLETE))
    thread.ask([2])
    assert time.monotonic() - begin < 100.0, "nothing waits for the sampler"
    assert sampler.asked.wait(200.0)
    assert thread.events() == []
    go.set()
    answers: list[Event] = []
    while len(answers) < 2:
        assert awake.wait(200.0)
        awake.clear()
        answers += thread.events()
    thread.close()
    first, second = answers
    assert isinstance(first, Suggested)
    assert isinstance(second, Suggested)
    assert (first.first_number, first.suggestions[0].origin) == (1, "1")
    assert (second.first_number, second.suggestions[0].origin) == (2, "2")
    assert not first.exhausted


def test_a_grown_space_gets_a_fresh_sampler_that_was_told_the_same() -> None:
    made: list[tuple[SearchSpace, Scripted]] = []

    def make(space: SearchSpace) -> Sampler:
        made.append((space, Scripted()))
        return made[-1][1]

    sampler = InformedSampler(make, SPACE, [trial(0, TrialState.COMPLETE)])
    sampler.ask([1])
    sampler.tell(trial(1))
    sampler.tell(trial(1, TrialState.FAILED))
    grown = SearchSpace((*SPACE.parameters, IntParameter("n", 1, 2)))
    sampler.grow(grown)
    sampler.ask([2])
    assert [space for space, _ in made] == [SPACE, grown]
    first, second = (each.heard for _, each in made)
    assert first == [(0, TrialState.COMPLETE), (1, TrialState.WAITING), (1, TrialState.FAILED)]
    assert second == [(0, TrialState.COMPLETE), (1, TrialState.FAILED)]


def test_the_loop_goes_on_while_the_sampler_thinks() -> None:
    """Attempts report and end before the question about the next trial is answered."""
    go = threading.Event()
    sampler = Scripted(go=None)
    memory = Memory()

    class Slow(Scripted):
        def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
            if len(self.heard) < 2:
                return super().ask(numbers)
            while sum(isinstance(event, Reported) for event in memory.events) < 7:
                time.sleep(0.001)
            go.set()
            return super().ask(numbers)

    sampler = Slow()
    engine = study(sampler, trials=3, workers=2, memory=memory)
    assert go.is_set()
    assert len([*engine.trials]) == 3


@pytest.mark.parametrize(
    "error", [ZeroDivisionError("nothing to divide"), SystemExit(3), UsageError("no such")]
)
def test_a_sampler_that_fails_ends_the_study_with_one_error(error: BaseException) -> None:
    sampler = Scripted(fails_at=2)
    sampler.error = error
    memory = Memory()
    before = threading.active_count()
    with pytest.raises((StudyError, UsageError)) as caught:
        study(sampler, trials=5, memory=memory)
    if isinstance(error, UsageError):
        assert caught.value is error
    else:
        assert f"the search failed: {type(error).__name__}: {error}. " in caught.value.message
        assert "hptune resume" in caught.value.message
        assert "in ask" in caught.value.detail
    again = Engine()
    for event in memory.events:
        again.handle(event)
    check_engine(again)
    assert [each.state for each in again.trials] == [TrialState.COMPLETE] * 2
    for _ in range(1000):
        if threading.active_count() <= before:
            break
        time.sleep(0.01)
    assert threading.active_count() <= before, "the thread is still there"


def test_what_ends_while_the_sampler_fails_is_recorded() -> None:
    """An attempt's end is taken from the executor after the failure, and before it is raised."""
    go, failed = threading.Event(), threading.Event()

    class Failing(Scripted):
        def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
            if 2 in numbers:
                assert go.wait(200.0)
                raise ZeroDivisionError("nothing to divide")
            return super().ask(numbers)

    class Executor(SimulatedExecutor):
        def events(self, timeout_seconds: float) -> list[Event]:
            found = super().events(timeout_seconds)
            if any(isinstance(each, AttemptEnded) and each.attempt.trial == 1 for each in found):
                go.set()
                assert failed.wait(200.0)
            return found

        def wake(self) -> None:
            if go.is_set():
                failed.set()
            super().wake()

    memory = Memory()
    with pytest.raises(StudyError, match="the search failed"):
        study(Failing(), trials=5, workers=2, memory=memory, make_executor=Executor)
    ended = [each.attempt.trial for each in memory.events if isinstance(each, AttemptEnded)]
    assert ended == [0, 1]


# --- ahead of need --------------------------------------------------------------------------


def seconds_idle(ahead: float, *, workers: int, thinks: float, trials: int = 80) -> float:
    """Return how long placements were empty, in seconds per trial."""
    engine = study(
        Scripted(), trials=trials, workers=workers, ahead=ahead, seconds=lambda _: thinks
    )
    worked = sum(4 * (2.0 + float(str(each.params["x"]))) for each in engine.trials)
    return (engine.active_seconds * workers - worked) / trials


def test_suggestions_are_ready_when_places_get_free() -> None:
    lazy = seconds_idle(0.0, workers=8, thinks=1.0)
    eager = seconds_idle(0.125, workers=8, thinks=1.0)
    assert lazy > 1.0
    assert eager < lazy / 2


def test_one_place_asks_with_all_results_known() -> None:
    sampler = Scripted()
    engine = study(sampler, trials=6, ahead=1.0, seconds=lambda _: 1.0)
    assert [each.origin for each in engine.trials] == ["0", "2", "4", "6", "8", "10"]


def test_no_more_is_asked_for_than_may_be_tried() -> None:
    engine = study(Scripted(), trials=10, workers=4, ahead=1.0, seconds=lambda _: 0.5)
    assert len([*engine.trials]) == 10


def test_only_slow_searches_are_asked_ahead() -> None:
    assert ask_ahead(SAMPLERS.find("tpe")) == 0.0
    assert ask_ahead(SAMPLERS.find("optuna:CmaEsSampler")) > 0.0

"""Studies of trials of unequal size that fill the memory of simulated workers, in virtual time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pytest

from tuner.core.aims import Aims
from tuner.core.engine import Engine
from tuner.core.messages import Event, StudyOpened
from tuner.core.resources import Amount, Resources
from tuner.core.space import FloatParameter, Scale, SearchSpace
from tuner.core.trial import (
    Attempt,
    AttemptId,
    Direction,
    Goal,
    Outcome,
    Params,
    Trial,
    TrialState,
)
from tuner.executors.simulated import Curve, Faults, Needs, SimulatedExecutor, SimulatedWorker
from tuner.loop import StudyLoop
from tuner.model_file import ObjectiveSource, SourceKind
from tuner.samplers.random_search import RandomSampler
from tuner.suggesting import SimulatedSuggester
from tuner.worker.orders import StudyBrief

GB = 10**9
TRIALS = 150
AIMS = Aims((Goal("score", Direction.MAX),))
SPACE = SearchSpace(
    (FloatParameter("size", 1.0, 3.0, scale=Scale.LOG), FloatParameter("rate", 0.0, 1.0))
)
SMALL = SimulatedWorker(name="w", cores=4, memory_bytes=24 * GB)


class Nowhere:
    """Neither ledger nor files; keeps the events."""

    def __init__(self) -> None:
        self.events = list[Event]()

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        self.events.extend(events)

    def set_facts(self, facts: Mapping[str, object]) -> None:
        raise AssertionError(f"nothing grows the space, and yet there is {facts}")

    def keep_best(self, trials: Sequence[Trial]) -> None:
        pass

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Told:
    """How a study went."""

    seconds: float
    complete: int
    attempts: list[Attempt]

    @property
    def lost(self) -> int:
        return sum(each.outcome is Outcome.LOST for each in self.attempts)


def needs(params: Params) -> Needs:
    return Needs(memory_bytes=int(GB * float(params["size"] or 0)), busy=0.15)


def curve(params: Params, seed: int) -> Curve:
    return [{"score": epoch / 10} for epoch in range(12)]


def study(
    *workers: SimulatedWorker,
    resources: Resources | None = None,
    measured: tuple[Amount, ...] = tuple(Amount),
    faults: Faults | None = None,
    busy: float | None = None,
) -> Told:
    engine, nowhere = Engine(), Nowhere()
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 2.0 + float(params["size"] or 0),
        workers=workers,
        faults=faults,
        startup_seconds=1.0,
        needs=needs if busy is None else lambda params: Needs(memory_bytes=GB, busy=busy),
    )
    loop = StudyLoop(
        make_suggester=lambda sampler: SimulatedSuggester(
            sampler, executor.clock, executor.deliver
        ),
        engine=engine,
        recorder=nowhere,
        make_sampler=lambda space: RandomSampler(space, 1),
        space=SPACE,
        executor=executor,
        clock=executor.clock,
        brief=StudyBrief(
            name="study",
            directory="",
            working_directory="",
            source=ObjectiveSource(SourceKind.FILE, ""),
            aims=AIMS,
            epochs=None,
            trial_timeout_seconds=None,
            deterministic=True,
        ),
        files=nowhere,
    )
    begun = executor.clock.now()
    executor.open()
    loop.run(
        StudyOpened(
            at=begun,
            trials=TRIALS,
            aims=AIMS,
            seed=1,
            resources=resources or Resources(),
            max_failures=None,
            same_failure_limit=0,
            measured=measured,
        )
    )
    engine.validate()
    complete = sum(trial.state is TrialState.COMPLETE for trial in engine.trials)
    return Told(executor.clock.now() - begun, complete, attempts_by(nowhere.events))


def attempts_by(events: Sequence[Event]) -> list[Attempt]:
    """What a fresh engine makes of them, which is how a study is taken up again."""
    engine, last = Engine(), dict[AttemptId, Attempt]()
    for event in events:
        engine.handle(event)
        last.update((each.id, each) for each in engine.take_changes()[1])
    return [*last.values()]


def test_packed_trials_fill_memory_and_none_dies() -> None:
    packed = study(SMALL)
    fixed = [
        study(SMALL, measured=(), resources=Resources(cpus=part, memory_bytes=3 * GB)).seconds
        for part in (1, 0.5, 0.25, 0.125)
    ]
    assert (packed.complete, packed.lost) == (TRIALS, 0)
    assert min(fixed) > 1.25 * packed.seconds
    # Without the memory of the largest, which somebody has to know, trials die.
    assert study(SMALL, measured=(), resources=Resources(cpus=0.125)).lost > 10


def test_trials_that_keep_a_core_busy_take_no_longer_for_being_measured() -> None:
    assert study(SMALL, busy=1.0).seconds == study(SMALL, busy=1.0, measured=()).seconds


@pytest.mark.parametrize("life_seconds", [None, 400.0])
def test_workers_of_every_size_that_come_and_go(life_seconds: float | None) -> None:
    workers = [
        SimulatedWorker(name=f"w{n}", cores=1 + n, memory_bytes=(5 + 4 * n) * GB, joins_seconds=n)
        for n in range(4)
    ]
    told = study(
        *workers,
        SimulatedWorker(name="ends", cores=8, memory_bytes=40 * GB, walltime_seconds=90.0),
        faults=Faults(worker_life_seconds=life_seconds, replaced_after_seconds=20.0),
    )
    assert told.complete == TRIALS
    assert all("memory" not in each.reason for each in told.attempts)

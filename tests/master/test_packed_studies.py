"""Studies of trials of unequal size that fill the memory of simulated workers, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from engine_checks import check_engine
from hptune.core.attempt import Attempt, Outcome
from hptune.core.goals import Goals
from hptune.core.resources import Amount, Resources
from hptune.core.space.space import FloatParameter, Scale, SearchSpace
from hptune.core.trial import Direction, Goal, Params, TrialState
from hptune.samplers.random_search import RandomSampler
from simulated import SimulatedExecutor
from simulated_parts import Curve, Faults, Needs, SimulatedWorker
from simulated_studies import Memory, attempts_by, play

GB = 10**9
TRIALS = 100
GOALS = Goals((Goal("score", Direction.MAX),))
SPACE = SearchSpace(
    (FloatParameter("size", 1.0, 3.0, scale=Scale.LOG), FloatParameter("rate", 0.0, 1.0))
)
SMALL = SimulatedWorker(name="w", cores=4, memory_bytes=24 * GB)


@dataclass(frozen=True, slots=True)
class StudyResult:
    """Result of a study."""

    seconds: float
    complete: int
    attempts: list[Attempt]

    @property
    def lost(self) -> int:
        return sum(each.outcome is Outcome.LOST for each in self.attempts)


def mostly_waiting(params: Params) -> Needs:
    return Needs(memory_bytes=int(GB * float(params["size"] or 0)), busy=0.15)


def curve(params: Params, seed: int) -> Curve:
    return [{"score": epoch / 10} for epoch in range(12)]


def study(
    *workers: SimulatedWorker,
    resources: Resources | None = None,
    measured: tuple[Amount, ...] = tuple(Amount),
    faults: Faults | None = None,
    needs: Callable[[Params], Needs] = mostly_waiting,
) -> StudyResult:
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 2.0 + float(params["size"] or 0),
        workers=workers,
        faults=faults,
        startup_seconds=1.0,
        needs=needs,
    )
    memory = Memory()
    played = play(
        executor,
        space=SPACE,
        goals=GOALS,
        trials=TRIALS,
        make_sampler=lambda space: RandomSampler(space, 1),
        memory=memory,
        resources=resources,
        measured=measured,
    )
    check_engine(played.engine)
    complete = sum(trial.state is TrialState.COMPLETE for trial in played.engine.trials)
    return StudyResult(played.seconds, complete, attempts_by(memory.events))


def test_packed_trials_fill_memory_and_none_dies() -> None:
    packed = study(SMALL)
    fixed = [
        study(SMALL, measured=(), resources=Resources(cpus=part, memory_bytes=3 * GB)).seconds
        for part in (0.5, 0.125)
    ]
    assert (packed.complete, packed.lost) == (TRIALS, 0)
    assert min(fixed) > 1.25 * packed.seconds
    # Without the memory of the largest trial, which the user must know, trials die.
    assert study(SMALL, measured=(), resources=Resources(cpus=0.125)).lost > 10


def test_trials_that_keep_a_core_busy_take_no_longer_for_being_measured() -> None:
    def busy(params: Params) -> Needs:
        return Needs(memory_bytes=GB, busy=1.0)

    assert study(SMALL, needs=busy).seconds == study(SMALL, needs=busy, measured=()).seconds


@pytest.mark.parametrize(("gpu_busy", "least"), [(1.0, 0.99), (0.5, 1.9), (0.1, 5.0)])
def test_gpus_are_shared_by_as_many_as_do_more_in_all(gpu_busy: float, least: float) -> None:
    def on_gpu(params: Params) -> Needs:
        held = int(3 * GB * float(params["size"] or 0))
        return Needs(memory_bytes=GB, busy=0.1, gpu_memory_bytes=held, gpu_busy=gpu_busy)

    gpus = SimulatedWorker(
        name="g", cores=32, gpus=2, memory_bytes=200 * GB, gpu_memory_bytes=80 * GB
    )
    packed = study(gpus, needs=on_gpu)
    assert study(gpus, needs=on_gpu, measured=()).seconds >= least * packed.seconds
    late = sorted(packed.attempts, key=lambda each: each.placed_at)[TRIALS // 2 :]
    alone = sum(each.placement.gpu_share == 1.0 for each in late)
    assert alone == (len(late) if gpu_busy == 1.0 else 0)


@pytest.mark.parametrize("life_seconds", [None, 400.0])
def test_workers_of_every_size_that_come_and_go(life_seconds: float | None) -> None:
    workers = [
        SimulatedWorker(name=f"w{n}", cores=1 + n, memory_bytes=(5 + 4 * n) * GB, joins_seconds=n)
        for n in range(4)
    ]
    result = study(
        *workers,
        SimulatedWorker(name="ends", cores=8, memory_bytes=40 * GB, walltime_seconds=90.0),
        faults=Faults(worker_life_seconds=life_seconds, replaced_after_seconds=20.0),
    )
    assert result.complete == TRIALS
    assert all("memory" not in each.reason for each in result.attempts)

"""The choice of devices for each trial, against every fixed one in virtual time."""

from __future__ import annotations

import doctest
import itertools
from collections.abc import Mapping, Sequence

import pytest

from tuner.core.goals import Goals
from tuner.core.resources import Resources
from tuner.core.scaling import split as split_module
from tuner.core.scaling.curve import Failure, Sample, ScalingCurve
from tuner.core.scaling.points import Mode, Point
from tuner.core.scaling.split import Pool, StepTimes, choose_split
from tuner.core.space.space import FloatParameter, SearchSpace
from tuner.core.trial import Direction, Goal, Params
from tuner.executors.simulated import Curve, SimulatedExecutor, SimulatedWorker
from tuner.samplers.random_search import RandomSampler
from tuner.testing.studies import Memory, play

GOALS = Goals((Goal("score", Direction.MAX),))
CURVES = {
    "scales well": {1: 1.0, 2: 0.51, 4: 0.265, 8: 0.14},
    "scales badly": {1: 1.0, 2: 0.9, 4: 0.95, 8: 1.1},
    "does not fit one device": {2: 1.0, 4: 0.55, 8: 0.34},
}
"""Time of a step relative to the fewest devices, by their number."""
POOLS = ((8,), (4, 4, 2))
TRIALS = (1, 3, 7, 20)
MARGIN = 1.05


def test_doctests() -> None:
    assert not doctest.testmod(split_module).failed


def test_repeats_that_come_after_the_last_trial_get_devices_too() -> None:
    times = StepTimes(CURVES["scales well"])
    for workers, learns in itertools.product(((1,), (4,), (4, 2)), (False, True)):
        chosen = choose_split(times, Pool(workers), 0, learns=learns)
        assert chosen == choose_split(times, Pool(workers), 1, learns=learns)


def seconds(
    times: Mapping[int, float], pool: Sequence[int], trials: int, devices: int, *, seed: int = 0
) -> float:
    """Return how long a study of trials with these devices takes, in virtual time.

    Args:
        times: Time of a trial by its number of devices.
        pool: Devices of each worker.
        trials: How many there are.
        devices: Devices of each trial.
        seed: Decides how long each trial is; 0 for equal ones.
    """

    def epoch_seconds(params: Params, _worker: SimulatedWorker) -> float:
        length = 1.0 + (float(params["x"] or 0) if seed else 0.0)
        return 60.0 * length * times[devices]

    def curve(_params: Params, _seed: int) -> Curve:
        return [{"score": 0.1}, {"score": 0.2}]

    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=epoch_seconds,
        workers=[SimulatedWorker(name=f"w{i}", cores=n) for i, n in enumerate(pool)],
    )
    played = play(
        executor,
        space=SearchSpace((FloatParameter("x", 0.0, 1.0),)),
        goals=GOALS,
        trials=trials,
        make_sampler=lambda space: RandomSampler(space, seed),
        memory=Memory(),
        resources=Resources(processes=devices),
    )
    return played.seconds


@pytest.mark.parametrize("model", CURVES)
def test_a_study_ends_within_5_percent_of_the_best_fixed_split(model: str) -> None:
    times = StepTimes(CURVES[model])
    chosen = set()
    for pool, trials in itertools.product(POOLS, TRIALS):
        choice = choose_split(times, Pool(pool), trials, learns=False)
        assert choice is not None
        chosen.add(choice.devices)
        fixed = {
            devices: seconds(times.seconds, pool, trials, devices)
            for devices in times.seconds
            if Pool(pool).at_once(devices)
        }
        assert fixed[choice.devices] <= MARGIN * min(fixed.values()), (pool, trials, fixed)
    expected = {"scales well": 3, "scales badly": 1, "does not fit one device": 2}
    assert len(chosen) >= expected[model], "the choice depends on the study"


@pytest.mark.parametrize("model", CURVES)
def test_the_lengths_of_earlier_trials_tell_those_of_later_ones(model: str) -> None:
    times = StepTimes(CURVES[model])
    seen = [1.0 + each for each in map(halton, range(1, 33))]
    for trials in (3, 7, 20):
        choice = choose_split(times, Pool((8,)), trials, learns=False, lengths=seen)
        assert choice is not None
        fixed = {
            devices: sum(
                seconds(times.seconds, (8,), trials, devices, seed=seed) for seed in range(1, 5)
            )
            for devices in times.seconds
        }
        assert fixed[choice.devices] <= MARGIN * min(fixed.values()), (trials, fixed)


def halton(index: int) -> float:
    """Return a number of an even sequence between 0 and 1."""
    return index * 0.6180339887 % 1.0


@pytest.mark.parametrize("model", CURVES)
def test_a_search_that_learns_ends_within_5_percent_with_as_much_known(model: str) -> None:
    # Of k trials at once, each is suggested without k - 1 results: as many more trials make up.
    times = StepTimes(CURVES[model])
    for pool, trials in itertools.product(POOLS, TRIALS):
        choice = choose_split(times, Pool(pool), trials, learns=True)
        assert choice is not None
        fixed = {}
        for devices in times.seconds:
            if at_once := Pool(pool).at_once(devices):
                more = trials + at_once - 1
                fixed[devices] = seconds(times.seconds, pool, more, devices)
        assert fixed[choice.devices] <= MARGIN * min(fixed.values()), (pool, trials, fixed)


def test_learning_and_few_trials_favour_more_devices_for_each() -> None:
    times, pool = StepTimes(CURVES["scales well"]), Pool((8,))
    blind = [choose_split(times, pool, n, learns=False) for n in (16, 4, 2, 1)]
    assert [each.devices for each in blind if each] == [1, 2, 4, 8]
    learning = choose_split(times, pool, 16, learns=True)
    assert learning is not None
    assert learning.devices > 1
    endless = choose_split(times, pool, None, learns=False)
    assert endless is not None
    assert endless.devices == 1
    assert choose_split(times, Pool(()), 4, learns=False) is None
    assert choose_split(StepTimes({4: 1.0}), Pool((2, 2)), 4, learns=False) is None


def test_one_long_trial_favours_more_devices() -> None:
    times = StepTimes({1: 1.0, 2: 0.6})
    # Two trials, one of which is long: alone on its device it ends last.
    varied = choose_split(times, Pool((2,)), 3, learns=False, lengths=(1.0, 1.0, 4.0))
    assert varied is not None
    assert varied.devices == 2


def test_step_times_leave_out_a_size_that_ran_out_of_memory() -> None:
    curve = ScalingCurve(
        backend="jax", device="GPU", batch=8, devices=(1, 2, 4),
        samples=(Sample(Point(2, 4), 2.0, 9), Sample(Point(4, 2), 1.0, 9)),
        failures=(Failure(Point(1, 8), "out of memory", is_too_large=True),),
    )  # fmt: skip
    assert StepTimes.of(curve) == StepTimes({2: 2.0, 4: 1.0})
    weak = StepTimes.of(curve, Mode.WEAK)
    assert weak == StepTimes({}), "no run had a whole batch on each device"

"""The choice of devices for each trial, against every fixed one in virtual time."""

from __future__ import annotations

import doctest
import itertools
from collections.abc import Callable, Mapping, Sequence

import pytest

from hptune.core.goals import Goals
from hptune.core.resources import Resources
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Goal, Params
from hptune.samplers.random_search import RandomSampler
from hptune.scaling import split as split_module
from hptune.scaling import step_runner as sizes_module
from hptune.scaling.curve import Failure, Mode, Point, Sample, ScalingCurve
from hptune.scaling.split import Split, SplitTimes, choose_split, split_text
from scaling_curves import CURVES
from simulated import SimulatedExecutor
from simulated_parts import Curve, SimulatedWorker
from simulated_studies import Memory, play

GOALS = Goals((Goal("score", Direction.MAX),))
POOLS = ((8,), (4, 4, 2))
TRIALS = (1, 3, 7, 20)
MARGIN = 1.05


def test_doctests() -> None:
    for module in (split_module, sizes_module):
        assert not doctest.testmod(module).failed


def free_slots(workers: Sequence[int]) -> Callable[[int], int]:
    """Return how many trials workers with these numbers of devices hold at once."""
    return lambda devices: sum(each // devices for each in workers)


def test_repeats_that_come_after_the_last_trial_get_devices_too() -> None:
    times = SplitTimes(CURVES["scales well"])
    for workers, learns in itertools.product(((1,), (4,), (4, 2)), (False, True)):
        chosen = choose_split(times, free_slots(workers), 0, learns=learns)
        assert chosen == choose_split(times, free_slots(workers), 1, learns=learns)


def seconds(times: Mapping[int, float], pool: Sequence[int], trials: int, devices: int) -> float:
    """Return how long a study of trials with these devices takes, in virtual time.

    Args:
        times: Time of a trial by its number of devices.
        pool: Devices of each worker.
        trials: How many there are.
        devices: Devices of each trial.
    """

    def epoch_seconds(_params: Params, _worker: SimulatedWorker) -> float:
        return 60.0 * times[devices]

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
        make_sampler=lambda space: RandomSampler(space, 1),
        memory=Memory(),
        resources=Resources(processes=devices),
    )
    return played.seconds


@pytest.mark.parametrize("model", CURVES)
def test_a_study_ends_within_5_percent_of_the_best_fixed_split(model: str) -> None:
    times = SplitTimes(CURVES[model])
    chosen = set()
    for pool, trials in itertools.product(POOLS, TRIALS):
        choice = choose_split(times, free_slots(pool), trials, learns=False)
        assert choice is not None
        chosen.add(choice.devices)
        fixed = {
            devices: seconds(times.seconds, pool, trials, devices)
            for devices in times.seconds
            if free_slots(pool)(devices)
        }
        assert fixed[choice.devices] <= MARGIN * min(fixed.values()), (pool, trials, fixed)
    expected = {"scales well": 3, "scales badly": 1, "does not fit one device": 2}
    assert len(chosen) >= expected[model], "the choice depends on the study"


@pytest.mark.parametrize("model", CURVES)
def test_a_search_that_learns_ends_within_5_percent_with_as_much_known(model: str) -> None:
    # Of k trials at once, each is suggested without k - 1 results: as many more trials make up.
    times = SplitTimes(CURVES[model])
    for pool, trials in itertools.product(POOLS, TRIALS):
        choice = choose_split(times, free_slots(pool), trials, learns=True)
        assert choice is not None
        fixed = {}
        for devices in times.seconds:
            if at_once := free_slots(pool)(devices):
                more = trials + at_once - 1
                fixed[devices] = seconds(times.seconds, pool, more, devices)
        assert fixed[choice.devices] <= MARGIN * min(fixed.values()), (pool, trials, fixed)


def test_learning_and_few_trials_favour_more_devices_for_each() -> None:
    times, pool = SplitTimes({1: 1.0, 2: 0.51, 4: 0.265, 8: 0.14}), free_slots((8,))
    blind = [choose_split(times, pool, n, learns=False) for n in (16, 4, 2, 1)]
    assert [each.devices for each in blind if each] == [1, 2, 4, 8]
    learning = choose_split(times, pool, 16, learns=True)
    assert learning is not None
    assert learning.devices > 1
    endless = choose_split(times, pool, None, learns=False)
    assert endless is not None
    assert endless.devices == 1
    assert choose_split(times, free_slots(()), 4, learns=False) is None
    assert choose_split(SplitTimes({4: 1.0}), free_slots((2, 2)), 4, learns=False) is None


def test_the_words_compare_with_the_fewest_devices_that_the_workers_hold() -> None:
    times = SplitTimes({1: 4.0, 2: 2.0, 4: 1.0})
    chosen = choose_split(times, {1: 0, 2: 1, 4: 1}.__getitem__, 2, learns=False)
    assert chosen == Split(4, 1, fewest=2, share=0.5)
    assert split_text(chosen, times, "process") == (
        "4 processes for each trial, 1 at once: 50 % of the time with 2 each "
        "(4 train 2.00 times as fast)"
    )


def test_step_times_leave_out_a_size_that_ran_out_of_memory() -> None:
    curve = ScalingCurve(
        backend="jax", device="GPU", batch=8, devices=(1, 2, 4),
        samples=(Sample(Point(2, 4), 2.0, 9, 5), Sample(Point(4, 2), 1.0, 9, 7)),
        failures=(Failure(Point(1, 8), "out of memory", is_too_large=True),),
    )  # fmt: skip
    assert SplitTimes.of(curve) == SplitTimes({2: 2.0, 4: 1.0}, {2: 5, 4: 7})
    weak = SplitTimes.of(curve, Mode.WEAK)
    assert weak == SplitTimes({}), "no run had a whole batch on each device"

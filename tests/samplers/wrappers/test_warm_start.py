from __future__ import annotations

import functools
import math
import statistics
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.earlier_study import EarlierStudy, EarlierTrial
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Params, Suggestion, Trial, TrialState
from hptune.samplers.random_search import RandomSampler
from hptune.samplers.registry import SamplerOptions, make_sampler
from hptune.samplers.tpe.sampler import TpeSampler
from hptune.samplers.wrappers.guidance_decay import GuidanceDecay
from hptune.samplers.wrappers.warm_start import WarmStart
from hptune.testing.samplers import SamplerSuite, waiting
from hptune.testing.spaces import BRANIN, branin
from searches import LINE, MOST_SPACES, branin_regret, searched


def earlier(
    space: SearchSpace,
    objective: Callable[[Params], float],
    count: int = 40,
    *,
    direction: Direction = Direction.MIN,
    is_same_metric: bool = True,
) -> EarlierStudy:
    """A random study."""
    rng = np.random.default_rng(3)
    drawn = [space.sample(rng) for _ in range(count)]
    trials = tuple(EarlierTrial(params, objective(params)) for params in drawn)
    return EarlierStudy("old", direction, is_same_metric, trials)


class TestWarmTpe(SamplerSuite):
    slow_spaces = MOST_SPACES
    branin_seeds = 4
    branin_tolerance = 0.6  # what it learned has nothing to do with Branin's function

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        study = earlier(space, lambda params: float(len(str(params))), is_same_metric=False)
        warm, cold = (TpeSampler(space, seed, directions=(Direction.MIN,)) for _ in range(2))
        return GuidanceDecay(WarmStart(warm, space, [study], directions=(Direction.MIN,)), cold)


class Listener(RandomSampler):
    """Remembers what it was told of earlier studies."""

    def __init__(self, space: SearchSpace) -> None:
        super().__init__(space, 0)
        self.values: dict[int, float] = {}

    def tell(self, trial: Trial) -> None:
        super().tell(trial)
        if trial.number < 0:
            assert trial.value is not None
            assert (trial.origin, trial.state) == ("warm start", TrialState.COMPLETE)
            self.values[trial.number] = trial.value


def told(
    old: Sequence[float],
    new: Sequence[float],
    *,
    again: float | None,
    is_same_metric: bool = True,
    old_direction: Direction = Direction.MIN,
) -> list[float]:
    """What a sampler that minimises hears of old values, given new ones.

    `again` is what the best configuration of the old ones gives now.
    """
    trials = tuple(EarlierTrial({"x": i / 10}, value) for i, value in enumerate(old))
    study = EarlierStudy("old", old_direction, is_same_metric, trials)
    inner = Listener(LINE)
    cold = Listener(LINE)
    sampler = GuidanceDecay(WarmStart(inner, LINE, [study], directions=(Direction.MIN,)), cold)
    number = 0
    if again is not None:
        best = study.best_within(LINE)
        assert best is not None
        sampler.tell(Trial(number, best, "test", TrialState.COMPLETE, value=again))
    for value in new:
        number += 1
        params = {"x": 0.901 + number / 1000}
        sampler.tell(Trial(number, params, "test", TrialState.COMPLETE, value=value))
    sampler.ask(range(number + 1, number + 20))
    assert not cold.values
    return [inner.values[n] for n in sorted(inner.values, reverse=True)]


def test_comparable_values_are_told_as_they_are() -> None:
    assert told([3.0, 1.0, 2.0], [], again=None) == [3.0, 1.0, 2.0]
    assert told([3.0, 1.0, 2.0], [], again=1.4) == [3.0, 1.0, 2.0]


def test_values_of_another_data_set_are_moved_to_where_the_best_one_is_now() -> None:
    assert told([3.0, 1.0, 2.0], [], again=11.0) == [13.0, 11.0, 12.0]


def test_values_of_another_metric_are_moved_and_stretched() -> None:
    new = [20.0, 30.0, 40.0, 50.0]  # with the first one: quartiles 20 and 40
    found = told([1.0, 2.0, 3.0, 4.0, 5.0], new, again=10.0, is_same_metric=False)
    assert found == [10.0, 20.0, 30.0, 40.0, 50.0]


def test_values_of_any_size_are_moved_to_finite_ones() -> None:
    most = sys.float_info.max
    for old in ([most, -most, 0.0], [0.0, 5e-324, 1.0]):
        heard = told(old, [0.0, most, 1.0, -most, 2.0], again=1.0, is_same_metric=False)
        assert all(map(math.isfinite, heard))


def test_of_a_metric_that_was_maximised_more_is_better() -> None:
    found = told(
        [0.7, 0.9], [], again=5.0, is_same_metric=False, old_direction=Direction.MAX
    )  # fmt: skip
    assert found == pytest.approx([5.2, 5.0])


def test_where_the_best_one_failed_the_best_so_far_stands_in() -> None:
    assert told([1.0, 2.0], [], again=None, is_same_metric=False) == [0.0, 1.0]
    assert told([1.0, 2.0], [7.0, 6.0], again=None, is_same_metric=False) == [6.0, 7.0]


def options(seed: int, studies: Sequence[EarlierStudy] = ()) -> SamplerOptions:
    return SamplerOptions(space=BRANIN, seed=seed, directions=(Direction.MIN,), studies=studies)


def mean_regret(
    trials: int, studies: Sequence[EarlierStudy], name: str = "tpe", *, seeds: int
) -> float:
    return statistics.mean(
        branin_regret(make_sampler(name, options(seed, studies)), trials) for seed in range(seeds)
    )


@pytest.mark.parametrize(
    ("objective", "direction", "is_same_metric"),
    [
        (branin, Direction.MIN, True),
        (lambda params: 3.0 - branin(params) / 1000, Direction.MAX, False),
        (lambda params: 500.0 + 2 * branin(params), Direction.MIN, True),
    ],
    ids=["same", "other metric", "other scale"],
)
def test_tpe_learns_from_an_earlier_study(
    objective: Callable[[Params], float], direction: Direction, is_same_metric: bool
) -> None:
    study = earlier(BRANIN, objective, 60, direction=direction, is_same_metric=is_same_metric)
    assert mean_regret(15, [study], seeds=24) < mean_regret_from_nothing() - 0.1


@functools.cache
def mean_regret_from_nothing() -> float:
    return mean_regret(15, [], seeds=24)


def test_a_study_that_misleads_is_overcome() -> None:
    def wrong(params: Params) -> float:
        x, y = float(str(params["x"])), float(str(params["y"]))
        return (x + 5) ** 2 + y**2  # best where Branin's function is worst

    study = earlier(BRANIN, wrong, 60)
    assert mean_regret(60, [study], seeds=4) < mean_regret(60, [], "random", seeds=4)


def test_the_best_of_the_earlier_study_is_tried_first() -> None:
    study = earlier(BRANIN, branin)
    best = min(study.trials, key=lambda trial: trial.value).params
    for name in ("random", "grid", "tpe"):
        sampler = make_sampler(name, options(0, [study]))
        assert sampler.ask([0]) == [Suggestion(best, "best of old")]


def test_an_earlier_study_without_a_fitting_trial_does_no_harm() -> None:
    study = earlier(SearchSpace((FloatParameter("x", 20.0, 30.0),)), lambda _: 1.0)
    warm = make_sampler("tpe", options(0, [study]))
    cold = make_sampler("tpe", options(0))
    assert warm.ask(range(9)) == cold.ask(range(9))


# --- several objectives -------------------------------------------------------------------------

TWO = (Direction.MIN, Direction.MAX)


def two(params: Params) -> tuple[float, float]:
    """The front lies between x = 0.2 and x = 0.4."""
    x = float(str(params["x"]))
    return abs(x - 0.2), -abs(x - 0.4)


def several(
    objectives: Callable[[Params], Sequence[float]], violation: Callable[[Params], float]
) -> EarlierStudy:
    rng = np.random.default_rng(3)
    drawn = [LINE.sample(rng) for _ in range(40)]
    trials = tuple(
        EarlierTrial(params, first, tuple(further), violation(params))
        for params, (first, *further) in ((each, objectives(each)) for each in drawn)
    )
    return EarlierStudy("old", Direction.MIN, is_same_metric=True, trials=trials)


def proposed(studies: Sequence[EarlierStudy], name: str = "tpe") -> list[float]:
    """Where a search for two objectives goes before it has a result of its own."""
    given = SamplerOptions(space=LINE, seed=0, directions=TWO, studies=studies)
    answers = make_sampler(name, given).ask(range(12))
    return [float(str(suggestion.params["x"])) for suggestion in answers]


@pytest.mark.parametrize("name", ["tpe", "bayesian"])
def test_a_search_for_several_objectives_learns_from_an_earlier_one(name: str) -> None:
    def on_front(xs: Sequence[float]) -> int:
        return sum(0.18 <= x <= 0.42 for x in xs)

    warm = proposed([several(two, lambda _: 0.0)], name)
    assert on_front(warm) >= 6 > on_front(proposed([], name))


def test_what_breaks_a_constraint_is_known_to() -> None:
    """All of the front but its end breaks one."""
    study = several(two, lambda params: float(float(str(params["x"])) < 0.35))
    assert sum(0.33 <= x <= 0.45 for x in proposed([study])) >= 6


def test_each_objective_is_moved_to_where_the_best_one_is_now() -> None:
    heard: dict[int, tuple[float, ...]] = {}

    class Both(RandomSampler):
        def tell(self, trial: Trial) -> None:
            if trial.number < 0:
                heard[trial.number] = trial.values

    trials = (EarlierTrial({"x": 0.1}, 1.0, (5.0,)), EarlierTrial({"x": 0.2}, 2.0, (7.0,)))
    study = EarlierStudy("old", Direction.MIN, is_same_metric=True, trials=trials)
    sampler = WarmStart(Both(LINE, 0), LINE, [study], directions=TWO)
    sampler.tell(Trial(0, {"x": 0.1}, "", TrialState.COMPLETE, value=1.1, extra_values=(50.0,)))
    sampler.ask([1])
    assert heard == {-1: (1.0, 50.0), -2: (2.0, 52.0)}  # the first is near enough


def test_values_of_one_objective_teach_nothing_about_two() -> None:
    study = earlier(LINE, lambda params: two(params)[0])
    best = study.best_within(LINE)
    assert best is not None
    first, *others = proposed([study])
    assert first == best["x"]
    assert others[1:] == proposed([])[2:]


def test_asked_again_a_guided_search_says_the_same_until_it_is_told_something() -> None:
    sampler = make_sampler("tpe", options(0, [earlier(BRANIN, branin)]))
    searched(sampler, branin, range(12))  # both, the guided one and its twin, have a say
    first = sampler.ask(range(12, 24))
    assert sampler.ask(range(12, 24)) == first
    sampler.tell(waiting(12, first[0]))
    assert sampler.ask(range(13, 24)) != first

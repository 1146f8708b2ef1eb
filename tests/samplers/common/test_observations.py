from __future__ import annotations

import math
import random
import sys
from dataclasses import replace

import numpy as np
import pytest

from hptune.core.space.space import ChoiceParameter, FloatParameter, IntParameter, SearchSpace
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.samplers.common.encoding import Encoding
from hptune.samplers.common.observations import History, Observations, Tier
from hptune.samplers.common.pareto import pareto_losses
from hptune.samplers.tpe.sampler import TpeSampler
from hptune.testing.sampler_cases import ended
from hptune.testing.spaces import CONDITIONAL_CONTINUUM

X = FloatParameter("x", 0.0, 1.0)
LINE = SearchSpace((X,))
LATE = SearchSpace((X, FloatParameter("late", 0.0, 1.0)))


def trial(
    number: int,
    x: float,
    value: float | None = None,
    state: TrialState = TrialState.COMPLETE,
) -> Trial:
    return Trial(number, {"x": x}, "test", state, value=value)


def told(*trials: Trial, direction: Direction = Direction.MIN) -> Observations:
    history = History(Encoding(LINE), directions=(direction,))
    for each in trials:
        history.tell(each)
    return history.observations()


def table(found: Observations) -> list[tuple[float, int, float, int]]:
    return [
        (float(row[0]), int(tier), float(loss), int(count))
        for row, tier, loss, count in zip(
            found.rows, found.tiers, found.losses, found.counts, strict=True
        )
    ]


def test_each_standing_has_its_tier_and_losses_are_lower_for_better_values() -> None:
    found = told(
        trial(0, 0.0, 3.0),
        trial(1, 0.1, 4.0, TrialState.PRUNED),
        trial(2, 0.2, None, TrialState.PRUNED),
        trial(3, 0.3, None, TrialState.FAILED),
        trial(4, 0.4, math.nan),
        trial(5, 0.5, None, TrialState.RUNNING),
        trial(6, 0.6, None, TrialState.PAUSED),
        trial(7, 0.7, None, TrialState.WAITING),
        direction=Direction.MAX,
    )
    assert table(found) == [
        (0.0, Tier.COMPLETE, -3.0, 1),
        (0.1, Tier.PRUNED, -4.0, 1),
        (0.2, Tier.FAILED, math.inf, 1),
        (0.3, Tier.FAILED, math.inf, 1),
        (0.4, Tier.FAILED, math.inf, 1),
        (0.5, Tier.UNFINISHED, math.inf, 1),
        (0.6, Tier.UNFINISHED, math.inf, 1),
        (0.7, Tier.UNFINISHED, math.inf, 1),
    ]
    assert (len(found), found.finished, found.valued) == (8, 5, 2)


def test_the_order_of_the_tells_leaves_no_trace_and_the_last_standing_counts() -> None:
    rng = np.random.default_rng(3)
    trials = [
        ended(CONDITIONAL_CONTINUUM, number, CONDITIONAL_CONTINUUM.sample(rng))
        for number in range(200)
    ]
    in_order = History(Encoding(CONDITIONAL_CONTINUUM), directions=(Direction.MIN,))
    shuffled = History(Encoding(CONDITIONAL_CONTINUUM), directions=(Direction.MIN,))
    for each in trials:
        in_order.tell(each)
    for each in random.Random(4).sample(trials, len(trials)):
        shuffled.tell(Trial(each.number, each.params, "test", TrialState.RUNNING))
        shuffled.tell(each)
    one, other = in_order.observations(), shuffled.observations()
    np.testing.assert_array_equal(one.rows, other.rows)
    np.testing.assert_array_equal(one.tiers, other.tiers)
    np.testing.assert_array_equal(one.losses, other.losses)


# --- repeated measurements --------------------------------------------------------------------


def test_the_rungs_of_a_trial_that_begins_again_are_forgotten() -> None:
    rungs = [
        replace(trial(i, i / 10, None, TrialState.RUNNING), rungs={1: (i / 10,)}) for i in range(3)
    ]
    failed = replace(trial(3, 0.9, None, TrialState.FAILED), rungs={1: (-9.0,), 3: (-9.0,)})
    waiting = trial(3, 0.9, None, TrialState.WAITING)
    assert table(told(*rungs, failed, waiting)) == table(told(*rungs, waiting))


def test_a_configuration_that_was_measured_several_times_counts_once_by_its_mean() -> None:
    found = told(trial(0, 0.5, 1.0), trial(1, 0.2, 9.0), trial(2, 0.5, 2.0), trial(3, 0.5, 6.0))
    assert table(found) == [(0.5, Tier.COMPLETE, 3.0, 3), (0.2, Tier.COMPLETE, 9.0, 1)]


def test_the_best_standing_of_a_repeated_configuration_counts() -> None:
    found = told(
        trial(0, 0.5, None, TrialState.FAILED),
        trial(1, 0.5, 7.0, TrialState.PRUNED),
        trial(2, 0.5, 2.0),
        trial(3, 0.5, None, TrialState.RUNNING),
        trial(4, 0.1, None, TrialState.FAILED),
        trial(5, 0.1, None, TrialState.RUNNING),
        trial(6, 0.3, None, TrialState.WAITING),
    )
    assert table(found) == [
        (0.5, Tier.COMPLETE, 2.0, 1),
        (0.1, Tier.FAILED, math.inf, 1),
        (0.3, Tier.UNFINISHED, math.inf, 1),
    ]


def test_a_trial_that_drew_other_values_than_it_was_told_moves() -> None:
    found = told(trial(0, 0.5, 1.0), trial(1, 0.5, 3.0), trial(1, 0.25, 3.0))
    assert table(found) == [(0.5, Tier.COMPLETE, 1.0, 1), (0.25, Tier.COMPLETE, 3.0, 1)]


# --- spaces that change -----------------------------------------------------------------------


def test_a_trial_from_before_a_parameter_was_found_says_nothing_of_it() -> None:
    history = History(Encoding(LATE), directions=(Direction.MIN,))
    history.tell(trial(0, 0.5, 1.0))
    history.tell(Trial(1, {"x": 0.5, "late": 0.25}, "test", TrialState.COMPLETE, value=2.0))
    np.testing.assert_array_equal(
        history.observations().rows, [[0.5, math.nan], [0.5, 0.25]], strict=False
    )


def test_what_lies_outside_the_space_is_no_observation() -> None:
    history = History(Encoding(LINE), directions=(Direction.MIN,))
    outside: list[Params] = [{"x": 1.5}, {"x": "wide"}, {"x": 0.5, "removed": 1}, {"other": 0.5}]
    for number, params in enumerate(outside):
        history.tell(Trial(number, params, "test", TrialState.COMPLETE, value=1.0))
    assert len(history.observations()) == 0


def test_tpe_keeps_what_it_learned_when_the_space_grows() -> None:
    grown = SearchSpace(
        (X, IntParameter("units", 1, 9), ChoiceParameter("late", ("relu", "tanh", "gelu")))
    )
    sampler = TpeSampler(grown, 0, directions=(Direction.MIN,))
    rng = np.random.default_rng(5)
    for number in range(40):
        x = float(rng.random())
        sampler.tell(trial(number, x, abs(x - 0.3)))
    answers = [suggestion.params for n in range(40, 60) for suggestion in sampler.ask([n])]
    assert all(abs(float(str(params["x"])) - 0.3) < 0.15 for params in answers)
    assert all(grown.contains(params) for params in answers)
    # Nothing is known of the new ones: all their values come up.
    assert {params["late"] for params in answers} == {"relu", "tanh", "gelu"}
    assert len({params["units"] for params in answers}) >= 5


# --- several objectives and constraints -------------------------------------------------------


def of_two(number: int, x: float, *values: float, violation: float = 0.0) -> Trial:
    return Trial(
        number,
        {"x": x},
        "test",
        TrialState.COMPLETE,
        value=values[0],
        extra_values=values[1:],
        violation=violation,
    )


def test_several_objectives_rank_by_fronts_and_by_the_room_within_them() -> None:
    history = History(Encoding(LINE), directions=(Direction.MIN, Direction.MAX))
    values = [(0.0, 0.0), (1.0, 4.0), (1.2, 4.1), (9.0, 9.0), (5.0, 1.0), (9.0, 1.0)]
    for number, each in enumerate(values):
        history.tell(of_two(number, number / 8, *each))
    seen = history.observations()
    assert [int(loss) for loss in seen.losses] == [0, 0, 0, 0, 1, 2]
    # The ends of the front first, then what has the most room around it.
    assert sorted(range(4), key=lambda i: seen.losses[i]) == [0, 3, 2, 1]


def test_the_scales_of_the_objectives_do_not_matter() -> None:
    rng = np.random.default_rng(2)
    costs = rng.random((60, 3))
    np.testing.assert_array_equal(pareto_losses(costs), pareto_losses(costs * [1e-6, 1.0, 1e9]))
    losses = pareto_losses(costs)
    for i, one in enumerate(costs):
        dominating = (costs <= one).all(axis=1) & (costs < one).any(axis=1)
        assert (np.floor(losses[dominating]) < np.floor(losses[i])).all()


@pytest.mark.parametrize("objectives", [2, 3, 4])
def test_a_result_is_one_front_behind_the_last_that_dominates_it(objectives: int) -> None:
    costs = np.random.default_rng(3).integers(0, 5, (80, objectives)).astype(np.float64)
    fronts = np.floor(pareto_losses(costs))
    for one, front in zip(costs, fronts, strict=True):
        dominating = (costs <= one).all(axis=1) & (costs < one).any(axis=1)
        assert front == max(fronts[dominating], default=-1) + 1


def test_what_breaks_a_constraint_comes_after_all_that_keeps_it() -> None:
    found = told(
        of_two(0, 0.0, 5.0, violation=0.5),
        of_two(1, 0.1, 1.0, violation=0.1),
        of_two(2, 0.2, 8.0),
        of_two(3, 0.3, 2.0),
    )
    assert list(np.argsort(found.losses)) == [3, 2, 1, 0]
    assert found.tiers.tolist() == [Tier.COMPLETE] * 4
    none_keeps_it = told(of_two(0, 0.0, 5.0, violation=0.5), of_two(1, 0.1, 9.0, violation=0.1))
    assert list(np.argsort(none_keeps_it.losses)) == [1, 0]


def test_tpe_searches_near_the_front() -> None:
    space = SearchSpace((X, FloatParameter("y", 0.0, 1.0)))
    sampler = TpeSampler(space, 0, directions=(Direction.MIN, Direction.MIN))

    def values(x: float, y: float) -> tuple[float, float]:
        return x + y, (1.0 - x) + y  # the front is y = 0, for any x

    answers = []
    for number in range(70):
        (suggestion,) = sampler.ask([number])
        params = suggestion.params
        answers.append((float(str(params["x"])), float(str(params["y"]))))
        one, other = values(*answers[-1])
        sampler.tell(
            Trial(number, params, "t", TrialState.COMPLETE, value=one, extra_values=(other,))
        )
    assert np.median([y for _, y in answers[30:]]) < 0.1
    assert np.ptp([x for x, _ in answers[30:]]) > 0.5


def test_losses_are_finite_however_large_values_and_violations_are() -> None:
    found = told(
        trial(0, 0.0, sys.float_info.max),
        trial(1, 0.1, -sys.float_info.max),
        trial(2, 0.2, sys.float_info.max, TrialState.PRUNED),
        replace(trial(3, 0.3, 0.0), violation=math.inf),
        replace(trial(4, 0.4, 0.0), violation=1.0),
    )
    assert np.isfinite(found.losses).all()
    assert np.argsort(found.losses)[0] == 1

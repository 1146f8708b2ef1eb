from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import IntParameter, SearchSpace
from hptune.core.trial import ADDED, Direction, Params, Suggestion, Trial, TrialState
from hptune.samplers.grid import GridSampler
from hptune.samplers.random_search import RandomSampler
from hptune.samplers.registry import SamplerOptions, make_sampler
from hptune.samplers.tpe.sampler import TpeSampler
from hptune.samplers.wrappers.start_points import StartPoints
from hptune.testing.samplers import SamplerSuite, waiting
from searches import MOST_SPACES

LINE = SearchSpace((IntParameter("x", 1, 6),))


class TestStartPointsBeforeTpe(SamplerSuite):
    slow_spaces = MOST_SPACES
    branin_tolerance = -0.6

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        drawn = [space.sample(np.random.default_rng(number)) for number in range(2)]
        inner = TpeSampler(space, seed, directions=(Direction.MIN,))
        return StartPoints(inner, space, points([*drawn, drawn[0], {"not": "there"}]))


class TestStartPointsBeforeTheGrid(SamplerSuite):
    """Asked for few at a time, when the points are used up and in the midst of them."""

    slow_spaces = MOST_SPACES
    is_random = False
    branin_tolerance = 2.0

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        inner = GridSampler(space, grid_resolution=12)
        return StartPoints(inner, space, points([space.grid(12).at(0)]))


def points(configurations: Sequence[Params]) -> list[Suggestion]:
    return [Suggestion(params, "given") for params in configurations]


def asked(sampler: Sampler, *numbers: int) -> list[object]:
    return [suggestion.params["x"] for suggestion in sampler.ask(numbers)]


def on_line(*values: int) -> StartPoints:
    given = points([{"x": value} for value in values])
    return StartPoints(GridSampler(LINE), LINE, given)


def test_points_come_first_and_the_search_goes_on_around_them() -> None:
    assert asked(on_line(4, 2), 0, 1, 2, 3, 4, 5, 6) == [4, 2, 1, 3, 5, 6]
    assert [s.origin for s in on_line(4, 2).ask(range(3))] == ["given", "given", "grid"]


def test_points_twice_or_outside_the_space_are_passed_over() -> None:
    assert asked(on_line(4, 9, 4, 2), 0, 1, 2) == [4, 2, 1]


def test_a_study_may_be_resumed_in_the_midst_of_the_points() -> None:
    sampler = on_line(4, 2, 6)
    sampler.tell(Trial(0, {"x": 4}, "given", TrialState.RUNNING))
    assert asked(sampler, 1) == [2]
    assert asked(sampler, 1, 2, 3) == [2, 6, 1]


def test_what_the_user_adds_later_takes_no_points_turn() -> None:
    sampler = on_line(4, 2, 6)
    sampler.tell(Trial(0, {"x": 4}, "given", TrialState.COMPLETE, value=1.0))
    sampler.tell(Trial(1, {"x": 5}, ADDED, TrialState.WAITING))
    sampler.tell(Trial(2, {"x": 2}, ADDED, TrialState.WAITING))
    assert asked(sampler, 3, 4, 5) == [1, 6, 3]  # the second point was added, too


def test_repeats_that_confirm_take_no_points_turn() -> None:
    sampler = on_line(4, 2, 6)
    sampler.tell(Trial(0, {"x": 4}, "given", TrialState.COMPLETE, value=1.0))
    for number in (1, 2):
        repeat = Trial(number, {"x": 4}, "confirm of 0", TrialState.COMPLETE, value=1.0)
        sampler.tell(repeat)
    assert asked(sampler, 3, 4, 5) == [2, 6, 1]


def test_a_point_that_was_tried_meanwhile_is_not_tried_again() -> None:
    sampler = on_line(4, 2)
    sampler.tell(Trial(0, {"x": 2}, "somebody", TrialState.COMPLETE, value=1.0))
    assert asked(sampler, 1, 2) == [1, 3]


def test_what_an_earlier_study_tried_may_be_a_start_point() -> None:
    sampler = on_line(4, 2)
    sampler.tell(Trial(-1, {"x": 4}, "warm start", TrialState.COMPLETE, value=1.0))
    assert asked(sampler, 0, 1) == [4, 2]


def test_the_wrapped_sampler_hears_of_every_point() -> None:
    heard: list[object] = []

    class Listener(RandomSampler):
        def tell(self, trial: Trial) -> None:
            heard.append(trial.params["x"])
            super().tell(trial)

    sampler = StartPoints(Listener(LINE, 0), LINE, points([{"x": 4}, {"x": 2}]))
    for number, suggestion in enumerate(sampler.ask(range(6))):
        sampler.tell(waiting(number, suggestion))
    assert heard[:4] == [4, 2, 4, 2]
    assert sorted(map(str, heard[2:])) == ["1", "2", "3", "4", "5", "6"]


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_every_search_tries_the_defaults_after_the_users_points(name: str) -> None:
    space = SearchSpace((IntParameter("x", 1, 9), IntParameter("y", 1, 9, default=7)))
    options = SamplerOptions(
        space=space, seed=0, directions=(Direction.MIN,), start_points=[{"x": "2"}, {"x": "77"}]
    )
    sampler = make_sampler(name, options)
    first, second, third = sampler.ask(range(3))
    assert first == Suggestion({"x": 2, "y": 7}, "start point")
    assert second == Suggestion({"x": 5, "y": 7}, "defaults")
    assert third.origin.startswith(name)


def test_a_grid_has_no_defaults_but_may_have_start_points() -> None:
    options = SamplerOptions(space=LINE, seed=0, directions=(Direction.MIN,))
    (first,) = make_sampler("grid", options).ask([0])
    assert first.origin == "grid"
    sampler = make_sampler("grid", replace(options, start_points=[{"x": "3"}]))
    assert asked(sampler, 0, 1, 2, 3) == [3, 1, 2, 4]

from __future__ import annotations

import pytest

from tuner.core.space import (
    ChoiceParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from tuner.core.trial import Direction
from tuner.samplers import SamplerOptions, make_sampler
from tuner.samplers.auto import choose
from tuner.testing.spaces import ALL_TYPES, EMPTY, NESTED, PLAIN, SINGLETONS


@pytest.mark.parametrize("space", [PLAIN, NESTED, EMPTY, SINGLETONS])
def test_a_space_that_the_budget_covers_is_gone_through(space: SearchSpace) -> None:
    size = space.size()
    assert size is not None
    assert choose(space, trials=size, at_once=1).search == "grid"
    if size > 1:
        assert choose(space, trials=size - 1, at_once=1).search != "grid"


def test_the_grid_is_the_whole_space_however_many_values_it_has() -> None:
    space = SearchSpace(
        (IntParameter("n", 1, 30, scale=Scale.LOG), ChoiceParameter("c", ("a", "b")))
    )
    choice = choose(space, trials=60, at_once=1)
    options = SamplerOptions(space=space, seed=0, grid_resolution=choice.grid_resolution)
    assert len(make_sampler(choice.search, options).ask(range(70))) == 60
    alike = SamplerOptions(space=space, seed=0, direction=Direction.MIN, trials=60)
    assert len(make_sampler("auto", alike).ask(range(70))) == 60


def test_trials_that_all_start_at_once_are_spread_evenly() -> None:
    assert choose(ALL_TYPES, trials=16, at_once=16).search == "sobol"
    assert choose(ALL_TYPES, trials=17, at_once=16).search != "sobol"
    assert choose(ALL_TYPES, trials=None, at_once=16).search != "sobol"

from __future__ import annotations

import pytest

from hptune.core.space.space import (
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction
from hptune.samplers.auto import choose
from hptune.samplers.registry import SamplerOptions, make_sampler
from hptune.testing.spaces import (
    ALL_TYPES,
    BRANIN,
    CONDITIONAL_CONTINUUM,
    EMPTY,
    NESTED,
    PLAIN,
    SINGLETONS,
)

WIDE = SearchSpace(tuple(FloatParameter(f"x{i}", 0.0, 1.0) for i in range(80)))


@pytest.mark.parametrize("space", [PLAIN, NESTED, EMPTY, SINGLETONS])
def test_a_space_that_the_budget_covers_is_gone_through(space: SearchSpace) -> None:
    size = space.size()
    assert size is not None
    assert choose(space, trials=size, parallel_trials=1).search == "grid"
    if size > 1:
        assert choose(space, trials=size - 1, parallel_trials=1).search != "grid"


def test_the_grid_is_the_whole_space_however_many_values_it_has() -> None:
    space = SearchSpace(
        (IntParameter("n", 1, 30, scale=Scale.LOG), ChoiceParameter("c", ("a", "b")))
    )
    choice = choose(space, trials=60, parallel_trials=1)
    options = SamplerOptions(
        space=space,
        seed=0,
        directions=(Direction.MIN,),
        own={"grid_resolution": choice.grid_resolution},
    )
    assert len(make_sampler(choice.search, options).ask(range(70))) == 60


def test_trials_that_all_start_at_once_are_spread_evenly() -> None:
    assert choose(ALL_TYPES, trials=16, parallel_trials=16).search == "sobol"
    assert choose(ALL_TYPES, trials=17, parallel_trials=16).search != "sobol"
    assert choose(ALL_TYPES, trials=None, parallel_trials=16).search != "sobol"


def test_the_usual_study_gets_the_search_that_needs_the_fewest_trials() -> None:
    for space in (ALL_TYPES, BRANIN, CONDITIONAL_CONTINUUM):
        choice = choose(space, trials=50, parallel_trials=2)
        assert choice.search == "bayesian"
        assert "50" in choice.why


@pytest.mark.parametrize(
    ("space", "trials", "parallel_trials", "words"),
    [
        (ALL_TYPES, 5_000, 2, "5000 trials are many"),
        (ALL_TYPES, None, 2, "the number of trials is open"),
        (WIDE, 200, 1, "80 hyperparameters are many"),
    ],
)
def test_what_a_gaussian_process_is_not_made_for(
    space: SearchSpace, trials: int | None, parallel_trials: int, words: str
) -> None:
    choice = choose(space, trials=trials, parallel_trials=parallel_trials)
    assert choice.search == "tpe"
    assert words in choice.why


@pytest.mark.parametrize("space", [ALL_TYPES, CONDITIONAL_CONTINUUM])
def test_many_at_once_are_no_reason_for_another_search(space: SearchSpace) -> None:
    assert choose(space, trials=200, parallel_trials=32).search == "bayesian"

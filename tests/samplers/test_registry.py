from __future__ import annotations

import subprocess
import sys

import pytest

from tuner.core.space import FloatParameter, SearchSpace
from tuner.core.trial import Direction
from tuner.errors import UsageError
from tuner.samplers import SEARCH_NAMES, make_sampler
from tuner.samplers.grid import GridSampler

SPACE = SearchSpace((FloatParameter("rate", 0.0, 1.0),))


@pytest.mark.parametrize("name", SEARCH_NAMES)
def test_every_name_makes_a_sampler(name: str) -> None:
    sampler = make_sampler(name, SPACE, 0, direction=Direction.MAX, grid_resolution=3)
    (suggestion,) = sampler.ask([0])
    assert SPACE.contains(suggestion.params)


def test_a_sampler_that_looks_at_values_needs_a_direction() -> None:
    with pytest.raises(UsageError, match="--direction max or --direction min"):
        make_sampler("tpe", SPACE, 0)


def test_the_resolution_reaches_the_grid() -> None:
    sampler = make_sampler("grid", SPACE, 0, grid_resolution=4)
    assert isinstance(sampler, GridSampler)
    assert sampler.size == 4


@pytest.mark.parametrize(("wrong", "right"), [("gird", "grid"), ("Random", "random")])
def test_a_misspelt_name_is_put_right(wrong: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_sampler(wrong, SPACE, 0)
    assert f"Did you mean {right!r}?" in str(caught.value)
    assert ", ".join(SEARCH_NAMES) in str(caught.value)


def test_an_unknown_name_gets_the_allowed_ones_and_no_guess() -> None:
    with pytest.raises(UsageError, match="no search called 'zzz'; allowed are grid, random") as err:
        make_sampler("zzz", SPACE, 0)
    assert "Did you mean" not in str(err.value)


def test_the_names_are_known_without_loading_a_sampler() -> None:
    program = (
        "import sys, tuner.samplers; "
        "sys.exit(any(m.startswith('tuner.samplers.') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

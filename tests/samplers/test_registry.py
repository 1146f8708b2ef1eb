from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction
from hptune.errors import UsageError
from hptune.samplers.grid import GridSampler
from hptune.samplers.registry import (
    SEARCH_NAMES,
    SEARCH_SUMMARIES,
    SamplerOptions,
    learns,
    make_sampler,
)

SPACE = SearchSpace((FloatParameter("rate", 0.0, 1.0),))
OPTIONS = SamplerOptions(space=SPACE, seed=0, directions=(Direction.MAX,))


@pytest.mark.parametrize("name", [*SEARCH_NAMES, "optuna:TPESampler"])
def test_every_name_makes_a_sampler(name: str) -> None:
    (suggestion,) = make_sampler(name, OPTIONS).ask([0])
    assert SPACE.contains(suggestion.params)


def test_every_name_is_described() -> None:
    assert set(SEARCH_SUMMARIES) == {*SEARCH_NAMES, "optuna:NAME"}
    assert all(words and "\n" not in words for words in SEARCH_SUMMARIES.values())


def test_searches_that_learn_are_those_that_look_at_values() -> None:
    names = [*SEARCH_NAMES, "optuna:TPESampler"]
    assert {name for name in names if not learns(name)} == {"sobol", "random", "grid"}
    with pytest.raises(UsageError, match="unknown search"):
        learns("tpee")


def test_the_resolution_reaches_the_grid() -> None:
    sampler = make_sampler("grid", replace(OPTIONS, grid_resolution=4))
    assert isinstance(sampler, GridSampler)
    assert sampler.size == 4


@pytest.mark.parametrize("name", ["auto", "tpe", "skopt", "optuna:TPESampler"])
def test_an_option_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(
        UsageError, match=f"--grid-points has no effect with --search {name}; it is"
    ):
        make_sampler(name, replace(OPTIONS, grid_resolution=4))


def test_the_surrogate_is_for_skopt_alone() -> None:
    with pytest.raises(
        UsageError, match="--surrogate has no effect with --search tpe; it is for sk"
    ):
        make_sampler("tpe", replace(OPTIONS, surrogate="gp"))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("gird", "grid"), ("Random", "random"), ("tpee", "tpe"), ("skpot", "skopt"), ("baysian", "b")],
)
def test_a_misspelt_name_is_put_right(wrong: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_sampler(wrong, OPTIONS)
    assert f"Did you mean '{right}" in str(caught.value)
    assert ", ".join(SEARCH_NAMES) in str(caught.value)


def test_an_unknown_name_gets_the_allowed_ones_and_no_guess() -> None:
    with pytest.raises(UsageError, match="unknown search 'zzz'; allowed are auto, tpe,") as err:
        make_sampler("zzz", OPTIONS)
    assert "Did you mean" not in str(err.value)


def test_the_names_are_known_without_loading_a_sampler() -> None:
    program = (
        "import sys, hptune.samplers.registry; "
        "heavy = [m for m in sys.modules if m.startswith(('hptune.samplers.', 'numpy'))]; "
        "sys.exit(heavy != ['hptune.samplers.registry'])"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0

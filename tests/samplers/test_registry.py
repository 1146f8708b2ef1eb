from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction
from hptune.errors import UsageError
from hptune.samplers.registry import SAMPLERS, SamplerOptions, is_listed, listed, make_sampler

SPACE = SearchSpace((FloatParameter("rate", 0.0, 1.0),))
OPTIONS = SamplerOptions(space=SPACE, seed=0, directions=(Direction.MAX,))


@pytest.mark.parametrize("name", [*SAMPLERS.built_in, "optuna:TPESampler"])
def test_every_name_makes_a_sampler(name: str) -> None:
    (suggestion,) = make_sampler(name, OPTIONS).ask([0])
    assert SPACE.contains(suggestion.params)


def test_every_name_is_described() -> None:
    assert list(SAMPLERS.summaries) == [*SAMPLERS.built_in, "optuna:NAME"]
    assert all(words and "\n" not in words for words in SAMPLERS.summaries.values())


def test_searches_that_learn_are_those_that_look_at_values() -> None:
    rows = [*SAMPLERS.built_in.values(), SAMPLERS.find("optuna:TPESampler")]
    assert {row.name for row in rows if not row.learns} == {"sobol", "random", "grid"}


def test_the_resolution_reaches_the_grid() -> None:
    own = {"grid_resolution": 4}
    assert len(make_sampler("grid", replace(OPTIONS, own=own)).ask(range(9))) == 4
    assert listed("grid", SPACE, own) == 4
    assert listed("tpe", SPACE, {}) is None
    assert [name for name in SAMPLERS.built_in if is_listed(name)] == ["grid"]


@pytest.mark.parametrize("name", ["auto", "tpe", "skopt", "optuna:TPESampler"])
def test_an_option_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"is given, but --search is {name}; it has no options"):
        SAMPLERS.find(name).check({"grid_resolution": 4}, directions=(Direction.MIN,))


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("gird", "grid"), ("Random", "random"), ("tpee", "tpe"), ("skpot", "skopt"), ("baysian", "b")],
)
def test_a_misspelt_name_is_put_right(wrong: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_sampler(wrong, OPTIONS)
    assert f"Did you mean '{right}" in str(caught.value)
    assert ", ".join(SAMPLERS.built_in) in str(caught.value)


def test_a_file_that_was_edited_within_a_second_runs_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    for depth in (1, 2):
        path = tmp_path / "edited_search.py"
        path.write_text(f"def Search(space, options, *, depth: int = {depth}): ...\n")
        os.utime(path, (1e9, 1e9))
        (option,) = SAMPLERS.find("edited_search:Search", [tmp_path]).options
        assert option.default_text == str(depth)
        del sys.modules["edited_search"]


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

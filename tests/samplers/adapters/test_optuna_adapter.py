from __future__ import annotations

import importlib.util
import logging
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import FloatParameter, IntParameter, SearchSpace
from hptune.core.trial import Direction, Trial, TrialState
from hptune.errors import UsageError
from hptune.samplers.adapters.optuna import OptunaSampler
from hptune.samplers.registry import SAMPLERS, SamplerOptions, make_sampler
from hptune.testing.samplers import SamplerSuite, tell_all, waiting
from hptune.testing.spaces import BRANIN, CONDITIONAL_CONTINUUM, branin
from searches import MOST_SPACES, searched

LINE = SearchSpace((FloatParameter("x", 0.0, 1.0), IntParameter("n", 1, 9)))


def optunas(name: str) -> Any:
    import optuna

    return getattr(optuna.samplers, name)


class TestOptunasTpe(SamplerSuite):
    slow_spaces = MOST_SPACES
    spaces = ("empty", "singletons", "nested", "conditional continuum", "all types")
    branin_trials = 30
    branin_seeds = 4

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return OptunaSampler(
            space, seed, directions=(Direction.MIN,), adapted=optunas("TPESampler")
        )


class TestOptunasCmaEs(SamplerSuite):
    """It goes on from notes that it left in the study."""

    slow_spaces = MOST_SPACES
    spaces = ("nested", "all types")
    branin_trials = 40
    branin_seeds = 4

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return OptunaSampler(
            space, seed, directions=(Direction.MIN,), adapted=optunas("CmaEsSampler")
        )


def options(space: SearchSpace = LINE) -> SamplerOptions:
    return SamplerOptions(space=space, seed=0, directions=(Direction.MIN,))


@pytest.mark.parametrize("name", ["RandomSampler", "QMCSampler", "NSGAIISampler", "NSGAIIISampler"])
def test_others_answer_and_learn_too(name: str) -> None:
    space = CONDITIONAL_CONTINUUM
    sampler = OptunaSampler(space, 3, directions=(Direction.MAX,), adapted=optunas(name))
    seen = set()
    for number in range(12):
        (suggestion,) = sampler.ask([number])
        assert suggestion.origin == f"optuna {name}"
        assert space.contains(suggestion.params)
        seen.add(space.key(suggestion.params))
        sampler.tell(waiting(number, suggestion))
        sampler.tell(Trial(number, suggestion.params, "", TrialState.COMPLETE, value=float(number)))
    assert len(seen) == 12


class TestOptunasNsga2ForTwoObjectives(SamplerSuite):
    slow_spaces = MOST_SPACES
    spaces = ("nested", "all types")
    branin_trials = 40
    branin_seeds = 4
    branin_tolerance = 2.0

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        directions = (Direction.MIN, Direction.MAX)
        return OptunaSampler(space, seed, directions=directions, adapted=optunas("NSGAIISampler"))


@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler"])
def test_several_objectives_are_searched_for_their_front(name: str) -> None:
    """The front of the distances from 0.25 and from 0.45 lies between the two."""
    sampler = OptunaSampler(
        LINE, 1, directions=(Direction.MIN, Direction.MAX), adapted=optunas(name)
    )
    found = []
    for number in range(120):
        (suggestion,) = sampler.ask([number])
        sampler.tell(waiting(number, suggestion))
        x = float(str(suggestion.params["x"]))
        found.append(x)
        state = TrialState.FAILED if number % 9 == 0 else TrialState.COMPLETE
        value = None if state is TrialState.FAILED else abs(x - 0.25)
        sampler.tell(
            Trial(number, suggestion.params, "", state, value=value, extra_values=(-abs(x - 0.45),))
        )
    on_front = [0.25 <= x <= 0.45 for x in found]
    assert sum(on_front[-40:]) > 1.5 * sum(on_front[:40])


def test_a_sampler_for_one_objective_says_which_take_several() -> None:
    several = replace(options(), directions=(Direction.MIN, Direction.MIN))
    with pytest.raises(
        UsageError, match=r"CmaEsSampler takes one objective, and there are 2; .*TPE"
    ):
        make_sampler("optuna:CmaEsSampler", several)
    make_sampler("optuna:TPESampler", several)


def test_notes_in_the_study_are_not_lost() -> None:
    """CMA-ES without its notes would draw from where it began, for ever."""
    sampler = OptunaSampler(BRANIN, 0, directions=(Direction.MIN,), adapted=optunas("CmaEsSampler"))
    values = searched(sampler, branin, range(120))
    assert np.median(values[-20:]) < 2.0 < np.median(values[:20])


@pytest.mark.parametrize("name", ["TPESampler", "CmaEsSampler"])
def test_odd_trials_do_no_harm(name: str) -> None:
    sampler = OptunaSampler(LINE, 0, directions=(Direction.MIN,), adapted=optunas(name))
    states = (
        (TrialState.COMPLETE, math.nan),
        (TrialState.PRUNED, None),
        (TrialState.PRUNED, 3.0),
        (TrialState.FAILED, None),
        (TrialState.RUNNING, None),
    )
    trials = [
        Trial(2 * number, {"x": number / 20, "n": 1 + number % 9}, "", *state)
        for number, state in enumerate(states * 4)
    ]
    tell_all(sampler, [Trial(-1, {"x": 0.5, "n": 3}, "", TrialState.COMPLETE, value=1.0), *trials])
    assert LINE.contains(sampler.ask([99])[0].params)


def test_optuna_is_told_where_each_trial_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    seen: list[tuple[str, float | None]] = []

    def infer(
        self: object, study: optuna.Study, trial: optuna.trial.FrozenTrial
    ) -> dict[str, object]:
        others = [each for each in study.trials if each.number != trial.number]
        seen.extend((each.state.name, each.value) for each in others)
        return {}

    monkeypatch.setattr(optuna.samplers.RandomSampler, "infer_relative_search_space", infer)
    sampler = OptunaSampler(LINE, 0, directions=(Direction.MIN,), adapted=optunas("RandomSampler"))
    told = ((TrialState.COMPLETE, 2.5), (TrialState.FAILED, None), (TrialState.RUNNING, None),
            (TrialState.PRUNED, 7.0))  # fmt: skip
    for number, (state, value) in enumerate(told):
        sampler.tell(Trial(number, {"x": number / 9, "n": 1}, "", state, value=value, step=3))
    sampler.ask([4])
    assert seen == [("COMPLETE", 2.5), ("FAIL", None), ("RUNNING", None), ("PRUNED", 7.0)]


# --- names and packages -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("tpe", "TPESampler"), ("TPESamplr", "TPESampler"), ("cmaes", "CmaEsSampler")],
)
def test_a_misspelt_name_is_put_right(wrong: str, right: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_sampler(f"optuna:{wrong}", options())
    assert f"Did you mean 'optuna:{right}'?" in str(caught.value)
    assert "GPSampler" in str(caught.value)


@pytest.mark.parametrize("name", ["", "GridSampler", "BaseSampler", "BruteForceSampler", "study"])
def test_what_is_no_sampler_or_needs_more_than_a_seed_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="unknown search 'optuna:"):
        make_sampler(f"optuna:{name}", options())


@pytest.mark.filterwarnings("ignore:.*constraints_func:FutureWarning")
@pytest.mark.parametrize("name", ["TPESampler", "NSGAIISampler"])
def test_an_object_with_constraints_of_its_own_is_refused(name: str) -> None:
    row = SAMPLERS.row_of(optunas(name)(constraints_func=lambda trial: (trial.params["x"],)))
    with pytest.raises(UsageError, match=f"the {name} has a constraints_func"):
        row.check({}, directions=(Direction.MIN,))


def test_without_optuna_one_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(UsageError, match=r"pip install .*\[optuna\]'"):
        make_sampler("optuna:TPESampler", options())


def test_what_a_sampler_needs_besides_is_missed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "torch" else find(n))
    row = SAMPLERS.find("optuna:GPSampler")
    with pytest.raises(
        UsageError, match=r"GPSampler needs the package torch, .* pip install torch"
    ):
        row.check({}, directions=(Direction.MIN,))


def test_optuna_is_quiet_and_its_loudness_stays_the_users(
    capsys: pytest.CaptureFixture[str],
) -> None:
    import optuna

    before = optuna.logging.get_verbosity()
    make_sampler("optuna:CmaEsSampler", options()).ask(range(3))
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")
    assert optuna.logging.get_verbosity() == before
    assert logging.getLogger("optuna").level == before


@pytest.mark.parametrize("name", ["TPESampler", "CmaEsSampler", "NSGAIISampler"])
def test_a_constraint_keeps_the_search_away_from_what_breaks_it(name: str) -> None:
    space = SearchSpace((FloatParameter("x", 0.0, 1.0), FloatParameter("y", 0.0, 1.0)))
    whole = OptunaSampler(space, 0, directions=(Direction.MIN,), adapted=optunas(name))
    places, told = [], []
    for number in range(110):
        (suggestion,) = whole.ask([number])
        x, y = (float(str(suggestion.params[each])) for each in ("x", "y"))
        violation = math.inf if x < 0.01 else max(0.0, 0.5 - x)
        ended = Trial(number, suggestion.params, "", TrialState.COMPLETE, value=x + y)
        told.append(replace(ended, violation=violation))
        whole.tell(told[-1])
        places.append(x)
    assert np.mean(np.array(places[70:]) >= 0.5) > 0.55
    resumed = OptunaSampler(space, 0, directions=(Direction.MIN,), adapted=optunas(name))
    tell_all(resumed, told)
    assert resumed.ask([110])[0].params == whole.ask([110])[0].params

"""What status and the end of a run advise on the space, on noise and on the search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fake_study import GOALS, trial
from hptune.core.messages import Finish, FinishReason
from hptune.core.space.space import (
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import CONFIRMS
from hptune.reporting.results.advice import advice
from hptune.reporting.results.summary import closing_text, status_text
from hptune.reporting.results.view import StudyView

RATE = FloatParameter("lr", 1e-4, 1e-1, scale=Scale.LOG)


def study(parameter: Parameter, best: Callable[[float], float], trials: int = 25) -> StudyView:
    """Return a study of one hyperparameter, whose value at `u` in [0, 1] is `best(u)`; max.

    The trials are spread evenly over the range, and the best one comes last.
    """
    points = sorted((k / (trials - 1) for k in range(trials)), key=best)
    return StudyView(
        directory="runs/one",
        search="tpe",
        goals=GOALS,
        budget_trials=trials,
        trials=[
            trial(number, value=best(u), params={parameter.name: parameter.from_unit(u)})
            for number, u in enumerate(points)
        ],
        space=SearchSpace((parameter,)),
    )


def rising(u: float) -> float:
    return u


def falling(u: float) -> float:
    return -u


SPREAD = 45
"""Trials of which the best five lie in a tenth of the range."""


@pytest.mark.parametrize(
    ("parameter", "best", "wider"),
    [
        (RATE, rising, 'at the upper end of its range; a wider one: hp.Float("lr", 0.0001, 1, sam'),
        (RATE, falling, 'the lower end of its range; a wider one: hp.Float("lr", 1e-05, 0.1, samp'),
        (FloatParameter("d", 0.1, 0.5), rising, 'hp.Float("d", 0.1, 0.7)'),
        (FloatParameter("d", 0.1, 0.5), falling, 'hp.Float("d", 0.05, 0.5)'),
        (FloatParameter("d", -2.0, 2.0), falling, 'hp.Float("d", -4, 2)'),
        (IntParameter("units", 32, 512, step=32), rising, 'hp.Int("units", 32, 768, step=32)'),
        (IntParameter("units", 2, 90), falling, 'hp.Int("units", 1, 90)'),
    ],
)
def test_a_range_at_whose_edge_the_best_trials_lie_is_to_be_widened(
    parameter: Parameter, best: Callable[[float], float], wider: str
) -> None:
    (line,) = advice(study(parameter, best, SPREAD))
    assert line.startswith(f"the best 5 trials have {parameter.name} at the ")
    assert wider in line


@pytest.mark.parametrize(
    ("parameter", "best"),
    [
        (RATE, lambda u: -abs(u - 0.8)),
        (FloatParameter("share", 0.0, 1.0), rising),
        (FloatParameter("share", 0.0, 1.0), falling),
        (IntParameter("layers", 1, 9), falling),
        (IntParameter("few", 2, 5), rising),
        (FloatParameter("momentum", 0.9, 0.999, scale=Scale.REVERSE_LOG), rising),
    ],
)
def test_other_ranges_stay(parameter: Parameter, best: Callable[[float], float]) -> None:
    assert advice(study(parameter, best, SPREAD)) == []


def test_few_trials_and_those_that_lack_the_hyperparameter_say_nothing() -> None:
    assert advice(study(RATE, rising, 19)) == []
    view = study(RATE, rising, SPREAD)
    without = [*view.trials[:-1], replace(view.trials[-1], params={})]
    assert advice(replace(view, trials=without)) == []


def noisy(noise: float, apart: float) -> StudyView:
    """Return 25 trials that are `apart` in their values, and rise to them with some noise."""
    rng = np.random.default_rng(1)
    trials = [trial(n, value=apart * n, params={}) for n in range(25)]
    ends = {
        number: [0.1 * step + noise * rng.normal() for step in range(6)] for number in range(17, 25)
    }
    return replace(study(RATE, rising), trials=trials, space=None, last_values=ends)


def test_trials_that_differ_less_than_their_noise_are_to_be_trained_again() -> None:
    (line,) = advice(noisy(0.01, 0.003))
    assert line.startswith(
        "the best 3 trials differ by less than a trial at its end does from one "
    )
    noise = float(line.partition("(")[2].partition(")")[0])
    assert 0.007 < noise < 0.013
    assert line.endswith("; `hptune resume runs/one --confirm 3` trains them again")
    assert advice(noisy(0.01, 0.02)) == []
    assert advice(noisy(0.0, 0.0)) == [], "equal values without noise are equal"
    view = noisy(0.01, 0.003)
    again = trial(25, value=0.09, params={}, origin=f"{CONFIRMS}24")
    assert advice(replace(view, trials=[*view.trials, again])) == []
    assert advice(replace(view, trials=view.trials[6:])) == []


@pytest.mark.parametrize(
    ("ended", "best", "is_told"), [(40, 9, True), (40, 10, False), (33, 2, True), (32, 2, False)]
)
def test_a_search_that_stagnates_is_told(ended: int, best: int, *, is_told: bool) -> None:
    trials = [
        trial(number, value=0.9 if number == best else 0.5, params={}) for number in range(ended)
    ]
    again = trial(ended, value=0.5, params={}, origin=f"{CONFIRMS}{best}")
    view = replace(study(RATE, rising), trials=[*trials, again])
    lines = advice(view)
    assert bool(lines) == is_told
    if is_told:
        assert lines[0].startswith(f"none of the {ended - best - 1} trials after trial {best} is b")
        assert lines[0] in closing_text(view, Finish(FinishReason.DONE, ""))
        assert lines[0] in status_text(view, now=0.0)
        assert advice(replace(view, trials=trials[:best])) == [], "no trial has a better value"

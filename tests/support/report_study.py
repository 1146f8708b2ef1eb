"""A study for the report and the live page, with every kind of trial."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np

from fake_study import GOALS, attempt, trial
from hptune.core.attempt import Attempt, Cause, Outcome, ReportedValue
from hptune.core.goals import Goals
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Trial, TrialState
from hptune.reporting.html.panel import Panel
from hptune.reporting.html.report import Setup, make_report, page_of
from hptune.reporting.html.trials import StudyTrials
from hptune.reporting.results.view import StudyView

SPACE = SearchSpace(
    (
        FloatParameter("learning_rate", 1e-4, 1e-1, scale=Scale.LOG),
        IntParameter("units", 16, 512, scale=Scale.LOG),
        ChoiceParameter("activation", ("relu", "tanh")),
        BooleanParameter("dropout"),
        FloatParameter("rate", 0.1, 0.6, conditions=(Condition("dropout", (True,)),)),
    )
)
EPOCHS = 9
SETUP = Setup(
    "hptune run model.py --trials 40",
    [("--trials", "40"), ("seed", "7")],
    run_one="hptune run model.py --trials 1",
)
NASTY = "</script><script>document.title = 'hacked'</script> $$LINKS$$ \x1b[31m"


def study(count: int, *, pruned_every: int = 3) -> tuple[StudyView, list[ReportedValue]]:
    """Return a study in which every third trial was pruned, and one failed."""
    rng = np.random.default_rng(1)
    trials: list[Trial] = []
    attempts: list[Attempt] = []
    reports: list[ReportedValue] = []
    for number in range(count):
        params = SPACE.sample(rng)
        is_pruned = number % pruned_every == 1
        last = 3 if is_pruned else EPOCHS
        top = 0.9 - 0.05 * (math.log10(float(params["learning_rate"] or 0)) + 2.5) ** 2
        values = [top * (1.0 - math.exp(-step)) for step in range(1, last + 1)]
        reports += [
            ReportedValue(number, 0, step, "val_accuracy", value, 1000.0 + step)
            for step, value in enumerate(values, start=1)
        ]
        state = TrialState.PRUNED if is_pruned else TrialState.COMPLETE
        trials.append(
            trial(number, state, values[-1], params=params, step=last, metrics={"loss": 0.1})
        )
        outcome = Outcome.PRUNED if is_pruned else Outcome.FINISHED
        begun = 1000.0 + 10 * (number // 2)
        attempts.append(attempt(number, placed_at=begun, ended_at=begun + last, outcome=outcome))
    failed = trial(count, TrialState.FAILED, params=SPACE.defaults(), reason=NASTY)
    trials.append(replace(failed, detail=f"Traceback\n  File model.py\n{NASTY}"))
    attempts.append(attempt(count, ended_at=1005.0, outcome=Outcome.ERRORED, cause=Cause.EXCEPTION))
    random.Random(0).shuffle(trials)  # the order must not matter
    return view(trials, attempts), reports


def view(trials: list[Trial], attempts: list[Attempt], goals: Goals = GOALS) -> StudyView:
    return StudyView(
        directory="studies/digits",
        search="tpe",
        goals=goals,
        budget_trials=40,
        trials=trials,
        attempts=attempts,
        epochs=EPOCHS,
        models={0: "studies/digits/best/model.keras"},
    )


def page_text(of: StudyView, reports: list[ReportedValue]) -> str:
    return page_of(make_report(StudyTrials(of, SPACE, reports), SETUP, now=2000.0))


def trials_of(*values: float, space: SearchSpace = SPACE) -> StudyTrials:
    rng = np.random.default_rng(0)
    found = [trial(n, value=value, params=space.sample(rng)) for n, value in enumerate(values)]
    return StudyTrials(view(found, []), space, [])


def panels_of(of: StudyView, reports: list[ReportedValue]) -> dict[str, Panel]:
    return panels_of_page(StudyTrials(of, SPACE, reports))


def panels_of_page(trials: StudyTrials) -> dict[str, Panel]:
    report = make_report(trials, SETUP, now=2000.0)
    return {each.name: panel for each in report.sections if (panel := each.make()) is not None}

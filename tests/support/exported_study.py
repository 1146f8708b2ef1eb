"""A study with everything that an export has to carry over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fake_study import attempt, trial
from hptune.config.objectives import goals_to_json
from hptune.core.attempt import AttemptId, Cause, Outcome, Report
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import Reported
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, Params, Trial, TrialState
from hptune.study.study import Study
from stored_study import stored

WITH_DROPOUT = (Condition("dropout", (True,)),)
SPACE = SearchSpace(
    (
        FloatParameter("lr", 1e-4, 1e-1, scale=Scale.LOG),
        IntParameter("units", 16, 64, step=16),
        ChoiceParameter("act", ("relu", "tanh")),
        BooleanParameter("dropout"),
        FloatParameter("rate", 0.0, 0.5, step=0.1, conditions=WITH_DROPOUT),
        FixedParameter("depth", 2),
        # One name, two ranges.
        IntParameter("width", 1, 8, conditions=(Condition("act", ("relu",)),)),
        IntParameter("width", 10, 80, conditions=(Condition("act", ("tanh",)),)),
    )
)
GOALS = Goals(
    (Goal("accuracy", Direction.MAX), Goal("params", Direction.MIN)),
    (Constraint("params", Comparison.AT_MOST, 1000.0), Constraint("loss", Comparison.LESS, 1.0)),
)
PLAIN: Params = {"lr": 0.01, "units": 32, "act": "relu", "dropout": False, "depth": 2, "width": 4}
DROPPED: Params = {
    "lr": 0.001,
    "units": 48,
    "act": "tanh",
    "dropout": True,
    "rate": 0.30000000000000004,
    "depth": 2,
    "width": 70,
}


def complete(number: int, params: Params, accuracy: float, size: float, *, step: int) -> Trial:
    metrics = {"accuracy": accuracy, "params": size, "loss": 1.0 - accuracy}
    found = trial(number, value=accuracy, params=params, step=step, metrics=metrics)
    return replace(found, extra_values=(size,))


def varied(path: Path, *, last_value: float = 0.6) -> Study:
    """Write a study of two objectives with trials in every state; no master runs it.

    Trial 0 is complete and its best step is not its last, 1 is complete, conditional, and breaks a
    constraint, 2 was pruned, 3 is paused, 4 failed, 5 was interrupted, 6 waits, 7 confirms 0, and 8
    has values that the space does not allow.
    """
    pruned = trial(2, TrialState.PRUNED, 0.3, params=PLAIN, step=1, metrics={"accuracy": 0.3})
    trials = [
        complete(0, PLAIN, 0.9, 500.0, step=2),
        complete(1, DROPPED, 0.8, 1500.0, step=3),
        pruned,
        replace(pruned, number=3, state=TrialState.PAUSED),
        trial(4, TrialState.FAILED, params=PLAIN, reason="ValueError: bad shape"),
        trial(5, TrialState.RUNNING, params=PLAIN),
        trial(6, TrialState.WAITING, params=PLAIN),
        replace(complete(7, PLAIN, 0.88, 500.0, step=2), origin="confirm of 0"),
        complete(8, {**PLAIN, "lr": 0.5, "old": "x"}, last_value, 500.0, step=2),
    ]
    attempts = [
        attempt(0, outcome=Outcome.LOST, placed_at=1000.0, ended_at=1003.0),
        attempt(0, 1, outcome=Outcome.FINISHED, placed_at=1010.0, ended_at=1050.0),
        attempt(1, outcome=Outcome.FINISHED, placed_at=1020.0, ended_at=1060.0),
        attempt(2, outcome=Outcome.PRUNED, placed_at=1030.0, ended_at=1040.0),
        attempt(4, outcome=Outcome.ERRORED, ended_at=1010.0, cause=Cause.EXCEPTION),
        attempt(5, placed_at=1100.0),
    ]
    curves = {(0, 0): [0.4], (0, 1): [0.5, 0.9, 0.7], (1, 0): [0.6, 0.7, 0.8], (2, 0): [0.3]}
    events = [
        Reported(
            1000.0 + 10 * number + step,
            AttemptId(of, number),
            Report(step, {"accuracy": value, "loss": 1.0 - value}),
        )
        for (of, number), values in curves.items()
        for step, value in enumerate(values, start=1)
    ]
    facts = {"space": SPACE.to_json(), "goals": goals_to_json(GOALS)}
    return Study(stored(path, trials, attempts, events, **facts))

"""Earlier studies that a new one learns from (`--warm-start`)."""

from __future__ import annotations

import math
from pathlib import Path

from ..config.objectives import goals_of
from ..core.goals import Goals
from ..core.space.earlier_study import EarlierStudy, EarlierTrial
from ..core.space.space import SearchSpace
from ..core.trial import Trial, TrialState
from ..errors import UsageError
from ..storage.directory import StudyDirectory
from ..storage.ledger import LedgerReader, damage_errors


def read_earlier(name: str, goals: Goals, space: SearchSpace) -> EarlierStudy:
    """Return the trials of a study that a new one can learn from; it may still be running.

    Trials that measured all metrics of the new study count by these. If there are none, the
    trials count by their own study's objective, the first one if there are several.

    Args:
        name: The directory.
        goals: What the new study optimises, and its constraints.
        space: What the new study searches.

    Raises:
        UsageError: There is no study, no complete trial in it, or no hyperparameter in common.
    """
    directory = StudyDirectory(Path(name))
    reader = LedgerReader(directory)
    facts = reader.facts()
    complete = [trial for trial in reader.trials() if trial.state is TrialState.COMPLETE]
    with damage_errors(directory):
        earlier = goals_of(facts).goal
    measured = tuple(_judged(trial, goals) for trial in complete if _has_metrics(trial, goals))
    direction, is_same_metric = goals.goal.direction, True
    if not measured:
        measured = tuple(
            EarlierTrial(trial.params, trial.value)
            for trial in complete
            if trial.value is not None and math.isfinite(trial.value)
        )
        direction, is_same_metric = earlier.direction, earlier.metric == goals.goal.metric
    if not measured:
        raise UsageError(
            f"{name} has no complete trial to learn from; leave out --warm-start {name}, or wait "
            "until it has"
        )
    known = {each for trial in measured for each in trial.params}
    names = {parameter.name for parameter in space}
    if not known & names:
        raise UsageError(
            f"{name} has no hyperparameter in common with this study: there are "
            f"{', '.join(sorted(known)) or 'none'} in it and {', '.join(sorted(names)) or 'none'} "
            f"here; leave out --warm-start {name}"
        )
    return EarlierStudy(name, direction, is_same_metric, measured)


def _has_metrics(trial: Trial, goals: Goals) -> bool:
    """Return whether the trial measured all metrics of the new study's goals."""
    return all(math.isfinite(trial.metrics.get(name, math.nan)) for name in goals.metrics)


def _judged(trial: Trial, goals: Goals) -> EarlierTrial:
    first, *further = (score := goals.score(trial.metrics)).values
    return EarlierTrial(trial.params, first, tuple(further), score.violation)


def describe(study: EarlierStudy, space: SearchSpace, goals: Goals) -> str:
    """Return what is taken from the study, in one line."""
    if len(study.trials[0].values) < len(goals.objectives):
        return (
            f"warm start: of {study.name} the best configuration only; no trial of it measured all "
            f"of {', '.join(goals.metrics)}"
        )
    taken, there = len(study.within(space)), len(study.trials)
    left = f" ({there - taken} outside the present bounds)" if taken < there else ""
    return f"warm start: {taken} of {there} trials of {study.name}{left}"

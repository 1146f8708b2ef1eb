"""Reads earlier studies that a new one is to learn from (`--warm-start`)."""

from __future__ import annotations

import math
from pathlib import Path

from .core.earlier import EarlierStudy, Measured
from .core.space import SearchSpace
from .core.trial import Goal, TrialState
from .errors import UsageError
from .ledger import LedgerReader
from .objectives import aims_of
from .study_directory import StudyDirectory


def read_earlier(name: str, goal: Goal, space: SearchSpace) -> EarlierStudy:
    """What the study in this directory can teach a new one; it may still be running.

    Args:
        name: The directory.
        goal: What the new study optimises.
        space: What the new study searches.

    Raises:
        UsageError: There is no study, no complete trial in it, or no hyperparameter in common.
    """
    reader = LedgerReader(StudyDirectory(Path(name)))
    facts = reader.facts()
    measured = tuple(
        Measured(trial.params, trial.value)
        for trial in reader.trials()
        if trial.state is TrialState.COMPLETE
        and trial.value is not None
        and math.isfinite(trial.value)
    )
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
    earlier = aims_of(facts).goal
    return EarlierStudy(name, earlier.direction, earlier.metric == goal.metric, measured)


def words(study: EarlierStudy, space: SearchSpace) -> str:
    """What is taken of it, in one line."""
    taken, there = len(study.within(space)), len(study.trials)
    left = f" ({there - taken} outside the present bounds)" if taken < there else ""
    return f"warm start: {taken} of {there} trials of {study.name}{left}"

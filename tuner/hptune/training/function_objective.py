"""Trials of an `objective(hp, trial)`, which may train anything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.attempt import MISNAMED, CameBack, Cause, Ending
from ..core.goals import ENERGY, RETURNED_NUMBER
from ..core.spelling import nearest_name
from ..errors import ModelFileError
from ..user_code.user_errors import storable
from .context import AttemptStopped, TrialContext, UnknownMetric
from .results import metrics_of

if TYPE_CHECKING:
    from ..user_code.model_file import UserCode

_MOST_CHARACTERS = 300
"""Characters of a wrong result that are shown."""
_MISSPELT = 0.82
"""Least likeness of a name that may be misspelt; val_accuracy and accuracy have 0.8."""


def run(code: UserCode, hp: Any, trial: TrialContext) -> Ending:
    """Call the user's objective and read its result.

    The metrics of the report that the result belongs to are added to it. A value that is both
    reported and returned counts as returned; one that is returned only is of no step.

    Raises:
        ModelFileError: It returned neither a number nor a dict of metrics.
        AttemptStopped: It was told to stop, and what it returned does not count (`CameBack`).
    """
    if code.objective is None:
        raise TypeError("no objective")
    trial.keep_reports()
    result = code.objective(hp, trial)
    if trial.rank:
        return Ending(Cause.RETURNED)  # rank 0's result counts
    return ending_of(code.constants, trial, result)


def ending_of(constants: Mapping[str, Any], trial: TrialContext, result: Any) -> Ending:
    """Return how a trial ends by the result of its training; raises what `run` does.

    Args:
        constants: Those of the user's file.
        trial: The trial.
        result: What the training returned.
    """
    try:
        ending = _ending(constants, trial, result)
    except (ModelFileError, UnknownMetric):
        halt = trial.obeyed(CameBack.NOTHING if result is None else CameBack.OTHER)
        if halt is None:
            raise
        raise AttemptStopped(halt, trial.missed) from None
    values = [ending.metrics.get(name, math.nan) for name in trial.goals.of_training]
    came_back = CameBack.RESULT if all(map(math.isfinite, values)) else CameBack.OTHER
    if result is None:
        came_back = CameBack.NOTHING
    if (halt := trial.obeyed(came_back)) is not None:
        raise AttemptStopped(halt)
    return ending


def _ending(constants: Mapping[str, Any], trial: TrialContext, result: Any) -> Ending:
    name = _name_of_a_number(constants, trial)
    goals = [goal.metric for goal in trial.goals.objectives if goal.metric != ENERGY]
    has_reported = bool(trial.reported) or trial.resumed_from is not None
    returned = read_result(result, name, goals, has_reported=has_reported)
    counted = name if name in returned and trial.metric not in returned else trial.metric
    report = trial.report_of(counted, returned.get(counted))
    if report is None:
        # An earlier attempt has made all reports, and they are not on disk.
        return Ending(Cause.RETURNED, returned, trial.resumed_from)
    is_of_step = returned.get(counted, report.metrics.get(counted)) == report.metrics.get(counted)
    return Ending(
        Cause.RETURNED,
        {**report.metrics, **returned},
        report.step if is_of_step else None,
        reason="; ".join(filter(None, (trial.missed, _misnamed(returned, goals, trial.reported)))),
        ended_early=trial.ended_early,
    )


def _misnamed(returned: Mapping[str, float], goals: Sequence[str], reported: set[str]) -> str:
    """Return that a goal's name seems misspelt in the result, so that what was reported counts."""
    for goal in (goal for goal in goals if goal not in returned):
        others = (name for name in returned if name not in reported and goal not in name)
        if near := nearest_name(goal, others, likeness=_MISSPELT):
            return f"{MISNAMED} {near!r} and no {goal!r}, so the {goal} that it reported counts"
    return ""


def _name_of_a_number(constants: Mapping[str, Any], trial: TrialContext) -> str:
    """Return the metric that a plain number is the value of.

    It is the file's OBJECTIVE. Without one, it is the metric that the user asked for, unless the
    training reports other metrics only.
    """
    given = constants.get("OBJECTIVE") or trial.metric
    first = str(given if isinstance(given, str) else next(iter(given)))
    name = first.partition(":")[0].strip()
    reported = trial.reported
    if name == RETURNED_NUMBER or not reported or name in reported or "OBJECTIVE" in constants:
        return name
    return next(iter(reported)) if len(reported) == 1 else RETURNED_NUMBER


def read_result(
    result: Any, name: str, names: Sequence[str], *, has_reported: bool = False
) -> dict[str, float]:
    """Return the metrics in the result of an objective.

    Args:
        result: What it returned.
        name: The name of a number alone.
        names: The objectives, of which a tuple has the values.
        has_reported: Whether it has reported metrics, so that the result may have none.

    Raises:
        ModelFileError: It is not a result.
        UnknownMetric: It is a tuple that has not one number for each objective.
    """
    metrics = {} if result is None and has_reported else metrics_of(result, name, names)
    if metrics is None and isinstance(result, tuple):
        raise UnknownMetric(
            f"objective() returned {len(result)} values for {', '.join(names)}; name an "
            "objective for each of them, in their order, or return a dict"
        )
    if metrics is None or not (metrics or has_reported):
        raise ModelFileError(
            f"objective() returned {storable(repr(result), _MOST_CHARACTERS)}; allowed are "
            f"a number, a dict of metrics such as {{{name!r}: 0.93}}, a list of them, whose mean "
            "is taken, or nothing after trial.report(step, …)"
        )
    return metrics

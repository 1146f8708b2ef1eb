"""`objective(hp, trial)`: any training at all."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from ..config.model_file import UserCode
from ..core.trial import Cause, Ending
from ..errors import ModelFileError
from .context import TrialContext, as_metrics

ANY_METRIC = "value"
"""What the objective of a file is called that names none."""


def run(code: UserCode, hp: Any, trial: TrialContext) -> Ending:
    """Call the user's objective and read its result.

    What it has reported besides belongs to the result; of what it both reported and returned, the
    returned value counts.

    Raises:
        ModelFileError: It returned neither a number nor a dict of metrics.
        AttemptStopped: It returned because it was told to stop.
    """
    if code.objective is None:
        raise TypeError("no objective")
    result = code.objective(hp, trial)
    if not trial.is_at_its_end:
        trial.stop_if_told()
    name = _name_of_a_number(code, trial)
    returned = read_result(result, name)
    counted = trial.metric if trial.metric in returned else name
    report = trial.report_of(counted, returned.get(counted))
    if report is None:
        # An earlier attempt has reported all that there was to report.
        return Ending(Cause.RETURNED, returned, trial.resumed_from)
    return Ending(
        Cause.RETURNED,
        {**report.metrics, **returned},
        report.step,
        ended_early=trial.ended_early,
    )


def _name_of_a_number(code: UserCode, trial: TrialContext) -> str:
    """What a result is called that is a mere number.

    It is the file's OBJECTIVE. Where that is silent, it is the metric that the user asked for,
    unless reports say that this training measures something else.
    """
    said = code.constants.get("OBJECTIVE") or trial.metric
    named = str(said if isinstance(said, str) else next(iter(said)))
    name = named.partition(":")[0].strip()
    reported = trial.reported
    if name == ANY_METRIC or not reported or name in reported or "OBJECTIVE" in code.constants:
        return name
    return next(iter(reported)) if len(reported) == 1 else ANY_METRIC


def read_result(result: Any, metric: str) -> dict[str, float]:
    """The metrics in what an objective returned.

    Args:
        result: What it returned.
        metric: The name of a result that is a mere number.

    Raises:
        ModelFileError: It is neither a number nor a dict of metrics.
    """
    if isinstance(result, Mapping):
        return as_metrics(result)
    if isinstance(result, numbers.Real) or hasattr(result, "__float__"):
        return {metric: float(result)}
    raise ModelFileError(
        f"objective() returned {result!r}; allowed are a number or a dict of metrics "
        f"such as {{{metric!r}: 0.93}}"
    )

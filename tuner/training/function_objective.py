"""`objective(hp, trial)`: any training at all."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from ..core.trial import Cause, Ending
from ..errors import ModelFileError
from ..model_file import UserCode
from .context import TrialContext, as_metrics


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
    returned = read_result(result, trial.metric)
    report = trial.report_of(returned.get(trial.metric))
    if report is None:
        # An earlier attempt has reported all that there was to report.
        return Ending(Cause.RETURNED, returned, trial.resumed_from)
    return Ending(Cause.RETURNED, {**report.metrics, **returned}, report.step)


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

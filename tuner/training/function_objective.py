"""`objective(hp, trial)`: any training at all."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

from ..core.trial import Cause, Ending
from ..model_file import UserCode
from .context import AttemptStopped, TrialContext, as_metrics


def run(code: UserCode, hp: Any, trial: TrialContext) -> Ending:
    """Call the user's objective and read its result.

    Raises:
        TypeError: It returned neither a number nor a dict of metrics.
        AttemptStopped: It returned because it was told to let go.
    """
    if code.objective is None:
        raise TypeError("no objective")
    result = code.objective(hp, trial)
    if trial.should_stop():
        raise AttemptStopped
    if isinstance(result, numbers.Real) or hasattr(result, "__float__"):
        return Ending(Cause.RETURNED, {trial.metric: float(result)})
    if isinstance(result, Mapping):
        return Ending(Cause.RETURNED, as_metrics(result))
    raise TypeError(
        f"objective() returned {result!r}; allowed are a number or a dict of metrics "
        f"such as {{{trial.metric!r}: 0.93}}"
    )

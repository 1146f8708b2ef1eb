"""Errors for the ends of a run that need an action of the user."""

from __future__ import annotations

from .. import text
from ..core.attempt import FULL_HOME
from ..core.messages import Finish, FinishReason
from ..errors import ObjectiveFailedError, StorageFullError, UnknownMetricError
from ..files.file_errors import storage_full
from .compose import Run


def raise_finish(finish: Finish, run: Run) -> None:
    """Raise the error for how the run ended; return if it ended normally.

    Raises:
        UnknownMetricError: No trial reports the metric of an objective or a constraint.
        StorageFullError: The disk is full.
        ObjectiveFailedError: Too many trials failed.
    """
    if finish.finish_reason is FinishReason.UNKNOWN_METRIC:
        raise UnknownMetricError(
            f"{finish.reason}. In a new study, name objectives with --objective, OBJECTIVE in the "
            "model file, or Tuner(objective=…), and constraints with --constraint or CONSTRAINTS."
        )
    if finish.finish_reason is FinishReason.NO_ROOM and FULL_HOME in finish.reason:
        raise StorageFullError(f"{finish.reason}; then `hptune resume {run.directory}`")
    if finish.finish_reason is FinishReason.NO_ROOM:
        raise storage_full(run.directory.path, finish.reason)
    if finish.finish_reason in (FinishReason.SAME_FAILURE, FinishReason.TOO_MANY_FAILURES):
        remedy = f"Fix the cause and continue with `hptune resume {run.directory} --retry-failed`."
        raise ObjectiveFailedError(
            f"the study was stopped: {text.sentence(finish.reason)} {remedy} Its trials' logs are "
            f"in {text.path(run.directory.trials)}.",
            finish.detail,
        )

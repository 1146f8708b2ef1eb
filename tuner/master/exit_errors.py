"""Errors for the ends of a run that need an action of the user."""

from __future__ import annotations

from ..core.engine.engine import Engine
from ..core.messages import Finish, FinishReason
from ..errors import ObjectiveFailedError, UnknownMetricError
from ..reporting import text
from ..storage.directory import StudyDirectory
from ..storage.file_errors import storage_full


def raise_finish(
    finish: Finish,
    directory: StudyDirectory,
    engine: Engine,
    budget_trials: int | None,
    possible_trials: int | None,
) -> None:
    """Raise the error for how the run ended; return if it ended normally.

    Args:
        finish: How it ended.
        directory: Where the study is.
        engine: Its trials.
        budget_trials: The number of trials to suggest; None for no limit.
        possible_trials: The number of configurations that the search can try; None for no limit.

    Raises:
        UnknownMetricError: No trial reports the metric of an objective or a constraint.
        StorageFullError: The disk is full.
        ObjectiveFailedError: Too many trials failed.
    """
    if finish.finish_reason is FinishReason.UNKNOWN_METRIC:
        raise UnknownMetricError(
            f"{finish.reason}. Objectives are named with --objective, OBJECTIVE in the model file, "
            "or Tuner(objective=…); constraints with --constraint or CONSTRAINTS."
        )
    if finish.finish_reason is FinishReason.NO_ROOM:
        raise storage_full(directory.path, finish.reason)
    if finish.finish_reason in (FinishReason.SAME_FAILURE, FinishReason.TOO_MANY_FAILURES):
        # Failed trials are finished: if none is left, resuming alone would find nothing to run.
        used_up = _trials_used_up(engine, budget_trials)
        more = f" --trials {2 * used_up}" if used_up else ""
        remedy = f"Fix the cause and continue with `hptune resume {directory}{more}`."
        if _trials_used_up(engine, possible_trials):
            remedy = "Fix the cause and start a new study: every configuration was tried."
        raise ObjectiveFailedError(
            f"the study was stopped: {finish.reason}. {remedy} Its trials' logs are in "
            f"{text.path(directory.trials)}.",
            finish.detail,
        )


def _trials_used_up(engine: Engine, budget_trials: int | None) -> int:
    """Return how many trials were searched if none is left to run, else 0."""
    searched = sum(trial.confirms is None for trial in engine.trials)
    is_over = all(trial.state.is_final for trial in engine.trials)
    return searched if searched == budget_trials and is_over else 0

"""What the reasons of ended attempts say of the user's code: told once in a run, and by status."""

from __future__ import annotations

from collections.abc import Iterable

from ...core.attempt import (
    BEGINS_AGAIN,
    MISNAMED,
    NEVER_ASKED,
    NO_BETTER,
    USED_UP,
    Attempt,
    Outcome,
)


def remarks_on(attempts: Iterable[Attempt], pruner: str = "") -> dict[str, str]:
    """Return one line for each kind of remark, on the first attempt that gives a reason for it.

    Args:
        attempts: The attempts.
        pruner: The name of the study's pruner, if it is known.
    """
    found: dict[str, str] = {}
    for attempt in attempts:
        for kind, line in _remarks(attempt, f"--pruner {pruner}".strip()).items():
            found.setdefault(kind, line)
    return found


def _remarks(attempt: Attempt, pruner: str) -> dict[str, str]:
    trial, reason, outcome = f"trial {attempt.id.trial}", attempt.reason, attempt.outcome
    found = {}
    if NEVER_ASKED in reason:
        found["pruner"] = (
            f"{pruner} saves no time: {trial} trained to its end, and {NEVER_ASKED}. Add after "
            "each trial.report: if trial.should_stop(): return"
        )
    if MISNAMED in reason and outcome is Outcome.FINISHED:
        found["objective"] = f"{trial}: {reason}"
    if BEGINS_AGAIN in reason and outcome is Outcome.RELEASED:
        found["begins again"] = f"{trial}: {reason}"
    if reason.startswith(NO_BETTER) and outcome is Outcome.ERRORED:
        found["trains on"] = f"{trial} {reason}"
    if USED_UP in reason and outcome is Outcome.FINISHED:
        found["data"] = f"{trial}: {reason}"
    return found

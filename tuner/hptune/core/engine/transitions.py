"""The legal transitions of a trial, as one table."""

from __future__ import annotations

import enum
from collections.abc import Mapping

from ..trial import TrialState


class TrialEvent(enum.StrEnum):
    """Event that moves a trial to another state."""

    START = "start"
    RETRY = "retry"
    """Its attempt, or the trial as a whole, ended without a result: the trial runs again."""
    PAUSE = "pause"
    PROMOTE = "promote"
    """It was paused and continues."""
    COMPLETE = "complete"
    FAIL = "fail"
    PRUNE = "prune"
    REOPEN = "reopen"
    """It was complete and trains on."""
    RESTORE = "restore"
    """It trained on without a better result, and keeps the one that it had."""


TRANSITIONS: Mapping[tuple[TrialState, TrialEvent], TrialState] = {
    (TrialState.WAITING, TrialEvent.START): TrialState.RUNNING,
    (TrialState.WAITING, TrialEvent.PRUNE): TrialState.PRUNED,
    (TrialState.WAITING, TrialEvent.RESTORE): TrialState.COMPLETE,
    (TrialState.RUNNING, TrialEvent.RETRY): TrialState.WAITING,
    (TrialState.RUNNING, TrialEvent.PAUSE): TrialState.PAUSED,
    (TrialState.RUNNING, TrialEvent.COMPLETE): TrialState.COMPLETE,
    (TrialState.RUNNING, TrialEvent.FAIL): TrialState.FAILED,
    (TrialState.RUNNING, TrialEvent.PRUNE): TrialState.PRUNED,
    (TrialState.RUNNING, TrialEvent.RESTORE): TrialState.COMPLETE,
    (TrialState.PAUSED, TrialEvent.PROMOTE): TrialState.WAITING,
    (TrialState.PAUSED, TrialEvent.PRUNE): TrialState.PRUNED,
    (TrialState.PAUSED, TrialEvent.RESTORE): TrialState.COMPLETE,
    (TrialState.COMPLETE, TrialEvent.REOPEN): TrialState.WAITING,
    (TrialState.FAILED, TrialEvent.RETRY): TrialState.WAITING,
}
"""The next state, by the present state and what happens; all else is illegal."""

"""How an attempt has ended for the study, on a worker that does not see the study's directory."""

from __future__ import annotations

from dataclasses import replace

from ...core.attempt import Cause, Ending
from .remote_study import NotSent

_NOT_HERE = ("FileNotFoundError", "ModuleNotFoundError", "NotADirectoryError")
"""Errors of the user's code that files of the master's machine may explain."""


def ending_of_remote(ending: Ending, not_sent: NotSent | None, *, node: str) -> Ending:
    """Return the ending to report.

    Args:
        ending: How the attempt ended on the worker.
        not_sent: Why the study lacks some of its files; None if it has them all.
        node: The worker's machine.
    """
    if ending.cause is Cause.NO_ROOM:
        # The disk of one worker; the study goes on elsewhere.
        reason = f"the local disk of {node} has no room for its files ({ending.reason})"
        return Ending(Cause.WORKER_LOST, reason=reason)
    if ending.cause is Cause.RETURNED and not_sent is not None:
        # Its model would be missing.
        cause = Cause.NO_ROOM if not_sent.is_full else Cause.WORKER_LOST
        reason = f"its files could not be sent from {node} to the study: {not_sent.reason}"
        return Ending(cause, reason=reason)
    if ending.cause is Cause.EXCEPTION and ending.reason.startswith(_NOT_HERE):
        where = f" (on {node}, which does not see the files of the study's machine)"
        return replace(ending, reason=ending.reason + where)
    return ending

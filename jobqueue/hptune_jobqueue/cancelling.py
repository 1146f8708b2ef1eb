"""Cancelling all jobs of a study, until Slurm shows none."""

from __future__ import annotations

import time
from collections.abc import Collection, Container

from .commands import Slurm
from .errors import SlurmUnavailableError
from .job_records import ALIVE

_TRIES = 3
_PAUSE_SECONDS = 0.5

_LEAVE_SECONDS = 15.0
"""How long jobs may take to end by themselves after the study."""

_LOOK_SECONDS = 2.0
"""The time between two looks at them."""


def wait_for_end(slurm: Slurm, names: Collection[str], leaving: Container[str]) -> None:
    """Wait for the end of jobs whose workers leave, for some seconds.

    Raises:
        SlurmUnavailableError: Slurm does not answer.
    """
    deadline = time.monotonic() + _LEAVE_SECONDS
    while leaving and time.monotonic() < deadline:
        shown = slurm.jobs(names)
        if not any(job.state in ALIVE for job in shown if job.id in leaving):
            return
        time.sleep(_LOOK_SECONDS)


def cancel_until_none(slurm: Slurm, names: Collection[str]) -> str:
    """Cancel all jobs of these names that Slurm shows, until it shows none.

    Returns:
        Which jobs may be left, and how the user cancels them; empty if none is left.
    """
    why = "they still exist"
    for _ in range(_TRIES):
        try:
            left = [job.id for job in slurm.jobs(names) if job.state in ALIVE]
            if not left:
                return ""
            slurm.cancel(left)
        except SlurmUnavailableError as error:
            why = str(error)
        time.sleep(_PAUSE_SECONDS)
    return left_text(names, why)


def left_text(names: Collection[str], why: str) -> str:
    """Return that jobs of these names may be left, and how the user cancels them."""
    commands = "; ".join(f"scancel --name={name}" for name in names)
    return f"Slurm jobs of this study may be left ({why}). Cancel them with: {commands}"

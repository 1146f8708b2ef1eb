"""Lines for the user while a study runs; the display that shows them decides how."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass


class Subject(enum.StrEnum):
    """What a line is about."""

    JOBS = "jobs"
    """The states of all jobs that bring workers; a live display draws them instead."""
    PACKING = "packing"
    """How trials share devices."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the user.

    Attributes:
        text: The line, with options of the command line where it names settings.
        subject: What it is about.
    """

    text: str
    subject: Subject = Subject.OTHER


Notify = Callable[[Notice], None]
"""Takes a line for the user."""

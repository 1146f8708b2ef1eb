"""The turn at a study's lock, which programs that ask for trials have for moments only."""

from __future__ import annotations

import random
import time

from ..errors import StudyLockedError
from .directory import StudyDirectory
from .lease import LockOwner
from .lock import MasterLock

PATIENCE_SECONDS = 600.0
"""How long to wait for others, which may be many, and get their turns by chance."""


class MasterRunsError(StudyLockedError):
    """A master runs the study, for how long nobody knows.

    Attributes:
        owner: The master.
    """

    def __init__(self, message: str, owner: LockOwner) -> None:
        super().__init__(message)
        self.owner = owner


def acquired(directory: StudyDirectory, *, is_brief: bool = False) -> MasterLock:
    """Return the study's lock, when those have had it that need it for a moment.

    Args:
        directory: The study's directory.
        is_brief: Whether this needs it for a moment, too, and is no master.

    Raises:
        MasterRunsError: A master runs the study.
        StudyLockedError: The others take too long.
        StorageFullError: There is no space, or writing is forbidden.
    """
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while (lock := tried(directory, give_up_at, is_brief=is_brief)) is None:
        time.sleep(random.uniform(0.002, 0.03))  # noqa: S311 - so that all have their turn
    return lock


def tried(directory: StudyDirectory, give_up_at: float, *, is_brief: bool) -> MasterLock | None:
    """Return the study's lock; None if another program has it for its moment.

    Args:
        directory: The study's directory.
        give_up_at: When the others have taken too long, by the monotonic clock.
        is_brief: As for `acquired`.

    Raises:
        StudyLockedError: As by `acquired`.
    """
    try:
        return directory.acquire(is_brief=is_brief)
    except StudyLockedError as error:
        master = directory.owner()
        if master is not None and master.token:
            raise MasterRunsError(error.message, master) from None
        if time.monotonic() > give_up_at:
            raise
    return None

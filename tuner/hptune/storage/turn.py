"""The turn at a study's lock, which programs that ask for trials have for moments only."""

from __future__ import annotations

import random
import time

from ..errors import StudyLockedError
from .directory import StudyDirectory
from .lock import MasterLock

PATIENCE_SECONDS = 600.0
"""How long to wait for others, which may be many, and get their turns by chance."""


def acquired(directory: StudyDirectory, *, is_brief: bool = False) -> MasterLock:
    """Return the study's lock, when those have had it that need it for a moment.

    Args:
        directory: The study's directory.
        is_brief: Whether this needs it for a moment, too, and is no master.

    Raises:
        StudyLockedError: A master runs the study, or the others take too long.
        StorageFullError: There is no space, or writing is forbidden.
    """
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return directory.acquire(is_brief=is_brief)
        except StudyLockedError:
            master = directory.owner()
            if (master is not None and master.token) or time.monotonic() > give_up_at:
                raise
        time.sleep(random.uniform(0.002, 0.03))  # noqa: S311 - so that all have their turn

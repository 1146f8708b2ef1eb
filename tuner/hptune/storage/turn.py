"""The turn at a study's lock, which programs that ask for trials have for moments only."""

from __future__ import annotations

import random
import time

from ..errors import StudyLockedError
from .directory import StudyDirectory
from .ledger import LedgerReader
from .lock import MOMENT_SECONDS, MasterLock

PATIENCE_SECONDS = 600.0
"""How long to wait for others, which may be many, and get their turns by chance."""


def acquired(directory: StudyDirectory) -> MasterLock:
    """Return the study's lock, when those have had it that need it for a moment.

    Raises:
        StudyLockedError: A master runs the study, or the others take too long.
        StorageFullError: There is no space, or writing is forbidden.
    """
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return directory.acquire()
        except StudyLockedError:
            if time.monotonic() > give_up_at or _has_master(directory):
                raise
        time.sleep(random.uniform(0.002, 0.03))  # noqa: S311 - so that all have their turn


def _has_master(directory: StudyDirectory) -> bool:
    """Return whether who has the lock is a master, and not a program that is slow."""
    owner = directory.owner()
    if owner is None or not owner.token:
        return False
    if abs(time.time() - owner.since) <= MOMENT_SECONDS:  # the clocks of two machines may differ
        return False
    return directory.has_ledger and not LedgerReader(directory).run_state().without_master

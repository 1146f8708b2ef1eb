"""Liveness of the master, from its lease in the study directory."""

from __future__ import annotations

import enum
import json
import math
import time
from pathlib import Path

from ...storage.lease import STALE_SECONDS

LOOK_SECONDS = 3.0
"""Seconds between two reads of the lease."""

_ENDS_WITHIN_SECONDS = 5.0
"""Seconds within which a master that has lost its scheduler, too, writes its last heartbeat."""


class MasterState(enum.Enum):
    """The state of the master."""

    LIVES = enum.auto()
    LOST = enum.auto()
    """It has ended, or its heartbeat has stopped; another one may come."""
    REPLACED = enum.auto()
    """Another one has taken over, which does not wait for these attempts."""


class MasterLiveness:
    """An observer of a study's lease.

    While the file system does not answer, the last state stays.

    Args:
        directory: The study's directory.
        token: The master's token in its lease.
    """

    def __init__(self, directory: Path, token: str) -> None:
        self._lease = directory / "lease"
        self._token = self._seen = token
        self._heartbeat = 0
        self._beat_at = -math.inf
        self._alive_at = time.monotonic()
        self._look_from = 0.0
        self._missing = 0
        self._state = MasterState.LIVES

    def look(self) -> MasterState:
        """Return the master's state, from the lease or from the last `LOOK_SECONDS`."""
        now = time.monotonic()
        if now < self._look_from:
            return self._state
        self._look_from = now + LOOK_SECONDS
        try:
            # Opening the file makes an NFS client ask its server; reading its time does not.
            with self._lease.open("rb") as file:
                token = json.loads(file.read()).get("token")
                heartbeat = self._lease.stat().st_mtime_ns
        except FileNotFoundError:
            # Missing once may be an error of the file system.
            self._missing += 1
            if self._missing > 1:
                self._state = MasterState.LOST
            return self._state
        except (OSError, ValueError, AttributeError, RecursionError):
            return self._state
        self._missing = 0
        if heartbeat != self._heartbeat:
            if token == self._token:
                self._beat_at = now if self._heartbeat else self._beat_at
                self._alive_at = now
            self._heartbeat = heartbeat
        if token != self._token:
            # Seen once, it may be that of a user's command, which writes a note and is gone.
            if token == self._seen:
                self._state = MasterState.REPLACED
        elif now - self._alive_at > STALE_SECONDS:
            self._state = MasterState.LOST
        else:
            self._state = MasterState.LIVES
        self._seen = token
        return self._state

    def outlived(self, moment: float) -> bool:
        """Return whether the master lived on after a moment of the monotonic clock.

        If a worker lost its connection at that moment, the master did not end: it runs the
        worker's attempts elsewhere.
        """
        return self._beat_at > moment + LOOK_SECONDS + _ENDS_WITHIN_SECONDS

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last heartbeat was seen."""
        return time.monotonic() - self._alive_at

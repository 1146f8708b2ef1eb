"""Whether the master that gave the orders still lives, by its lease in the study directory."""

from __future__ import annotations

import enum
import json
import math
import time
from pathlib import Path

from ...storage.lease import STALE_SECONDS

LOOK_SECONDS = 3.0

_ENDS_WITHIN_SECONDS = 5.0
"""A master that has lost its scheduler as well gives its last sign of life by then."""


class MasterState(enum.Enum):
    """How it stands with the master."""

    LIVES = enum.auto()
    LOST = enum.auto()
    """It gives no sign of life any more, or has said that it ends; another one may come."""
    REPLACED = enum.auto()
    """Another one has taken over: nobody waits for these attempts any more."""


class MasterLiveness:
    """Looks at a study's lease now and then.

    A file system that does not answer tells nothing of the master.

    Args:
        directory: The study's directory.
        token: Names the master, in its lease.
    """

    def __init__(self, directory: Path, token: str) -> None:
        self._lease = directory / "lease"
        self._token = token
        self._heartbeat = 0
        self._beat_at = -math.inf
        self._alive_at = time.monotonic()
        self._look_from = 0.0
        self._missing = 0
        self._standing = MasterState.LIVES

    def look(self) -> MasterState:
        """How it stands; cheap, however often it is called."""
        now = time.monotonic()
        if now < self._look_from:
            return self._standing
        self._look_from = now + LOOK_SECONDS
        try:
            # Opened, not only asked for its time: that is what makes NFS look at its server.
            with self._lease.open("rb") as file:
                token = json.loads(file.read()).get("token")
                heartbeat = self._lease.stat().st_mtime_ns
        except FileNotFoundError:
            # Once may be a hiccup of the file system's.
            self._missing += 1
            if self._missing > 1:
                self._standing = MasterState.LOST
            return self._standing
        except (OSError, ValueError):
            return self._standing
        self._missing = 0
        if heartbeat != self._heartbeat:
            if self._heartbeat and token == self._token:
                self._beat_at = now
            self._heartbeat, self._alive_at = heartbeat, now
        if token != self._token:
            self._standing = MasterState.REPLACED
        elif now - self._alive_at > STALE_SECONDS:
            self._standing = MasterState.LOST
        else:
            self._standing = MasterState.LIVES
        return self._standing

    def outlived(self, moment: float) -> bool:
        """Whether the master has gone on after a moment, by the monotonic clock.

        Where a worker was cut off then, it alone was: the master runs its attempts elsewhere.
        """
        return self._beat_at > moment + LOOK_SECONDS + _ENDS_WITHIN_SECONDS

    @property
    def silent_seconds(self) -> float:
        """How long there was no sign of life."""
        return time.monotonic() - self._alive_at

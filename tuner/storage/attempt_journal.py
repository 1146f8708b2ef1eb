"""What attempts have told, on disk until the study's ledger has it.

::

    trials/<number>/journal/<attempt>.events      one line for each event: a checksum, and the event

Where workers may outlive their master, whatever an attempt tells is written here before it is
sent. Usually nobody ever reads it. But if the master dies, what is sent is lost, and the next one
finds here what the ledger lacks (`tuner.master.recovery`). A line that a kill cut short is none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path

from ..core.messages import AttemptEnded, Event
from ..core.trial import AttemptId

logger = logging.getLogger(__name__)

JOURNAL_FOLDER = "journal"
HEARTBEAT_SECONDS = 5.0
"""How often a runner shows, by the file's time, that the attempt still runs."""


def journal_path(trial_directory: Path, attempt: AttemptId) -> Path:
    """Where an attempt's events are."""
    return trial_directory / JOURNAL_FOLDER / f"{attempt.number}.events"


class AttemptJournal:
    """Writes one attempt's events. A disk that takes none is no reason to end the attempt.

    Attributes:
        is_superseded: Somebody took the file away: a later attempt of the trial runs elsewhere,
            and nobody waits for this one any more.

    Args:
        trial_directory: The trial's directory.
        attempt: The attempt. That it was ordered shows that the ledger knows how the trial's
            earlier ones ended, so what these have spooled is thrown away.
    """

    def __init__(self, trial_directory: Path, attempt: AttemptId) -> None:
        self._path = journal_path(trial_directory, attempt)
        self._is_there = False
        self.is_superseded = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for earlier in self._path.parent.glob("*.events"):
                if earlier.stem.isdigit() and int(earlier.stem) < attempt.number:
                    earlier.unlink(missing_ok=True)
            self._path.write_bytes(b"")
            self._is_there = True
        except OSError:
            logger.warning("What the attempt %s tells cannot be spooled.", attempt, exc_info=True)

    def add(self, event: Event) -> None:
        """Write down an event; the attempt's end is on disk when this returns."""
        # Not at the top: the codec is not needed where workers end with their master.
        from .ledger.codec import encode_event

        try:
            line = json.dumps(encode_event(replace(event, at=time.time())))
            with self._path.open("r+b" if self._is_there else "ab") as file:
                file.seek(0, os.SEEK_END)
                file.write(f"{_checksum(line)} {line}\n".encode())
                file.flush()
                if isinstance(event, AttemptEnded):
                    os.fsync(file.fileno())
        except FileNotFoundError:
            self.is_superseded = self._is_there
        except (OSError, TypeError, ValueError):
            logger.warning("An event cannot be spooled in %s.", self._path, exc_info=True)

    def touch(self) -> None:
        """The attempt still runs."""
        try:
            os.utime(self._path)
        except FileNotFoundError:
            self.is_superseded = self._is_there
        except OSError:
            logger.debug("%s cannot be touched.", self._path, exc_info=True)


def read_journal(path: Path) -> list[Event]:
    """The events that an attempt has spooled, in order; those after a spoilt line are left out."""
    from ..errors import StudyError
    from .ledger.codec import decode_event

    events: list[Event] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return []
    for line in lines[:-1]:
        check, _, text = line.decode(errors="replace").partition(" ")
        if check != _checksum(text):
            break
        try:
            events.append(decode_event(*json.loads(text)))
        except (ValueError, TypeError, StudyError):  # written by another version
            break
    return events


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]

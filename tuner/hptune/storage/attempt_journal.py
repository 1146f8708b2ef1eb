"""The journal of an attempt: its events on disk until the study's ledger has them.

::

    trials/<number>/journal/<attempt>.events      one line for each event

Where workers may outlive their master, every event of an attempt is written here before it is
sent. If the master dies, the events on their way are lost, and the next master finds here what the
ledger lacks (`hptune.master.recovery`). A line that a kill cut short does not count. The lines are
the first events of the attempt, without a gap: what could not be written is written again together
with the next event.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from pathlib import Path

from ..core.attempt import AttemptId
from ..core.messages import AttemptEnded, Event

logger = logging.getLogger(__name__)

JOURNAL_FOLDER = "journal"
"""The folder of the journals in a trial's directory."""

HEARTBEAT_SECONDS = 5.0
"""Seconds between two updates of a journal's file time, by which a runner shows that it lives."""


def journal_path(trial_directory: Path, attempt: AttemptId) -> Path:
    """Return the path of an attempt's journal."""
    return trial_directory / JOURNAL_FOLDER / f"{attempt.number}.events"


class AttemptJournal:
    """The writer of one attempt's journal. An error of the file system never ends the attempt.

    A new attempt removes the journals of the trial's earlier ones: that it was ordered shows that
    the ledger has their ends.

    Attributes:
        is_superseded: Whether the file was removed: a later attempt of the trial runs
            elsewhere, and this one is no longer needed.

    Args:
        trial_directory: The trial's directory.
        attempt: The attempt.
    """

    def __init__(self, trial_directory: Path, attempt: AttemptId) -> None:
        self._path = journal_path(trial_directory, attempt)
        self._exists = False
        self._size_bytes = 0
        self._unwritten = b""
        self.is_superseded = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for earlier in self._path.parent.glob("*.events"):
                if earlier.stem.isdecimal() and int(earlier.stem) < attempt.number:
                    earlier.unlink(missing_ok=True)
            self._path.write_bytes(b"")
            self._exists = True
        except OSError:
            logger.warning("the journal %s cannot be created", self._path, exc_info=True)

    def add(self, event: Event) -> None:
        """Append an event; an `AttemptEnded` is on disk when this returns."""
        # Imported late: the codec is not needed where workers end with their master.
        from .ledger.codec import encode_event

        try:
            line = json.dumps(encode_event(replace(event, at=time.time())))
        except (TypeError, ValueError):
            logger.warning("an event cannot be added to %s", self._path, exc_info=True)
            return
        self._unwritten += f"{line}\n".encode()
        try:
            with self._path.open("r+b" if self._exists else "ab") as file:
                # A write that failed may have left a part of its lines.
                file.truncate(self._size_bytes)
                file.seek(0, os.SEEK_END)
                file.write(self._unwritten)
                file.flush()
                if isinstance(event, AttemptEnded):
                    os.fsync(file.fileno())
        except FileNotFoundError:
            self.is_superseded = self._exists
        except OSError:
            logger.warning("an event cannot be added to %s", self._path, exc_info=True)
        else:
            self._exists = True
            self._size_bytes += len(self._unwritten)
            self._unwritten = b""

    def touch(self) -> None:
        """Show that the attempt still runs."""
        try:
            os.utime(self._path)
        except FileNotFoundError:
            self.is_superseded = self._exists
        except OSError:
            logger.debug("%s cannot be touched", self._path, exc_info=True)


def read_journal(path: Path) -> list[Event]:
    """Return an attempt's events in order, up to the first damaged line."""
    from ..errors import NotAFileError, StudyError
    from ..files.access import read_whole
    from .ledger.codec import decode_event

    events: list[Event] = []
    try:
        lines = read_whole(path).split(b"\n")
    except (OSError, NotAFileError):  # a trial can write here too
        return []
    for line in lines[:-1]:
        try:
            events.append(decode_event(*json.loads(line)))
        # A damaged line, or one of another version.
        except (ValueError, TypeError, RecursionError, StudyError):
            break
    return events

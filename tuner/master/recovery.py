"""What attempts have told while their study had no master, for the ledger of the next one.

Workers that outlive their master (`hptune worker`) let their attempts go on for a while, and write
all that these tell into the study directory (`worker.spool`). The next master reads it before it
opens the study. What it finds becomes events of the ledger like any others, so an attempt that
ended meanwhile has ended, and one that is still running is lost as it would have been before.

Exactly once: an attempt whose end is in the ledger does not run any more, so its spool is not
looked at; and of one that still runs, the ledger has the first so many reports, since they came
in order. So it does not matter when the collecting master dies itself.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path

from ..core.messages import AttemptEnded, Event, Measured, ParametersUsed, Reported
from ..core.trial import AttemptId
from ..storage.attempt_journal import HEARTBEAT_SECONDS, JOURNAL_FOLDER, journal_path, read_journal
from ..storage.directory import StudyDirectory

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
"""How long to wait for attempts that still run somewhere: they are told to write a checkpoint."""

_SILENT_SECONDS = 4 * HEARTBEAT_SECONDS
_POLL_SECONDS = 0.2


def collect(
    directory: StudyDirectory,
    running: Collection[AttemptId],
    heard: Mapping[AttemptId, int],
    *,
    patience_seconds: float = PATIENCE_SECONDS,
) -> list[Event]:
    """What the ledger lacks of the attempts that ran for the last master.

    The caller holds the study's lock: a runner that still carries out an attempt sees by that
    that nobody waits for it any more, lets it write a checkpoint, and spools its end.

    Args:
        directory: The study's directory.
        running: The attempts that run, as far as the ledger knows.
        heard: How many of each one's reports the ledger has.
        patience_seconds: How long to wait for those that are seen to run.

    Returns:
        Events with the times at which they were written down, each attempt's in order.
    """
    paths = {name: journal_path(directory.trial(name.trial), name) for name in running}
    _wait_for_those_that_run(directory, [*paths.values()], patience_seconds)
    events: list[Event] = []
    for name, path in paths.items():
        reports = 0
        for event in read_journal(path):
            if getattr(event, "attempt", None) != name:
                continue
            if isinstance(event, Reported):
                reports += 1
                if reports > heard.get(name, 0):
                    events.append(event)
            elif isinstance(event, Measured | ParametersUsed | AttemptEnded):
                events.append(event)
    # Equal results rank by their order, and those who read the tables know the times alone.
    return sorted(events, key=lambda event: event.at)


def forget(directory: StudyDirectory) -> None:
    """Throw away what was spooled; the ledger has it, and an attempt that still runs is lost."""
    for path in directory.trials.glob(f"*/{JOURNAL_FOLDER}"):
        shutil.rmtree(path, ignore_errors=True)


def _wait_for_those_that_run(
    directory: StudyDirectory, paths: list[Path], patience_seconds: float
) -> None:
    deadline = time.monotonic() + patience_seconds
    waiting = [path for path in paths if _is_touched(path, directory) and not _has_ended(path)]
    if waiting:
        logger.info("%d trials still run for a master that is gone; they leave.", len(waiting))
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        waiting = [path for path in waiting if _is_touched(path, directory)]
        waiting = [path for path in waiting if not _has_ended(path)]


def _has_ended(path: Path) -> bool:
    return any(isinstance(event, AttemptEnded) for event in read_journal(path))


def _is_touched(path: Path, directory: StudyDirectory) -> bool:
    """Whether its runner has touched it lately, by the clock of the file system."""
    lease = directory.path / "lease"
    try:
        age = time.time() - path.stat().st_mtime
        ahead = time.time() - lease.stat().st_mtime  # at most the master's heartbeat
    except OSError:
        return False
    return age - min(0.0, ahead) < _SILENT_SECONDS

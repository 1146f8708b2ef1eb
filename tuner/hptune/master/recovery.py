"""Recovery of what attempts reported while their study had no master.

Workers that outlive their master (`hptune worker`) let their attempts continue for a while, and
write their reports into journals in the study's directory (`storage.attempt_journal`). The next
master reads the journals before it opens the study. Their events go into the ledger like any
others: an attempt that ended meanwhile has ended, and one that still runs is lost.

Each event is recorded exactly once. The journal of an attempt whose end is in the ledger is not
read. Of an attempt that still runs, the ledger has the first n reports, because they came in
order. So the collecting master may die at any time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from ..core.attempt import AttemptId
from ..core.clock import polls
from ..core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Measured,
    ParametersUsed,
    Reported,
    StudyClosed,
)
from ..storage.attempt_journal import HEARTBEAT_SECONDS, JOURNAL_FOLDER, journal_path, read_journal
from ..storage.directory import StudyDirectory
from .past import Past

PATIENCE_SECONDS = 30.0
"""How long to wait for attempts that still run; they are told to write a checkpoint and stop."""

_SILENT_SECONDS = 4 * HEARTBEAT_SECONDS
_POLL_SECONDS = 0.2


def recovered(past: Past, at: float) -> list[Event]:
    """Return what attempts have reported while the study had no master, after its closing.

    Args:
        past: The study, whose lock the caller holds.
        at: The present time, in seconds since the epoch.
    """
    running = {run.attempt.id: run.attempt for run in past.engine.snapshot.running}
    started = [name for name, attempt in running.items() if attempt.started_at is not None]
    events = collect(past.directory, running, past.reports, started=started)
    return [StudyClosed(at), *events] if events else []


def collect(
    directory: StudyDirectory,
    running: Collection[AttemptId],
    reported: Mapping[AttemptId, int],
    *,
    started: Collection[AttemptId] = (),
    patience_seconds: float = PATIENCE_SECONDS,
) -> list[Event]:
    """Return the events of the last master's attempts that the ledger lacks.

    The caller holds the study's lock. A runner whose attempt still runs notices that, lets it
    write a checkpoint, and writes its end into the journal.

    Args:
        directory: The study's directory.
        running: The attempts that run according to the ledger.
        reported: How many reports of each attempt the ledger has.
        started: Those whose start the ledger has.
        patience_seconds: How long to wait for those that still run.

    Returns:
        Events with the times at which they were recorded, each attempt's in order.
    """
    paths = {name: journal_path(directory.trial(name.trial), name) for name in running}
    _wait_for_running(directory, [*paths.values()], patience_seconds)
    events: list[Event] = []
    for name, path in paths.items():
        reports, latest = 0, 0.0
        for written in read_journal(path):
            if getattr(written, "attempt", None) != name:
                continue
            # The worker's clock may have been set back.
            latest = max(latest, written.at)
            event = replace(written, at=latest)
            if isinstance(event, Reported):
                reports += 1
                if reports > reported.get(name, 0):
                    events.append(event)
            elif isinstance(event, AttemptStarted):
                if name not in started:
                    events.append(event)
            elif isinstance(event, Measured | ParametersUsed | AttemptEnded):
                events.append(event)
    # Equal results rank by their order, and readers of the tables know only the times.
    return sorted(events, key=lambda event: event.at)


def discard_journals(directory: StudyDirectory) -> None:
    """Delete all journals: the ledger has their events, and attempts that still run are lost."""
    for path in directory.trials.glob(f"*/{JOURNAL_FOLDER}"):
        shutil.rmtree(path, ignore_errors=True)


def _wait_for_running(
    directory: StudyDirectory, paths: list[Path], patience_seconds: float
) -> None:
    # The clock of the file system, which stamps the journals, may differ from this machine's.
    ahead = directory.now() - time.time()
    for _ in polls(patience_seconds, _POLL_SECONDS):
        paths = [path for path in paths if _is_touched(path, ahead) and not _has_ended(path)]
        if not paths:
            return


def _has_ended(path: Path) -> bool:
    return any(isinstance(event, AttemptEnded) for event in read_journal(path))


def _is_touched(path: Path, ahead_seconds: float) -> bool:
    """Return whether its runner has touched it recently.

    Args:
        path: The journal.
        ahead_seconds: How much the clock of its file system is ahead of this machine's.
    """
    try:
        touched_at = path.stat().st_mtime
    except OSError:
        return False
    return time.time() + ahead_seconds - touched_at < _SILENT_SECONDS

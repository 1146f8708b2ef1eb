"""Batches of events, and a check that those of a ledger are whole."""

from __future__ import annotations

from typing import Any

from hptune.core.attempt import Attempt, AttemptId, Outcome, Report
from hptune.core.messages import Reported
from hptune.core.resources import Placement
from hptune.core.trial import Trial, TrialState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader

BATCH_EVENTS = 20


def reported(at: float, *, trial: int = 0, **metrics: float) -> Reported:
    return Reported(at, AttemptId(trial, 0), Report(1, metrics))


def complete(number: int, value: float | None, **params: Any) -> Trial:
    return Trial(number, params, "test", TrialState.COMPLETE, value=value, attempts=1)


def append_batch(ledger: Ledger, number: int) -> None:
    """Append reports of one trial, with the trial and its attempt as they are then."""
    first = number * BATCH_EVENTS
    ledger.append(
        [reported(first + k, trial=number, loss=0.5) for k in range(BATCH_EVENTS)],
        trials=[complete(number, float(number), note="x" * 3_000)],
        attempts=[
            Attempt(AttemptId(number, 0), Placement("w", (0,)), "n", 0.0, outcome=Outcome.FINISHED)
        ],
    )


def whole_batches(directory: StudyDirectory) -> int:
    """Return the number of whole batches; fail if the tables contradict the events."""
    reader = LedgerReader(directory)
    times = [event.at for event in reader.events()]
    batches, rest = divmod(len(times), BATCH_EVENTS)
    assert rest == 0
    assert times == list(range(len(times)))
    assert [trial.number for trial in reader.trials()] == list(range(batches))
    assert [attempt.id for attempt in reader.attempts()] == [
        AttemptId(n, 0) for n in range(batches)
    ]
    assert [row.time for row in reader.reports()] == times
    return batches

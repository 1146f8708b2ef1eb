"""All trials of a study as a table (CSV, or pandas') or as a tree (JSON), with every digit.

Trials come in the order of their numbers, columns in the order in which they first appear, so
that exporting twice gives the same bytes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from ...core.trial import Attempt, Trial, Usage
from . import costs
from .best import aims_json, finite, params_json
from .view import StudyView


class ReportRow(Protocol):
    """One metric that an attempt measured at a step, as the ledger keeps it."""

    @property
    def trial(self) -> int:
        """The trial's number."""

    @property
    def attempt(self) -> int:
        """The attempt's number within the trial."""

    @property
    def step(self) -> int:
        """Epochs done, or whatever the objective counts."""

    @property
    def metric(self) -> str:
        """The metric's name."""

    @property
    def value(self) -> float:
        """The metric's value."""

    @property
    def time(self) -> float:
        """When it was reported, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Table:
    """A row for each trial, by number; what a trial lacks is not in its row."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, object]]


def table(view: StudyView) -> Table:
    """The trials in rows, with values as they are.

    The columns are number, state, value, step, `param.<name>` for each hyperparameter of any
    trial, `metric.<name>` for each metric, attempts, seconds (see `seconds_run`), what the trial
    cost (see `books.Costs`; attempts that still run do not count), then of its last attempt
    peak_memory_bytes, peak_gpu_memory_bytes, what it held (cpu_share and gpu_share of each of its
    cores and GPUs, memory_bytes) and why (if that was measured), worker, node and cause (how it
    ended), and reason.
    Before reason come, where the study has such things: front (whether the trial is on the Pareto
    front), violation (of the constraints), confirms (the trial that it trains once more).
    """
    trials = sorted(view.trials, key=lambda trial: trial.number)
    of_trial = _by_trial(view.attempts)
    front = {trial.number for trial in view.front}
    special: dict[str, Callable[[Trial], object]] = {}
    if len(view.aims.goals) > 1:
        special["front"] = lambda trial: trial.number in front
    if view.aims.constraints:
        special["violation"] = lambda trial: trial.violation if trial.values else None
    if view.confirmations:
        special["confirms"] = lambda trial: trial.confirms
    columns = [
        *("number", "state", "value", "step"),
        *(f"{_PARAM}{name}" for name in _names(trial.params for trial in trials)),
        *(f"metric.{name}" for name in _names(trial.metrics for trial in trials)),
        *("attempts", "seconds", *costs.NAMES, *_OF_LAST, *special, "reason"),
    ]
    rows = []
    for trial in trials:
        attempts = of_trial.get(trial.number, [])
        rows.append(
            {
                "number": trial.number,
                "state": str(trial.state),
                "value": trial.value,
                "step": trial.step,
                **{f"{_PARAM}{name}": value for name, value in trial.params.items()},
                **{f"metric.{name}": value for name, value in trial.metrics.items()},
                "attempts": trial.attempts,
                "seconds": seconds_run(attempts),
                **costs.books(attempts).to_json(),
                **_of_last(attempts),
                **{name: tell(trial) for name, tell in special.items()},
                "reason": trial.reason,
            }
        )
    return Table(columns, rows)


def export_csv(view: StudyView, stream: TextIO) -> None:
    """Write the `table`, as RFC 4180 describes CSV.

    What a trial lacks, such as an inactive hyperparameter, is empty; a hyperparameter whose value
    is None reads `None`.

    Args:
        view: The study.
        stream: Where to write; a file opened with `newline=""`.
    """
    trials = table(view)
    writer = csv.DictWriter(stream, trials.columns, restval="")
    writer.writeheader()
    for row in trials.rows:
        writer.writerow({k: str(v) if k.startswith(_PARAM) else v for k, v in row.items()})


_PARAM = "param."
_OF_LAST = (
    *("peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_share", "gpu_share", "memory_bytes"),
    *("why", "worker", "node", "cause"),
)


def _of_last(attempts: Sequence[Attempt]) -> dict[str, object]:
    """What the columns of `_OF_LAST` hold."""
    last = _attempt(attempts[-1]) if attempts else {}
    return {name: last.get(name) for name in _OF_LAST}


def export_json(view: StudyView, reports: Sequence[ReportRow], stream: TextIO) -> None:
    """Write the trials with their attempts and reports as strict JSON.

    Hyperparameters keep their types; NaN and the infinities, which JSON cannot hold, are null;
    times are seconds since the epoch.

    Args:
        view: The study.
        reports: What the attempts reported.
        stream: Where to write.
    """
    attempts_of = _by_trial(view.attempts)
    reports_of: dict[int, list[ReportRow]] = {}
    for row in reports:
        reports_of.setdefault(row.trial, []).append(row)
    tree = {
        "metric": view.goal.metric,
        "direction": str(view.goal.direction),
        **aims_json(view.aims),
        **({"front": [trial.number for trial in view.front]} if len(view.aims.goals) > 1 else {}),
        "trials": [
            {
                "number": trial.number,
                "state": str(trial.state),
                "value": finite(trial.value),
                "step": trial.step,
                "params": params_json(trial.params),
                "metrics": {name: finite(value) for name, value in trial.metrics.items()},
                "origin": trial.origin,
                **({"violation": trial.violation} if view.aims.constraints else {}),
                "reason": trial.reason,
                "detail": trial.detail,
                "seconds": seconds_run(attempts_of.get(trial.number, [])),
                **costs.books(attempts_of.get(trial.number, [])).to_json(),
                "attempts": [_attempt(attempt) for attempt in attempts_of.get(trial.number, [])],
                "reports": _reports(reports_of.get(trial.number, [])),
            }
            for trial in sorted(view.trials, key=lambda trial: trial.number)
        ],
    }
    json.dump(tree, stream, indent=2, allow_nan=False)
    stream.write("\n")


def seconds_run(attempts: Iterable[Attempt]) -> float | None:
    """How long the processes of attempts ran, in sum; None if none of them has run and ended.

    An attempt without a known end, such as a running one, is not counted.
    """
    ran = [a.seconds(a.ended_at) for a in attempts if a.ended_at is not None]
    known = [seconds for seconds in ran if seconds is not None]
    return sum(known) if known else None


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "number": attempt.id.number,
        "outcome": None if attempt.outcome is None else str(attempt.outcome),
        "reason": attempt.reason,
        "node": attempt.node,
        "worker": attempt.placement.worker,
        "cpus": list(attempt.placement.cpus),
        "gpus": list(attempt.placement.gpus),
        "cpu_share": attempt.placement.cpu_share,
        "gpu_share": attempt.placement.gpu_share if attempt.placement.gpus else None,
        "memory_bytes": attempt.placement.memory_bytes,
        "why": attempt.why,
        "placed_at": attempt.placed_at,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "cause": None if attempt.cause is None else str(attempt.cause),
        **_used(attempt.usage),
        **costs.books([attempt]).to_json(),
    }


def _used(usage: Usage | None) -> dict[str, object]:
    names = ("peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_seconds", "seconds_per_step")
    return {name: None if usage is None else getattr(usage, name) for name in names}


def _reports(rows: Sequence[ReportRow]) -> list[dict[str, object]]:
    """One entry for each attempt and step, with all metrics reported then."""
    metrics: dict[tuple[int, int], dict[str, float | None]] = {}
    at: dict[tuple[int, int], float] = {}
    for row in sorted(rows, key=lambda row: (row.attempt, row.step)):
        key = (row.attempt, row.step)
        metrics.setdefault(key, {})[row.metric] = finite(row.value)
        at[key] = row.time
    return [
        {"attempt": attempt, "step": step, "at": at[attempt, step], "metrics": values}
        for (attempt, step), values in metrics.items()
    ]


def _by_trial(attempts: Sequence[Attempt]) -> dict[int, list[Attempt]]:
    grouped: dict[int, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.id):
        grouped.setdefault(attempt.id.trial, []).append(attempt)
    return grouped


def _names(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))

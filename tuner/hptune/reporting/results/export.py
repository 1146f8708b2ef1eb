r"""A study's trials and learning curves as tables (CSV or pandas) or as a tree (JSON), every digit.

Trials are in the order of their numbers, columns in the order in which they first appear, so
that two exports have the same bytes.

Names and texts in a study may come from anywhere, and a CSV file is often opened by a spreadsheet.
So a text that a spreadsheet would run as a formula begins with an apostrophe in CSV, and control
characters are written as escapes such as `\x1b`. Data frames and JSON hold texts as they are.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TextIO

from ...core.attempt import Attempt, ReportedValue, Usage
from ...core.trial import Trial
from ...text import CONTROL
from . import costs
from .best import finite, goals_json, result_json
from .notes import notes_json
from .view import StudyView


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by the names of columns; a value that a row lacks is not in it."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, object]]


def table(view: StudyView) -> Table:
    """Return one row for each trial, with values as they are.

    The columns:
        trial, state, origin: The trial's number, its state, and what proposed it: a search method,
            a start point, or a confirmation of another trial.
        value, step: Its objective and the step of that value: the best one of a complete trial, and
            the last one of a trial that was stopped early, which has trained less.
        param.<name>: Each hyperparameter of any trial.
        metric.<name>: Each metric.
        attempts: How often the trial was started.
        seconds: How long its attempts ran.
        core_hours, gpu_hours, wait_seconds, idle_core_hours: Costs of its attempts that ended.
        peak_memory_bytes, peak_gpu_memory_bytes: The most memory that its last attempt used.
        cpu_share, gpu_share, memory_bytes: What the last attempt held: a share of each of its
            cores and GPUs, and memory.
        why: Why it held that much, if the amount was measured.
        worker, node: Where the last attempt ran; where its rank 0 ran if it had several processes.
        processes, nodes: How many processes the last attempt had, and on how many nodes.
        cause: How the last attempt ended.
        front: Whether the trial is on the Pareto front; with several objectives only.
        violation: How much the trial breaks the constraints; with constraints only.
        confirms: The trial whose configuration it trains again; with confirmations only.
        tags, notes: What users wrote on the trial; with such notes only.
        reason: Why the trial failed or was stopped.
    """
    trials = sorted(view.trials, key=lambda trial: trial.number)
    of_trial = by_trial(view.attempts)
    front = {trial.number for trial in view.front}
    special: dict[str, Callable[[Trial], object]] = {}
    if len(view.goals.objectives) > 1:
        special["front"] = lambda trial: trial.number in front
    if view.goals.constraints:
        special["violation"] = lambda trial: trial.violation if trial.values else None
    if view.confirmations:
        special["confirms"] = lambda trial: trial.confirms
    if any(note.trial is not None for note in view.notes):
        special["tags"] = lambda trial: " ".join(view.tags_of(trial.number)) or None
        special["notes"] = lambda trial: "; ".join(view.texts_on(trial.number)) or None
    columns = [
        *("trial", "state", "origin", "value", "step"),
        *(f"{PARAM}{name}" for name in _names(trial.params for trial in trials)),
        *(f"metric.{name}" for name in _names(trial.metrics for trial in trials)),
        *("attempts", "seconds", *costs.NAMES, *_OF_LAST, *special, "reason"),
    ]
    rows = []
    for trial in trials:
        attempts = of_trial.get(trial.number, [])
        last = _attempt(attempts[-1]) if attempts else {}
        rows.append(
            {
                "trial": trial.number,
                "state": str(view.trial_state(trial)),
                "origin": trial.origin,
                "value": trial.value,
                "step": trial.step,
                **{f"{PARAM}{name}": value for name, value in trial.params.items()},
                **{f"metric.{name}": value for name, value in trial.metrics.items()},
                "attempts": trial.attempts,
                "seconds": seconds_run(attempts),
                **costs.costs_of(attempts).to_json(),
                **{name: last.get(name) for name in _OF_LAST},
                **{name: value_of(trial) for name, value_of in special.items()},
                "reason": trial.reason,
            }
        )
    return Table(columns, rows)


def curves(reports: Sequence[ReportedValue]) -> Table:
    """Return the learning curves in long form: one row for each metric at each step."""
    ordered = sorted(reports, key=lambda row: (row.trial, row.attempt, row.step))
    return Table(_CURVE, [{name: getattr(row, name) for name in _CURVE} for row in ordered])


_CURVE = ("trial", "attempt", "step", "metric", "value", "time")


def export_csv(rows: Table, stream: TextIO) -> None:
    """Write a table as CSV (RFC 4180).

    Cells that a row lacks, such as inactive hyperparameters, are empty. A hyperparameter whose
    value is None is written as `None`.
    """
    writer = csv.writer(stream)
    writer.writerow(map(_cell, rows.columns))
    for row in rows.rows:
        cells = {k: str(v) if k.startswith(PARAM) and v is None else v for k, v in row.items()}
        writer.writerow(_cell(cells.get(name)) for name in rows.columns)


def _cell(value: object) -> object:
    """Return a value as a CSV file may hold it, see the module's description."""
    if not isinstance(value, str):
        return value
    safe = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], value)
    return f"'{safe}" if value.startswith(_FORMULA) else safe


_CONTROL = re.compile(f"[{CONTROL}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
PARAM = "param."
_OF_LAST = (
    *("peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_share", "gpu_share", "memory_bytes"),
    *("why", "worker", "node", "processes", "nodes", "cause"),
)


def export_json(view: StudyView, reports: Sequence[ReportedValue], stream: TextIO) -> None:
    """Write the trials with their attempts and reports as strict JSON.

    Hyperparameters keep their types; NaN and the infinities, which JSON cannot hold, are null;
    times are seconds since the epoch.
    """
    attempts_of = by_trial(view.attempts)
    reports_of: dict[int, list[ReportedValue]] = {}
    for row in reports:
        reports_of.setdefault(row.trial, []).append(row)
    tree = {
        **goals_json(view),
        **notes_json(view),
        **(
            {"front": [trial.number for trial in view.front]}
            if len(view.goals.objectives) > 1
            else {}
        ),
        "trials": [
            trial_tree(
                view,
                trial,
                attempts_of.get(trial.number, []),
                reports_of.get(trial.number, []),
            )
            for trial in sorted(view.trials, key=lambda trial: trial.number)
        ],
    }
    json.dump(tree, stream, indent=2, allow_nan=False)
    stream.write("\n")


def trial_tree(
    view: StudyView, trial: Trial, attempts: Sequence[Attempt], reports: Sequence[ReportedValue]
) -> dict[str, object]:
    """Return a trial with its attempts and reports, as in the JSON export."""
    return {
        "trial": trial.number,
        "state": str(view.trial_state(trial)),
        **result_json(view, trial),
        "reason": trial.reason,
        "detail": trial.detail,
        **notes_json(view, trial.number),
        "seconds": seconds_run(attempts),
        **costs.costs_of(attempts).to_json(),
        "attempts": [_attempt(attempt) for attempt in attempts],
        "reports": _reports(reports),
    }


def seconds_run(attempts: Iterable[Attempt]) -> float | None:
    """Return how long attempts ran in sum; None if none of them ran and ended.

    An attempt without a known end, such as a running one, does not count.
    """
    ran = [a.seconds(a.ended_at) for a in attempts if a.ended_at is not None]
    known = [seconds for seconds in ran if seconds is not None]
    return sum(known) if known else None


def _attempt(attempt: Attempt) -> dict[str, object]:
    return {
        "attempt": attempt.id.number,
        "outcome": None if attempt.outcome is None else str(attempt.outcome),
        "reason": attempt.reason,
        "node": attempt.node,
        "worker": attempt.placement.worker,
        "cpus": list(attempt.placement.cpus),
        "gpus": list(attempt.placement.gpus),
        "cpu_share": attempt.placement.cpu_share,
        "gpu_share": attempt.placement.gpu_share if attempt.placement.gpus else None,
        "memory_bytes": sum(rank.memory_bytes for rank in attempt.placement.ranks),
        "processes": len(attempt.placement.ranks),
        "nodes": len(attempt.nodes),
        "ranks": ranks_json(attempt),
        "why": attempt.why,
        "placed_at": attempt.placed_at,
        "started_at": attempt.started_at,
        "ended_at": attempt.ended_at,
        "cause": None if attempt.cause is None else str(attempt.cause),
        **_used(attempt.usage),
        **costs.costs_of([attempt]).to_json(),
    }


def ranks_json(attempt: Attempt) -> list[dict[str, object]]:
    """Return what each rank of an attempt of several processes holds; empty for a plain one."""
    if not attempt.placement.peers:
        return []
    return [
        {
            "rank": number,
            "node": node,
            "worker": rank.worker,
            "cpus": list(rank.cpus),
            "gpus": list(rank.gpus),
            "memory_bytes": rank.memory_bytes,
        }
        for number, (node, rank) in enumerate(attempt.ranks)
    ]


def _used(usage: Usage | None) -> dict[str, object]:
    names = ("peak_memory_bytes", "peak_gpu_memory_bytes", "cpu_seconds", "seconds_per_step")
    return {name: None if usage is None else getattr(usage, name) for name in names}


def _reports(rows: Sequence[ReportedValue]) -> list[dict[str, object]]:
    """Return one entry for each attempt and step, with all metrics reported then."""
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


def by_trial(attempts: Sequence[Attempt]) -> dict[int, list[Attempt]]:
    """Return the attempts of each trial, in their order."""
    grouped: dict[int, list[Attempt]] = {}
    for attempt in sorted(attempts, key=lambda attempt: attempt.id):
        grouped.setdefault(attempt.id.trial, []).append(attempt)
    return grouped


def _names(mappings: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))

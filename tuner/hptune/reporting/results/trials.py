"""The output of `hptune trials` and `hptune show`: a study's trials, and all about one of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import attrgetter
from pathlib import Path

from ... import text
from ...core.attempt import (
    NON_FINITE_REMEDY,
    Attempt,
    Cause,
    ReportedValue,
)
from ...core.resources import size
from ...core.space.parameters.checks import is_number
from ...core.trial import Trial, TrialState
from ..table import aligned, fields, table
from .best import goals_json
from .costs import costs_of
from .export import reports_json
from .notes import note_lines, note_words
from .rows import SECONDS, VALUE, Column, Place, Row, columns, row_of, rows, seconds_run
from .states import INTERRUPTED
from .view import StudyView

_CURVE_ROWS = 10
_METRIC_CHARACTERS = 7
"""Least width of a metric's column."""


def ranked(view: StudyView, *, states: Collection[str] = ()) -> list[Trial]:
    """Return the trials, the best first.

    The study's best trials are followed by the other complete trials, by the first objective; those
    that break a constraint come after them. Then come other trials that have a value, and the rest
    by number.
    """
    front = {trial.number: place for place, trial in enumerate(view.front)}

    def key(trial: Trial) -> tuple[float, ...]:
        value = Row(view, trial).value
        loss = math.inf if value is None or math.isnan(value) else view.goal.direction.sign * value
        return (
            front.get(trial.number, len(front)),
            not trial.has_result,
            trial.violation,
            loss,
            trial.number,
        )

    chosen = [trial for trial in view.trials if not states or view.state_of(trial) in states]
    return sorted(chosen, key=key)


def configurations(view: StudyView, *, states: Collection[str] = ()) -> list[Trial]:
    """Return the trials, the best first, without repeats; but one may stand for the best trial."""
    again = {trial.confirms for trial in view.front}
    return [
        trial
        for trial in ranked(view, states=states)
        if trial in view.front or (trial.confirms is None and trial.number not in again)
    ]


def trials_text(
    view: StudyView, trials: Sequence[Trial], *, now: float, width: int | None = None
) -> str:
    """Return the output of `hptune trials`."""
    if not trials:
        return f"no such trials: {view.counts_text()}"
    cells = trials_table(view, rows(view, trials, now=now))
    lines = _with_params(view, trials, cells, width)
    if words := [each for each in (_repeats_text(view, trials), order_text(view, trials)) if each]:
        lines += ["", *words]
    return "\n".join(lines)


def _repeats_text(view: StudyView, trials: Sequence[Trial]) -> str:
    """Return why the best trial comes before a complete one of a better value; empty if none."""
    best, sign = view.best, view.goal.direction.sign
    if best is None or best not in trials or len(view.goals.objectives) > 1:
        return ""
    complete = [trial for trial in trials if trial.has_result]
    values = [trial.value for trial in complete if not trial.violation and trial.value is not None]
    is_beaten = any(sign * value < sign * (best.value or 0.0) for value in values)
    if (confirmation := view.confirmation(best)) is None or not is_beaten:
        return ""
    return (
        f"Trial {best.number} comes first because of the mean of its configuration's repeats "
        f"({text.measured(confirmation.mean.values[0])}): a better value of one training may be "
        "luck."
    )


def order_text(view: StudyView, trials: Sequence[Trial], *, when: str = "") -> str:
    """Return why a complete trial comes before one of a better value; empty if none does.

    `when` begins the sentence.
    """
    sign, values = view.goal.direction.sign, dict[bool, list[float]]()
    for trial in trials:
        value = Row(view, trial).value
        if value is not None and not math.isnan(value):
            values.setdefault(trial.has_result, []).append(sign * value)
    complete, others = values.get(True, []), values.get(False, [])
    if not complete or not others or min(others) >= max(complete):
        return ""
    return (
        f"{when}{'complete' if when else 'Complete'} trials come first: the others have trained "
        "less, so their values cannot be compared with those of complete ones."
    )


def trials_table(view: StudyView, of: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the headings of the columns of `hptune trials`, and the cells of each row."""
    metrics = [goal.metric for goal in view.goals.objectives]
    shown = [column for column in columns(Place.TRIALS) if column.is_shown(of)]

    def line(values: Iterable[str], other: Callable[[Column], str]) -> tuple[str, ...]:
        found: list[str] = []
        for column in shown:
            found += values if column.name == "value" else [other(column)]
        return tuple(found)

    heads = line(map(text.clean, metrics), lambda column: column.heading(view, metrics))
    return [
        heads,
        *(line(map(text.measured, map(row.metrics.get, metrics)), row.text) for row in of),
    ]


def _with_params(
    view: StudyView, trials: Sequence[Trial], rows: Sequence[tuple[str, ...]], width: int | None
) -> list[str]:
    """Return the table with a column for each hyperparameter, or with one for all if too wide."""
    in_order = sorted(trials, key=attrgetter("number"))
    names = list(dict.fromkeys(name for trial in in_order for name in trial.params))
    numeric = [n for n in names if all(is_number(trial.params.get(n, 0)) for trial in trials)]
    notes = ["; ".join(filter(None, _remarks(view, trial))) for trial in trials]
    cells = [names] + [
        [text.param(shown[n]) if n in shown else "" for n in names]
        for shown in map(text.shown_params, trials)
    ]
    left = ("state", "origin", *(name for name in names if name not in numeric))
    # Where there is no room, a column that says the same of all trials is left out.
    kept = {"trial", *(text.clean(goal.metric) for goal in view.goals.objectives)}
    by_column = [of for of in zip(*rows, strict=True) if of[0] in kept or {*of[2:]} != {of[1]}]
    fewer = [*zip(*by_column, strict=True)]
    for shown in rows, fewer:
        columns = zip(shown, cells, ["", *notes], strict=True)
        lines = table([(*row, *more, note) for row, more, note in columns], left=left, width=width)
        if width is None or max(map(len, lines)) <= width:
            return lines
    words = [
        " | ".join(
            part for part in (" ".join(text.assignments(text.shown_params(trial))), note) if part
        )
        for trial, note in zip(trials, notes, strict=True)
    ]
    last = ["hyperparameters", *words]
    joined = [(*row, word) for row, word in zip(fewer, last, strict=True)]
    return table(joined, left=left[:2], width=width)


def _remarks(view: StudyView, trial: Trial) -> list[str]:
    """Return why a trial failed or is infeasible, its tags, and what users noted."""
    if trial.state is TrialState.FAILED:
        words = [text.failure(trial)]
    else:
        words = [f"infeasible: {each}" for each in view.goals.broken(trial.metrics)]
    return [*words, note_words(view, trial.number)]


def trials_json(view: StudyView, trials: Sequence[Trial], *, now: float) -> dict[str, object]:
    """Return the output of `hptune trials --json`."""
    found = [row.to_json() for row in rows(view, trials, now=now)]
    return {"study": view.directory, **goals_json(view), "trials": found}


def trial_text(
    view: StudyView,
    trial: Trial,
    reports: Sequence[ReportedValue],
    *,
    log: Path | None,
    now: float,
    width: int | None = None,
    why_stopped: str = "",
) -> str:
    """Return the output of `hptune show`.

    Args:
        view: The study.
        trial: The trial.
        reports: What it reported.
        log: The path of its log; None if there is none.
        now: The time.
        width: Of the terminal, in characters; None for no limit.
        why_stopped: How it compared with others where it was stopped early; empty if unknown.
    """
    row = row_of(view, trial, now=now)
    is_failed = trial.state is TrialState.FAILED
    rank = "the best" if len(view.goals.objectives) == 1 else "on the Pareto front"
    state = view.state_of(trial) + (f", {rank} of {view.progress}" if row.is_on_front else "")
    value = ""
    if row.report is not None:
        steps = text.steps_of(row.report.step, trial.params, view.epochs)
        value = f"{row.text(VALUE)}  {view.goal}, at {text.step_word(view.epochs)} {steps}, so far"
    elif trial.values:
        values = ", ".join(map(text.measured, trial.values))
        goals = ", ".join(map(str, view.goals.objectives))
        value = ", ".join(filter(None, (f"{values}  {goals}", text.value_step(trial, view.epochs))))
    again = [
        f"{each.number} ({text.measured(each.value)})"
        for each in view.trials
        if each.confirms == trial.number
    ]
    about = [
        ("study", text.path(view.directory)),
        ("trial", f"{trial.number}, {state}"),
        ("origin", trial.origin),
        ("value", value),
        ("", f"trained again as {text.trials(again)}" if again else ""),
        *(("", f"infeasible: {each}") for each in view.goals.broken(trial.metrics)),
        ("reason", text.clean(trial.reason) or why_stopped),
        ("", NON_FINITE_REMEDY if is_failed and row.last.get("cause") == Cause.NON_FINITE else ""),
        *note_lines(view, trial.number),
        ("time", row.text(SECONDS)),
        ("energy", costs_of(row.attempts, now=row.now).energy_text),
        ("log", text.path(log) if log else ""),
        ("model", text.path(view.models.get(trial.number, ""))),
    ]
    lines = fields([each for each in about if each[1] not in ("", "''")], width=width)
    metrics = {name: text.measured(value) for name, value in trial.metrics.items()}
    for title, found in (
        ("hyperparameters", text.exact_params(text.shown_params(trial))),
        ("metrics", metrics),
    ):
        lines += ["", title, *aligned(found)] if found else []
    lines += _curve_lines(view, reports, width)
    lines += _attempt_lines(row, reports, width)
    if trial.detail:
        lines += ["", *(text.printable(line) for line in trial.detail.splitlines())]
    return "\n".join(lines)


def trial_details(
    view: StudyView,
    trial: Trial,
    reports: Sequence[ReportedValue],
    *,
    log: Path | None,
    now: float,
) -> dict[str, object]:
    """Return the output of `hptune show --json`: the trial, its reports and its log."""
    tree = row_of(view, trial, now=now).to_json()
    reported = {"reports": reports_json(reports), "log": log and str(log)}
    return {"study": view.directory, **tree, **reported}


def _curve_lines(view: StudyView, reports: Sequence[ReportedValue], width: int | None) -> list[str]:
    """Return the learning curve in short: some steps, each as its last attempt reported it."""
    steps: dict[int, dict[str, float]] = {}
    for row in sorted(reports, key=attrgetter("attempt", "step")):
        steps.setdefault(row.step, {})[row.metric] = row.value
    if not steps:
        return []
    goals = [goal.metric for goal in view.goals.objectives]
    found = dict.fromkeys(metric for measured in steps.values() for metric in measured)
    metrics = [metric for metric in goals if metric in found]
    room = math.inf if width is None else width - _METRIC_CHARACTERS
    room -= sum(_cells(metric) for metric in metrics)
    for metric in found:
        if metric not in metrics and (room := room - _cells(metric)) >= 0:
            metrics.append(metric)
    shown = _some(sorted(steps))
    rows = [(text.step_word(view.epochs), *metrics, "")]
    rows += [
        (str(step), *(text.measured(steps[step].get(metric)) for metric in metrics), "")
        for step in shown
    ]
    left = len(steps) - len(shown)
    more = [f"  and {left} more in `hptune export --curves`"] if left else []
    return ["", *table(rows), *more]


def _cells(metric: str) -> int:
    return max(_METRIC_CHARACTERS, len(text.clean(metric))) + 2


def _some(steps: Sequence[int]) -> list[int]:
    """Return at most `_CURVE_ROWS` of the steps, with the first and the last one.

    >>> _some(range(1, 101))
    [1, 12, 23, 34, 45, 56, 67, 78, 89, 100]
    """
    if len(steps) <= _CURVE_ROWS:
        return list(steps)
    return [steps[i * (len(steps) - 1) // (_CURVE_ROWS - 1)] for i in range(_CURVE_ROWS)]


def _attempt_lines(of: Row, reports: Sequence[ReportedValue], width: int | None) -> list[str]:
    view, last_steps = of.view, dict[int, int]()
    if not of.attempts:
        return []
    for report in sorted(reports, key=attrgetter("step")):
        last_steps[report.attempt] = report.step
    cells = [("attempt", "ended", text.step_word(view.epochs), "time", "memory", "where", "why")]
    for attempt in of.attempts:
        step = last_steps.get(attempt.id.number)
        is_running = attempt.outcome is None and view.is_live
        ended = "running" if is_running else INTERRUPTED
        used = attempt.usage
        cells.append(
            (
                str(attempt.id.number),
                ended if attempt.outcome is None else attempt.outcome.lower(),
                text.NOTHING if step is None else str(step),
                text.duration(seconds_run([attempt], now=of.now)),
                text.NOTHING if used is None else size(used.peak_memory_bytes),
                text.attempt_where(attempt),
                ending_text(attempt),
            )
        )
    return [
        "",
        *table(cells, left=("ended", "where"), width=width),
        *_rank_lines(of.attempts[-1], width),
    ]


def _rank_lines(attempt: Attempt, width: int | None) -> list[str]:
    """Return where each rank of an attempt of several processes runs; empty for a plain one."""
    if not attempt.placement.peers:
        return []
    rows = [(str(n), text.where(node, rank)) for n, (node, rank) in enumerate(attempt.ranks)]
    return ["", *table([("rank", "where"), *rows], left=("where",), width=width)]


def ending_text(attempt: Attempt) -> str:
    """Return why an attempt ended: its cause, and the reason if that says more."""
    cause, reason = str(attempt.cause or ""), text.shorten(attempt.reason, text.FAILURE_CHARACTERS)
    return reason if cause in reason else ": ".join(part for part in (cause, reason) if part)

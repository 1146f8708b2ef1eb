"""The output of `hptune trials` and `hptune show`: a study's trials, and all about one of them."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from operator import attrgetter
from pathlib import Path

from ... import text
from ...core.attempt import (
    NON_FINITE_REMEDY,
    Attempt,
    AttemptId,
    Cause,
    Report,
    ReportedValue,
)
from ...core.resources import size
from ...core.trial import Trial, TrialState
from ..table import aligned, fields, table
from .best import goals_json, trial_json
from .export import by_trial, seconds_run, trial_tree
from .notes import note_lines, note_words, notes_json
from .view import INTERRUPTED, TO_CONTINUE, StudyView

STATES = ("complete", "pruned", "failed", "running", "paused", INTERRUPTED, "waiting")
"""The words for the states of trials, see `StudyView.state_of`."""

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
        value = _value(view, trial)
        has_value = value is not None and not math.isnan(value)
        return (
            front.get(trial.number, len(front)),
            trial.state is not TrialState.COMPLETE,
            trial.violation,
            not has_value,
            view.goal.direction.sign * value if has_value and value is not None else 0.0,
            trial.number,
        )

    chosen = [trial for trial in view.trials if not states or view.state_of(trial) in states]
    return sorted(chosen, key=key)


def trials_text(
    view: StudyView, trials: Sequence[Trial], *, now: float, width: int | None = None
) -> str:
    """Return the output of `hptune trials`."""
    if not trials:
        return f"no such trials: {view.counts_text()}"
    attempts_of = by_trial(view.attempts)
    rows = [(*trial_columns(view), "time", "origin")]
    for trial in trials:
        seconds = _seconds(view, attempts_of.get(trial.number, []), now)
        rows.append((*trial_cells(view, trial), text.duration(seconds), trial.origin))
    lines = _with_params(view, trials, rows, width)
    if words := [each for each in (_repeats_text(view, trials), order_text(view, trials)) if each]:
        lines += ["", *words]
    return "\n".join(lines)


def _repeats_text(view: StudyView, trials: Sequence[Trial]) -> str:
    """Return why the best trial comes before a complete one of a better value; empty if none."""
    best, sign = view.best, view.goal.direction.sign
    if best is None or best not in trials or len(view.goals.objectives) > 1:
        return ""
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
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
        value = _value(view, trial)
        if value is not None and not math.isnan(value):
            values.setdefault(trial.state is TrialState.COMPLETE, []).append(sign * value)
    complete, others = values.get(True, []), values.get(False, [])
    if not complete or not others or min(others) >= max(complete):
        return ""
    return (
        f"{when}{'complete' if when else 'Complete'} trials come first: the others have trained "
        "less, so their values cannot be compared with those of complete ones."
    )


def trial_columns(view: StudyView) -> tuple[str, ...]:
    """Return the headings of `trial_cells`."""
    metrics = (text.clean(goal.metric) for goal in view.goals.objectives)
    return ("trial", "state", *metrics, f"from {text.step_word(view.epochs)}")


def trial_cells(view: StudyView, trial: Trial) -> tuple[str, ...]:
    """Return a trial's number, state, objectives and step as texts; so far if it goes on."""
    metrics = [goal.metric for goal in view.goals.objectives]
    values, step = [*trial.values, *[None] * len(metrics)], trial.step  # stopped: the first only
    if (report := latest_report(view, trial)) is not None:
        values, step = [report.metrics.get(metric) for metric in metrics], report.step
    return (
        str(trial.number),
        view.state_of(trial),
        *map(text.measured, values[: len(metrics)]),
        text.NOTHING if step is None else str(step),
    )


def _with_params(
    view: StudyView, trials: Sequence[Trial], rows: Sequence[tuple[str, ...]], width: int | None
) -> list[str]:
    """Return the table with a column for each hyperparameter, or with one for all if too wide."""
    in_order = sorted(trials, key=attrgetter("number"))
    names = list(dict.fromkeys(name for trial in in_order for name in trial.params))
    numeric = [n for n in names if all(_is_number(trial.params.get(n, 0)) for trial in trials)]
    notes = ["; ".join(filter(None, _remarks(view, trial))) for trial in trials]
    cells = [names] + [
        [text.param(shown[n]) if n in shown else "" for n in names]
        for shown in map(text.shown_params, trials)
    ]
    left = ("state", "origin", *(name for name in names if name not in numeric))
    columns = zip(rows, cells, ["", *notes], strict=True)
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
    joined = [(*row, word) for row, word in zip(rows, last, strict=True)]
    return table(joined, left=left[:2], width=width)


def _remarks(view: StudyView, trial: Trial) -> list[str]:
    """Return why a trial failed or is infeasible, its tags, and what users noted."""
    if trial.state is TrialState.FAILED:
        words = [text.failure(trial)]
    else:
        words = [f"infeasible: {each}" for each in view.goals.broken(trial.metrics)]
    return [*words, note_words(view, trial.number)]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def trials_json(view: StudyView, trials: Sequence[Trial], *, now: float) -> dict[str, object]:
    """Return the output of `hptune trials --json`."""
    attempts_of = by_trial(view.attempts)
    return {
        "study": view.directory,
        **goals_json(view),
        "trials": [
            {
                **trial_json(view, trial),
                "state": str(view.trial_state(trial)),
                "attempts": trial.attempts,
                "seconds": _seconds(view, attempts_of.get(trial.number, []), now),
                "reason": trial.reason,
                **notes_json(view, trial.number),
            }
            for trial in trials
        ],
    }


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
    attempts = by_trial(view.attempts).get(trial.number, [])
    is_best = any(trial.number == each.number for each in view.front)
    rank = "the best" if len(view.goals.objectives) == 1 else "on the Pareto front"
    state = view.state_of(trial) + (f", {rank} of {view.progress}" if is_best else "")
    report, value = latest_report(view, trial), ""
    if report is not None:
        latest = text.measured(report.metrics.get(view.goal.metric))
        steps = text.steps_of(report.step, trial.params, view.epochs)
        value = f"{latest}  {view.goal}, at {text.step_word(view.epochs)} {steps}, so far"
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
        ("", NON_FINITE_REMEDY if _is_non_finite(trial, attempts) else ""),
        *note_lines(view, trial.number),
        ("time", text.duration(_seconds(view, attempts, now))),
        ("log", text.path(log) if log else "none yet"),
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
    lines += _attempt_lines(view, attempts, reports, now, width)
    if trial.detail:
        lines += ["", *(text.printable(line) for line in trial.detail.splitlines())]
    return "\n".join(lines)


def trial_details(
    view: StudyView, trial: Trial, reports: Sequence[ReportedValue], *, log: Path | None
) -> dict[str, object]:
    """Return the output of `hptune show --json`: the trial as in the JSON export, and its files."""
    tree = trial_tree(view, trial, by_trial(view.attempts).get(trial.number, []), reports)
    model = view.models.get(trial.number)
    return {"study": view.directory, **tree, "log": log and str(log), "model": model}


def _is_non_finite(trial: Trial, attempts: Sequence[Attempt]) -> bool:
    """Return whether a trial failed because a metric became NaN or infinite."""
    last = next(reversed(attempts), None)
    return trial.state is TrialState.FAILED and last is not None and last.cause is Cause.NON_FINITE


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


def _attempt_lines(
    view: StudyView,
    attempts: Sequence[Attempt],
    reports: Sequence[ReportedValue],
    now: float,
    width: int | None,
) -> list[str]:
    if not attempts:
        return []
    last_steps = {row.attempt: row.step for row in sorted(reports, key=attrgetter("step"))}
    rows = [("attempt", "ended", text.step_word(view.epochs), "time", "memory", "where", "why")]
    for attempt in attempts:
        step = last_steps.get(attempt.id.number)
        is_running = attempt.outcome is None and view.master is not None
        ended = "running" if is_running else INTERRUPTED
        used = attempt.usage
        rows.append(
            (
                str(attempt.id.number),
                ended if attempt.outcome is None else attempt.outcome.lower(),
                text.NOTHING if step is None else str(step),
                text.duration(_seconds(view, [attempt], now)),
                text.NOTHING if used is None else size(used.peak_memory_bytes),
                text.attempt_where(attempt),
                ending_text(attempt),
            )
        )
    return [
        "",
        *table(rows, left=("ended", "where"), width=width),
        *_rank_lines(attempts[-1], width),
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


def latest_report(view: StudyView, trial: Trial) -> Report | None:
    """Return the last report of a trial that runs or is interrupted."""
    if trial.state not in TO_CONTINUE:
        return None
    attempts = (AttemptId(trial.number, number) for number in reversed(range(trial.attempts)))
    return next((view.latest[attempt] for attempt in attempts if attempt in view.latest), None)


def _value(view: StudyView, trial: Trial) -> float | None:
    report = latest_report(view, trial)
    return trial.value if report is None else report.metrics.get(view.goal.metric)


def _seconds(view: StudyView, attempts: Sequence[Attempt], now: float) -> float | None:
    """Return how long a trial's attempts ran, in sum; None if none of them is known to have run."""
    ended = seconds_run(attempts)
    running = [
        seconds
        for attempt in attempts
        if view.master is not None and attempt.ended_at is None
        if (seconds := attempt.seconds(now)) is not None
    ]
    return sum(running, start=ended or 0.0) if running or ended is not None else None

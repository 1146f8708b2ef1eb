"""What the page's scripts know of a study, as JSON holds it.

`figures.js` and `page.js` draw figures and tables from it, so names are short: a page of a thousand
trials has each of them a thousand times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ... import text
from ...core.attempt import Attempt, Halt, Outcome
from ...core.resources import size
from ...core.space.space import FloatParameter, IntParameter, Parameter, Scale
from ...core.trial import Trial, TrialState
from ..results.rows import Column, Place, Row, columns, plain, rows
from ..results.states import INTERRUPTED
from ..results.trials import ending_text
from ..results.view import StudyView
from .trials import Curve, StudyTrials, is_drawable

_DIGITS = 6
"""Significant digits of a curve's values; a figure shows no more."""
_MOST_VALUES = 50
"""Values of a hyperparameter that are listed; a range of more is one of numbers."""
_DETAIL_CHARACTERS = 4000

_SHORT = {"trial": "n", "state": "s", "value": "v", "params": "p"}
"""Names of columns whose cells the scripts use in many places."""

_ENDS = {Outcome.LOST: "lost, retried"}
"""How an attempt ended, in words, where that is not the name of the outcome."""


def facts_of(trials: StudyTrials, *, now: float, run_one: str = "") -> dict[str, Any]:
    """Return what is known of the study as a whole.

    Args:
        trials: Its trials.
        now: The time, in seconds since the epoch.
        run_one: The command that runs one trial, without its configuration; empty if there is none.
    """
    view = trials.view
    goals = view.goals.objectives
    metrics = list(dict.fromkeys([*(goal.metric for goal in goals), *_metrics_of(view.trials)]))
    names = text.distinct([text.clean(name) for name in trials.parameters])
    return {
        "metric": view.goal.metric,
        "metrics": metrics,
        "direction": {goal.metric: str(goal.direction) for goal in goals},
        "step": text.step_word(view.epochs),
        "columns": [
            {
                "name": _SHORT.get(each.name, each.name),
                "title": each.heading(view, metrics),
                "isFirst": Place.TRIALS in each.places,
                "isRare": each.is_rare,
            }
            for each in columns(Place.PAGE)
        ],
        "best": None if view.best is None else view.best.number,
        "front": [trial.number for trial in view.front],
        "order": trials.order,
        "space": [
            {"name": name, "label": label, **_space_of(declared)}
            for label, (name, declared) in zip(names, trials.parameters.items(), strict=True)
        ],
        "study": text.path(view.directory),
        "runOne": run_one,
        "running": view.is_live,
        "now": now,
    }


def _metrics_of(trials: Sequence[Trial]) -> list[str]:
    return list(dict.fromkeys(name for trial in trials for name in trial.metrics))


def _space_of(declared: Sequence[Parameter]) -> dict[str, Any]:
    """Return the range of a hyperparameter over all its declarations."""
    ranges = [each for each in declared if isinstance(each, FloatParameter | IntParameter)]
    low, high = [each.low for each in ranges], [each.high for each in ranges]
    listed: list[object] | None = []
    for each in declared:
        values = each.values
        if values is None or len(values) > _MOST_VALUES or listed is None:
            listed = None
        else:
            listed += [value for value in values if not _has(listed, value)]
    numbers = [
        each for each in listed or [] if isinstance(each, int | float) and type(each) is not bool
    ]
    is_words = listed is not None and len(numbers) < len(listed)
    return {
        "text": "; or ".join(each.bounds for each in declared),
        "when": " and ".join(map(str, declared[0].conditions)),
        "values": listed if listed is None or is_words else sorted(numbers),
        "low": None if is_words else min([*low, *numbers], default=None),
        "high": None if is_words else max([*high, *numbers], default=None),
        "log": any(each.scale is Scale.LOG for each in ranges),
    }


def _has(values: Sequence[object], value: object) -> bool:
    """Return whether a value is listed; True is not 1."""
    return any(each == value and type(each) is type(value) for each in values)


class TrialRows:
    """What is known of each trial, by its number.

    Rows of trials that have not changed since the last call stay the same objects: to compare
    thousands of trials is much faster than to make their rows.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, dict[str, Any]]] = {}

    def of(self, trials: StudyTrials) -> dict[int, dict[str, Any]]:
        """Return the rows of all trials."""
        view = trials.view
        noted = {note.trial for note in view.notes}
        listed = [each for each in columns(Place.PAGE) if each.name not in _SHORT]
        for row in rows(view):
            number = row.trial.number
            model = view.models.get(number)
            notes = (view.tags_of(number), view.texts_on(number)) if number in noted else None
            mark = (row.trial, row.attempts, row.report, model, view.state_of(row.trial), notes)
            if (known := self._known.get(number)) is None or known[0] != mark:
                self._known[number] = (mark, _row(trials, row, listed))
        return {number: row for number, (_, row) in self._known.items()}


def _row(trials: StudyTrials, row: Row, listed: Sequence[Column]) -> dict[str, Any]:
    view, trial = trials.view, row.trial
    found = {
        "n": trial.number,
        "s": view.state_of(trial),
        "v": {name: _shown(value) for name, value in row.metrics.items()},
        "p": plain(trial.used),
        **{each.name: _cell(each.value(row)) for each in listed},
        "reason": _why(trials, row),
        "a": [_attempt(view, attempt) for attempt in row.attempts],
        "detail": trial.detail.strip()[-_DETAIL_CHARACTERS:],
        "model": view.models.get(trial.number),
        "c": curve_json(trials.curves.get(trial.number, {})),
    }
    # A page of a thousand trials is much smaller without what is not there.
    return {k: each for k, each in found.items() if each or each == 0 or k in ("v", "p")}


def _cell(value: object) -> object:
    return text.clean(value) if isinstance(value, str) else plain(value)


def _why(trials: StudyTrials, row: Row) -> str:
    """Return why a trial failed or was pruned; empty if neither."""
    trial = row.trial
    if trial.reason or trial.state is not TrialState.PRUNED:
        return text.clean(trial.reason)
    last = text.clean(row.attempts[-1].reason) if row.attempts else ""
    is_usual = last in ("", Halt.PRUNE.reason)  # else a user stopped it
    return trials.why_stopped.get(trial.number, last) if is_usual else last


def _shown(value: float) -> float | None:
    return value if is_drawable(value) else None


def curve_json(curves: Mapping[str, Curve]) -> dict[str, Any]:
    """Return the curves of a trial; the steps are left out if they count from 1."""
    return {
        metric: [
            None if steps == list(range(1, len(steps) + 1)) else steps,
            [float(f"{value:.{_DIGITS}g}") for value in values],
        ]
        for metric, (steps, values) in curves.items()
    }


def _attempt(view: StudyView, attempt: Attempt) -> dict[str, Any]:
    used = attempt.usage
    open_word = "running" if view.is_live else INTERRUPTED
    found = {
        "end": open_word
        if attempt.outcome is None
        else _ENDS.get(attempt.outcome, attempt.outcome.lower()),
        "why": text.clean(ending_text(attempt)),
        "at": text.attempt_where(attempt),
        "d": text.clean(attempt.node.partition(".")[0]),
        "w": list(dict.fromkeys(rank.worker for _, rank in attempt.ranks)),
        "b": round(attempt.placed_at, 2),
        "s": None if attempt.started_at is None else round(attempt.started_at, 2),
        "e": None if attempt.ended_at is None else round(attempt.ended_at, 2),
    }
    if used is not None:
        found["mem"] = size(used.peak_memory_bytes)
        found["cpu"] = round(used.cpu_seconds, 1)
        if used.peak_gpu_memory_bytes:
            found["gpu"] = size(used.peak_gpu_memory_bytes)
    return found


def script_json(content: object) -> str:
    """Return JSON that a script element of a page can hold, whatever texts are in it."""
    dumped = json.dumps(content, allow_nan=False, separators=(",", ":"))
    return dumped.replace("<", "\\u003c")

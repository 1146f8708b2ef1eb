"""A study as the output of a notebook's cell: its state, the best trial and the values so far."""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterable, Sequence

from ... import text
from ...core.trial import Direction, Trial, TrialState
from ..results.best import nothing_complete, values_text
from ..results.notes import note_lines
from ..results.summary import facts
from ..results.view import usual
from .trials import Shown, StudyTrials

_COMPLETE, _PRUNED, _FAILED = "#2f6fde", "#c47b17", "#d23b3b"
_BEST, _MUTED = "#1a9850", "#767b84"
"""The colours of `charts.js`."""

_WIDTH, _HEIGHT, _EDGE = 280, 110, 6
"""Size of the picture, and its margin, in pixels."""
_MOST_PARAMS = 12
_LABELS = ("state", "search", "trials", "used", "tags")


def card(trials: StudyTrials, *, now: float) -> str:
    """Return a study as HTML that needs no script, on a light or on a dark page."""
    view, best = trials.view, trials.view.best
    known = facts(view, now=now) | dict(note_lines(view))
    about = [(label, known.get(label, "")) for label in _LABELS]
    params: list[tuple[str, str]] = []
    if best is None:
        headline, where = text.NOTHING, nothing_complete(view)
    else:
        headline = values_text(view, best)
        step = text.value_step(best, view.epochs)
        where = ", ".join(filter(None, (str(view.goal), f"trial {best.number}", step)))
        params = [*text.params(text.shown_params(best)).items()]
        if len(params) > _MOST_PARAMS:
            params = [*params[:_MOST_PARAMS], ("and", f"{len(params) - _MOST_PARAMS} more")]
    dot = _BEST if view.is_run else _MUTED
    return (
        '<div style="display: flex; flex-wrap: wrap; gap: .5em 2em; align-items: flex-start">'
        '<div style="flex: 0 1 24em">'
        f'<div><span style="color: {dot}">●</span> <b>{html.escape(view.name)}</b></div>'
        f"{_table(about)}</div>"
        f'<div><div style="font-size: 1.8em; line-height: 1.2">{html.escape(headline)}</div>'
        f'<div style="opacity: .7">{html.escape(where)}</div>{_table(params)}</div>'
        f'<div style="max-width: {_WIDTH}px">{_history(trials)}</div></div>'
    )


def _table(rows: Iterable[tuple[str, str]]) -> str:
    left = "text-align: left; padding: .1em .8em .1em 0; background: none"
    cells = "".join(
        f'<tr style="background: none"><th scope="row" style="{left}; font-weight: normal; '
        f'opacity: .7">{html.escape(label)}</th><td style="{left}">{html.escape(words)}</td></tr>'
        for label, words in rows
        if words
    )
    return f'<table style="margin: .3em 0; border: none">{cells}</table>' if cells else ""


def _history(trials: StudyTrials) -> str:
    """Return the values of the trials, and the best one so far, as a picture."""
    shown = [(each, each.value) for each in trials.of(Shown.ALL) if each.value is not None]
    if len(shown) < 2:
        return ""
    low, high = _limits([value for _, value in shown], trials.direction)
    last = shown[-1][0].number

    def x(number: int) -> float:
        return _EDGE + (_WIDTH - 2 * _EDGE) * number / (last or 1)

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / ((high - low) or 1.0)
        return _HEIGHT - _EDGE - (_HEIGHT - 2 * _EDGE) * share

    points = "".join(
        f'<circle cx="{x(each.number):.1f}" cy="{y(value):.1f}" r="2.5" opacity=".6" '
        f'fill="{_color(each)}"/>'
        for each, value in shown
    )
    failed = "".join(
        f'<path d="M{x(trial.number):.1f} {_HEIGHT - 7}v6" stroke="{_FAILED}" stroke-width="1.5"/>'
        for trial in trials.view.trials
        if trial.state is TrialState.FAILED and trial.number <= last
    )
    best = _steps([(x(n), y(v)) for n, v in _best_so_far(trials)], x(last))
    words = f"{trials.metric} of each trial, and the best one so far"
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{html.escape(words)}" style="max-width: 100%">{points}{failed}'
        f'<path d="{best}" fill="none" stroke="{_BEST}" stroke-width="2"/></svg>'
        f'<div style="font-size: .85em; opacity: .7">{html.escape(words)}, from '
        f"{text.measured(low)} to {text.measured(high)}</div>"
    )


def _color(trial: Trial) -> str:
    if trial.state is not TrialState.COMPLETE:
        return _PRUNED
    return _MUTED if trial.violation else _COMPLETE


def _limits(values: Sequence[float], direction: Direction) -> tuple[float, float]:
    """Return the range of values, without those that are far worse than the others."""
    least, most = min(values), max(values)
    low, _, high = statistics.quantiles(values, n=4)
    slack = 2.0 * (high - low)
    if direction is Direction.MAX:
        return max(least, low - slack), most
    return least, min(most, high + slack)


def _best_so_far(trials: StudyTrials) -> list[tuple[int, float]]:
    found: list[tuple[int, float]] = []
    for each in usual(trials.of(Shown.COMPLETE)):
        before = found[-1][1] if found else None
        if each.value is not None and trials.direction.better(each.value, before):
            found.append((each.number, each.value))
    return found


def _steps(points: Sequence[tuple[float, float]], end: float) -> str:
    """Return a line of steps through points as the path of an SVG picture."""
    if not points:
        return ""
    first, *others = points
    steps = "".join(f"H{x:.1f}V{y:.1f}" for x, y in others)
    return f"M{first[0]:.1f} {first[1]:.1f}{steps}H{end:.1f}"

"""The top of the page: the best value or the front, progress, states, device hours, answers."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ... import text
from ..results.best import values_text
from ..results.costs import costs_of_study
from ..results.evidence import Answer
from ..results.notes import note_lines
from ..results.summary import LEAST_IDLE, retried_text
from ..results.time_left import left_of
from ..results.view import StudyView


@dataclass(frozen=True, slots=True)
class _Tile:
    """One figure of the headline, with what it means.

    Attributes:
        label: What it is.
        value: The figure, as text.
        words: What else is known, as HTML.
    """

    label: str
    value: str
    words: Sequence[str] = ()


def headline(
    view: StudyView, answers: Sequence[Answer], titles: Mapping[str, str], *, now: float
) -> str:
    """Return the study in large figures, and the answers and notes below them, as HTML.

    Args:
        view: The study.
        answers: What its results say.
        titles: The titles of the sections to which the answers lead.
        now: The time in seconds since the epoch.
    """
    tiles = [_best(view), _progress(view, now), _states(view), _costs(view, now)]
    lines = [
        f'<a href="#{each.figure}">{titles[each.figure]}</a>{_with_code(each.sentence)}'
        for each in answers
    ]
    lines += [f"<b>{label}</b>{_with_code(words)}" for label, words in note_lines(view)]
    listed = "".join(f"<li>{line}</li>" for line in lines)
    shown = "".join(
        f'<div class="tile"><span class="label">{html.escape(tile.label)}</span>'
        f"<strong>{html.escape(tile.value)}</strong>"
        f"{''.join(f'<span>{words}</span>' for words in tile.words if words)}</div>"
        for tile in tiles
    )
    return f'{shown}<ul class="answers">{listed}</ul>' if listed else shown


def _with_code(sentence: str) -> str:
    """Return a sentence, in which commands stand between backquotes, as HTML."""
    shown = re.sub(r"`([^`]*)`", r"<code>\1</code>", html.escape(sentence))
    return f"<span>{shown}</span>"


def _best(view: StudyView) -> _Tile:
    best = view.best
    several = len(view.goals.objectives) > 1
    metric = f"best {text.clean(view.goal.metric)}"
    label = "Pareto front" if several else metric
    if best is None:
        return _Tile(label, text.NOTHING, ["no trial is complete yet"])
    step = text.value_step(best, view.epochs)
    where = f'<a href="#trial-{best.number}">trial {best.number}</a>{f", {step}" if step else ""}'
    broken = html.escape("; ".join(view.goals.broken(best.metrics)))
    if several:
        first = f"{html.escape(metric)} {text.measured(best.value)}: {where}"
        return _Tile(label, text.plural(len(view.front), "trial"), [first, broken])
    return _Tile(label, values_text(view, best), [where, broken])


def _progress(view: StudyView, now: float) -> _Tile:
    elapsed = view.seconds(now)
    left = left_of(view, now)
    total = view.all_trials
    bar = ""
    if total:
        bar = f'<progress max="{total}" value="{view.ended}" aria-label="progress"></progress>'
    times = f"{text.duration(elapsed)} elapsed"
    times += "" if left is None else f", about {text.duration(left)} left"
    return _Tile("trials ended", view.short_progress, [bar, times])


def _states(view: StudyView) -> _Tile:
    first, *others = view.counts_text(of=view.all_trials).split(", ")
    # The states of a study that runs come and go: they have a place in the same line.
    return _Tile("trials by state", first, [html.escape(", ".join(others))])


def _costs(view: StudyView, now: float) -> _Tile:
    cost = costs_of_study(view, now)
    cores = text.held(cost.core_hours, "core")
    words = [f"cores idle for {cost.idle_share:.0%}" if cost.idle_share >= LEAST_IDLE else ""]
    words.append(f"retried: {html.escape(retried_text(view))}" if view.retried else "")
    words.append(f"energy {cost.energy_text}" if cost.energy_text else "")
    if not cost.gpu_hours:
        return _Tile("device hours", cores, words)
    return _Tile("device hours", text.held(cost.gpu_hours, "GPU"), [cores, *words])

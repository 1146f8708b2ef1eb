"""Studies beside each other: the best value over trials, and over device hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ... import text
from ...core.attempt import Attempt
from ...core.budget import Device, hours_of
from ...core.trial import Goal
from ..results.best import values_text
from ..results.costs import costs_of_study
from ..results.listing import trials_cell
from ..results.view import StudyView, usual
from .panel import Figure, Panel, Table
from .trials import described, is_drawable

MOST_COMPARED = 24
"""Studies whose lines can be told apart: `lineStyle` of `figures.js` has eight colours and three
dashes."""
_MOST_CHARACTERS = 80


_Series = dict[str, Sequence[object]]
"""A line of a figure, as `figures.js` draws it."""


@dataclass(frozen=True, slots=True)
class _Best:
    """A trial that was the best when it ended.

    Attributes:
        trial: Its number.
        value: Its value.
        ended: How many trials had ended then, it included.
        at: When that was, in seconds since the epoch.
    """

    trial: int
    value: float
    ended: int
    at: float


def shared_goal(studies: Iterable[StudyView]) -> Goal:
    """Return the first objective that most of the studies have."""
    return Counter(view.goal for view in studies).most_common(1)[0][0]


def searched(view: StudyView) -> frozenset[str]:
    """Return the names of a study's hyperparameters; none while they are unknown."""
    return frozenset(parameter.name for parameter in view.space or ())


def comparison(
    studies: Mapping[str, StudyView], facts: Mapping[str, Mapping[str, str]], *, now: float
) -> Panel:
    """Return the best values of studies over trials and over device hours.

    Studies of another first objective than most of them have are left out, with a sentence. Another
    one says if the others search different hyperparameters, as those of different models do.

    Args:
        studies: The studies by the names that are shown.
        facts: How each was started.
        now: The present time, in seconds since the epoch.
    """
    goal = shared_goal(studies.values())
    chosen = {name: view for name, view in studies.items() if view.goal == goal}
    hours = {name: _hours(view, now) for name, view in chosen.items()}
    device = Device.GPU if all(each[Device.GPU] for each in hours.values()) else Device.CORE
    unit = f"{'GPU' if device is Device.GPU else 'core'} hours"
    by_trials: list[_Series] = []
    by_hours: list[_Series] = []
    rows = []
    for name, view in chosen.items():
        found = _improvements(view, goal)
        spent = [_hours_until(view.attempts, device, each.at) for each in found]
        ended = [*(each.ended for each in found), view.ended]
        by_trials.append(_series(name, found, ended))
        by_hours.append(_series(name, found, [*spent, hours[name][device]]))
        best = view.best
        rows.append(
            (
                text.clean(name),
                text.NOTHING if best is None else values_text(view, best),
                text.NOTHING if best is None else str(best.number),
                trials_cell(view),
                text.amount(hours[name][device]),
                text.amount(spent[-1]) if spent else text.NOTHING,
                text.NOTHING if best is None else described(best),
            )
        )
    columns = ("study", "best", "trial", "trials", unit, "until its best", "best configuration")
    tables = [Table(columns, rows), *_differences(list(chosen), facts)]
    words = (
        f"The best {text.clean(goal.metric)} so far, over the trials that ended and over the {unit}"
        " that all attempts had used by then."
    )
    words += _left_out(studies, goal) + _differing(chosen.values())
    figures = [
        _figure(goal, "trials that ended", by_trials, is_whole=True),
        _figure(goal, unit, by_hours),
    ]
    return Panel(words, figures, tables, is_folded=False)


def _series(name: str, found: Sequence[_Best], x: Sequence[float]) -> _Series:
    """Return the line of a study, which goes on to the last of `x`, and a text for each step."""
    values = [each.value for each in found]
    shown = text.clean(name)
    return {
        "at": list(zip(x, [*values, *values[-1:]], strict=True)) if found else [],
        "texts": [f"{shown}\ntrial {e.trial}: {text.measured(e.value)}" for e in found],
    }


def _figure(goal: Goal, over: str, series: Sequence[_Series], *, is_whole: bool = False) -> Figure:
    metric = f"best {text.clean(goal.metric)} so far"
    given = {"series": series, "xLabel": over, "yLabel": metric, "isWhole": is_whole}
    label = f"{metric}, over {over}"
    return Figure("steps", {**given, "direction": str(goal.direction), "label": label})


def _improvements(view: StudyView, goal: Goal) -> list[_Best]:
    """Return the trials that were the best when they ended, without repeats: see `usual`."""
    ends = {each.id.trial: each.ended_at for each in view.attempts if each.ended_at is not None}
    over = [each for each in view.trials if each.state.is_final and each.number in ends]
    over.sort(key=lambda each: (ends[each.number], each.number))
    numbers = {trial.number for trial in usual(over)}
    found: list[_Best] = []
    for count, trial in enumerate(over, start=1):
        if trial.number not in numbers or trial.value is None or not is_drawable(trial.value):
            continue
        if goal.direction.better(trial.value, found[-1].value if found else None):
            found.append(_Best(trial.number, trial.value, count, ends[trial.number]))
    return found


def _hours(view: StudyView, now: float) -> dict[Device, float]:
    found = costs_of_study(view, now)
    return {Device.CORE: found.core_hours, Device.GPU: found.gpu_hours}


def _hours_until(attempts: Sequence[Attempt], device: Device, at: float) -> float:
    """Return the device hours that attempts had used at a time."""
    begun = [
        attempt
        for attempt in attempts
        if attempt.started_at is not None and attempt.started_at < at
    ]
    then = [
        each if each.ended_at is not None and each.ended_at <= at else replace(each, ended_at=None)
        for each in begun
    ]
    return hours_of(then, device, now=at)


def _differences(names: Sequence[str], facts: Mapping[str, Mapping[str, str]]) -> list[Table]:
    """Return a table of how the studies were started, where that differs; none if it does not."""
    settings = dict.fromkeys(each for name in names for each in facts[name])
    settings.pop("begun", None)
    rows = []
    for setting in settings:
        given = [facts[name].get(setting, text.NOTHING) for name in names]
        if len(set(given)) > 1:
            rows.append((setting, *map(text.clean, given)))
    return [Table(("started with", *map(text.clean, names)), rows)] if rows else []


def _left_out(studies: Mapping[str, StudyView], goal: Goal) -> str:
    others = [
        f"{text.clean(name)} ({view.goal})" for name, view in studies.items() if view.goal != goal
    ]
    return f" Left out, with another objective: {', '.join(others)}." if others else ""


def _differing(studies: Iterable[StudyView]) -> str:
    spaces = [names for names in map(searched, studies) if names]
    if len(set(spaces)) < 2:
        return ""
    partly = sorted(frozenset.union(*spaces) - frozenset.intersection(*spaces))
    shown = text.shorten(", ".join(partly), _MOST_CHARACTERS)
    return (
        f" Not all of these studies search {shown}: compare their values only if you know "
        "that their models and data are comparable."
    )

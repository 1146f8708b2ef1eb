"""The trials of a study as the figures need them."""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ... import text
from ...core.attempt import ReportedValue
from ...core.space.space import FixedParameter, Parameter, SearchSpace
from ...core.trial import Direction, Params, ParamValue, Trial, TrialState
from ..results.importance import MIN_TRIALS, Importance, importances
from ..results.view import StudyView
from .panel import COMPLETE, MUTED, PRUNED, Shown, mark

MODES = (Shown.COMPLETE_ONLY, Shown.WITH_PRUNED)
"""The choices of the reader."""

POINTED = [("trial", "@trial"), ("value", "@value{0.0000}"), ("", "@params")]
"""What is shown of a trial that is pointed at; see `columns_of`."""

_ENOUGH = 5
"""Complete trials with which the page begins without the stopped ones."""

_STEPS_DRAWN = 200
"""Points of a learning curve that are drawn at most."""

_MOST_DRAWN = 1e300
"""Largest value that figures show: the distance between larger ones would overflow."""


@dataclass(frozen=True)
class StudyTrials:
    """A study's trials, sorted by what figures ask for.

    Attributes:
        view: The study.
        space: Its search space.
        reports: The reports of all attempts.
    """

    view: StudyView
    space: SearchSpace
    reports: Sequence[ReportedValue]

    @property
    def direction(self) -> Direction:
        """Direction of the first objective."""
        return self.view.goal.direction

    @property
    def metric(self) -> str:
        """The first objective's metric."""
        return text.clean(self.view.goal.metric)

    @cached_property
    def complete(self) -> list[Trial]:
        """The complete trials with a value that figures can show, by number."""
        return [t for t in self._valued if t.state is TrialState.COMPLETE]

    @cached_property
    def pruned(self) -> list[Trial]:
        """The pruned and paused trials with such a value, that of their last step."""
        return [t for t in self._valued if t.state is not TrialState.COMPLETE]

    @cached_property
    def _valued(self) -> list[Trial]:
        trials = sorted(self.view.trials, key=lambda trial: trial.number)
        return [t for t in trials if t.value is not None and is_drawable(t.value)]

    @property
    def infeasible(self) -> list[Trial]:
        """The complete trials that break a constraint."""
        return [trial for trial in self.complete if trial.violation]

    @property
    def crosses_text(self) -> str:
        """What a cross means, as a sentence after others; empty if there is none."""
        return " Crosses are trials that break a constraint." if self.infeasible else ""

    @property
    def marks_text(self) -> str:
        """What `draw_points` and `limit_values` do with some trials, in sentences after others."""
        words = self.crosses_text
        if (limits := self.usual_limits) is None:
            return words
        low, high = limits
        left_out = sum(not low <= value_of(t) <= high for t in self.of(Shown.WITH_PRUNED))
        return f"{words} {_left_out_text(left_out)}" if left_out else words

    @property
    def mark(self) -> str:
        """A text that changes whenever a trial's value or state does."""
        rows = [(t.number, t.state, t.value, t.step) for t in self.view.trials]
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    @property
    def first_shown(self) -> Shown:
        """The choice that the page begins with: few complete trials alone show little."""
        is_enough = len(self.complete) >= _ENOUGH or not self.pruned
        return Shown.COMPLETE_ONLY if is_enough else Shown.WITH_PRUNED

    def of(self, shown: Shown) -> list[Trial]:
        """Return the trials that a choice of the reader includes."""
        return self.complete if shown is Shown.COMPLETE_ONLY else self._valued

    @cached_property
    def parameters(self) -> dict[str, Parameter]:
        """The searched hyperparameters, by name; the first declaration of each."""
        found: dict[str, Parameter] = {}
        for parameter in self.space:
            values = parameter.values
            is_single = values is not None and len(values) == 1
            if not isinstance(parameter, FixedParameter) and not is_single:
                found.setdefault(parameter.name, parameter)
        return found

    @cached_property
    def importances(self) -> dict[Shown, list[Importance]]:
        """The importance of the hyperparameters for the first objective, by choice."""
        return {
            shown: importances(self.space, self._results(shown), self.direction) for shown in MODES
        }

    @cached_property
    def _ranked(self) -> list[str]:
        """The hyperparameters by importance; empty if it is not known. Intervals take longer.

        Of the trials that the page begins with, as the figure of the importance.
        """
        for shown in (self.first_shown, Shown.WITH_PRUNED):
            results = self._results(shown)
            if ranked := importances(self.space, results, self.direction, resamples=0):
                return [each.name for each in ranked]
        return []

    def _results(self, shown: Shown) -> list[tuple[Params, float]]:
        return [(t.params, value_of(t)) for t in self.of(shown) if t.confirms is None]

    @property
    def order_text(self) -> str:
        """The order of `leading_parameters`, in words."""
        if self._ranked:
            return "the most important first"
        needs = f"{MIN_TRIALS} trials with different values"
        return f"in the order of their declaration, because importance needs {needs}"

    @cached_property
    def leading_parameters(self) -> list[Parameter]:
        """The searched hyperparameters, in the order that `order_text` describes."""
        names = dict.fromkeys([*self._ranked, *self.parameters])
        return [self.parameters[name] for name in names if name in self.parameters]

    @cached_property
    def curves(self) -> dict[int, tuple[list[int], list[float]]]:
        """The steps and values of the first objective that each trial reported, by number."""
        found: dict[int, dict[int, float]] = {}
        for row in self.reports:
            if row.metric == self.view.goal.metric and is_drawable(row.value):
                found.setdefault(row.trial, {})[row.step] = row.value
        curves = {}
        # The same steps of all trials that report alike: a median is taken over them.
        stride = math.ceil(max(map(len, found.values()), default=1) / _STEPS_DRAWN)
        for number, values in found.items():
            steps = sorted(values)
            kept = steps[::stride]
            if kept[-1] != steps[-1]:
                kept.append(steps[-1])
            curves[number] = (kept, [values[step] for step in kept])
        return curves

    @cached_property
    def usual_limits(self) -> tuple[float, float] | None:
        """The limits of an axis of values, see `usual_range`."""
        return self.usual_range([value_of(trial) for trial in self.of(Shown.WITH_PRUNED)])

    def usual_range(self, values: Sequence[float]) -> tuple[float, float] | None:
        """Return the range that leaves out values far on the worse side; None to show all."""
        if len(values) < 8:
            return None
        low, _, high = statistics.quantiles(values, n=4)
        slack = 2.0 * (high - low)
        least, most = min(values), max(values)
        margin = 0.05 * ((min(most, high + slack) - max(least, low - slack)) or 1.0)
        if self.direction is Direction.MAX and least < low - slack:
            return low - slack, most + margin
        if self.direction is Direction.MIN and most > high + slack:
            return least - margin, high + slack
        return None


def is_drawable(value: float) -> bool:
    """Return whether figures can show a value, which may be infinite or NaN."""
    return abs(value) <= _MOST_DRAWN


def value_of(trial: Trial) -> float:
    """Return the trial's first objective; NaN if it has none."""
    return math.nan if trial.value is None else trial.value


def value_in(parameter: Parameter, trial: Trial) -> ParamValue:
    """Return the trial's value of a declaration; None if it has none, or that of another one."""
    value = trial.params.get(parameter.name)
    is_known = parameter.name in trial.params and not parameter.explain(value)
    return value if is_known else None


def described(trial: Trial) -> str:
    """Return the trial's configuration in one line."""
    return " ".join(text.assignments(trial.params))


def columns_of(trials: Sequence[Trial]) -> Mapping[str, list[object]]:
    """Return what the marks of trials show when they are pointed at."""
    return {
        "trial": [trial.number for trial in trials],
        "value": [value_of(trial) for trial in trials],
        "params": [text.shorten(described(trial), 300) for trial in trials],
    }


def draw_points(
    plot: Any, trials: StudyTrials, x_of: Callable[[Trial], object], *, x: Any = "x", size: int = 7
) -> None:
    """Draw the values of the trials as points; none where `x_of` returns None."""
    feasible = [trial for trial in trials.complete if not trial.violation]
    for group, color, marker, shown in (
        (feasible, COMPLETE, "circle", Shown.ALWAYS),
        (trials.infeasible, MUTED, "x", Shown.ALWAYS),
        (trials.pruned, PRUNED, "triangle", Shown.WITH_PRUNED),
    ):
        drawn = [trial for trial in group if x_of(trial) is not None]
        if drawn:
            source = {**columns_of(drawn), "x": [x_of(trial) for trial in drawn]}
            points = plot.scatter(
                x, "value", source=source, marker=marker, size=size, color=color, alpha=0.6
            )
            if marker == "x":  # of thin lines
                points.glyph.update(line_width=2, line_alpha=0.9)
            mark(points, shown)


def limit_values(plot: Any, trials: StudyTrials) -> None:
    """Leave out values far on the worse side, which would flatten all others."""
    from bokeh.models import Range1d

    if trials.usual_limits is not None:
        plot.y_range = Range1d(*trials.usual_limits)


def _left_out_text(count: int) -> str:
    which = "One trial is" if count == 1 else f"{count} trials are"
    return f"{which} far worse, and outside the axis."

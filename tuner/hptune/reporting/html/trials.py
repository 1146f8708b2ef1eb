"""The trials of a study as the report needs them."""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ... import text
from ...core.attempt import ReportedValue
from ...core.space.space import FixedParameter, Parameter, SearchSpace
from ...core.trial import Direction, Trial, TrialState
from ..results.importance import Importance, estimated, importances, results_of
from ..results.rungs import why_stopped
from ..results.view import StudyView

_STEPS_DRAWN = 200
"""Points of a learning curve that are drawn at most."""

_POINTS_DRAWN = 120_000
"""Points of all curves that a page holds at most, so that it stays small."""

_LEAST_STEPS_DRAWN = 12

_MOST_DRAWN = 1e300
"""Largest value that figures show: the distance between larger ones would overflow."""

Curve = tuple[list[int], list[float]]
"""Steps, and the value at each."""


class Shown(enum.StrEnum):
    """Which trials with a value are shown."""

    ALL = "all"
    """Also those that were stopped early, with the value of their last step."""
    COMPLETE = "complete"


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

    def of(self, shown: Shown) -> list[Trial]:
        """Return the trials with a value that figures can show, by number."""
        trials = sorted(self.view.trials, key=lambda trial: trial.number)
        known = [t for t in trials if t.value is not None and is_drawable(t.value)]
        if shown is Shown.ALL:
            return known
        return [t for t in known if t.state is TrialState.COMPLETE]

    @property
    def mark(self) -> str:
        """A text that changes whenever a trial's value or state does."""
        rows = [(t.number, t.state, t.value, t.step) for t in self.view.trials]
        return hashlib.sha256(repr(rows).encode()).hexdigest()[:16]

    @cached_property
    def parameters(self) -> dict[str, list[Parameter]]:
        """The declarations of the searched hyperparameters, by name."""
        found: dict[str, list[Parameter]] = {}
        for parameter in self.space:
            values = parameter.values
            is_single = values is not None and len(values) == 1
            if not isinstance(parameter, FixedParameter) and not is_single:
                found.setdefault(parameter.name, []).append(parameter)
        return found

    @cached_property
    def importances(self) -> Mapping[Shown, list[Importance]]:
        """The importance of the hyperparameters for the first objective, without empty ones."""
        found = self._ranked(importances)
        return {shown: ranked for shown, ranked in found.items() if ranked}

    @cached_property
    def order(self) -> dict[str, list[str]]:
        """The hyperparameters by importance; as declared where that is not known."""
        return {
            str(shown): list(dict.fromkeys([*(e.name for e in ranked), *self.parameters]))
            for shown, ranked in self.estimated.items()
        }

    @property
    def has_order(self) -> bool:
        """Whether the importance is known."""
        return any(self.estimated.values())

    @cached_property
    def estimated(self) -> Mapping[Shown, list[Importance]]:
        """The importance by a part of the trials: fast enough for each reading."""
        return self._ranked(estimated)

    def _ranked(self, rank: Callable[..., list[Importance]]) -> dict[Shown, list[Importance]]:
        """Return the importance by all trials and by the complete ones; once if they are all."""
        every, complete = self.of(Shown.ALL), self.of(Shown.COMPLETE)
        by_all = by_complete = rank(self.space, results_of(every), self.direction)
        if len(complete) < len(every):
            by_complete = rank(self.space, results_of(complete), self.direction)
        return {Shown.ALL: by_all, Shown.COMPLETE: by_complete}

    @cached_property
    def why_stopped(self) -> Mapping[int, str]:
        """How trials that were stopped early compared with others, by number."""
        return why_stopped(self.view, self.reports)

    @cached_property
    def curves(self) -> dict[int, dict[str, Curve]]:
        """What each trial reported of each metric, by its number; long curves are thinned."""
        return curves_of(self.reports)


def curves_of(reports: Sequence[ReportedValue]) -> dict[int, dict[str, Curve]]:
    """Return the curves of some reports, by the trial's number and the metric.

    A step that several attempts reported has the value of the last one.
    """
    found: dict[int, dict[str, dict[int, float]]] = {}
    for row in reports:
        if is_drawable(row.value):
            metrics = found.setdefault(row.trial, {})
            metrics.setdefault(row.metric, {})[row.step] = row.value
    lengths = [len(values) for metrics in found.values() for values in metrics.values()]
    most = max(_LEAST_STEPS_DRAWN, min(_STEPS_DRAWN, _POINTS_DRAWN // max(1, len(lengths))))
    # The same steps of all trials that report alike: a median is taken over them.
    stride = math.ceil(max(lengths, default=1) / most)
    return {
        number: {metric: _thinned(values, stride) for metric, values in metrics.items()}
        for number, metrics in found.items()
    }


def _thinned(values: Mapping[int, float], stride: int) -> Curve:
    steps = sorted(values)
    kept = steps[::stride]
    if kept[-1] != steps[-1]:
        kept.append(steps[-1])
    return kept, [values[step] for step in kept]


def is_drawable(value: float) -> bool:
    """Return whether figures can show a value, which may be infinite or NaN."""
    return abs(value) <= _MOST_DRAWN


def described(trial: Trial) -> str:
    """Return the trial's configuration in one line."""
    return " ".join(text.assignments(text.shown_params(trial)))

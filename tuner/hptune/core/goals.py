"""The goals of a study: objectives and constraints, and which result is better by them."""

from __future__ import annotations

import enum
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .spelling import nearest_name
from .trial import Goal, Score, Trial

ENERGY = "energy_kwh"
"""The metric that a trial's workers measure, and not its training: the energy of all its attempts,
in kilowatt-hours."""

MEASURED = ("params", "seconds_per_epoch", "model_bytes", ENERGY)
"""Metrics that hptune measures if an objective or a constraint names them: the energy of any trial,
and of a Keras trial trainable parameters, the mean time of an epoch (without the first, which
compiles, if there are more), and the size of all weights."""

NO_ENERGY = (
    f"{ENERGY} is unknown, as no energy counter can be read where trials run: neither energy_uj in "
    "/sys/class/powercap, which often only root may read, nor that of an NVIDIA GPU "
    "(hptune help resources)"
)

JOULES_PER_KWH = 3.6e6

RETURNED_NUMBER = "value"
"""Name of the number that an `objective` returns, if the user names no metric."""

_TIE = 2.0**-52


def metric_meant(name: str, known: Iterable[str]) -> str:
    """Return the known metric that a name is likely to mean; empty if there is none.

    >>> [metric_meant(name, ["loss", "accuracy"]) for name in ("acuracy", "acc", "f1")]
    ['accuracy', 'accuracy', '']
    """
    names = sorted(known)
    longer = (each for each in names if each.startswith(name))
    return nearest_name(name, names) or next(longer, "")


def unknown_metric(name: str, known: Iterable[str]) -> str:
    """Return the message that trials lack a metric: those they have, and which may be meant.

    >>> unknown_metric("acc", ["loss", "accuracy"])
    "the study needs the metric 'acc' (is it 'accuracy'?); the trial reports: accuracy, loss"
    """
    if name == ENERGY:
        return NO_ENERGY
    names = sorted(known)
    meant = metric_meant(name, names)
    hint = f" (is it {meant!r}?)" if meant else ""
    begin = f"the study needs the metric {name!r}{hint}"
    if name == RETURNED_NUMBER:  # which is the objective where none is named
        begin = "no metric to optimise is named, and objective() returns no number"
    return f"{begin}; the trial reports: {', '.join(names) or 'none'}"


class Comparison(enum.StrEnum):
    """Comparison operator of a constraint."""

    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="

    @property
    def holds(self) -> Callable[[float, float], bool]:
        """The comparison of a value with a bound."""
        return _HOLDS[self]


_HOLDS: Mapping[Comparison, Callable[[float, float], bool]] = {
    Comparison.LESS: operator.lt,
    Comparison.AT_MOST: operator.le,
    Comparison.MORE: operator.gt,
    Comparison.AT_LEAST: operator.ge,
}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A bound on a metric."""

    metric: str
    comparison: Comparison
    bound: float

    def __str__(self) -> str:
        return f"{self.metric} {self.comparison} {self.bound:.12g}"

    def violation(self, value: float) -> float:
        """Return by how much a value breaks the constraint, relative to the bound; else 0.

        NaN breaks it more than any number does.

        >>> Constraint("params", Comparison.AT_MOST, 200.0).violation(250.0)
        0.25
        """
        if self.comparison.holds(value, self.bound):
            return 0.0
        if math.isnan(value):
            return math.inf
        # A value equal to the bound breaks a strict constraint by the smallest amount.
        return max(abs(value - self.bound) / (abs(self.bound) or 1.0), _TIE)


@dataclass(frozen=True, slots=True)
class Goals:
    """The objectives of a study and its constraints.

    A result that keeps the constraints is better than one that does not; of two that break them,
    the one that does so by less (Deb 2000, "An efficient constraint handling method"). Otherwise
    a result is better if it is as good in every goal, and better in one (Pareto dominance).

    Attributes:
        objectives: One or more, of different metrics. The first decides where only one can: the
            best epoch, and the order of the best models.
        constraints: Bounds that a result should keep.
    """

    objectives: tuple[Goal, ...]
    constraints: tuple[Constraint, ...] = ()

    def __str__(self) -> str:
        goals = ", ".join(map(str, self.objectives))
        kept = " and ".join(map(str, self.constraints))
        return f"{goals}, {kept}" if kept else goals

    @property
    def goal(self) -> Goal:
        """The first objective."""
        return self.objectives[0]

    @property
    def metrics(self) -> tuple[str, ...]:
        """All metrics that a result needs, those of the objectives first."""
        goals = [goal.metric for goal in self.objectives]
        return tuple(
            dict.fromkeys([*goals, *(constraint.metric for constraint in self.constraints)])
        )

    @property
    def of_training(self) -> tuple[str, ...]:
        """Those of the metrics that an attempt's own process gives."""
        return tuple(metric for metric in self.metrics if metric != ENERGY)

    @property
    def trained(self) -> Goal | None:
        """The first objective that the training itself measures; None if there is none."""
        return next((goal for goal in self.objectives if goal.metric not in MEASURED), None)

    @property
    def of_epochs(self) -> Goals:
        """The goals that decide which epoch is best: those that the training measures."""
        return Goals(
            () if self.trained is None else (self.trained,),
            tuple(
                constraint for constraint in self.constraints if constraint.metric not in MEASURED
            ),
        )

    def is_better_epoch(self, values: Sequence[float], than: Sequence[float]) -> bool:
        """Return whether an epoch is better than an earlier one of the same trial.

        The first objective that the training measures decides. If there is none, the later one is.

        Args:
            values: The objectives' values.
            than: Those of the earlier epoch.
        """
        if self.trained is None:
            return True
        which = self.objectives.index(self.trained)
        return self.trained.direction.better(values[which], than[which])

    def score(self, metrics: Mapping[str, float]) -> Score:
        """Return the score of a result that has all `metrics`."""
        return Score(
            tuple(metrics[goal.metric] for goal in self.objectives),
            sum(
                constraint.violation(metrics[constraint.metric]) for constraint in self.constraints
            ),
        )

    def judged(self, trial: Trial) -> Trial:
        """Return the trial with the extra values and the violation that follow from its metrics."""
        if not set(self.metrics) <= set(trial.metrics):
            return trial
        score = self.score(trial.metrics)
        return replace(trial, extra_values=score.values[1:], violation=score.violation)

    def weakly_dominates(self, one: Score, other: Score) -> bool:
        """Return whether one result is at least as good as the other by every objective."""
        if one.violation != other.violation:
            return one.violation < other.violation
        return not any(
            goal.direction.better(that, this)
            for goal, this, that in zip(self.objectives, one.values, other.values, strict=True)
        )

    def is_nondominated(self, score: Score, front: Iterable[Score]) -> bool:
        """Return whether no result of the front weakly dominates this one."""
        return not any(self.weakly_dominates(each, score) for each in front)

    def broken(self, metrics: Mapping[str, float]) -> list[str]:
        """Return a message for each constraint that a result breaks."""
        return [
            f"{constraint.metric} is {_shown(metrics[constraint.metric])}, allowed is "
            f"{constraint.comparison} {constraint.bound:.12g}"
            for constraint in self.constraints
            if constraint.metric in metrics and constraint.violation(metrics[constraint.metric])
        ]

    def first_goal_key(self, score: Score) -> float:
        """Return a key that sorts results by the first objective, the best first."""
        return self.goal.direction.sign * score.values[0]


def _shown(value: float) -> str:
    """Return a value in short; a whole number, such as one of parameters, has all its digits."""
    return f"{value:.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:.6g}"


def objective_texts(given: Any) -> Any:
    """Return an objective, or a list of them, with texts for objects of KerasTuner's.

    >>> from types import SimpleNamespace
    >>> objective_texts(["size", SimpleNamespace(name="val_auc", direction="max")])
    ['size', 'val_auc:max']
    """
    several = getattr(given, "objectives", given)  # of its class MultiObjective
    if isinstance(several, list | tuple):
        return [objective_texts(each) for each in several]
    if hasattr(given, "name") and hasattr(given, "direction"):
        return f"{given.name}:{given.direction}"
    return given

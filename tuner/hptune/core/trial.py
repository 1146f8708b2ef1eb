"""Suggestions, trials, and the objectives that their results are compared by.

A *trial* is one configuration; attempt.py has its executions.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from .resources import Resources

ParamValue = bool | int | float | str | None
Params = Mapping[str, ParamValue]


class TrialState(enum.StrEnum):
    """The state of a trial; the last three are final.

    It equals its name in any case, as commands and tables write it.

    >>> TrialState.PRUNED == "pruned", TrialState.PRUNED == "PRUNED", TrialState.PRUNED != "pruned"
    (True, True, False)
    """

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, str) and str.__eq__(self, other.upper()))

    def __ne__(self, other: object) -> bool:  # that of `str` would tell cases apart
        return not self == other

    __hash__ = str.__hash__

    @property
    def is_final(self) -> bool:
        """Whether the trial will never run again."""
        # Asked for each event, and `in` would compare by `__eq__`.
        return self is TrialState.COMPLETE or self is TrialState.PRUNED or self is TrialState.FAILED


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One configuration that a sampler proposes.

    Attributes:
        params: Value of every active hyperparameter.
        origin: Who proposed it, such as "random", "grid" or "tpe".
        resources: What this configuration needs, by the user's code; None for the study's default.
    """

    params: Params
    origin: str
    resources: Resources | None = None


class Direction(enum.StrEnum):
    """Direction in which a metric is better."""

    MIN = "min"
    MAX = "max"

    @property
    def worst(self) -> float:
        """The value that every number is better than.

        >>> Direction.MAX.worst
        -inf
        """
        return -math.inf if self is Direction.MAX else math.inf

    @property
    def sign(self) -> float:
        """The factor that makes a loss of a value: 1 if less is better, -1 if more is.

        >>> Direction.MIN.sign * 0.9, Direction.MAX.sign * 0.9
        (0.9, -0.9)
        """
        return 1.0 if self is Direction.MIN else -1.0

    def better(self, value: float, than: float | None) -> bool:
        """Return whether `value` beats `than`; NaN beats nothing, any number beats None or NaN.

        >>> Direction.MAX.better(0.9, 0.8), Direction.MIN.better(0.9, 0.8)
        (True, False)
        >>> Direction.MAX.better(float("nan"), None), Direction.MIN.better(1.0, None)
        (False, True)
        """
        if math.isnan(value):
            return False
        if than is None or math.isnan(than):
            return True
        return value > than if self is Direction.MAX else value < than


@dataclass(frozen=True, slots=True)
class Goal:
    """An objective of a study: a metric and a direction."""

    metric: str
    direction: Direction

    def __str__(self) -> str:
        return f"{self.metric} ({self.direction})"


@dataclass(frozen=True, slots=True)
class Score:
    """A result, as the study's goals compare it.

    Attributes:
        values: Values of the objectives, in their order.
        violation: By how much the result breaks the constraints; 0 if it keeps them all.
    """

    values: tuple[float, ...]
    violation: float = 0.0


ADDED = "start point (added)"
"""The origin of a trial that the user added when the study was resumed."""

CONFIRMS = "confirm of "
"""The start of the origin of a trial that trains another trial's configuration again."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as others see it: a frozen snapshot, made by the engine.

    Attributes:
        number: From 0, in the order of suggestion.
        params: The configuration.
        origin: Who proposed it.
        state: The state.
        value: The first objective's value if the trial is COMPLETE; that of its last report if it
            is PRUNED or PAUSED and has reported, or of its best one if it was pruned by the user's
            rule for a failure; otherwise None.
        step: The step at which `value` was measured, if steps were reported.
        metrics: All metrics at that step.
        rungs: The rungs of the study's pruner that the trial has reached, each with the objectives'
            values in the best epoch by then that breaks no constraint. Empty without a pruner.
        extra_values: The values of the objectives after the first, in their order.
        violation: By how much it breaks the constraints; 0 if it keeps them all.
        epochs: The full training in epochs when its last attempt began, which a later run may
            change; None if unknown.
        unused: The hyperparameters that the user's code never asked for.
        attempts: Number of attempts so far.
        reason: Why it failed, or who stopped it before it ran (again), in one line.
        detail: The failure's traceback.
    """

    number: int
    params: Params
    origin: str
    state: TrialState
    value: float | None = None
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    rungs: Mapping[int, tuple[float, ...]] = field(default_factory=dict)
    extra_values: tuple[float, ...] = ()
    violation: float = 0.0
    epochs: int | None = None
    unused: tuple[str, ...] = ()
    attempts: int = 0
    reason: str = ""
    detail: str = ""

    def __repr__(self) -> str:
        """Return the parts that tell a reader most.

        >>> Trial(7, {"x": 1}, "random", TrialState.COMPLETE, value=0.5)
        Trial(7, COMPLETE, value=0.5, params={'x': 1})
        """
        names = ("value", "extra_values", "step", "params", "reason")
        known = {each: getattr(self, each) for each in names}
        shown = [
            f"{name}={value!r}" for name, value in known.items() if value not in (None, (), "")
        ]
        return f"Trial({', '.join((str(self.number), str(self.state), *shown))})"

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all objectives; empty if there is no result."""
        return () if self.value is None else (self.value, *self.extra_values)

    @property
    def used(self) -> Params:
        """The configuration without what the user's code never asked for."""
        if not self.unused:
            return self.params
        return {name: value for name, value in self.params.items() if name not in self.unused}

    @property
    def score(self) -> Score:
        """The result, as the study's goals compare it."""
        return Score(self.values, self.violation)

    @property
    def is_begun(self) -> bool:
        """Whether it has run and is to continue: it is interrupted if nothing runs it."""
        return bool(self.attempts) and self.state in (TrialState.WAITING, TrialState.RUNNING)

    @property
    def has_result(self) -> bool:
        """Whether it is complete, or was and trains on."""
        return self.value is not None and (self.state is TrialState.COMPLETE or self.is_begun)

    @property
    def confirms(self) -> int | None:
        """The trial whose configuration this one trains again with another seed; else None.

        >>> Trial(7, {"x": 1}, "confirm of 3", TrialState.WAITING).confirms
        3
        """
        named = self.origin.removeprefix(CONFIRMS)
        return int(named) if named != self.origin and named.isdecimal() else None

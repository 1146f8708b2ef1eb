"""Parameters that are numbers between two bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from ...trial import ParamValue
from .checks import check_range, finite_float, is_number, number_in, set_range, whole_number
from .conditions import Condition
from .priors import Prior, apply_prior, undo_prior
from .scales import (
    LinearSteps,
    Scale,
    bucket,
    bucket_centre,
    invert,
    multiplied_integers,
    multiplied_steps,
    project,
)


@dataclass(frozen=True, slots=True)
class FloatParameter:
    """A floating point number between two bounds, both included.

    Attributes:
        name: The hyperparameter's name.
        low: The least value.
        high: The greatest value.
        step: The distance between two values (linear scale), or the factor between them (log
            scales); None means any value in the range.
        scale: The scale on which values are uniform.
        default: Value before the search; by default `low`. It may lie between two steps.
        conditions: Conditions that all must hold for the parameter to be active.
        prior: Prior on the values; None for a uniform one.
        has_default: Whether the user gave the default.

    Raises:
        SpaceError: Bounds, step, scale and default do not fit together.
    """

    name: str
    low: float
    high: float
    _: KW_ONLY
    step: float | None = None
    scale: Scale = Scale.LINEAR
    default: float | None = None
    conditions: tuple[Condition, ...] = ()
    prior: Prior | None = None
    has_default: bool | None = field(default=None, repr=False, compare=False)
    values: Sequence[float] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        low = finite_float(self.name, "the lower bound", self.low)
        high = finite_float(self.name, "the upper bound", self.high)
        step = None if self.step is None else finite_float(self.name, "the step", self.step)
        check_range(self.name, low, high, step=step, scale=self.scale)
        default = low
        if self.default is not None:
            default = finite_float(self.name, "the default", self.default)
        values: Sequence[float] | None = None
        if low == high:
            values = (low,)
        elif step is not None and self.scale is Scale.LINEAR:
            values = LinearSteps(low, high, step)
        elif step is not None:
            values = multiplied_steps(low, high, step, self.scale)
        set_range(self, low=low, high=high, step=step, default=default, values=values)

    @property
    def bounds(self) -> str:
        """Kind and range in words."""
        return f"Float {_range_text(self.low, self.high, self.step, self.scale)}"

    def grid_values(self, resolution: int) -> Sequence[float]:
        """Return every step, or `resolution` values equidistant on the scale, with both ends."""
        if self.values is not None:
            return self.values
        return tuple(dict.fromkeys(self.from_unit(k / (resolution - 1)) for k in range(resolution)))

    def from_unit(self, u: float) -> float:
        """Return the value at `u` in [0, 1]."""
        u = apply_prior(u, self.prior)
        if self.values is not None:
            return self.values[bucket(u, len(self.values))]
        return project(u, self.low, self.high, self.scale)

    def to_unit(self, value: ParamValue) -> float:
        """Return the point of a number in [0, 1]; the nearest one if the number is not allowed."""
        number = finite_float(self.name, "a value", value)
        if self.values is not None:
            centre = bucket_centre(_nearest(self.values, number), len(self.values))
            return undo_prior(centre, self.prior)
        return undo_prior(invert(number, self.low, self.high, self.scale), self.prior)

    def canonical(self, value: ParamValue) -> ParamValue:
        """Return the number as a float, and as the exact step if it differs by rounding only."""
        if not is_number(value):
            return value
        number = finite_float(self.name, "a value", value) + 0.0  # makes 0.0 of -0.0
        if self.values is None:
            return number
        step = self.values[_nearest(self.values, number)]
        slack = self.step * 1e-9 if self.step and self.scale is Scale.LINEAR else 0.0
        return step if math.isclose(step, number, rel_tol=1e-9, abs_tol=slack) else number

    def read(self, text: str) -> ParamValue:
        """Return the number that the text stands for; the text itself if it stands for none."""
        return number_in(text)

    def explain(self, value: ParamValue) -> str:
        """Return why the value is not allowed; empty if it is."""
        if not is_number(value):
            return f"{self.name} is {value!r}; it must be a finite number"
        number = self.canonical(value)
        if not isinstance(number, float) or not self.low <= number <= self.high:
            return f"{self.name} is {value!r}; allowed is {self.low}..{self.high}"
        if self.values is None or number == self.default:
            return ""
        step = self.values[_nearest(self.values, number)]
        return "" if step == number else _off_steps(self.name, value, step)


@dataclass(frozen=True, slots=True)
class IntParameter:
    """A whole number between two bounds, both included.

    Attributes:
        name: The hyperparameter's name.
        low: The least value.
        high: The greatest value.
        step: The distance between two values (linear scale; 1 if not given), or the factor
            between them (log scales; if not given, every whole number is possible).
        scale: The scale on which values are uniform.
        default: Value before the search; by default `low`. It may lie between two steps.
        conditions: Conditions that all must hold for the parameter to be active.
        prior: Prior on the values; None for a uniform one.
        has_default: Whether the user gave the default.

    Raises:
        SpaceError: Bounds, step, scale and default do not fit together.
    """

    name: str
    low: int
    high: int
    _: KW_ONLY
    step: int | None = None
    scale: Scale = Scale.LINEAR
    default: int | None = None
    conditions: tuple[Condition, ...] = ()
    prior: Prior | None = None
    has_default: bool | None = field(default=None, repr=False, compare=False)
    values: Sequence[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        low = whole_number(self.name, "the lower bound", self.low)
        high = whole_number(self.name, "the upper bound", self.high)
        step = None if self.step is None else whole_number(self.name, "the step", self.step)
        if step is None and self.scale is Scale.LINEAR:
            step = 1
        check_range(self.name, low, high, step=step, scale=self.scale)
        default = low
        if self.default is not None:
            default = whole_number(self.name, "the default", self.default)
        values: Sequence[int]
        if step is None or self.scale is Scale.LINEAR:
            values = range(low, high + 1, step or 1)
        else:
            values = multiplied_integers(low, high, step, self.scale)
        set_range(self, low=low, high=high, step=step, default=default, values=values)

    @property
    def bounds(self) -> str:
        """Kind and range in words."""
        step = None if self.scale is Scale.LINEAR and self.step == 1 else self.step
        return f"Int {_range_text(self.low, self.high, step, self.scale)}"

    def grid_values(self, resolution: int) -> Sequence[int]:
        """Return every step; without steps, `resolution` values equidistant on the scale."""
        if self.step is not None or len(self.values) <= resolution:
            return self.values
        points = (k / (resolution - 1) for k in range(resolution))
        return tuple(
            dict.fromkeys(round(project(u, self.low, self.high, self.scale)) for u in points)
        )

    def from_unit(self, u: float) -> int:
        """Return the value at `u` in [0, 1]."""
        u = apply_prior(u, self.prior)
        if self.step is not None:
            return self.values[bucket(u, len(self.values))]
        value = int(project(u, self.low, self.high + 1, self.scale))
        return min(max(value, self.low), self.high)

    def to_unit(self, value: ParamValue) -> float:
        """Return the point of a number in [0, 1]; the nearest one if the number is not allowed.

        `from_unit` returns the same number, exactly for bounds within plus or minus 2**40.
        """
        number = min(max(whole_number(self.name, "a value", value), self.low), self.high)
        if self.step is not None:
            centre = bucket_centre(_nearest(self.values, number), len(self.values))
        else:
            centre = invert(number + 0.5, self.low, self.high + 1, self.scale)
        return undo_prior(centre, self.prior)

    def canonical(self, value: ParamValue) -> ParamValue:
        """Return a whole number as an int, as of a data frame; any other value itself."""
        return int(value) if isinstance(value, float) and value.is_integer() else value

    def read(self, text: str) -> ParamValue:
        """Return the number that the text stands for, an int if it is whole; else the text."""
        return self.canonical(number_in(text))

    def explain(self, value: ParamValue) -> str:
        """Return why the value is not allowed; empty if it is."""
        if isinstance(value, bool) or not isinstance(value, int):
            return f"{self.name} is {value!r}; it must be a whole number"
        if not self.low <= value <= self.high:
            return f"{self.name} is {value!r}; allowed is {self.low}..{self.high}"
        if value in self.values or value == self.default:
            return ""
        return _off_steps(self.name, value, self.values[_nearest(self.values, value)])


def _nearest(values: Sequence[float], number: float) -> int:
    if isinstance(values, LinearSteps):
        return values.nearest(number)
    if isinstance(values, range):
        return min(max(round((number - values.start) / values.step), 0), len(values) - 1)
    return min(range(len(values)), key=lambda index: abs(values[index] - number))


def _off_steps(name: str, value: ParamValue, nearest: float) -> str:
    return f"{name} is {value!r}, which lies between two steps; the nearest step is {nearest}"


def _range_text(low: float, high: float, step: float | None, scale: Scale) -> str:
    words = [f"{low}..{high}"]
    if step is not None:
        words.append(f"step {step}" if scale is Scale.LINEAR else f"factor {step}")
    if scale is not Scale.LINEAR:
        words.append("log scale" if scale is Scale.LOG else "reversed log scale")
    return ", ".join(words)

"""Parameters without a range: choices, booleans, and fixed values."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field

from ....errors import SpaceError
from ...trial import ParamValue
from .checks import plain, position, scalar, set_default, set_fields, value_in
from .conditions import Condition
from .priors import Prior, apply_prior, undo_prior
from .scales import bucket, bucket_centre


class _Listed(abc.ABC):
    """What all parameters with a list of values share: each has an equal part of [0, 1]."""

    __slots__ = ()
    values: tuple[ParamValue, ...]
    prior: Prior | None

    @abc.abstractmethod
    def explain(self, value: ParamValue) -> str:
        """Return why the value is not allowed; empty if it is."""

    def grid_values(self, resolution: int) -> Sequence[ParamValue]:  # noqa: ARG002 - it is a finite set
        """Return all values."""
        return self.values

    def from_unit(self, u: float) -> ParamValue:
        """Return the value at `u` in [0, 1]."""
        return self.values[bucket(apply_prior(u, self.prior), len(self.values))]

    def to_unit(self, value: ParamValue) -> float:
        """Return the centre of this value's part of [0, 1].

        Raises:
            SpaceError: The value is not allowed.
        """
        found = position(value, self.values)
        if found is None:
            raise SpaceError(self.explain(value))
        return undo_prior(bucket_centre(found, len(self.values)), self.prior)

    def canonical(self, value: ParamValue) -> ParamValue:
        """Return the equal value of the list, as 1 of True or 1.0; else the value itself."""
        return self.values[self.values.index(value)] if value in self.values else value

    def read(self, text: str) -> ParamValue:
        """Return the value that the text stands for; the text itself if it stands for none."""
        return value_in(text, self.values)


@dataclass(frozen=True, slots=True)
class ChoiceParameter(_Listed):
    """One of several values of one type, and None; duplicates are dropped.

    Attributes:
        name: The hyperparameter's name.
        values: The choices.
        ordered: Whether the values are ordered; by default numbers are; texts and None are not.
        default: Value before the search; by default the first one.
        conditions: Conditions that all must hold for the parameter to be active.
        prior: Prior on the values; None for a uniform one.
        has_default: Whether the user gave the default.

    Raises:
        SpaceError: There are no choices or choices of several types, the default is not among
            them, or texts or None are declared ordered.
    """

    name: str
    values: tuple[ParamValue, ...]
    _: KW_ONLY
    ordered: bool | None = None
    default: ParamValue = None
    conditions: tuple[Condition, ...] = ()
    prior: Prior | None = None
    has_default: bool | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        values = tuple(scalar(self.name, value, may_be_none=True) for value in self.values)
        if set(values) <= {None}:
            only = " but None" if values else ""
            raise SpaceError(f"{self.name}: there are no choices{only}; give at least one value")
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        if len(kinds) > 1:
            raise SpaceError(
                f"{self.name}: the choices {list(values)} mix {' and '.join(kinds)}; "
                "give values of one type"
            )
        values = tuple(dict.fromkeys(values))
        numeric = kinds != ["str"] and None not in values
        if self.ordered and not numeric:
            what = "have None" if None in values else "are texts"
            raise SpaceError(
                f"{self.name}: the choices {list(values)} {what} and cannot be ordered; "
                "leave `ordered` out"
            )
        ordered = numeric if self.ordered is None else self.ordered
        default = values[0] if self.default is None else scalar(self.name, self.default)
        found = position(default, values)
        if found is None:
            raise SpaceError(
                f"{self.name}: the default {default!r} is not among the choices {list(values)}; "
                "give one of them"
            )
        set_fields(self, values=values, ordered=ordered)
        set_default(self, values[found])

    @property
    def bounds(self) -> str:
        """Kind and choices in words."""
        return f"Choice of {', '.join(map(repr, self.values))}"

    def explain(self, value: ParamValue) -> str:
        """Return why the value is not allowed; empty if it is."""
        if position(value, self.values) is not None:
            return ""
        return f"{self.name} is {value!r}; allowed are {', '.join(map(repr, self.values))}"


@dataclass(frozen=True, slots=True)
class BooleanParameter(_Listed):
    """False or True.

    Attributes:
        name: The hyperparameter's name.
        default: Value before the search.
        conditions: Conditions that all must hold for the parameter to be active.
        prior: Prior on the values; None for a uniform one.

    Raises:
        SpaceError: The default is not a boolean.
    """

    name: str
    _: KW_ONLY
    default: bool = False
    conditions: tuple[Condition, ...] = ()
    prior: Prior | None = None
    values: tuple[bool, bool] = field(default=(False, True), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # KerasTuner takes 0 and 1 as well.
        default: object = plain(self.default)
        if default not in (True, False):
            raise SpaceError(f"{self.name}: the default is {default!r}; give True or False")
        set_fields(self, default=bool(default))

    @property
    def bounds(self) -> str:
        """The kind in words."""
        return "Boolean"

    def explain(self, value: ParamValue) -> str:
        """Return why the value is not allowed; empty if it is."""
        return "" if isinstance(value, bool) else f"{self.name} is {value!r}; give True or False"


@dataclass(frozen=True, slots=True)
class FixedParameter(_Listed):
    """A value that is recorded and not searched.

    Attributes:
        name: The hyperparameter's name.
        value: The value.
        conditions: Conditions that all must hold for the parameter to be active.

    Raises:
        SpaceError: The value is not a finite number, a text or a boolean.
    """

    name: str
    value: ParamValue
    _: KW_ONLY
    conditions: tuple[Condition, ...] = ()
    prior: None = field(default=None, init=False, repr=False, compare=False)
    values: tuple[ParamValue] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        value = scalar(self.name, self.value)
        set_fields(self, value=value, values=(value,))

    @property
    def default(self) -> ParamValue:
        """The value."""
        return self.value

    @property
    def bounds(self) -> str:
        """Kind and value in words."""
        return f"Fixed {self.value!r}"

    def explain(self, value: ParamValue) -> str:
        """Return why the value is not allowed; empty if it is."""
        if position(value, self.values) is not None:
            return ""
        return f"{self.name} is {value!r}; it is fixed to {self.value!r}"

"""The `hp` object with which the user's code declares hyperparameters.

`HyperParameters` has the methods of KerasTuner's class of that name, with the same meaning, but
needs no framework. KerasTuner imports Keras and its backend, which takes some 4 seconds and half a
gigabyte. If the user's code has imported KerasTuner, `hp` is an instance of both classes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Self, TypeVar

from ..core.space.parameters import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    identity,
    label,
)
from ..core.space.parameters.checks import check_text, plain
from ..core.space.parameters.json_form import parameter_from_json, parameter_to_json, scale_of
from ..errors import SpaceError
from .context import OtherTuners

_Made = TypeVar("_Made")


class HyperParameters(OtherTuners):
    """The declared hyperparameters and their values in one trial.

    `Int`, `Float`, `Choice`, `Boolean` and `Fixed` declare a hyperparameter and return its value;
    None if one of its conditions does not hold. A hyperparameter without a value gets its default.
    One that is declared again under the same conditions keeps its first bounds; it cannot be an
    `Int` and a `Float`.

    The methods that only KerasTuner's own tuners call are missing (`merge`,
    `ensure_active_values`, `to_proto`, `from_proto`).

    Attributes:
        asked: The names of the hyperparameters whose values were asked for, one by one.
        asks_all: Whether all were asked for at once.
        active_scopes: Conditions of each `conditional_scope` whose code ran while all of them held.
        inactive_scopes: Conditions of each scope whose code ran while one of them did not hold.
        on_declaration: Function to call after each new declaration; None for no call.
        on_conflict: Function to call with a sentence on each declaration that has no effect because
            an earlier one differs; None for no call.
        tunes_new: Whether what is declared from now on is searched, and not fixed to its default.
        first_value: Function that returns the value of a declaration that has none yet.
    """

    _title = "HyperParameters"

    def __init__(self) -> None:
        self._values: Any = {}
        self.asked: set[str] = set()
        self.asks_all = False
        self.active_scopes: list[list[Condition]] = []
        self.inactive_scopes: list[list[Condition]] = []
        self.on_declaration: Callable[[], None] | None = None
        self.on_conflict: Callable[[str], None] | None = None
        self.tunes_new = True
        self.first_value: Callable[[Parameter], Any] = attrgetter("default")
        self._declared: dict[tuple[str, tuple[Condition, ...]], Parameter] = {}
        self._given: frozenset[object] = frozenset()  # what was declared before the user's code
        self._name_scopes: list[str] = []
        self._conditions: list[Condition] = []

    # --- declarations -------------------------------------------------------------------------

    def Int(
        self,
        name: str,
        min_value: int,
        max_value: int,
        step: int | None = None,
        sampling: str | None = "linear",
        default: int | None = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Declare a whole number between two bounds, both included.

        Args:
            name: The hyperparameter's name.
            min_value: The least value.
            max_value: The greatest value.
            step: The distance between two values; with `sampling="log"` the factor.
            sampling: "linear", "log" or "reverse_log".
            default: The value before the search; `min_value` if not given.
            parent_name: The hyperparameter that this one depends on.
            parent_values: The values of the parent for which this one is active.
        """
        return self._declare(
            IntParameter,
            name,
            (parent_name, parent_values),
            low=min_value,
            high=max_value,
            step=step,
            scale=scale_of(self._full_name(name), sampling),
            default=default,
        )

    def Float(
        self,
        name: str,
        min_value: float,
        max_value: float,
        step: float | None = None,
        sampling: str | None = "linear",
        default: float | None = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Declare a number between two bounds, both included; the arguments are those of `Int`."""
        return self._declare(
            FloatParameter,
            name,
            (parent_name, parent_values),
            low=min_value,
            high=max_value,
            step=step,
            scale=scale_of(self._full_name(name), sampling),
            default=default,
        )

    def Choice(
        self,
        name: str,
        values: Sequence[Any],
        ordered: bool | None = None,
        default: Any = None,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Declare one of several values of one type, and None; True and False count as 1 and 0.

        Args:
            name: The hyperparameter's name.
            values: The choices.
            ordered: Whether the choices are ordered; by default they are if all are numbers.
            default: The value before the search; the first one if not given.
            parent_name: The hyperparameter that this one depends on.
            parent_values: The values of the parent for which this one is active.
        """
        # Of a text, each letter would be a choice.
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            raise SpaceError(f"{self._full_name(name)}: the choices are {values!r}; give a list")
        given: tuple[Any, ...] = tuple(map(plain, values))
        choices = given
        if choices and all(value is None or isinstance(value, bool) for value in choices):
            choices = tuple(None if value is None else int(value) for value in choices)
            default = None if default is None else int(default)
        value = self._declare(
            ChoiceParameter,
            name,
            (parent_name, parent_values),
            values=choices,
            ordered=ordered,
            default=default,
        )
        # After the check of the values: one that is not allowed may have no hash.
        if self.on_conflict is not None and len(set(given)) < len(given):
            twice = next(each for each in given if given.count(each) > 1)
            self.on_conflict(f"{self._full_name(name)}: {twice!r} is given twice; it counts once")
        return value

    def Boolean(
        self,
        name: str,
        default: bool = False,
        parent_name: str | None = None,
        parent_values: Any = None,
    ) -> Any:
        """Declare a boolean."""
        parent = parent_name, parent_values
        return self._declare(BooleanParameter, name, parent, default=default)

    def Fixed(
        self, name: str, value: Any, parent_name: str | None = None, parent_values: Any = None
    ) -> Any:
        """Declare a value that is recorded and not searched."""
        return self._declare(FixedParameter, name, (parent_name, parent_values), value=value)

    @contextmanager
    def name_scope(self, name: str) -> Iterator[None]:
        """Prefix all names in this scope with `name/`."""
        self._name_scopes.append(name)
        try:
            yield
        finally:
            self._name_scopes.pop()

    @contextmanager
    def conditional_scope(self, parent_name: str, parent_values: Any) -> Iterator[None]:
        """Make the declarations in this scope depend on another hyperparameter.

        Args:
            parent_name: The other hyperparameter, declared before the scope.
            parent_values: Its value or values for which the declarations are active.

        Raises:
            SpaceError: The parent is not declared in the surrounding scope.
        """
        parent = self._full_name(parent_name)
        if (parent, tuple(self._conditions)) not in self._declared:
            scope = f" in the scope {' and '.join(map(str, self._conditions))}"
            raise SpaceError(
                f"conditional_scope: {parent} is not declared{scope if self._conditions else ''}; "
                "declare it before the scope"
            )
        values = _of_one_type(parent_values)
        self._conditions.append(_valid(Condition, name=parent, values=values))
        is_active = self._hold(self._conditions)
        (self.active_scopes if is_active else self.inactive_scopes).append([*self._conditions])
        try:
            yield
        finally:
            self._conditions.pop()

    # --- values -------------------------------------------------------------------------------

    @property
    def values(self) -> Any:
        """The values of the active hyperparameters."""
        self.asks_all = True
        return self._values

    @values.setter
    def values(self, values: Any) -> None:
        self._values = values

    @property
    def known_values(self) -> Any:
        """The same for hptune itself: reading them does not count as asking for them."""
        return self._values

    def get(self, name: str) -> Any:
        """Return the value of an active hyperparameter.

        Raises:
            ValueError: The hyperparameter is not active.
            KeyError: There is no hyperparameter of this name.
        """
        name = self._ask(self._full_name(name))
        if name in self._values:
            return self._values[name]
        if any(parameter.name == name for parameter in self.space):
            raise ValueError(f"{name} is currently inactive.")
        raise KeyError(
            f"{name} does not exist; declare it before, with hp.Int or another method, or in "
            "HYPERPARAMETERS of the model file (hyperparameters= in Python)"
        )

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __contains__(self, name: object) -> bool:
        return self._ask(self._full_name(name)) in self._values

    def is_active(self, hyperparameter: object) -> bool:
        """Return whether all conditions hold of a declaration, or of any one of this name."""
        if isinstance(hyperparameter, Parameter):
            return self._hold(hyperparameter.conditions)
        return any(self._hold(p.conditions) for p in self.space if p.name == str(hyperparameter))

    @property
    def space(self) -> list[Parameter]:
        """The declarations, parents before children."""
        return list(self._declared.values())

    def get_config(self) -> dict[str, Any]:
        """Return declarations and values in KerasTuner's JSON form."""
        self.asks_all = True
        return {
            "space": [parameter_to_json(parameter) for parameter in self.space],
            "values": dict(self._values),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read the result of `get_config`.

        Raises:
            SpaceError: A declaration is not valid.
        """
        hp = cls()
        parameters = map(parameter_from_json, config["space"])
        hp._declared = {identity(parameter): parameter for parameter in parameters}
        hp._given = frozenset(hp._declared)
        hp.values = dict(config["values"])
        return hp

    def copy(self) -> Self:
        """Return an independent object with the same declarations and values."""
        return self.from_config(self.get_config())

    def __reduce__(self) -> Any:
        self.asks_all = True  # the copy may be asked, in another process too
        # A class that is made at run time, as by `make_hyperparameters`, is not found by its name.
        return make_hyperparameters, (), self.__dict__

    # --- helpers ------------------------------------------------------------------------------

    def _declare(
        self,
        kind: Callable[..., Parameter],
        name: Any,
        parent: tuple[str | None, Any],
        **fields: Any,
    ) -> Any:
        parent_name, values = parent
        with self.conditional_scope(parent_name, values) if parent_name else nullcontext():
            if self.on_conflict and not isinstance(name, str):
                self.on_conflict(
                    f"the name of a hyperparameter is {name!r}, which is no text; it is called "
                    f"{str(name)!r} (the name comes first, then its values)"
                )
            name, conditions = self._full_name(name), tuple(self._conditions)
            check_text(name, name)
            if any(condition.name == name for condition in conditions):
                raise SpaceError(f"{name} depends on itself; give it another name")
            declared = _valid(kind, name=name, conditions=conditions, **fields)
            if not name:
                raise SpaceError(f"a hyperparameter ({declared.bounds}) has no name; give it one")
            if self.on_conflict and (words := _too_large_step(declared)):
                self.on_conflict(words)
            is_new = identity(declared) not in self._declared
            if is_new and not self.tunes_new:
                declared = FixedParameter(name, declared.default, conditions=conditions)
            parameter = self._declared.setdefault(identity(declared), declared)
            if {type(parameter), type(declared)} == {IntParameter, FloatParameter}:
                raise SpaceError(
                    f"{label(declared)} is declared as {parameter.bounds} and as "
                    f"{declared.bounds}; give one of them another name"
                )
            is_of_code = identity(declared) not in self._given and self.tunes_new
            if self.on_conflict and is_of_code and parameter.bounds != declared.bounds:
                self.on_conflict(
                    f"{label(declared)} is declared as {parameter.bounds}, and again as "
                    f"{declared.bounds}, which has no effect; give one of them another name"
                )
            value = None
            if self._hold(conditions):
                value = self._values.setdefault(self._ask(name), self.first_value(parameter))
            if is_new and self.on_declaration is not None:
                self.on_declaration()
            return value

    def _ask(self, name: str) -> str:
        self.asked.add(name)
        return name

    def _hold(self, conditions: Sequence[Condition]) -> bool:
        self.asked.update(condition.name for condition in conditions)
        return all(condition.holds(self._values) for condition in conditions)

    def _full_name(self, name: object) -> str:
        return "/".join((*self._name_scopes, str(name)))


class ChosenHyperparameters(dict[str, Any], HyperParameters):
    """A configuration as a dict, which the user's code can also take as its `hp`.

    Any other hyperparameter that the code declares gets its default, and is not added to the
    dict.
    """

    values = HyperParameters.values
    __contains__ = HyperParameters.__contains__

    def __init__(self, values: Mapping[str, Any] = MappingProxyType({})) -> None:
        dict.__init__(self, values)
        HyperParameters.__init__(self)
        self.values = _Values(values)

    @classmethod
    def of(cls, space: Sequence[Mapping[str, object]], values: Mapping[str, Any]) -> Self:
        """Return a configuration of a space in its JSON form."""
        hp = cls(values)
        parameters = map(parameter_from_json, space)
        hp._declared = {identity(parameter): parameter for parameter in parameters}
        return hp

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Read the result of `get_config`."""
        return cls.of(config["space"], config["values"])

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an active hyperparameter, `default` if there is none."""
        return self.values.get(self._full_name(name), default)

    def __missing__(self, name: str) -> Any:
        return self.values[self._full_name(name)]

    def copy(self) -> Self:
        """Return an independent object with the same declarations and values."""
        return self.from_config(self.get_config())

    def __reduce__(self) -> Any:
        return type(self).from_config, (self.get_config(),)


class _Values(dict[str, Any]):
    """The attribute `values` of an `hp`, which is also the method `values` of a dict."""

    def __call__(self) -> Any:
        return dict.values(self)


def _too_large_step(parameter: Parameter) -> str:
    """Return that the step of a range leaves one value; empty if it does not."""
    match parameter:
        case FloatParameter(values=[low]) | IntParameter(values=[low]) if low < parameter.high:
            return (
                f"{label(parameter)}: the step {parameter.step:g} is larger than the range, so "
                f"{low:g} is its only value"
            )
    return ""


def _valid(kind: Callable[..., _Made], **fields: Any) -> _Made:
    try:
        return kind(**fields)
    except SpaceError as error:
        # Without the frames of the dataclass, the traceback ends with the user's own line.
        raise error.with_traceback(None) from None


def _of_one_type(values: Any) -> tuple[Any, ...]:
    """Return the values of a condition as KerasTuner reads them: with the type of the first."""
    several: list[Any] = [*map(plain, values if isinstance(values, list | tuple) else [values])]
    kind: Any = next((type(each) for each in several if each is not None), None)
    is_one = kind in (str, int)  # 1 equals True
    return tuple(kind(each) if is_one and each is not None else each for each in several)


def make_hyperparameters(
    space: Sequence[Mapping[str, object]] = (), values: Mapping[str, Any] | None = None
) -> HyperParameters:
    """Make the `hp` for the user's code; call it after the code was imported.

    Args:
        space: Declarations in their JSON form.
        values: The trial's values.
    """
    kind: Any = HyperParameters
    if keras_tuner := sys.modules.get("keras_tuner"):
        kind = type("HyperParameters", (HyperParameters, keras_tuner.HyperParameters), {})
    hp: HyperParameters = kind.from_config({"space": space, "values": values or {}})
    return hp

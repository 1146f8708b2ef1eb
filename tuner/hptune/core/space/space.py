"""The search space of a study.

Its JSON form is that of KerasTuner's `HyperParameters.get_config()["space"]`. In that form it is
stored in the ledger and sent to the trials' processes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from ...errors import SpaceError
from ..spelling import did_you_mean
from ..trial import Params, ParamValue
from .enumeration import Configurations, is_open
from .parameters import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    identity,
    label,
)
from .parameters.json_form import JsonEntry, parameter_from_json, parameter_to_json

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "BooleanParameter",
    "ChoiceParameter",
    "Condition",
    "Configurations",
    "FixedParameter",
    "FloatParameter",
    "IntParameter",
    "Parameter",
    "Scale",
    "SearchSpace",
]


@dataclass(frozen=True, slots=True)
class SearchSpace:
    """Hyperparameters in the order of their declaration, parents before children.

    A space may be empty: it has one configuration, without values.

    A configuration has a value for every *active* parameter and for no other. A parameter is
    active while all its conditions hold. If several declarations of one name are active at once,
    the first one counts, as in KerasTuner.

    >>> deep = BooleanParameter("deep")
    >>> layers = IntParameter("layers", 2, 9, conditions=(Condition("deep", (True,)),))
    >>> space = SearchSpace((deep, layers))
    >>> space.size(), space.defaults(), space.contains({"deep": True, "layers": 9})
    (9, {'deep': False}, True)
    >>> space.explain({"deep": False, "layers": 3})
    'layers is given but not active: it needs deep is True (here deep is False)'

    Args:
        parameters: The declarations; duplicates are dropped.

    Raises:
        SpaceError: Two declarations contradict each other, or a condition is on a parameter that
            is not declared before.
    """

    parameters: tuple[Parameter, ...] = ()

    def __post_init__(self) -> None:
        kept: dict[object, Parameter] = {}
        names: set[str] = set()
        for parameter in self.parameters:
            _check_conditions(parameter, names)
            first = kept.setdefault(identity(parameter), parameter)
            if first != parameter:
                raise SpaceError(
                    f"{label(parameter)} is declared twice: as {first.bounds} (default "
                    f"{first.default}) and as {parameter.bounds} (default {parameter.default}); "
                    "give one of them another name, or both the same bounds"
                )
            names.add(parameter.name)
        object.__setattr__(self, "parameters", tuple(kept.values()))

    @classmethod
    def from_json(cls, entries: Sequence[Mapping[str, object]]) -> Self:
        """Read a space from its JSON form.

        Raises:
            SpaceError: An entry is not a valid declaration, or the entries contradict each other.
        """
        return cls(tuple(parameter_from_json(entry) for entry in entries))

    def to_json(self) -> list[JsonEntry]:
        """Return the JSON form, for `from_json` or for KerasTuner's `from_config`."""
        return [parameter_to_json(parameter) for parameter in self.parameters]

    def __len__(self) -> int:
        return len(self.parameters)

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    # --- configurations -----------------------------------------------------------------------

    def active(self, params: Params) -> tuple[Parameter, ...]:
        """Return the declarations that are active with these values.

        Values may be missing: conditions on a parameter without a value do not hold. Values of
        inactive parameters are ignored.
        """
        found = []
        taken: set[str] = set()
        seen: dict[str, ParamValue] = {}
        for parameter in self.parameters:
            if parameter.name in taken or not is_open(parameter, seen):
                continue
            found.append(parameter)
            taken.add(parameter.name)
            if parameter.name in params:
                seen[parameter.name] = params[parameter.name]
        return tuple(found)

    def contains(self, params: Params) -> bool:
        """Return whether this is a configuration of the space."""
        return not self.explain(params)

    def explain(self, params: Params) -> str:
        """Return why this is not a configuration of the space; empty if it is one."""
        active = {parameter.name: parameter for parameter in self.active(params)}
        faults = []
        for name, parameter in active.items():
            if name not in params:
                faults.append(f"{name} is missing; it is {parameter.bounds}")
            elif fault := parameter.explain(params[name]):
                faults.append(fault)
        faults += [self.explain_extra(name, params) for name in params if name not in active]
        return "; ".join(faults)

    def explain_extra(self, name: str, params: Params) -> str:
        """Return why a configuration has no value of this name."""
        mine = [parameter for parameter in self.parameters if parameter.name == name]
        if not mine:
            known = [*dict.fromkeys(parameter.name for parameter in self.parameters)]
            hint = did_you_mean(name, known)
            has = f"the space has {', '.join(known) or 'no hyperparameters'}"
            return f"{name} is unknown; {has}{hint and '.'}{hint}"
        scopes = ", or ".join(" and ".join(map(str, each.conditions)) for each in mine)
        parents = dict.fromkeys(c.name for each in mine for c in each.conditions)
        present = ", ".join(
            f"{parent} is {params[parent]!r}" for parent in parents if parent in params
        )
        has = f" (here {present})" if present else ""
        return f"{name} is given but not active: it needs {scopes}{has}"

    def key(self, params: Params) -> Hashable:
        """Return a key that is equal for equal configurations only.

        Floats are compared by all digits. 1, 1.0 and True differ, except where `canonical` makes
        one of another. Configurations outside the space have keys too.
        """
        return repr(sorted(self.canonical(params).items(), key=lambda item: item[0]))

    def canonical(self, params: Params) -> dict[str, ParamValue]:
        """Return a configuration with values of its parameters' own types where they are equal."""
        found = dict(params)
        for parameter in self.active(params):
            if parameter.name in found:
                found[parameter.name] = parameter.canonical(found[parameter.name])
        return found

    def configure(self, value_of: Callable[[Parameter], ParamValue]) -> dict[str, ParamValue]:
        """Return the configuration in which each active parameter has the value returned for it."""
        chosen: dict[str, ParamValue] = {}
        for parameter in self.parameters:
            if is_open(parameter, chosen):
                chosen[parameter.name] = value_of(parameter)
        return chosen

    def defaults(self) -> Params:
        """Return the configuration of all defaults, which are KerasTuner's."""
        return self.configure(lambda parameter: parameter.default)

    def sample(self, rng: np.random.Generator) -> Params:
        """Return a random configuration; each parameter is uniform on its own scale."""
        return self.configure(lambda parameter: parameter.from_unit(float(rng.random())))

    # --- all of them --------------------------------------------------------------------------

    def size(self) -> int | None:
        """Return the number of configurations; None if a parameter is continuous."""
        configurations = self.configurations()
        return None if configurations is None else configurations.count

    def configurations(self) -> Configurations | None:
        """Return all configurations of the space; None if a parameter is continuous."""
        axes = [parameter.values for parameter in self.parameters]
        finite = [axis for axis in axes if axis is not None]
        return Configurations(self.parameters, finite) if len(finite) == len(axes) else None

    def grid(self, resolution: int) -> Configurations:
        """Return the configurations of a grid; they are computed on access.

        Args:
            resolution: Number of values, 2 or more, of every Float without a step and of every Int
                without a step on a log scale. They are equidistant on the scale, with both ends.

        Raises:
            SpaceError: The resolution is below 2.
        """
        if resolution < 2:
            raise SpaceError(
                f"the grid's resolution is {resolution}; allowed are 2 or more values for each "
                "parameter without a step"
            )
        axes = [parameter.grid_values(resolution) for parameter in self.parameters]
        return Configurations(self.parameters, axes)

    # --- two spaces ---------------------------------------------------------------------------

    def extended(self, entries: Sequence[Mapping[str, object]]) -> SearchSpace:
        """Return this space with the new declarations of these entries (in JSON form) at its end.

        The entries may depend on parameters of this space. A parameter that is declared in both
        keeps the bounds of this space.

        Raises:
            SpaceError: An entry is not a valid declaration, or its parent is not declared.
        """
        known = {identity(parameter) for parameter in self.parameters}
        more = (parameter_from_json(entry) for entry in entries)
        return SearchSpace(self.parameters + tuple(p for p in more if identity(p) not in known))

    def missing_from(self, other: SearchSpace) -> list[JsonEntry]:
        """Return the declarations, in JSON form, that the other space does not have."""
        known = {identity(parameter) for parameter in other.parameters}
        return [parameter_to_json(p) for p in self.parameters if identity(p) not in known]

    def differences(self, other: SearchSpace) -> list[str]:
        """Describe the changes from this space to the other one, one line each."""
        before = {identity(parameter): parameter for parameter in self.parameters}
        after = {identity(parameter): parameter for parameter in other.parameters}
        lines = []
        for who, old in before.items():
            new = after.get(who)
            if new is None:
                lines.append(f"{label(old)} was removed")
            elif new.bounds != old.bounds:
                lines.append(f"{label(old)}: {old.bounds} became {new.bounds}")
            elif new.default != old.default:
                lines.append(f"{label(old)}: default {old.default} became {new.default}")
            elif new != old:
                lines.append(f"{label(old)}: whether its choices are ordered changed")
        lines += [f"{label(new)} was added" for who, new in after.items() if who not in before]
        return lines


def _check_conditions(parameter: Parameter, names: set[str]) -> None:
    if not parameter.name:
        raise SpaceError(f"a hyperparameter ({parameter.bounds}) has no name; give it one")
    for condition in parameter.conditions:
        if condition.name == parameter.name:
            raise SpaceError(f"{parameter.name} depends on itself; give it another name")
        if condition.name not in names:
            known = ", ".join(sorted(names)) or "none"
            raise SpaceError(
                f"{parameter.name} depends on {condition.name}, which is not declared before it "
                f"(declared before: {known}); declare {condition.name} first"
            )

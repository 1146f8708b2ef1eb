"""An earlier study, as a new one sees it: what it measured, and what of it fits the new space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ..trial import Direction, Params, ParamValue
from .completion import opening_value
from .enumeration import is_open
from .space import SearchSpace


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """A configuration and its result.

    Attributes:
        params: The configuration.
        value: The value of the (first) objective.
        extra_values: Those of the new study's other objectives, if they were measured.
        violation: By how much it breaks the new study's constraints, if that is known.
    """

    params: Params
    value: float
    extra_values: tuple[float, ...] = ()
    violation: float = 0.0

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all objectives."""
        return (self.value, *self.extra_values)


@dataclass(frozen=True, slots=True)
class EarlierStudy:
    """What is taken over from another study. It is kept with the new one, which then needs no more.

    Attributes:
        name: Its directory, as the user gave it.
        direction: Which of its (first) values are better; of further ones, the new study's say.
        is_same_metric: Whether it measured the metrics that the new study optimises.
        trials: Its complete trials.
    """

    name: str
    direction: Direction
    is_same_metric: bool
    trials: Sequence[EarlierTrial]

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """What `to_json` gave."""
        trials = tuple(
            EarlierTrial(**{**each, "extra_values": tuple(each["extra_values"])})
            for each in plain["trials"]
        )
        return cls(plain["name"], Direction(plain["direction"]), plain["is_same_metric"], trials)

    def to_json(self) -> dict[str, Any]:
        """As plain values, for the ledger."""
        plain = asdict(self)
        return {**plain, "direction": str(self.direction), "trials": list(plain["trials"])}

    def within(self, space: SearchSpace) -> list[EarlierTrial]:
        """Its trials as configurations of this space; those that have no place in it are left out.

        A parameter that it did not know counts as having had its `opening_value`; one that the
        space does not know is dropped.
        """
        found = []
        for trial in self.trials:
            params = _translated(trial.params, space)
            if params is not None:
                found.append(replace(trial, params=params))
        return found

    def best_within(self, space: SearchSpace) -> Params | None:
        """The best of `within` by the first objective; None if there is none."""
        sign = 1.0 if self.direction is Direction.MIN else -1.0
        best = min(
            self.within(space), key=lambda each: (each.violation, sign * each.value), default=None
        )
        return None if best is None else best.params


def _translated(params: Params, space: SearchSpace) -> Params | None:
    chosen: dict[str, ParamValue] = {}
    for parameter in space:
        if not is_open(parameter, chosen):
            continue
        if parameter.name not in params:
            chosen[parameter.name] = opening_value(parameter)
        elif parameter.explain(params[parameter.name]):
            return None
        else:
            chosen[parameter.name] = parameter.canonical(params[parameter.name])
    return chosen

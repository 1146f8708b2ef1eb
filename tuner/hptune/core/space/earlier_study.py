"""Results of an earlier study for the warm start of a new one."""

from __future__ import annotations

import statistics
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from ..trial import Direction, Params, ParamValue
from .completion import opening_value
from .space import Parameter, SearchSpace


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """A configuration and its result.

    Attributes:
        params: The configuration.
        value: The value of the (first) objective.
        extra_values: Values of the new study's other objectives, if they were measured.
        violation: Total violation of the new study's constraints; 0 if unknown.
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
    """The results of another study. The new study stores them and no longer needs the old one.

    Attributes:
        name: The study's directory, as the user gave it.
        direction: Direction of the first objective; the others have those of the new study.
        is_same_metric: Whether the study measured the metrics that the new study optimises.
        trials: The study's complete trials.
    """

    name: str
    direction: Direction
    is_same_metric: bool
    trials: Sequence[EarlierTrial]

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Read the JSON form."""
        trials = tuple(
            EarlierTrial(**{**each, "extra_values": tuple(each["extra_values"])})
            for each in plain["trials"]
        )
        return cls(plain["name"], Direction(plain["direction"]), plain["is_same_metric"], trials)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, for the ledger."""
        plain = asdict(self)
        return {**plain, "direction": str(self.direction), "trials": list(plain["trials"])}

    def within(self, space: SearchSpace) -> list[EarlierTrial]:
        """Return the trials as configurations of this space, without those that do not fit.

        A parameter that the study did not have gets its `opening_value`; one that the space does
        not have is dropped.
        """
        found = []
        for trial in self.trials:
            params = _translated(trial.params, space)
            if params is not None:
                found.append(replace(trial, params=params))
        return found

    def best_within(self, space: SearchSpace) -> Params | None:
        """Return the best configuration of `within` by the first objective; None if there is none.

        One that was trained several times counts by the mean: its best value may be luck.
        """
        found: dict[Hashable, list[EarlierTrial]] = {}
        for trial in self.within(space):
            found.setdefault(space.key(trial.params), []).append(trial)

        def loss(alike: list[EarlierTrial]) -> tuple[float, float]:
            value = statistics.mean(each.value for each in alike)
            return statistics.mean(each.violation for each in alike), self.direction.sign * value

        return min(found.values(), key=loss)[0].params if found else None


def _translated(params: Params, space: SearchSpace) -> Params | None:
    def value_of(parameter: Parameter) -> ParamValue:
        name = parameter.name
        return parameter.canonical(params[name]) if name in params else opening_value(parameter)

    chosen = space.configure(value_of)
    return chosen if space.contains(chosen) else None

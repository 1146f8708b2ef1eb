"""Optuna's distributions as declarations of a study, and the values of one as of the other."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from ..ask_tell.spaces import Choice, Float, Int
from ..core.space.parameters import Parameter
from ..core.space.parameters.checks import is_number, plain
from ..user_code.space_tables import Declaration


class Declared(NamedTuple):
    """A distribution, and how a study declares its hyperparameter.

    Both are kept, as the text of a choice may say where that is in the memory of a process.
    """

    distribution: BaseDistribution
    declaration: Declaration

    def suggested(self, value: Any) -> Any:
        """Return what a script gets for a value of the study."""
        if isinstance(self.distribution, CategoricalDistribution):
            for choices in (self._choices, [*self.distribution.choices]):  # as of a grid
                if value in choices:
                    return self.distribution.choices[choices.index(value)]
        return value  # it may have been enqueued

    def stored(self, value: Any) -> Any:
        """Return what the study has for a value of a script."""
        distribution = self.distribution
        if isinstance(distribution, CategoricalDistribution) and value in distribution.choices:
            return self._choices[distribution.choices.index(value)]
        return value

    @property
    def _choices(self) -> list[Any]:
        choices: list[Any] = self.declaration.options["values"]
        return choices


def declared(distribution: Any) -> Declared:
    """Return how a study declares the hyperparameter of a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return Declared(distribution, Choice(_stored_choices(distribution)))
    low, high, step = distribution.low, distribution.high, distribution.step
    sampling = "log" if distribution.log else "linear"
    if isinstance(distribution, FloatDistribution):
        return Declared(distribution, Float(low, high, step, sampling))
    return Declared(distribution, Int(low, high, None if step == 1 else step, sampling))


def enqueued(
    parameter: Parameter, declared: Declared | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the value that a script enqueued for a parameter, as the study has it; else nothing.

    Optuna tries one that is out of range. A search of hptune could not learn from it.
    """
    if (name := parameter.name) not in given:
        return {}
    value: Any = plain(given[name] if declared is None else declared.stored(given[name]))
    value = parameter.canonical(value)
    if fault := parameter.explain(value):
        warnings.warn(f"{fault}. The study suggests another value", stacklevel=2)
        return {}
    return {name: value}


def _stored_choices(distribution: CategoricalDistribution) -> list[Any]:
    """Return choices as the study has them: texts, unless all are texts, or numbers of one type."""
    kinds = {type(each) for each in distribution.choices if each is not None}
    is_plain = all(isinstance(each, str | None) or is_number(each) for each in distribution.choices)
    if len(kinds) == 1 and is_plain:
        return [*distribution.choices]
    return [*map(repr, distribution.choices)]

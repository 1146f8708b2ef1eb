"""Optuna's distributions as declarations of a study, and the values of one as of the other."""

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from ..ask_tell.spaces import Choice, Float, Int
from ..user_code.space_tables import Declaration


def declaration(distribution: Any) -> Declaration:
    """Return how a study declares the hyperparameter of a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return Choice(_stored_choices(distribution))
    low, high, step = distribution.low, distribution.high, distribution.step
    sampling = "log" if distribution.log else "linear"
    if isinstance(distribution, FloatDistribution):
        return Float(low, high, step, sampling)
    return Int(low, high, None if step == 1 else step, sampling)


def suggested(distribution: BaseDistribution, value: Any) -> Any:
    """Return what a script gets for a value of the study."""
    if isinstance(distribution, CategoricalDistribution):
        choices = dict(zip(_stored_choices(distribution), distribution.choices, strict=True))
        return choices.get(value, value)  # it may have been enqueued
    return value


def stored(distribution: BaseDistribution | None, value: Any) -> Any:
    """Return what the study has for a value of a script."""
    if isinstance(distribution, CategoricalDistribution) and value in distribution.choices:
        return _stored_choices(distribution)[distribution.choices.index(value)]
    return value


def _stored_choices(distribution: CategoricalDistribution) -> list[Any]:
    """Return choices as the study has them: those of no or of several types are texts."""
    kinds = {type(choice) for choice in distribution.choices if choice is not None}
    if len(kinds) == 1 and kinds <= {str, int, float}:
        return [*distribution.choices]
    return [*map(repr, distribution.choices)]

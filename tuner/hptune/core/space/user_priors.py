"""The user's priors on hyperparameters (`--prior`), applied to a search space."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

from ...errors import UsageError
from ..spelling import did_you_mean
from .parameters import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
)
from .parameters.checks import position
from .parameters.priors import Prior, lognormal, normal, prior_of_cells
from .parameters.scales import project
from .space import SearchSpace

PriorSpec = str | Mapping[str, float]
"""A prior as the user writes it.

`"normal(128, 64)"` or `"lognormal(0.001, 0.5)"` for numbers; weights of choices as a mapping or as
text: `{"relu": 3, "tanh": 1}`.
"""

_CELLS = 512
"""Number of cells in which the density of a number is approximated."""

_SHAPES = {"normal": normal, "lognormal": lognormal}
_FORMS = "allowed are normal(MEAN,SD), lognormal(MEDIAN,SD OF THE LOGARITHM) and {CHOICE:WEIGHT,…}"


def with_priors(space: SearchSpace, priors: Mapping[str, PriorSpec]) -> SearchSpace:
    """Return the space with priors on some of its parameters.

    A prior gives the values that the user expects to be good a larger part of the unit interval.
    Random draws, low-discrepancy starts and the uniform parts of a model's densities then follow
    the prior, because all of them are uniform on the unit cube.

    BOPrO (Souza et al. 2021, "Bayesian optimization with a prior for the optimum") and πBO
    (Hvarfner et al. 2022, "πBO: Augmenting acquisition functions with user beliefs") multiply the
    prior into the model or the acquisition function, and have to let it decay. A transformed scale
    works with any sampler, and results outweigh it soon: the model learns from them on that scale.

    Args:
        space: The space.
        priors: Priors by name; each applies to every declaration of the name.

    Raises:
        UsageError: There is no such parameter, or the prior does not fit it.
    """
    names = {parameter.name for parameter in space}
    for name in priors:
        if name not in names:
            raise UsageError(f"--prior: {space.explain_extra(name, {})}")
    return SearchSpace(
        tuple(
            _with_prior(each, priors[each.name]) if each.name in priors else each for each in space
        )
    )


def read_prior(text: str) -> tuple[str, str]:
    """Return the name and the prior in the value of one `--prior`.

    >>> read_prior("lr ~ lognormal(0.001, 0.5)")
    ('lr', 'lognormal(0.001, 0.5)')

    Raises:
        UsageError: It is not of the form NAME~PRIOR.
    """
    name, tilde, prior = (part.strip() for part in text.partition("~"))
    if not (name and tilde and prior):
        raise UsageError(f"--prior {text!r} is not NAME~PRIOR, such as lr~lognormal(0.001,0.5)")
    return name, prior


def _with_prior(parameter: Parameter, spec: PriorSpec) -> Parameter:
    if isinstance(parameter, FixedParameter):
        raise UsageError(f"a prior is given for {parameter.name}, which is fixed; leave it out")
    if isinstance(parameter, ChoiceParameter | BooleanParameter):
        return replace(parameter, prior=_of_choices(parameter, spec))
    return replace(parameter, prior=_of_numbers(parameter, spec))


def _of_choices(parameter: ChoiceParameter | BooleanParameter, spec: PriorSpec) -> Prior:
    weights = [1.0] * len(parameter.values)
    for choice, weight in _weights(parameter.name, spec).items():
        found = position(parameter.read(choice), parameter.values)
        if found is None:
            allowed = ", ".join(map(repr, parameter.values))
            raise UsageError(
                f"the prior of {parameter.name} has {choice!r}; its choices are {allowed}"
            )
        weights[found] = weight
    if not sum(weights) > 0.0:
        raise UsageError(
            f"the prior of {parameter.name} gives every choice the weight 0; give one more"
        )
    return Prior(tuple(weights))


def _weights(name: str, spec: PriorSpec) -> dict[str, float]:
    if isinstance(spec, Mapping):
        pairs = [(str(choice), str(weight)) for choice, weight in spec.items()]
    else:
        inside = re.fullmatch(r"\{(.*)\}", spec.strip())
        if inside is None:
            raise UsageError(
                f"the prior of {name} is {spec!r}; for choices give weights, such as "
                f"{name}~{{CHOICE:3}} (a choice that is not named has the weight 1)"
            )
        parts = filter(None, (part.strip() for part in inside[1].split(",")))
        pairs = [(choice, weight) for choice, _, weight in (p.rpartition(":") for p in parts)]
    found: dict[str, float] = {}
    for choice, weight in pairs:
        number = _number(weight)
        if number is None or number < 0.0:
            raise UsageError(
                f"the prior of {name} gives {choice!r} the weight {weight!r}; give a number of 0 "
                "or more"
            )
        found[choice.strip().strip("\"'")] = number
    return found


def _of_numbers(parameter: FloatParameter | IntParameter, spec: PriorSpec) -> Prior:
    described = f"the prior of {parameter.name} is {spec!r}"
    form = None if isinstance(spec, Mapping) else re.fullmatch(r"(\w+)\((.*)\)", spec.strip())
    if form is None:
        raise UsageError(f"{described}; {_FORMS}, the last one for choices")
    if form[1] not in _SHAPES:
        raise UsageError(f"{described}; {_FORMS}.{did_you_mean(form[1], _SHAPES, '{}')}")
    numbers = [_number(part) for part in form[2].split(",")]
    if len(numbers) != 2 or None in numbers:
        raise UsageError(f"{described}; {form[1]} takes two numbers")
    centre, deviation = (number or 0.0 for number in numbers)
    if not deviation > 0.0 or (form[1] == "lognormal" and not centre > 0.0):
        which = "the median and the deviation" if form[1] == "lognormal" else "the deviation"
        raise UsageError(f"{described}; {which} must be above 0")
    prior = prior_of_cells(_edges(parameter), _SHAPES[form[1]](centre, deviation))
    if prior is None:
        raise UsageError(
            f"{described}, which has almost no weight within {parameter.bounds}; move the prior "
            "or the bounds"
        )
    return prior


def _edges(parameter: FloatParameter | IntParameter) -> list[float]:
    """Return the boundaries, as values, of cells of equal length on the unit interval."""
    values = parameter.values
    is_stepped = parameter.step is not None and values is not None
    if is_stepped and values is not None and 1 < len(values) <= _CELLS:
        middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
        return [2 * values[0] - middles[0], *middles, 2 * values[-1] - middles[-1]]
    low, high, scale = parameter.low, parameter.high, parameter.scale
    if isinstance(parameter, IntParameter) or low == high:
        high += 1
    return [project(k / _CELLS, low, high, scale) for k in range(_CELLS + 1)]


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None

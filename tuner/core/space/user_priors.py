"""What the user believes about hyperparameters (`--prior`), applied to a search space."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping
from dataclasses import replace

from ...errors import UsageError
from .completion import unknown_name
from .parameters import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
)
from .parameters.checks import position
from .parameters.priors import Prior, between, lognormal, normal
from .parameters.scales import project
from .space import SearchSpace

Belief = str | Mapping[str, float]
"""`"normal(128, 64)"`, `"lognormal(0.001, 0.5)"`, or weights of choices: `{"relu": 3, "tanh": 1}`
(also as text)."""

_CELLS = 512
_SHAPES = {"normal": normal, "lognormal": lognormal}
_FORMS = "allowed are normal(MEAN,SD), lognormal(MEDIAN,SD OF THE LOGARITHM) and {CHOICE:WEIGHT,…}"


def believing(space: SearchSpace, beliefs: Mapping[str, Belief]) -> SearchSpace:
    """The same space, on whose unit cube more room is given to what is believed to be good.

    Random draws, low-discrepancy starts and the even parts of a model's densities then follow the
    priors, since all of them are even on the unit cube. BOPrO (Souza et al. 2021, "Bayesian
    optimization with a prior for the optimum") and πBO (Hvarfner et al. 2022, "πBO: Augmenting
    acquisition functions with user beliefs") multiply the prior into the model or into what it
    promises, and have to let it fade. A bent ruler works with any sampler; a model that learns
    from values on it is soon sure of them, whatever the prior said.

    Args:
        space: The space.
        beliefs: What is believed, by name; it counts for every declaration of the name.

    Raises:
        UsageError: There is no such parameter, or the belief makes no sense for it.
    """
    names = {parameter.name for parameter in space}
    for name in beliefs:
        if name not in names:
            raise UsageError(f"a prior makes no sense: {unknown_name(name, space)}")
    return SearchSpace(
        tuple(
            _with_prior(each, beliefs[each.name]) if each.name in beliefs else each
            for each in space
        )
    )


def read_belief(said: str) -> tuple[str, str]:
    """The name and the belief of one `--prior`.

    >>> read_belief("lr ~ lognormal(0.001, 0.5)")
    ('lr', 'lognormal(0.001, 0.5)')

    Raises:
        UsageError: There is no `~` between two words.
    """
    name, tilde, belief = (part.strip() for part in said.partition("~"))
    if not (name and tilde and belief):
        raise UsageError(f"--prior {said!r} is not NAME~PRIOR, such as lr~lognormal(0.001,0.5)")
    return name, belief


def _with_prior(parameter: Parameter, belief: Belief) -> Parameter:
    if isinstance(parameter, FixedParameter):
        raise UsageError(f"a prior is given for {parameter.name}, which is fixed; leave it out")
    if isinstance(parameter, ChoiceParameter | BooleanParameter):
        return replace(parameter, prior=_of_choices(parameter, belief))
    return replace(parameter, prior=_of_numbers(parameter, belief))


def _of_choices(parameter: ChoiceParameter | BooleanParameter, belief: Belief) -> Prior:
    weights = [1.0] * len(parameter.values)
    for choice, weight in _weights(parameter.name, belief).items():
        found = position(parameter.read(choice), parameter.values)
        if found is None:
            allowed = ", ".join(map(repr, parameter.values))
            raise UsageError(
                f"the prior of {parameter.name} has {choice!r}; its choices are {allowed}"
            )
        weights[found] = weight
    if not sum(weights) > 0.0:
        raise UsageError(f"the prior of {parameter.name} gives every choice the weight 0")
    return Prior(tuple(weights))


def _weights(name: str, belief: Belief) -> dict[str, float]:
    if isinstance(belief, Mapping):
        pairs = [(str(choice), str(weight)) for choice, weight in belief.items()]
    else:
        inside = re.fullmatch(r"\{(.*)\}", belief.strip())
        if inside is None:
            raise UsageError(
                f"the prior of {name} is {belief!r}; of choices it must be weights, such as "
                f"{name}~{{CHOICE:3}} (those that are not named have the weight 1)"
            )
        parts = filter(None, (part.strip() for part in inside[1].split(",")))
        pairs = [(choice, weight) for choice, _, weight in (p.rpartition(":") for p in parts)]
    found: dict[str, float] = {}
    for choice, weight in pairs:
        number = _number(weight)
        if number is None or number < 0.0:
            raise UsageError(
                f"the prior of {name} gives {choice!r} the weight {weight!r}; allowed are numbers "
                "from 0 on"
            )
        found[choice.strip().strip("\"'")] = number
    return found


def _of_numbers(parameter: FloatParameter | IntParameter, belief: Belief) -> Prior:
    said = f"the prior of {parameter.name} is {belief!r}"
    form = None if isinstance(belief, Mapping) else re.fullmatch(r"(\w+)\((.*)\)", belief.strip())
    if form is None:
        raise UsageError(f"{said}; {_FORMS}, the last one for choices")
    if form[1] not in _SHAPES:
        near = difflib.get_close_matches(form[1], _SHAPES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise UsageError(f"{said}; {_FORMS}.{hint}")
    numbers = [_number(part) for part in form[2].split(",")]
    if len(numbers) != 2 or None in numbers:
        raise UsageError(f"{said}; {form[1]} takes two numbers")
    centre, deviation = (number or 0.0 for number in numbers)
    if not deviation > 0.0 or (form[1] == "lognormal" and not centre > 0.0):
        which = "the median and the deviation" if form[1] == "lognormal" else "the deviation"
        raise UsageError(f"{said}; {which} must be above 0")
    prior = between(_edges(parameter), _SHAPES[form[1]](centre, deviation))
    if prior is None:
        raise UsageError(
            f"{said}, which expects next to nothing within {parameter.bounds}; move the prior or "
            "the bounds"
        )
    return prior


def _edges(parameter: FloatParameter | IntParameter) -> list[float]:
    """Where cells of equal length on the unit interval begin and end, in values."""
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

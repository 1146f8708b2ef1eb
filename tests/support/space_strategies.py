"""Random search spaces for property tests: every kind, scale and step, with nested conditions."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import ParamValue

WORDS = st.text("abcxyz 01", min_size=0, max_size=3)
SCALES = st.sampled_from(Scale)


@st.composite
def floats(draw: st.DrawFn, name: str = "p") -> FloatParameter:
    scale = draw(SCALES)
    low = draw(st.floats(1e-6, 1e3)) if scale is not Scale.LINEAR else draw(st.floats(-1e3, 1e3))
    high = draw(
        st.just(low) | st.floats(low, low + 1e3) | st.floats(low, max(low * 1.5, low + 0.5))
    )
    step = None
    if draw(st.booleans()) and high > low:
        width = high / low if scale is not Scale.LINEAR else high - low
        if scale is Scale.LINEAR and width > 1e-6:
            step = width / draw(st.floats(0.5, 9.0))
        elif scale is not Scale.LINEAR:
            step = draw(st.floats(1.2, 20.0))
    default = draw(st.none() | st.floats(low, high))
    return FloatParameter(name, low, high, step=step, scale=scale, default=default)


@st.composite
def integers(draw: st.DrawFn, name: str = "p", largest: int = 2**40) -> IntParameter:
    scale = draw(SCALES)
    low = draw(st.integers(-largest if scale is Scale.LINEAR else 1, largest))
    high = draw(st.integers(low, min(low + 12, largest)) | st.integers(low, largest))
    least = 1 if scale is Scale.LINEAR else 2
    step = draw(st.none() | st.integers(least, max(least, (high - low) * 2)))
    default = draw(st.none() | st.integers(low, high))
    return IntParameter(name, low, high, step=step, scale=scale, default=default)


@st.composite
def choices(draw: st.DrawFn, name: str = "p") -> ChoiceParameter:
    kinds: list[st.SearchStrategy[ParamValue]] = [
        WORDS,
        st.integers(-3, 3),
        st.floats(-2, 2).map(lambda x: x + 0.0),
        st.booleans(),
    ]
    values = draw(st.lists(draw(st.sampled_from(kinds)), min_size=1, max_size=4))
    return ChoiceParameter(name, tuple(values), default=draw(st.none() | st.sampled_from(values)))


def parameters(name: str = "p", *, largest: int = 2**40) -> st.SearchStrategy[Parameter]:
    return st.one_of(
        floats(name),
        integers(name, largest),
        choices(name),
        st.booleans().map(lambda default: BooleanParameter(name, default=default)),
        st.one_of(st.integers(), st.floats(-9, 9), WORDS, st.booleans()).map(
            lambda value: FixedParameter(name, value)
        ),
    )


def small_parameters(name: str) -> st.SearchStrategy[Parameter]:
    """Return parameters of at most some ten values, so that all configurations can be listed."""
    return st.one_of(
        st.integers(-3, 3).flatmap(
            lambda low: st.integers(0, 4).map(lambda width: IntParameter(name, low, low + width))
        ),
        st.integers(1, 3).map(lambda low: IntParameter(name, low, 4, scale=Scale.LOG)),
        st.sampled_from([1.0, 0.5]).map(lambda step: FloatParameter(name, 0.0, 1.0, step=step)),
        choices(name),
        st.just(BooleanParameter(name)),
        st.integers(0, 1).map(lambda value: FixedParameter(name, value)),
    )


@st.composite
def spaces(
    draw: st.DrawFn, *, most: int = 5, small: bool = False, largest: int = 2**40
) -> SearchSpace:
    """Return spaces in which a declaration may depend on earlier ones, and repeat a name."""
    found: list[Parameter] = []
    for _ in range(draw(st.integers(0, most))):
        name = draw(st.sampled_from("abcdef"))
        kinds = small_parameters(name) if small else parameters(name, largest=largest)
        parameter = draw(kinds)
        conditions: tuple[Condition, ...] = ()
        parents = [earlier for earlier in found if earlier.name != name]
        conditional = draw(st.booleans())
        if conditional and parents:
            parent = draw(st.sampled_from(parents))
            conditions = parent.conditions  # a scope within the parent's scope, as in KerasTuner
            if all(condition.name != name for condition in conditions):
                units = draw(st.lists(st.floats(0, 1), min_size=1, max_size=2))
                values = tuple(parent.from_unit(u) for u in units)
                conditions = (*conditions, Condition(parent.name, values))
            else:
                conditions = ()
        if all((name, conditions) != (known.name, known.conditions) for known in found):
            found.append(dataclasses.replace(parameter, conditions=conditions))
    return SearchSpace(tuple(found))

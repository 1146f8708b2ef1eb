"""Search spaces that have broken samplers before: small, odd, nested, crowded."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from ..core.trial import Params

EMPTY = SearchSpace()
"""Nothing to search: one configuration, without values."""

SINGLETONS = SearchSpace(
    (
        FixedParameter("optimizer", "adam"),
        IntParameter("layers", 3, 3),
        FloatParameter("rate", 0.5, 0.5),
        FloatParameter("decay", 0.1, 0.1, scale=Scale.LOG),
        IntParameter("width", 8, 8, scale=Scale.LOG),
        ChoiceParameter("activation", ("relu",)),
    )
)
"""Every parameter has one value."""

ALL_TYPES = SearchSpace(
    (
        IntParameter("layers", 1, 9),
        IntParameter("units", 16, 512, step=16),
        IntParameter("batch", 8, 256, step=2, scale=Scale.LOG),
        IntParameter("warmup", 1, 1000, scale=Scale.LOG),
        FloatParameter("dropout", 0.0, 0.5),
        FloatParameter("momentum", 0.0, 0.9, step=0.1),
        FloatParameter("rate", 1e-5, 1e-1, scale=Scale.LOG),
        FloatParameter("decay", 0.9, 0.999, scale=Scale.REVERSE_LOG),
        ChoiceParameter("activation", ("relu", "tanh", "gelu")),
        ChoiceParameter("scale", (0.5, 1.0, 2.0)),
        BooleanParameter("augment"),
        FixedParameter("epochs", 3),
    )
)
"""Every kind, scale and step there is; infinite."""

PLAIN = SearchSpace(
    (
        IntParameter("layers", 1, 3),
        ChoiceParameter("activation", ("relu", "tanh", "gelu")),
        BooleanParameter("augment"),
        FloatParameter("dropout", 0.0, 1.0, step=0.5),
    )
)
"""54 configurations, without conditions."""

STEPS = SearchSpace(
    (
        IntParameter("batch", 2, 20, step=2, scale=Scale.LOG),
        FloatParameter("rate", 1e-3, 1e-1, step=10, scale=Scale.LOG),
        FloatParameter("mirrored", 1.0, 100.0, step=10, scale=Scale.REVERSE_LOG),
        IntParameter("width", 1, 3, scale=Scale.LOG),
    )
)
"""Steps that multiply, and whole numbers on a log scale; 108 configurations."""

LOOKALIKES = SearchSpace(
    (
        ChoiceParameter("whole", (0, 1)),
        ChoiceParameter("word", ("0", "", "None", None)),
        ChoiceParameter("real", (0.0, 1.0, 1.0000000000000002)),
        BooleanParameter("flag"),
        IntParameter("deep", 0, 1, conditions=(Condition("flag", (True,)),)),
    )
)
"""0, 0.0, "0" and False side by side, "None" and None, and two neighbouring floats; 72
configurations."""

NESTED = SearchSpace(
    (
        ChoiceParameter("cell", ("lstm", "gru", "dense")),
        BooleanParameter("peephole", conditions=(Condition("cell", ("lstm",)),)),
        IntParameter("units", 1, 4, conditions=(Condition("cell", ("lstm",)),)),
        IntParameter("units", 5, 6, conditions=(Condition("cell", ("gru", "dense")),)),
        IntParameter("layers", 1, 3, conditions=(Condition("cell", ("dense",)),)),
        ChoiceParameter(
            "skip",
            ("add", "concat"),
            conditions=(Condition("cell", ("dense",)), Condition("layers", (2, 3))),
        ),
        BooleanParameter(
            "project",
            conditions=(
                Condition("cell", ("dense",)),
                Condition("layers", (2, 3)),
                Condition("skip", ("add",)),
            ),
        ),
        BooleanParameter("bias"),
    )
)
"""Scopes within scopes, and one name declared in two of them; 48 configurations."""

LOPSIDED = SearchSpace(
    (
        IntParameter("kind", 0, 30),
        *(BooleanParameter(f"bit{i}", conditions=(Condition("kind", (0,)),)) for i in range(5)),
    )
)
"""Half of the 62 configurations hide behind one value in 31."""

CONDITIONAL_CONTINUUM = SearchSpace(
    (
        ChoiceParameter("optimizer", ("sgd", "adam")),
        FloatParameter(
            "rate", 1e-4, 1.0, scale=Scale.LOG, conditions=(Condition("optimizer", ("adam",)),)
        ),
        FloatParameter("rate", 1e-2, 10.0, conditions=(Condition("optimizer", ("sgd",)),)),
        BooleanParameter("nesterov", conditions=(Condition("optimizer", ("sgd",)),)),
        FloatParameter(
            "momentum",
            0.0,
            0.99,
            conditions=(Condition("optimizer", ("sgd",)), Condition("nesterov", (True,))),
        ),
    )
)
"""Infinite, with conditions, and one name with two ranges."""

FINITE: Mapping[str, SearchSpace] = {
    "empty": EMPTY,
    "singletons": SINGLETONS,
    "plain": PLAIN,
    "steps": STEPS,
    "lookalikes": LOOKALIKES,
    "nested": NESTED,
    "lopsided": LOPSIDED,
}
INFINITE: Mapping[str, SearchSpace] = {
    "all types": ALL_TYPES,
    "conditional continuum": CONDITIONAL_CONTINUUM,
}
SPACES: Mapping[str, SearchSpace] = {**FINITE, **INFINITE}

BRANIN = SearchSpace((FloatParameter("x", -5.0, 10.0), FloatParameter("y", 0.0, 15.0)))
"""The domain of `branin`."""

BRANIN_LEAST = 0.39788735772973816


def branin(params: Params) -> float:
    """Branin's function: three equal minima of `BRANIN_LEAST`, and hills above 300.

    >>> round(branin({"x": 3.141592653589793, "y": 2.275}) - BRANIN_LEAST, 9)
    0.0
    """
    x, y = params["x"], params["y"]
    if not isinstance(x, float) or not isinstance(y, float):
        raise TypeError(f"x is {x!r} and y is {y!r}; both must be floats")
    valley = y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6
    return valley**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10

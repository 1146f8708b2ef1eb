"""Functions of two or three costs, with their fronts."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

from hptune.core.space.space import ChoiceParameter, FloatParameter, Scale, SearchSpace
from hptune.core.trial import Params

from .several import Costs, Problem


def _zdt(front: Callable[[float, float], float]) -> Callable[[Params], Costs]:
    """Return a problem of Zitzler, Deb and Thiele 2000, section 3, with fewer variables."""

    def costs(params: Params) -> Costs:
        first, *rest = (float(params[p.name] or 0) for p in _cube(5))
        g = 1 + 9 * sum(rest) / len(rest)
        return first, g * front(first, g)

    return costs


def _dtlz2(params: Params) -> Costs:
    """Deb, Thiele, Laumanns and Zitzler 2005: an eighth of a sphere."""
    first, second, *rest = (float(params[p.name] or 0) for p in _cube(6))
    radius = 1 + sum((each - 0.5) ** 2 for each in rest)
    a, b = first * math.pi / 2, second * math.pi / 2
    return (
        radius * math.cos(a) * math.cos(b),
        radius * math.cos(a) * math.sin(b),
        radius * math.sin(a),
    )


def _dtlz7(params: Params) -> Costs:
    """The same authors: a front of four parts."""
    first, second, *rest = (float(params[p.name] or 0) for p in _cube(6))
    g = 2 + 9 * sum(rest) / len(rest)
    parts = (f / g * (1 + math.sin(3 * math.pi * f)) for f in (first, second))
    return first, second, g * (3 - sum(parts))


def _network(params: Params) -> Costs:
    """Imitate a network's error and its size: mixed kinds, on very different scales."""
    width, depth = float(params["width"] or 0), float(params["depth"] or 0)
    rate = math.log10(float(params["rate"] or 0))
    size = width * depth + (width**2 if params["kind"] == "dense" else 4 * width)
    best = -2.5 - 0.5 * depth / 8
    error = 0.05 + 0.6 / (1 + size / 500) + 0.1 * (rate - best) ** 2
    return (error if params["kind"] == "dense" else 0.9 * error + 0.03), size


@functools.cache
def _cube(variables: int) -> SearchSpace:
    return SearchSpace(tuple(FloatParameter(f"x{i}", 0.0, 1.0) for i in range(variables)))


_NETWORK = SearchSpace(
    (
        FloatParameter("width", 1.0, 128.0),
        FloatParameter("depth", 1.0, 8.0),
        FloatParameter("rate", 1e-5, 1e-1, scale=Scale.LOG),
        ChoiceParameter("kind", ("dense", "sparse")),
    )
)


def _at_its_best(width: int, depth: int, kind: str) -> Params:
    return {"width": width, "depth": depth, "rate": 10 ** (-2.5 - 0.5 * depth / 8), "kind": kind}


@functools.cache
def functions() -> dict[str, Problem]:
    """Return the functions by name, with their exact fronts at many points."""
    shapes: dict[str, Callable[[float, float], float]] = {
        "zdt1": lambda first, g: 1 - math.sqrt(first / g),
        "zdt2": lambda first, g: 1 - (first / g) ** 2,
        "zdt3": lambda first, g: (
            1 - math.sqrt(first / g) - first / g * math.sin(10 * math.pi * first)
        ),
    }
    found = {
        name: Problem(
            _cube(5),
            _zdt(shape),
            tuple((i / 20_000, shape(i / 20_000, 1.0)) for i in range(20_001)),
            (1.1, 2.0),
        )
        for name, shape in shapes.items()
    }
    ends = itertools.product(range(1, 129), (1, 8), ("dense", "sparse"))
    front = tuple(_network(_at_its_best(*end)) for end in ends)
    found["network"] = Problem(_NETWORK, _network, front, (0.65, 5000.0))
    for name, costs, best, worst in (
        ("dtlz2", _dtlz2, 0.5, (1.1, 1.1, 1.1)),
        ("dtlz7", _dtlz7, 0.0, (0.95, 0.95, 6.35)),
    ):
        others = {f"x{i}": best for i in range(2, 6)}
        reached = (costs({**params, **others}) for params in _cube(2).grid(41))
        found[name] = Problem(_cube(6), costs, tuple(reached), worst)
    return found

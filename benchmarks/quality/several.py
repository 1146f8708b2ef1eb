"""Problems of two or three costs, and the volume that results dominate of them.

A folder outside the project (`problems`) has surrogates, which predict several outputs (by `raw`;
`m["y"]` has their names), and tables of networks, whose sizes follow from their hyperparameters.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hptune.core.space.space import ChoiceParameter, Parameter, SearchSpace
from hptune.core.trial import Params, ParamValue

from . import problems

Costs = tuple[float, ...]

EVALUATIONS = 20_000
"""For a known front; finite spaces of up to four times as many are tried in full."""
TRAININGS = 300
"""The same, where each is a training."""
_BEYOND = 0.1
"""Distance of the reference point from the worst costs on the front, in parts of its range."""
_STEP = 0.1
"""Standard deviation of a small change, as a part of the range."""
_LEAST = 1e-9


@dataclass(frozen=True)
class Problem:
    """A problem with several costs, all to be minimised.

    Attributes:
        space: The search space.
        costs: Returns the costs of a configuration.
        front: Costs of configurations that no known one dominates.
        given: The reference point, where it is not that of the front.
        ratios: Costs of which ratios count, such as sizes and times; see `by_ratio`.
        source: The folder's problem, which may know the time of a training (`problems.seconds`).
    """

    space: SearchSpace
    costs: Callable[[Params], Costs]
    front: tuple[Costs, ...] = ()
    given: Costs = ()
    ratios: tuple[int, ...] = ()
    source: Any = None

    @functools.cached_property
    def reference(self) -> Costs:
        """Costs beyond which nothing counts."""
        worst, best = (tuple(map(pick, zip(*self.front, strict=True))) for pick in (max, min))
        return self.given or tuple(
            high + _BEYOND * (high - low) for high, low in zip(worst, best, strict=True)
        )

    @functools.cached_property
    def most(self) -> float:
        """The volume that the front dominates."""
        return covered(self.front, self.reference)

    def by_ratio(self, costs: Costs) -> Costs:
        """Return the costs with the logarithms of those of which ratios count."""
        return tuple(
            math.log(max(cost, _LEAST)) if place in self.ratios else cost
            for place, cost in enumerate(costs)
        )

    def missing(self, found: Iterable[Costs]) -> tuple[float, ...]:
        """Return the percentage of the front's volume that is missing after each result."""
        kept: list[Costs] = []
        share, shares = 100.0, []
        for costs in found:
            if all(map(float.__lt__, costs, self.reference)) and not _is_beaten(costs, kept):
                kept = [each for each in kept if not _is_beaten(each, [costs])] + [costs]
                share = round(100.0 * (1.0 - covered(kept, self.reference) / self.most), 3)
            shares.append(share)
        return tuple(shares)


def _is_beaten(costs: Costs, others: Iterable[Costs]) -> bool:
    """Return whether any other costs are as low in all objectives."""
    return any(all(a <= b for a, b in zip(each, costs, strict=True)) for each in others)


def covered(costs: Sequence[Costs], reference: Costs) -> float:
    """Return the hypervolume: what these costs dominate, up to the reference.

    >>> covered([(0.0, 1.0), (1.0, 0.0)], (2.0, 2.0))
    3.0
    >>> covered([(0.0, 1.0, 0.0), (1.0, 0.0, 1.0)], (2.0, 2.0, 2.0))
    5.0
    """
    if len(reference) == 2:
        area, height = 0.0, reference[1]
        for first, second in sorted(costs):
            if first < reference[0] and second < height:
                area += (reference[0] - first) * (height - second)
                height = second
        return area
    inside = sorted((each for each in costs if each[-1] < reference[-1]), key=lambda c: c[-1])
    volume = 0.0
    for place, (here, then) in enumerate(itertools.pairwise([*inside, reference]), start=1):
        if then[-1] > here[-1]:
            layer = covered([each[:-1] for each in inside[:place]], reference[:-1])
            volume += layer * (then[-1] - here[-1])
    return volume


def known_front(problem: Problem, evaluations: int) -> tuple[Costs, ...]:
    """Return the best costs of all configurations, or of random and then of changed good ones."""
    rng = np.random.default_rng(0)
    every = problem.space.configurations()
    good: list[Params] = []
    front = np.empty((0, 0))

    def changed(parent: Params, parameter: Parameter) -> ParamValue:
        drawn = float(rng.random())
        if parameter.name not in parent or rng.random() < 1.0 / len(problem.space):
            return parameter.from_unit(drawn)
        value = parent[parameter.name]
        if not isinstance(parameter, ChoiceParameter) and rng.random() < 0.5:
            near = parameter.to_unit(value) + _STEP * rng.standard_normal()
            return parameter.from_unit(min(max(near, 0.0), np.nextafter(1.0, 0.0)))
        return value

    if every is not None and every.count <= 4 * evaluations:
        tried: Iterable[Params] = every
    else:
        tried = (
            problem.space.sample(rng)
            if number < evaluations // 2
            else problem.space.configure(
                functools.partial(changed, good[int(rng.integers(len(good)))])
            )
            for number in range(evaluations)
        )
    for params in tried:
        costs = np.array(problem.costs(params))
        if not good:
            front = costs[None]
            good = [params]
        elif not (front <= costs).all(axis=1).any():
            kept = np.asarray((front < costs).any(axis=1))
            good = [*itertools.compress(good, kept), params]
            front = np.concatenate([front[kept], costs[None]])
    return tuple(map(tuple, front.tolist()))


# --- problems of a folder ---------------------------------------------------------------------

_MORE_IS_BETTER = ("acc", "val_accuracy")
_RATIOS = ("time", "timetrain", "timepredict", "memory")
SURROGATES: Mapping[str, tuple[str, ...]] = {
    "lcbench-7593": ("val_accuracy", "time"),
    "lcbench-34539": ("val_accuracy", "time"),
    "lcbench-126025": ("val_cross_entropy", "time"),
    "rbv2_xgboost-40923": ("acc", "timetrain"),
    "rbv2_xgboost-41143": ("acc", "timepredict"),
    "lcbench-126026": ("val_accuracy", "val_cross_entropy", "time"),
    "lcbench-126029": ("val_accuracy", "val_cross_entropy", "time"),
    "rbv2_xgboost-1487": ("acc", "timetrain", "memory"),
    "rbv2_xgboost-40499": ("acc", "timetrain", "timepredict"),
}
"""The outputs that are the costs."""


def _surrogate(given: Any, outputs: Sequence[str]) -> Problem:
    signs = [-1.0 if name in _MORE_IS_BETTER else 1.0 for name in outputs]
    places = [given.m["y"].index(name) for name in outputs]

    def costs(params: Params) -> Costs:
        (predicted,) = given.raw([dict(params)])
        return tuple(
            sign * float(predicted[place]) for sign, place in zip(signs, places, strict=True)
        )

    ratios = tuple(place for place, name in enumerate(outputs) if name in _RATIOS)
    return Problem(problems.space_of(given), costs, ratios=ratios, source=given)


def _weights(*widths: int) -> float:
    """Return the number of weights of a network with these inputs, units of layers, and outputs."""
    return float(sum((before + 1) * after for before, after in itertools.pairwise(widths)))


def _of_regressor(inputs: int, given: Any, params: Mapping[str, Any]) -> Costs:
    """The squared error and the weights of a network of FCNet; the table has its logarithm."""
    units = (given.grid[f"n_units_{layer}"][params[f"n_units_{layer}"]] for layer in (1, 2))
    return 10.0 ** given(params), _weights(inputs, *units, 1)


def _of_classifier(inputs: int, classes: int, given: Any, params: Mapping[str, Any]) -> Costs:
    """The negative balanced accuracy and the weights of a network of HPOBench."""
    width = round(16 * 64 ** (params["width"] / 9))
    layers = [width] * given.grid["depth"][params["depth"]]
    return given(params), _weights(inputs, *layers, classes)


def _of_cell(given: Any, params: Mapping[str, Any]) -> Costs:
    """The negative accuracy and the weights of a cell's convolutions, for each pair of channels."""
    sizes = {"nor_conv_1x1": 1.0, "nor_conv_3x3": 9.0}
    return given(params), sum(sizes.get(each, 0.0) for each in params.values())


_TABLES: Mapping[str, tuple[Callable[..., Costs], tuple[int, ...]]] = {
    "hpolib-protein_structure": (functools.partial(_of_regressor, 9), (0, 1)),
    "hpolib-slice_localization": (functools.partial(_of_regressor, 385), (0, 1)),
    "hpobench-vehicle": (functools.partial(_of_classifier, 18, 4), (1,)),
    "nasbench201-imagenet": (_of_cell, ()),
}
"""The costs, and those of which ratios count."""
OF_FOLDER = (*SURROGATES, *_TABLES)


def of_folder(folder: Path, name: str) -> Problem:
    """Return a problem of the folder; its front is not known yet."""
    given = problems.load(folder).get(name)
    if name in SURROGATES:
        return _surrogate(given, SURROGATES[name])
    costs, ratios = _TABLES[name]
    space = problems.space_of(given)
    return Problem(space, lambda params: costs(given, dict(params)), ratios=ratios, source=given)

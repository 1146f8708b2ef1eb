"""Synthetic spaces of models, a third of which need more memory than there is.

For `search_quality.py --data benchmarks/memory_limits`. A problem's value is a loss with the
minimum 0, or NaN if the model does not fit. The loss does not know the limit: with `-unlimited`
after a name, the same function has values everywhere.

The best configuration of the problems `-border` needs 90 % of the memory, and that of `-inside`
20 %. With `-flaky` after a name, 5 % of the configurations that fit fail for no reason.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

Config = Mapping[str, Any]

_LIMIT_SHARE = 2 / 3
"""Share of the space that fits."""
_FLAKY_SHARE = 0.05
_NEEDED = {"border": 0.9, "inside": 0.2}
"""Memory that the best configuration needs, as a part of the limit."""
_DRAWS = 2_000


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter, as `quality.problems` reads it."""

    name: str
    kind: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: tuple[Any, ...] = ()
    parent: str | None = None
    values: tuple[Any, ...] = ()

    def at(self, unit: float) -> Any:
        """Return the value at a position in [0, 1)."""
        if self.kind == "cat":
            return self.choices[int(unit * len(self.choices))]
        low, high = (self.low - 0.499, self.high + 0.499) if self.kind == "int" else self._range
        if self.log:
            value = math.exp(math.log(low) + unit * math.log(high / low))
        else:
            value = low + unit * (high - low)
        return round(value) if self.kind == "int" else value

    def position(self, value: Any) -> float:
        """Return the position of a value in [0, 1]."""
        if self.kind == "cat":
            return self.choices.index(value) / (len(self.choices) - 1)
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return float((value - self.low) / (self.high - self.low))

    @property
    def _range(self) -> tuple[float, float]:
        return self.low, self.high


def _int(name: str, low: int, high: int, *, log: bool = False) -> Parameter:
    return Parameter(name, "int", low, high, log)


def _log(name: str, low: float, high: float) -> Parameter:
    return Parameter(name, "float", low, high, log=True)


_RATE = _log("learning_rate", 1e-5, 1e-1)
_DECAY = _log("weight_decay", 1e-6, 1e-2)
_DROPOUT = Parameter("dropout", "float", 0.0, 0.6)


def _mlp(c: Config) -> float:
    weights = 784 * c["units"] + c["layers"] * c["units"] ** 2
    return float(16 * weights + 12 * c["batch_size"] * c["units"] * c["layers"])


def _cnn(c: Config) -> float:
    weights = sum(9 * (c["filters"] * 2**k) ** 2 for k in range(c["blocks"]))
    kept = sum(c["filters"] * c["image"] ** 2 / 2**k for k in range(c["blocks"]))
    return float(16 * weights + 12 * c["batch_size"] * kept)


def _transformer(c: Config) -> float:
    width, length = c["width"], c["sequence"]
    kept = length * (34.0 * width + 5.0 * c["heads"] * length)
    return float(c["layers"] * (192.0 * width**2 + c["batch_size"] * kept))


def _recurrent(c: Config) -> float:
    gates = {"gru": 3, "lstm": 4, "simple": 1}[c["cell"]] * (2 if c["both_ways"] == "yes" else 1)
    attention = 4.0 * c.get("attention_units", 0) * c["steps"]
    weights = 16.0 * gates * c["units"] ** 2
    return float(weights + c["batch_size"] * (c["steps"] * gates * c["units"] * 8.0 + attention))


def _wide(c: Config) -> float:
    return float(c["units"] * c["batch_size"])


def _segmentation(c: Config) -> float:
    states = {"sgd": 8.0, "momentum": 12.0, "adam": 16.0}[c["optimizer"]]
    kept = 2.0 if c["mixed_precision"] == "yes" else 4.0
    weights = sum(18 * (c["filters"] * 2**k) ** 2 for k in range(c["depth"]))
    pixels = c["crop"] ** 2 * c["batch_size"]
    return float(states * weights + kept * pixels * c["filters"] * (2 + c["depth"]) * 4)


@dataclass(frozen=True, slots=True)
class _Family:
    space: tuple[Parameter, ...]
    memory: Callable[[Config], float]


_FAMILIES = {
    "mlp": _Family(
        (
            _int("units", 16, 8192, log=True),
            _int("layers", 1, 12),
            _int("batch_size", 16, 4096, log=True),
            _RATE,
            _DROPOUT,
        ),
        _mlp,
    ),
    "cnn": _Family(
        (
            _int("filters", 8, 128, log=True),
            _int("blocks", 2, 6),
            Parameter("image", "int", 32, 320),
            _int("batch_size", 8, 256, log=True),
            _RATE,
            _DECAY,
            _DROPOUT,
        ),
        _cnn,
    ),
    "transformer": _Family(
        (
            _int("width", 64, 2048, log=True),
            _int("layers", 1, 24),
            _int("heads", 1, 16, log=True),
            _int("sequence", 64, 2048, log=True),
            _int("batch_size", 4, 256, log=True),
            _RATE,
            _DECAY,
            _DROPOUT,
        ),
        _transformer,
    ),
    "recurrent": _Family(
        (
            Parameter("cell", "cat", choices=("gru", "lstm", "simple")),
            Parameter("both_ways", "cat", choices=("no", "yes")),
            _int("units", 16, 2048, log=True),
            _int("steps", 16, 1024, log=True),
            _int("batch_size", 8, 512, log=True),
            Parameter("attention", "cat", choices=("no", "yes")),
            Parameter(
                "attention_units", "int", 16, 4096, log=True, parent="attention", values=("yes",)
            ),
            _RATE,
        ),
        _recurrent,
    ),
    "wide": _Family(
        (_int("units", 16, 16384, log=True), _int("batch_size", 8, 8192, log=True), _RATE), _wide
    ),
    "segmentation": _Family(
        (
            Parameter("optimizer", "cat", choices=("sgd", "momentum", "adam")),
            Parameter("mixed_precision", "cat", choices=("no", "yes")),
            _int("filters", 8, 96, log=True),
            _int("depth", 2, 6),
            Parameter("crop", "int", 64, 512),
            _int("batch_size", 1, 64, log=True),
            _RATE,
            _DECAY,
        ),
        _segmentation,
    ),
}

SEARCH = (
    "mlp-border",
    "cnn-inside",
    "transformer-border",
    "recurrent-inside",
    "wide-border",
    "segmentation-inside",
)


class Problem:
    """A loss with the minimum 0, which is NaN where the model does not fit.

    Args:
        name: A name of `SEARCH`, or one with the other place of the optimum; with `-unlimited` or
            `-flaky` after it.
    """

    fmin = 0.0

    def __init__(self, name: str) -> None:
        family, place, *self._kinds = name.split("-")
        self.space = _FAMILIES[family].space
        self._memory = _FAMILIES[family].memory
        rng = random.Random(f"{family}-{place}")
        drawn = [self._draw(rng) for _ in range(_DRAWS)]
        needed = np.array([self._memory(config) for config in drawn])
        self._limit = float(np.quantile(needed, _LIMIT_SHARE))
        wanted = _NEEDED[place] * self._limit
        # Of configurations that need about as much memory, one far from the bounds of the rest.
        near = np.argsort(np.abs(np.log(needed / wanted)))[:20]
        self._best = drawn[max(near, key=lambda k: self._room(drawn[k]))]
        self._weights = {p.name: rng.uniform(0.3, 2.0) for p in self.space}
        self._slants = {p.name: rng.uniform(-1.0, 1.0) for p in self.space}
        self.fmed = float(np.median([self.loss(config) for config in drawn]))

    def __call__(self, config: Config) -> float:
        """Return the loss; NaN if the model does not fit, or fails for no reason."""
        if "unlimited" not in self._kinds and self._memory(config) > self._limit:
            return math.nan
        if "flaky" in self._kinds:
            named = sorted(config.items())
            if random.Random(repr(named)).random() < _FLAKY_SHARE:
                return math.nan
        return self.loss(config)

    def loss(self, config: Config) -> float:
        """Return the loss, as if there were memory enough: a slanted bowl with ripples."""
        bowl = ripples = slant = 0.0
        for parameter in self.space:
            name = parameter.name
            if name not in config or name not in self._best:
                bowl += 0.1 * (name in config or name in self._best)
                continue
            off = parameter.position(config[name]) - parameter.position(self._best[name])
            bowl += self._weights[name] * off * off
            slant += self._slants[name] * off
            ripples += 0.02 * (1.0 - math.cos(5.0 * math.pi * off))
        return bowl + slant * slant + ripples

    def _room(self, config: Config) -> float:
        """Return the distance of the parameters from their bounds, summed."""
        places = [p.position(config[p.name]) for p in self.space if p.name in config]
        return sum(min(place, 1.0 - place) for place in places)

    def _draw(self, rng: random.Random) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for parameter in self.space:
            if parameter.parent is None or chosen.get(parameter.parent) in parameter.values:
                chosen[parameter.name] = parameter.at(rng.random())
        return chosen


@cache
def get(name: str) -> Problem:
    """Return the problem of this name."""
    return Problem(name)

"""Problems from a folder outside the project, and their spaces as ours.

The folder's `problems.py` offers `SEARCH` (names) and `get(name)`: a function of a configuration,
with `space` (a list of parameters with name, kind "float", "int" or "cat", low, high, log,
choices, parent, values), `fmin` (the best known value) and `fmed` (the median of a random draw).
Where they are known, it has `seconds(params)`, the time of a training, and `noise`, the standard
deviation of the value between repeated trainings of a good configuration.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from pathlib import Path
from typing import Any

from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Params

LEAST_SCORE = -4.0
_SPREAD = 0.8
"""Standard deviation of a drawn time's logarithm. Recorded trainings have 0.7 to 0.9 (networks
on tables, lcbench) and 1.2 to 1.8 (boosting, rbv2_xgboost)."""


def load(folder: Path) -> Any:
    """Return the folder's module of problems."""
    if not (folder / "problems.py").is_file():
        sys.exit(f"error: {folder} has no problems.py; give the folder of the problems by --data")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("problems")


def space_of(problem: Any) -> SearchSpace:
    """Return the problem's search space."""
    return SearchSpace(tuple(_parameter(given) for given in problem.space))


def score(problem: Any, value: float) -> float:
    """Return log10 of the regret over a median random draw's, at least -4; lower is better."""
    regret = (value - problem.fmin) / (problem.fmed - problem.fmin)
    return max(math.log10(max(regret, 1e-300)), LEAST_SCORE)


def floor(problem: Any) -> float:
    """Return the score below which differences are those between repeated trainings."""
    noise = float(getattr(problem, "noise", 0.0))
    return score(problem, problem.fmin + noise)


def seconds(name: str, problem: Any, params: Params) -> float:
    """Return how long a training takes: as the problem says, else a lognormal time.

    The latter depends on the problem's name and the configuration only, so it is the same in all
    searches.
    """
    if hasattr(problem, "seconds"):
        return float(problem.seconds(params))
    drawn = random.Random(f"{name} {sorted(params.items())}")
    return drawn.lognormvariate(0.0, _SPREAD)


def _parameter(given: Any) -> Parameter:
    conditions: tuple[Condition, ...] = ()
    if given.parent is not None:
        conditions = (Condition(given.parent, tuple(given.values)),)
    scale = Scale.LOG if given.log else Scale.LINEAR
    match given.kind:
        case "cat":
            return ChoiceParameter(given.name, tuple(given.choices), conditions=conditions)
        case "int":
            low, high = int(given.low), int(given.high)
            return IntParameter(given.name, low, high, scale=scale, conditions=conditions)
        case "float":
            return FloatParameter(
                given.name, given.low, given.high, scale=scale, conditions=conditions
            )
        case _:
            raise ValueError(f"{given.name} is of kind {given.kind!r}; known: cat, int, float")

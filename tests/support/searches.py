# Searches from their first trial on, one trial after the other.

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from hptune.core.sampler import Sampler
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Params, Trial, TrialState
from hptune.testing.samplers import waiting
from hptune.testing.spaces import BRANIN_LEAST, SPACES, branin

LINE = SearchSpace((FloatParameter("x", 0.0, 1.0),))
MOST_SPACES = tuple(name for name in SPACES if name not in ("nested", "all types"))
"""Slow for wrapped samplers, whose own suites test all spaces."""


def searched(
    sampler: Sampler, objective: Callable[[Params], float], numbers: Iterable[int]
) -> list[float]:
    """Return the values of a sampler's proposals; it learns each one before the next question."""
    values = []
    for number in numbers:
        (suggestion,) = sampler.ask([number])
        values.append(objective(suggestion.params))
        trial = waiting(number, suggestion)
        sampler.tell(trial)
        ended = Trial(number, trial.params, trial.origin, TrialState.COMPLETE, value=values[-1])
        sampler.tell(ended)
    return values


def branin_regret(sampler: Sampler, trials: int) -> float:
    """Return how far from the optimum of Branin's function a search ends, in powers of ten."""
    return math.log10(min(searched(sampler, branin, range(trials))) - BRANIN_LEAST + 1e-6)

"""In which spaces, and knowing what, a sampler is tried by its conformance suite."""

from __future__ import annotations

import enum
import functools
import zlib
from dataclasses import dataclass, replace

import numpy as np

from ..core.space.space import SearchSpace
from ..core.trial import Params, Trial, TrialState
from .spaces import FINITE, INFINITE, SPACES

TOLD = 30
LEFT_OVER = 3


class Phase(enum.StrEnum):
    """What the sampler knows before a test begins."""

    FRESH = "fresh"
    TOLD = "told"
    RACED = "raced"
    """Told as much, of trials that were compared at rungs, where poor ones are stopped early."""
    NEARLY_EXHAUSTED = "nearly exhausted"


@dataclass(frozen=True, slots=True)
class Case:
    """A space and a phase."""

    space_name: str
    phase: Phase

    def __str__(self) -> str:
        return f"{self.space_name}, {self.phase}"

    @property
    def space(self) -> SearchSpace:
        """The space itself."""
        return SPACES[self.space_name]

    def history(self) -> list[Trial]:
        """Return the trials that `tell` passes first; they come from no sampler."""
        return [*_history(self)]


@functools.cache
def _history(case: Case) -> list[Trial]:
    space = case.space
    every = space.configurations()
    match case.phase:
        case Phase.FRESH:
            count = 0
        case Phase.TOLD | Phase.RACED:
            count = TOLD if every is None else min(TOLD, every.count // 2)
        case Phase.NEARLY_EXHAUSTED:
            count = max(0, every.count - LEFT_OVER) if every is not None else 0
    rng = np.random.default_rng(7)
    if every is None:
        drawn = [space.sample(rng) for _ in range(count)]
    else:
        drawn = [every.at(int(k)) for k in rng.permutation(every.count)[:count]]
    trials = [ended(space, number, params) for number, params in enumerate(drawn)]
    return [raced(trial) for trial in trials] if case.phase is Phase.RACED else trials


# A space of one configuration has one phase.
FINITE_CASES = [
    Case(name, phase)
    for name, space in FINITE.items()
    for phase in (Phase.FRESH, Phase.TOLD, Phase.NEARLY_EXHAUSTED)
    if phase is Phase.FRESH or space.size() != 1
]
INFINITE_CASES = [
    Case(name, phase) for name in INFINITE for phase in (Phase.FRESH, Phase.TOLD, Phase.RACED)
]
CASES = FINITE_CASES + INFINITE_CASES
# A sampler that begins without trials has learned as much long before the space is exhausted.
EXHAUSTIBLE_CASES = [case for case in FINITE_CASES if case.phase is not Phase.TOLD]


def ended(space: SearchSpace, number: int, params: Params) -> Trial:
    """The trial with this number as it ends: most are COMPLETE, some FAILED, some PRUNED.

    Values are made up, the same ones whenever the same configuration is tried.
    """
    noise = zlib.crc32(repr(space.key(params)).encode()) / 2**32
    units = [p.to_unit(params[p.name]) for p in space.active(params)]
    value = sum((u - 0.3) ** 2 for u in units) + 0.1 * noise
    if number % 5 == 3:
        return Trial(number, params, "test", TrialState.FAILED, reason="it broke")
    if number % 7 == 5:
        early = number % 2 == 0  # pruned before it reported anything
        return Trial(
            number, params, "test", TrialState.PRUNED, value=None if early else value + 1, step=1
        )
    return Trial(number, params, "test", TrialState.COMPLETE, value=value, step=5)


def raced(trial: Trial) -> Trial:
    """The trial as it would have ended where trials are compared after 1 and 3 steps."""
    if trial.value is None:
        return trial
    rungs = {1: (trial.value + 1.0,), 3: (trial.value + 0.5,)}
    if trial.state is TrialState.PRUNED:
        del rungs[3]
        return replace(trial, value=rungs[1][0], rungs=rungs)
    return replace(trial, rungs=rungs)

"""The contracts of hptune, which its suites test."""

from __future__ import annotations

from hptune.core.pruner import Pruner
from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction
from hptune.testing.pruners import PrunerSuite
from hptune.testing.samplers import SamplerSuite
from hptune_evolution.pruner import BetterHalfPruner
from hptune_evolution.sampler import EvolutionSampler


class TestEvolution(SamplerSuite):
    branin_trials = 40
    branin_seeds = 4

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return EvolutionSampler(space, seed, directions=(Direction.MIN,), population=8)


class TestBetterHalf(PrunerSuite):
    compares_several = False

    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return BetterHalfPruner(directions=directions, epochs=None, at_epoch=2)

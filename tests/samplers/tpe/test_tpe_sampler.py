from __future__ import annotations

from learning_suite import LearningSuite

from tuner.core.sampler import Sampler
from tuner.core.space.space import SearchSpace
from tuner.core.trial import Direction
from tuner.samplers.tpe.sampler import TpeSampler


class TestTpeSampler(LearningSuite):
    branin_tolerance = -0.6

    def make_for(self, space: SearchSpace, seed: int, direction: Direction) -> Sampler:
        return TpeSampler(space, seed, directions=(direction,))

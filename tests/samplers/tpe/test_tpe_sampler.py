from __future__ import annotations

from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction
from hptune.samplers.tpe.sampler import TpeSampler
from learning_suite import LearningSuite


class TestTpeSampler(LearningSuite):
    branin_tolerance = -0.6

    def make_for(self, space: SearchSpace, seed: int, direction: Direction) -> Sampler:
        return TpeSampler(space, seed, directions=(direction,))

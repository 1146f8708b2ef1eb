from __future__ import annotations

from tuner.core.sampler import Sampler
from tuner.core.space import SearchSpace
from tuner.core.trial import Direction
from tuner.samplers.tpe import TpeSampler
from tuner.testing.samplers import SamplerSuite


class TestTpeSampler(SamplerSuite):
    branin_tolerance = -0.6

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return TpeSampler(space, seed, direction=Direction.MIN)

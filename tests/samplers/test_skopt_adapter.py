from __future__ import annotations

from tuner.core.sampler import Sampler
from tuner.core.space import FloatParameter, SearchSpace
from tuner.core.trial import Direction
from tuner.samplers.skopt_adapter import SkoptSampler
from tuner.testing.samplers import SamplerSuite

LINE = SearchSpace((FloatParameter("x", 0.0, 1.0),))


class TestSkoptSampler(SamplerSuite):
    branin_trials = 25
    branin_seeds = 3

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return SkoptSampler(space, seed, direction=Direction.MIN, surrogate="gp")

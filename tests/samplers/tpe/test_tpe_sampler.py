from __future__ import annotations

import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.parameters import IntParameter
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction, Trial, TrialState
from hptune.samplers.tpe.sampler import TpeSampler
from learning_suite import LearningSuite


class TestTpeSampler(LearningSuite):
    branin_tolerance = -0.6

    def make_for(self, space: SearchSpace, seed: int, direction: Direction) -> Sampler:
        return TpeSampler(space, seed, directions=(direction,))


def test_the_last_configurations_are_found_without_thousands_of_random_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    space = SearchSpace((IntParameter("x", 1, 50), IntParameter("y", 1, 50)))
    every = space.configurations()
    assert every is not None
    sampler = TpeSampler(space, 1, directions=(Direction.MIN,))
    for number, params in enumerate(list(every)[:-10]):
        value = float(number // 50 + number % 50)
        sampler.tell(Trial(number, params, "", TrialState.COMPLETE, value=value))
    draws = []
    sample = SearchSpace.sample

    def counted(*arguments: object) -> object:
        draws.append(arguments)
        return sample(*arguments)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(SearchSpace, "sample", counted)
    (suggestion,) = sampler.ask([every.count])
    assert suggestion.params in list(every)[-10:]
    assert len(draws) < 100

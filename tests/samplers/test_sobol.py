from __future__ import annotations

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    Scale,
    SearchSpace,
)
from hptune.samplers.sobol import SobolSampler
from hptune.testing.samplers import SamplerSuite
from hptune.testing.spaces import ALL_TYPES, BRANIN

CUBE = SearchSpace(tuple(FloatParameter(f"x{i}", 0.0, 1.0) for i in range(3)))


class TestSobolSampler(SamplerSuite):
    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return SobolSampler(space, seed)


def units(space: SearchSpace, numbers: range, seed: int = 0) -> list[list[float]]:
    answers = SobolSampler(space, seed).ask(numbers)
    return [[p.to_unit(answer.params[p.name]) for p in space] for answer in answers]


def test_every_sixteenth_of_each_range_gets_one_of_sixteen_points() -> None:
    for start in (0, 16, 48):
        for column in np.array(units(CUBE, range(start, start + 16))).T:
            assert sorted((column * 16).astype(int).tolist()) == list(range(16))


def test_the_answer_to_a_number_does_not_depend_on_what_was_asked_before() -> None:
    sampler = SobolSampler(BRANIN, 3)
    late = sampler.ask([1000])
    first = sampler.ask(range(4))
    assert SobolSampler(BRANIN, 3).ask(range(4)) == first
    assert SobolSampler(BRANIN, 3).ask([1000]) == late


def test_choices_come_equally_often() -> None:
    answers = SobolSampler(ALL_TYPES, 1).ask(range(64))
    for name, times in (("augment", 32), ("activation", 21)):
        counts = np.unique([str(a.params[name]) for a in answers], return_counts=True)[1]
        assert counts.min() >= times - 1


def test_each_branch_of_a_condition_is_filled_evenly() -> None:
    space = SearchSpace(
        (
            ChoiceParameter("optimizer", ("sgd", "adam")),
            BooleanParameter("nesterov", conditions=(Condition("optimizer", ("sgd",)),)),
            FloatParameter("rate", 1e-4, 1.0, scale=Scale.LOG),
        )
    )
    answers = [answer.params for answer in SobolSampler(space, 0).ask(range(64))]
    for branch in ({"optimizer": "adam"}, {"optimizer": "sgd", "nesterov": True}):
        rates = [p["rate"] for p in answers if branch.items() <= p.items()]
        eighths = np.histogram(np.log10(np.array(rates, float)), bins=4, range=(-4, 0))[0]
        assert eighths.min() >= len(rates) // 4 - 1


def test_many_dimensions_and_trials_are_no_burden() -> None:
    wide = SearchSpace(tuple(FloatParameter(f"x{i}", 0.0, 1.0) for i in range(300)))
    (suggestion,) = SobolSampler(wide, 0).ask([20_000])
    assert wide.contains(suggestion.params)


@pytest.mark.parametrize("seed", [0, 2**31 - 1, 2**40])
def test_any_seed_will_do(seed: int) -> None:
    assert len(units(CUBE, range(3), seed)) == 3

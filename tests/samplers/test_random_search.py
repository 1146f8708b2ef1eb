from __future__ import annotations

import itertools
import time
from collections import Counter

import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Params, Trial, TrialState
from hptune.samplers.random_search import RandomSampler
from hptune.testing.samplers import SamplerSuite
from hptune.testing.spaces import ALL_TYPES


class TestRandomSampler(SamplerSuite):
    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return RandomSampler(space, seed)


def tell(sampler: Sampler, number: int, params: Params) -> None:
    sampler.tell(Trial(number, params, "random", TrialState.WAITING))


def test_a_suggestion_depends_on_the_seed_and_the_number_alone() -> None:
    one_by_one = RandomSampler(ALL_TYPES, seed=5)
    answers = []
    for number in range(6):
        (suggestion,) = one_by_one.ask([number])
        tell(one_by_one, number, suggestion.params)
        answers.append(suggestion)
    assert RandomSampler(ALL_TYPES, seed=5).ask(range(6)) == answers
    assert RandomSampler(ALL_TYPES, seed=5).ask([4, 1]) == [answers[4], answers[1]]


def test_values_are_even_on_their_own_scale() -> None:
    space = SearchSpace((FloatParameter("rate", 1e-4, 1.0, scale=Scale.LOG),))
    rates = [float(str(s.params["rate"])) for s in RandomSampler(space, 0).ask(range(4_000))]
    decades = Counter(sum(rate > limit for limit in (1e-3, 1e-2, 1e-1)) for rate in rates)
    assert all(abs(decades[decade] - 1_000) < 120 for decade in range(4))


def test_the_last_untried_configurations_are_equally_likely() -> None:
    space = SearchSpace((IntParameter("a", 1, 600),))
    left = (1, 300, 600)
    picked: Counter[tuple[object, ...]] = Counter()
    for seed in range(120):
        sampler = RandomSampler(space, seed)
        for a in range(1, 601):
            if a not in left:
                tell(sampler, a, {"a": a})
        picked[tuple(s.params["a"] for s in sampler.ask([700, 701]))] += 1
    assert set(picked) == set(itertools.permutations(left, 2))
    assert all(8 < count < 35 for count in picked.values())


def test_a_crowded_branch_does_not_end_the_search() -> None:
    # One of 10,000 values opens a scope of 10**12; all the others are tried.
    space = SearchSpace(
        (
            IntParameter("kind", 0, 9_999),
            IntParameter("seed", 1, 10**12, conditions=(Condition("kind", (0,)),)),
        )
    )
    sampler = RandomSampler(space, 3)
    for kind in range(1, 10_000):
        tell(sampler, kind, {"kind": kind})
    answers = sampler.ask(range(10_000, 10_005))
    assert [s.params["kind"] for s in answers] == [0] * 5


def test_an_infinite_space_with_a_finite_corner_always_answers() -> None:
    space = SearchSpace(
        (
            ChoiceParameter("kind", ("plain", "rich")),
            FloatParameter("rate", 0.0, 1.0, conditions=(Condition("kind", ("rich",)),)),
        )
    )
    sampler = RandomSampler(space, 0)
    tell(sampler, 0, {"kind": "plain"})
    assert {s.params["kind"] for s in sampler.ask(range(1, 200))} == {"rich"}


@pytest.mark.parametrize("space", [ALL_TYPES, SearchSpace((IntParameter("a", 1, 12_000),))])
def test_asking_costs_the_same_after_many_trials(space: SearchSpace) -> None:
    sampler = RandomSampler(space, 0)
    blocks = []
    for block in range(16):
        begin = time.process_time()
        for number in range(block * 250, (block + 1) * 250):
            (suggestion,) = sampler.ask([number])
            tell(sampler, number, suggestion.params)
        blocks.append(time.process_time() - begin)
    first, last = min(blocks[:5]), min(blocks[-5:])
    assert last < 4 * first, f"250 asks took {first:.3f} s at first and {last:.3f} s in the end"


def test_a_large_finite_space_is_exhausted_in_reasonable_time() -> None:
    space = SearchSpace((IntParameter("a", 1, 50), IntParameter("b", 1, 60)))
    sampler = RandomSampler(space, 0)
    seen = set()
    number = 0
    while answers := sampler.ask(range(number, number + 7)):
        for suggestion in answers:
            tell(sampler, number, suggestion.params)
            seen.add(space.key(suggestion.params))
            number += 1
    assert number == len(seen) == 3_000

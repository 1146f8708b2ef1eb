from __future__ import annotations

import itertools
import time

import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Trial, TrialState
from hptune.errors import SpaceError
from hptune.samplers.grid import GridSampler
from hptune.testing.samplers import SamplerSuite


class TestGridSampler(SamplerSuite):
    is_random = False
    branin_trials = 64

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return GridSampler(space, grid_resolution=8)


SPACE = SearchSpace((IntParameter("layers", 1, 2), ChoiceParameter("activation", ("relu", "tanh"))))


def test_the_last_declared_parameter_changes_fastest() -> None:
    assert [tuple(s.params.values()) for s in GridSampler(SPACE).ask(range(9))] == [
        (1, "relu"),
        (1, "tanh"),
        (2, "relu"),
        (2, "tanh"),
    ]


def test_what_was_tried_by_others_is_passed_over() -> None:
    sampler = GridSampler(SPACE)
    sampler.tell(Trial(0, {"layers": 1, "activation": "tanh"}, "user", TrialState.COMPLETE))
    assert [tuple(s.params.values()) for s in sampler.ask([1, 2])] == [(1, "relu"), (2, "relu")]
    assert sampler.size == 4


def test_a_continuous_parameter_has_as_many_points_as_the_resolution() -> None:
    space = SearchSpace((FloatParameter("rate", 1e-3, 1e-1, scale=Scale.LOG),))
    rates = [s.params["rate"] for s in GridSampler(space, grid_resolution=3).ask(range(9))]
    assert rates == [1e-3, pytest.approx(1e-2), 1e-1]


@pytest.mark.parametrize("resolution", [1, 0, -3])
def test_too_low_a_resolution_is_refused(resolution: int) -> None:
    with pytest.raises(SpaceError, match=r"resolution is -?[0-9]; allowed are 2 or more"):
        GridSampler(SPACE, grid_resolution=resolution)


def test_a_huge_grid_starts_at_once() -> None:
    space = SearchSpace(tuple(IntParameter(f"p{i}", 0, 10**6) for i in range(30)))
    sampler = GridSampler(space)
    assert sampler.size == (10**6 + 1) ** 30
    assert [s.params["p29"] for s in sampler.ask(range(3))] == [0, 1, 2]


def test_asking_costs_the_same_after_many_trials() -> None:
    space = SearchSpace((IntParameter("a", 0, 10**6), BooleanParameter("b")))
    sampler = GridSampler(space)
    blocks = []
    for block in range(20):
        begin = time.process_time()
        for number in range(block * 500, (block + 1) * 500):
            (suggestion,) = sampler.ask([number])
            sampler.tell(Trial(number, suggestion.params, "grid", TrialState.COMPLETE, value=0.0))
        blocks.append(time.process_time() - begin)
    first, last = min(blocks[:5]), min(blocks[-5:])
    assert last < 3 * first, f"500 asks took {first:.3f} s at first and {last:.3f} s in the end"


def test_a_resumed_grid_goes_on_where_it_was() -> None:
    whole = [s.params for s in GridSampler(SPACE).ask(range(4))]
    for told in itertools.chain.from_iterable(
        itertools.combinations(range(4), n) for n in range(5)
    ):
        sampler = GridSampler(SPACE)
        for number in told:
            sampler.tell(Trial(number, whole[number], "grid", TrialState.WAITING))
        rest = [whole[number] for number in range(4) if number not in told]
        assert [s.params for s in sampler.ask(range(9))] == rest

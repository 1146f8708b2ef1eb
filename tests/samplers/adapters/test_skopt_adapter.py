from __future__ import annotations

import math
import sys

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.samplers.adapters.skopt import SkoptSampler
from hptune.testing.sampler_cases import Case, Phase
from hptune.testing.samplers import SamplerSuite, after, tell_all, waiting
from searches import LINE, searched

MIXED = SearchSpace(
    (
        FloatParameter("rate", 1e-4, 1.0, scale=Scale.LOG, default=0.1),
        IntParameter("units", 1, 1000, scale=Scale.LOG, default=30),
        ChoiceParameter("optimizer", ("sgd", "adam")),
        FloatParameter("momentum", 0.0, 1.0, conditions=(Condition("optimizer", ("sgd",)),)),
        BooleanParameter("flag"),
    )
)


@pytest.mark.slow
class TestSkoptSampler(SamplerSuite):
    spaces = ("nested", "all types")  # it takes long to answer
    branin_trials = 25
    branin_seeds = 3

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return SkoptSampler(space, seed, directions=(Direction.MIN,), candidates=100)


def value(params: Params) -> float:
    """Best at a rate of 0.01 with adam and the flag."""
    rate = math.log10(float(str(params["rate"])))
    return (rate + 2.0) ** 2 + (params["optimizer"] == "sgd") + 0.5 * (params["flag"] is False)


def told(count: int = 30, *, seed: int = 0, direction: Direction = Direction.MIN) -> SkoptSampler:
    sampler = SkoptSampler(MIXED, seed, directions=(direction,), candidates=500)
    rng = np.random.default_rng(5)
    sign = 1.0 if direction is Direction.MIN else -1.0
    for number in range(count):
        params = MIXED.sample(rng)
        sampler.tell(Trial(number, params, "test", TrialState.COMPLETE, value=sign * value(params)))
    return sampler


def test_it_searches_where_the_values_are_better() -> None:
    sampler = told()
    values = searched(sampler, value, range(30, 35))
    (answer,) = sampler.ask([35])
    assert answer.origin == "skopt"
    assert MIXED.contains(answer.params)
    assert np.median(values) < 0.7  # that of random draws is 1.8


def test_the_direction_turns_everything_round() -> None:
    low, high = told(), told(direction=Direction.MAX)
    assert low.ask([30]) == high.ask([30])


def test_the_seed_and_the_number_decide_on_the_answer() -> None:
    sampler = told()
    (first,) = sampler.ask([30])
    assert sampler.ask([31]) != [first]
    assert told(seed=1).ask([30]) != [first]


@pytest.mark.parametrize("phase", [Phase.FRESH, Phase.TOLD, Phase.NEARLY_EXHAUSTED])
def test_a_batch_is_what_single_questions_would_give(phase: Phase) -> None:
    case = Case("nested", phase)
    samplers = [
        SkoptSampler(case.space, 1, directions=(Direction.MIN,), candidates=50) for _ in range(2)
    ]
    for sampler in samplers:
        tell_all(sampler, case.history())
    batch = samplers[0].ask(after(case.history(), 2))
    single = []
    for number in after(case.history(), 2):
        (suggestion,) = samplers[1].ask([number])
        samplers[1].tell(waiting(number, suggestion))
        single.append(suggestion)
    assert single == batch


def test_what_runs_and_what_failed_keeps_it_away() -> None:
    def sampler(state: TrialState | None) -> SkoptSampler:
        made = SkoptSampler(LINE, 0, directions=(Direction.MIN,))
        for number, x in enumerate(np.linspace(0.0, 1.0, 11)):
            loss = (float(x) - 0.63) ** 2
            made.tell(Trial(number, {"x": float(x)}, "", TrialState.COMPLETE, value=loss))
        for number, x in enumerate((0.62, 0.625, 0.63, 0.635, 0.64), start=20):
            if state is not None:
                made.tell(Trial(number, {"x": x}, "", state))
        return made

    def distance(state: TrialState | None) -> float:
        (answer,) = sampler(state).ask([30])
        return abs(float(str(answer.params["x"])) - 0.63)

    assert distance(None) < 0.02
    assert distance(TrialState.FAILED) > 0.02
    assert distance(TrialState.RUNNING) > 0.004


def test_losses_of_any_size_are_no_reason_to_stop() -> None:
    sampler = SkoptSampler(LINE, 0, directions=(Direction.MIN,), candidates=100)
    for number in range(12):
        found = sys.float_info.max if number % 4 else float(number)
        point = {"x": number / 12}
        sampler.tell(Trial(number, point, "test", TrialState.COMPLETE, value=found))
    assert LINE.contains(sampler.ask([12])[0].params)

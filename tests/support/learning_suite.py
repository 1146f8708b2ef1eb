# Tests of every sampler that learns from values, in addition to the contract.

from __future__ import annotations

import abc
import math
import time
from collections.abc import Callable

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import ChoiceParameter, FloatParameter, SearchSpace
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.testing.sampler_cases import ended
from hptune.testing.samplers import SamplerSuite, after, tell_all, waiting
from hptune.testing.spaces import ALL_TYPES, BRANIN, CONDITIONAL_CONTINUUM, SPACES
from searches import LINE, searched


def xs(sampler: Sampler, count: int, name: str = "x") -> list[float]:
    """What is proposed for `x` where it is active, by `count` single questions."""
    answers = [sampler.ask([number])[0].params for number in range(100, 100 + count)]
    return [float(str(params[name])) for params in answers if name in params]


class LearningSuite(SamplerSuite):
    """Further tests for a sampler that learns. Supply `make_for`.

    Attributes:
        ten_thousand_seconds: How long the first question after 10,000 trials may take.
    """

    ten_thousand_seconds = 5.0

    @abc.abstractmethod
    def make_for(self, space: SearchSpace, seed: int, direction: Direction) -> Sampler:
        """A fresh sampler."""

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return self.make_for(space, seed, Direction.MIN)

    def taught(
        self,
        space: SearchSpace,
        objective: Callable[[Params], float | None],
        count: int = 40,
        direction: Direction = Direction.MIN,
    ) -> Sampler:
        """A sampler that was told random trials; None means that a trial failed."""
        sampler = self.make_for(space, 0, direction)
        rng = np.random.default_rng(5)
        for number in range(count):
            params = space.sample(rng)
            value = objective(params)
            state = TrialState.FAILED if value is None else TrialState.COMPLETE
            sampler.tell(Trial(number, params, "test", state, value=value))
        return sampler

    # --- the start ------------------------------------------------------------------------------

    def test_the_start_is_even(self) -> None:
        answers = self.make(BRANIN, 3).ask(range(1, 33))
        for parameter in BRANIN:
            units = [parameter.to_unit(suggestion.params[parameter.name]) for suggestion in answers]
            eighths = np.histogram(units, bins=8, range=(0, 1))[0]
            assert eighths.min() >= 2, f"{parameter.name}: {eighths} of 32 points in each eighth"

    # --- what it learns -------------------------------------------------------------------------

    def test_it_searches_where_the_values_are_better(self) -> None:
        sampler = self.taught(LINE, lambda params: abs(float(str(params["x"])) - 0.3))
        assert all(abs(x - 0.3) < 0.15 for x in xs(sampler, 20))

    def test_the_direction_turns_everything_round(self) -> None:
        low = self.taught(ALL_TYPES, lambda params: float(str(params["rate"])))
        high = self.taught(
            ALL_TYPES, lambda params: -float(str(params["rate"])), direction=Direction.MAX
        )
        assert low.ask(range(100, 105)) == high.ask(range(100, 105))

    def test_failures_keep_it_away(self) -> None:
        def half_fails(params: Params) -> float | None:
            x = float(str(params["x"]))
            return None if x > 0.5 else 1.0 - x  # the best is at the edge of what fails

        proposed = xs(self.taught(LINE, half_fails), 30)
        assert sum(x > 0.55 for x in proposed) < 5

    def test_a_value_that_is_no_number_counts_as_a_failure(self) -> None:
        def of(bad: float | None) -> Sampler:
            return self.taught(
                LINE, lambda p: bad if float(str(p["x"])) > 0.5 else float(str(p["x"]))
            )

        assert of(math.nan).ask(range(100, 105)) == of(None).ask(range(100, 105))
        assert of(-math.inf).ask(range(100, 105)) == of(None).ask(range(100, 105))

    def test_equal_values_give_it_nothing_to_go_by_and_do_no_harm(self) -> None:
        sampler = self.taught(LINE, lambda params: 1.0)
        proposed: list[float] = []

        def value(params: Params) -> float:
            proposed.append(float(str(params["x"])))
            return 1.0

        searched(sampler, value, range(40, 80))
        assert max(proposed) - min(proposed) > 0.5

    def test_a_child_is_learned_from_the_trials_in_which_it_was_active(self) -> None:
        def value(params: Params) -> float:
            if params["optimizer"] == "sgd":
                return 5.0
            return abs(math.log10(float(str(params["rate"]))) + 2.0)  # best at 0.01

        proposed = xs(self.taught(CONDITIONAL_CONTINUUM, value, count=60), 20, name="rate")
        assert np.median([abs(math.log10(rate) + 2.0) for rate in proposed]) < 0.5

    # --- trials that run ------------------------------------------------------------------------

    @pytest.mark.parametrize("name", ["all types", "conditional continuum", "nested", "plain"])
    def test_a_batch_is_what_single_questions_would_give(self, name: str) -> None:
        space = SPACES[name]
        history = [ended(space, n, space.sample(np.random.default_rng(n))) for n in range(20)]
        batch = self.make(space, 0)
        one_by_one = self.make(space, 0)
        tell_all(batch, history)
        tell_all(one_by_one, history)
        single = []
        for number in after(history, 8):
            (suggestion,) = one_by_one.ask([number])
            one_by_one.tell(waiting(number, suggestion))
            single.append(suggestion)
        assert batch.ask(after(history, 8)) == single

    def test_simultaneous_suggestions_keep_apart(self) -> None:
        sampler = self.taught(
            BRANIN, lambda p: float(str(p["x"])) ** 2 + float(str(p["y"])) ** 2, count=60
        )

        def spread(numbers: range, *, together: bool) -> float:
            batches = [numbers] if together else [range(n, n + 1) for n in numbers]
            answers = [s.params for batch in batches for s in sampler.ask(batch)]
            points = np.array([[p.to_unit(params[p.name]) for p in BRANIN] for params in answers])
            return float(points.std(axis=0).sum())

        batches = [range(100, 108), range(108, 116)]
        together = np.mean([spread(batch, together=True) for batch in batches])
        apart = np.mean([spread(batch, together=False) for batch in batches])
        assert together > 1.2 * apart

    # --- sizes ----------------------------------------------------------------------------------

    def test_a_choice_of_many_words_is_no_burden(self) -> None:
        words = tuple(f"word{i}" for i in range(5_000))
        space = SearchSpace((ChoiceParameter("word", words), FloatParameter("x", 0.0, 1.0)))
        sampler = self.taught(space, lambda params: float(str(params["x"])))
        begin = time.process_time()
        assert all(space.contains(s.params) for s in sampler.ask(range(100, 110)))
        assert time.process_time() - begin < 10.0

    def test_ten_thousand_trials_are_no_burden(self) -> None:
        sampler = self.taught(ALL_TYPES, lambda params: float(str(params["rate"])), count=10_000)
        begin = time.process_time()
        (suggestion,) = sampler.ask([10_000])
        assert ALL_TYPES.contains(suggestion.params)
        assert time.process_time() - begin < self.ten_thousand_seconds

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import FloatParameter, IntParameter, Scale, SearchSpace
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.samplers.common.encoding import Encoding
from hptune.samplers.common.observations import History, Tier
from hptune.samplers.gp.gaussian_process import Kernel, Posterior
from hptune.samplers.gp.kernel_features import KernelFeatures
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.gp.surrogate import SurrogateFitter, comparable, standardised
from hptune.testing.sampler_cases import ended
from hptune.testing.spaces import ALL_TYPES, BRANIN, branin
from learning_suite import LearningSuite, xs
from searches import LINE, searched


class TestBayesianSampler(LearningSuite):
    branin_trials = 30
    branin_tolerance = -2.5
    branin_seeds = 3
    ten_thousand_seconds = 20.0  # twice a kernel for 400 trials, from nothing

    def make_for(self, space: SearchSpace, seed: int, direction: Direction) -> Sampler:
        return BayesianSampler(space, seed, directions=(direction,))

    @pytest.mark.slow
    def test_no_worse_than_random_on_branin_from_more_seeds(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(self, "branin_seeds", 8)
        self.test_no_worse_than_random_on_branin()


# --- how the search goes ----------------------------------------------------------------------


def test_whole_numbers_far_apart_on_a_log_scale_are_all_tried_and_none_twice() -> None:
    space = SearchSpace((IntParameter("n", 1, 1_000, scale=Scale.LOG), FloatParameter("x", 0, 1)))
    sampler = BayesianSampler(space, 0, directions=(Direction.MIN,))

    def value(params: Params) -> float:
        n, x = params["n"], params["x"]
        assert isinstance(n, int)
        assert isinstance(x, float)
        return abs(math.log(n / 3.0)) + (x - 0.5) ** 2  # best at 3, whose neighbours are far away

    searched(sampler, value, range(25))
    assert {sampler.ask([number])[0].params["n"] for number in range(25, 30)} <= {2, 3, 4}


def test_no_value_at_all_is_no_reason_to_stop() -> None:
    sampler = BayesianSampler(LINE, 0, directions=(Direction.MIN,))
    for number in range(20):
        (suggestion,) = sampler.ask([number])
        sampler.tell(Trial(number, suggestion.params, "test", TrialState.FAILED))
    assert len({round(x, 6) for x in xs(sampler, 10)}) == 10


def test_values_of_any_size_are_welcome() -> None:
    def proposal(scale: float, offset: float) -> float:
        sampler = BayesianSampler(LINE, 0, directions=(Direction.MIN,))
        for number in range(12):
            x = (number + 0.5) / 12
            value = offset + scale * (x - 0.37) ** 2
            sampler.tell(Trial(number, {"x": x}, "test", TrialState.COMPLETE, value=value))
        return xs(sampler, 1)[0]

    usual = proposal(1.0, 0.0)
    assert proposal(1e-12, 0.0) == pytest.approx(usual, abs=1e-3)
    assert proposal(1e200, 0.0) == pytest.approx(usual, abs=1e-3)
    assert proposal(1.0, 1e6) == pytest.approx(usual, abs=1e-2)


def test_trainings_that_diverged_tell_where_not_to_search_and_nothing_else() -> None:
    def value(params: Params) -> float:
        found = branin(params)
        return found if found < 60.0 else 1e30

    sampler = BayesianSampler(BRANIN, 1, directions=(Direction.MIN,))
    assert min(searched(sampler, value, range(30))) < 0.5  # the least is 0.398


def test_after_a_failure_the_start_keeps_away_from_it() -> None:
    failed = 0
    for seed in range(10):
        sampler = BayesianSampler(BRANIN, seed, directions=(Direction.MIN,))
        for number in range(5):
            (suggestion,) = sampler.ask([number])
            fails = float(str(suggestion.params["x"])) > 2.5  # half of the space
            state = TrialState.FAILED if fails else TrialState.COMPLETE
            value = None if fails else 1.0
            sampler.tell(Trial(number, suggestion.params, "test", state, value=value))
            failed += fails
    assert failed < 15  # of 50, with 25 by chance


def test_failures_by_chance_keep_it_from_no_good_value() -> None:
    rng = np.random.default_rng(2)
    sampler = BayesianSampler(BRANIN, 0, directions=(Direction.MIN,))
    best = math.inf
    for number in range(35):
        (suggestion,) = sampler.ask([number])
        fails = rng.random() < 0.15
        value = None if fails else branin(suggestion.params)
        state = TrialState.FAILED if fails else TrialState.COMPLETE
        sampler.tell(Trial(number, suggestion.params, "test", state, value=value))
        best = best if value is None else min(best, value)
    assert best < 0.41  # the least is 0.398


_THREADS = """
from threadpoolctl import threadpool_info
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Trial, TrialState
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.gp.surrogate import SurrogateFitter

fit, seen = SurrogateFitter.fit, []

def noted(*given):
    model = fit(*given)
    seen.extend(each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas")
    return model

SurrogateFitter.fit = noted
space = SearchSpace((FloatParameter("x", 0.0, 1.0),))
sampler = BayesianSampler(space, 0, directions=(Direction.MIN,))
for n in range(6):
    sampler.tell(Trial(n, {"x": n / 6}, "test", TrialState.COMPLETE, value=n * n % 4.0))
sampler.ask([6])
print(seen)
"""


def test_all_linear_algebra_has_one_thread() -> None:
    # A new process: the libraries of another test's SciPy would be loaded already.
    many = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
    script = [sys.executable, "-c", _THREADS]
    ended = subprocess.run(script, env=many, capture_output=True, text=True, check=True)
    threads = json.loads(ended.stdout)
    assert threads
    assert set(threads) == {1}


# --- what the model is made of ----------------------------------------------------------------


def test_targets_keep_the_order_and_are_even_however_skewed_the_losses_are() -> None:
    losses = np.exp(np.random.default_rng(0).normal(scale=3.0, size=200))
    targets = standardised(losses)
    assert (np.argsort(targets) == np.argsort(losses)).all()
    assert targets.mean() == pytest.approx(0.0, abs=1e-9)
    assert targets.std() == pytest.approx(1.0)
    assert abs((targets**3).mean()) < 0.5 * abs(
        (((losses - losses.mean()) / losses.std()) ** 3).mean()
    )
    np.testing.assert_array_equal(standardised(np.full(5, 3.0)), np.zeros(5))


def test_what_was_stopped_is_no_better_than_what_ended_well_and_failures_have_no_value() -> None:
    encoding = Encoding(LINE)
    history = History(encoding, directions=(Direction.MIN,))
    for number, (state, value) in enumerate(
        [
            (TrialState.COMPLETE, 1.0),
            (TrialState.COMPLETE, 3.0),
            (TrialState.COMPLETE, 2.0),
            (TrialState.PRUNED, 0.5),
            (TrialState.PRUNED, 9.0),
            (TrialState.FAILED, None),
            (TrialState.RUNNING, None),
        ]
    ):
        history.tell(Trial(number, {"x": number / 10}, "test", state, value=value))
    assert comparable(history.observations()).tolist() == [1.0, 3.0, 2.0, 2.0, 9.0]


def test_an_objective_that_a_stopped_trial_lacks_is_not_taken_from_another() -> None:
    """A trial that a user stops has not measured what is known at its end only."""
    history = History(Encoding(LINE), directions=(Direction.MIN, Direction.MIN))
    for number, seconds in enumerate([0.001, 0.003, 0.002]):
        state, more = TrialState.COMPLETE, (seconds,)
        history.tell(Trial(number, {"x": number / 10}, "test", state, 0.5, extra_values=more))
    history.tell(Trial(3, {"x": 0.9}, "test", TrialState.PRUNED, 0.9))
    assert comparable(history.of_objective(1)).tolist() == [0.001, 0.003, 0.002, 0.002]


def test_beside_a_diverged_training_a_new_best_trial_needs_no_new_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoding = Encoding(LINE)
    history = History(encoding, directions=(Direction.MIN,))
    fitter = SurrogateFitter(KernelFeatures(encoding))
    fitted = []
    mode = Posterior.mode

    def counted(posterior: Posterior, starts: Sequence[Kernel], *, steps: int) -> Kernel:
        fitted.append(steps)
        return mode(posterior, starts, steps=steps)

    monkeypatch.setattr(Posterior, "mode", counted)
    for number, value in enumerate([1e9, *(1.0 + i % 7 for i in range(39)), 0.5]):
        params: Params = {"x": number / 50}
        history.tell(Trial(number, params, "test", TrialState.COMPLETE, value))
        if number >= 39:  # with 40 trials and with 41, the kernel is that of the first 40
            fitter.fit(history.observations())
            assert len(fitted) == 4  # of 40, 20, 10 and 5 trials


def test_of_many_trials_the_model_knows_the_best_and_some_of_all_others() -> None:
    encoding = Encoding(ALL_TYPES)  # without conditions, so that no row holds NaN
    history = History(encoding, directions=(Direction.MIN,))
    rng = np.random.default_rng(0)
    for number in range(90):
        history.tell(ended(ALL_TYPES, number, ALL_TYPES.sample(rng)))
    seen = history.observations()
    fitter = SurrogateFitter(KernelFeatures(encoding), max_modelled=30, max_fitted=20)
    best = fitter.fit(seen).best
    assert len(best) == 30
    measured = seen.rows[seen.tiers < Tier.FAILED]
    ranked = measured[np.argsort(comparable(seen), kind="stable")].tolist()
    places = [ranked.index(row) for row in best.tolist()]
    assert places[:10] == list(range(10))
    assert max(places) > 60

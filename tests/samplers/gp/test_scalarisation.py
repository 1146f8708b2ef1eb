from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Trial, TrialState
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.gp.scalarisation import weighted_losses

COSTS = arrays.arrays(
    np.float64,
    st.tuples(st.integers(1, 20), st.integers(2, 4)),
    elements=st.floats(-1e300, 1e300),
)


@given(COSTS, st.integers(0, 2000))
def test_a_loss_is_finite_and_never_below_that_of_a_result_that_dominates(
    costs: np.ndarray[tuple[int, int], np.dtype[np.float64]], turn: int
) -> None:
    losses = weighted_losses(costs, turn)
    assert np.isfinite(losses).all()
    for cost, loss in zip(costs, losses, strict=True):
        dominating = (costs <= cost).all(axis=1)
        assert (losses[dominating] <= loss).all()


def test_without_results_there_are_no_losses() -> None:
    assert weighted_losses(np.empty((0, 2)), 7).shape == (0,)


def test_the_scales_of_the_objectives_do_not_matter() -> None:
    costs = np.random.default_rng(2).random((60, 3))
    changed = costs * [1e-6, 1.0, 1e9] + [0.0, 3.0, 1e8]
    assert weighted_losses(changed, 60) == pytest.approx(weighted_losses(costs, 60))


def test_within_sixteen_turns_all_parts_of_the_front_are_the_best() -> None:
    angles = np.linspace(0.0, np.pi / 2, 41)
    front = 1.0 - np.column_stack([np.sin(angles), np.cos(angles)])
    best = [int(weighted_losses(front, turn).argmin()) for turn in range(16, 32)]
    assert min(best) < 8
    assert max(best) > 32
    assert len(set(best)) > 10


@pytest.mark.filterwarnings("error")
def test_a_tiny_range_on_the_front_is_no_reason_to_warn() -> None:
    costs = np.array([[0.0, 1.0], [5e-324, 0.5], [1e10, 0.7], [1e9, 3.0]])
    assert np.isfinite(weighted_losses(costs, 5)).all()


def test_one_result_far_beyond_the_others_does_not_hide_them() -> None:
    costs = np.array([[0.1, 9.0], [0.2, 5.0], [0.4, 2.0], [0.5, 1.5], [1e30, 0.0]])
    losses = weighted_losses(costs, 5)
    assert losses.argmax() == 4
    assert len(set(losses.round(9))) == 5


# --- the search -------------------------------------------------------------------------------

CORNERS = ((0.2, 0.2), (0.2, 0.8), (0.8, 0.2), (0.8, 0.8))


def test_four_objectives_lead_to_the_configurations_that_are_good_in_some() -> None:
    """Each objective is the distance from a corner of a square; the square is the front."""
    square = SearchSpace((FloatParameter("x", -5.0, 6.0), FloatParameter("y", -5.0, 6.0)))
    sampler = BayesianSampler(square, 0, directions=(Direction.MIN,) * 4)
    inside = 0
    for number in range(30):
        (suggestion,) = sampler.ask([number])
        x, y = (float(str(suggestion.params[name])) for name in ("x", "y"))
        first, *more = (math.dist((x, y), corner) for corner in CORNERS)
        state = TrialState.COMPLETE
        ended = Trial(number, suggestion.params, "test", state, first, extra_values=tuple(more))
        sampler.tell(ended)
        inside += number >= 10 and max(abs(x - 0.5), abs(y - 0.5)) < 0.8
    assert inside > 10  # of 20; 2 % of the space

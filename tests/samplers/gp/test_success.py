from __future__ import annotations

import math

import numpy as np
import pytest

from hptune.core.trial import Direction, Trial, TrialState
from hptune.samplers.common.encoding import Encoding, Floats
from hptune.samplers.common.observations import History
from hptune.samplers.gp.kernel_features import KernelFeatures
from hptune.samplers.gp.success import SuccessModel, success_model
from hptune.testing.spaces import BRANIN

ENCODING = Encoding(BRANIN)
FEATURES = KernelFeatures(ENCODING)
SAFE, UNSAFE = np.array([[0.2, 0.2]]), np.array([[0.8, 0.8]])


def learned(rows: Floats, succeeded: Floats) -> SuccessModel:
    return SuccessModel(FEATURES, rows, succeeded > 0)


def factor(model: SuccessModel, row: Floats) -> float:
    return math.exp(float(model.log_factor(row, 60.0)[0]))


@pytest.fixture
def rows() -> Floats:
    return np.random.default_rng(0).random((40, 2))


def test_the_border_of_what_fails_is_learned_from_a_few_trials(rows: Floats) -> None:
    few = rows[:15]
    model = learned(few, few.sum(axis=1) < 1.2)
    assert factor(model, SAFE) > 1e6 * factor(model, UNSAFE)


def test_failures_in_the_middle_of_what_succeeds_are_learned(rows: Floats) -> None:
    model = learned(rows, np.abs(rows - 0.5).max(axis=1) > 0.3)
    for around in ([0.1, 0.5], [0.9, 0.5], [0.5, 0.1], [0.5, 0.9]):
        assert factor(model, np.array([around])) > 1e6 * factor(model, np.array([[0.5, 0.5]]))


def test_failures_without_a_pattern_change_little(rows: Floats) -> None:
    chance = np.ones(len(rows))
    chance[[3, 17, 31]] = 0.0
    model = learned(rows, chance)
    everywhere = np.random.default_rng(1).random((200, 2))
    assert np.exp(model.log_factor(everywhere, 60.0)).min() > 0.9
    assert factor(model, rows[[3]]) > 0.9


def test_the_gradients_are_those_of_the_factor(rows: Floats) -> None:
    model = learned(rows, rows.sum(axis=1) < 1.2)
    points, step = np.array([[0.3, 0.6], [0.7, 0.6], [0.9, 0.9]]), 1e-6
    logs, gradients = model.log_factor_with_gradients(points, 1.0)
    np.testing.assert_allclose(logs, model.log_factor(points))
    for j in range(2):
        moved = step * np.eye(2)[j]
        slopes = (model.log_factor(points + moved) - model.log_factor(points - moved)) / (2 * step)
        np.testing.assert_allclose(gradients[:, j], slopes, rtol=1e-4)


def test_without_failures_there_is_no_model() -> None:
    history = History(ENCODING, directions=(Direction.MIN,))
    rng = np.random.default_rng(0)
    states = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.PRUNED, TrialState.FAILED)
    for number, state in enumerate(states):
        value = None if state is TrialState.FAILED else 1.0
        seen = history.observations()
        assert success_model(seen, FEATURES) is None
        history.tell(Trial(number, BRANIN.sample(rng), "test", state, value=value))
    assert success_model(history.observations(), FEATURES) is not None


def test_of_thousands_of_trials_some_are_enough() -> None:
    history = History(ENCODING, directions=(Direction.MIN,))
    rng = np.random.default_rng(0)
    for number in range(3_000):
        params = BRANIN.sample(rng)
        failed = float(str(params["x"])) > 2.5  # the middle of the range
        state = TrialState.FAILED if failed else TrialState.COMPLETE
        value = None if failed else 1.0
        history.tell(Trial(number, params, "test", state, value=value))
    model = success_model(history.observations(), FEATURES)
    assert model is not None
    assert factor(model, np.array([[0.1, 0.5]])) > 0.9
    assert factor(model, np.array([[0.9, 0.5]])) < 0.01

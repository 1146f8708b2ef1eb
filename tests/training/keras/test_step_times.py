"""Steps of a Keras model that are timed instead of a whole training."""

from __future__ import annotations

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause
from hptune.core.resources import Placement
from hptune.core.step_request import BATCH, STEP_SECONDS, StepRequest

pytestmark = pytest.mark.tensorflow

MODEL = """
import keras
import numpy as np

def build_model(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=hp.Int("steps", 1, 10))
    return model

def load_data():
    x = np.ones((64, 2))
    return (x, x[:, :1]), (x, x[:, :1])
"""


def test_a_step_is_one_step_also_where_keras_runs_several_at_once(attempts: Attempts) -> None:
    seconds = []
    for steps in (1, 10):
        measure = StepRequest(seconds=0.2)
        result = attempts.run(MODEL, measure=measure, steps=steps, timeout_seconds=30.0)
        assert result.ending.cause is Cause.RETURNED, result.log
        ((_, metrics),) = result.reports
        assert metrics[BATCH] == 32
        seconds.append(metrics[STEP_SECONDS])
    one, several = seconds
    assert several < 3 * one


def test_steps_on_cores_are_not_taken_for_those_of_gpus_that_no_framework_sees(
    attempts: Attempts,
) -> None:
    placement = Placement("worker", (0,), gpus=("7",))
    result = attempts.run(MODEL, measure=StepRequest(seconds=0.1), placement=placement)
    assert result.ending.cause is Cause.EXCEPTION
    assert "sees 0 GPUs, but 1 are to be measured: it would train on cores" in result.ending.reason
    assert result.reports == []


def test_the_devices_that_one_process_divides_its_cores_into_train_together(
    attempts: Attempts,
) -> None:
    measure = StepRequest(batch_per_device=16, seconds=0.1, host_devices=2)
    result = attempts.run(MODEL, measure=measure, timeout_seconds=60.0)
    assert result.ending.cause is Cause.RETURNED, result.log
    ((_, metrics),) = result.reports
    assert metrics[BATCH] == 32  # of both devices


def test_a_batch_that_does_not_divide_is_answered_with_options_of_the_command(
    attempts: Attempts,
) -> None:
    """`hptune scaling` names the numbers that must divide it, and `hptune run` does not."""
    for divisors, option in ((), "--batch-rule linear"), ((3,), "--batch-size 30 or 33"):
        measure = StepRequest(must_divide=divisors, seconds=0.1, host_devices=3)
        result = attempts.run(MODEL, measure=measure, timeout_seconds=60.0)
        assert "the batch size is 32, which does not divide" in result.ending.reason
        assert option in result.ending.reason

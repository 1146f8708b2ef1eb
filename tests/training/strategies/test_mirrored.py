"""Keras on TensorFlow on two logical CPUs of one process, beside the same training on one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rank_processes import run_ranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_each_epoch_is_that_of_one_device_also_after_a_partial_batch(tmp_path: Path) -> None:
    (found,) = run_ranks(
        1,
        "device_training:mirrored",
        str(tmp_path),
        environment={"KERAS_BACKEND": "tensorflow"},
        timeout_seconds=500,
    )
    one, two = found["one"], found["two"]
    assert (one.error, two.error) == ("", "")
    assert two.logs == [pytest.approx(each, abs=2e-5) for each in one.logs]
    for own, other in zip(two.weights, one.weights, strict=True):
        for a, b in zip(own, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)

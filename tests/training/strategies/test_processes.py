"""Keras on PyTorch and on TensorFlow in two processes: what they compute is what one computes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parallel_fits import BESIDE_OWN_DDP, TRAININGS
from rank_processes import run_ranks
from requirements import require

BACKENDS = ("torch", "tensorflow")


def of_ranks(backend: str, function: str, *arguments: object) -> list[Any]:
    """What a function of `parallel_fits` returned on two ranks of one thread each."""
    how = environment(backend)
    return run_ranks(
        2, f"parallel_fits:{function}", *arguments, environment=how, timeout_seconds=240.0
    )


def environment(backend: str) -> dict[str, str]:
    """Environment variables of a process of one thread."""
    require(backend)
    return {
        "KERAS_BACKEND": backend,
        "OMP_NUM_THREADS": "1",
        "TF_NUM_INTRAOP_THREADS": "1",
        "TF_NUM_INTEROP_THREADS": "2",
    }


@pytest.mark.parametrize(
    "backend",
    [pytest.param(name, marks=pytest.mark.slow if name == "torch" else ()) for name in BACKENDS],
)
def test_two_ranks_compute_what_one_process_computes(backend: str) -> None:
    first, second = of_ranks(backend, "compare", [*TRAININGS])
    assert first["together"].keys() == {*TRAININGS, *[BESIDE_OWN_DDP] * (backend == "torch")}
    for name in first["together"]:
        together, other = first["together"][name], second["together"][name]
        alone = first["alone"][name]
        assert together["history"] == other["history"]
        for epoch, weights in enumerate(alone["weights"]):
            assert np.array_equal(together["weights"][epoch], other["weights"][epoch])
            assert together["weights"][epoch] == pytest.approx(weights, abs=1e-5), (name, epoch)
        for found in (together, other):
            for own, expected in zip(found["outputs"], alone["outputs"], strict=True):
                np.testing.assert_allclose(own, expected, atol=1e-4)
        # A loss that a step returns, and no metric holds, is that of the last batch.
        assert set(together["history"]) == set(alone["history"])
        for metric in set(alone["history"]) - {"own"}:
            expected = pytest.approx(alone["history"][metric], abs=1e-5)
            assert together["history"][metric] == expected, (name, metric)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_checkpoint_of_one_process_continues_in_two_and_the_other_way_around(
    backend: str, tmp_path: Path
) -> None:
    arguments = "device_training:one_process_and_two", str(tmp_path)
    with ThreadPoolExecutor() as pool:
        one, two = (
            pool.submit(run_ranks, size, *arguments, environment=environment(backend))
            for size in (1, 2)
        )
        (alone,), (first, second) = one.result(), two.result()
    whole = alone["whole"]
    assert len(whole.weights) == 3
    assert second["stopped"].batches == first["stopped"].batches
    for found in (
        first["whole"],
        second["whole"],
        *(x["continued"] for x in (alone, first, second)),
    ):
        assert not found.error
        assert found.result == pytest.approx(whole.result, abs=2e-5)
        for own, other in zip(found.weights[::-1], whole.weights[::-1], strict=False):
            for a, b in zip(own, other, strict=True):
                np.testing.assert_allclose(a, b, atol=1e-5)
    for found in (alone, first, second):
        assert found["stopped"].error == "stopped: stop"
        assert 0 < len(found["continued"].weights) < 3


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_share_batch_statistics_and_stop_together(backend: str) -> None:
    first, second = of_ranks(backend, "batch_statistics")
    # Rank 1 stopped after batch 7; rank 0 had begun the next one.
    assert first["batches"] == second["batches"] == 8
    assert first["history"] == second["history"]
    assert len(first["history"]["val_loss"]) == 2
    for one, other in zip(first["weights"], second["weights"], strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_that_train_apart_fail_on_the_first_batch(backend: str) -> None:
    for error in of_ranks(backend, "without_averaging"):
        assert "after batch 1 they hold different weights" in error


def test_own_batches_of_arrays_and_datasets() -> None:
    import keras
    import tensorflow as tf

    from hptune.training.strategies.own_batches import OwnBatches

    x = np.arange(10.0).reshape(10, 1)

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        ended = 0

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return x[index * 3 : index * 3 + 3], None

        def on_epoch_end(self) -> None:
            self.ended += 1

    batches = Batches()
    for data in (batches, (x, None), tf.data.Dataset.from_tensor_slices((x,)).batch(3)):
        own = OwnBatches(data, batch_size=3)
        assert own.steps == 4
        for _ in range(2):
            found = [np.asarray(each).ravel().tolist() for (each,) in own.epoch()]
            assert found == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]
    assert batches.ended == 2
    some = OwnBatches((x, None), batch_size=3, steps=3)
    epochs = [[float(each[0, 0]) for (each,) in some.epoch()] for _ in range(3)]
    assert epochs == [[0, 3, 6], [9], [0, 3, 6]]  # as Keras, which warns that the data ended
    all_of_them = OwnBatches((x, None), batch_size=3, steps=4)
    assert [len([*all_of_them.epoch()]) for _ in range(3)] == [4, 4, 4]


def test_class_weights_are_those_of_keras() -> None:
    from hptune.training.strategies.own_batches import class_weights

    weights = {0: 0.5, 2: 3.0}
    expected = [3.0, 1.0, 0.5]
    for targets in (np.array([2, 1, 0]), np.array([[2], [1], [0]]), np.eye(3)[[2, 1, 0]]):
        assert class_weights(targets, weights).tolist() == expected

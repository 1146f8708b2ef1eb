"""Keras on JAX on two devices, of one process and of two, beside the same training on one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from device_training import EPOCHS, Seen
from rank_processes import run_ranks
from requirements import require

require("jax")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

JAX = {
    "KERAS_BACKEND": "jax",
    "OMP_NUM_THREADS": "1",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}
TWO_DEVICES = {**JAX, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jax")


@pytest.fixture(scope="module")
def ranks(place: Path) -> list[dict[str, Seen]]:
    """What the process with two devices saw, then what each of two ranks did."""

    def start(world_size: int, function: str, environment: dict[str, str]) -> Any:
        return pool.submit(
            run_ranks,
            world_size,
            f"device_training:{function}",
            str(place),
            environment={**environment, "JAX_COMPILATION_CACHE_DIR": str(place / "cache")},
            timeout_seconds=800,
        )

    with ThreadPoolExecutor() as pool:
        one = start(1, "jax_one_process", TWO_DEVICES)
        two = start(2, "jax_two_processes", JAX)
        return [*one.result(), *two.result()]


def assert_same(found: Seen, wanted: Seen) -> None:
    assert not found.error
    assert found.logs == [pytest.approx(each, abs=2e-5) for each in wanted.logs[-len(found.logs) :]]
    for own, other in zip(found.weights[::-1], wanted.weights[::-1], strict=False):
        for a, b in zip(own, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)
    for own, other in zip(found.outputs[::-1], wanted.outputs[::-1], strict=False):
        np.testing.assert_allclose(own, other, atol=1e-4)


def test_each_epoch_is_that_of_one_device(ranks: list[dict[str, Seen]]) -> None:
    one, first, second = ranks
    assert len(one["one"].weights) == EPOCHS
    for found in (one["two devices"], first["two"], second["two"]):
        assert len(found.weights) == EPOCHS
        assert_same(found, one["one"])
        assert found.result == pytest.approx(one["one"].result, abs=2e-5)
    for found in (first["two, batches"], second["two, batches"]):
        assert_same(found, one["one, batches"])


def test_rank_0_alone_writes(ranks: list[dict[str, Seen]], place: Path) -> None:
    assert ranks
    for name in ("one", "two", "devices"):
        assert (place / name / "model.keras").exists()
        assert sorted((place / name / "resume").glob("*.ckpt"))


def test_all_ranks_stop_after_the_same_batch(ranks: list[dict[str, Seen]]) -> None:
    one, first, second = ranks
    for found in (one["one, stopped"], first["two, stopped"], second["two, stopped"]):
        assert found.error == "stopped: stop"
        assert found.result is None
    # Rank 0's answer counts from the next time on that the ranks agree.
    assert first["two, stopped"].batches == second["two, stopped"].batches


def test_a_checkpoint_of_any_number_of_devices_continues_on_any_other(
    ranks: list[dict[str, Seen]],
) -> None:
    one, first, second = ranks
    for found in (one["two to one"], first["one to two"], second["one to two"]):
        assert 0 < len(found.weights) < EPOCHS
        assert_same(found, one["one"])
        assert found.result == pytest.approx(one["one"].result, abs=2e-5)


def test_unequal_weights_are_an_error(ranks: list[dict[str, Seen]]) -> None:
    _, first, second = ranks
    for found in (first["unequal"], second["unequal"]):
        assert found.error.startswith(
            "ParallelTrainingError: the 2 devices of this trial do not train one model: after "
        )

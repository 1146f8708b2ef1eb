"""What a worker prints of itself."""

from __future__ import annotations

import pytest

from hptune.core.resources import Capacity
from hptune.worker.dask.words import capacity_text


@pytest.mark.parametrize(
    ("capacity", "words"),
    [
        (Capacity((0,), memory_bytes=2_000_000_000), "1 core, 2 GB of memory"),
        (
            Capacity((0, 1), ("0",), memory_bytes=2_000_000_000),
            "2 cores, 1 GPU (0), 2 GB of memory",
        ),
        (
            Capacity((0, 1), ("0", "3"), memory_bytes=2_000_000_000),
            "2 cores, 2 GPUs (0, 3), 2 GB of memory",
        ),
    ],
)
def test_what_a_worker_offers(capacity: Capacity, words: str) -> None:
    assert capacity_text(capacity) == words

"""A real Grid Engine for the tests here."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from private_grid_engine import PrivateGridEngine, missing
from private_slurm import wait_until
from requirements import unavailable


@pytest.fixture(scope="module")
def one_grid_engine() -> Iterator[PrivateGridEngine]:
    """Return a private Grid Engine, or skip the test."""
    if why := missing():
        unavailable(f"the tests with Grid Engine cannot run: {why}")
    engine = PrivateGridEngine()
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


@pytest.fixture
def grid_engine(
    one_grid_engine: PrivateGridEngine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PrivateGridEngine]:
    """Return a Grid Engine with an empty queue; after the test, its queue must be empty."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "DASK_"))]:
        monkeypatch.delenv(name)
    for name, value in one_grid_engine.environment.items():
        monkeypatch.setenv(name, value)
    yield one_grid_engine
    with contextlib.suppress(TimeoutError):
        wait_until(lambda: not one_grid_engine.jobs(), "an empty queue", seconds=20)
    assert one_grid_engine.clear() == [], "the test left jobs behind"

"""What tests of real runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_runs import Hptune


@pytest.fixture
def hptune(tmp_path: Path) -> Iterator[Hptune]:
    """The command; after the test, nothing that it started may be left."""
    runner = Hptune(tmp_path)
    try:
        yield runner
    finally:
        runner.close()

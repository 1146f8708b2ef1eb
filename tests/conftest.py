"""What tests of real runs share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from attempts import Attempts
from real_runs import Hptune

from tuner.model_file import check_path
from tuner.worker.warm_parent import WarmParent


@pytest.fixture
def hptune(tmp_path: Path) -> Iterator[Hptune]:
    """The command; after the test, nothing that it started may be left."""
    runner = Hptune(tmp_path)
    try:
        yield runner
    finally:
        runner.close()


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmParent]:
    """One warm parent for the model files of many tests; each is read in a child of its own."""
    first = tmp_path_factory.mktemp("first") / "first.py"
    first.write_text("def objective(hp, trial):\n    return 0\n")
    parent = WarmParent(check_path(first))
    try:
        yield parent
    finally:
        parent.close()


@pytest.fixture
def attempts(warm: WarmParent, tmp_path: Path) -> Attempts:
    """Runs single attempts."""
    return Attempts(warm, tmp_path)

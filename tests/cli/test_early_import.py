"""`hptune run` has the framework imported while it imports its own parts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hptune.master import workforce
from hptune.user_code.source import ObjectiveSource
from hptune.worker.forkserver.client import ForkServer
from in_process import InProcess

MODELS = """
    def one(hp, trial):
        return hp.Float("x", 0, 1)

    def other(hp, trial):
        return hp.Float("y", 0, 1)
    """
LIGHT = ("--executor", "joblib", "--workers", 1, "--trials", 1)


@pytest.mark.parametrize("entry", ["one", "other"])
def test_the_process_that_is_started_early_serves_the_study(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    started, served = list[ObjectiveSource](), list[ObjectiveSource]()
    shared = workforce.ForkServer  # type: ignore[attr-defined]  # what the tests share

    @contextmanager
    def started_early(source: ObjectiveSource) -> Iterator[None]:
        started.append(source)
        yield

    def resting(source: ObjectiveSource) -> ForkServer:
        served.append(source)
        made: ForkServer = shared(source)
        return made

    monkeypatch.setattr(ForkServer, "started_early", started_early)
    monkeypatch.setattr(shared, "resting", resting)
    cli.file("models.py", MODELS)
    ended = cli("run", "models.py", "--entry", entry, *LIGHT)
    assert ended.code == 0, ended.err
    assert started == served != []

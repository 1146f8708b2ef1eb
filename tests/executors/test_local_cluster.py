"""A Dask cluster on this machine that cannot be started, or not be used."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any, NoReturn

import pytest

from hptune.core.clock import SystemClock
from hptune.errors import StudyError
from hptune.executors import local_cluster
from hptune.executors.base import RunContext
from hptune.executors.dask import DaskExecutor
from hptune.user_code.model_file import ObjectiveSource, SourceKind


def test_full_shared_memory_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start(**_: object) -> NoReturn:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError("_Nanny failed to start.") from error

    monkeypatch.setattr(local_cluster, "LocalCluster", start)
    monkeypatch.setattr(local_cluster, "_SHARED_MEMORY", "/proc")  # it never has space
    with pytest.raises(StudyError, match="cannot be started: /proc is full; remove files"):
        local_cluster.start_cluster([(0,)], (), tmp_path)


def test_a_cluster_without_a_client_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []

    class Cluster:
        def close(self, *, timeout: float) -> None:
            closed.append(timeout)

    def connect(*_: object, **__: object) -> NoReturn:
        raise OSError("the scheduler is gone")

    monkeypatch.setattr(local_cluster, "start_cluster", lambda *_: Cluster())
    monkeypatch.setattr(local_cluster, "Client", connect)
    run = RunContext(
        name="study",
        source=ObjectiveSource(SourceKind.FILE, "model.py"),
        clock=SystemClock(),
        fork_server=str(tmp_path / "server"),
    )
    executor = DaskExecutor(run, [(0,)])
    with pytest.raises(StudyError, match="does not answer: the scheduler is gone"):
        executor.open()
    assert closed == [20]
    assert list(tmp_path.iterdir()) == []
    executor.close()

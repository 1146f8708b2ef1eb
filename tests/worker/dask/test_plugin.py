"""A study's plugin whose worker leaves, without Dask."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed import Status

from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.core.trial import AttemptId
from tuner.worker.dask.plugin import StudyPlugin, _Task

ATTEMPT = AttemptId(3, 1)


def test_no_files_are_offered_to_a_master_that_cannot_be_reached(tmp_path: Path) -> None:
    did: list[Any] = []
    said: list[str] = []
    source = ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py"))
    plugin: Any = StudyPlugin(name="study", source=source, fork_server_address=None, cores={})
    worker = SimpleNamespace(status=Status.closing, batched_stream=None, say=said.append)
    plugin._worker, plugin._lock, plugin._leaving = worker, threading.Lock(), ""
    plugin._watching = plugin._joining = plugin.announcement = None
    plugin._tasks = {ATTEMPT: _Task(outlives_master=False)}
    plugin.remote = SimpleNamespace(abandon=did.append, close=lambda: did.append("closed"))
    plugin._runner = SimpleNamespace(
        outlive_master=lambda: did.append("waited"), close=lambda: did.append("stopped")
    )
    asyncio.run(plugin.teardown(worker))
    assert did == [ATTEMPT, "waited", "stopped", "closed"]
    assert said[0] == "study study: the connection to its master is lost; trials here stop"

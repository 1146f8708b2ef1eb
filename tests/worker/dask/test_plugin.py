"""A study's plugin whose worker leaves, without Dask."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from distributed import Status

from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.core.attempt import AttemptId, Cause, Ending, Halt
from tuner.core.messages import AttemptEnded
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


def test_the_worker_gives_no_reason_that_only_the_master_knows(tmp_path: Path) -> None:
    said: list[str] = []
    source = ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py"))
    plugin: Any = StudyPlugin(name="hptune-1", source=source, fork_server_address=None, cores={})
    plugin._worker = SimpleNamespace(say=said.append, log_event=lambda *_: None)
    plugin._lock, plugin._tasks = threading.Lock(), {}
    for ending in (
        Ending(Halt.PRUNE.cause, reason=Halt.PRUNE.reason),  # by a pruner, or by a user
        Ending(Cause.RETURNED),
        Ending(Cause.EXCEPTION, reason="ValueError: bad"),
    ):
        plugin._report_now(AttemptEnded(0.0, ATTEMPT, ending))
    assert [line.partition(" is over: ")[2] for line in said] == [
        "stopped early",
        str(Cause.RETURNED),
        f"{Cause.EXCEPTION} (ValueError: bad)",
    ]

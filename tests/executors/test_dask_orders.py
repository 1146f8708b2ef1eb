"""Orders of a Dask executor, on a client that answers as the test needs."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hptune.config.model_file import ObjectiveSource, SourceKind
from hptune.core.attempt import AttemptId, Halt
from hptune.core.clock import SystemClock
from hptune.core.messages import (
    AttemptEnded,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from hptune.core.resources import Capacity
from hptune.executors import dask as dask_executor
from hptune.executors.dask import DaskExecutor
from hptune.worker.dask.announcement import Announcement
from hptune.worker.dask.calls import PluginGone
from hptune.worker.orders import AttemptOrder, StopOrder


def test_a_worker_may_ask_for_files_before_the_attempt_is_noted(tmp_path: Path) -> None:
    found: list[bool] = []
    asking: list[threading.Thread] = []

    def submit(*_: object, **__: object) -> Any:
        asking.append(threading.Thread(target=lambda: found.append(executor._runs("w", 3))))
        asking[0].start()
        asking[0].join(0.1)
        return SimpleNamespace(add_done_callback=lambda _: None)

    executor = DaskExecutor(
        name="study",
        source=ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py")),
        clock=SystemClock(),
        client=SimpleNamespace(submit=submit),
    )
    executor._workers.add("w")
    attempt = AttemptId(3, 1)
    placed = SimpleNamespace(attempt=attempt, placement=SimpleNamespace(worker="w"))
    executor.start(cast("AttemptOrder", placed))
    asking[0].join()
    assert found == [True]


def test_an_order_to_stop_that_does_not_arrive_is_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_executor, "_AGAIN_SECONDS", 0.01)
    answers: list[Any] = [TimeoutError("no answer"), {}, {"w": None}]
    told: list[object] = []

    async def run(_function: object, _name: str, order: object, **_: object) -> Any:
        told.append(order)
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    ends = SimpleNamespace(add_done_callback=lambda _: None, done=lambda: False)
    loop = SimpleNamespace(add_callback=lambda function: asyncio.run(function()))
    executor = DaskExecutor(
        name="study",
        source=ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py")),
        clock=SystemClock(),
        client=SimpleNamespace(submit=lambda *_, **__: ends, run=run, loop=loop),
    )
    executor._workers.add("w")
    executor._opened = True
    placed = SimpleNamespace(attempt=AttemptId(3, 1), placement=SimpleNamespace(worker="w"))
    executor.start(cast("AttemptOrder", placed))
    executor.stop(AttemptId(3, 1), Halt.PRUNE)
    assert told == [StopOrder(AttemptId(3, 1), Halt.PRUNE)] * 3
    assert not answers


def test_an_order_for_a_worker_that_had_left_does_not_reach_it_when_it_is_back(
    tmp_path: Path,
) -> None:
    """The master gave it before it knew, and runs the trial again elsewhere."""
    submitted: list[AttemptId] = []
    failed: list[Any] = []
    gone = SimpleNamespace(status="error", exception=PluginGone)
    joined = Announcement(WorkerJoined(0.0, "w", "node", Capacity((0,))))

    def submit(_: object, name: str, order: AttemptOrder, **__: object) -> Any:
        submitted.append(order.attempt)
        return SimpleNamespace(add_done_callback=failed.append, status="error")

    async def run(*_: object, **__: object) -> Any:
        return {"w": joined}

    executor = DaskExecutor(
        name="study",
        source=ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py")),
        clock=SystemClock(),
        client=SimpleNamespace(
            submit=submit,
            run=run,
            cancel=lambda *_, **__: asyncio.sleep(0),
            status="running",
            scheduler_comm=None,
            loop=SimpleNamespace(
                add_callback=lambda function, *given: asyncio.run(function(*given)),
                call_later=lambda *_: None,
            ),
        ),
    )
    executor._opened = True
    executor._on_announced(joined)

    def start(trial: int) -> None:
        placement = SimpleNamespace(worker="w")
        placed = SimpleNamespace(attempt=AttemptId(trial, 0), placement=placement)
        executor.start(cast("AttemptOrder", placed))

    def told() -> list[type]:
        return [type(event) for event in executor.events(0.0)]

    assert told() == [WorkerJoined]
    start(0)
    failed[0](gone)
    start(1)
    assert told() == [WorkerLeaving, AttemptEnded, WorkerLeft]
    start(2)
    assert told() == [WorkerJoined]
    start(3)
    assert [each.trial for each in submitted] == [0, 3]

"""The queue in which all executors collect their events."""

from __future__ import annotations

import pytest

from hptune.core.clock import SystemClock
from hptune.core.messages import WorkerLeft
from hptune.errors import StudyError
from hptune.executors.base import EventQueue


def test_what_came_before_a_failure_is_read_before_it() -> None:
    queue = EventQueue(SystemClock())
    queue.put(WorkerLeft(0.0, "w", "gone"))
    queue.fail(StudyError("broken"))
    assert [type(event) for event in queue.get(0.0)] == [WorkerLeft]
    for _ in range(2):
        with pytest.raises(StudyError, match="broken"):
            queue.get(0.0)


def test_a_reader_who_is_woken_finds_nothing() -> None:
    queue = EventQueue(SystemClock())
    queue.wake()
    assert queue.get(60.0) == []


def test_a_reader_who_is_woken_finds_all_that_came() -> None:
    queue = EventQueue(SystemClock())
    queue.put(WorkerLeft(0.0, "before", "gone"))
    queue.wake()
    queue.put(WorkerLeft(0.0, "after", "gone"))
    queue.wake()
    assert [getattr(event, "worker", "") for event in queue.get(60.0)] == ["before", "after"]

"""`StudyAttempts`: a study's attempts on one Dask worker, and the threads of their tasks.

`plugin_state` decides; this module delivers its events and carries out its instructions.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ParamSpec

from ...core.attempt import AttemptId
from ...core.clock import polls
from ...core.messages import AttemptEnded, AttemptWaits
from ...user_code.source import ObjectiveSource
from .. import devices
from ..device_queue import DEVICE_QUEUE, WAITS, QueueEntry
from ..orders import AttemptOrder, ProcessOrder, StopOrder
from ..runner import AttemptRunner
from ..runner_state import GRACE_SECONDS
from ..transport.file_requests import FilesNotBrought
from ..transport.notices import FileNotice
from ..transport.remote_study import RemoteStudy
from .plugin_state import (
    Abandon,
    Begin,
    EnterQueue,
    Free,
    Instruction,
    Instructions,
    Message,
    PluginState,
    SendFiles,
)
from .words import ending_text, placement_text

_Given = ParamSpec("_Given")

_LEAVE_SECONDS = GRACE_SECONDS + 5.0
"""Seconds until every attempt has written its checkpoint, or was killed."""

_SEND_SECONDS = 120.0
"""Longest time, after that, in which a worker that leaves sends files to the master."""


@dataclass(slots=True)
class _Task:
    """The thread of an attempt's task, which only waits.

    Attributes:
        go: Set when the attempt holds its devices, or when it is over.
        ended: Set when it is over.
        entry: Its entry in the device queue; None before that.
    """

    go: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    entry: QueueEntry | None = None


class StudyAttempts:
    """The attempts of a study on one worker. All methods may be called from any thread.

    Args:
        name: The study's name.
        worker: Dask's worker.
        say: Takes a line for people who look at the worker.

    Attributes:
        state: What is known of the study here; only read it.
        source: The user's code as it is here; known when `runner` is.
        runner: The runner; None before the worker has joined.
        remote: The copy of the study; None where the worker sees its directory.
    """

    def __init__(self, name: str, worker: Any, say: Callable[[str], None]) -> None:
        self._name = name
        self._worker = worker
        self._say = say
        # The lock protects the state, the tasks, and the order of messages and of the queue.
        self._lock = threading.Lock()
        self._tasks: dict[AttemptId, _Task] = {}
        self.state = PluginState()
        self.source: ObjectiveSource
        self.runner: AttemptRunner | None = None
        self.remote: RemoteStudy | None = None

    def run(self, order: AttemptOrder) -> None:
        """Run an attempt and wait for its end; its events go to the study's topic."""
        task = _Task()
        with self._lock:
            self._tasks[order.attempt] = task
        self.deliver(self.state.order, order)
        if not task.go.is_set():
            self._say(f"trial {order.attempt.trial} {WAITS}")
            self.send(AttemptWaits(0.0, order.attempt, WAITS))
        task.go.wait()
        self.deliver(self.state.granted, order.attempt)
        task.ended.wait()

    def tell(self, order: StopOrder | ProcessOrder) -> None:
        """Give an attempt an order."""
        if isinstance(order, StopOrder):
            self.deliver(self.state.stop, order.attempt, order.halt)
        elif self.runner is not None:
            self.runner.tell(order)

    def release(self, reason: str) -> None:
        """Accept no more attempts, and wait until those on this worker are released."""
        if not self.deliver(self.state.leave, reason):
            return
        with self._lock:
            tasks = [*self._tasks.values()]
        deadline = time.monotonic() + _LEAVE_SECONDS
        for task in tasks:
            task.ended.wait(max(0.0, deadline - time.monotonic()))
        for _ in polls(_SEND_SECONDS, 0.1):
            has_ended = all(task.ended.is_set() for task in tasks)
            if has_ended or self.remote is None or not self.remote.sends:
                return

    def close(self) -> None:
        """Kill what runs, and give back all devices."""
        if self.runner is not None:
            self.runner.close()
            self._say("accepts no more trials of it")
        if self.remote is not None:
            self.remote.close()
        self.deliver(self.state.runner_closed)

    def send(self, message: FileNotice | object) -> None:
        """Send a message to the master."""
        # As bytes: Dask forwards only plain data between processes.
        self._worker.log_event(self._name, pickle.dumps(message))

    def leave_if_idle(self) -> bool:
        """Leave the study if nothing runs here; return whether it did."""
        with self._lock:
            return self.state.leave_if_idle()

    def deliver(
        self,
        event: Callable[_Given, Instructions],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> Instructions:
        """Deliver an event, a method of the state; carry out and return its instructions."""
        with self._lock:
            instructions = event(*given, **named)
            for instruction in instructions:
                self._carry_out_at_once(instruction)
        # Without the lock, for which Dask's event loop may wait: a runner or a disk may be slow.
        for instruction in instructions:
            self._carry_out(instruction)
        return instructions

    def _carry_out_at_once(self, instruction: Instruction) -> None:
        match instruction:
            case EnterQueue(order):
                task = self._tasks[order.attempt]
                task.entry = DEVICE_QUEUE.enter(self._name, order.placement, task.go.set)
            case Free(attempt):
                task = self._tasks.pop(attempt)
                if task.entry is not None:
                    DEVICE_QUEUE.release(task.entry)
                task.ended.set()
                task.go.set()
            case _ if isinstance(instruction, Message):
                self.send(instruction)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case AttemptEnded(_, attempt, ending):
                self._say(f"trial {attempt.trial} is over: {ending_text(ending)}")
            case Begin(order):
                self._say(
                    f"trial {order.attempt.trial} starts with {placement_text(order.placement)}"
                )
                self._begin(order)
            case StopOrder(attempt, halt) if self.runner is not None:
                self.runner.stop(attempt, halt)
                if self.remote is not None:
                    self.remote.bring_no_more(attempt)
            case Abandon(attempt) if self.remote is not None:
                self.remote.abandon(attempt)
            case SendFiles(ended) if self.remote is not None:
                self.remote.finish(
                    ended.attempt,
                    lambda not_sent: self.deliver(self.state.files_sent, ended, not_sent),
                )

    def _begin(self, order: AttemptOrder) -> None:
        brief = replace(order.brief, source=self.source)
        if self.remote is not None:
            try:
                self.remote.begin(order.attempt)
            except FilesNotBrought as error:
                reason = f"its files cannot be brought to {devices.node()}: {error}"
                self.deliver(self.state.not_brought, order.attempt, reason, is_full=error.is_full)
                return
            # Only the master can take what the attempt writes.
            limits = replace(brief.limits, master_grace_seconds=0.0)
            brief = replace(brief, directory=str(self.remote.path), limits=limits)
        if self.runner is not None:
            self.runner.start(replace(order, brief=brief))

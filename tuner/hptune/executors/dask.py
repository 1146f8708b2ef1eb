"""Attempts on Dask workers: those of a cluster on this machine, or of a connected client.

`dask_state` decides; this module delivers its events, and `dask_client.StudyCalls` carries out its
instructions.
"""

from __future__ import annotations

import contextlib
import pickle
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec

from ..core.attempt import AttemptId, Halt
from ..core.messages import Event, WorkerLeft
from ..core.notice import Notice
from ..worker.dask.announcement import Announcement
from ..worker.dask.plugin import StudyPlugin
from ..worker.dask.study_access import StudyAccess
from ..worker.orders import AttemptOrder, ProcessOrder, StopOrder
from ..worker.transport.notices import FileNotice
from .base import EventQueue, Executor, RunContext
from .dask_client import METADATA, StudyCalls, lost_scheduler, tried
from .dask_state import DaskState, FromWorker, Instructions
from .file_exchange import FileExchange
from .local_cluster import own_client

_Given = ParamSpec("_Given")

_SCHEDULER_TOPIC = "all"
"""The topic to which Dask's scheduler logs workers that are added and removed."""


class DaskExecutor(Executor):
    """Runs attempts on Dask workers.

    Each attempt is one Dask task on the worker that the engine chose, so Dask sees the worker as
    busy. Events come back on the study's own topic; Dask itself
    reports the death of a worker. Nothing waits in Dask's queue: only attempts that fit into free
    places are submitted.

    Args:
        run: The facts of the run. Workers of a client do not use its fork server.
        cores: The core ids of each worker of a cluster on this machine, which `open` starts and
            `close` stops. Ignored with a client.
        gpus: The names of the GPUs that they share out. Ignored with a
            client.
        client: A client whose workers are used instead; it stays open.
        workers_end: Whether the client's workers have stopped before `close`: then the plugin is
            not removed from them.
        access: How workers of a client find the study's files; None where they surely do.
    """

    def __init__(
        self,
        run: RunContext,
        cores: Sequence[tuple[int, ...]] = (),
        gpus: tuple[str, ...] = (),
        *,
        client: Any = None,
        workers_end: bool = False,
        access: StudyAccess | None = None,
    ) -> None:
        shares: Mapping[object, tuple[int, ...]] = {}
        self._clients: contextlib.AbstractContextManager[Any] = contextlib.nullcontext(client)
        if client is None:
            shares = dict(enumerate(cores))
            # The fork server removes its folder, and what is in it, also if this process is killed.
            self._clients = own_client(cores, gpus, str(Path(run.fork_server).parent))
        self._plugin = StudyPlugin(
            name=run.name,
            source=run.source,
            # Workers of others may run on other machines, or as another user.
            fork_server_address=run.fork_server if client is None else None,
            cores=shares,
            access=access,
        )
        self._workers_end = workers_end
        self._queue = EventQueue(run.clock)
        self._closing = contextlib.ExitStack()
        self._calls: StudyCalls
        self._files: FileExchange | None = None
        # The lock protects the state, and the order of its instructions.
        self._lock = threading.Lock()
        self._state = DaskState()
        self._has_ended = False

    def open(self) -> None:
        """Start the cluster, if it is ours, and ask every worker to join."""
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(self._clients)
            self._calls = StudyCalls(client, self._plugin, self._state, self._deliver)
            stack.callback(tried, self._calls.cancel_all)
            for topic in (_SCHEDULER_TOPIC, self._plugin.name):
                stack.callback(tried, client.unsubscribe_topic, topic=topic)
            if not self._workers_end:
                stack.callback(tried, self._calls.remove_plugin)
            stack.callback(self._end)
            with self._connected():
                if (access := self._plugin.access) is not None:
                    self._files = FileExchange(
                        client=client,
                        name=self._plugin.name,
                        access=access,
                        runs=self._runs,
                        joined=self._joined,
                    )
                    stack.callback(self._files.close)
                    client.loop.add_callback(self._files.ping)
                    tell = partial(client.set_metadata, [METADATA, self._plugin.name])
                    stack.callback(tried, tell, value=None)
                    tell(access.directory)  # for `studies_of`
                client.subscribe_topic(self._plugin.name, self._on_worker_event)
                client.subscribe_topic(_SCHEDULER_TOPIC, self._on_scheduler_event)
                self._deliver(self._state.listed, client.nthreads())
            self._closing = stack.pop_all()

    def _connected(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of calls that need the scheduler."""
        access = self._plugin.access
        study = "DIR" if access is None else shlex.quote(access.directory)
        return lost_scheduler(
            f"continue with `hptune resume {study}` (and `--connect`, if it has another address "
            "now); what the trials reported is stored"
        )

    def _deliver(
        self,
        event: Callable[_Given, Instructions],
        *given: _Given.args,
        **named: _Given.kwargs,
    ) -> None:
        """Deliver an event, which is a method of the state, and carry out its instructions."""
        with self._lock:
            for instruction in () if self._has_ended else event(*given, **named):
                if isinstance(instruction, Event):
                    self._queue.put(instruction)
                else:
                    self._calls.carry_out(instruction)

    def _end(self) -> None:
        with self._lock:
            self._has_ended = True

    def start(self, order: AttemptOrder) -> None:
        """Submit the attempt as a task to the worker of its placement."""
        with self._connected():
            self._deliver(self._state.order, order)

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Send the order to the attempt's plugin."""
        self._deliver(self._state.tell, StopOrder(attempt, halt))

    def tell(self, order: ProcessOrder) -> None:
        """Send the order to the attempt's plugin."""
        self._deliver(self._state.tell, order)

    def drain(self, worker: str, reason: str) -> None:
        """Report that the worker takes no more attempts; the worker itself need not know."""
        self._deliver(self._state.drain, worker, reason)

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return what happened since the last call, or before the scheduler was lost."""
        self._deliver(self._state.orders_given)
        is_lost = not self._calls.is_connected
        events = self._queue.get(0.0 if is_lost else timeout_seconds)
        with self._connected():
            if is_lost and not events:
                raise ConnectionError
        for event in events:
            if isinstance(event, WorkerLeft):
                self._deliver(self._state.left_is_known, event.worker)
        return events

    def wake(self) -> None:
        """Make a waiting `events` return at once."""
        self._queue.wake()

    def close(self) -> None:
        """Remove the plugins and, if it was started here, stop the cluster."""
        # A step may fail if the scheduler or a plugin is gone; the others are still taken.
        self._closing.close()

    def notices(self) -> Sequence[Notice]:
        """Return how files get to the workers, if that is news."""
        return () if self._files is None else [Notice(line) for line in self._files.lines()]

    @property
    def workers(self) -> Mapping[str, str]:
        """The workers that ask to be let in, and why each was refused; empty for those let in."""
        with self._lock:
            return self._state.refusals

    # --- called from Dask's threads -----------------------------------------------------------

    def _on_worker_event(self, stamped: Any) -> None:
        if not self._calls.is_connected:
            return
        message: FromWorker | Announcement | FileNotice = pickle.loads(stamped[1])  # noqa: S301 - our own workers'
        if isinstance(message, Announcement):
            self._deliver(self._state.announced, message)
        elif not isinstance(message, FileNotice):
            self._deliver(self._state.from_worker, message)
        elif self._files is not None:
            self._calls.client.loop.add_callback(self._files.handle, message)

    def _on_scheduler_event(self, stamped: Any) -> None:
        message = stamped[1]
        if not isinstance(message, dict) or not self._calls.is_connected:
            return
        if message.get("action") == "add-worker":
            self._deliver(self._state.added, message["worker"])
        elif message.get("action") == "remove-worker":
            self._deliver(self._state.removed, message["worker"])

    def _runs(self, worker: str, trial: int) -> bool:
        with self._lock:
            return self._state.runs(worker, trial)

    def _joined(self) -> Mapping[str, Announcement]:
        with self._lock:
            return self._state.joined

"""Attempts on Dask workers: those of a cluster on this machine, or of a connected client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import importlib.util
import pickle
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distributed import Client, Future

from ..config.model_file import ObjectiveSource
from ..core.attempt import AttemptId, Cause, Ending, Halt
from ..core.clock import Clock
from ..core.messages import (
    AttemptEnded,
    Event,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from ..errors import StudyError
from ..worker.addresses import page_from_here
from ..worker.dask import versions
from ..worker.dask.announcement import Announcement
from ..worker.dask.calls import (
    PluginGone,
    announcement,
    leave,
    refuse,
    run_attempt,
    tell_attempt,
)
from ..worker.dask.plugin import StudyPlugin, task_key
from ..worker.dask.study_access import StudyAccess
from ..worker.orders import AttemptOrder, MeetOrder, StopOrder
from ..worker.private_folder import dask_folder
from ..worker.transport.notices import FileNotice
from .base import EventQueue, Executor
from .dask_client import METADATA, lost_scheduler
from .file_exchange import FileExchange
from .local_cluster import interrupts_held_back, start_cluster

_SCHEDULER_TOPIC = "all"
"""The topic to which Dask's scheduler logs workers that are added and removed."""

_ASK_SECONDS = 15.0
"""Time for a worker to join when asked, which may import a lot; after that, it is asked again."""

_AGAIN_SECONDS = 5.0
"""Seconds until an order that did not reach its worker is sent again."""

_STEP_SECONDS = 30.0
"""How long a call to all workers may take; one of them may hang."""


class DaskExecutor(Executor):
    """Runs attempts on Dask workers.

    Each attempt is one Dask task on the worker that the engine chose, so Dask sees the worker as
    busy and its dashboard shows the trials. Events come back on the study's own topic; Dask itself
    reports the death of a worker. Nothing waits in Dask's queue: only attempts that fit into free
    places are submitted.

    Args:
        name: The study's name on the workers.
        source: The user's code.
        clock: Stamps the events.
        cores: The core ids of each worker of a cluster on this machine, which `open` starts and
            `close` stops. Ignored with a client.
        gpus: The GPUs that they share out, as CUDA_VISIBLE_DEVICES names them. Ignored with a
            client.
        client: A client whose workers are used instead; it stays open.
        workers_end: Whether the client's workers have stopped before `close`: then the plugin is
            not removed from them.
        fork_server_address: Address of the fork server, for the workers that are started here.
        access: How workers of a client find the study's files; None where they surely do.
    """

    def __init__(
        self,
        *,
        name: str,
        source: ObjectiveSource,
        clock: Clock,
        cores: Sequence[tuple[int, ...]] = (),
        gpus: tuple[str, ...] = (),
        client: Any = None,
        workers_end: bool = False,
        fork_server_address: str | None = None,
        access: StudyAccess | None = None,
    ) -> None:
        self._name = name
        self._workers_end = workers_end
        self._queue = EventQueue(clock)
        self._cores = cores
        self._gpus = gpus
        self._client = client
        self._is_ours = client is None
        self._access = access
        self._own = contextlib.ExitStack()
        self._futures: dict[AttemptId, tuple[str, Future[None]]] = {}
        self._workers: set[str] = set()
        self._refused: dict[str, str] = {}
        self._drained: set[str] = set()
        # Those whose leaving the last call of `events` has told.
        self._left: list[str] = []
        # Late messages of these workers are ignored.
        self._gone: set[str] = set()
        self._connection: Any = None
        self._files: FileExchange | None = None
        # The framework versions of the first worker; all others must have the same.
        self._frameworks: Mapping[str, str] | None = None
        self._lock = threading.Lock()
        self._opened = False
        shares: Mapping[object, tuple[int, ...]] = dict(enumerate(cores)) if self._is_ours else {}
        # Workers of others may run on other machines, or as another user.
        address = fork_server_address if self._is_ours else None
        # The fork server removes its folder, and what is in it, also if this process is killed.
        self._folder = None if address is None else str(Path(address).parent)
        self._plugin = StudyPlugin(
            name=name, source=source, fork_server_address=address, cores=shares, access=access
        )

    def open(self) -> None:
        """Start the cluster, if it is ours, and ask every worker to join."""
        with interrupts_held_back() if self._is_ours else contextlib.nullcontext():
            if self._is_ours:
                with contextlib.ExitStack() as stack:
                    scratch = stack.enter_context(dask_folder(self._folder))
                    cluster = start_cluster(self._cores, self._gpus, scratch)
                    stack.callback(cluster.close, timeout=20)
                    try:
                        self._client = Client(cluster, set_as_default=False)
                    except OSError as error:  # a TimeoutError is one, too
                        raise StudyError(f"the Dask cluster does not answer: {error}") from error
                    self._own = stack.pop_all()
            self._opened = True
            self._connection = self._client.scheduler_comm
            if self._access is not None:
                self._files = FileExchange(
                    client=self._client, name=self._name, access=self._access, runs=self._runs
                )
            with self._connected():
                self._client.subscribe_topic(self._name, self._on_plugin_event)
                self._client.subscribe_topic(_SCHEDULER_TOPIC, self._on_scheduler_event)
                self._tell_scheduler(None if self._access is None else self._access.directory)
                self._client.loop.add_callback(self._ask_to_join, *self._client.nthreads())

    def _tell_scheduler(self, directory: str | None) -> None:
        """Tell the scheduler where the study is, for `studies_of`; None when it ends."""
        if self._access is not None:
            self._client.set_metadata([METADATA, self._name], directory)

    def _connected(self) -> contextlib.AbstractContextManager[None]:
        """Return the context of calls that need the scheduler."""
        study = "DIR" if self._access is None else shlex.quote(self._access.directory)
        return lost_scheduler(
            f"continue with `hptune resume {study}` (and `--connect`, if it has another address "
            "now); what the trials reported is stored"
        )

    def start(self, order: AttemptOrder) -> None:
        """Submit the attempt as a task to the worker of its placement."""
        worker = order.placement.worker
        # Held until the attempt is noted, for which the worker's request for files may wait.
        with self._connected(), self._lock:
            if worker not in self._workers:
                return
            future = self._client.submit(
                run_attempt,
                self._name,
                order,
                key=task_key(self._name, order.attempt),
                workers=[worker],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            self._futures[order.attempt] = (worker, future)
        future.add_done_callback(lambda done: self._on_done(order.attempt, done))

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Send the order to the attempt's plugin."""
        self._tell(StopOrder(attempt, halt))

    def meet(self, order: MeetOrder) -> None:
        """Send the order to the rank's plugin."""
        self._tell(order)

    def _tell(self, order: StopOrder | MeetOrder) -> None:
        worker, future = self._futures.get(order.attempt, ("", None))
        if future is None or future.done():
            return

        async def send() -> None:
            while not await self._call(worker, tell_attempt, self._name, order):
                await asyncio.sleep(_AGAIN_SECONDS)
                if future.done() or worker not in self._workers or not self._opened:
                    return

        self._client.loop.add_callback(send)

    def drain(self, worker: str, reason: str) -> None:
        """Report that the worker takes no more attempts; the worker itself need not know."""
        with self._lock:
            if worker not in self._workers or worker in self._drained:
                return
            self._drained.add(worker)
        self._queue.put(WorkerLeaving(0.0, worker, reason))

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return what happened since the last call, or before the scheduler was lost."""
        # All orders that follow from the last events were given: none for a worker that had left
        # reaches it after it has joined again.
        if self._left:
            self._client.loop.add_callback(self._ask_to_join, *self._left)
            self._left = []
        is_lost = self._client.status != "running" or not self._is_connected
        events = self._queue.get(0.0 if is_lost else timeout_seconds)
        with self._connected():
            if is_lost and not events:
                raise ConnectionError
        for event in events:
            if isinstance(event, AttemptEnded):
                self._futures.pop(event.attempt, None)
            elif isinstance(event, WorkerLeft):
                self._left.append(event.worker)
                # Dask would keep their tasks for a worker that returns to the same address.
                for attempt, (worker, _) in list(self._futures.items()):
                    if worker == event.worker:
                        del self._futures[attempt]
        return events

    def wake(self) -> None:
        """Make a waiting `events` return at once."""
        self._queue.wake()

    def close(self) -> None:
        """Remove the plugins and, if it was started here, stop the cluster."""
        if not self._opened:
            return
        self._opened = False
        if self._files is not None:
            self._files.close()
        client = self._client
        futures = [future for _, future in list(self._futures.values())]
        self._futures.clear()
        steps: list[Callable[[], Any]] = [lambda: self._tell_scheduler(None)]
        if not self._workers_end:
            steps.append(lambda: client.run(leave, self._name, on_error="ignore"))
        steps += [
            lambda: client.unsubscribe_topic(self._name),
            lambda: client.unsubscribe_topic(_SCHEDULER_TOPIC),
            lambda: client.cancel(futures, force=True),
        ]
        if self._is_ours:
            steps += [client.close, self._own.close]
        for step in steps:
            # A step may fail if the scheduler or a plugin is gone; the others are still taken.
            with contextlib.suppress(Exception):
                _limited(step)

    def lines(self) -> Sequence[str]:
        """Return how files get to the workers, if that is news."""
        return () if self._files is None else self._files.lines()

    @property
    def workers(self) -> Mapping[str, str]:
        """The workers that ask to be let in, and why each was refused; empty for those let in."""
        with self._lock:
            return {**dict.fromkeys(self._workers, ""), **self._refused}

    @property
    def dashboard(self) -> str:
        """Address of Dask's dashboard; empty without Bokeh, which draws it, or from elsewhere."""
        if importlib.util.find_spec("bokeh") is None:
            return ""
        with contextlib.suppress(Exception):  # the scheduler is gone, which `events` will report
            return page_from_here(self._client.dashboard_link or "")
        return ""

    # --- called from Dask's thread ----------------------------------------------------------

    @property
    def _is_connected(self) -> bool:
        """Whether no event is missing: those sent until a client has reconnected are."""
        return self._client.scheduler_comm is self._connection

    def _on_plugin_event(self, stamped: Any) -> None:
        if not self._is_connected:
            return
        message: Event | Announcement | FileNotice = pickle.loads(stamped[1])  # noqa: S301 - our own workers'
        if isinstance(message, Announcement):
            self._on_announced(message)
        elif isinstance(message, FileNotice):
            if self._files is not None:
                self._client.loop.add_callback(self._files.handle, message)
        else:
            self._queue.put(message)

    def _on_announced(self, announced: Announcement) -> None:
        event = announced.event
        with self._lock:
            if self._is_known(event.worker):
                return
            if isinstance(event, WorkerJoined):
                different = self._other_frameworks(announced.versions)
                if not different:
                    self._workers.add(event.worker)
                    if self._files is not None:
                        sees = announced.sees_directory
                        self._files.joined(event.worker, event.node, sees_directory=sees)
                    self._queue.put(event)
                    return
                event = WorkerRefused(0.0, event.worker, event.node, different)
                answer = Announcement(event, announced.versions, is_of_versions=True)
                self._client.loop.add_callback(self._call, event.worker, refuse, self._name, answer)
            self._refused[event.worker] = event.reason
        self._queue.put(event)

    def _runs(self, worker: str, trial: int) -> bool:
        """Return whether an attempt of a trial runs on a worker."""
        with self._lock:
            placed = [*self._futures.items()]
        return worker in self._workers and any(
            name.trial == trial and where == worker for name, (where, _) in placed
        )

    def _is_known(self, worker: str) -> bool:
        return worker in self._workers or worker in self._refused or worker in self._gone

    def _other_frameworks(self, found: Mapping[str, str]) -> str:
        if self._frameworks is None:
            self._frameworks = found
        first = self._frameworks
        different = versions.differences(first, found, versions.OF_FRAMEWORKS)
        return versions.describe(different, here="the first worker", there="this one")

    def _on_scheduler_event(self, stamped: Any) -> None:
        message = stamped[1]
        if not isinstance(message, dict) or not self._is_connected:
            return
        if message.get("action") == "add-worker":
            with self._lock:
                self._gone.discard(message["worker"])
            self._client.loop.add_callback(self._ask_to_join, message["worker"])
        elif message.get("action") == "remove-worker":
            worker = message["worker"]
            with self._lock:
                self._refused.pop(worker, None)
                self._gone.add(worker)
                was_ours = self._forget(worker)
            if was_ours:
                self._queue.put(WorkerLeft(0.0, worker, f"the worker {worker} is gone"))

    def _forget(self, worker: str) -> bool:
        """Forget a worker that has left, and return whether it had joined; call with the lock."""
        if worker not in self._workers:
            return False
        self._workers.discard(worker)
        self._drained.discard(worker)
        if self._files is not None:
            self._files.left(worker)
        return True

    async def _ask_to_join(self, *workers: str) -> None:
        """Install the plugin in these workers, again and again until each has joined or left.

        Dask's own registration would also give it to workers that come after this process was
        killed, and no worker without hptune could start then.
        """
        with self._lock:
            asked = [each for each in workers if not self._is_known(each)]
        if not asked or not self._opened:
            return
        # A worker that is still starting answers when it has.
        call = self._client.run(announcement, self._plugin, workers=asked, on_error="return")
        with contextlib.suppress(OSError, TimeoutError):
            for worker, answer in (await asyncio.wait_for(call, _ASK_SECONDS)).items():
                self._on_answer(worker, answer)
        for worker in asked:
            # One by one: none of them waits for another that hangs.
            self._client.loop.call_later(_ASK_SECONDS, self._ask_to_join, worker)

    def _on_answer(self, worker: str, answer: Any) -> None:
        if isinstance(answer, Announcement):
            self._on_announced(answer)
        elif answer is not None and not isinstance(answer, OSError):
            reason = f"hptune does not run there ({answer!r}); is it installed?"
            self._on_announced(Announcement(WorkerRefused(0.0, worker, worker, reason)))

    async def _call(self, worker: str, function: Callable[..., Any], *arguments: object) -> bool:
        """Have a worker call a function, and return whether it has; the worker may hang."""
        with contextlib.suppress(OSError, TimeoutError):
            return worker in await self._client.run(
                function, *arguments, workers=[worker], on_error="ignore"
            )
        return False

    def _on_done(self, attempt: AttemptId, future: Future[None]) -> None:
        """Report the end of an attempt whose task failed, so that no plugin reports it."""
        if future.status != "error":
            return
        error = future.exception()
        if isinstance(error, PluginGone):
            self._client.loop.add_callback(self._on_plugin_gone, attempt)
        else:
            reason = f"the worker could not run it: {error!r}"
            self._queue.put(AttemptEnded(0.0, attempt, Ending(Cause.WORKER_LOST, reason=reason)))

    async def _on_plugin_gone(self, attempt: AttemptId) -> None:
        """Tell that a worker left without a word while this master was suspended.

        It is asked to join again when the master knows (`events`).
        """
        with self._lock:
            worker, _ = self._futures.get(attempt, ("", None))
            if not self._forget(worker):
                return  # this was reported with another attempt, or the worker has left Dask
            # A plugin leaves only when nothing runs, so these attempts have not begun.
            stuck = {
                name: future
                for name, (where, future) in [*self._futures.items()]
                if where == worker and future.status != "finished"
            }
            for name in stuck:
                self._futures.pop(name, None)
        reason = "it left the study while the master was suspended, and is asked to join again"
        # In this order: the released attempts, which are not charged, must not return there.
        self._queue.put(WorkerLeaving(0.0, worker, reason))
        # Else one of them might begin when the plugin is back.
        pending = [each for each in stuck.values() if each.status == "pending"]
        await self._client.cancel(pending, force=True)
        released = Ending(Cause.RELEASED, reason="its worker left while the master was suspended")
        for name in stuck:
            self._queue.put(AttemptEnded(0.0, name, released))
        self._queue.put(WorkerLeft(0.0, worker, f"the worker {worker} is gone: {reason}"))


def _limited(step: Callable[[], object]) -> None:
    """Call a function that waits for workers, for a limited time.

    Raises:
        TimeoutError: It has not returned yet; it continues in its thread.
    """
    done: concurrent.futures.Future[None] = concurrent.futures.Future()

    def work() -> None:
        try:
            step()
            done.set_result(None)
        except BaseException as error:  # raised in the waiting thread
            done.set_exception(error)

    threading.Thread(target=work, name="hptune-step", daemon=True).start()
    done.result(_STEP_SECONDS)

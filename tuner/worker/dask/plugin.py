"""`StudyPlugin`: a study's plugin in a Dask worker, which announces it and runs attempts."""

from __future__ import annotations

import asyncio
import logging
import math
import pickle
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distributed import Status, WorkerPlugin, get_worker, secede

from ...config.model_file import ObjectiveSource
from ...core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    WorkerJoined,
    WorkerLeaving,
    WorkerRefused,
)
from ...core.resources import Capacity, Placement
from ...core.trial import AttemptId, Ending, Halt
from .. import device_locks, devices
from ..addresses import host_of
from ..device_queue import DEVICE_QUEUE, WAITS, QueueEntry
from ..monitoring.master_liveness import MasterLiveness, MasterState
from ..orders import AttemptOrder, MeetOrder, StopOrder
from ..runner import AttemptRunner
from ..runner_state import GRACE_SECONDS, EarlyStops
from . import versions
from .study_access import StudyAccess, StudyAccessError, check_access

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
"""Seconds between two looks at the master's lease."""

_SILENT_SECONDS = 900.0
"""Seconds without a heartbeat after which the plugin of an idle study removes itself."""

_LEAVE_SECONDS = GRACE_SECONDS + 5.0
"""Seconds until every attempt has written its checkpoint, or was killed."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """The first message of a plugin about its worker.

    Attributes:
        event: That the worker joined, or why not.
        versions: The versions of the packages installed there.
        is_of_versions: Whether it was refused for its versions, as other studies will do.
    """

    event: WorkerJoined | WorkerRefused
    versions: Mapping[str, str] = field(default_factory=dict)
    is_of_versions: bool = False


@dataclass(slots=True)
class _Task:
    """An attempt on this worker.

    Attributes:
        outlives_master: Whether it continues for a while when its master is gone.
        go: Set when it holds its devices, or when it is over.
        ended: Set when it is over.
        entry: Its entry in the device queue; None before that.
    """

    outlives_master: bool
    go: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    entry: QueueEntry | None = None


class StudyPlugin(WorkerPlugin):
    """A study's plugin, which Dask installs in each worker, also in those that join later.

    Args:
        name: The study's name, which is also the plugin's and the event topic's.
        source: The user's code.
        fork_server_address: A fork server on this machine that may be used; None if there is none.
        cores: Core ids by the worker's name in Dask, if the master started the workers. Other
            workers use as many cores as their `--nthreads`.
        access: What the worker must see; None if it is a child process of the master.
    """

    def __init__(
        self,
        *,
        name: str,
        source: ObjectiveSource,
        fork_server_address: str | None,
        cores: Mapping[object, tuple[int, ...]],
        access: StudyAccess | None = None,
    ) -> None:
        self.name = name
        self._source = source
        self._fork_server_address = fork_server_address
        self._cores = cores
        self._access = access
        self._versions = versions.installed()
        self._must_agree: tuple[str, ...] = versions.OF_MASTER_AND_WORKER
        if access is not None and not access.digest:
            self._must_agree += versions.OF_PICKLED_CODE

    @property
    def study(self) -> str:
        """The study's directory if it is known; else its name."""
        return self.name if self._access is None else self._access.directory

    # --- joining and leaving ----------------------------------------------------------------

    async def setup(self, worker: Any) -> None:
        """Announce the worker; called by Dask when the worker is ready."""
        self._worker = worker
        self._lock = threading.Lock()
        self._tasks: dict[AttemptId, _Task] = {}
        self._stopped_early = EarlyStops()
        self._leaving = ""
        self._runner: AttemptRunner | None = None
        self._watching: asyncio.Future[None] | None = None
        self.announcement: Announcement | None = None
        # A worker of `hptune worker` lets its plugins release their attempts before it leaves.
        getattr(worker, "study_plugins", []).append(self)
        self.announcement = await asyncio.to_thread(self._announced)
        if isinstance(self.announcement.event, WorkerRefused):
            self._report_refusal(self.announcement)
        else:
            self._say("accepts trials of it")
            self._runner = AttemptRunner(
                self._source,
                self._report,
                fork_server_address=self._fork_server_address,
                host=host_of(self._worker.address),
            )
            if self._access is not None:
                watch = MasterLiveness(Path(self._access.directory), self._access.token)
                self._watching = asyncio.ensure_future(self._remove_if_stop_orphan(watch))
        self._send(self.announcement)

    async def _remove_if_stop_orphan(self, watch: MasterLiveness) -> None:
        """Remove the plugin when its master is gone and nothing runs."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            standing = await asyncio.to_thread(watch.look)
            is_silent = watch.silent_seconds > _SILENT_SECONDS
            is_gone = standing is MasterState.REPLACED or (
                standing is MasterState.LOST and is_silent
            )
            if is_gone and not self._tasks:
                self._watching = None
                self._say("its master is gone, and no trial runs here")
                await self._worker.plugin_remove(self.name)
                return

    def _announced(self) -> Announcement:
        here, node, worker = versions.installed(), devices.node(), self._worker
        different = versions.differences(self._versions, here, self._must_agree)
        if different:
            reason = versions.describe(different, here="the master", there="this worker")
            refused = WorkerRefused(0.0, worker.address, node, reason)
            return Announcement(refused, here, is_of_versions=True)
        if self._access is not None:
            try:
                self._source = check_access(self._access)
            except StudyAccessError as error:
                return Announcement(WorkerRefused(0.0, worker.address, node, str(error)), here)
        joined = WorkerJoined(
            0.0,
            worker.address,
            node,
            self._capacity(),
            ends_at=devices.ends_at(),
            gang=devices.gang(),
        )
        return Announcement(joined, here)

    def _capacity(self) -> Capacity:
        name = self._worker.name
        if name not in self._cores:
            return granted_by(self._worker)
        has = devices.share(devices.capacity(), list(self._cores).index(name), len(self._cores))
        return replace(has, cpus=self._cores[name])

    def refuse(self, announcement: Announcement) -> None:
        """Note that the master refused this worker, because it differs from its other ones."""
        self.announcement = announcement
        self._report_refusal(announcement)

    def _report_refusal(self, announcement: Announcement) -> None:
        reason = getattr(announcement.event, "reason", "")
        logger.error("This worker was refused by the study %s: %s", self.study, reason)
        was_refused = getattr(self._worker, "was_refused", None)
        if was_refused is not None:
            was_refused(is_of_versions=announcement.is_of_versions)

    @property
    def is_accepted(self) -> bool:
        """Whether the study uses this worker."""
        return self.announcement is not None and isinstance(self.announcement.event, WorkerJoined)

    async def teardown(self, worker: Any) -> None:
        """Stop; called by Dask when the worker closes, and when the study ends.

        If the worker must leave, its attempts are released: they write a checkpoint and stop. If
        the scheduler is gone, they first continue for their grace time.
        """
        if self._watching is not None:
            self._watching.cancel()
        if worker.status in (Status.closing, Status.closing_gracefully):
            if self._runner is not None and _is_cut_off(worker):
                self._stop_waiting()
                if self._tasks:
                    self._say(
                        "the connection to its master is lost; trials here continue for a while"
                    )
                await asyncio.to_thread(self._runner.outlive_master)
            await asyncio.to_thread(self.release, "the worker must leave")
        if self._runner is not None:
            await asyncio.to_thread(self._runner.close)
            self._say("accepts no more trials of it")
        with self._lock:
            tasks = [*self._tasks.values()]
            self._tasks.clear()
        for task in tasks:
            self._give_back(task)
        if self in getattr(worker, "study_plugins", ()):
            worker.study_plugins.remove(self)

    def _stop_waiting(self) -> None:
        with self._lock:
            tasks = dict(self._tasks)
        for attempt, task in tasks.items():
            if self._withdraw(task):
                self._end(attempt, Halt.RELEASE)

    def release(self, reason: str) -> None:
        """Accept no more attempts, and wait until those on this worker are released."""
        with self._lock:
            if self._leaving:
                return
            self._leaving = reason
            tasks = dict(self._tasks)
        if not self.is_accepted:
            return
        self._report(WorkerLeaving(0.0, self._worker.address, reason))
        for attempt in tasks:
            self.stop(StopOrder(attempt, Halt.RELEASE))
        deadline = time.monotonic() + _LEAVE_SECONDS
        for task in tasks.values():
            task.ended.wait(max(0.0, deadline - time.monotonic()))

    # --- attempts ---------------------------------------------------------------------------

    def run(self, order: AttemptOrder) -> None:
        """Run an attempt and wait for its end; its events go to the study's topic."""
        name, task = order.attempt, _Task(order.brief.limits.master_grace_seconds > 0)
        with self._lock:
            self._tasks[name] = task
            halt = Halt.RELEASE if self._leaving else self._stopped_early.take(name)
            if halt is None:
                task.entry = DEVICE_QUEUE.enter(self.name, order.placement, task.go.set)
        if halt is not None:
            self._end(name, halt)
        elif not task.go.is_set():
            self._say(f"trial {name.trial} {WAITS}")
            self._report(AttemptWaits(0.0, name, WAITS))
        task.go.wait()
        if self._runner is not None and not task.ended.is_set():
            self._say(f"trial {name.trial} starts with {_words(order.placement)}")
            self._runner.start(replace(order, brief=replace(order.brief, source=self._source)))
        task.ended.wait()

    def stop(self, order: StopOrder) -> None:
        """Tell an attempt to stop; one that waits in the device queue ends at once."""
        with self._lock:
            task = self._tasks.get(order.attempt)
            if task is None:
                # It is over, or this order has overtaken the order to start.
                self._stopped_early.add(order.attempt, order.halt)
                return
        if self._withdraw(task):
            self._end(order.attempt, order.halt)
        elif self._runner is not None:
            self._runner.stop(order.attempt, order.halt)

    def meet(self, order: MeetOrder) -> None:
        """Tell a rank where the other ranks are."""
        if self._runner is not None:
            self._runner.meet(order)

    def transition(self, key: object, start: str, finish: str, **_: object) -> None:
        """Stop orphans; called by Dask when a task of this worker changes its state.

        Dask releases a running task whose client, the master, is gone.
        """
        del start
        if finish == "released":
            with self._lock:
                orphans = [name for name in self._tasks if task_key(self.name, name) == key]
            for name in orphans:
                threading.Thread(target=self._stop_orphan, args=(name,), daemon=True).start()

    def _stop_orphan(self, attempt: AttemptId) -> None:
        with self._lock:
            task = self._tasks.get(attempt)
        # The runner stops attempts that run and may outlive their master.
        if task is None:
            return
        if self._withdraw(task):
            self._end(attempt, Halt.RELEASE)
        elif not task.outlives_master:
            self.stop(StopOrder(attempt, Halt.RELEASE))

    @staticmethod
    def _withdraw(task: _Task) -> bool:
        """Remove an attempt that waits from the device queue; return whether it waited."""
        return task.entry is not None and DEVICE_QUEUE.withdraw(task.entry)

    def _end(self, attempt: AttemptId, halt: Halt) -> None:
        self._report(AttemptEnded(0.0, attempt, Ending(halt.cause, reason=halt.reason)))

    def _report(self, event: Event) -> None:
        task = None
        if isinstance(event, AttemptEnded):
            with self._lock:
                task = self._tasks.pop(event.attempt, None)
            ending = event.ending
            why = f" ({ending.reason})" if ending.reason else ""
            self._say(f"trial {event.attempt.trial} is over: {ending.cause}{why}")
        self._send(event)
        if task is not None:
            self._give_back(task)

    def _give_back(self, task: _Task) -> None:
        if task.entry is not None:
            DEVICE_QUEUE.leave(task.entry)
        task.ended.set()
        task.go.set()

    def _say(self, what: str) -> None:
        """Print a line about the study, if this is a worker of `hptune worker`."""
        say = getattr(self._worker, "say", None)
        if say is not None:
            say(f"study {self.study}: {what}")

    def _send(self, message: Event | Announcement) -> None:
        # As bytes: Dask forwards only plain data between processes.
        self._worker.log_event(self.name, pickle.dumps(message))


def granted_by(worker: Any) -> Capacity:
    """Return what studies may use of a Dask worker that hptune did not start."""
    # A worker of `hptune worker` has what its user granted.
    granted: Capacity | None = getattr(worker, "granted", None)
    if granted is not None:
        return granted
    # Other workers may run on this machine; by Dask's convention its threads are its share.
    has, threads = devices.capacity(), worker.state.nthreads
    share = min(1.0, threads / len(has.cpus))
    gpus = device_locks.lock_gpus(has.gpus, math.ceil(share * len(has.gpus)))
    return replace(
        has,
        cpus=has.cpus[:threads],
        gpus=gpus,
        memory_bytes=int(share * has.memory_bytes),
        memory_taken_bytes=int(share * has.memory_taken_bytes),
    )


def _words(placement: Placement) -> str:
    cores, is_part = len(placement.cpus), placement.cpu_share < 1
    words = "1 core" if cores == 1 else f"{cores} cores"
    if is_part:
        words = f"{placement.cpu_share:.2g} of a core"
    if not placement.gpus:
        return words
    part = f"{placement.gpu_share:.2g} of " if placement.gpu_share < 1 else ""
    return f"{words} and {part}GPU {','.join(placement.gpus)}"


def _is_cut_off(worker: Any) -> bool:
    """Return whether the connection to the scheduler is lost."""
    stream = worker.batched_stream
    return stream is None or stream.comm is None or stream.comm.closed()


def task_key(name: str, attempt: AttemptId) -> str:
    """Return the key of an attempt's task in Dask."""
    return f"{name}-trial-{attempt}"


async def announcement(plugin: StudyPlugin, dask_worker: Any = None) -> Announcement | None:
    """Return what this worker has announced; None if it is not ready.

    Args:
        plugin: Installed if the worker lacks it, because an installation on all workers failed.
        dask_worker: Dask's worker.
    """
    name = plugin.name
    if name not in dask_worker.plugins:
        await dask_worker.plugin_add(plugin=plugin, name=name)
    plugin = dask_worker.plugins.get(name)
    announced: Announcement | None = getattr(plugin, "announcement", None)
    return announced


def refuse(name: str, announcement: Announcement, dask_worker: Any = None) -> None:
    """Tell this worker's plugin that the master refused it."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.refuse(announcement)


def run_attempt(name: str, order: AttemptOrder) -> None:
    """Run one attempt; this is its Dask task."""
    plugin: Any = get_worker().plugins[name]
    # The placement limits the attempts on a worker, not its number of threads.
    secede()
    plugin.run(order)


async def tell_attempt(name: str, order: StopOrder | MeetOrder, dask_worker: Any = None) -> None:
    """Give an attempt on this worker an order."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        take = plugin.stop if isinstance(order, StopOrder) else plugin.meet
        # It may wait while another attempt starts, which must not block Dask's event loop.
        await asyncio.to_thread(take, order)

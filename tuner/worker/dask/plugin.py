"""Our part inside a Dask worker: announces what the worker has, and runs attempts in it."""

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
from ..device_queue import DEVICE_QUEUE, WAITS, QueueEntry
from ..monitoring.master_liveness import MasterLiveness, MasterState
from ..orders import AttemptOrder, StopOrder
from ..runner import AttemptRunner
from ..runner_state import GRACE_SECONDS, EarlyStops
from . import versions
from .study_access import StudyAccess, StudyAccessError, check_access

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
_SILENT_SECONDS = 900.0
"""A master of whom nothing was seen for so long, and who has nothing running here, is gone."""

_LEAVE_SECONDS = GRACE_SECONDS + 5.0
"""By then every attempt has written its checkpoint, or was killed."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a plugin says of its worker: that it joined, with what is installed there, or why not.

    `is_of_versions` marks a refusal that will be the same for every study of this master's kind.
    """

    event: WorkerJoined | WorkerRefused
    versions: Mapping[str, str] = field(default_factory=dict)
    is_of_versions: bool = False


@dataclass(slots=True)
class _Task:
    """An attempt at this worker.

    Attributes:
        outlives_master: Whether it goes on for a while when its master is gone.
        go: Its turn has come, or it is over before that.
        ended: It is over.
        turn: Its place in the line; None before it stands there.
    """

    outlives_master: bool
    go: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)
    entry: QueueEntry | None = None


class StudyPlugin(WorkerPlugin):
    """Dask installs one in each worker, those that join later included.

    Args:
        name: The study's name: of the plugin, and of the topic that events go to.
        source: The user's code.
        warm_address: A warm parent on this node that may be used.
        cores: Core ids by the worker's name in Dask, where the master has shared out this
            machine's cores; other workers use what their `--nthreads` grants.
        access: What the worker must see; None where it is a process of the master's own.
    """

    def __init__(
        self,
        *,
        name: str,
        source: ObjectiveSource,
        warm_address: str | None,
        cores: Mapping[object, tuple[int, ...]],
        access: StudyAccess | None = None,
    ) -> None:
        self.name = name
        self._source = source
        self._warm_address = warm_address
        self._cores = cores
        self._access = access
        self._versions = versions.installed()
        self._must_agree: tuple[str, ...] = versions.OF_MASTER_AND_WORKER
        if access is not None and not access.digest:
            self._must_agree += versions.OF_PICKLED_CODE

    @property
    def study(self) -> str:
        """The study's directory, where the master told it; else its name."""
        return self.name if self._access is None else self._access.directory

    # --- coming and going -------------------------------------------------------------------

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
        # A worker of our own command has us release our attempts before it leaves.
        getattr(worker, "study_plugins", []).append(self)
        self.announcement = await asyncio.to_thread(self._announced)
        if isinstance(self.announcement.event, WorkerRefused):
            self._say_refused(self.announcement)
        else:
            self._say("takes trials from it")
            self._runner = AttemptRunner(self._source, self._tell, warm_address=self._warm_address)
            if self._access is not None:
                watch = MasterLiveness(Path(self._access.directory), self._access.token)
                self._watching = asyncio.ensure_future(self._outlast(watch))
        self._send(self.announcement)

    async def _outlast(self, watch: MasterLiveness) -> None:
        """Go when the master is gone that should have taken us away, and nothing runs."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            standing = await asyncio.to_thread(watch.look)
            is_silent = watch.silent_seconds > _SILENT_SECONDS
            is_gone = standing is MasterState.REPLACED or (
                standing is MasterState.LOST and is_silent
            )
            if is_gone and not self._tasks:
                self._watching = None
                self._say("its master is gone, and nothing runs here")
                await self._worker.plugin_remove(self.name)
                return

    def _announced(self) -> Announcement:
        here, node, worker = versions.installed(), devices.node(), self._worker
        different = versions.differences(self._versions, here, self._must_agree)
        if different:
            reason = versions.told(different, here="the master", there="this worker")
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
        """The master found that this worker does not go with its other ones."""
        self.announcement = announcement
        self._say_refused(announcement)

    def _say_refused(self, announcement: Announcement) -> None:
        reason = getattr(announcement.event, "reason", "")
        logger.error("This worker was refused by the study %s: %s", self.study, reason)
        told = getattr(self._worker, "was_refused", None)
        if told is not None:
            told(is_of_versions=announcement.is_of_versions)

    @property
    def is_accepted(self) -> bool:
        """Whether the study uses this worker."""
        return self.announcement is not None and isinstance(self.announcement.event, WorkerJoined)

    async def teardown(self, worker: Any) -> None:
        """Called by Dask when the worker closes, and when the study ends.

        If the worker has to go, its attempts are released: they write a checkpoint and leave. If
        it is the scheduler that has gone, they go on for as long as they may without a master.
        """
        if self._watching is not None:
            self._watching.cancel()
        if worker.status in (Status.closing, Status.closing_gracefully):
            if self._runner is not None and _is_cut_off(worker):
                self._stop_waiting()
                if self._tasks:
                    self._say("its master is cut off; what runs here goes on for a while")
                await asyncio.to_thread(self._runner.outlive_master)
            await asyncio.to_thread(self.release, "the worker has to go")
        if self._runner is not None:
            await asyncio.to_thread(self._runner.close)
            self._say("takes no more trials from it")
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
            if self._withdrawn(task):
                self._end(attempt, Halt.RELEASE)

    def release(self, reason: str) -> None:
        """Take no more attempts, and wait until those that are here have been released."""
        with self._lock:
            if self._leaving:
                return
            self._leaving = reason
            tasks = dict(self._tasks)
        if not self.is_accepted:
            return
        self._tell(WorkerLeaving(0.0, self._worker.address, reason))
        for attempt in tasks:
            self.stop(StopOrder(attempt, Halt.RELEASE))
        deadline = time.monotonic() + _LEAVE_SECONDS
        for task in tasks.values():
            task.ended.wait(max(0.0, deadline - time.monotonic()))

    # --- attempts ---------------------------------------------------------------------------

    def run(self, order: AttemptOrder) -> None:
        """Run an attempt and wait for its end; what happens meanwhile goes to the study's topic."""
        name, task = order.attempt, _Task(order.brief.master_grace_seconds > 0)
        with self._lock:
            self._tasks[name] = task
            halt = Halt.RELEASE if self._leaving else self._stopped_early.take(name)
            if halt is None:
                task.entry = DEVICE_QUEUE.enter(self.name, order.placement, task.go.set)
        if halt is not None:
            self._end(name, halt)
        elif not task.go.is_set():
            self._say(f"trial {name.trial} {WAITS}")
            self._tell(AttemptWaits(0.0, name, WAITS))
        task.go.wait()
        if self._runner is not None and not task.ended.is_set():
            self._say(f"trial {name.trial} begins, with {_held(order.placement)}")
            self._runner.start(replace(order, brief=replace(order.brief, source=self._source)))
        task.ended.wait()

    def stop(self, order: StopOrder) -> None:
        """Tell an attempt to stop; one that waits for its turn ends at once."""
        with self._lock:
            task = self._tasks.get(order.attempt)
            if task is None:
                # Over, or not begun: this order may have overtaken the order to start.
                self._stopped_early.add(order.attempt, order.halt)
                return
        if self._withdrawn(task):
            self._end(order.attempt, order.halt)
        elif self._runner is not None:
            self._runner.stop(order.attempt, order.halt)

    def transition(self, key: object, start: str, finish: str, **_: object) -> None:
        """Called by Dask when a task of this worker changes its state.

        A running task that nobody waits for any more is one whose master is gone.
        """
        del start
        if finish == "released":
            with self._lock:
                orphans = [name for name in self._tasks if task_key(self.name, name) == key]
            for name in orphans:
                threading.Thread(target=self._orphaned, args=(name,), daemon=True).start()

    def _orphaned(self, attempt: AttemptId) -> None:
        with self._lock:
            task = self._tasks.get(attempt)
        # What runs, and may outlive its master, is the runner's business.
        if task is None:
            return
        if self._withdrawn(task):
            self._end(attempt, Halt.RELEASE)
        elif not task.outlives_master:
            self.stop(StopOrder(attempt, Halt.RELEASE))

    @staticmethod
    def _withdrawn(task: _Task) -> bool:
        """Whether the attempt waited for its turn, and does so no longer."""
        return task.entry is not None and DEVICE_QUEUE.withdraw(task.entry)

    def _end(self, attempt: AttemptId, halt: Halt) -> None:
        self._tell(AttemptEnded(0.0, attempt, Ending(halt.cause, reason=f"told to {halt}")))

    def _tell(self, event: Event) -> None:
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
        """Tell who watches this worker, if it is one of our own command."""
        say = getattr(self._worker, "say", None)
        if say is not None:
            say(f"study {self.study}: {what}")

    def _send(self, message: Event | Announcement) -> None:
        # As bytes: Dask forwards plain data between processes only.
        self._worker.log_event(self.name, pickle.dumps(message))


def granted_by(worker: Any) -> Capacity:
    """What studies may use of a Dask worker that they have not started."""
    # A worker of our own command knows what its user grants.
    granted: Capacity | None = getattr(worker, "granted", None)
    if granted is not None:
        return granted
    # Others may run beside it; Dask's own rule is that its threads tell its share.
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


def _held(placement: Placement) -> str:
    cores, is_part = len(placement.cpus), placement.cpu_share < 1
    told = "1 core" if cores == 1 else f"{cores} cores"
    if is_part:
        told = f"{placement.cpu_share:.2g} of a core"
    if not placement.gpus:
        return told
    part = f"{placement.gpu_share:.2g} of " if placement.gpu_share < 1 else ""
    return f"{told} and {part}GPU {','.join(placement.gpus)}"


def _is_cut_off(worker: Any) -> bool:
    """Whether the connection to the scheduler is gone."""
    stream = worker.batched_stream
    return stream is None or stream.comm is None or stream.comm.closed()


def task_key(name: str, attempt: AttemptId) -> str:
    """What Dask calls the task of an attempt."""
    return f"{name}-trial-{attempt}"


async def announcement(plugin: StudyPlugin, dask_worker: Any = None) -> Announcement | None:
    """What this worker has announced; None if it is not ready.

    Args:
        plugin: For a worker that was not told, as when telling another one went wrong.
        dask_worker: Dask's worker.
    """
    name = plugin.name
    if name not in dask_worker.plugins:
        await dask_worker.plugin_add(plugin=plugin, name=name)
    plugin = dask_worker.plugins.get(name)
    announced: Announcement | None = getattr(plugin, "announcement", None)
    return announced


def refuse(name: str, announcement: Announcement, dask_worker: Any = None) -> None:
    """Tell this worker that it is refused after all."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.refuse(announcement)


def run_attempt(name: str, order: AttemptOrder) -> None:
    """The Dask task of one attempt."""
    plugin: Any = get_worker().plugins[name]
    # Our own placement says how many attempts a worker carries, not its number of threads.
    secede()
    plugin.run(order)


async def stop_attempt(name: str, order: StopOrder, dask_worker: Any = None) -> None:
    """Tell an attempt on this worker to stop."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        # It may have to wait while another attempt is started; Dask's own work may not.
        await asyncio.to_thread(plugin.stop, order)

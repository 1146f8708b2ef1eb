"""`StudyPlugin`: a study's plugin in a Dask worker, which announces it and runs attempts."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from distributed import Status, WorkerPlugin

from ...config.model_file import ObjectiveSource
from ...core.attempt import AttemptId, Cause, Ending, Halt
from ...core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    WorkerJoined,
    WorkerLeaving,
    WorkerRefused,
)
from .. import devices
from ..addresses import host_of
from ..device_queue import DEVICE_QUEUE, WAITS, QueueEntry
from ..monitoring.master_liveness import MasterLiveness, MasterState
from ..orders import AttemptOrder, MeetOrder, StopOrder
from ..private_folder import create_folder
from ..runner import AttemptRunner
from ..runner_state import GRACE_SECONDS, EarlyStops
from ..transport.endings import ending_of_remote
from ..transport.file_requests import FilesNotBrought
from ..transport.notices import FileNotice
from ..transport.remote_study import NotSent, RemoteStudy
from . import versions
from .announcement import Announcement
from .study_access import StudyAccess, StudyAccessError, check_access
from .words import ending_words, placement_words

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
"""Seconds between two looks at the master's lease."""

_SILENT_SECONDS = 900.0
"""Seconds without a heartbeat after which the plugin of an idle study removes itself."""

_LEAVE_SECONDS = GRACE_SECONDS + 5.0
"""Seconds until every attempt has written its checkpoint, or was killed."""

_SEND_SECONDS = 120.0
"""Longest time, after that, in which a worker that leaves sends files to the master."""

_UNHEARD_SECONDS = 180.0
"""Seconds without a word from the master after which the plugin of an idle study removes itself, on
a worker that does not see the master's lease; the master calls every `PING_SECONDS`."""

PING_SECONDS = 30.0
"""Seconds between two calls of the master to workers that do not see its lease."""


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
    """A study's plugin, which its master installs in each worker when that joins the scheduler.

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
        self.access = access
        self._versions = versions.installed()
        self._must_agree: tuple[str, ...] = versions.OF_MASTER_AND_WORKER
        if access is not None and not access.digests:
            self._must_agree += versions.OF_PICKLED_CODE

    @property
    def study(self) -> str:
        """The study's directory if it is known; else its name."""
        return self.name if self.access is None else self.access.directory

    # --- joining and leaving ----------------------------------------------------------------

    async def setup(self, worker: Any) -> None:
        """Announce the worker; called by Dask when the worker is ready."""
        self._worker = worker
        self._lock = threading.Lock()
        self._tasks: dict[AttemptId, _Task] = {}
        self._stopped_early = EarlyStops()
        self._is_leaving = False
        self._runner: AttemptRunner | None = None
        self._watching: asyncio.Future[None] | None = None
        self._joining: asyncio.Future[None] | None = None
        self.remote: RemoteStudy | None = None
        self.announcement: Announcement | None = None
        # A worker of `hptune worker` lets its plugins release their attempts before it leaves.
        getattr(worker, "study_plugins", []).append(self)
        announced = await asyncio.to_thread(self._announced)
        if self._is_leaving:
            return
        if announced is None:
            # In the background: the master's call does not wait for the code, which may be large.
            self._joining = asyncio.ensure_future(self._join_remotely())
        else:
            self._announce(announced)

    async def _join_remotely(self) -> None:
        """Announce the worker when it has the user's code, which is not visible here."""
        assert self.access is not None
        self._say("its directory is not visible here; files go over the connection")
        worker = self._worker
        try:
            folder = await asyncio.to_thread(create_folder, worker.local_directory)
            self.remote = RemoteStudy(
                folder,
                worker=worker.address,
                limit_bytes=self.access.limit_bytes,
                tell=self._send,
            )
            await asyncio.to_thread(self.remote.fetch_code)
            self._source = self.access.source_in(folder)
        except (FilesNotBrought, OSError) as error:
            why = str(error)
            if isinstance(error, OSError):
                why = f"no folder for them can be created in {worker.local_directory}: {error}"
            reason = f"{self._unseen}, and files cannot be brought to it ({why})"
            self._announce(Announcement.refused(worker, reason, sees_directory=False))
        else:
            # What the worker has may take nvidia-smi seconds to tell.
            joined = await asyncio.to_thread(
                Announcement.joined, worker, self._cores, sees_directory=False
            )
            self._announce(joined)

    def _announce(self, announced: Announcement) -> None:
        if isinstance(announced.event, WorkerJoined):
            try:
                self._runner = AttemptRunner(
                    self._source,
                    self._report,
                    fork_server_address=self._fork_server_address,
                    host=host_of(self._worker.address),
                )
            except (OSError, RuntimeError) as error:  # no file descriptor or thread is left, say
                announced = Announcement.refused(self._worker, f"no trial can run there: {error}")
        self.announcement = announced
        if isinstance(announced.event, WorkerRefused):
            self._report_refusal(announced)
        else:
            self._say("accepts trials of it")
            if self.access is not None:
                watch = None
                if self.remote is None:
                    watch = MasterLiveness(Path(self.access.directory), self.access.token)
                self._watching = asyncio.ensure_future(self._remove_if_orphaned(watch))
        self._send(announced)

    async def _remove_if_orphaned(self, watch: MasterLiveness | None) -> None:
        """Remove the plugin when its master is gone and nothing runs."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if watch is not None:
                standing = await asyncio.to_thread(watch.look)
                is_silent = watch.silent_seconds > _SILENT_SECONDS
                is_gone = standing is MasterState.REPLACED or (
                    standing is MasterState.LOST and is_silent
                )
            else:
                is_gone = self.remote is None or self.remote.silent_seconds > _UNHEARD_SECONDS
            if is_gone and not self._tasks:
                self._watching = None
                self._say("its master is gone, and no trial runs here")
                await self._worker.plugin_remove(self.name)
                return

    def _announced(self) -> Announcement | None:
        """Return the announcement; None if the worker does not see the study's directory."""
        here = versions.installed()
        if different := versions.differences(self._versions, here, self._must_agree):
            reason = versions.describe(different, here="the master", there="this worker")
            return Announcement.refused(self._worker, reason, is_of_versions=True)
        if self.access is not None:
            try:
                self._source = check_access(self.access)
            except StudyAccessError as error:
                self._unseen = str(error)
                return None
        return Announcement.joined(self._worker, self._cores)

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
        the scheduler is gone, they first continue for their grace time; where only the master could
        take their files, they stop.
        """
        for waiting in (self._watching, self._joining):
            if waiting is not None:
                waiting.cancel()
        if worker.status in (Status.closing, Status.closing_gracefully):
            if self._runner is not None and _is_cut_off(worker):
                for attempt in self._attempts:
                    self._end_waiting(attempt, Halt.RELEASE)
                attempts = self._attempts
                if attempts:
                    then = "continue for a while" if self.remote is None else "stop"
                    self._say(f"the connection to its master is lost; trials here {then}")
                if self.remote is not None:
                    for attempt in attempts:
                        self.remote.abandon(attempt)
                await asyncio.to_thread(self._runner.outlive_master)
            await asyncio.to_thread(self.release, "the worker must leave")
        with self._lock:
            self._is_leaving = True  # also for `setup`, which may still look at the machine
        if self._runner is not None:
            await asyncio.to_thread(self._runner.close)
            self._say("accepts no more trials of it")
        if self.remote is not None:
            await asyncio.to_thread(self.remote.close)
        with self._lock:
            tasks = [*self._tasks.values()]
            self._tasks.clear()
        for task in tasks:
            self._give_back(task)
        if self in getattr(worker, "study_plugins", ()):
            worker.study_plugins.remove(self)

    @property
    def _attempts(self) -> list[AttemptId]:
        """The attempts on this worker."""
        with self._lock:
            return [*self._tasks]

    def release(self, reason: str) -> None:
        """Accept no more attempts, and wait until those on this worker are released."""
        with self._lock:
            if self._is_leaving:
                return
            self._is_leaving = True
            tasks = dict(self._tasks)
        if not self.is_accepted:
            return
        self._report(WorkerLeaving(0.0, self._worker.address, reason))
        for attempt in tasks:
            self.stop(StopOrder(attempt, Halt.RELEASE))
        deadline = time.monotonic() + _LEAVE_SECONDS
        for task in tasks.values():
            task.ended.wait(max(0.0, deadline - time.monotonic()))
        deadline += _SEND_SECONDS
        while self.remote is not None and self.remote.sends and time.monotonic() < deadline:
            if all(task.ended.is_set() for task in tasks.values()):
                return
            time.sleep(0.1)

    # --- attempts ---------------------------------------------------------------------------

    def run(self, order: AttemptOrder) -> None:
        """Run an attempt and wait for its end; its events go to the study's topic."""
        name, task = order.attempt, _Task(order.brief.limits.master_grace_seconds > 0)
        with self._lock:
            self._tasks[name] = task
            halt = Halt.RELEASE if self._is_leaving else self._stopped_early.take(name)
            if halt is None:
                task.entry = DEVICE_QUEUE.enter(self.name, order.placement, task.go.set)
        if halt is not None:
            self._send_end(name, halt.ending)
        elif not task.go.is_set():
            self._say(f"trial {name.trial} {WAITS}")
            self._report(AttemptWaits(0.0, name, WAITS))
        task.go.wait()
        if self._runner is not None and not task.ended.is_set():
            self._say(f"trial {name.trial} starts with {placement_words(order.placement)}")
            self._start(self._runner, order)
        task.ended.wait()

    def _start(self, runner: AttemptRunner, order: AttemptOrder) -> None:
        brief = replace(order.brief, source=self._source)
        if self.remote is not None:
            try:
                self.remote.begin(order.attempt)
            except FilesNotBrought as error:
                reason = f"its files cannot be brought to {devices.node()}: {error}"
                if error.is_full:
                    self._leave_as_full()
                self._send_end(order.attempt, Ending(Cause.WORKER_LOST, reason=reason))
                return
            # Only the master can take what the attempt writes.
            limits = replace(brief.limits, master_grace_seconds=0.0)
            brief = replace(brief, directory=str(self.remote.path), limits=limits)
        runner.start(replace(order, brief=brief))

    def stop(self, order: StopOrder) -> None:
        """Tell an attempt to stop; one that waits in the device queue ends at once."""
        with self._lock:
            if order.attempt not in self._tasks:
                # It is over, or this order has overtaken the order to start.
                self._stopped_early.add(order.attempt, order.halt)
                return
        if not self._end_waiting(order.attempt, order.halt) and self._runner is not None:
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
        if task is None or self._end_waiting(attempt, Halt.RELEASE):
            return
        # The runner stops attempts that run and may outlive their master.
        if self.remote is not None or not task.outlives_master:
            if self.remote is not None:
                self.remote.abandon(attempt)
            self.stop(StopOrder(attempt, Halt.RELEASE))

    def _end_waiting(self, attempt: AttemptId, halt: Halt) -> bool:
        """End an attempt that waits in the device queue; return whether it waited."""
        with self._lock:
            task = self._tasks.get(attempt)
        if task is None or task.entry is None or not DEVICE_QUEUE.withdraw(task.entry):
            return False
        self._send_end(attempt, halt.ending)
        return True

    def _send_end(self, attempt: AttemptId, ending: Ending) -> None:
        """Send the end of an attempt that has not begun."""
        self._report_now(AttemptEnded(0.0, attempt, ending))

    def _report(self, event: Event) -> None:
        """Send an event; the end of an attempt after all its files."""
        remote = self.remote
        if remote is None or not isinstance(event, AttemptEnded):
            self._report_now(event)
        elif remote.is_used_by(event.attempt):
            remote.finish(event.attempt, lambda not_sent: self._sent(event, not_sent))
        else:
            self._report_now(event)

    def _sent(self, event: AttemptEnded, not_sent: NotSent | None) -> None:
        """Report the end of an attempt whose files the study has now, or cannot have."""
        if event.ending.cause is Cause.NO_ROOM:
            self._leave_as_full()
        ending = ending_of_remote(event.ending, not_sent, node=devices.node())
        self._report_now(replace(event, ending=ending))

    def _leave_as_full(self) -> None:
        reason = "its local disk is full"
        self._send(WorkerLeaving(0.0, self._worker.address, reason))

    def _report_now(self, event: Event) -> None:
        task = None
        if isinstance(event, AttemptEnded):
            with self._lock:
                task = self._tasks.pop(event.attempt, None)
            self._say(f"trial {event.attempt.trial} is over: {ending_words(event.ending)}")
        self._send(event)
        if task is not None:
            self._give_back(task)

    @staticmethod
    def _give_back(task: _Task) -> None:
        if task.entry is not None:
            DEVICE_QUEUE.leave(task.entry)
        task.ended.set()
        task.go.set()

    def _say(self, what: str) -> None:
        """Print a line about the study, if this is a worker of `hptune worker`."""
        say = getattr(self._worker, "say", None)
        if say is not None:
            say(f"study {self.study}: {what}")

    def _send(self, message: Event | Announcement | FileNotice) -> None:
        # As bytes: Dask forwards only plain data between processes.
        self._worker.log_event(self.name, pickle.dumps(message))


def _is_cut_off(worker: Any) -> bool:
    """Return whether the connection to the scheduler is lost."""
    stream = worker.batched_stream
    return stream is None or stream.comm is None or stream.comm.closed()


def task_key(name: str, attempt: AttemptId) -> str:
    """Return the key of an attempt's task in Dask."""
    return f"{name}-trial-{attempt}"

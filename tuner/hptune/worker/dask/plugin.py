"""`StudyPlugin`: a study's plugin in a Dask worker, which lets it join and leave."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from distributed import Status, WorkerPlugin

from ...core.attempt import AttemptId
from ...core.messages import WorkerJoined, WorkerRefused
from ...user_code.source import ObjectiveSource
from ..addresses import host_of
from ..monitoring.master_liveness import MasterLiveness, MasterState
from ..private_folder import create_folder
from ..runner import AttemptRunner
from ..transport.file_requests import FilesNotBrought
from ..transport.remote_study import RemoteStudy
from . import versions
from .announcement import Announcement
from .plugin_state import Phase
from .study_access import StudyAccess, StudyAccessError, check_access
from .study_attempts import StudyAttempts

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0
"""Seconds between two looks at the master's lease."""

_SILENT_SECONDS = 900.0
"""Seconds without a heartbeat after which the plugin of an idle study removes itself."""

_UNHEARD_SECONDS = 180.0
"""Seconds without a word from the master after which the plugin of an idle study removes itself, on
a worker that does not see the master's lease; the master calls every `PING_SECONDS`."""

PING_SECONDS = 30.0
"""Seconds between two calls of the master to workers that do not see its lease."""


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

    @property
    def study(self) -> str:
        """The study's directory if it is known; else its name."""
        return self.name if self.access is None else self.access.directory

    # --- joining and leaving ----------------------------------------------------------------

    async def setup(self, worker: Any) -> None:
        """Announce the worker; called by Dask when the worker is ready."""
        self._worker = worker
        self._background: asyncio.Future[None] | None = None
        self.attempts = StudyAttempts(self.name, worker, self._say)
        # A worker of `hptune worker` lets its plugins release their attempts before it leaves.
        getattr(worker, "study_plugins", []).append(self)
        try:
            announced = await asyncio.to_thread(self._look)
        except StudyAccessError as unseen:
            if self._is_joining:
                # The master's call does not wait for the code, which may be large.
                self._background = asyncio.ensure_future(self._join_remotely(str(unseen)))
        else:
            self._announce(announced)
            if self.access is not None and self.attempts.runner is not None:
                watch = MasterLiveness(Path(self.access.directory), self.access.token)
                self._background = asyncio.ensure_future(self._remove_if_orphaned(watch))

    @property
    def _is_joining(self) -> bool:
        return self.attempts.state.phase is Phase.JOINING

    def _look(self) -> Announcement:
        """Return what to announce of a worker that sees the study's directory.

        Raises:
            StudyAccessError: It does not see it.
        """
        must_agree: tuple[str, ...] = versions.OF_MASTER_AND_WORKER
        if self.access is not None and not self.access.digests:
            must_agree += versions.OF_PICKLED_CODE
        if different := versions.differences(self._versions, versions.installed(), must_agree):
            reason = versions.text(different, here="the master", there="this worker")
            return Announcement.refused(self._worker, reason, is_of_versions=True)
        if self.access is not None:
            self._source = check_access(self.access)
        return Announcement.joined(self._worker, self._cores)

    async def _join_remotely(self, unseen: str) -> None:
        """Announce the worker when it has the user's code, which is not visible here."""
        assert self.access is not None
        self._say("its directory is not visible here; files go over the connection")
        worker = self._worker
        try:
            folder = await asyncio.to_thread(create_folder, worker.local_directory)
            self.attempts.remote = remote = RemoteStudy(
                folder,
                worker=worker.address,
                limit_bytes=self.access.limit_bytes,
                tell=self.attempts.send,
            )
            await asyncio.to_thread(remote.fetch_code)
            self._source = self.access.source_in(folder)
        except (FilesNotBrought, OSError) as error:
            why = str(error)
            if isinstance(error, OSError):
                why = f"no folder for them can be created in {worker.local_directory}: {error}"
            reason = f"{unseen}, and files cannot be brought to it ({why})"
            self._announce(Announcement.refused(worker, reason, sees_directory=False))
        else:
            # What the worker has may take nvidia-smi seconds to tell.
            joined = await asyncio.to_thread(
                Announcement.joined, worker, self._cores, sees_directory=False
            )
            self._announce(joined)
            await self._remove_if_orphaned(None)

    def _announce(self, announced: Announcement) -> None:
        if not self._is_joining:
            return  # the study or the worker has ended meanwhile
        if isinstance(announced.event, WorkerJoined):
            self.attempts.source = self._source
            granted = getattr(self._worker, "granted", None)
            try:
                self.attempts.runner = AttemptRunner(
                    self._source,
                    lambda event: self.attempts.deliver(self.attempts.state.from_runner, event),
                    fork_server_address=self._fork_server_address,
                    host=host_of(self._worker.address),
                    memory_bytes=granted.memory_bytes if granted else 0,
                )
                self._say("accepts trials of it")
            except (OSError, RuntimeError) as error:  # no file descriptor or thread is left, say
                announced = Announcement.refused(self._worker, f"no trial can run there: {error}")
        self.attempts.deliver(self.attempts.state.announced, announced)
        self._report_refusal(announced)

    async def _remove_if_orphaned(self, watch: MasterLiveness | None) -> None:
        """Remove the plugin when its master is gone and nothing runs."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            remote = self.attempts.remote
            if watch is not None:
                standing = await asyncio.to_thread(watch.look)
                is_silent = watch.silent_seconds > _SILENT_SECONDS
                is_gone = standing is MasterState.REPLACED or (
                    standing is MasterState.LOST and is_silent
                )
            else:
                is_gone = remote is None or remote.silent_seconds > _UNHEARD_SECONDS
            if is_gone and self.attempts.leave_if_idle():
                self._say("its master is gone, and no trial runs here")
                await self._worker.plugin_remove(self.name)
                return

    def refuse(self, announcement: Announcement) -> None:
        """Note that the master refused this worker, because it differs from its other ones."""
        self.attempts.deliver(self.attempts.state.refused, announcement)
        self._report_refusal(announcement)

    def _report_refusal(self, announcement: Announcement) -> None:
        if not isinstance(announcement.event, WorkerRefused):
            return
        logger.error(
            "This worker was refused by the study %s: %s", self.study, announcement.event.reason
        )
        if (was_refused := getattr(self._worker, "was_refused", None)) is not None:
            was_refused(is_of_versions=announcement.is_of_versions)

    @property
    def announcement(self) -> Announcement | None:
        """What this worker has announced, or why the master refused it; None before that."""
        return self.attempts.state.announcement

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
        attempts = self.attempts
        # The plugin may be removed by its own watch.
        if self._background is not None and self._background is not asyncio.current_task():
            self._background.cancel()
        if worker.status in (Status.closing, Status.closing_gracefully):
            if attempts.runner is not None and _is_cut_off(worker):
                attempts.deliver(attempts.state.cut_off)
                if attempts.state.attempts:
                    then = "continue for a while" if attempts.remote is None else "stop"
                    self._say(f"the connection to its master is lost; trials here {then}")
                await asyncio.to_thread(attempts.runner.outlive_master)
            await asyncio.to_thread(attempts.release, "the worker must leave")
        attempts.deliver(
            attempts.state.study_ends
        )  # also for `setup`, which may still look at the machine
        await asyncio.to_thread(attempts.close)
        with contextlib.suppress(AttributeError, ValueError):
            worker.study_plugins.remove(self)

    def transition(self, key: object, start: str, finish: str, **_: object) -> None:
        """Stop orphans; called by Dask when a task of this worker changes its state.

        Dask releases a running task whose client, the master, is gone.
        """
        del start
        if finish == "released":
            for name in self.attempts.state.attempts:
                if task_key(self.name, name) == key:
                    event = self.attempts.state.orphaned, name
                    threading.Thread(target=self.attempts.deliver, args=event, daemon=True).start()

    def _say(self, what: str) -> None:
        """Print a line about the study, if this is a worker of `hptune worker`."""
        if (say := getattr(self._worker, "say", None)) is not None:
            say(f"study {self.study}: {what}")


def _is_cut_off(worker: Any) -> bool:
    """Return whether the connection to the scheduler is lost."""
    stream = worker.batched_stream
    return stream is None or stream.comm is None or stream.comm.closed()


def task_key(name: str, attempt: AttemptId) -> str:
    """Return the key of an attempt's task in Dask."""
    return f"{name}-trial-{attempt}"

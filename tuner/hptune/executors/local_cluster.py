"""A Dask cluster on this machine, whose workers obey the master and ignore signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster, Status
from distributed.deploy.spec import ProcessInterface

from ..errors import StudyError
from ..security.certificates import in_memory
from ..user_code.user_errors import is_installed
from ..worker.dask.connection_limit import limit_connections
from ..worker.dask.dask_settings import quiet_servers, silence
from ..worker.dask.encryption import security
from ..worker.dask.worker_server import WorkerOrder, WorkerServer, cause_of
from ..worker.forkserver.channel import Channel
from ..worker.gpus.machine import GIVEN
from ..worker.private_folder import server_folder
from .dask_client import tried

_CLOSE_SECONDS = 5.0
"""How long a worker may take to end."""

_CLUSTER_SECONDS = 20.0
"""How long a cluster may take to close."""

_STARTS = 3
"""How often a worker is started at once that is killed before it runs."""

_AGAIN_SECONDS = 1.0
"""Seconds until a worker that could not be started again is tried once more."""


@contextlib.contextmanager
def own_client(
    cores: Sequence[tuple[int, ...]], gpus: Sequence[str], folder: str | None
) -> Iterator[Client]:
    """Start a cluster and connect to it; both end with the context.

    Args:
        cores: As for `own_cluster`.
        gpus: As for `own_cluster`.
        folder: Where to put the folder of Dask's files; None for the temporary directory.

    Raises:
        StudyError: The cluster cannot be started, or does not answer.
    """
    with contextlib.ExitStack() as stack:
        with _interrupts_held_back():
            scratch = stack.enter_context(server_folder(folder))
            cluster = stack.enter_context(own_cluster(cores, gpus, scratch))
            try:
                client = Client(cluster, set_as_default=False)
            except OSError as error:  # a TimeoutError is one, too
                raise StudyError(f"the Dask cluster does not answer: {error}") from error
            stack.callback(tried, client.close)
        yield client


@contextlib.contextmanager
def own_cluster(
    cores: Sequence[tuple[int, ...]], gpus: Sequence[str], scratch: Path
) -> Iterator[LocalCluster]:
    """Start a cluster with one worker for each tuple of cores; it ends with the context.

    Args:
        cores: The ids of each worker's cores.
        gpus: The names of the GPUs that the workers share out.
        scratch: A private folder for Dask's files. Dask imports modules that lie there.

    Raises:
        StudyError: It cannot be started.
    """
    silence()
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(contextlib.closing(WorkerServer()))
            with quiet_servers(scratch):
                cluster = _cluster(cores, gpus, server)
        except (OSError, RuntimeError, TimeoutError) as error:
            words = f"the Dask cluster cannot be started: {cause_of(error)}{_hiding_file()}"
            raise StudyError(words) from error
        stack.callback(_close, cluster)
        limit_connections(cluster.scheduler)
        yield cluster


def _hiding_file() -> str:
    """Return, to end a message, which file of the user's hides a module of Python's."""
    for name in sys.stdlib_module_names & sys.modules.keys():
        file = getattr(sys.modules[name], "__file__", None)
        if file and not is_installed(file):
            return f"; {file} hides Python's module {name}: rename that file"
    return ""


def _close(cluster: LocalCluster) -> None:
    """Close a cluster; once more if a busy machine took too long, or its threads would stay.

    If that fails too, only its thread is ended: its workers end with their `WorkerServer`.
    """
    tried(cluster.close, timeout=_CLUSTER_SECONDS)
    for status in (Status.failed, Status.closed):
        if cluster.status is not Status.closed:
            cluster.status = status  # else it waits for the end of what was given up
            tried(cluster.close)


def _cluster(
    cores: Sequence[tuple[int, ...]], gpus: Sequence[str], server: WorkerServer
) -> LocalCluster:
    return LocalCluster(
        n_workers=len(cores),
        threads_per_worker=len(cores[0]),
        processes=True,
        worker_class=_OwnWorker,
        host="127.0.0.1",
        # Every user of this machine reaches the ports, but not this certificate.
        security=security(in_memory()),
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},  # whose import takes a second and 20 MB
        # Trials are separate processes, which Dask's limit does not measure.
        memory_limit=0,
        silence_logs=logging.CRITICAL,
        server=server,
        # Other studies on this machine may use other GPUs.
        env={GIVEN: ",".join(gpus)} if gpus else {},
    )


class _OwnWorker(ProcessInterface):
    """A worker of a cluster of our own, for as long as the cluster wants it.

    Args:
        scheduler: The address of the scheduler.
        server: What forks its process.
        env: Variables that it has besides those of this process.
        options: The other arguments of Dask's class.
    """

    def __init__(
        self, scheduler: str, *, server: WorkerServer, env: Mapping[str, str], **options: Any
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._server = server
        self._order = WorkerOrder(scheduler, options, dict(dask.config.config), env)
        self._channel: Channel
        self._pid: int | None = None
        self._life: asyncio.Task[None]
        self._is_closing = False

    async def start(self) -> None:
        """Start the worker; it starts again whenever it dies."""
        try:
            await self._start()
        except BaseException:
            self.status = Status.failed
            raise
        self._life = asyncio.create_task(self._live())
        await super().start()  # type: ignore[no-untyped-call]

    async def close(self) -> None:
        """End the worker, after some seconds by force."""
        if self.status is Status.running:
            self._is_closing = True
            with contextlib.suppress(OSError):
                self._channel.send(None)
            await asyncio.wait([self._life], timeout=_CLOSE_SECONDS)
            self._life.cancel()
            if self._pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self._pid, signal.SIGKILL)
                self._channel.close()
        await super().close()  # type: ignore[no-untyped-call]

    async def _start(self) -> None:
        for _ in range(_STARTS):
            self._channel = self._server.fork(self._order)
            try:
                answer = await self._next_message()
                if isinstance(answer, str):
                    raise OSError(answer)
            except EOFError:
                self._channel.close()
            except BaseException:
                self._channel.close()
                raise
            else:
                self._pid, self.address = answer
                return
        raise OSError(f"the process of a worker was killed as it started, {_STARTS} times")

    async def _live(self) -> None:
        """Wait for the worker's end, and start it again, until it is to end."""
        while not self._is_closing:
            if self._pid is None:
                try:
                    await self._start()
                except Exception:  # no memory, say; the study waits for a worker
                    await asyncio.sleep(_AGAIN_SECONDS)
                continue
            with contextlib.suppress(EOFError, OSError):
                await self._next_message()
            self._pid = None
            self._channel.close()

    async def _next_message(self) -> Any:
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._channel, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._channel)
        return self._channel.recv()


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C until a cluster has started, because a half-started one cannot be closed.

    Threads and processes inherit the mask, also when a worker is restarted: only the master
    handles Ctrl-C in their terminal and its hang-up.
    """
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before: dict[int, Any] = {}
    if is_main:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(each) is not signal.SIG_IGN:
                before[each] = signal.signal(each, lambda number, _: received.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            # Also if the start failed: SIGTERM to the whole process group ends the workers.
            signal.raise_signal(received[0])

"""The process that the workers of a master's own cluster are forked from.

It has imported Dask and has one thread, so a worker starts at once and shares the memory of what
was imported. A master that runs nothing but hptune's command forks it. Another one may have threads
or a framework that must not be forked, and starts it as a program, without the user's script.

It ends when the master closes the connection or dies, and the kernel then kills its workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, Final, NoReturn

import dask
from distributed import Worker

from ..forkserver.channel import Channel
from ..gpus.machine import Gpus
from ..process_ids import die_with_parent, empty_stdin, set_name
from .connection_limit import limit_connections
from .dask_settings import silence

WORKER_NAME: Final = "hptune-worker"
SERVER_NAME: Final = "worker-server"
"""What the system calls these processes; their command line may be that of the master."""

_STAY_SECONDS = 120.0
"""How long a worker that received SIGTERM waits for its master, which stops the trials first."""

_COMMAND = "hptune.__main__"

_MASTER = 3
"""The file descriptor of the connection, in the process that forks."""


@dataclass(frozen=True, slots=True)
class WorkerOrder:
    """What a worker is started with.

    Attributes:
        scheduler: The address of its scheduler.
        options: The other arguments of Dask's class.
        settings: Dask's settings.
        environment: Variables that it has besides those of the master.
    """

    scheduler: str
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    environment: Mapping[str, str]


class WorkerServer:
    """A master's connection to the process that forks its workers, which it starts.

    The process starts again, as a program, if it was killed.
    """

    def __init__(self) -> None:
        self._start(forks=_may_fork())

    def fork(self, order: WorkerOrder) -> Channel:
        """Start a worker.

        Returns:
            The channel to it. The worker sends its process id and its address, or in words what
            kept it from starting. It ends when anything is sent to it, and the channel with it.

        Raises:
            OSError: No process can be started.
        """
        try:
            return self._fork(order)
        except ConnectionError:
            self.close()
            self._start(forks=False)
            return self._fork(order)

    def _fork(self, order: WorkerOrder) -> Channel:
        ours, theirs = Channel.pair()
        with contextlib.closing(theirs), contextlib.ExitStack() as if_it_fails:
            if_it_fails.callback(ours.close)
            self._connection.send(order)
            theirs.send_to(self._connection)
            if_it_fails.pop_all()
        return ours

    def _start(self, *, forks: bool) -> None:
        ours, theirs = socket.socketpair()
        self._connection: Connection[Any, Any] = Connection(ours.detach())
        with theirs:
            self._wait = _forked(theirs) if forks else _spawned(theirs)

    def close(self) -> None:
        """End the process, and its workers if they still run."""
        self._connection.close()
        with contextlib.suppress(ChildProcessError):  # a launcher may have it ignored
            self._wait()


def cause_of(error: BaseException) -> str:
    """Return what made Dask fail; its own errors say only which part of it did."""
    while isinstance(error, RuntimeError) and (cause := error.__cause__ or error.__context__):
        error = cause
    return str(error) or type(error).__name__


def _may_fork() -> bool:
    """Return whether this process runs hptune's command, and no script or thread of the user's.

    Threads of hptune's own wait, and hold no lock that a worker needs. NVIDIA's library, once it
    has opened the driver, tells a forked process nothing.
    """
    main = sys.modules["__main__"]
    spec, run = getattr(main, "__spec__", None), getattr(main, "main", None)
    is_command = _COMMAND in (getattr(spec, "name", None), getattr(run, "__module__", None))
    others = set(threading.enumerate()) - {threading.main_thread()}
    are_ours = all(each.name.startswith("hptune-") for each in others)
    return is_command and are_ours and not Gpus().is_open([os.getpid()])


def _forked(theirs: socket.socket) -> Callable[[], object]:
    """Fork the process; return what waits for its end."""
    gc.freeze()  # the child must not close, as garbage, what has a file descriptor
    if not (pid := os.fork()):
        _serve(theirs.fileno())
    gc.unfreeze()
    return partial(os.waitpid, pid, 0)


def _spawned(theirs: socket.socket) -> Callable[[], object]:
    """Start the process as a program; return what waits for its end."""
    # -P: no file of the user's must hide a module.
    command = [sys.executable, "-P", "-m", __name__, str(theirs.fileno())]
    return subprocess.Popen(command, pass_fds=[theirs.fileno()]).wait


def _serve(connection: int) -> NoReturn:
    """Fork a worker for each order, until the master closes the connection."""
    status = 1
    try:
        _leave_the_master(connection)
        server = os.getpid()
        master: Connection[Any, Any] = Connection(_MASTER)
        while True:
            order = master.recv()
            channel = Channel.receive(master)
            if _is_forked(channel):
                master.close()
                _work(order, channel, server)
            channel.close()
    except (EOFError, OSError):
        status = 0
    finally:
        os._exit(status)


def _is_forked(channel: Channel) -> bool:
    """Fork a worker; return whether this is its process."""
    try:
        return not os.fork()
    except OSError as error:  # the other workers must stay
        with contextlib.suppress(OSError):  # the master has closed it
            channel.send(cause_of(error))
        return False


def _leave_the_master(connection: int) -> None:
    """Give up what was inherited, except for output and the connection."""
    os.dup2(connection, _MASTER)
    for each in os.listdir("/proc/self/fd"):  # noqa: PTH208 - they are no paths
        if int(each) > _MASTER:
            with contextlib.suppress(OSError):  # that of the listing
                os.close(int(each))
    empty_stdin()
    set_name(SERVER_NAME)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends with its master
    signal.signal(signal.SIGUSR1, _leave_to_the_master)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel keeps no process that has ended
    gc.freeze()


def _leave_to_the_master(number: int, frame: object) -> None:
    """Do nothing; programs that a worker starts handle the signal by themselves."""


def _work(order: WorkerOrder, channel: Channel, server: int) -> NoReturn:
    """Run a worker to its end."""
    status = 1
    try:
        die_with_parent(server)
        set_name(WORKER_NAME)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ.update(order.environment)
        silence()
        with dask.config.set(order.settings):
            asyncio.run(_run(order, channel))
        status = 0
    except Exception as error:
        with contextlib.suppress(OSError):  # it had started, and the master is gone
            channel.send(cause_of(error))
    finally:
        os._exit(status)


async def _run(order: WorkerOrder, channel: Channel) -> None:
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    # `timeout` sends SIGTERM to all processes. The master handles it: it tells the trials to write
    # checkpoints, and then its workers to leave.
    loop.add_signal_handler(
        signal.SIGTERM, lambda: loop.call_later(_STAY_SECONDS, os._exit, 128 + signal.SIGTERM)
    )
    worker = await Worker(order.scheduler, **order.options)
    limit_connections(worker)  # strangers cannot flood it
    channel.send((os.getpid(), worker.address))
    loop.add_reader(channel, told.set)
    ends = [asyncio.ensure_future(each) for each in (told.wait(), worker.finished())]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(channel)
    await worker.close(timeout=4, nanny=False)


if __name__ == "__main__":
    from . import plugin  # noqa: F401 - what all workers import

    _serve(int(sys.argv[1]))

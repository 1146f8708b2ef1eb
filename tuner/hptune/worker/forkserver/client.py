"""Client of the fork server: starts it, and asks it for children."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from ...core.clock import polls
from ...errors import ModelFileError, StudyError
from ...text import signal_name
from ...user_code.model_file import frameworks
from ...user_code.source import Found, ObjectiveSource, SourceKind
from ..gpus.nvidia import Nvidia
from ..orders import ModelOrder, NotFound, Order, ProbeOrder, Question, SizeOrder
from ..private_folder import create_folder
from ..process_ids import began
from . import environment, imports_without_gpu, orphans
from .channel import Channel, NoFilesLeft, UnreadableMessage

READY = "ready"
"""The server's last line; the others say what it imports."""
FRAMEWORKS_ONLY = "frameworks-only"
"""Last argument of a server that does not import the user's file."""
MAX_FOLDER_BYTES = 90
"""The kernel takes 108 bytes for a socket's path; TMPDIR on a cluster may be longer."""
_READY_SECONDS = 300.0
"""Longest time for the imports; a cold network file system may take minutes."""
_ANSWER_SECONDS = 60.0
"""Longest time for RESOURCES(hp) to answer for some configurations, or for a model to load."""
_LOOK_SECONDS = 0.2
"""Time between two checks whether another thread has closed the server."""
_DYING_SECONDS = 5.0
"""Longest time between the end of a process's connections and its own end."""
_IMPORTED_EACH_TIME = (
    "the model file starts threads or uses a GPU when it is imported (by a TensorFlow operation, "
    "say), so each trial imports it again; do so in build_model or load_data to save that time"
)
_GARBLES = "wrote to a file descriptor of hptune; it must only use those that it opened"
_SET_BY_DASK = {("PYTHONHASHSEED", "6640"), ("MALLOC_TRIM_THRESHOLD_", "65536")}
"""Variables that a Dask cluster leaves in the process that started it; the next study must not
differ from the first one."""
_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


Busy = Callable[[str], None]
"""Takes what the user waits for; empty for no more than the code itself."""


class ForkServer:
    """A process that has imported the framework, and forks a child for each attempt.

    Starting returns at once; `wait_ready` waits for the imports (some seconds). It ends, and all
    its children with it, on `close` or when the process that started it ends, however it ends.

    Attributes:
        source: The user's code, to be imported once; that of the last study that it serves.
    """

    def __init__(self, source: ObjectiveSource) -> None:
        self.source = source
        orphans.kill_of_dead_owners()
        self._make_folder()
        # A cloudpickle is the user's objects, not only their code: it is read in the children.
        self._environment = _environment(source)
        self._frameworks: tuple[str, ...] = ()
        self._process = self._start(with_source=source.kind is SourceKind.FILE)
        self._ready = False
        self._is_suspended = False
        self._is_closed = False
        self._reading = threading.Lock()

    def _make_folder(self) -> None:
        # Only the user may connect to the address: a client can run code in their name.
        self._folder = _folder()
        self._log = self._folder / "log.txt"
        self.address = str(self._folder / "server")

    def _start(self, *, with_source: bool) -> subprocess.Popen[bytes]:
        self._with_source = with_source
        self._doing = self._half_line = ""
        source = self.source
        python = source.python or sys.executable
        arguments = [self.address, source.kind, source.path, source.entry, source.working_directory]
        if not with_source:
            arguments.append(FRAMEWORKS_ONLY)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                # -P: no file of the user's must hide a module.
                [python, "-P", "-m", "hptune.worker.forkserver.server", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={
                    **self._environment,
                    **environment.caches(self._folder, self._environment),
                    **orphans.environment(self._folder),
                },
                # Ctrl-C in the terminal is the master's business alone.
                start_new_session=True,
            )

    def wait_ready(self, busy: Busy = lambda _: None) -> None:
        """Wait until children can be had.

        Args:
            busy: As for `probe`.

        Raises:
            StudyError: The framework cannot be imported; the log's end is shown. Or another thread
                has closed it.
        """
        with self._reading:
            self._read_ready(busy)

    def _read_ready(self, busy: Busy) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while self._doing != READY:
            if self._is_closed:
                raise StudyError("the process that imports the framework is not wanted any more.")
            busy(self._doing)
            stdout = _pipe(self._process.stdout)
            left = deadline - time.monotonic()
            is_quiet = not select.select([stdout], [], [], min(max(0.0, left), _LOOK_SECONDS))[0]
            # A process that the user's file has forked keeps the pipe open when the server is dead.
            if is_quiet and self._process.poll() is None:
                if left > 0:
                    continue
                raise StudyError(
                    f"the process that imports the framework was not ready in {_READY_SECONDS:g} "
                    "seconds. Is the file system slow? Try once more: what was read is cached.",
                    _tail(self._log),
                )
            if not is_quiet and (new := os.read(stdout.fileno(), 4096)):
                # The user's file may have written anything there.
                text = self._half_line + new.decode(errors="replace")
                *lines, self._half_line = text.split("\n")
                # A process that the user's file has forked may import a framework later.
                self._doing = READY if READY in lines else [self._doing, *lines][-1]
                continue
            status = self._process.wait()
            if not self._with_source:
                raise StudyError(
                    f"the framework cannot be imported: the process that tried {_manner(status)}.",
                    _tail(self._log),
                )
            # The user's file did something at import that must not be inherited (it started
            # threads), or ended the process: leave it to each child.
            self._close_pipes()
            Path(self.address).unlink(missing_ok=True)
            self._process = self._start(with_source=False)
        self._ready = True

    def probe(self, order: ProbeOrder, busy: Busy = lambda _: None) -> Found:
        """Read the user's code in a child and find its search space.

        Args:
            order: The question.
            busy: Called several times a second with what takes time now, such as "loading data";
                with an empty text while the code itself is read.

        Raises:
            ModelFileError: The user's code cannot be read or raised; with their traceback.
        """
        gone = "the process that imports the framework is gone (out of memory?); try again."
        with self._asked(order, gone, busy) as (client, channel):
            found = _read_probe(order, client, channel, busy)
        if self.source.kind is SourceKind.FILE and not self._with_source:
            return replace(found, warnings=(*found.warnings, _IMPORTED_EACH_TIME))
        return found

    def sizes(self, order: SizeOrder) -> list[dict[str, Any]]:
        """Return the answers of the user's RESOURCES(hp), called in a child.

        May be called from any thread.

        Raises:
            ModelFileError: It raised, returned something else, or took too long.
        """
        code = order.source.shown
        gone = "the process that calls RESOURCES(hp) ended without an answer."
        with self._asked(order, gone) as (_, channel):
            if not channel.poll(_ANSWER_SECONDS):
                raise ModelFileError(
                    f"{code}: RESOURCES(hp) took longer than {_ANSWER_SECONDS:g} seconds; "
                    "let it only look at the hyperparameters"
                )
            answer: NotFound | list[dict[str, Any]] = channel.recv()
        if isinstance(answer, NotFound):
            raise ModelFileError(f"{code}: {answer.message}", answer.detail)
        return answer

    def try_model(self, order: ModelOrder) -> str:
        """Load a model once, in a child; return what it takes, empty if that cannot be said."""
        with contextlib.suppress(StudyError, ModelFileError), self._asked(order) as (_, channel):
            if channel.poll(_ANSWER_SECONDS):
                return str(channel.recv())
        return ""

    @contextlib.contextmanager
    def _asked(
        self, order: Question, gone: str = "", busy: Busy = lambda _: None
    ) -> Iterator[tuple[Client, Channel]]:
        """Put a question to a child; yield the connection to the server and the channel.

        Args:
            order: The question.
            gone: What to raise if the child is gone.
            busy: As for `probe`.
        """
        try:
            with self._reading:
                if self._is_suspended and not self._is_closed:
                    self._make_folder()
                    self._process = self._start(with_source=self._with_source)
                    self._is_suspended = False
                self._read_ready(busy)
            with (
                contextlib.closing(Client(self.address)) as client,
                contextlib.closing(client.fork("question", order)) as channel,
            ):
                yield client, channel
        except UnreadableMessage as error:
            raise ModelFileError(f"{order.source.shown} {_GARBLES}") from error
        except (OSError, EOFError) as error:
            raise StudyError(gone, _tail(self._log)) from error

    def suspend(self) -> None:
        """End the process, and with it the framework's memory.

        The next question starts it again, at another address.
        """
        with self._reading:
            self._is_suspended, self._ready = True, False
            self._close_pipes()
            self._end_process()

    @staticmethod
    @contextlib.contextmanager
    def started_early(source: ObjectiveSource) -> Iterator[None]:
        """Start the process while its study is set up; `resting` returns it within the context."""
        server = ForkServer(source)
        _resting.append(server)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # it was taken
                _resting.remove(server)
                server.close()

    def rest(self) -> None:
        """End the children, and keep the process for another study; `resting` returns it then.

        Only a process without the user's file can rest; another one is closed.
        """
        older = [*iter(_taken, None)]
        is_there = Path(self.source.path).exists()  # its study may have been removed
        if self._ready and self.source.kind is SourceKind.PICKLE and is_there:
            with contextlib.suppress(BrokenPipeError):
                _pipe(self._process.stdin).write(b"\n")
                _pipe(self._process.stdin).flush()
            self._frameworks = frameworks(self.source)
            _resting.append(self)
            atexit.register(self.close)
        else:
            older.append(self)
        for server in older:
            server.close()

    @staticmethod
    def resting(source: ObjectiveSource) -> ForkServer | None:
        """Return the process that waits if it serves this code as a new one would, else None."""
        if (server := _taken()) is None:
            return None
        atexit.unregister(server.close)
        if server.serves(source):
            server.source = source  # that of its last study may be gone
            return server
        server.close()
        return None

    def serves(self, source: ObjectiveSource) -> bool:
        """Return whether it has imported, or imports, what this code needs."""
        if self._environment != _environment(source):
            return False
        if self.source.kind is SourceKind.FILE:  # it has served no study yet
            return self.source == source
        return (
            self._process.poll() is None
            and source.kind is SourceKind.PICKLE
            and self._frameworks == frameworks(source)
        )

    def close(self) -> None:
        """End the process and all its children; a thread that waits for it returns at once."""
        self._is_closed = True
        with self._reading:
            self._close_pipes()
        if not self._ready:
            # It would notice only after its imports that it is not needed; it has no children yet.
            # A second Ctrl-C may end this process at any point: then nothing else removes this.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._process.kill()
        self._end_process()

    def leave_to_parent(self) -> None:
        """Let a forked child, which this is, neither end the process nor keep it from its end."""
        atexit.unregister(self.close)
        self._close_pipes()

    def _end_process(self) -> None:
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        if self._process.returncode != 0:
            orphans.kill_of_dead_server(self._folder)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


_resting: list[ForkServer] = []
"""Processes that wait for a study of this process: one that rests, and one started early."""


def _taken() -> ForkServer | None:
    """Return a process that waits, and which no other thread gets; None if there is none."""
    with contextlib.suppress(IndexError):
        return _resting.pop()
    return None


def _leave_to_parent() -> None:
    for server in _resting:
        server.leave_to_parent()
    _resting.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


class Client:
    """A connection to a fork server; it ends the children that it asked for when it closes.

    Raises:
        OSError: There is no fork server at the address.
    """

    def __init__(self, address: str) -> None:
        self._folder = Path(address).parent
        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(address)
        except OSError:
            connected.close()
            raise
        peer = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid = struct.unpack("3i", peer)[0]
        self._server = pid, began(pid)
        self.connection: Connection[Any, Any] = Connection(connected.detach())

    def fork(self, key: object, order: Order) -> Channel:
        """Ask for a child; `connection` later receives (key, exit status) at its end.

        Returns:
            The channel to the child.

        Raises:
            OSError: The fork server has failed.
            NoFilesLeft: This process has no room for another channel; the fork server is well.
        """
        try:
            ours, theirs = Channel.pair()
        except OSError as error:
            raise NoFilesLeft(f"its worker can open no more files ({error.strerror})") from error
        with contextlib.closing(theirs):
            self.connection.send(("fork", key, order))
            theirs.send_to(self.connection)
        return ours

    def kill(self, key: object) -> None:
        """Kill the child, and all that it started, at once."""
        self.connection.send(("kill", key, None))

    def dump_stacks(self, key: object) -> None:
        """Have the child write the stacks of all its threads into its log."""
        self.connection.send(("dump", key, None))

    def close(self) -> None:
        """Close the connection; children that still run are killed."""
        self.connection.close()

    def close_lost(self) -> None:
        """Close a connection that failed; if its fork server is dead, none of its children runs."""
        self.close()
        pid, since = self._server
        for _ in polls(_DYING_SECONDS, 0.01):
            if began(pid) != since:
                orphans.kill_of_dead_server(self._folder)
                return
        # It is alive, and ends the children of this connection.


def _read_probe(order: ProbeOrder, client: Client, channel: Channel, busy: Busy) -> Found:
    found: Found | None = None
    doing, heard_at = "", time.monotonic()
    while True:
        busy(doing)
        if not channel.poll(_LOOK_SECONDS):
            is_quiet = time.monotonic() - heard_at >= order.quiet_seconds
            if found is not None and found.may_train and is_quiet:
                return found
            continue
        heard_at = time.monotonic()
        try:
            message = channel.recv()
        except EOFError:
            _, status = client.connection.recv()
            if found is not None and found.may_train:
                return found
            raise ModelFileError(
                f"{order.source.shown} ended its process when it was read: it {_manner(status)}. "
                "It must not end the process when it is imported or its model is built."
            ) from None
        if message is None and found is not None:
            return found
        if isinstance(message, NotFound):
            if not message.detail:
                raise ModelFileError(message.message)
            raise ModelFileError(
                f"{order.source.shown} cannot be used: {message.message}", message.detail
            )
        if isinstance(message, Found):
            found = message
        elif isinstance(message, str):
            doing = message


def _folder() -> Path:
    folder = create_folder()
    if len(os.fsencode(folder)) > MAX_FOLDER_BYTES:
        shutil.rmtree(folder)
        folder = create_folder("/tmp")  # noqa: S108 - the folder is private
    return folder


def _environment(source: ObjectiveSource) -> dict[str, str]:
    given = environment.without_others(dict(os.environ.items() - _SET_BY_DASK))
    given.pop("__DASK_PARENT_PID", None)
    Nvidia.set_order(given)  # as a master does that starts it early, and then looks for GPUs
    variables = {
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "PYTHONHASHSEED": "0",
        # pandas imports pyarrow, and TensorFlow imports pandas: it would start a thread.
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        **imports_without_gpu.VARIABLES,
        **given,
    }
    if source.backend:
        variables["KERAS_BACKEND"] = source.backend
    # One thread while importing; each child is given its own number of threads.
    return {**variables, **_ONE_THREAD}


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the fork server was started without pipes")
    return pipe


def _manner(status: int) -> str:
    if status < 0:
        return f"was killed by {signal_name(-status)}"
    return f"exited with status {status}"


def _tail(path: Path) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-12:])
    except OSError:
        return ""

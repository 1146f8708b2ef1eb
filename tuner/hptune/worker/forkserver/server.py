"""The fork server: imports the user's file and its frameworks once, then forks.

A child forked from here begins its training at once, in a process of its own. What makes that
safe is that this process never does anything but import: one thread, no framework operation, no
device. If the user's file starts threads or uses a GPU when it is imported (because it runs
TensorFlow at its top level, say), the process gives up and is started again without the user's
file, which each child then imports for itself.

Frameworks are those that the user's file imports, in its functions too: an objective in plain
Python starts without any.

Run as `python -m hptune.worker.forkserver.server ADDRESS SOURCE_KIND SOURCE_PATH ENTRY
WORKING_DIRECTORY` and perhaps `frameworks-only`: the user's file itself is not imported then. The
process ends, and its children with it, when its standard input closes.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ...training.data_cache import data_cache
from ...user_code.model_file import frameworks, load
from ...user_code.source import ObjectiveSource, SourceKind
from ...user_code.watched_imports import watched_imports
from .. import devices
from ..orders import AttemptOrder, Order, ProbeOrder, StudyBrief
from ..process_ids import adopt_orphans, empty_stdin, trial_of
from . import child as trial_process
from . import imports_without_gpu, orphans
from .attempt import DUMP_STACKS
from .channel import Channel
from .client import FRAMEWORKS_ONLY, READY

UNSAFE_STATUS = 75
"""Exit status that asks to be started again without the user's file."""

_LOOK_SECONDS = 0.5
"""Seconds between two looks for what a trial left behind, while its end is not told."""

# What a trial imports only when it first uses it.
_USED_LATER_BY_KERAS = (
    "keras.src.backend.{backend}.trainer",
    "keras.src.saving.saving_api",
    "keras.src.trainers.data_adapters.array_data_adapter",
)
_USED_LATER_BY_TENSORFLOW = (
    "tensorflow.python.data.ops.concatenate_op",
    "tensorflow.python.data.ops.flat_map_op",
    "tensorflow.python.data.ops.from_tensors_op",
    "tensorflow.python.data.ops.range_op",
    "tensorflow.python.data.ops.zip_op",
)
_USED_LATER = (
    "numpy.random",
    "threadpoolctl",
    "hptune.training.function_objective",
    "hptune.training.keras.objective",
    "hptune.training.probe",
    "hptune.training.strategies.choose",
    "hptune.worker.forkserver.used_parameters",
)


@dataclass(slots=True)
class _Child:
    key: object
    client: Connection[Any, Any]


class _Server:
    def __init__(self, address: str, owner: int) -> None:
        self.may_load_data = True
        self._folder = Path(address).parent
        self._owner = owner
        self._selector = selectors.DefaultSelector()
        self._children: dict[int, _Child] = {}
        self._ended: list[tuple[_Child, int]] = []
        self._tell_at = 0.0
        self._not_of_trials: set[int] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)

    def run(self) -> None:
        """Serve until the owner's end of the pipe closes."""
        awake, waker = socket.socketpair()
        for end in (awake, waker):
            end.settimeout(0)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        adopt_orphans()
        # The user's file may have started some when it was imported.
        self._not_of_trials = orphans.children()
        if devices.is_slurm_job():
            trial_process.leave_sigterm_to_the_worker()
        signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(awake, selectors.EVENT_READ, lambda: _empty(awake))
        self._selector.register(self._owner, selectors.EVENT_READ, self._end_study)
        while True:
            for key, _ in self._selector.select(_LOOK_SECONDS if self._ended else None):
                key.data()
            self._reap()

    def _end_study(self) -> None:
        is_gone = not os.read(self._owner, 4096)  # else its study is over
        self._end_children()  # one that still writes its data would keep the folder
        data_cache.close()
        if is_gone:
            # An owner that was killed could not do it.
            shutil.rmtree(self._folder, ignore_errors=True)
            os._exit(0)

    def _accept(self) -> None:
        accepted, _ = self._listener.accept()
        client: Connection[Any, Any] = Connection(accepted.detach())
        self._selector.register(client, selectors.EVENT_READ, lambda: self._serve(client))

    def _serve(self, client: Connection[Any, Any]) -> None:
        try:
            request, key, order = client.recv()
            if request != "fork":
                for pid, child in self._children.items():
                    if child.client is client and child.key == key:
                        is_kill = request == "kill"
                        os.kill(pid, signal.SIGKILL if is_kill else DUMP_STACKS)
                return
            channel = Channel.receive(client)
        except (EOFError, OSError):
            self._drop(client)
            return
        if self.may_load_data:
            _join_data_cache(order)
        try:
            pid = os.fork()
        except OSError:  # too many processes, or no memory: no reason to end the others
            channel.close()
            with contextlib.suppress(OSError):
                client.send((key, None))
            return
        if pid == 0:
            self._become_child()
            trial_process.main(order, channel)
        channel.close()
        self._children[pid] = _Child(key, client)

    def _become_child(self) -> None:
        for registered in list(self._selector.get_map().values()):
            with contextlib.suppress(OSError):
                os.close(registered.fd)

    def _drop(self, client: Connection[Any, Any]) -> None:
        """Kill the children of a client that is gone."""
        self._selector.unregister(client)
        client.close()
        for pid, child in self._children.items():
            if child.client is client:
                os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Take in which children have ended; tell it when nothing that they started is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._not_of_trials.discard(pid)  # the kernel gives its number again
            if child := self._children.pop(pid, None):
                if not self._ended:
                    self._tell_at = time.monotonic() + orphans.END_SECONDS
                self._ended.append((child, os.waitstatus_to_exitcode(status)))
        is_late = bool(self._ended) and time.monotonic() >= self._tell_at
        others = orphans.children() - self._children.keys() - self._not_of_trials
        left = {pid for pid in others if trial_of(pid) not in self._children}
        for pid in left:
            orphans.kill(pid, spares_trackers=not is_late)
        if not left or is_late:
            for child, exit_status in self._ended:
                with contextlib.suppress(OSError):
                    child.client.send((child.key, exit_status))
            self._ended.clear()
            # What cannot be killed must not delay the ends of later trials.
            self._not_of_trials |= left

    def _end_children(self) -> None:
        for pid in self._children:
            os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + orphans.END_SECONDS
        while time.monotonic() < deadline and (self._children or self._ended):
            self._reap()
            time.sleep(0.01)


def _empty(awake: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        while awake.recv(4096):
            pass


def _join_data_cache(order: Order) -> None:
    """Hold the study's data cache here: this process lives as long as the study's trials."""
    if isinstance(order, AttemptOrder | ProbeOrder):
        study = order.brief if isinstance(order, AttemptOrder) else order
        limits = study.limits if isinstance(study, StudyBrief) else study
        if limits.cache_bytes != 0:
            data_cache.join(study.directory, study.source)


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _preload(source: ObjectiveSource, *, with_source: bool) -> bool:
    """Import what the trials need, and return whether they may call a `load_data`."""
    code = None
    before, path = _threads(), list(sys.path)
    # A file that cannot be imported says so again in the child, where it is reported.
    with contextlib.suppress(BaseException):
        if with_source:
            data_cache.note_import(source)
            code = load(source)
        for name in frameworks(source):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        if code is not None and code.objective is None:
            # For the callback that the file's `fit` gets, also if it trains with another framework.
            importlib.import_module("keras")
    if with_source and (_threads() > before or imports_without_gpu.is_cuda_initialised()):
        os._exit(UNSAFE_STATUS)
    names = list(_USED_LATER)
    if keras := sys.modules.get("keras"):
        backend = keras.config.backend()
        names += (name.format(backend=backend) for name in _USED_LATER_BY_KERAS)
    if "tensorflow" in sys.modules:
        names += _USED_LATER_BY_TENSORFLOW
    with _without(set(sys.path) - set(path)):
        for name in names:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    imports_without_gpu.end_imports()
    return code is None or code.load_data is not None


@contextlib.contextmanager
def _without(folders: Set[str]) -> Iterator[None]:
    """Leave folders out of what is searched for modules.

    That of the model file may be one that others write to, such as the temporary directory. Only
    what the user's code imports is looked for there, as `python model.py` would do.
    """
    whole = list(sys.path)
    sys.path[:] = [each for each in whole if each not in folders]
    try:
        yield
    finally:
        sys.path[:] = whole


@contextlib.contextmanager
def _ending_with(owner: int, folder: Path) -> Iterator[None]:
    """End this process with its owner during the import, as a file may train when imported.

    Args:
        owner: The pipe whose other end the owner has. Its process may be gone already.
        folder: The server's folder, which is then removed.
    """
    pipe = select.poll()
    pipe.register(owner, 0)  # a hang-up is always told

    def look(*_: object) -> None:
        if pipe.poll(0):
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(1)

    signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)  # noqa: FBT003 - its own signature
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def main(  # noqa: PLR0917 - as the command line has them
    address: str, source_kind: str, source_path: str, entry: str, folder: str, mode: str = ""
) -> None:
    """Import, say that all is ready, and serve."""
    # The user's file may read from stdin, and must not take the owner's messages.
    owner = os.dup(0)
    empty_stdin()
    # What it prints belongs in the log, not in the pipe to the owner.
    ready = os.dup(1)
    os.dup2(2, 1)
    server = _Server(address, owner)
    source = ObjectiveSource(SourceKind(source_kind), source_path, entry, working_directory=folder)
    if source.kind is SourceKind.FILE:
        sys.argv[:] = [source_path]  # as `python model.py` has it, for a file that reads it

    def say(line: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the owner is gone; the server will see it
            os.write(ready, f"{line}\n".encode())

    with _ending_with(owner, Path(address).parent), watched_imports(say):
        server.may_load_data = _preload(source, with_source=mode != FRAMEWORKS_ONLY)
    # The children share these pages until one writes to them; the collector would.
    gc.collect()
    gc.freeze()
    say(READY)
    os.close(ready)
    server.run()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What an exception that ends an attempt means: its cause and its ending.

`ending_of` tells apart the exceptions that hptune raises itself, or knows. Everything else comes
from the user's code, and is classified by `cause_of`. No framework is imported.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ...core.attempt import FULL_HOME, Cause, Ending, Halt
from ...errors import DISK_FULL, ProgramFailed
from ...files.file_errors import OF_SERVER, refusal_of
from ...training.context import AttemptStopped, NonFiniteMetric, UnknownMetric, stated_cause
from ...training.resume.checkpoint import NoRoom
from ...user_code.user_errors import one_line, text_of, user_traceback

_AT_SIGTERM = "SIGTERMException"
"""What Lightning raises when its process gets SIGTERM, as when a job is cancelled. Without
Lightning, the process would be killed."""

_GENERIC_ERRORS = frozenset(("RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "InternalError"))
_OUT_OF_MEMORY = (
    "RESOURCE_EXHAUSTED",
    "ResourceExhausted",
    "OOM when allocating",
    "out of memory",
    "Out of memory",
    "OUT_OF_MEMORY",
)
_OF_MACHINE = (*OF_SERVER, errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE)
"""Errors of a disk or a file server that fails, or of a machine that opens no more files; another
attempt may have better luck. The trial of code that opens too many fails after some attempts."""
_OF_HOME = {
    ".cache/huggingface": "HF_HOME",
    ".cache/torch": "TORCH_HOME",
    ".keras": "KERAS_HOME",
    ".triton": "TRITON_CACHE_DIR",
    ".config": "XDG_CONFIG_HOME",
    ".cache": "XDG_CACHE_HOME",
    ".": "HOME",
}
"""Folders of the home directory where frameworks write, and the variable that moves each."""

_GPU_FAILS = ("uncorrectable", "GPU is lost")
"""Words of CUDA on a GPU, or a link between GPUs, that fails; another attempt may get others."""

_HOST_MEMORY = ("/device:CPU", "by allocator cpu", "by allocator mklcpu", "CPUAllocator")


@dataclass(frozen=True, slots=True)
class Where:
    """Where an exception was raised.

    Attributes:
        directory: The trial's directory.
        has_gpu: Whether the attempt holds a GPU, whose memory the error may be about.
        has_begun: Whether its log is open, so that the user's code may run.
    """

    directory: Path
    has_gpu: bool
    has_begun: bool


def ending_of(error: BaseException, where: Where) -> Ending:
    """Return how an attempt ends by an exception, which its log shows if it is the user's."""
    match error:
        case AttemptStopped():
            return Ending(error.halt.cause, reason=error.reason)
        case NonFiniteMetric():
            return Ending(Cause.NON_FINITE, reason=str(error))
        case UnknownMetric():
            return Ending(Cause.UNKNOWN_METRIC, reason=str(error))
        case NoRoom():
            return Ending(_cause_of_no_room(error, where), reason=str(error))
        case SystemExit() if type(error).__name__ == _AT_SIGTERM:
            return Ending(Cause.KILLED, reason=f"SIGTERM from outside: {_AT_SIGTERM}")
        case SystemExit():
            reason, detail = f"sys.exit({error.code!r})", user_traceback(error)
            return Ending(Cause.EXITED, reason=reason, detail=detail)
    with contextlib.suppress(OSError):
        if isinstance(error, ProgramFailed):
            sys.stderr.write(f"{error.message}\n")  # the log has what the program wrote
        else:
            sys.excepthook(type(error), error, error.__traceback__)
    cause, hint = _cause_of_code(error, where), ""
    if cause is Cause.WORKER_LOST and _has_no_room(error) and (home := _full_home()):
        # Of all nodes, so that they need not be tried; also a folder with a quota.
        cause, hint = Cause.NO_ROOM, f"; {home} is full. Free some space, or {FULL_HOME}"
    elif where.has_begun and cause in (Cause.EXCEPTION, Cause.WORKER_LOST):
        hint = next(filter(None, map(_of_home, _chain(error))), "")
        cause = Cause.EXCEPTION if hint else cause  # another node has the same home
    return Ending(cause, reason=f"{one_line(error)}{hint}", detail=user_traceback(error))


def _of_home(error: BaseException) -> str:
    """Return what to do if the home directory takes no files; empty if that is not the error."""
    refused = (errno.EROFS, errno.EACCES, errno.EPERM, *DISK_FULL)
    if not isinstance(error, OSError) or error.errno not in refused or not error.filename:
        return ""
    home = Path(os.environ.get("HOME") or "/nonexistent")
    path = Path(os.fsdecode(error.filename))
    for folder, variable in _OF_HOME.items():
        if path.is_relative_to(home / folder) and not os.access(path, os.F_OK):
            return f"; this node cannot write there: let {variable} name a folder that it can write"
    return ""


def ending_by_order(error: BaseException, halt: Halt | None) -> Ending | None:
    """Return how an attempt ends whose code exits on an order, or says that it is pruned.

    Args:
        error: What the code raised.
        halt: Why the study has told the attempt to stop; None if it has not.

    Returns:
        The ending; None if the error is none of these.
    """
    if stated_cause(error) is Cause.PRUNED:
        return Ending((halt or Halt.PRUNE).cause, reason=one_line(error))
    if isinstance(error, SystemExit) and halt is not None:
        return Ending(halt.cause, reason=f"{halt.reason}; sys.exit({error.code!r})")
    return None


def _cause_of_no_room(error: NoRoom, where: Where) -> Cause:
    is_own = isinstance(error.__cause__, PermissionError) and _is_to_blame(where.directory)
    return Cause.EXCEPTION if is_own else Cause.NO_ROOM


def _cause_of_code(error: BaseException, where: Where) -> Cause:
    if isinstance(error, OSError):
        if _has_no_room(error):  # the machine's fault, not the configuration's
            return Cause.NO_ROOM if _is_full(where.directory) else Cause.WORKER_LOST
        if not where.has_begun:
            return Cause.WORKER_LOST  # its node does not reach the study's directory, say
    return cause_of(error, has_gpu=where.has_gpu)


def _has_no_room(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in DISK_FULL


def _full_home() -> str:
    """Return the folder for downloads that is full, of those that nodes share; empty for none."""
    local = tempfile.gettempdir()
    for name in ("KERAS_HOME", "TORCH_HOME", "HF_HOME", "XDG_CACHE_HOME", "HOME"):
        folder = Path(os.environ.get(name) or local)
        with contextlib.suppress(OSError):
            is_local = folder.stat().st_dev == Path(local).stat().st_dev
            if not is_local and _is_full(folder):
                return str(folder)
    return ""


def _is_to_blame(directory: Path) -> bool:
    """Return whether the trial itself has forbidden writing to its directory, not the study's."""
    try:
        is_mine = directory.stat().st_uid == os.geteuid()
    except OSError:
        return False
    return is_mine and os.access(directory.parent, os.W_OK | os.X_OK)


def _is_full(directory: Path) -> bool:
    """Return whether the study's directory takes no more, so that other attempts would fail too."""
    return refusal_of(directory) in DISK_FULL


def cause_of(error: BaseException, *, has_gpu: bool) -> Cause:
    """Return the cause of an ending by this exception.

    >>> cause_of(MemoryError(), has_gpu=True)
    <Cause.OUT_OF_MEMORY: 'out of memory'>

    Args:
        error: What the user's code raised; the exceptions that it was raised from count too.
        has_gpu: Whether the attempt holds a GPU, whose memory the error may be about.
    """
    if (stated := stated_cause(error)) is not None:
        return stated
    for each in _chain(error):
        if isinstance(each, MemoryError) or (
            isinstance(each, OSError) and each.errno == errno.ENOMEM
        ):
            return Cause.OUT_OF_MEMORY
        if isinstance(each, OSError) and each.errno in _OF_MACHINE:
            return Cause.WORKER_LOST
        if has_gpu and _says(each, _GPU_FAILS):
            return Cause.WORKER_LOST
        if _is_out_of_memory(each):
            of_host = not has_gpu or any(word in text_of(each) for word in _HOST_MEMORY)
            return Cause.OUT_OF_MEMORY if of_host else Cause.DEVICE_OUT_OF_MEMORY
    return Cause.EXCEPTION


def _is_out_of_memory(error: BaseException) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"OutOfMemoryError", "ResourceExhaustedError"}:
        return True  # torch, TensorFlow
    return _says(error, (*_OUT_OF_MEMORY, "CPUAllocator: can't allocate"))


def _says(error: BaseException, words: Iterable[str]) -> bool:
    """Return whether an error that a framework raises for many reasons has one of these words."""
    names = {kind.__name__ for kind in type(error).__mro__}
    if not names & _GENERIC_ERRORS or isinstance(error, RecursionError):
        return False
    text = text_of(error)
    return any(word in text for word in words)


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__context__, each.__cause__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions

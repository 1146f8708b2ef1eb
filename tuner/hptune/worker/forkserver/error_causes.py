"""Classification of exceptions in the user's code; no framework is imported."""

from __future__ import annotations

import errno
from collections.abc import Iterator

from ...core.attempt import Cause
from ...training.context import stated_cause

_GENERIC_ERRORS = frozenset(("RuntimeError", "XlaRuntimeError", "JaxRuntimeError", "InternalError"))
_OUT_OF_MEMORY = (
    "RESOURCE_EXHAUSTED",
    "ResourceExhausted",
    "OOM when allocating",
    "out of memory",
    "Out of memory",
    "OUT_OF_MEMORY",
)
_OF_STORAGE = (
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ESHUTDOWN, errno.EREMOTEIO, errno.EHOSTDOWN
)  # fmt: skip
"""Errors of a disk or a file server that fails; no configuration causes them."""
_HOST_MEMORY = ("/device:CPU", "by allocator cpu", "by allocator mklcpu", "CPUAllocator")


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
        if isinstance(each, OSError) and each.errno in _OF_STORAGE:
            return Cause.WORKER_LOST
        if _is_out_of_memory(each):
            of_host = not has_gpu or any(word in str(each) for word in _HOST_MEMORY)
            return Cause.OUT_OF_MEMORY if of_host else Cause.DEVICE_OUT_OF_MEMORY
    return Cause.EXCEPTION


def _is_out_of_memory(error: BaseException) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    if names & {"OutOfMemoryError", "ResourceExhaustedError"}:
        return True  # torch, TensorFlow
    if names & _GENERIC_ERRORS and not isinstance(error, RecursionError):
        text = str(error)
        return any(word in text for word in (*_OUT_OF_MEMORY, "CPUAllocator: can't allocate"))
    return False


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

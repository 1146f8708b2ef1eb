"""Calls of Python functions that cost the same at any depth.

CPython keeps the frames of Python functions in chunks of 16 KiB, and unmaps a chunk when its last
frame ends. A loop whose calls cross the end of a chunk therefore maps, faults in and unmaps one in
each call. Which loop does depends on how deep it is called.

Measured with CPython 3.11 on a virtual machine: at 3 of 400 depths, each call had a page fault and
took up to 51 µs instead of 0.04 µs. A Keras trial of `benchmarks/trial_overhead.py` made some 7,500
calls of `mmap` and of `munmap`, and 27,190 minor page faults in 0.26 s of system time. With the
large chunk below, it made 30 and 17,440 in 0.13 s. `tests/worker/forkserver/test_call_depth.py`
counts the faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_CLAIMED_SLOTS = 2**16
"""Pointers in half of a chunk of 1 MiB: the other half is 32 chunks of the usual size."""


def with_ample_stack(function: Callable[..., None], *arguments: Any) -> None:
    """Call a function whose calls, and theirs, share one large chunk of frames."""
    function(*arguments)


# A frame that claims so large a stack gets a chunk of its own, whose other half holds all later
# frames. The kernel provides no memory for what is claimed and never used.
with_ample_stack.__code__ = with_ample_stack.__code__.replace(co_stacksize=_CLAIMED_SLOTS)

"""The process of one attempt (or of a question): a child of the fork server.

It owns its process group, its log and its devices; it talks to the worker through one channel;
it ends without running the interpreter's tear-down, which frameworks make slow and fragile.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from typing import NoReturn

from .. import devices
from ..orders import AttemptOrder, Order
from ..process_ids import die_with_parent, empty_stdin
from . import attempt, orphans, questions
from .call_depth import with_ample_stack
from .channel import Channel


def main(order: Order, channel: Channel) -> NoReturn:
    """Carry out the order, send the result through the channel, and end the process."""
    status = 1
    try:
        _leave_the_parent()
        task = attempt.carry_out if isinstance(order, AttemptOrder) else questions.answer
        with_ample_stack(task, order, channel)
        status = 0
    except BaseException:  # the process ends here, whatever it was
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            # Run what the user's code registered, then leave without the interpreter's tear-down.
            atexit._run_exitfuncs()  # noqa: SLF001 - there is no public way
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _leave_the_parent() -> None:
    """Undo what was inherited and must not be shared with the fork server."""
    os.setsid()
    orphans.tag()
    die_with_parent(os.getppid())  # a trial process must never outlive its fork server
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if devices.is_slurm_job():
        leave_sigterm_to_the_worker()
    atexit._clear()  # noqa: SLF001 - the parent's clean-up is not ours to run
    empty_stdin()


def leave_sigterm_to_the_worker() -> None:
    """Slurm tells every process of a job to end; the worker alone knows what to do then.

    It tells its attempts to write checkpoints. Processes that a trial starts end as they would.
    """
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))

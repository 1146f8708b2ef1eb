"""A thread that polls Slurm, less often while nothing changes."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from .errors import JobQueueError, JobsFailError, NoSlurmError, SlurmUnavailableError

T = TypeVar("T")

POLL_SECONDS = 10.0
"""The shortest time between two polls, each of one command for all jobs."""

SUBMITTED_POLL_SECONDS = 2.0
"""The same after a submission: jobs that can start at once do so in this time."""

SLOWEST_POLL_SECONDS = 60.0
"""The time between two polls while nothing changes."""

ANSWER_PAUSE_SECONDS = 15.0
"""The time until a question is repeated that Slurm has not answered at the beginning of a run."""

log = logging.getLogger(__name__)


def silence_text(error: SlurmUnavailableError) -> str:
    """Return the line for the user on a Slurm that does not answer."""
    return f"Slurm does not answer: {error}"


def answer_of(
    ask: Callable[[], T], *, notify: Callable[[str], None], seconds: float = math.inf
) -> T:
    """Return what a question to Slurm returns; it is repeated while Slurm does not answer.

    Args:
        ask: The question.
        notify: Takes a line for the user, once.
        seconds: How long to repeat it.

    Raises:
        SlurmUnavailableError: There is no Slurm here, or it has not answered in time.
    """
    until, is_told = time.monotonic() + seconds, False
    while True:
        try:
            return ask()
        except NoSlurmError:
            raise
        except SlurmUnavailableError as error:
            if time.monotonic() > until:
                raise
            if not is_told:
                limit = "" if seconds == math.inf else f" for {seconds / 60:.0f} minutes at most"
                notify(f"{silence_text(error)}. This run waits until it does{limit}")
            is_told = True
        time.sleep(ANSWER_PAUSE_SECONDS)


class Polling:
    """The thread. `start` it, and in the end `stop` and `join` it; other calls from any thread.

    Args:
        poll: Called again and again from the thread; returns whether anything has changed. After
            a SlurmUnavailableError it is called again later; other errors end the thread, and
            `check` raises them.
        notify: Takes a line for the user.
        rest: Returns how many seconds there must be before the next poll, because of those before.
    """

    def __init__(
        self,
        poll: Callable[[], bool],
        *,
        notify: Callable[[str], None],
        rest: Callable[[], float],
    ) -> None:
        self._poll = poll
        self._rest = rest
        self._notify = notify
        self._wake = threading.Event()
        self._has_submitted = False
        self._stopped = threading.Event()
        self._failure: JobQueueError | None = None
        self._thread: threading.Thread | None = None

    @property
    def is_started(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="slurm-jobs", daemon=True)
        self._thread.start()

    def on_submission(self) -> None:
        """Poll for the new jobs earlier than otherwise; called from `poll` or before `start`."""
        self._has_submitted = True

    def poll_soon(self) -> None:
        """Poll as soon as the shortest time has passed."""
        self._wake.set()

    def check(self) -> None:
        """Check that the thread is alive.

        Raises:
            JobQueueError: It has ended with this error.
        """
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Have the thread end; returns at once."""
        self._stopped.set()
        self._wake.set()

    def join(self) -> None:
        """Wait for the end of the thread."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        pause = POLL_SECONDS
        while self._waited(pause):
            try:
                has_changed = self._poll()
            except SlurmUnavailableError as error:
                # It may be busy or restarting; the jobs continue meanwhile.
                self._notify(silence_text(error))
                has_changed = False
            except JobQueueError as error:
                self._failure = error
                return
            except Exception as error:
                # Without this thread the jobs are not managed, and the study would wait forever.
                log.exception("The thread that keeps the Slurm jobs broke")
                self._failure = JobsFailError(
                    f"the Slurm jobs cannot be managed any more: {error!r}"
                )
                return
            pause = POLL_SECONDS if has_changed else SLOWEST_POLL_SECONDS

    def _waited(self, pause: float) -> bool:
        """Wait for the next poll; returns whether there is one."""
        began, has_submitted = time.monotonic(), self._has_submitted
        self._has_submitted = False
        least = SUBMITTED_POLL_SECONDS if has_submitted else POLL_SECONDS
        least = max(least, self._rest())
        if self._stopped.wait(max(0.0, began + least - time.monotonic())):
            return False
        if not has_submitted:
            self._wake.wait(max(0.0, began + pause - time.monotonic()))
        self._wake.clear()
        return not self._stopped.is_set()

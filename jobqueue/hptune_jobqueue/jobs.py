"""The Slurm jobs of a study: a thread polls Slurm, and carries out what `JobsState` decides."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from .commands import ALIVE, Slurm
from .errors import (
    JobQueueError,
    JobsFailError,
    NoSlurmError,
    SlurmUnavailableError,
    SubmissionError,
)
from .job_kinds import JobKinds
from .job_messages import Cancel, Demand, Exclude, Instruction, Submit, Tell, Write
from .job_reports import ShownJobs, read_output, write_jobs
from .jobs_state import JobsState

T = TypeVar("T")

POLL_SECONDS = 10.0
"""The shortest time between two polls, each of one command for all jobs."""

SUBMITTED_POLL_SECONDS = 2.0
"""The same after a submission: jobs that can start at once do so in this time."""

SLOWEST_POLL_SECONDS = 60.0
"""The time between two polls while nothing changes."""

ANSWER_PAUSE_SECONDS = 15.0
"""The time until a question is repeated that Slurm has not answered at the beginning of a run."""

_TRIES = 3
_PAUSE_SECONDS = 0.5

_LEAVE_SECONDS = 15.0
"""How long jobs may take to end by themselves after the study."""

_LOOK_SECONDS = 2.0
"""The time between two looks at them."""

log = logging.getLogger(__name__)


class Jobs:
    """The jobs of one study. `open` them when it is known what a trial holds; `close` in the end.

    All methods may be called from any thread.

    Attributes:
        kinds: The kinds of jobs to choose from, which must be there when the jobs are opened.
        left: Which jobs may be left after `close`, and how to cancel them; empty if none is left.
        is_open: Whether there may be jobs that this object keeps.

    Args:
        kinds: The kinds of jobs.
        max_jobs: How many jobs there may be at once.
        notify: Takes a line for the user; called from the thread.
        prefix: The prefix of the names of all of the study's jobs.
        directory: Where to keep the file with the jobs that Slurm shows.
        slurm: Runs Slurm's commands.
    """

    def __init__(
        self,
        kinds: JobKinds,
        *,
        max_jobs: int,
        notify: Callable[[str], None],
        prefix: str,
        directory: Path,
        slurm: Slurm | None = None,
    ) -> None:
        self.kinds = kinds
        self.left = ""
        self.is_open = False
        self._state = JobsState(kinds, max_jobs=max_jobs, prefix=prefix, read=read_output)
        self._lock = threading.Lock()
        self._notify = notify
        self._directory = directory
        self._slurm = slurm or Slurm()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._has_submitted = False
        self._failure: JobQueueError | None = None
        self._thread: threading.Thread | None = None

    def open(self, wanted: int) -> None:
        """Take over existing jobs, and submit those that this number of trials still needs.

        If Slurm does not answer, that is tried again like any later poll.

        Raises:
            ConfigError: The folder of the jobs' output cannot be made.
            SubmissionError: Slurm refuses a job and none exists; the message has Slurm's words.
        """
        self.is_open = True
        for kind in self.kinds.values():
            kind.make_log_directory()
        self._carry_out(lambda now: self._state.demanded(Demand(wanted), now))
        try:
            self._poll()
        except SlurmUnavailableError as error:
            self._on_silence(error)
        except BaseException:
            # Also on Ctrl-C: sbatch may have submitted jobs whose ids were never read.
            self.left = _cancel_until_none(self._slurm, self.kinds)
            raise
        self._thread = threading.Thread(target=self._run, name="slurm-jobs", daemon=True)
        self._thread.start()

    def set_demand(self, demand: Demand) -> None:
        """Set how many trials there are, and which jobs are useful; returns at once.

        Raises:
            ShapesFailError: Jobs of every shape end again and again without having been useful.
            SubmissionError: Slurm refuses the jobs, and none is left.
        """
        if self._failure is not None:
            raise self._failure
        self._carry_out(lambda now: self._state.demanded(demand, now))

    def exclude_node(self, node: str, why: str) -> None:
        """Cancel the jobs on a node, and submit none to it.

        Args:
            node: Its name in Slurm.
            why: The reason, for the user.
        """
        self._carry_out(lambda _: self._state.excluded(node, why))

    def take_excluded(self) -> Mapping[str, str]:
        """Return the nodes on which jobs failed since the last call, and why they are excluded."""
        with self._lock:
            return self._state.take_found()

    def shown(self) -> ShownJobs:
        """Return the jobs as Slurm last showed them while open, and why there are no others."""
        with self._lock:
            return self._state.shown_jobs() if self.is_open else ShownJobs(0.0, ())

    def drained(self) -> frozenset[str]:
        """Return the ids of the jobs whose workers must take no more trials."""
        with self._lock:
            return self._state.drained()

    def max_workers(self) -> int:
        """Return how many workers there could be now for the present trials."""
        with self._lock:
            return self._state.max_workers()

    def close(self, *, force: bool = False, leaving: Container[str] = ()) -> None:
        """Stop the thread and cancel all jobs. May be repeated.

        Args:
            force: Only cancel the jobs, by one quick command each.
            leaving: The ids of the jobs whose workers were told to leave. They are cancelled only
                if they do not end in time, so that Slurm's accounting has them as completed.
        """
        if not self.is_open:
            return
        if force:
            try:
                self._slurm.cancel_all(self.kinds)
            except SlurmUnavailableError as error:
                self.left = _left_text(self.kinds, str(error))
            return
        known = [job.id for job in self.shown().jobs if job.id not in leaving]
        self._stop()
        if self._thread is not None:
            # Cancel the known jobs first: the thread may wait a minute for Slurm.
            with contextlib.suppress(SlurmUnavailableError):
                self._slurm.cancel(known)
            self._thread.join()
            with contextlib.suppress(SlurmUnavailableError):
                _wait_for_end(self._slurm, self.kinds, leaving)
            self.left = _cancel_until_none(self._slurm, self.kinds)
        # Only now: until here, a signal may have them cancelled with `force`.
        self.is_open = False

    def hand_over(self) -> None:
        """Stop the thread, and cancel the jobs on which no trial runs; the others stay.

        Raises:
            SlurmUnavailableError: Slurm does not answer.
        """
        self._stop()
        self.is_open = False
        with self._lock:
            idle = self._state.idle()
        self._slurm.cancel(idle)

    def _stop(self) -> None:
        """Have the thread end; returns at once."""
        self._stopped.set()
        self._wake.set()

    # --- in the thread ----------------------------------------------------------------------

    def _run(self) -> None:
        pause = POLL_SECONDS
        while self._waited(pause):
            try:
                has_changed = self._poll()
            except SlurmUnavailableError as error:
                # It may be busy or restarting; the jobs continue meanwhile.
                self._on_silence(error)
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
        least = max(least, self._slurm.rest_seconds())
        if self._stopped.wait(max(0.0, began + least - time.monotonic())):
            return False
        if not has_submitted:
            self._wake.wait(max(0.0, began + pause - time.monotonic()))
        self._wake.clear()
        return not self._stopped.is_set()

    def _poll(self) -> bool:
        """Ask Slurm, and do what follows; returns whether anything has changed."""
        state = self._state
        before = state.progress()
        shown = self._slurm.jobs(self.kinds if state.has_taken_over else None)
        is_held = any(job.is_held and job.name in self.kinds for job in shown)
        failed = self._slurm.failed_prologs() if is_held else {}
        self._carry_out(lambda now: state.shown(shown, failed, now))
        self._carry_out(lambda _: state.settled())
        if state.failure is not None:
            raise state.failure
        with self._lock:
            return before != state.progress() or state.waits_for_ends()

    def _on_silence(self, error: SlurmUnavailableError) -> None:
        text = silence_text(error)
        self._carry_out(lambda now: self._state.silent(text, now))

    def _carry_out(self, event: Callable[[float], Sequence[Instruction]]) -> None:
        """Tell the state of an event, and do what it returns.

        Raises:
            SlurmUnavailableError: Slurm does not answer.
        """
        with self._lock:
            orders = event(time.time())
        for order in orders:
            match order:
                case Tell(line):
                    self._notify(line)
                case Cancel(ids):
                    self._slurm.cancel(ids)
                case Exclude(job_id, nodes):
                    # A job that has started there meanwhile is cancelled at the next poll.
                    with contextlib.suppress(SubmissionError):
                        self._slurm.exclude(job_id, nodes)
                case Submit():
                    self._submit(order)
                case Write(shown):
                    write_jobs(self._directory, shown)
                case _:
                    self._wake.set()

    def _submit(self, order: Submit) -> None:
        if self._stopped.is_set():
            return  # `close` cancels all jobs meanwhile
        kind = self.kinds[order.kind]
        kind.make_log_directory()
        try:
            ids = self._slurm.submit(kind.script, order.count, exclude=order.exclude)
        except SubmissionError as error:
            refusal = error  # `error` is gone when this block ends
            self._carry_out(lambda now: self._state.refused(order, refusal, now))
        else:
            self._has_submitted = True
            self._carry_out(lambda now: self._state.submitted(order, ids, now))


def _wait_for_end(slurm: Slurm, names: Collection[str], leaving: Container[str]) -> None:
    """Wait for the end of jobs whose workers leave, for some seconds.

    Raises:
        SlurmUnavailableError: Slurm does not answer.
    """
    deadline = time.monotonic() + _LEAVE_SECONDS
    while leaving and time.monotonic() < deadline:
        shown = slurm.jobs(names)
        if not any(job.state in ALIVE for job in shown if job.id in leaving):
            return
        time.sleep(_LOOK_SECONDS)


def _cancel_until_none(slurm: Slurm, names: Collection[str]) -> str:
    """Cancel all jobs of these names that Slurm shows, until it shows none.

    Returns:
        Which jobs may be left, and how the user cancels them; empty if none is left.
    """
    why = "they still exist"
    for _ in range(_TRIES):
        try:
            left = [job.id for job in slurm.jobs(names) if job.state in ALIVE]
            if not left:
                return ""
            slurm.cancel(left)
        except SlurmUnavailableError as error:
            why = str(error)
        time.sleep(_PAUSE_SECONDS)
    return _left_text(names, why)


def _left_text(names: Collection[str], why: str) -> str:
    commands = "; ".join(f"scancel --name={name}" for name in names)
    return f"Slurm jobs of this study may be left ({why}). Cancel them with: {commands}"


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

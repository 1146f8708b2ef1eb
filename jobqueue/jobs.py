"""Keeps as many Slurm jobs as a study can use: submits, replaces, takes back and cancels them."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .config import Shape
from .errors import JobQueueError, JobsFailError, SlurmUnavailableError, SubmissionError
from .plan import Alive, Kind, plan
from .queue import Job, JobState, Slurm
from .sizing import WorkerShape

POLL_SECONDS = 3.0
"""Slurm is not asked more often than this, by one call for all jobs."""

SLOWEST_POLL_SECONDS = 30.0
"""How long it is left alone where nothing changes."""

_POLL_GROWS = 1.3
_REFUSED_SECONDS = 60.0
_FAILURES_IN_A_ROW = 3

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job, ready to be submitted.

    Attributes:
        shape: What the slurm.toml says of it.
        worker: What a job gets.
        job_name: The name of its jobs, which no other study's have.
        script: The job script.
        logs: Where the jobs' output goes, unless the shape says otherwise.
    """

    shape: Shape
    worker: WorkerShape
    job_name: str
    script: str
    logs: Path

    @property
    def log_directory(self) -> Path:
        """Where its output goes in fact."""
        return Path(self.shape.log_directory or self.logs)


class Jobs:
    """The jobs of one study. `open` before anything else, and `close` in the end.

    A thread of its own asks Slurm how the jobs stand, compares that with what is wanted, and
    submits and cancels. A job that is lost is missing in the next answer, and so replaced. Jobs
    of these names that are there already are the study's own, left by an earlier master: they are
    counted as if they had been submitted now.

    All methods may be called from any thread.

    Args:
        kinds: The kinds of jobs to choose from.
        max_jobs: How many jobs there may be at once.
        tell: Takes a line for the user now and then; called from the thread.
        slurm: Asks Slurm.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind],
        *,
        max_jobs: int,
        tell: Callable[[str], None],
        slurm: Slurm | None = None,
    ) -> None:
        self._kinds = {kind.job_name: kind for kind in kinds}
        self._max_jobs = max_jobs
        self._tell = tell
        self._slurm = slurm or Slurm()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._wanted = 0
        self._workers: Mapping[str, bool] = {}
        self._joined: set[str] = set()
        self._idle_before: set[str] = set()
        self._jobs: dict[str, Job] = {}
        self._over: set[str] = set()
        self._failed_in_a_row = 0
        self._refused_until = 0.0
        self._told = ""
        self._failure: JobQueueError | None = None

    def open(self, wanted: int) -> None:
        """Take back the jobs that are there, and submit what is missing for so many trials.

        Raises:
            SubmissionError: Slurm refuses a job and none is there: the words are Slurm's own.
            SlurmUnavailableError: There is no Slurm here, or it does not answer.
        """
        self._wanted = wanted
        for kind in self._kinds.values():
            kind.log_directory.mkdir(parents=True, exist_ok=True)
        try:
            self._step(is_first=True)
        except JobQueueError:
            self._cancel_all()
            raise
        self._thread = threading.Thread(target=self._watch, name="slurm-jobs", daemon=True)
        self._thread.start()

    def want(self, trials: int, workers: Mapping[str, bool]) -> None:
        """Say what there is to do.

        Args:
            trials: How many trials run or could begin now.
            workers: The ids of the jobs whose workers are there, and whether trials run on them.

        Raises:
            JobsFailError: Jobs end again without ever having been of use.
            SubmissionError: Slurm refuses the jobs, and none is left.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            is_new = trials != self._wanted
            self._wanted, self._workers = trials, dict(workers)
            self._joined.update(workers)
        if is_new:
            self._changed.set()

    def snapshot(self) -> tuple[Job, ...]:
        """The jobs that are not over, as Slurm last showed them."""
        with self._lock:
            return tuple(job for job in self._jobs.values() if job.state is not JobState.OVER)

    def words(self) -> str:
        """How the jobs stand, in a line."""
        return _words(self.snapshot(), self._wanted)

    def close(self, *, cancel: bool = True) -> None:
        """End the thread and, unless told otherwise, all jobs. May be repeated."""
        self._closing = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            if cancel:
                self._cancel_all()

    # --- the thread -------------------------------------------------------------------------

    def _watch(self) -> None:
        pause = POLL_SECONDS
        while not self._closing:
            asked = time.monotonic()
            before = self.snapshot()
            try:
                self._step()
            except SlurmUnavailableError as error:
                # It may be busy, or restarting; the jobs run on meanwhile.
                self._say(f"Slurm does not answer: {error}")
            except JobQueueError as error:
                with self._lock:
                    self._failure = error
                return
            if before != self.snapshot():
                pause = POLL_SECONDS
            self._changed.wait(pause)
            if self._changed.is_set():
                self._changed.clear()
                pause = POLL_SECONDS
            else:
                pause = min(pause * _POLL_GROWS, SLOWEST_POLL_SECONDS)
            self._pause_until(asked + POLL_SECONDS)

    def _pause_until(self, then: float) -> None:
        while not self._closing and (left := then - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _step(self, *, is_first: bool = False) -> None:
        shown = self._slurm.jobs(self._kinds)
        with self._lock:
            wanted, workers = self._wanted, self._workers
        alive = [job for job in shown if job.state in (JobState.PENDING, JobState.RUNNING)]
        if is_first:
            self._over = {job.id for job in shown} - {job.id for job in alive}
            if alive:
                self._say(f"took back {_count(len(alive), 'job')} that an earlier run left")
        self._over.difference_update(job.id for job in alive)  # requeued by hand
        self._note_ended(shown)
        hopeless = [job for job in alive if job.is_hopeless]
        if hopeless:
            self._slurm.cancel([job.id for job in hopeless])
            alive = [job for job in alive if not job.is_hopeless]
            reasons = ", ".join(sorted({job.reason for job in hopeless}))
            self._refuse(f"Slurm would never start the job: {reasons}", alive)
        idle = {job.id for job in alive if not workers.get(job.id, False)}
        planned = plan(
            wanted,
            [self._as_alive(job, is_busy=job.id not in idle & self._idle_before) for job in alive],
            [Kind(k.job_name, k.worker.trials, k.shape.max_jobs) for k in self._kinds.values()],
            max_jobs=self._max_jobs,
        )
        # Only what has been idle for a while: trials may be on their way to a worker.
        self._idle_before = idle
        ending = [job for job in shown if job.state is JobState.ENDING]
        with self._lock:
            self._jobs = {job.id: job for job in (*alive, *ending)}
        if planned.submit and time.monotonic() >= self._refused_until:
            self._submit(planned.submit, alive)
        self._slurm.cancel(planned.cancel)
        with self._lock:
            for identity in planned.cancel:
                self._jobs.pop(identity, None)
                self._over.add(identity)
        self._say(self.words())

    def _submit(self, counts: Mapping[str, int], alive: Sequence[Job]) -> None:
        for name, count in counts.items():
            kind = self._kinds[name]
            try:
                ids = self._slurm.submit(kind.script, count)
            except SubmissionError as error:
                self._refuse(f"{error} (shape {kind.shape.name})", alive)
                continue
            with self._lock:
                for identity in ids:
                    self._jobs[identity] = Job(identity, name, JobState.PENDING, "PENDING")

    def _refuse(self, words: str, alive: Sequence[Job]) -> None:
        """A refusal is an error while there is no job; later it may pass, as a limit does."""
        with self._lock:
            has_some = bool(alive or self._jobs)
        if not has_some:
            raise SubmissionError(words)
        self._refused_until = time.monotonic() + _REFUSED_SECONDS
        self._say(words)

    def _as_alive(self, job: Job, *, is_busy: bool) -> Alive:
        pending = job.state is JobState.PENDING
        left = None
        if job.ends_at is not None and not pending:
            # Slurm may signal a minute early. Short jobs are not replaced in their first half.
            shape = self._kinds[job.name].shape
            margin = min(shape.notice_seconds + 60, shape.walltime_seconds / 2)
            left = job.ends_at - time.time() - margin
        return Alive(job.id, job.name, pending, is_busy and not pending, left)

    def _note_ended(self, shown: Sequence[Job]) -> None:
        present = {job.id: job for job in shown}
        with self._lock:
            known = dict(self._jobs)
            joined = set(self._joined)
        for identity, before in known.items():
            job = present.get(identity)
            if job is not None and job.state is not JobState.OVER:
                continue
            if identity in self._over:
                continue
            self._over.add(identity)
            word = "is gone" if job is None else f"ended: {job.word}"
            why = f" ({job.reason})" if job is not None and job.reason else ""
            node = (job.node if job is not None else "") or before.node
            self._tell(f"job {identity}{f' on {node}' if node else ''} {word}{why}")
            self._count_failure(before, job, was_useful=identity in joined)

    def _count_failure(self, before: Job, job: Job | None, *, was_useful: bool) -> None:
        if was_useful:
            self._failed_in_a_row = 0
        elif job is not None and job.word in ("FAILED", "COMPLETED", "OUT_OF_MEMORY"):
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= _FAILURES_IN_A_ROW:
                log_file = self._log_of(before)
                raise JobsFailError(
                    f"{self._failed_in_a_row} jobs in a row ended before their worker had joined. "
                    f"The last one, {before.id}, wrote into {log_file}:\n{_tail(log_file)}"
                )

    def _log_of(self, job: Job) -> Path:
        return self._kinds[job.name].log_directory / f"{job.name}-{job.id}.log"

    def _cancel_all(self) -> None:
        with contextlib.suppress(SlurmUnavailableError):
            self._slurm.cancel([job.id for job in self.snapshot()])

    def _say(self, line: str) -> None:
        if line and line != self._told:
            self._told = line
            self._tell(line)


def _words(jobs: Sequence[Job], wanted: int) -> str:
    running = [job for job in jobs if job.state is JobState.RUNNING]
    waiting: dict[tuple[str, str], int] = {}
    for job in jobs:
        if job.state is JobState.PENDING and (job.reason or job.partition):
            key = (job.partition, job.reason)
            waiting[key] = waiting.get(key, 0) + 1
    parts = []
    if running:
        nodes = sorted({job.node for job in running if job.node})
        where = f" on {', '.join(nodes)}" if 0 < len(nodes) <= 4 else ""
        parts.append(f"{_count(len(running), 'job')} running{where}")
    for (partition, reason), count in sorted(waiting.items()):
        why = f": {reason}" if reason else ""
        parts.append(f"{_count(count, 'job')} waiting in partition {partition}{why}")
    return f"Slurm: {'; '.join(parts)}" if parts and wanted else ""


def _count(number: int, noun: str) -> str:
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def _tail(path: Path, lines: int = 15) -> str:
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(nothing)"

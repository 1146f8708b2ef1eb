"""A run's workers in jobs of a batch system that is not Slurm: Grid Engine, PBS, LSF and others.

dask-jobqueue writes, submits and cancels the jobs, as its configuration describes them. A system
is asked in one way that all have: which jobs does it still have? What only Slurm's cluster
(`slurm_jobs`) does needs more than that.
"""

from __future__ import annotations

import math
import queue
import secrets
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hptune_jobqueue.errors import ConfigError, JobQueueError, JobsFailError, SubmissionError
from hptune_jobqueue.job_records import FAILURES_IN_A_ROW
from hptune_jobqueue.job_reports import read_output
from hptune_jobqueue.scheduler import OwnScheduler

from ..config.settings import StudySettings
from ..core.notice import Notice
from ..core.resources import Resources
from ..errors import UsageError
from ..text import plural
from .batch_systems import SYSTEMS, JobMaker
from .jobs import JobWorkers, jobs_folder, jobs_name, translated_errors, worker_arguments
from .layout import WorkerLayout, fitting

DEFAULT_MAX_JOBS = 10

_ROUND_SECONDS = 1.0
"""How often it is looked which workers have joined."""

_FIRST_ASK_SECONDS, _SLOWEST_ASK_SECONDS = 2.0, 30.0
"""Seconds between two questions to the system, which double while nothing changes."""

_REFUSED_SECONDS = 60.0
"""How long after a refused job the next one is submitted."""

_TOLD_SECONDS = 10.0
"""How long no job has started until the user is told what the system shows."""

_GONE_SECONDS = 600.0
"""How long a job is kept whose worker is gone, though the system shows it: its node may be dead."""

_CANCEL_SECONDS = 30.0
"""How long cancelled jobs may take to be gone."""

_LONGEST_PAUSE_SECONDS = 5.0
"""Longest pause between two questions whether cancelled jobs are gone."""

_FORCE_SECONDS = 5.0
"""How long cancelling may take when the process ends now."""


class BatchWorkers(JobWorkers["BatchCluster"]):
    """The workers of one study in jobs of a batch system. They end with the study.

    Args:
        settings: The study's settings, of which `cluster` names the system.
        study: The study's directory, which every node must see.
        max_jobs: How many jobs there may be at once.
        insecure: Whether scheduler and workers use no certificates.
    """

    def __init__(
        self,
        settings: StudySettings,
        study: Path,
        *,
        max_jobs: int | None = None,
        insecure: bool = False,
    ) -> None:
        super().__init__(study, insecure=insecure)
        self._system = SYSTEMS[settings.cluster]
        self._max_jobs = max_jobs or DEFAULT_MAX_JOBS

    def _make(self, security: Any) -> BatchCluster:
        logs = jobs_folder(self._study)
        if shlex.quote(str(logs)) != str(logs):
            raise ConfigError(
                f"the study's directory is {str(self._study)!r}, and dask-jobqueue writes no jobs "
                "for a path with blanks or quotes; name another one by --study"
            )
        logs.mkdir(parents=True, exist_ok=True)
        maker = JobMaker(
            self._system,
            # PBS takes 15 characters.
            name=f"hptune-{jobs_name(self._study).rpartition('-')[2]}",
            logs=logs,
            arguments=worker_arguments(self._study, insecure=self._insecure),
        )
        return BatchCluster(maker, max_jobs=self._max_jobs, security=security)

    def text(self, layout: WorkerLayout) -> str:
        """Return where the trials run."""
        del layout
        jobs = f"{self._max_jobs} {self._system.title} job{'s' * (self._max_jobs > 1)}"
        return f"in at most {jobs} of {self.cluster.maker.size}"

    def check_trial(self, resources: Resources) -> None:
        """Check that a job can hold a trial."""
        maker = self.cluster.maker
        if resources.nodes > 1:
            raise UsageError(
                f"a trial asks for {resources.nodes} nodes, but a job of {maker.system.title} has "
                "one here; ask for one, or start the workers in jobs of your own (see "
                "docs/guide/batch-systems.md)"
            )
        if not fitting(resources, [maker.has]):
            raise UsageError(
                f"a trial asks for {resources}, but a job has {maker.size} ({maker.section}); ask "
                "for less, or for larger jobs there"
            )

    def scale_up(self, resources: Resources, trials: int) -> None:
        """Submit the first job, to learn whether the system takes it; others follow."""
        with translated_errors():
            self.cluster.open(self._jobs_for({resources: trials}))

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> None:
        """Adjust the number of jobs to the trials; returns at once.

        Raises:
            StudyError: Jobs end again and again without having been useful, or no job is left and
                the system takes none.
        """
        with translated_errors(is_running=True):
            self.cluster.scale_to(self._jobs_for(sizes), workers)

    def notices(self) -> Sequence[Notice]:
        """Return lines on what became of the jobs."""
        return [Notice(line) for line in self.cluster.take_lines()]

    def jobs_text(self, now: float) -> str:
        """Return how many jobs have a worker, and how many have none yet."""
        del now
        return self.cluster.text()

    def longest_wait(self, now: float) -> float:
        """Return for how long the oldest job without a worker has waited."""
        del now
        return self.cluster.longest_wait()

    @property
    def left_behind(self) -> str:
        """Which jobs could not be cancelled, and the command that does it."""
        return "" if self._cluster is None else self._cluster.left

    def _jobs_for(self, sizes: Mapping[Resources, int]) -> int:
        job = [self.cluster.maker.has]
        # A trial may come that no job holds: one of a study that was resumed. It waits.
        return math.ceil(sum(n / max(1, fitting(trial, job)) for trial, n in sizes.items()))


@dataclass(slots=True)
class BatchJob:
    """A job that is not over.

    Attributes:
        id: Its id.
        worker: The name of its worker in Dask.
        submitted_at: When, by the monotonic clock.
        has_joined: Whether its worker has ever taken trials.
        seen_at: When its worker was last there; endless before that.
        line: What the system last showed of it.
    """

    id: str
    worker: str
    submitted_at: float
    has_joined: bool = False
    seen_at: float = math.inf
    line: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker that has joined.

    Attributes:
        is_busy: Whether trials run there.
        refusal: Why the study does not use it; empty if it does.
    """

    is_busy: bool
    refusal: str = ""


@dataclass(slots=True)
class JobList:
    """The jobs of a study, and what follows from what is seen of them. It has no clock or network.

    Attributes:
        title: The system's name.
        why: The command that tells what a job waits for.
        jobs: The jobs that are not over, the oldest first.
        lines: Lines for the user, which the caller takes.
        failures: How many jobs in a row were of no use.
        reason: Why the last of them was.
        is_told: Whether the user was told what a job waits for.
    """

    title: str
    why: str
    jobs: list[BatchJob] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    failures: int = 0
    reason: str = ""
    is_told: bool = False

    def see_joined(self, workers: Mapping[str, Seen]) -> None:
        """Note which workers have joined."""
        for job in self.jobs:
            seen = workers.get(job.worker)
            if seen is not None and not seen.refusal and not job.has_joined:
                job.has_joined, self.failures = True, 0

    def fail_refused(self, workers: Mapping[str, Seen]) -> list[str]:
        """Take out the jobs whose worker was refused; returns their ids."""
        refused = []
        for job in list(self.jobs):
            seen = workers.get(job.worker)
            if seen is not None and seen.refusal:
                self.fail(job, f"is cancelled, because its worker was refused: {seen.refusal}")
                refused.append(job.id)
        return refused

    def lost(self, workers: Mapping[str, Seen], now: float) -> list[str]:
        """Take out the jobs whose worker has been gone for long; returns their ids."""
        for job in self.jobs:
            job.seen_at = now if job.worker in workers else job.seen_at
        lost = [job for job in self.jobs if now - job.seen_at > _GONE_SECONDS]
        self.jobs = [job for job in self.jobs if job not in lost]
        words = f"is cancelled: its worker has been gone for {_GONE_SECONDS:g} s"
        self.lines += [f"job {job.id} {words}" for job in lost]
        return [job.id for job in lost]

    def see_system(
        self, shown: Mapping[str, str], asked_at: float, workers: Mapping[str, Seen]
    ) -> list[BatchJob]:
        """Note which jobs the system still has; returns those that ended without a worker.

        Args:
            shown: The lines on the user's jobs, by their numbers.
            asked_at: When the system was asked, by the monotonic clock.
            workers: The workers that have joined, by their names.
        """
        useless = []
        for job in list(self.jobs):
            job.line = shown.get(job.id.partition(".")[0], "")
            if job.line or job.worker in workers or job.submitted_at > asked_at:
                continue
            if job.has_joined:
                self.jobs.remove(job)
                self.lines.append(f"job {job.id} has ended")
            else:
                useless.append(job)
        waiting = [job for job in self.jobs if job.line and not job.has_joined]
        is_late = waiting and asked_at - waiting[0].submitted_at > _TOLD_SECONDS
        if is_late and not self.is_told and not any(job.has_joined for job in self.jobs):
            self.is_told = True
            self.lines.append(
                f"no worker has joined yet. {self.title} shows: {waiting[0].line}. What it waits "
                f"for: {self.why} {waiting[0].id}"
            )
        return useless

    def cancelled(self, wanted: int, workers: Mapping[str, Seen]) -> list[str]:
        """Take out the jobs that are too many and on which no trial runs; returns their ids.

        After too many failures, those without a worker are too many.
        """

        def use(job: BatchJob) -> int:
            seen = workers.get(job.worker)
            return 0 if seen is None else 1 + seen.is_busy

        self.jobs.sort(key=lambda job: (-use(job), job.submitted_at))
        if self.failures >= FAILURES_IN_A_ROW:
            wanted = min(wanted, sum(job.has_joined for job in self.jobs))
        out = [job for job in self.jobs[wanted:] if use(job) < 2]
        self.jobs = [job for job in self.jobs if job not in out]
        return [job.id for job in out]

    def missing(self, wanted: int) -> int:
        """Return how many jobs are to be submitted."""
        return 0 if self.failures >= FAILURES_IN_A_ROW else max(0, wanted - len(self.jobs))

    def fail(self, job: BatchJob, words: str) -> None:
        """Take out a job that was of no use, and tell the user why."""
        self.jobs.remove(job)
        self.failures += 1
        self.reason = f"job {job.id} {words}"
        self.lines.append(self.reason.partition("\n")[0].rstrip(":"))
        if self.failures == FAILURES_IN_A_ROW:
            self.lines.append(
                f"no more jobs are submitted: {FAILURES_IN_A_ROW} in a row were of no use"
            )

    @property
    def failure(self) -> str:
        """Why there will be no job any more; empty if there are jobs, or will be."""
        if self.jobs or self.failures < FAILURES_IN_A_ROW:
            return ""
        return f"{FAILURES_IN_A_ROW} jobs in a row were of no use. The last one: {self.reason}"


class BatchCluster:
    """A Dask scheduler in this process, and jobs whose workers join it. `close` it in the end.

    Attributes:
        maker: Makes the jobs.
        left: Which jobs may be left after `scale_down`, and how to cancel them; empty if none is.

    Args:
        maker: Makes the jobs.
        max_jobs: How many jobs there may be at once.
        security: Dask's object with the scheduler's certificate; None for no encryption.

    Attributes:
        address: The scheduler's address.

    Raises:
        JobQueueError: The scheduler cannot listen.
    """

    def __init__(self, maker: JobMaker, *, max_jobs: int, security: Any = None) -> None:
        self.maker = maker
        self.left = ""
        self._max_jobs = max_jobs
        self._scheduler = OwnScheduler(lambda: (), interface=maker.interface, security=security)
        self.address = self._scheduler.address
        self._list = JobList(maker.system.title, maker.system.why)
        self._lock = threading.Lock()
        self._wanted = 0
        self._known: Mapping[str, str] = {}
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._failure: JobQueueError | None = None
        self._refusals, self._refused_until = 0, 0.0
        self._run = secrets.token_hex(4)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="batch-jobs", daemon=True)

    def open(self, wanted: int) -> None:
        """Submit the first job, and others from now on.

        Raises:
            SubmissionError: The system refuses it.
        """
        self._wanted = wanted
        if wanted:
            self._submit()
        self._thread.start()

    def scale_to(self, wanted: int, known: Mapping[str, str]) -> None:
        """Set how many jobs are needed.

        Args:
            wanted: How many jobs the trials fill.
            known: The addresses of the workers that asked to join, and why each was refused.

        Raises:
            JobsFailError: No job is of any use.
        """
        self._wanted, self._known = wanted, dict(known)
        with self._lock:
            # Noted now: a worker may die before the thread's next round, with its trials begun.
            self._list.see_joined(self._workers())
        if self._failure is not None:
            raise self._failure

    def take_lines(self) -> list[str]:
        """Return the lines for the user since the last call."""
        return [self._lines.get() for _ in range(self._lines.qsize())]

    def text(self) -> str:
        """Return how many jobs work and how many wait; empty if there is none."""
        with self._lock:
            joined = sum(job.has_joined for job in self._list.jobs)
            waiting = len(self._list.jobs) - joined
        waits = f"{waiting} waiting in {self.maker.system.title} or starting" if waiting else ""
        return "; ".join(filter(None, [f"{joined} at work" if joined else "", waits]))

    def longest_wait(self) -> float:
        """Return the age in seconds of the oldest job that had no worker yet; 0.0 if all had."""
        with self._lock:
            submitted = [job.submitted_at for job in self._list.jobs if not job.has_joined]
        return time.monotonic() - min(submitted) if submitted else 0.0

    def scale_down(self) -> None:
        """Cancel all jobs, and wait until they are gone; may be repeated."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(_CANCEL_SECONDS)
        with self._lock:
            ids = [job.id for job in self._list.jobs]
        if ids:
            self._cancel_until_gone(ids)
        # Only now: until here, a signal may have them cancelled with `force`.
        self._list.jobs = []

    def _cancel_until_gone(self, ids: Sequence[str]) -> None:
        answers, deadline = self.maker.cancel(ids), time.monotonic() + _CANCEL_SECONDS
        pause = 0.2
        while left := self._still_there(ids) if answers else ids:
            if not answers or time.monotonic() > deadline:
                system, command = self.maker.system, self.maker.cancel_command
                self.left = (
                    f"{system.title} still has {plural(len(left), 'job')} of this study, or does "
                    f"not answer. Cancel with: {command} {' '.join(left)}"
                )
                return
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def close(self, *, force: bool = False) -> None:
        """Cancel the jobs and stop the scheduler; with `force`, only what takes no time."""
        if force:
            self.maker.cancel([job.id for job in self._list.jobs], seconds=_FORCE_SECONDS)
            return
        self.scale_down()
        self._scheduler.close()

    def _still_there(self, ids: Sequence[str]) -> list[str]:
        """Return which jobs the system still has; all if it does not answer."""
        shown = self.maker.system.jobs()
        return [each for each in ids if shown is None or each.partition(".")[0] in shown]

    def _workers(self) -> dict[str, Seen]:
        """Return the workers that have joined the study, or were refused, by their names."""
        known = self._known
        return {
            worker.name: Seen(worker.is_busy, known[worker.address])
            for worker in self._scheduler.workers()
            if worker.address in known
        }

    # --- in the thread ----------------------------------------------------------------------

    def _work(self) -> None:
        delay, asked_at = _FIRST_ASK_SECONDS, time.monotonic()
        before: object = None
        while self._failure is None and not self._is_over.wait(_ROUND_SECONDS):
            workers = self._workers()
            state = (sorted(workers), [job.id for job in self._list.jobs])
            if state != before:
                before, delay = state, _FIRST_ASK_SECONDS
            is_due = time.monotonic() - asked_at > delay
            failure = ""
            try:
                failure = self._adjust(workers)
                if is_due and any(job.worker not in workers for job in self._list.jobs):
                    asked_at, delay = time.monotonic(), min(2 * delay, _SLOWEST_ASK_SECONDS)
                    self._compare(asked_at)
            except Exception as error:  # without this thread, the study would wait forever
                failure = str(error) or repr(error)
            for line in self._list.lines:
                self._lines.put(line)
            self._list.lines.clear()
            # After the lines that lead to it, which end with it.
            if failure := self._list.failure or failure:
                self._failure = JobsFailError(failure)

    def _adjust(self, workers: Mapping[str, Seen]) -> str:
        """Cancel jobs that are too many, and submit those that are missing.

        Returns:
            Why there can be no job any more; empty otherwise.
        """
        wanted = min(self._wanted, self._max_jobs)
        with self._lock:
            ids = self._list.fail_refused(workers)
            ids += self._list.lost(workers, time.monotonic())
            ids += self._list.cancelled(wanted, workers)
        self.maker.cancel(ids)
        for _ in range(self._list.missing(wanted)):
            if self._is_over.is_set() or time.monotonic() < self._refused_until:
                return ""
            try:
                self._submit()
            except SubmissionError as error:
                self._refusals += 1
                self._refused_until = time.monotonic() + _REFUSED_SECONDS
                if self._refusals == 1:
                    again = f"it is tried again every {_REFUSED_SECONDS:g} s"
                    self._list.lines.append(f"{error}; {again}")
                elif self._refusals >= FAILURES_IN_A_ROW and not self._list.jobs:
                    return f"no job is left. {error}"
        return ""

    def _compare(self, asked_at: float) -> None:
        """Ask the system, and note which jobs are over."""
        if (shown := self.maker.system.jobs()) is None:
            return  # it is asked again
        workers = self._workers()
        with self._lock:
            for job in self._list.see_system(shown, asked_at, workers):
                output = self.maker.output(job.id)
                words = f"ended before its worker had joined. It wrote into {output}"
                self._list.fail(job, f"{words}:\n{read_output(output).tail}")

    def _submit(self) -> None:
        name = f"job-{self._run}-{time.monotonic_ns()}"
        job_id = self.maker.submit(self.address, name)
        self._refusals = 0
        with self._lock:
            self._list.jobs.append(BatchJob(job_id, name, time.monotonic()))

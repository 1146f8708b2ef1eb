"""The Slurm jobs of a study: as many as it can use are submitted, replaced and cancelled."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .cancelling import cancel_until_none, left_text, wait_for_end
from .commands import Job, JobState, Slurm
from .errors import ClosedForNowError, ShapesFailError, SlurmUnavailableError, SubmissionError
from .excluded_nodes import ExcludedNodes
from .job_failures import JobFailures
from .job_health import REFUSED_SECONDS
from .job_kinds import JobKind, JobKinds
from .job_news import JobNews
from .job_records import ALIVE, JobRecords
from .job_reports import JobLine, counted, unjoined_text
from .jobs_file import Problem
from .plan import JobPlan, LiveJob, plan
from .polling import Polling, silence_text
from .sizing import Need

_SILENCE = "silence"
"""Subject of the lines on a Slurm that does not answer."""


class Jobs:
    """The jobs of one study. `open` before anything else, and `close` in the end.

    A thread polls Slurm for the state of the jobs, compares it with the demand, and submits and
    cancels. A job that is missing in an answer is lost, unless its worker takes trials: it is
    cancelled and replaced. Jobs of these names that exist already are the study's own, left by an
    earlier master: they count as submitted now.

    All methods may be called from any thread.

    Attributes:
        left: Which jobs may be left after `close`, and how to cancel them; empty if none is left.

    Args:
        kinds: The kinds of jobs to choose from, for the study's usual trials.
        max_jobs: How many jobs there may be at once.
        notify: Takes a line for the user; called from the thread.
        prefix: The prefix of the names of all of the study's jobs. Jobs of kinds that exist no
            more are cancelled.
        sized: Makes kinds for trials of another size, with names of their own.
        directory: Where to keep the file with the jobs that Slurm shows.
        slurm: Runs Slurm's commands.
    """

    def __init__(
        self,
        kinds: Sequence[JobKind],
        *,
        max_jobs: int,
        notify: Callable[[JobLine], None],
        prefix: str,
        sized: Callable[[Need], Sequence[JobKind]],
        directory: Path,
        slurm: Slurm | None = None,
    ) -> None:
        self._kinds = JobKinds(kinds, sized)
        self._max_jobs = max_jobs
        self._news = JobNews(notify, directory)
        self._slurm = slurm or Slurm()
        self._prefix = prefix
        self._lock = threading.Lock()
        self._polling = Polling(self._poll, notify=self._on_silence, rest=self._slurm.rest_seconds)
        self._has_taken_over = False
        self._wanted = 0
        self._workers: Mapping[str, bool] = {}
        self._refused: Mapping[str, str] = {}
        self._records = JobRecords()
        self._others: Mapping[Need, int] = {}
        self._excluded = ExcludedNodes(self._slurm, self._news.line)
        self._failures = JobFailures(self._kinds, self._records, self._news, self._excluded)
        self._joined: list[Job] = []
        self._unjoined: frozenset[str] = frozenset()
        self._live: Sequence[LiveJob] = ()
        self.left = ""

    def open(self, wanted: int) -> None:
        """Take over existing jobs, and submit those that this number of trials still needs.

        If Slurm does not answer, that is tried again like any later poll.

        Raises:
            SubmissionError: Slurm refuses a job and none exists; the message has Slurm's words.
        """
        self._wanted = wanted
        try:
            self._poll()
        except SlurmUnavailableError as error:
            self._on_silence(silence_text(error))
        except BaseException:
            # Also on Ctrl-C: sbatch may have submitted jobs whose ids were never read.
            self.left = cancel_until_none(self._slurm, self._kinds)
            raise
        self._polling.start()

    def set_demand(
        self,
        trials: int,
        workers: Mapping[str, bool],
        refused: Mapping[str, str] | None = None,
        others: Mapping[Need, int] | None = None,
    ) -> None:
        """Set how many trials there are, and which jobs are useful.

        Args:
            trials: How many trials of the usual size run or could begin now.
            workers: The ids of the jobs whose workers take trials, and whether trials run on
                them.
            refused: The ids of the jobs whose workers can take no trial, and why.
            others: How many trials of other sizes run or could begin now.

        Raises:
            ShapesFailError: Jobs of every shape end again and again without having been useful.
            SubmissionError: Slurm refuses the jobs, and none is left.
        """
        self._polling.check()
        with self._lock:
            others = dict(others or {})
            has_changed = self._workers.keys() != workers.keys()
            is_new = (trials, others) != (self._wanted, self._others)
            self._wanted, self._others = trials, others
            self._workers, self._refused = dict(workers), dict(refused or {})
            joined = self._records.useful(workers)
            for job in joined:
                self._joined.append(job)
                self._failures.useful(job.name)
            if is_new:
                busy = {job for job, is_busy in workers.items() if is_busy}
                live = [replace(each, is_busy=each.id in busy) for each in self._live]
                has_changed |= self._plan(live) != JobPlan({})
        if joined:
            self._news.write(self.snapshot())
        if has_changed:
            self._polling.poll_soon()

    def _plan(self, live: Sequence[LiveJob]) -> JobPlan:
        wanted = self._kinds.wanted(self._wanted, self._others)
        kinds = self._kinds.to_plan(wanted, self._failures.is_open)
        return plan(wanted, live, kinds, max_jobs=self._max_jobs)

    def exclude_node(self, node: str, why: str) -> None:
        """Cancel the jobs on a node, and submit none to it.

        Args:
            node: Its name in Slurm.
            why: The reason, for the user.
        """
        self._excluded.add(node, why)
        self._polling.poll_soon()

    def take_excluded(self) -> Mapping[str, str]:
        """Return the nodes on which jobs failed since the last call, and why they are excluded."""
        return self._excluded.take_found()

    def snapshot(self) -> tuple[Job, ...]:
        """Return the jobs that are not over, as Slurm last showed them."""
        return self._records.present()

    def problems(self) -> tuple[Problem, ...]:
        """Return why no jobs can be submitted or seen now."""
        return self._news.problems

    def drained(self) -> frozenset[str]:
        """Return the ids of the jobs whose workers must take no more trials."""
        return self._records.drained()

    def max_workers(self) -> int:
        """Return how many workers there could be now for the present trials."""
        with self._lock:
            wanted = self._kinds.wanted(self._wanted, {})
            kinds = self._kinds.to_plan(wanted, lambda kind: not self._failures.is_given_up(kind))
        submit = plan(wanted, [], kinds, max_jobs=self._max_jobs).submit
        return sum(count * self._kinds[name].shape.nodes for name, count in submit.items())

    def close(self, *, force: bool = False, leaving: Container[str] = ()) -> None:
        """Stop the thread and cancel all jobs. May be repeated.

        Args:
            force: Only cancel the jobs, by one quick command each.
            leaving: The ids of the jobs whose workers were told to leave. They are cancelled only
                if they do not end in time, so that Slurm's accounting has them as completed.
        """
        if force:
            try:
                self._slurm.cancel_all(self._kinds)
            except SlurmUnavailableError as error:
                self.left = left_text(self._kinds, str(error))
            return
        self._polling.stop()
        if not self._polling.is_started:
            return
        # Cancel the known jobs first: the thread may wait a minute for Slurm.
        with contextlib.suppress(SlurmUnavailableError):
            self._slurm.cancel([job.id for job in self.snapshot() if job.id not in leaving])
        self._polling.join()
        with contextlib.suppress(SlurmUnavailableError):
            wait_for_end(self._slurm, self._kinds, leaving)
        self.left = cancel_until_none(self._slurm, self._kinds)

    def hand_over(self) -> None:
        """Stop the thread, and cancel the jobs on which no trial runs; the others stay.

        Raises:
            SlurmUnavailableError: Slurm does not answer.
        """
        self._polling.stop()
        with self._lock:
            workers = self._workers
        idle = [job.id for job in self._records.present() if not workers.get(job.id, False)]
        self._slurm.cancel(idle)

    # --- in the thread ----------------------------------------------------------------------

    def _poll(self) -> bool:
        before, is_first = self._states(), not self._has_taken_over
        shown = self._slurm.jobs(None if is_first else self._kinds)
        if is_first:
            self._cancel_old_kinds(shown)
            self._has_taken_over = True
        self._step([job for job in shown if job.name in self._kinds], is_first=is_first)
        self._news.solved(_SILENCE)
        return before != self._states() or self._waits_for_ends()

    def _waits_for_ends(self) -> bool:
        """Return whether jobs that end keep others from being submitted, and none is of use."""
        return bool(self._live) and all(job.is_ending for job in self._live) and self._wanted > 0

    def _states(self) -> list[tuple[str, JobState, bool]]:
        return [(record.job.id, record.job.state, record.was_idle) for record in self._records]

    def _on_silence(self, line: str) -> None:
        self._news.problem(line, about=_SILENCE)
        self._news.show(self.snapshot(), self._wanted)

    def _step(self, shown: Sequence[Job], *, is_first: bool = False) -> None:
        with self._lock:
            wanted = self._kinds.wanted(self._wanted, self._others)
            workers, refused = self._workers, self._refused
            joined, self._joined = self._joined, []
        for job in joined:
            self._news.setup(job, self._kinds.log_of(job))
        # A job that squeue hides may still wait or run, beside the one that replaces it.
        missing = self._records.missing(shown, workers)
        self._slurm.cancel(missing)
        self._failures.on_ended(self._records.update(shown, missing, is_first=is_first))
        if is_first and (alive := self._records.alive()):
            self._news.once(f"took over {counted(len(alive), 'job')} of an earlier run")
        self._cancel_refused(refused)
        alive = self._records.alive()
        self._cancel([job.id for job in alive if self._excluded.any_of(job.nodes)])
        self._replace_held()
        pending = (job for job in self._records.alive() if job.state is JobState.PENDING)
        self._excluded.apply({job.id: self._kinds[job.name].shape.excluded for job in pending})
        self._watch_unjoined()
        refusals = self._drop_hopeless()
        for need in wanted:
            # If no shape holds the trial, the study also reports that it waits for a worker.
            self._news.once(self._kinds.prepare(need))
        with self._lock:
            self._live = self._records.live(workers, lambda name: self._kinds[name].shape)
            planned = self._plan(self._live)
        refusals += self._submit(planned.submit)
        self._cancel(planned.cancel)
        if planned.drain:
            self._drain(planned.drain)
        if refusals and not self._records.alive():
            raise SubmissionError("; ".join(refusals))
        self._give_up_if_useless()
        self._news.show(self.snapshot(), self._wanted)

    def _cancel_old_kinds(self, shown: Sequence[Job]) -> None:
        old = [
            job
            for job in shown
            if job.name.startswith(self._prefix)
            and job.state in ALIVE
            and not self._kinds.adopt(job.name)
        ]
        if old:
            self._slurm.cancel([job.id for job in old])
            self._news.once(
                f"cancelled {counted(len(old), 'job')} of shapes that are no longer used"
            )

    def _cancel_refused(self, refused: Mapping[str, str]) -> None:
        """Cancel the jobs whose workers were refused."""
        useless = [job for job in self._records.alive() if job.id in refused]
        self._cancel([job.id for job in useless])
        for job in useless:
            self._news.line(f"job {job.id} is cancelled, because its worker was refused")
            words = f"had a worker that was refused. The last one, {job.id}: {refused[job.id]}"
            self._failures.count(job, words)

    def _watch_unjoined(self) -> None:
        """Report the jobs whose workers do not join, and cancel them in the end."""
        told = set()
        for record in self._records.unjoined():
            job, kind = record.job, self._kinds[record.job.name]
            since, grace = record.unjoined_since or 0.0, kind.shape.grace_seconds
            if time.time() - since >= grace:
                self._cancel([job.id])
                self._failures.unjoined(record)
                continue
            told.add(job.id)
            if job.id not in self._unjoined:
                text = unjoined_text(job, since, grace, self._kinds.log_of(job))
                self._news.problem(text, about=f"unjoined {job.id}")
        for job_id in self._unjoined - told:
            self._news.solved(f"unjoined {job_id}")
        self._unjoined = frozenset(told)

    def _readmit_nodes(self) -> bool:
        """Exclude no node any more, if Slurm has no other; returns whether one was excluded."""
        had = self._excluded.clear()
        if had:
            self._news.once(
                "Slurm has no other node for the job; the excluded nodes are used again"
            )
        return had

    def _replace_held(self) -> None:
        """Cancel the jobs that Slurm holds because a node failed to start them; others follow.

        They count as a failure only if no node is at fault that was not excluded before.
        """
        held = [job for job in self._records.alive() if job.is_held]
        if not held:
            return
        self._cancel([job.id for job in held])
        last = held[-1]
        failed = {
            node: why
            for node, why in self._slurm.failed_prologs().items()
            if node not in self._excluded
        }
        for node, why in failed.items():
            self._excluded.add(node, f"no job can start there ({why})", is_found=True)
        self._news.line(
            f"{'job' if len(held) == 1 else 'jobs'} {', '.join(job.id for job in held)}: Slurm "
            f"could not start {'it' if len(held) == 1 else 'them'} ({last.reason}), so others are "
            "submitted"
        )
        if not failed:
            words = f"could not be started by Slurm. The last one, {last.id}: {last.reason}"
            self._failures.count(last, words)

    def _drop_hopeless(self) -> list[str]:
        """Cancel the jobs that Slurm will never start; returns the reasons, for the user."""
        hopeless = [job for job in self._records.alive() if job.is_hopeless]
        self._cancel([job.id for job in hopeless])
        if hopeless and self._readmit_nodes():
            return []
        for job in hopeless:
            self._failures.of(job.name).refused()
            self._failures.count(job, f"would never have been started by Slurm: {job.reason}")
        reasons = sorted({job.reason for job in hopeless})
        found = [f"Slurm would never start the job: {', '.join(reasons)}"] if reasons else []
        self._news.once("".join(found), about="hopeless")
        return found

    def _give_up_if_useless(self) -> None:
        """Raise the error that ends the study if no job is useful and none can be submitted."""
        self._cancel(
            [
                job.id
                for job in self._records.alive()
                if job.state is JobState.PENDING and self._failures.of(job.name).is_given_up
            ]
        )
        if (words := self._failures.last_words) and not self._records.alive():
            raise ShapesFailError(words)

    def _submit(self, counts: Mapping[str, int]) -> list[str]:
        """Submit a number of jobs of each kind; returns the reasons of refusals, for the user."""
        refusals = []
        for name, count in counts.items():
            kind = self._kinds[name]
            which = f" (shape {kind.shape.name})" if len(self._kinds.shapes) > 1 else ""
            try:
                ids = self._submitted(kind, count)
            except ClosedForNowError as error:
                self._failures.of(name).refused()
                self._news.problem(
                    f"no job can be submitted to partition {kind.shape.partition} now, so it is "
                    f"tried again every {REFUSED_SECONDS:g} s. {error}",
                    about=name,
                )
            except SubmissionError as error:
                if not self._readmit_nodes():
                    self._failures.of(name).refused()
                    refusals.append(f"{error}{which}")
                    self._news.problem(refusals[-1], about=name)
            else:
                self._news.solved(name)
                self._polling.on_submission()
                self._records.submitted(ids, name)
        return refusals

    def _submitted(self, kind: JobKind, count: int) -> tuple[str, ...]:
        """Submit jobs of a kind; returns their ids.

        Slurm takes all jobs of an array or none, and may limit how many a user has. So after a
        refusal one job is tried, and twice as many after each success.

        Raises:
            SubmissionError: Slurm refuses a single job.
        """
        health = self._failures.of(kind.job_name)
        exclude = self._excluded.option(kind.shape.excluded)
        count = min(count, health.most_at_once)
        try:
            ids = self._slurm.submit(kind.script, count, exclude=exclude)
        except SubmissionError as error:
            health.most_at_once = 1
            if count == 1:
                raise
            ids = self._slurm.submit(kind.script, 1, exclude=exclude)
            line = f"{error}. So fewer jobs are submitted at once"
            self._news.once(line, about=f"arrays of {kind.job_name}")
        health.most_at_once = min(2 * health.most_at_once, sys.maxsize)
        return ids

    def _cancel(self, ids: Sequence[str]) -> None:
        self._slurm.cancel(ids)
        self._records.cancelled(ids)

    def _drain(self, job_id: str) -> None:
        job = self._records.drain(job_id)
        self._news.line(
            f"job {job_id} on {job.node} takes no more trials, to make room for another "
            "job: a trial waits that fits into none of the present jobs"
        )

"""What becomes of a study's Slurm jobs: events in, instructions out.

There is no clock, thread, file or command here. `jobs.Jobs` is the shell around it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .commands import ALIVE, Job, JobState
from .errors import ClosedForNowError, JobQueueError, ShapesFailError, SubmissionError
from .job_kinds import JobKinds
from .job_messages import Cancel, Demand, Exclude, Instruction, Poll, Submit, Tell, Write
from .job_records import JobRecord, JobRecords, ShapeHealth, failing_node
from .job_reports import News, Output, ShownJobs, counted, how_it_ended, unjoined_text
from .plan import JobPlan, LiveJob, plan

REFUSED_SECONDS = 60.0
"""How long no job of a shape is submitted after Slurm has refused one."""

_NOT_ITS_FAULT = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
"""Slurm's states of jobs that ended through no fault of their own."""

_SILENCE = "silence"
"""Subject of the lines on a Slurm that does not answer."""


class JobsState:
    """The jobs of one study. Each event takes the time, and returns what is to be done, in order.

    One poll is `shown`, `submitted` or `refused` for each `Submit`, and `settled` when all of it
    was carried out. A job that is missing in an answer is lost, unless its worker takes trials: it
    is cancelled and replaced. Jobs of the first answer are those of an earlier master, and count
    as submitted now. If Slurm stops answering within a poll, the next one decides again.

    Attributes:
        kinds: The kinds of jobs to choose from.
        failure: Why there can be no jobs any more; None while there can be.
        has_taken_over: Whether the jobs of an earlier master are known, so that only jobs of
            `kinds` need be shown.

    Args:
        kinds: The kinds of jobs to choose from.
        max_jobs: How many jobs there may be at once.
        prefix: The prefix of the names of all of the study's jobs. Jobs of kinds that exist no
            more are cancelled.
        read: Returns what a job has written into its file.
    """

    def __init__(
        self,
        kinds: JobKinds,
        *,
        max_jobs: int,
        prefix: str,
        read: Callable[[Path], Output],
    ) -> None:
        self.kinds = kinds
        self.failure: JobQueueError | None = None
        self.has_taken_over = False
        self._max_jobs = max_jobs
        self._prefix = prefix
        self._read = read
        self._records = JobRecords()
        self._health: defaultdict[str, ShapeHealth] = defaultdict(ShapeHealth)
        self._news = News()
        self._demand = Demand(0)
        self._joined: list[Job] = []
        self._live: Sequence[LiveJob] = ()
        self._excluded: frozenset[str] = frozenset()
        self._excluded_of_pending: frozenset[str] = frozenset()
        self._found: dict[str, str] = {}
        self._unjoined: frozenset[str] = frozenset()
        self._refusals: list[str] = []
        self._orders: list[Instruction] = []
        self._shown_at = 0.0

    # --- what others look at ------------------------------------------------------------------

    def present(self) -> tuple[Job, ...]:
        """Return the jobs that are not over, as Slurm last showed them."""
        return tuple(record.job for record in self._records.present())

    def idle(self) -> list[str]:
        """Return the ids of those on which no trial runs."""
        return [job.id for job in self.present() if not self._demand.workers.get(job.id, False)]

    def drained(self) -> frozenset[str]:
        """Return the ids of the jobs whose workers must take no more trials."""
        return frozenset(record.job.id for record in self._records if record.is_drained)

    def shown_jobs(self) -> ShownJobs:
        """Return the jobs and problems, for other processes."""
        return ShownJobs(self._shown_at, self.present(), self._news.problems)

    def progress(self) -> object:
        """Return a value that changes when a job begins, ends or becomes idle."""
        return [(each.job.id, each.job.state, each.was_idle) for each in self._records]

    def waits_for_ends(self) -> bool:
        """Return whether jobs that end keep others from being submitted, and none is of use."""
        are_ending = bool(self._live) and all(job.is_ending for job in self._live)
        return are_ending and self._demand.trials > 0

    def max_workers(self) -> int:
        """Return how many workers there could be now for the present trials."""
        wanted = self.kinds.wanted(self._demand.trials, {})
        kinds = self.kinds.to_plan(wanted, lambda kind: not self._of(kind.job_name).is_given_up)
        submit = plan(wanted, [], kinds, max_jobs=self._max_jobs).submit
        return sum(count * self.kinds[name].shape.nodes for name, count in submit.items())

    def take_found(self) -> Mapping[str, str]:
        """Return the nodes on which jobs failed since the last call, and why they are excluded."""
        found, self._found = self._found, {}
        return found

    # --- events -------------------------------------------------------------------------------

    def demanded(self, demand: Demand, now: float) -> list[Instruction]:
        """The trials or workers are others than before."""
        last, self._demand = self._demand, demand
        joined = self._records.useful(demand.workers)
        self._joined += joined
        for job in joined:
            self._of(job.name).failures = 0
        is_urgent = last.workers.keys() != demand.workers.keys()
        if (last.trials, last.others) != (demand.trials, demand.others):
            busy = {job for job, is_busy in demand.workers.items() if is_busy}
            live = [replace(each, is_busy=each.id in busy) for each in self._live]
            is_urgent |= self._planned(live, now) != JobPlan({})
        self._orders += [Write(self.shown_jobs())] if joined else []
        self._orders += [Poll()] if is_urgent else []
        return self._taken()

    def excluded(self, node: str, why: str) -> list[Instruction]:
        """No job may run on a node any more, because attempts failed there."""
        self._exclude(node, why)
        return [*self._taken(), Poll()]

    def silent(self, text: str, now: float) -> list[Instruction]:
        """Slurm does not answer; `text` says so."""
        self._shown_at = self._shown_at or now
        self._news.problem(text, now, about=_SILENCE)
        return [*self._taken(), Write(self.shown_jobs())]

    def shown(
        self, shown: Sequence[Job], failed_prologs: Mapping[str, str], now: float
    ) -> list[Instruction]:
        """Slurm has shown the jobs.

        Args:
            shown: The jobs; at first those of any name.
            failed_prologs: The nodes whose prolog has failed and Slurm's words, if a job is held.
            now: The time.
        """
        self._shown_at = now
        self._refusals = []
        self._cancel_old_kinds(shown)
        self._take_over([job for job in shown if job.name in self.kinds], now)
        self._cancel_refused()
        self._cancel(
            each for each in self._records.alive() if not self._excluded.isdisjoint(each.job.nodes)
        )
        self._replace_held(failed_prologs)
        self._exclude_from_pending()
        self._watch_unjoined(now)
        self._drop_hopeless(now)
        self._plan_jobs(now)
        return self._taken()

    def submitted(self, order: Submit, ids: Sequence[str], now: float) -> list[Instruction]:
        """Slurm has accepted jobs."""
        self._of(order.kind).most_at_once *= 2
        if order.refusal:
            line = f"{order.refusal}. So fewer jobs are submitted at once"
            self._news.once(line, about=f"arrays of {order.kind}")
        self._news.solved(order.kind)
        self._records.submitted(ids, order.kind, now)
        return self._taken()

    def refused(self, order: Submit, error: SubmissionError, now: float) -> list[Instruction]:
        """Slurm has refused jobs.

        It takes all jobs of an array or none, and may limit how many a user has. So after a
        refusal one job is tried, and twice as many after each success.
        """
        health, shape = self._of(order.kind), self.kinds[order.kind].shape
        health.most_at_once = 1
        if order.count > 1:
            return [replace(order, count=1, refusal=str(error))]
        if isinstance(error, ClosedForNowError):
            text = (
                f"no job can be submitted to partition {shape.partition} now, so it is tried again "
                f"every {REFUSED_SECONDS:g} s. {error}"
            )
        elif self._readmit_nodes():
            return self._taken()
        else:
            text = f"{error} (shape {shape.name})" if len(self.kinds.shapes) > 1 else str(error)
            self._refusals.append(text)
        health.refused_until = now + REFUSED_SECONDS
        self._news.problem(text, now, about=order.kind)
        return self._taken()

    def settled(self) -> list[Instruction]:
        """All that a poll has led to is done; `failure` may be set now."""
        self.has_taken_over = True
        alive = self._records.alive()
        if self._refusals and not alive:
            self.failure = SubmissionError("; ".join(self._refusals))
        pending = [each for each in alive if each.job.state is JobState.PENDING]
        for each in pending:
            each.avoids = self._excluded_of_pending
        self._cancel(each for each in pending if self._of(each.job.name).is_given_up)
        health = [self._health[shape] for shape in self.kinds.shapes]
        if all(each.is_given_up for each in health) and not self._records.alive():
            words = "; ".join(each.message for each in health)
            self.failure = self.failure or ShapesFailError(words)
        self._news.solved(_SILENCE)
        self._orders.append(Write(self.shown_jobs()))
        return self._taken()

    # --- decisions ----------------------------------------------------------------------------

    def _taken(self) -> list[Instruction]:
        """Return what is to be done; lines come first, as a silent Slurm must not keep them."""
        orders, self._orders = self._orders, []
        return [*map(Tell, self._news.take()), *orders]

    def _of(self, job_name: str) -> ShapeHealth:
        return self._health[self.kinds[job_name].shape.name]

    def _output(self, job: Job) -> Output:
        return self._read(self.kinds[job.name].log_of(job.id))

    def _cancel(self, records: Iterable[JobRecord]) -> None:
        if found := list(records):
            self._orders.append(Cancel(tuple(each.job.id for each in found)))
        for each in found:
            each.is_cancelled = True

    def _cancel_old_kinds(self, shown: Sequence[Job]) -> None:
        old = [
            job.id
            for job in shown
            if job.name.startswith(self._prefix)
            and job.state in ALIVE
            and not self.kinds.adopt(job.name)
        ]
        if old:
            self._orders.append(Cancel(tuple(old)))
            self._news.once(
                f"cancelled {counted(len(old), 'job')} of an earlier run that no trial can use now"
            )

    def _take_over(self, shown: Sequence[Job], now: float) -> None:
        joined, self._joined = self._joined, []
        for job in joined:
            for line in self._output(job).setup_failures:
                self._news.first(f"job {job.id}: {line}", about=line)
        # A job that squeue hides may still wait or run, beside the one that replaces it.
        missing = self._records.missing(shown, self._demand.workers, now)
        self._orders += [Cancel(tuple(missing))] if missing else []
        is_first = not self.has_taken_over
        self._on_ended(self._records.update(shown, missing, now, is_first=is_first), now)
        if is_first and (alive := self._records.alive()):
            self._news.once(f"took over {counted(len(alive), 'job')} of an earlier run")

    def _on_ended(self, ended: Sequence[JobRecord], now: float) -> None:
        """Tell how jobs have ended, and count those that were not useful.

        Those of a kind that never started count as one: what ended them has ended them together.
        """
        unstarted: dict[str, tuple[JobRecord, str]] = {}
        for record in ended:
            job = record.job
            if record.is_cancelled:
                continue
            word = how_it_ended(record, self.kinds[job.name].shape, self._output(job), now)
            self._news.line(f"job {job.id}{f' on {job.node}' if job.node else ''} {word}")
            if record.was_useful or job.slurm_state in _NOT_ITS_FAULT:
                continue
            if record.has_run:
                self._count_useless(record, "ended")
            else:
                unstarted[job.name] = (record, word)
        for record, word in unstarted.values():
            words = f"ended before they started. The last one, {record.job.id}, {word}"
            self._count(record, words)

    def _count_useless(self, record: JobRecord, how: str) -> None:
        """Count a job that ended before its worker had joined, or exclude the node at fault."""
        job = record.job
        if not self._excluded.isdisjoint(job.nodes):
            return
        if node := failing_node(record, self._records):
            why = f"the worker of job {job.id} did not join there"
            self._exclude(node, why, is_found=True)
        output = self._output(job)
        self._count(
            record,
            f"{how} before their worker had joined. The last one, {job.id}, wrote into "
            f"{output.file}:\n{output.tail}",
        )

    def _count(self, record: JobRecord, words: str) -> None:
        """Count a job that was not useful, once, and tell if no more of its shape are submitted.

        Args:
            record: The job.
            words: What went wrong, to follow "3 jobs in a row".
        """
        if record.was_counted:
            return
        record.was_counted = True
        health, shape = self._of(record.job.name), self.kinds[record.job.name].shape
        if health.failed(words):
            is_only = len(self.kinds.shapes) == 1
            what = "no more jobs are submitted" if is_only else f"shape {shape.name} is given up"
            self._news.line(f"{what}: {health.message}")

    def _cancel_refused(self) -> None:
        """Cancel the jobs whose workers were refused."""
        refused = self._demand.refused
        useless = [each for each in self._records.alive() if each.job.id in refused]
        self._cancel(useless)
        for record in useless:
            job_id = record.job.id
            self._news.line(f"job {job_id} is cancelled, because its worker was refused")
            words = f"had a worker that was refused. The last one, {job_id}: {refused[job_id]}"
            self._count(record, words)

    def _replace_held(self, failed_prologs: Mapping[str, str]) -> None:
        """Cancel the jobs that Slurm holds because a node failed to start them; others follow.

        They count as a failure only if no node is at fault that was not excluded before.
        """
        held = [each for each in self._records.alive() if each.job.is_held]
        if not held:
            return
        self._cancel(held)
        failed = {node: why for node, why in failed_prologs.items() if node not in self._excluded}
        for node, why in failed.items():
            self._exclude(node, f"no job can start there ({why})", is_found=True)
        last = held[-1].job
        which, them = ("job", "it") if len(held) == 1 else ("jobs", "them")
        self._news.line(
            f"{which} {', '.join(each.job.id for each in held)}: Slurm could not start {them} "
            f"({last.reason}), so others are submitted"
        )
        if not failed:
            words = f"could not be started by Slurm. The last one, {last.id}: {last.reason}"
            self._count(held[-1], words)

    def _exclude(self, node: str, why: str, *, is_found: bool = False) -> None:
        """Exclude a node; `is_found` if its jobs, and not its attempts, have failed."""
        if node in self._excluded:
            return
        self._excluded |= {node}
        if is_found:
            self._found[node] = why
        self._news.line(f"node {node} is excluded from now on (--exclude={node}): {why}")

    def _readmit_nodes(self) -> bool:
        """Exclude no node any more, if Slurm has no other; returns whether one was excluded."""
        had, self._excluded = bool(self._excluded), frozenset()
        if had:
            self._news.once(
                "Slurm has no other node for the job; the excluded nodes are used again"
            )
        return had

    def _exclude_from_pending(self) -> None:
        """Have Slurm start the pending jobs on no excluded node, unless it knows that already."""
        for record in self._records.alive():
            job = record.job
            if job.state is JobState.PENDING and record.avoids != self._excluded:
                given = self.kinds[job.name].shape.excluded
                self._orders.append(Exclude(job.id, tuple(sorted(self._excluded.union(given)))))
        self._excluded_of_pending = self._excluded

    def _watch_unjoined(self, now: float) -> None:
        """Report the jobs whose workers do not join, and cancel them in the end."""
        unjoined = set()
        for record in self._records.unjoined(now):
            job, since = record.job, record.unjoined_since or now
            grace = self.kinds[job.name].shape.grace_seconds
            if now - since >= grace:
                self._cancel([record])
                self._news.line(
                    f"job {job.id} on {job.node} is cancelled: it has run for "
                    f"{now - since:.0f} s without a worker (grace_seconds is {grace})"
                )
                self._count_useless(record, "were cancelled")
                continue
            unjoined.add(job.id)
            if job.id not in self._unjoined:
                text = unjoined_text(job, since, grace, self._output(job))
                self._news.problem(text, now, about=f"unjoined {job.id}")
        for job_id in self._unjoined - unjoined:
            self._news.solved(f"unjoined {job_id}")
        self._unjoined = frozenset(unjoined)

    def _drop_hopeless(self, now: float) -> None:
        """Cancel the jobs that Slurm will never start."""
        hopeless = [each for each in self._records.alive() if each.job.is_hopeless]
        self._cancel(hopeless)
        if not hopeless or self._readmit_nodes():
            return
        for record in hopeless:
            self._of(record.job.name).refused_until = now + REFUSED_SECONDS
            words = f"would never have been started by Slurm: {record.job.reason}"
            self._count(record, words)
        reasons = sorted({each.job.reason for each in hopeless})
        self._refusals.append(f"Slurm would never start the job: {', '.join(reasons)}")
        self._news.once(self._refusals[-1], about="hopeless")

    def _planned(self, live: Sequence[LiveJob], now: float) -> JobPlan:
        wanted = self.kinds.wanted(self._demand.trials, self._demand.others)
        kinds = self.kinds.to_plan(wanted, lambda kind: self._of(kind.job_name).is_open(now))
        return plan(wanted, live, kinds, max_jobs=self._max_jobs)

    def _plan_jobs(self, now: float) -> None:
        for need in self.kinds.wanted(self._demand.trials, self._demand.others):
            # If no shape holds the trial, the study also reports that it waits for a worker.
            self._news.once(self.kinds.prepare(need))
        shape_of = {name: kind.shape for name, kind in self.kinds.items()}
        self._live = self._records.live(self._demand.workers, shape_of.__getitem__, now)
        planned = self._planned(self._live, now)
        for name, count in planned.submit.items():
            given = self.kinds[name].shape.excluded
            nodes = tuple(sorted(self._excluded.union(given))) if self._excluded else ()
            self._orders.append(Submit(name, min(count, self._of(name).most_at_once), nodes))
        self._cancel(self._records[job_id] for job_id in planned.cancel)
        if planned.drain:
            record = self._records[planned.drain]
            record.is_drained = True
            self._news.line(
                f"job {record.job.id} on {record.job.node} takes no more trials, to make room for "
                "another job: a trial waits that fits into none of the present jobs"
            )

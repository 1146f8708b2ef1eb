"""The plan of the jobs to submit and to cancel, from the demand and the jobs; a pure function."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Size = TypeVar("Size", bound=Hashable)
"""What a trial asks for; it is only compared here."""


@dataclass(frozen=True, slots=True)
class KindCapacity(Generic[Size]):
    """Capacity of a kind of job that may be submitted.

    Attributes:
        name: Its jobs' name.
        trials: How many trials of each size one of them holds at once.
        shape: The name of its shape.
        max_jobs: How many jobs of its shape there may be at once; None for any number.
    """

    name: str
    trials: Mapping[Size, int]
    shape: str
    max_jobs: int | None = None


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that is not over.

    Attributes:
        id: Its id.
        kind: The name of its kind.
        is_pending: Whether it waits to start.
        is_busy: Whether trials run on its worker.
        is_drained: Whether it takes no more trials.
        is_ending: Whether it ends now. It counts as a job: Slurm may requeue it.
        seconds_left: How long it lasts; None if unknown, 0 or less if it is about to end.
    """

    id: str
    kind: str
    is_pending: bool = False
    is_busy: bool = False
    is_drained: bool = False
    is_ending: bool = False
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Jobs to submit and to stop.

    Attributes:
        submit: How many jobs of each kind to submit.
        cancel: The jobs to cancel.
        drain: The job that must take no more trials; empty for none.
    """

    submit: Mapping[str, int]
    cancel: tuple[str, ...] = ()
    drain: str = ""


def plan(
    wanted: Mapping[Size, int],
    alive: Sequence[LiveJob],
    kinds: Sequence[KindCapacity[Size]],
    *,
    max_jobs: int,
) -> JobPlan:
    """Return which jobs to submit and to stop, so that these trials can run at once.

    Trials are assigned size by size: each fills the room that the sizes before it have left, and
    then new jobs that can hold it.

    - If there are more jobs than allowed, because Slurm requeued some, those that wait and those
      without trials are cancelled, and of the others one is drained. If there are more of a shape
      than allowed, those are cancelled that wait or have no trials.
    - A job that is about to end does not count, so that its successor is submitted before its end.
    - New jobs go to the shape with the fewest pending jobs, so that a full partition does not hold
      up the study while another is empty.
    - A job without assigned or running trials is cancelled. If the limit of jobs is reached and a
      trial needs another kind, an idle job that only later sizes could use is cancelled as well.
    - If none of these is idle, and no job holds the trial, it would wait as long as others keep
      the jobs busy. So the job with the least time left is drained: it takes no more trials, and
      is cancelled when it is empty. One job is drained at a time.

    >>> plan({"any": 5}, [], [KindCapacity("gpu", {"any": 4}, "gpu")], max_jobs=9).submit
    {'gpu': 2}
    >>> jobs = [LiveJob("1_0", "a", is_busy=True), LiveJob("1_1", "a")]
    >>> plan({"any": 0}, jobs, [], max_jobs=9).cancel
    ('1_1',)
    >>> kinds = [KindCapacity("a", {"any": 4}, "gpu"), KindCapacity("b", {"big": 1}, "large")]
    >>> plan({"big": 1}, jobs, kinds, max_jobs=9).submit
    {'b': 1}
    >>> plan({"big": 1, "any": 9}, jobs[:1], kinds, max_jobs=1).drain
    '1_0'
    >>> plan({"any": 9}, jobs, kinds, max_jobs=1).cancel
    ('1_1',)

    Args:
        wanted: How many trials of each size run or could begin now, in the order of assignment.
        alive: The present jobs.
        kinds: The kinds of jobs that may be submitted; among equals, the first is taken.
        max_jobs: How many jobs there may be in all; those about to end do not count.
    """
    jobs = _Occupancy(alive, kinds, max_jobs)
    excess = jobs.excess
    if idle_excess := tuple(job.id for job in excess if not job.is_busy):
        return JobPlan({}, idle_excess)
    drain = excess[0].id if excess and not jobs.any_is_drained else ""
    for size, trials in wanted.items():
        left = jobs.assign(size, trials)
        if left <= 0 or jobs.new:
            continue
        # Later sizes could use these jobs, but other jobs can be submitted for those.
        replaceable = jobs.replaceable_for(size)
        if idle := next((job for job in replaceable if not job.is_busy), None):
            return JobPlan({}, (idle.id,), drain)
        if replaceable and not drain and not jobs.any_holds(size) and not jobs.any_is_drained:
            drain = min(replaceable, key=_time_left).id
    if jobs.new:
        return JobPlan(jobs.new, (), drain)
    return JobPlan({}, jobs.unused, drain)


def _time_left(job: LiveJob) -> float:
    return math.inf if job.seconds_left is None else job.seconds_left


class _Occupancy(Generic[Size]):
    """The lasting and the new jobs, and how much of each is assigned."""

    def __init__(
        self, alive: Sequence[LiveJob], kinds: Sequence[KindCapacity[Size]], max_jobs: int
    ) -> None:
        self._kinds = kinds
        self._max_jobs = max_jobs
        known = {kind.name: kind for kind in kinds}
        ending = [job for job in alive if job.is_ending]
        lasting = [
            job
            for job in alive
            if not job.is_ending and (job.seconds_left is None or job.seconds_left > 0)
        ]
        self._ending = len(ending)
        # Idle and pending jobs come last: these are the first to be cancelled.
        lasting.sort(key=lambda job: (not job.is_busy, job.is_pending))
        self._there = [(job, _Room(known.get(job.kind), job.is_drained)) for job in lasting]
        self._new: list[_Room[Size]] = []
        self._having: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        for job, share in self._there:
            if share.kind is not None:
                share.is_closed |= 0 < (share.kind.max_jobs or 0) <= self._having[share.kind.shape]
                self._having[share.kind.shape] += 1
                self._waiting[share.kind.shape] += job.is_pending
        self._having.update(known[job.kind].shape for job in ending if job.kind in known)

    @property
    def new(self) -> Mapping[str, int]:
        """The number of new jobs of each kind, by the kind's name."""
        return dict(Counter(share.kind.name for share in self._new if share.kind))

    @property
    def unused(self) -> tuple[str, ...]:
        """The jobs without assigned or running trials."""
        return tuple(job.id for job in self._unused() if not job.is_busy)

    @property
    def excess(self) -> list[LiveJob]:
        """The jobs beyond the limit, those that run trials last."""
        most = max(0, len(self._there) - self._max_jobs)
        return [job for job, _ in reversed(self._there)][:most]

    @property
    def any_is_drained(self) -> bool:
        """Whether a job is being drained."""
        return any(job.is_drained for job, _ in self._there)

    def any_holds(self, size: Size) -> bool:
        """Return whether a present or new job holds such a trial."""
        return any(share.fit(size) for share in self._shares())

    def assign(self, size: Size, trials: int) -> int:
        """Assign trials to the jobs, and then to new ones; returns how many are left over."""
        left = trials
        for share in self._shares():
            left -= share.take(size, left)
        while left > 0 and self._count + len(self._new) < self._max_jobs:
            able = [
                kind
                for kind in self._kinds
                if kind.trials.get(size)
                and (kind.max_jobs is None or self._having[kind.shape] < kind.max_jobs)
            ]
            if not able:
                break
            kind = min(able, key=lambda each: self._waiting[each.shape])
            self._waiting[kind.shape] += 1
            self._having[kind.shape] += 1
            self._new.append(_Room(kind))
            left -= self._new[-1].take(size, left)
        return left

    def replaceable_for(self, size: Size) -> list[LiveJob]:
        """Return the unassigned jobs that could be replaced by one that holds such a trial."""
        able = [kind for kind in self._kinds if kind.trials.get(size)]
        is_full = self._count >= self._max_jobs
        found = []
        for job in self._unused():
            shape = next((kind.shape for kind in self._kinds if kind.name == job.kind), "")
            for kind in able:
                same = kind.shape == shape
                limit = math.inf if kind.max_jobs is None else kind.max_jobs
                if (is_full or same) and self._having[kind.shape] - same < limit:
                    found.append(job)
                    break
        return found

    @property
    def _count(self) -> int:
        return len(self._there) + self._ending

    def _shares(self) -> list[_Room[Size]]:
        return [*(share for _, share in self._there), *self._new]

    def _unused(self) -> list[LiveJob]:
        return [job for job, share in reversed(self._there) if share.is_whole]


@dataclass(slots=True)
class _Room(Generic[Size]):
    """The part of a job that is not assigned yet."""

    kind: KindCapacity[Size] | None
    is_closed: bool = False
    left: float = 1.0

    @property
    def is_whole(self) -> bool:
        return self.left == 1.0

    def fit(self, size: Size) -> int:
        """Return how many such trials the whole job can hold."""
        return 0 if self.kind is None or self.is_closed else self.kind.trials.get(size, 0)

    def take(self, size: Size, trials: int) -> int:
        """Assign as many of these trials as fit; returns how many."""
        fit = self.fit(size)
        taken = min(trials, math.floor(self.left * fit + 1e-9))
        if taken > 0:
            self.left -= taken / fit
        return max(0, taken)

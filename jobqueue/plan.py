"""Pure: which jobs to submit and which to cancel, from what is wanted and what there is."""

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
    """A kind of job that may be submitted.

    Attributes:
        name: Its jobs' name.
        trials: How many trials of each size one of them holds at once.
        max_jobs: How many there may be of its shape at once; None for any number.
        shape: What it is a kind of; empty for one by itself.
    """

    name: str
    trials: Mapping[Size, int]
    max_jobs: int | None = None
    shape: str = ""

    @property
    def group(self) -> str:
        """What its limit counts."""
        return self.shape or self.name


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A job that is not over.

    Attributes:
        id: Its id.
        kind: The name of its kind.
        is_pending: Whether it waits to be started.
        is_busy: Whether trials run on its worker.
        is_drained: Whether it is given no more trials.
        seconds_left: How long it is of use; None if nobody knows, 0 or less if it is about to end.
    """

    id: str
    kind: str
    is_pending: bool = False
    is_busy: bool = False
    is_drained: bool = False
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class JobPlan:
    """What to do.

    Attributes:
        submit: How many jobs of each kind to submit.
        cancel: The jobs to cancel.
        drain: The job that is to be given no more trials; empty for none.
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
    """What to do so that so many trials can run at once.

    Each size of trials fills what jobs the sizes before it have left, and where that is not enough,
    new jobs that can hold it. A job that is about to end counts no more, so that another one is
    submitted before it has ended. New jobs go to the shape of which fewest wait already, so that a
    full partition does not hold up the study while another one is empty. Jobs that no trial is for
    are cancelled, unless trials run on them; so is one that only sizes could use that come later,
    where there may be no more jobs and a trial needs another kind. If trials run on all of these,
    and no job holds the one that waits, it would wait for as long as others keep the jobs busy: so
    the one with the least time left is drained, that is, given no more trials and cancelled when it
    is empty. There is one such job at a time; the next one that waits finds a job that holds it, or
    drains another.

    >>> plan({"any": 5}, [], [KindCapacity("gpu", {"any": 4})], max_jobs=9).submit
    {'gpu': 2}
    >>> jobs = [LiveJob("1_0", "gpu", is_busy=True), LiveJob("1_1", "gpu")]
    >>> plan({"any": 0}, jobs, [], max_jobs=9).cancel
    ('1_1',)
    >>> kinds = [KindCapacity("gpu", {"any": 4}), KindCapacity("large", {"big": 1})]
    >>> plan({"big": 1}, jobs, kinds, max_jobs=9).submit
    {'large': 1}
    >>> plan({"big": 1, "any": 9}, jobs[:1], kinds, max_jobs=1).drain
    '1_0'

    Args:
        wanted: How many trials of each size run or could begin now, those that come first first.
        alive: The jobs that there are.
        kinds: The kinds of jobs that may be submitted; among equals, the first is taken.
        max_jobs: How many jobs there may be in all; those about to end do not count.
    """
    jobs = _Occupancy(alive, kinds, max_jobs)
    drain = ""
    for size, trials in wanted.items():
        left = jobs.assign(size, trials)
        if left <= 0 or jobs.new:
            continue
        # Sizes that come later could use them, but other jobs can be had for those.
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
    """The jobs that last and new ones, and what of them trials were reckoned to."""

    def __init__(
        self, alive: Sequence[LiveJob], kinds: Sequence[KindCapacity[Size]], max_jobs: int
    ) -> None:
        self._kinds = kinds
        self._max_jobs = max_jobs
        known = {kind.name: kind for kind in kinds}
        lasting = [job for job in alive if job.seconds_left is None or job.seconds_left > 0]
        # The last ones to start are the first ones to do without.
        lasting.sort(key=lambda job: (not job.is_busy, job.is_pending))
        self._there = [(job, _Room(known.get(job.kind), job.is_drained)) for job in lasting]
        self._new: list[_Room[Size]] = []
        self._having: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        for job, share in self._there:
            if share.kind is not None:
                self._having[share.kind.group] += 1
                self._waiting[share.kind.group] += job.is_pending

    @property
    def new(self) -> Mapping[str, int]:
        """How many there are to be, by their kinds' names."""
        return dict(Counter(share.kind.name for share in self._new if share.kind))

    @property
    def unused(self) -> tuple[str, ...]:
        """Those that no trial was reckoned to and none runs on."""
        return tuple(job.id for job in self._unused() if not job.is_busy)

    @property
    def any_is_drained(self) -> bool:
        """Whether there is one already that is given no more trials."""
        return any(job.is_drained for job, _ in self._there)

    def any_holds(self, size: Size) -> bool:
        """Whether there is one, or is to be one, that holds such a trial."""
        return any(share.fit(size) for share in self._shares())

    def assign(self, size: Size, trials: int) -> int:
        """Reckon trials to the jobs, and then to new ones; returns how many are left over."""
        left = trials
        for share in self._shares():
            left -= share.take(size, left)
        while left > 0 and len(self._there) + len(self._new) < self._max_jobs:
            able = [
                kind
                for kind in self._kinds
                if kind.trials.get(size)
                and (kind.max_jobs is None or self._having[kind.group] < kind.max_jobs)
            ]
            if not able:
                break
            kind = min(able, key=lambda each: self._waiting[each.group])
            self._waiting[kind.group] += 1
            self._having[kind.group] += 1
            self._new.append(_Room(kind))
            left -= self._new[-1].take(size, left)
        return left

    def replaceable_for(self, size: Size) -> list[LiveJob]:
        """Those in whose place one could be submitted that holds such a trial.

        Those that other trials were reckoned to are left out.
        """
        able = [kind for kind in self._kinds if kind.trials.get(size)]
        is_full = len(self._there) >= self._max_jobs
        found = []
        for job in self._unused():
            group = next((kind.group for kind in self._kinds if kind.name == job.kind), "")
            for kind in able:
                same = kind.group == group
                limit = math.inf if kind.max_jobs is None else kind.max_jobs
                if (is_full or same) and self._having[kind.group] - same < limit:
                    found.append(job)
                    break
        return found

    def _shares(self) -> list[_Room[Size]]:
        return [*(share for _, share in self._there), *self._new]

    def _unused(self) -> list[LiveJob]:
        return [job for job, share in reversed(self._there) if share.is_whole]


@dataclass(slots=True)
class _Room(Generic[Size]):
    """What is left of a job that trials were reckoned to."""

    kind: KindCapacity[Size] | None
    is_drained: bool = False
    left: float = 1.0

    @property
    def is_whole(self) -> bool:
        return self.left == 1.0

    def fit(self, size: Size) -> int:
        """How many such trials the whole job may be given."""
        return 0 if self.kind is None or self.is_drained else self.kind.trials.get(size, 0)

    def take(self, size: Size, trials: int) -> int:
        """Reckon as many of these trials to it as fit; returns how many."""
        fit = self.fit(size)
        taken = min(trials, math.floor(self.left * fit + 1e-9))
        if taken > 0:
            self.left -= taken / fit
        return max(0, taken)

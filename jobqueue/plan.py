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
class Kind(Generic[Size]):
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
class Alive:
    """A job that is not over.

    Attributes:
        id: Its id.
        kind: The name of its kind.
        is_pending: Whether it waits to be started.
        is_busy: Whether trials run on its worker.
        seconds_left: How long it is of use; None if nobody knows, 0 or less if it is about to end.
    """

    id: str
    kind: str
    is_pending: bool = False
    is_busy: bool = False
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: how many jobs of each kind to submit, and which to cancel."""

    submit: Mapping[str, int]
    cancel: tuple[str, ...] = ()


def plan(
    wanted: Mapping[Size, int],
    alive: Sequence[Alive],
    kinds: Sequence[Kind[Size]],
    *,
    max_jobs: int,
) -> Plan:
    """What to do so that so many trials can run at once.

    Each size of trials fills what jobs the sizes before it have left, and where that is not enough,
    new jobs that can hold it. A job that is about to end counts no more, so that another one is
    submitted before it has ended. New jobs go to the shape of which fewest wait already, so that a
    full partition does not hold up the study while another one is empty. Jobs that no trial is for
    are cancelled, unless trials run on them; so is one that only sizes could use that come later,
    where there may be no more jobs and a trial needs another kind.

    >>> plan({"any": 5}, [], [Kind("gpu", {"any": 4})], max_jobs=9).submit
    {'gpu': 2}
    >>> jobs = [Alive("1_0", "gpu", is_busy=True), Alive("1_1", "gpu")]
    >>> plan({"any": 0}, jobs, [], max_jobs=9).cancel
    ('1_1',)
    >>> plan({"big": 1}, jobs, [Kind("gpu", {"any": 4}), Kind("large", {"big": 1})], max_jobs=9)
    Plan(submit={'large': 1}, cancel=())

    Args:
        wanted: How many trials of each size run or could begin now, those that come first first.
        alive: The jobs that there are.
        kinds: The kinds of jobs that may be submitted; among equals, the first is taken.
        max_jobs: How many jobs there may be in all; those about to end do not count.
    """
    known = {kind.name: kind for kind in kinds}
    lasting = [job for job in alive if job.seconds_left is None or job.seconds_left > 0]
    having: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    for job in lasting:
        if job.kind in known:
            having[known[job.kind].group] += 1
            waiting[known[job.kind].group] += job.is_pending
    # The last ones to start are the first ones to do without.
    jobs = sorted(lasting, key=lambda each: (not each.is_busy, each.is_pending))
    there = [_Share(known.get(job.kind), job.id) for job in jobs]
    idle = {job.id for job in jobs if not job.is_busy}
    new: list[_Share[Size]] = []
    for size, trials in wanted.items():
        left = trials
        for share in (*there, *new):
            left -= share.take(size, left)
        while left > 0 and len(there) + len(new) < max_jobs:
            able = [
                kind
                for kind in kinds
                if kind.trials.get(size)
                and (kind.max_jobs is None or having[kind.group] < kind.max_jobs)
            ]
            if not able:
                break
            kind = min(able, key=lambda each: waiting[each.group])
            waiting[kind.group] += 1
            having[kind.group] += 1
            new.append(_Share(kind))
            left -= new[-1].take(size, left)
        if left > 0 and not new:
            groups = {kind.group for kind in kinds if kind.trials.get(size) and kind.max_jobs != 0}
            is_full = len(there) >= max_jobs
            for share in reversed(there):
                # Later sizes could use it, but others can be had for those.
                in_the_way = is_full or (share.kind is not None and share.kind.group in groups)
                if groups and in_the_way and share.is_whole and share.job in idle:
                    return Plan({}, (share.job,))
    if new:
        return Plan(dict(Counter(share.kind.name for share in new if share.kind)))
    useless = (share.job for share in reversed(there) if share.is_whole and share.job in idle)
    return Plan({}, tuple(useless))


@dataclass(slots=True)
class _Share(Generic[Size]):
    """What is left of a job that trials were reckoned to."""

    kind: Kind[Size] | None
    job: str = ""
    left: float = 1.0

    @property
    def is_whole(self) -> bool:
        return self.left == 1.0

    def take(self, size: Size, trials: int) -> int:
        """Reckon as many of these trials to it as fit; returns how many."""
        fit = self.kind.trials.get(size, 0) if self.kind is not None else 0
        taken = min(trials, math.floor(self.left * fit + 1e-9))
        if taken > 0:
            self.left -= taken / fit
        return max(0, taken)

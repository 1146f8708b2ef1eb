"""Pure: which jobs to submit and which to cancel, from what is wanted and what there is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of job that may be submitted.

    Attributes:
        name: Its jobs' name.
        trials: How many trials one of them holds at once.
        max_jobs: How many there may be at once; None for any number.
    """

    name: str
    trials: int
    max_jobs: int | None = None


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
    wanted: int,
    alive: Sequence[Alive],
    kinds: Sequence[Kind],
    *,
    max_jobs: int,
) -> Plan:
    """What to do so that so many trials can run at once.

    A job that is about to end counts no more, so that another one is submitted before it has
    ended. New jobs go to the kind of which fewest wait already, so that a full partition does not
    hold up the study while another one is empty. Jobs that are too many are cancelled: those that
    wait first, then those on which nothing runs.

    >>> plan(5, [], [Kind("gpu", 4)], max_jobs=9).submit
    {'gpu': 2}
    >>> plan(0, [Alive("1_0", "gpu", is_busy=True), Alive("1_1", "gpu")], [], max_jobs=9).cancel
    ('1_1',)

    Args:
        wanted: How many trials run or could begin now.
        alive: The jobs that there are.
        kinds: The kinds of jobs that may be submitted.
        max_jobs: How many jobs there may be in all; those about to end do not count.
    """
    trials = {kind.name: kind.trials for kind in kinds}
    lasting = [job for job in alive if job.seconds_left is None or job.seconds_left > 0]
    waiting = {kind.name: 0 for kind in kinds}
    having = {kind.name: 0 for kind in kinds}
    for job in lasting:
        if job.kind in having:
            having[job.kind] += 1
            waiting[job.kind] += job.is_pending
    places = sum(trials.get(job.kind, 0) for job in lasting)
    submit: dict[str, int] = {}
    count = len(lasting)
    while places < wanted and count < max_jobs:
        open_ones = [
            kind for kind in kinds if kind.max_jobs is None or having[kind.name] < kind.max_jobs
        ]
        if not open_ones:
            break
        kind = min(open_ones, key=lambda each: waiting[each.name])
        submit[kind.name] = submit.get(kind.name, 0) + 1
        waiting[kind.name] += 1
        having[kind.name] += 1
        places += kind.trials
        count += 1
    return Plan(submit, () if submit else _too_many(wanted, lasting, trials, places))


def _too_many(
    wanted: int, lasting: Sequence[Alive], trials: Mapping[str, int], places: int
) -> tuple[str, ...]:
    cancel = []
    # The last ones to come are the last ones to start.
    idle = [job for job in reversed(lasting) if not job.is_busy]
    for job in sorted(idle, key=lambda each: not each.is_pending):
        share = trials.get(job.kind, 0)
        if places - share >= wanted:
            places -= share
            cancel.append(job.id)
    return tuple(cancel)

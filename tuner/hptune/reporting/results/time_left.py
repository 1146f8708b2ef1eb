"""How long the rest of a study takes, from the times of its trials so far.

A running trial takes as long as those that took longer than it has run, or as its epochs say. The
trials to come take the times of all these. Those that have ended alone would mislead: trials that
were stopped early end first, so at each moment the shorter ones have ended.
"""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.attempt import Attempt, Report
from .view import StudyView

_LEAST_ENDED = 3

_LATEST = 500
"""Trials whose times count, the last ones: a search moves to trials of other lengths."""

_MOST_DRAWN = 500
"""Trials to come whose times are drawn; further ones take the mean."""

_RECENT = 20
"""The last attempts, which tell how many run at once."""


@dataclass(frozen=True, slots=True)
class RunningTime:
    """A running trial.

    Attributes:
        seconds: How long it has held its place.
        rest: How long its epochs still take; None if unknown.
    """

    seconds: float
    rest: float | None = None


def seconds_left(
    ended: Sequence[float], running: Sequence[RunningTime], *, to_come: int, places: int
) -> float:
    """Estimate how long all trials take from now on.

    >>> seconds_left([10.0, 10.0, 10.0], [RunningTime(4.0), RunningTime(7.0)], to_come=0, places=2)
    6.0
    >>> seconds_left([10.0, 10.0, 10.0], [RunningTime(4.0), RunningTime(7.0)], to_come=3, places=2)
    23.0

    Args:
        ended: How long the trials that ended held their places, in the order of their ends.
        running: The running trials. One that takes longer than all others have, and whose `rest` is
            unknown, is about to end.
        to_come: How many trials have not begun.
        places: How many trials run at once.
    """
    latest, remaining, places = ended[-_LATEST:], [], max(1, places, len(running))
    for trial in running:
        longer = [seconds for seconds in latest if seconds > trial.seconds]
        remaining.append(statistics.fmean(longer) - trial.seconds if longer else trial.rest or 0.0)
    times = [
        *latest,
        *(trial.seconds + rest for trial, rest in zip(running, remaining, strict=True)),
    ]
    drawn = min(to_come, _MOST_DRAWN)
    chance = random.Random(0)  # noqa: S311 - the same times give the same estimate
    end = last_end(remaining, chance.choices(times, k=drawn), places=places)
    return end + (to_come - drawn) * statistics.fmean(times) / places


def last_end(remaining: Sequence[float], to_come: Iterable[float], *, places: int) -> float:
    """Return when the last trial ends.

    >>> last_end([6.0, 3.0], [10.0, 10.0], places=2)
    16.0

    Args:
        remaining: How long running trials still take; at most as many as there are places.
        to_come: How long the trials take that begin one after the other, each in the next free
            place.
        places: How many trials run at once.
    """
    free = [*remaining, *[0.0] * (places - len(remaining))]
    heapq.heapify(free)
    for seconds in to_come:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def rest_of(attempt: Attempt, latest: Report | None, epochs: int | None) -> float | None:
    """Return how long the epochs of a running attempt still take; None before one is measured."""
    usage = attempt.usage
    if not epochs or latest is None or usage is None or usage.seconds_per_step is None:
        return None
    return max(0, epochs - latest.step) * usage.seconds_per_step


def least_ended(total: int, places: int) -> int:
    """Return how many of all trials must have ended before the time left is estimated from them.

    >>> least_ended(50, 2), least_ended(50, 8), least_ended(4, 8)
    (3, 8, 2)
    """
    return min(max(_LEAST_ENDED, places), max(1, total // 2))


def left_of(view: StudyView, now: float) -> float | None:
    """Estimate how long a study that runs still takes; None if that is unknown."""
    total = view.all_trials
    if view.master is None or not view.is_live or view.paused_by or total is None:
        return None
    # An earlier run may have had more workers.
    places = _places([each for each in view.attempts if each.placed_at >= view.master.since])
    if not least_ended(total, places) <= view.ended < total:
        return None
    final = {trial.number for trial in view.trials if trial.state.is_final}
    over = [(each.ended_at, each) for each in view.attempts if each.ended_at is not None]
    held: dict[int, float] = {}
    for end, each in sorted(over, key=lambda pair: pair[0])[-2 * _LATEST :]:
        if (number := each.id.trial) in final:  # the last attempt gives the trial its place
            held[number] = held.pop(number, 0.0) + max(0.0, end - each.placed_at)
    if not held:
        return None
    running = []
    for each in view.open_attempts:
        seconds = max(0.0, now - each.placed_at)
        rest = rest_of(each, view.latest.get(each.id), view.epochs)
        running.append(RunningTime(seconds, rest))
    to_come = max(0, total - view.ended - len(running))
    return seconds_left([*held.values()], running, to_come=to_come, places=places)


def _places(attempts: Sequence[Attempt]) -> int:
    """Return how many attempts ran at once of late: a place that was just left is taken again."""
    latest = sorted(attempts, key=lambda each: each.placed_at)[-_RECENT:]
    still = [each for each in attempts if each.ended_at is None]
    known = {each.id: each for each in (*latest, *still)}.values()
    counts = [
        sum(e.placed_at <= at and (e.ended_at is None or e.ended_at > at) for e in known)
        for at in [each.placed_at for each in latest]
    ]
    return max(counts, default=1)

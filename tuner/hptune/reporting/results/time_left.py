"""How long the rest of a study takes, from the times of its trials so far.

A mean would mislead. Trials that were stopped early end first, so at each moment the trials that
have ended are the shorter ones; and the end of a study waits for the longest of its last trials. So
the times are distributed as Kaplan and Meier estimate it (Nonparametric estimation from incomplete
observations, 1958), which takes from a running trial that it takes longer than it has run. The rest
of the study is played some times with times drawn from there.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.attempt import Attempt, Report
from .view import StudyView

LEAST_ENDED = 3
"""Trials that must have ended before the time left is estimated (or as many as run at once)."""

_LATEST = 500
"""Trials whose times count, the last ones: a search moves to trials of other lengths."""

_RECENT = 20
"""The last attempts, which tell how many run at once."""

_DRAWS, _MOST_PLAYS = 2000, 60
"""Times that are drawn in all plays, and the most plays."""

_WAVES = 4
"""Trials to come that are played, as a multiple of the places; the others take the mean."""


@dataclass(frozen=True, slots=True)
class RunningTime:
    """A running trial.

    Attributes:
        seconds: How long it has held its place.
        rest: How long its epochs still take; None if unknown.
    """

    seconds: float
    rest: float | None = None


class _Times:
    """The distribution of the times that trials take."""

    def __init__(self, ended: Sequence[float], running: Sequence[RunningTime]) -> None:
        self._times: list[float] = []
        self._above = [1.0]
        """The share of trials that take longer than each time, and first than none."""
        self.mean = 0.0
        known = sorted([(each, 0) for each in ended] + [(each.seconds, 1) for each in running])
        share, before = 1.0, 0.0
        for index, (seconds, is_running) in enumerate(known):
            if is_running:
                continue
            self.mean += share * (seconds - before)
            share *= 1.0 - 1.0 / (len(known) - index)
            self._times.append(seconds)
            self._above.append(share)
            before = seconds
        longest = self._times[-1] if self._times else -1.0
        beyond = [each for each in running if each.seconds >= longest]
        self._most = max((each.seconds + (each.rest or 0.0) for each in beyond), default=before)
        self.mean += share * (self._most - before)

    def draw(self, chance: random.Random, after: float = -1.0) -> float | None:
        """Return the time of a trial that takes longer than `after`; None if none is known to."""
        at = bisect_right(self._times, after)
        if at == len(self._times) and self._most <= after:
            return None
        share = self._above[at] * (1.0 - chance.random())
        # The shares fall: the first one below has the time.
        low, high = at, len(self._times)
        while low < high:
            middle = (low + high) // 2
            if self._above[middle + 1] < share:
                high = middle
            else:
                low = middle + 1
        return self._times[low] if low < len(self._times) else self._most


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
    places = max(1, places, len(running))
    times = _Times(ended[-_LATEST:], running)
    played = min(to_come, _WAVES * places)
    plays = min(_MOST_PLAYS, 1 + _DRAWS // (played + len(running) + 1))
    chance = random.Random(0)  # noqa: S311 - the same times give the same estimate
    total = sum(_play(times, running, played, places, chance) for _ in range(plays))
    return total / plays + (to_come - played) * times.mean / places


def _play(
    times: _Times,
    running: Sequence[RunningTime],
    to_come: int,
    places: int,
    chance: random.Random,
) -> float:
    rests = []
    for each in running:
        whole = times.draw(chance, each.seconds)
        rests.append((each.rest or 0.0) if whole is None else whole - each.seconds)
    return last_end(rests, (times.draw(chance) or 0.0 for _ in range(to_come)), places=places)


def last_end(rests: Sequence[float], to_come: Iterable[float], *, places: int) -> float:
    """Return when the last trial ends.

    >>> last_end([6.0, 3.0], [10.0, 10.0], places=2)
    16.0

    Args:
        rests: How long running trials still take; at most as many as there are places.
        to_come: How long the trials take that begin one after the other, each in the next free
            place.
        places: How many trials run at once.
    """
    free = [*rests, *[0.0] * (places - len(rests))]
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


def left_of(view: StudyView, now: float) -> float | None:
    """Estimate how long a study that runs still takes; None if that is unknown."""
    total = view.all_trials
    if view.master is None or view.paused_by or total is None:
        return None
    if not LEAST_ENDED <= view.ended < total:
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
    # An earlier run may have had more workers.
    placed = [each for each in view.attempts if each.placed_at >= view.master.since]
    return seconds_left([*held.values()], running, to_come=to_come, places=_places(placed))


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

"""How many devices each trial of a study gets, so that the study ends soonest.

Few devices for each trial use all of them well, as nothing is communicated. Many let a study of few
trials use them all, and let a search that learns know more results before it suggests.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .curve import ScalingCurve
from .points import Mode, Point

_MOST_SIMULATED = 10_000
"""Trials above which a study is as long as its throughput says; the last ones do not matter."""

_ORDERS = 8
"""Orders of trials of different lengths, of which the mean counts."""

_WORTH = 0.98
"""Fewer devices are preferred unless more take less than this share of the time: measured step
times are not exact."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """The time of a trial by the number of its devices, as it was measured.

    Attributes:
        seconds: Time to train as many samples as a step on one device does, by number of devices.
            A number that is missing did not fit, or was not measured.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def of(cls, curve: ScalingCurve, mode: Mode = Mode.STRONG) -> StepTimes:
        """Return the times of the steps that train as many samples.

        Args:
            curve: What was measured.
            mode: What trials on more devices keep: their batch, or that of each device.
        """
        found = {}
        for count in curve.devices if curve.batch else ():
            seconds = curve.step_seconds(Point(count, mode.batch_per_device(curve.batch, count)))
            if seconds is not None:
                found[count] = seconds.middle / (count if mode is Mode.WEAK else 1)
        return cls(found)


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of a study's workers.

    Attributes:
        workers: The number of devices of each; a trial lies on one of them.
    """

    workers: tuple[int, ...]

    def at_once(self, devices: int) -> int:
        """Return how many trials of a size run at once.

        >>> Pool((4, 3)).at_once(2)
        3
        """
        return sum(each // devices for each in self.workers)

    @property
    def devices(self) -> int:
        """All devices."""
        return sum(self.workers)


@dataclass(frozen=True, slots=True)
class Split:
    """A choice of how many devices each trial gets.

    Attributes:
        devices: Devices of a trial.
        at_once: How many trials run at once.
        share: Time that the study takes, relative to trials on as few devices as possible.
    """

    devices: int
    at_once: int
    share: float


def choose_split(
    times: StepTimes, pool: Pool, trials: int | None, *, learns: bool, lengths: Sequence[float] = ()
) -> Split | None:
    """Return the split with which a study ends soonest; None if no trial fits.

    The model: each trial takes a time in proportion to its step time and its length, and the next
    one starts on whatever becomes free. Of k trials at once, each of a search that learns was
    suggested without the results of the k - 1 others; the search needs as many more trials to know
    as much, so those are added to what is left.

    >>> times = StepTimes({1: 8.0, 2: 4.4, 4: 2.6})
    >>> choose_split(times, Pool((4,)), 100, learns=False).devices
    1
    >>> choose_split(times, Pool((4,)), 2, learns=False).devices
    2

    Args:
        times: Step times by number of devices.
        pool: What the study has.
        trials: Trials that are left to start; None for a study without an end.
        learns: Whether the search suggests by the results of trials.
        lengths: Lengths of earlier trials relative to each other, which stand for those to come;
            empty for equal ones.
    """
    best: Split | None = None
    first, best_seconds = math.nan, math.inf
    for devices, step_seconds in sorted(times.seconds.items()):
        at_once = pool.at_once(devices)
        if not at_once:
            continue
        seconds = step_seconds * _length(at_once, trials, learns=learns, lengths=lengths)
        if best is None:
            first = seconds
        if best is None or seconds < _WORTH * best_seconds:
            best, best_seconds = Split(devices, at_once, seconds / first), seconds
    return best


def _length(
    at_once: int, trials: int | None, *, learns: bool, lengths: Sequence[float] = ()
) -> float:
    """Return how long a study takes, in trials of length 1."""
    mean = sum(lengths) / len(lengths) if lengths else 1.0
    if trials is None:
        return mean / at_once
    # Of repeats that confirm, which come after the last trial, the number is unknown.
    count = max(1, trials) + (at_once - 1 if learns else 0)
    if count > _MOST_SIMULATED:
        return count * mean / at_once
    if not lengths:
        return float(math.ceil(count / at_once))
    # Which of them come together matters, so several orders are tried.
    orders = min(_ORDERS, len(lengths))
    starts = [order * len(lengths) // orders for order in range(orders)]
    ends = [
        _last_end(at_once, (lengths[(start + i) % len(lengths)] for i in range(count)))
        for start in starts
    ]
    return sum(ends) / len(ends)


def _last_end(at_once: int, lengths: Iterable[float]) -> float:
    """Return when the last of some trials ends, each of which starts as soon as a place is free.

    >>> _last_end(2, [3.0, 1.0, 1.0, 1.0])
    3.0
    """
    ends: list[float] = []
    last = 0.0
    for length in lengths:
        start = heapq.heappop(ends) if len(ends) >= at_once else 0.0
        heapq.heappush(ends, start + length)
        last = max(last, start + length)
    return last


def split_words(split: Split, times: StepTimes, device: str) -> str:
    """Return what was chosen and why, in a line for the user.

    >>> split_words(Split(2, 4, 0.72), StepTimes({1: 3.0, 2: 1.6}), "GPU")
    '2 GPUs for each trial, 4 at once: 72 % of the time with 1 each (2 train 1.88 times as fast)'

    Args:
        split: What was chosen.
        times: What it follows from.
        device: What a device is: "core" or "GPU".
    """
    least, *more = sorted(times.seconds)
    speeds = ", ".join(
        f"{count} train {times.seconds[least] / times.seconds[count]:.2f} times as fast"
        for count in more
    )
    chosen = f"{split.devices} {device}{'s' * (split.devices != 1)} for each trial"
    if split.devices != least:
        why = f"{100 * split.share:.0f} % of the time with {least} each"
    else:
        why = "the study would not end sooner with more" if more else "no other number was measured"
    return f"{chosen}, {split.at_once} at once: {why}{f' ({speeds})' if speeds else ''}"

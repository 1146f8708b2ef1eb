"""How many devices each trial of a study gets, so that the study ends soonest.

Few devices for each trial use all of them well, as nothing is communicated. Many let a study of few
trials use them all, and let a search that learns know more results before it suggests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ..core.messages import DecideSplit
from ..core.notice import Notice, Notify
from ..core.resources import Resources
from ..core.scheduling.cluster import ClusterState
from ..text import plural
from .curve import Mode, ScalingCurve
from .step_runner import TrialSizes

_WORTH = 0.98
"""Fewer devices are preferred unless more take less than this share of the time: measured step
times are not exact."""
_MEMORY_MARGIN = 1.25
"""Memory that a trial asks for, relative to what its measured steps used: it also validates, and
writes checkpoints."""


@dataclass(frozen=True, slots=True)
class SplitTimes:
    """The time of a trial by the number of its devices, as it was measured.

    Attributes:
        seconds: Time to train as many samples as a step on one device does, by number of devices.
            A number that is missing did not fit, or was not measured.
        memory_bytes: Most host memory of a trial, by number of devices; missing if unknown.
    """

    seconds: Mapping[int, float] = field(default_factory=dict)
    memory_bytes: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, curve: ScalingCurve, mode: Mode = Mode.STRONG) -> SplitTimes:
        """Return the times of the steps that train as many samples.

        Args:
            curve: What was measured.
            mode: What stays the same when a trial gets more devices.
        """
        found, memory = {}, {}
        for count in curve.devices if curve.batch else ():
            point = mode.point(curve.batch, count)
            seconds = curve.step_seconds(point)
            if seconds is None:
                continue
            found[count] = seconds.middle / (count if mode is Mode.WEAK else 1)
            if most := max(run.memory_bytes for run in curve.runs(point)):
                memory[count] = most
        return cls(found, memory)


@dataclass(frozen=True, slots=True)
class Split:
    """A choice of how many devices each trial gets.

    Attributes:
        devices: Devices of a trial.
        at_once: How many trials run at once.
        fewest: The smallest number of devices of a trial that the workers hold.
        share: Time that the study takes, relative to trials on the fewest devices.
    """

    devices: int
    at_once: int
    fewest: int = 1
    share: float = 1.0


def choose_split(
    times: SplitTimes,
    at_once: Callable[[int], int],
    trials: int | None,
    *,
    learns: bool,
) -> Split | None:
    """Return the split with which a study ends soonest; None if no trial fits.

    The model: each trial takes a time in proportion to its step time, and the next one starts on
    whatever becomes free. Of k trials at once, each of a search that learns was
    suggested without the results of the k - 1 others; the search needs as many more trials to know
    as much, so those are added to what is left.

    >>> times = SplitTimes({1: 8.0, 2: 4.4, 4: 2.6})
    >>> four = lambda devices: 4 // devices
    >>> choose_split(times, four, 100, learns=False).devices
    1
    >>> choose_split(times, four, 2, learns=False).devices
    2

    Args:
        times: Step times by number of devices.
        at_once: Returns how many trials run at once, by the number of devices of each.
        trials: Trials that are left to start; None for a study without an end.
        learns: Whether the search suggests by the results of trials.
    """
    best: Split | None = None
    fewest, first, best_seconds = 0, math.nan, math.inf
    for devices, step_seconds in sorted(times.seconds.items()):
        count = at_once(devices)
        if not count:
            continue
        seconds = step_seconds * _length(count, trials, learns=learns)
        if best is None:
            fewest, first = devices, seconds
        if best is None or seconds < _WORTH * best_seconds:
            best = Split(devices, count, fewest=fewest, share=seconds / first)
            best_seconds = seconds
    return best


def _length(at_once: int, trials: int | None, *, learns: bool) -> float:
    """Return how long a study takes, in trials."""
    if trials is None:
        return 1.0 / at_once
    # Of repeats that confirm, which come after the last trial, the number is unknown.
    count = max(1, trials) + (at_once - 1 if learns else 0)
    return float(math.ceil(count / at_once))


def split_text(split: Split, times: SplitTimes, device: str) -> str:
    """Return what was chosen and why, in a line for the user.

    >>> split_text(Split(2, 4, share=0.72), SplitTimes({1: 3.0, 2: 1.6}), "GPU")
    '2 GPUs for each trial, 4 at once: 72 % of the time with 1 each (2 train 1.88 times as fast)'

    Args:
        split: What was chosen.
        times: What it follows from.
        device: What a device is: "core", "GPU" or "process".
    """
    fewest, more = split.fewest, [each for each in sorted(times.seconds) if each > split.fewest]
    speeds = ", ".join(
        f"{count} train {times.seconds[fewest] / times.seconds[count]:.2f} times as fast"
        for count in more
    )
    chosen = f"{plural(split.devices, device)} for each trial"
    if split.devices != fewest:
        why = f"{100 * split.share:.0f} % of the time with {fewest} each"
    else:
        why = "the study would not end sooner with more" if more else "no other number was measured"
    return f"{chosen}, {split.at_once} at once: {why}{f' ({speeds})' if speeds else ''}"


class Splitter:
    """Answers how many devices each trial gets from now on.

    Args:
        times: Step times; has at least one.
        device: What a device is: "core", "GPU" or "process".
        sizes: What trials hold. Where it names no memory, they ask for what was measured.
        learns: Whether the search learns from its trials.
        note: Takes a line on each choice.
    """

    def __init__(
        self,
        times: SplitTimes,
        device: str,
        *,
        sizes: TrialSizes,
        learns: bool,
        note: Notify,
    ) -> None:
        self._times = times
        self._device = device
        self._sizes = sizes
        self._learns = learns
        self._note = note
        self._devices = 0

    def __call__(self, question: DecideSplit) -> tuple[Resources, str]:
        """Return what a trial asks for, and what was chosen and why; no words for no change."""
        cluster_state = ClusterState()
        for number, capacity in enumerate(question.workers):
            if capacity.gpus or self._device != "GPU":
                cluster_state.add(str(number), "", capacity)

        def at_once(devices: int) -> int:
            return _slots(cluster_state, self._resources(devices, cluster_state))

        split = choose_split(self._times, at_once, question.trials_left, learns=self._learns)
        if split is None or (
            split.devices == self._devices and _slots(cluster_state, question.usual)
        ):
            return question.usual, ""
        resources = self._resources(split.devices, cluster_state)
        assert resources is not None, "a size that was measured is a size"
        self._devices = split.devices
        words = split_text(split, self._times, self._device)
        self._note(Notice(words))
        return resources, words

    def _resources(self, devices: int, cluster_state: ClusterState) -> Resources | None:
        wanted = self._sizes.on(devices, has_gpus=self._device == "GPU")
        measured = self._times.memory_bytes.get(devices)
        if wanted is None or wanted.memory_bytes or measured is None:
            return wanted
        # A size that could be measured fits the largest worker, whatever the margin.
        most = cluster_state.most_memory_bytes or measured
        memory = max(measured, min(int(_MEMORY_MARGIN * measured), most))
        return replace(wanted, memory_bytes=memory)


def _slots(cluster_state: ClusterState, wanted: Resources | None) -> int:
    """Return how many trials the workers hold at once."""
    return (
        0
        if wanted is None
        else sum(cluster_state.slots_when_empty(each, wanted) for each in cluster_state)
    )

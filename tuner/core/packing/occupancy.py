"""How many trials shared a device, over a time in which others came and went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..resources import Amount

_DEVICES = (Amount.CPUS, Amount.GPUS)


@dataclass(frozen=True, slots=True)
class Interval:
    """How many trials share the devices of a worker.

    Attributes:
        at: When, in seconds since the epoch.
        now: How many there are to a device.
        share_seconds: How long each had had a device, were it shared evenly, counted from some
            time on.
    """

    at: float
    now: float
    share_seconds: float

    def since(self, before: Interval) -> float:
        """How many there were to a device since then, as far as that makes steps longer.

        >>> Crowd(30.0, 4.0, 15.0).since(Crowd(10.0, 1.0, 5.0))  # 20 s, 10 of them for each
        2.0
        """
        seconds = self.share_seconds - before.share_seconds
        return (self.at - before.at) / seconds if seconds > 0.0 else self.now


class Occupancy:
    """Keeps count of that, for all workers.

    Args:
        crowd: How many trials there are to a core, or to a GPU, of a worker now.
    """

    def __init__(self, crowd: Callable[[str, Amount], float]) -> None:
        self._crowd = crowd
        self._latest: dict[str, dict[Amount, Interval]] = {}

    def look(self, worker: str, at: float) -> Mapping[Amount, Interval]:
        """How it stands with its cores and its GPUs.

        To be asked, too, right before a trial begins or ends there.

        Args:
            worker: Which one.
            at: Now, in seconds since the epoch.
        """
        before = self._latest.get(worker) or dict.fromkeys(_DEVICES, Interval(at, 1.0, 0.0))
        passed = max(0.0, at - before[Amount.CPUS].at)
        latest = dict[Amount, Interval]()
        for device, crowd in before.items():
            now = self._crowd(worker, device)
            latest[device] = Interval(crowd.at + passed, now, crowd.share_seconds + passed / now)
        self._latest[worker] = latest
        return latest

    def forget(self, worker: str) -> None:
        """It is gone."""
        self._latest.pop(worker, None)

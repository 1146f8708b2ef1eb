"""How many trials shared a device on average while others started and ended there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..resources import Amount


@dataclass(frozen=True, slots=True)
class Interval:
    """The occupancy of a worker's devices from the first measurement to the present one.

    Attributes:
        at: The time of the present measurement, in seconds since the epoch.
        now: The trials per device at that time.
        share_seconds: The time that each trial had a device for itself, if shared evenly.
    """

    at: float
    now: float
    share_seconds: float

    def co_located_since(self, before: Interval) -> float:
        """Return the average number of trials per device, weighted by how it slows a trial.

        >>> Interval(30.0, 4.0, 15.0).co_located_since(Interval(10.0, 1.0, 5.0))  # 10 s of 20 s
        2.0
        """
        seconds = self.share_seconds - before.share_seconds
        return (self.at - before.at) / seconds if seconds > 0.0 else self.now


class Occupancy:
    """The occupancy of all workers.

    Args:
        trials_per_device: Returns the trials per core, or per GPU, of a worker now.
    """

    def __init__(self, trials_per_device: Callable[[str, Amount], float]) -> None:
        self._trials_per_device = trials_per_device
        self._latest: dict[str, dict[Amount, Interval]] = {}

    def update(self, worker: str, at: float) -> Mapping[Amount, Interval]:
        """Return the occupancy of a worker's cores and GPUs.

        Call it also right before a trial starts or ends there.
        """
        unknown = Interval(at, 1.0, 0.0)
        before = self._latest.get(worker) or {Amount.CPUS: unknown, Amount.GPUS: unknown}
        latest = dict[Amount, Interval]()
        for device, interval in before.items():
            now = self._trials_per_device(worker, device)
            passed = max(0.0, at - interval.at)
            latest[device] = Interval(
                interval.at + passed, now, interval.share_seconds + passed / now
            )
        self._latest[worker] = latest
        return latest

    def remove(self, worker: str) -> None:
        """Forget a worker that left."""
        self._latest.pop(worker, None)

"""What attempts cost: device hours held, time waited, cores idle. Sums over the attempts table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from ...core.budget import Device, held_seconds, hours_of
from ...core.trial import Attempt

_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of some attempts.

    Attributes:
        core_hours: How long cores were held, from the starts of the processes to their ends.
        gpu_hours: The same of GPUs; parts of one count as parts.
        wait_seconds: From the attempts' placements to the starts of their processes: for a turn
            on a worker that several studies use, and for the fork.
        idle_core_hours: How long cores were held, and neither computed on nor waited for because
            others had them, as far as was measured.
    """

    core_hours: float = 0.0
    gpu_hours: float = 0.0
    wait_seconds: float = 0.0
    idle_core_hours: float = 0.0

    def to_json(self) -> dict[str, float]:
        """As plain values."""
        return asdict(self)


NAMES = tuple(Costs().to_json())
"""What is in the books, in the order of the columns."""


def books(attempts: Iterable[Attempt], *, now: float | None = None) -> Costs:
    """What these attempts cost.

    Args:
        attempts: They may still run.
        now: The time in seconds since the epoch, up to which attempts count that still run; None
            where nobody knows whether they do, and they are left out.
    """
    counted = [each for each in attempts if each.ended_at is not None or now is not None]
    until = 0.0 if now is None else now
    return Costs(
        core_hours=hours_of(counted, Device.CORE, now=until),
        gpu_hours=hours_of(counted, Device.GPU, now=until),
        wait_seconds=sum((_waited(each, until) for each in counted), start=0.0),
        idle_core_hours=sum(_idle_seconds(each, until) for each in counted) / _HOUR,
    )


def _waited(attempt: Attempt, now: float) -> float:
    until = next(at for at in (attempt.started_at, attempt.ended_at, now) if at is not None)
    return max(0.0, until - attempt.placed_at)


def _idle_seconds(attempt: Attempt, now: float) -> float:
    used, seconds = attempt.usage, attempt.seconds(now)
    if used is None or not seconds:
        return 0.0
    # What was measured begins before the process does, and ends when it was last told.
    measured = min(used.seconds, seconds) / seconds
    held = measured * held_seconds(attempt, Device.CORE, now=now)
    return max(0.0, held - used.cpu_seconds - used.starved_seconds)

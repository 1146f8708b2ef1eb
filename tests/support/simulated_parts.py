"""What a simulation is made of: a virtual clock, workers, what attempts need, and faults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hptune.core.attempt import Ending
from hptune.core.resources import Capacity

Curve = Sequence[Mapping[str, float]]
"""The metrics that an attempt reports after each epoch; the last entry is its result."""


class VirtualClock:
    """A clock that moves only on request.

    Args:
        now: Its first time, in seconds since the epoch.
    """

    def __init__(self, now: float = 1_000_000_000.0) -> None:
        self._now = now

    def now(self) -> float:
        """Return the present virtual time in seconds since the epoch."""
        return self._now

    def advance_to(self, at: float) -> None:
        """Move to this time; a time that has passed is ignored."""
        self._now = max(self._now, at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorker:
    """A worker of the simulation.

    Attributes:
        name: Its name; no two workers share one.
        cores: How many cores it has.
        gpus: How many GPUs it has.
        memory_bytes: Its host memory; 0 if that is not counted.
        gpu_memory_bytes: That of each of its GPUs; 0 if unknown.
        joins_seconds: When it joins, in seconds after `open`.
        leaves_seconds: When it is lost, likewise; None for never.
        walltime_seconds: How long it may stay, which it announces when it joins; None for no
            limit.
        node: The machine it runs on; empty for one of its own.
        gang: The name of the workers that it is granted together with; empty if by itself.
    """

    name: str
    cores: int = 1
    gpus: int = 0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    joins_seconds: float = 0.0
    leaves_seconds: float | None = None
    walltime_seconds: float | None = None
    node: str = ""
    gang: str = ""

    @property
    def capacity(self) -> Capacity:
        """Its capacity, as a real worker announces it."""
        gpus = tuple(str(number) for number in range(self.gpus))
        return Capacity(
            tuple(range(self.cores)),
            gpus,
            self.memory_bytes,
            gpu_memory_bytes=self.gpu_memory_bytes,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Resources that an attempt uses, or each process of one of several.

    Attributes:
        memory_bytes: Host memory, from its start to its end. If the attempts of a worker use more
            than it has, the one that uses most is killed.
        busy: How many cores it keeps busy when it runs alone. If the attempts of a worker need
            more than it has, the epochs of all take longer in proportion.
        gpu_memory_bytes: GPU memory, if it holds a GPU.
        gpu_busy: The share of the time in which it keeps its GPU busy when it runs alone. If the
            attempts on a GPU need more than all of it, their epochs take longer in proportion.
    """

    memory_bytes: int = 0
    busy: float = 1.0
    gpu_memory_bytes: int = 0
    gpu_busy: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Random faults, drawn from the simulation's seed.

    Attributes:
        killed_attempts: The share of attempts whose process is killed, in any of their epochs.
        stragglers: The share of attempts that are slowed down.
        straggler_slowdown: The factor by which they are slowed down.
        worker_life_seconds: How long a worker lives on average; None for no limit.
        replaced_after_seconds: When a worker that was lost is replaced by another of its kind;
            None for never.
    """

    killed_attempts: float = 0.0
    stragglers: float = 0.0
    straggler_slowdown: float = 5.0
    worker_life_seconds: float | None = None
    replaced_after_seconds: float | None = None


class SimulatedEnd(Exception):
    """Raised by a curve: the attempt ends like this, without a result.

    Args:
        ending: How it ends.
        reported: Its reports before that, epoch by epoch.
    """

    def __init__(self, ending: Ending, reported: Curve = ()) -> None:
        super().__init__(ending, reported)
        self.ending = ending
        self.reported = reported

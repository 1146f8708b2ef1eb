"""Attempts that measure training steps, one after another, outside of a study's loop.

They run as those of a study do: on placements of the same workers, by the same executor, ranks and
strategies. There is no ledger, no search and no retry.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from ..core.attempt import AttemptId, Cause, Ending, Halt, Usage
from ..core.data_parallel import DataParallel
from ..core.goals import Goals
from ..core.messages import (
    AttemptEnded,
    Event,
    Measured,
    Reported,
    Start,
    StopRequested,
    WorkerLeft,
)
from ..core.resources import Placement, Resources
from ..core.scheduling.cluster import ClusterState
from ..core.space.completion import completed
from ..core.space.space import SearchSpace
from ..core.step_request import BATCH, STEP_SECONDS, STEPS, StepRequest
from ..core.trial import Direction, Goal, Params
from ..core.workers import RosterEvent, Workers
from ..executors.base import Executor
from ..worker.orders import AttemptOrder, StudyBrief
from .curve import Point, Sample

_END_SECONDS = 30.0
"""Longest wait for an attempt to end once it was told to."""
_POLL_SECONDS = 0.25
_SEED = 1
STEP_GOALS = Goals((Goal(STEP_SECONDS, Direction.MIN),))
"""What attempts that measure report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSizes:
    """What trials hold, by the number of their devices.

    A device is a GPU on workers that have GPUs, and otherwise a core. If the cores of a whole trial
    are given, it is a process, and the processes divide the cores.

    Attributes:
        cpus: Cores of a whole trial; 0 for one for each device, and with GPUs their part of them.
        memory_bytes: Host memory of a whole trial; 0 if none is asked for.
        uses_gpus: Whether trials use the GPUs of workers that have any.
        in_one_process: Whether one process has all devices, instead of one process for each.
    """

    cpus: int = 0
    memory_bytes: int = 0
    uses_gpus: bool = True
    in_one_process: bool = False

    @classmethod
    def of(cls, one: Resources) -> Self:
        """Return the sizes of trials that hold this much on one device."""
        return cls(
            cpus=int(one.cpus) if one.cpus > 1 else 0,
            memory_bytes=one.memory_bytes,
            uses_gpus=one.gpus != 0,
        )

    def device(self, *, has_gpus: bool) -> str:
        """Return what a device is called: "GPU", "core" or "process".

        Args:
            has_gpus: Whether workers have GPUs.
        """
        if self.uses_gpus and has_gpus:
            return "GPU"
        return "process" if self.cpus else "core"

    def on(self, devices: int, *, nodes: int = 1, has_gpus: bool = False) -> Resources | None:
        """Return what a trial holds; None if its cores or devices cannot be divided like this.

        >>> print(TrialSizes(memory_bytes=10**9).on(2))
        2 processes of 1 core, 500 MB
        >>> print(TrialSizes(cpus=8).on(2)), TrialSizes(cpus=8).on(3)
        2 processes of 4 cores
        (None, None)
        >>> print(TrialSizes(in_one_process=True).on(2, has_gpus=True))
        2 cores and 2 GPUs

        Args:
            devices: Number of devices.
            nodes: Nodes that they are divided among.
            has_gpus: Whether workers have GPUs.
        """
        cpus, gpus = self.cpus or devices, None if self.uses_gpus else 0
        if self.in_one_process:
            processes, is_possible = 1, nodes == 1
            gpus = devices if self.uses_gpus and has_gpus else 0
        else:
            processes, is_possible = devices, not (cpus % devices or devices % nodes)
        if not is_possible:
            return None
        return Resources(
            cpus,
            gpus,
            self.memory_bytes,
            processes=processes,
            nodes=nodes,
            takes_cores_of_gpus=not self.cpus,
        )


_USUAL = TrialSizes()


def divisors(count: int) -> list[int]:
    """Return the numbers that divide a number, the smallest first.

    >>> divisors(6)
    [1, 2, 3, 6]
    """
    return [each for each in range(1, count + 1) if count % each == 0]


def steps_brief(brief: StudyBrief) -> StudyBrief:
    """Return what attempts are told that measure steps instead of training to their end."""
    limits = replace(
        brief.limits,
        epochs=1,
        checkpoint_every=0,
        master_grace_seconds=0.0,
        data_parallel=DataParallel(brief.limits.data_parallel.choice),
    )
    return replace(brief, goals=STEP_GOALS, limits=limits)


class StepRunner:
    """Runs attempts that measure steps, one after another.

    Attributes:
        workers: The roster, before the study is opened.
        cluster_state: What is free on the workers.
        seen: What happened to workers, and what users asked for, for the next user of the executor.
        wants_stop: Whether the study is to stop.

    Args:
        executor: Open; the caller closes it.
        brief: What every attempt of the study is told, from which `steps_brief` follows.
        space: The search space, of which the default configuration is measured.
        sizes: What attempts hold.
        first_number: Number of its first attempt's trial.
        requests: Asked regularly for events from outside.
    """

    def __init__(
        self,
        executor: Executor,
        *,
        brief: StudyBrief,
        space: SearchSpace,
        sizes: TrialSizes = _USUAL,
        first_number: int = 0,
        requests: Callable[[], Sequence[Event]] = tuple,
    ) -> None:
        self.workers = Workers()
        self.cluster_state = ClusterState()
        self.seen: list[Event] = []
        self.wants_stop = False
        self._requests = requests
        self._executor = executor
        self._brief = steps_brief(brief)
        self._sizes = sizes
        self._space = tuple(space.to_json())
        self._params: Params = completed(space, {})
        self._number = self._first_number = first_number

    @property
    def device(self) -> str:
        """What a device is."""
        return self._sizes.device(has_gpus=bool(self.cluster_state.gpus))

    @property
    def devices(self) -> int:
        """The number of devices of all workers."""
        return self.cluster_state.gpus if self.device == "GPU" else self.cluster_state.cpus

    def resources(self, devices: int) -> Resources | None:
        """Return what an attempt on this many devices holds, on as few nodes as possible.

        None if the workers cannot hold it.
        """
        for nodes in divisors(devices):
            wanted = self._sizes.on(devices, nodes=nodes, has_gpus=bool(self.cluster_state.gpus))
            if wanted is not None and self.cluster_state.could_hold(wanted):
                return wanted
        return None

    def look(self) -> None:
        """Take in what happened to the workers, waiting a moment."""
        self._observe_requests()
        for event in self._executor.events(_POLL_SECONDS):
            self._take_in(event)

    @property
    def numbers(self) -> range:
        """The numbers that its attempts had as trials."""
        return range(self._first_number, self._number)

    def run(self, devices: int, request: StepRequest, until: float) -> Sample | Ending:
        """Measure one point once.

        Args:
            devices: Number of devices.
            request: What to measure on them.
            until: Time of `time.monotonic` at which the attempt is stopped.

        Returns:
            What was measured, or how the attempt ended without it.
        """
        wanted = self.resources(devices)
        placement = None if wanted is None else self.cluster_state.take(wanted)
        if placement is None:
            return Ending(Cause.WORKER_LOST, reason="its workers are gone")
        if self._sizes.in_one_process and self.device != "GPU":
            request = replace(request, host_devices=devices)
        name = AttemptId(self._number, 0)
        self._number += 1
        start = Start(name, self._params, placement, _SEED)
        self._executor.start(AttemptOrder(self._brief, start, self._space, measure=request))
        before = len(self.seen)
        found = self._watch(name, placement, devices, until)
        left = {each.worker for each in self.seen[before:] if isinstance(each, WorkerLeft)}
        self.cluster_state.give_back(placement, left=left)
        return found

    def _watch(
        self, name: AttemptId, placement: Placement, devices: int, until: float
    ) -> Sample | Ending:
        """Collect what an attempt reports until it ends."""
        metrics: Mapping[str, float] | None = None
        usage: Usage | None = None
        is_stopped = False
        while True:
            self._observe_requests()
            for event in self._executor.events(_POLL_SECONDS):
                self._take_in(event)
                match event:
                    case Reported(attempt=attempt) if attempt == name:
                        metrics = event.report.metrics
                    case Measured(attempt=attempt) if attempt == name:
                        usage = event.usage
                    case AttemptEnded(attempt=attempt, ending=ending) if attempt == name:
                        if metrics is None or ending.cause is not Cause.RETURNED:
                            return ending
                        return _sample(devices, metrics, usage)
            if not any(worker in self.workers for worker in placement.workers):
                return Ending(Cause.WORKER_LOST, reason="its worker is gone")
            now = time.monotonic()
            if (now > until or self.wants_stop) and not is_stopped:
                self._executor.stop(name, Halt.STOP)
                is_stopped, until = True, now + _END_SECONDS
            elif now > until:
                return Ending(Cause.WORKER_LOST, reason="it did not end when it was told to")

    def _observe_requests(self) -> None:
        found = self._requests()
        self.seen += found
        self.wants_stop |= any(isinstance(each, StopRequested) for each in found)

    def _take_in(self, event: Event) -> None:
        if not isinstance(event, RosterEvent):
            return
        self.seen.append(event)
        for worker in self.workers.handle(event):
            self.cluster_state.follow(worker)


def _sample(devices: int, metrics: Mapping[str, float], usage: Usage | None) -> Sample:
    return Sample(
        Point(devices, int(metrics[BATCH]) // devices),
        step_seconds=metrics[STEP_SECONDS],
        steps=int(metrics[STEPS]),
        memory_bytes=0 if usage is None else usage.peak_memory_bytes,
        gpu_memory_bytes=None if usage is None else usage.peak_gpu_memory_bytes,
    )

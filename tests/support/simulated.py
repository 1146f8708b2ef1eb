"""Simulated attempts: learning curves on a virtual clock, thousands of attempts a second.

The arguments and the seed determine all that happens on a simulated cluster, so a run can be
repeated exactly: a week on a thousand workers that join and die is a unit test of seconds.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Report, Usage
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Measured,
    Reported,
    WorkerJoined,
    WorkerLeft,
)
from hptune.core.resources import Placement
from hptune.core.trial import Params
from hptune.executors.base import Executor
from hptune.worker.orders import AttemptOrder
from simulated_parts import Curve, Faults, Needs, SimulatedEnd, SimulatedWorker, VirtualClock


@dataclass(slots=True, eq=False)
class _Run:
    order: AttemptOrder
    epoch_seconds: float
    killed_in_epoch: float
    needs: Needs | None
    placed_at: float
    cpu_seconds: float = 0.0
    first_epoch_at: float = 0.0
    curve: Curve = ()
    ending: Ending | None = None
    step: int = 0
    halt: Halt | None = None
    ranks_on: Counter[str] = field(default_factory=Counter)
    is_broken: bool = False


@dataclass(slots=True)
class _Place:
    worker: SimulatedWorker
    generation: int
    runs: set[AttemptId]


_Happening = tuple[float, int, Callable[[Any], None], Any]


class SimulatedExecutor(Executor):
    """Runs attempts on simulated workers.

    `events` moves the virtual clock to the next happening, but never further than its time-out.
    An attempt reports after each epoch and keeps a checkpoint of it, from which the trial's next
    attempt resumes. The attempts of a lost worker are lost with it. One with ranks on other workers
    makes no more progress, and is lost `rank_loss_seconds` later.

    Args:
        curve: An attempt's learning curve from its configuration and its training seed. It may
            raise: `SimulatedEnd`, or any other exception as a real objective might.
        seconds_per_epoch: How long an epoch of this configuration takes on this worker.
        workers: The workers that join by themselves.
        faults: The random faults.
        seed: Determines all that is random.
        startup_seconds: How long an attempt's process takes to start.
        stop_seconds: How long an order to stop takes; None to stop at the end of the epoch.
        needs: The resources that an attempt of a configuration uses, which are measured; None for
            one core each, unmeasured.
        rank_loss_seconds: How long the other ranks of an attempt run on when a worker is lost.
        relative_seconds: Time of an epoch on a number of processes, relative to one process.
        batch_seconds: Events within this time of one another are returned together, as to a busy
            master.
    """

    def __init__(
        self,
        *,
        curve: Callable[[Params, int], Curve],
        seconds_per_epoch: Callable[[Params, SimulatedWorker], float],
        workers: Sequence[SimulatedWorker],
        faults: Faults | None = None,
        seed: int = 0,
        startup_seconds: float = 0.0,
        stop_seconds: float | None = None,
        needs: Callable[[Params], Needs] | None = None,
        rank_loss_seconds: float = 0.0,
        relative_seconds: Callable[[int], float] = lambda _: 1.0,
        batch_seconds: float = 0.0,
    ) -> None:
        self.clock = VirtualClock()
        self._curve = curve
        self._seconds_per_epoch = seconds_per_epoch
        self._coming = tuple(workers)
        self._faults = faults or Faults()
        self._seed = seed
        self._startup_seconds = startup_seconds
        self._stop_seconds = stop_seconds
        self._needs = needs
        self._rank_loss_seconds = rank_loss_seconds
        self._relative_seconds = relative_seconds
        self._batch_seconds = batch_seconds
        self._places: dict[str, _Place] = {}
        self._runs: dict[AttemptId, _Run] = {}
        self._happenings: list[_Happening] = []
        self._order = itertools.count()
        self._pids = itertools.count(1)
        self._events: list[Event] = []
        self._awake = False

    def open(self) -> None:
        """Schedule the workers, each at its time."""
        for worker in self._coming:
            self._after(worker.joins_seconds, self._join, (worker, 1))

    def start(self, order: AttemptOrder) -> None:
        """Start an attempt; ignored if all its workers have left."""
        ranks_on = Counter(rank.worker for rank in order.placement.ranks)
        places = [self._places[name] for name in ranks_on if name in self._places]
        if not places:
            return
        # The ranks wait for the slowest one.
        seconds = max(self._seconds_per_epoch(order.start.params, place.worker) for place in places)
        seconds *= self._relative_seconds(ranks_on.total())
        killed_in_epoch = math.inf
        faults = self._faults
        if faults.killed_attempts or faults.stragglers:
            luck = self._luck(order.attempt)
            if luck.random() < faults.stragglers:
                seconds *= faults.straggler_slowdown
            if luck.random() < faults.killed_attempts:
                killed_in_epoch = luck.random()
        needs = None if self._needs is None else self._needs(order.start.params)
        run = _Run(
            order,
            seconds,
            killed_in_epoch,
            needs,
            self.clock.now(),
            step=order.start.resume_from or 0,
            ranks_on=ranks_on,
        )
        self._runs[order.attempt] = run
        for place in places:
            place.runs.add(order.attempt)
        if len(places) < len(ranks_on):
            self._break(run)
        self._after(self._startup_seconds, self._begin, run)
        timeout = order.brief.limits.trial_timeout_seconds
        if timeout is not None:
            self._after(timeout, self._time_out, run)

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Tell an attempt to stop; it does so at the end of its epoch, or sooner."""
        run = self._runs.get(attempt)
        if run is not None and run.halt is None and not run.is_broken:
            run.halt = halt
            if self._stop_seconds is not None:
                self._after(self._stop_seconds, self._obey, run)

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return what happens next within the time-out; the clock moves there."""
        deadline = self.clock.now() + timeout_seconds
        while not self._awake and self._happenings and self._happenings[0][0] <= deadline:
            until = self._happenings[0][0] + self._batch_seconds
            while self._happenings and self._happenings[0][0] <= until:
                at, _, happen, subject = heapq.heappop(self._happenings)
                self.clock.advance_to(at)
                happen(subject)
            if self._events:
                events, self._events = self._events, []
                return events
        if not self._awake:
            self.clock.advance_to(deadline)
        self._awake = False
        return []

    def wake(self) -> None:
        """Make the next `events` return at once."""
        self._awake = True

    def deliver(self, after_seconds: float, event: Event) -> None:
        """Return another component's event from `events` after this much virtual time."""
        self._after(after_seconds, self._deliver, event)

    def lose_worker(self, name: str) -> None:
        """Lose a worker now, with its attempts."""
        self._after(0.0, self._leave, name)

    def close(self) -> None:
        """End everything."""
        self._happenings.clear()
        self._runs.clear()
        self._places.clear()

    def _deliver(self, event: Event) -> None:
        self._events.append(event)

    # --- what happens -----------------------------------------------------------------------

    def _after(self, seconds: float, happen: Callable[[Any], None], subject: object) -> None:
        at = self.clock.now() + seconds
        heapq.heappush(self._happenings, (at, next(self._order), happen, subject))

    def _luck(self, *of: object) -> random.Random:
        return random.Random(repr((self._seed, *of)))

    def _join(self, coming: tuple[SimulatedWorker, int]) -> None:
        worker, generation = coming
        name = worker.name if generation == 1 else f"{worker.name}-{generation}"
        self._places[name] = _Place(worker, generation, set())
        now, walltime = self.clock.now(), worker.walltime_seconds
        ends_at = None if walltime is None else now + walltime
        node = worker.node or f"node-{name}"
        self._events.append(WorkerJoined(now, name, node, worker.capacity, ends_at, worker.gang))
        if walltime is not None:
            self._after(walltime, self._leave, name)
        if worker.leaves_seconds is not None:
            self._after(worker.leaves_seconds - worker.joins_seconds, self._leave, name)
        if self._faults.worker_life_seconds is not None:
            life = self._luck(name).expovariate(1 / self._faults.worker_life_seconds)
            self._after(life, self._leave, name)

    def _leave(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is None:
            return
        for attempt in sorted(place.runs):
            run = self._runs[attempt]
            if any(worker in self._places for worker in run.ranks_on):
                self._break(run)
            else:
                del self._runs[attempt]
        self._events.append(WorkerLeft(self.clock.now(), name, f"the worker {name} is gone"))
        if self._faults.replaced_after_seconds is not None:
            again = (replace(place.worker, leaves_seconds=None), place.generation + 1)
            self._after(self._faults.replaced_after_seconds, self._join, again)

    def _break(self, run: _Run) -> None:
        """Lose a rank of an attempt: the others wait for it, and are killed some time later."""
        if not run.is_broken:
            run.is_broken = True
            self._after(self._rank_loss_seconds, self._lose, run)

    def _lose(self, run: _Run) -> None:
        if self._runs.get(run.order.attempt) is run:
            lost = [worker for worker in run.ranks_on if worker not in self._places]
            reason = f"the worker {lost[0]} is gone"
            self._end(run, Ending(Cause.WORKER_LOST, reason=reason))

    def _begin(self, run: _Run) -> None:
        if not self._is_running(run):
            return
        order = run.order
        self._events.append(AttemptStarted(self.clock.now(), order.attempt, next(self._pids)))
        try:
            run.curve = self._curve(order.start.params, order.start.seed)[
                : order.brief.limits.epochs
            ]
        except SimulatedEnd as end:
            run.curve, run.ending = end.reported, end.ending
        except Exception as error:  # the boundary of the user's code
            reason = f"{type(error).__name__}: {error}"
            run.ending = Ending(Cause.EXCEPTION, reason=reason)
        if run.killed_in_epoch != math.inf:
            left = len(run.curve) - run.step
            run.killed_in_epoch = run.step + 1 + int(run.killed_in_epoch * left)
        for worker in run.ranks_on:
            self._kill_for_memory(worker)
        if self._is_running(run):
            self._go_on(run)

    def _running_on(self, worker: str) -> list[_Run]:
        return [self._runs[name] for name in sorted(self._places[worker].runs)]

    def _kill_for_memory(self, worker: str) -> None:
        has = self._places[worker].worker.memory_bytes
        runs = {
            run: run.needs.memory_bytes * run.ranks_on[worker]
            for run in self._running_on(worker)
            if run.needs
        }
        while has and sum(runs.values()) > has:
            largest = max(runs, key=runs.__getitem__)
            del runs[largest]
            self._end(largest, Ending(Cause.OUT_OF_MEMORY, reason="out of memory (simulated)"))

    def _slowdown(self, placement: Placement) -> float:
        slowdown = 1.0
        for rank in placement.ranks:
            worker = rank.worker
            neighbours = [(run, run.needs) for run in self._running_on(worker) if run.needs]
            busy = sum(needs.busy * run.ranks_on[worker] for run, needs in neighbours)
            slowdown = max(slowdown, busy / self._places[worker].worker.cores)
            for gpu in rank.gpus:
                on_it = (
                    needs.gpu_busy
                    for run, needs in neighbours
                    for each in run.order.placement.ranks
                    if each.worker == worker and gpu in each.gpus
                )
                slowdown = max(slowdown, sum(on_it))
        return slowdown

    def _go_on(self, run: _Run) -> None:
        if run.step < len(run.curve):
            seconds = run.epoch_seconds
            if run.needs is not None:
                run.cpu_seconds += run.needs.busy * seconds * run.ranks_on.total()
                seconds *= self._slowdown(run.order.placement)
            self._after(seconds, self._end_epoch, run)
        elif run.ending is not None:
            self._end(run, run.ending)
        else:
            result = dict(run.curve[-1]) if run.curve else {}
            self._end(run, Ending(Cause.RETURNED, result, step=run.step or None))

    def _end_epoch(self, run: _Run) -> None:
        if not self._is_running(run):
            return
        run.step += 1
        if run.step >= run.killed_in_epoch:
            self._end(run, Ending(Cause.KILLED, reason="its process was killed by the simulation"))
            return
        metrics = run.curve[run.step - 1]
        attempt = run.order.attempt
        self._events.append(Reported(self.clock.now(), attempt, Report(run.step, metrics)))
        since = run.step - (run.order.start.resume_from or 0)
        if since == 1:
            run.first_epoch_at = self.clock.now()
        if since <= 2:
            self._measure(run)
        for name in (run.order.brief.goals.goal.metric, "loss"):
            if not math.isfinite(metrics.get(name, 0.0)):
                reason = f"{name} is {metrics[name]} at step {run.step}"
                self._end(run, Ending(Cause.NON_FINITE, reason=reason))
                return
        if run.halt is not None:
            self._obey(run)
        else:
            self._go_on(run)

    def _obey(self, run: _Run) -> None:
        if self._is_running(run) and run.halt is not None:
            self._end(run, run.halt.ending)

    def _time_out(self, run: _Run) -> None:
        if self._is_running(run):
            seconds = run.order.brief.limits.trial_timeout_seconds
            reason = f"ran longer than the {seconds:g} s allowed"
            self._end(run, Ending(Cause.TIMED_OUT, reason=reason))

    def _measure(self, run: _Run) -> None:
        if run.needs is None:
            return
        now, steps = self.clock.now(), run.step - (run.order.start.resume_from or 0) - 1
        gpu_bytes = run.needs.gpu_memory_bytes if run.order.placement.gpus else 0
        usage = Usage(
            peak_memory_bytes=run.needs.memory_bytes * run.ranks_on.total(),
            peak_gpu_memory_bytes=gpu_bytes or None,
            cpu_seconds=run.cpu_seconds,
            seconds=now - run.placed_at,
            seconds_per_step=(now - run.first_epoch_at) / steps if steps > 0 else None,
        )
        self._events.append(Measured(now, run.order.attempt, usage))

    def _end(self, run: _Run, ending: Ending) -> None:
        attempt = run.order.attempt
        self._measure(run)
        del self._runs[attempt]
        for worker in run.ranks_on:
            if worker in self._places:
                self._places[worker].runs.discard(attempt)
        self._events.append(AttemptEnded(self.clock.now(), attempt, ending))

    def _is_running(self, run: _Run) -> bool:
        return self._runs.get(run.order.attempt) is run and not run.is_broken

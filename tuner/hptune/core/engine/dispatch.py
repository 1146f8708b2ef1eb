"""The choice of the next trial to start, and of its place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import replace

from ..attempt import AttemptId, Cause
from ..budget import resized
from ..messages import Command, DecidePacking, Measured
from ..packing.occupancy import Occupancy
from ..packing.packing import KEPT_BACK, Packing
from ..packing_plan import PackingPlan
from ..resources import Amount, Placement, Resources
from ..scheduling.cluster import ClusterState
from ..scheduling.queue import TrialQueue
from ..scheduling.stall_reason import stall_reason
from ..scheduling.step_times import StepTimes
from ..study_config import StudyConfig
from ..trial import TrialState
from ..workers import Worker
from .budget_check import BudgetCheck
from .lifecycle import Lifecycle
from .records import AttemptRecord

_RAN_OUT_OF = {Cause.OUT_OF_MEMORY: Amount.MEMORY, Cause.DEVICE_OUT_OF_MEMORY: Amount.GPUS}


class Dispatch:
    """Gives waiting trials places, if there is room, time and budget for them.

    Args:
        lifecycle: The lifecycles of the trials.

    Attributes:
        cluster_state: The workers, and what is free on them.
        budget: What is left of the budget, and for what it pays.
    """

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._records = lifecycle.records
        self._step_times = StepTimes()
        self.budget = BudgetCheck(self._step_times)
        self._packing = Packing()
        self._occupancy = Occupancy(self._trials_per_device)
        self._unshared = 0
        self._has_sizes = True
        self.cluster_state = ClusterState()
        self._waiting = self._new_queue()
        self._sorted_by: Hashable = None

    # --- events -----------------------------------------------------------------------------

    def open(self, config: StudyConfig, *, has_sizes: bool = True) -> None:
        """Begin with a new master: there is no worker yet, and nothing runs.

        Args:
            config: The configuration of the study.
            has_sizes: Whether trials may ask for more than usual; a program takes any trial.
        """
        self._has_sizes = has_sizes
        self.budget.all_ended()
        self.budget.limit = config.budget
        search_trials = config.trials if config.learns else None
        self._packing.open(config.resources, config.measured, search_trials=search_trials)
        self._unshared = 0
        self._occupancy = Occupancy(self._trials_per_device)
        self.cluster_state = ClusterState(
            kept_back=KEPT_BACK if Amount.MEMORY in config.measured else 0.0,
            spread=config.measured,
        )
        self._limit_gpu_sharing()
        self._waiting = self._new_queue()
        self._waiting.add(self._observed(self._records.all_waiting()))

    def _new_queue(self) -> TrialQueue:
        return TrialQueue(
            self._wanted,
            self._seconds,
            self._pays_for,
            lambda number: self._records[number].lost_on,
        )

    def worker_joined(self, worker: Worker) -> None:
        """Add a worker."""
        before = self._packing.most
        self.cluster_state.follow(worker)
        self._update_limit(worker.name, 1)
        if self._packing.most != before:
            self._limit_gpu_sharing()

    def usual_changed(self) -> None:
        """Observe that trials ask for something else by default; those that run keep theirs."""
        usual = self._lifecycle.config.resources
        self._packing.requested = usual
        self._unshared = sum(
            self.cluster_state.slots_when_empty(each, usual) for each in self.cluster_state
        )
        self._packing.limit_for(self._unshared)
        self._waiting.sort_again()

    def _update_limit(self, worker: str, sign: int) -> None:
        """Count how many trials run at once if they share no device."""
        usual = self._lifecycle.config.resources
        self._unshared += sign * self.cluster_state.slots_when_empty(worker, usual)
        self._packing.limit_for(self._unshared)

    def started(self, run: AttemptRecord) -> None:
        """Begin to count the device time of an attempt whose process is running."""
        self.budget.started(run.attempt.id, run.attempt.placement)

    def worker_left(self, worker: Worker) -> None:
        """Remove a worker that is gone."""
        self._update_limit(worker.name, -1)
        self._occupancy.remove(worker.name)
        self._records.worker_left(worker.name)
        self.cluster_state.follow(worker)

    def withdrawn(self, number: int) -> None:
        """Remove a trial that waited and was stopped, and for which workers may be reserved."""
        self._waiting.remove(number)
        self._waiting.reserve(self.cluster_state, 0.0)

    def measured(self, event: Measured) -> None:
        """Observe what a running attempt has used so far."""
        name, usage = event.attempt, event.usage
        self._step_times.observe(name.trial, usage)
        run = self._records.running[name]
        placement = run.attempt.placement
        if not self._lifecycle.config.measured or placement.peers:
            return
        self._packing.measured(
            name,
            usage,
            self._occupancy.update(placement.worker, event.at),
            has_reported=run.latest is not None,
        )
        self._resize([name], event.at)
        if self._packing.is_memory_known and event.free_share is not None:
            self.cluster_state.set_free_share(placement.worker, event.free_share)

    def packing_questions(self) -> list[Command]:
        """Return the question for the next packing plan, if enough is new."""
        most = self.cluster_state.most_memory_bytes
        evidence = self._packing.take_evidence(most_memory_bytes=most)
        return [] if evidence is None else [DecidePacking(evidence)]

    def packing_decided(self, plan: PackingPlan, *, at: float) -> None:
        """Give trials what a new plan says from now on."""
        before, was_known = self._packing.most, self._packing.is_memory_known
        self._packing.adopt(plan)
        if self._packing.most != before or self._packing.is_memory_known != was_known:
            # What running trials hold beyond their new part is free for others at once.
            self._limit_gpu_sharing()
            self._resize(list(self._records.running), at)

    def ended(self, name: AttemptId, cause: Cause, *, at: float) -> None:
        """Free what an attempt held that is over."""
        self.budget.ended(name)
        placement = self._records.running[name].attempt.placement
        self._update_occupancy(placement, at)
        left = {each for each in placement.workers if name not in self._records.running_on(each)}
        self.cluster_state.give_back(placement, left=left)
        self._packing.ended(
            name,
            granted_bytes=placement.memory_bytes,
            out_of=_RAN_OUT_OF.get(cause),
            is_well=cause is Cause.RETURNED,
        )

    def _update_occupancy(self, placement: Placement, at: float) -> None:
        for worker in placement.workers:
            if worker in self.cluster_state:
                self._occupancy.update(worker, at)

    def _trials_per_device(self, worker: str, device: Amount) -> float:
        return self.cluster_state.trials_per_device(worker, device, self._records.count_on(worker))

    def _resize(self, names: Iterable[AttemptId], at: float) -> None:
        """Change what running attempts hold to what is known of them now."""
        for name in names:
            run = self._records.running[name]
            before = run.attempt.placement
            if before.peers:
                continue  # several processes are not packed
            wanted = self._packing.held(
                name,
                before.memory_bytes,
                self._wanted(name.trial),
                requested=self._requested(name.trial),
            )
            after = self.cluster_state.resize(before, wanted)
            if after != before:
                self._records.put_attempt(run, resized(run.attempt, after, at=at))
                self.budget.resized(name, after)

    def _limit_gpu_sharing(self) -> None:
        if Amount.GPUS in self._lifecycle.config.measured:
            self.cluster_state.set_most_per_gpu(self._packing.most[Amount.GPUS])

    def queue_waiting(self) -> None:
        """Queue the trials that wait since the last call, by what they ask for now."""
        newly = self._observed(self._records.take_newly_waiting())
        sizes_follow_from = self._packing.revision, self.cluster_state.most_memory_bytes
        if sizes_follow_from != self._sorted_by:
            self._sorted_by = sizes_follow_from
            self._waiting.sort_again()
        self._waiting.add(newly)

    def _observed(self, waiting: list[tuple[bool, int]]) -> list[tuple[bool, int]]:
        """Observe what trials ask for that wait from now on, and return them."""
        for _, number in waiting:
            self._packing.asked(self._requested(number))
        return waiting

    # --- decisions --------------------------------------------------------------------------

    def place(self, at: float, *, others_come: bool) -> list[Command]:
        """Start all waiting trials for which there is room, the promoted ones first.

        Args:
            at: Now, in seconds since the epoch.
            others_come: Whether there will be trials for places that are left free.
        """
        commands: list[Command] = []
        self.queue_waiting()
        if not self.is_affordable:
            return commands
        while self._records.waiting or self._records.count(TrialState.PAUSED):
            if self._may_continue:
                commands += self._lifecycle.promote(is_last=False)
            self.queue_waiting()
            found = self._waiting.place(self.cluster_state, at, others_come=others_come)
            if found is None:
                break
            number, placement = found
            self._update_occupancy(placement, at)
            nodes = tuple(self.cluster_state.node(rank.worker) for rank in placement.ranks)
            why = "" if placement.peers else self.packing
            start = self._lifecycle.start(number, placement, nodes=nodes, at=at, why=why)
            if self._lifecycle.config.measured and not placement.peers:
                has_gpus = bool(placement.gpus)
                self._packing.placed(start.attempt, start.params, has_gpus=has_gpus)
            commands.append(start)
        return commands

    def slots_for_more(self, at_most: int, *, at: float) -> int:
        """Return for how many more trials there is room, after those that wait."""
        usual = self._usual
        if not self._pays_for(usual) or not self.cluster_state.free_slots(usual):
            return 0
        until = at + self._step_times.seconds()[0]
        self._waiting.reserve(self.cluster_state, until)
        return self.cluster_state.free_slots(usual, at_most, until=until)

    @property
    def is_affordable(self) -> bool:
        """Whether the budget pays for a step of a waiting trial, or of a new one if none waits."""
        if self.budget.limit is None:
            return True
        return any(map(self._pays_for, list(self._waiting.sizes) or [self._usual]))

    def _pays_for(self, wanted: Resources) -> bool:
        """Return whether the budget pays for a step of a trial that asks for this much."""
        if self.budget.limit is not None and wanted.takes_cores_of_gpus:
            wanted = replace(wanted, cpus=self.cluster_state.fewest_cpus(wanted))
        return self.budget.pays_for(wanted)

    @property
    def packing(self) -> str:
        """The latest change of packing and its reason; empty if nothing is measured."""
        return self._packing.reason if self._lifecycle.config.measured else ""

    @property
    def packing_advice(self) -> str:
        """How more trials could run at once than the search's limit allows; empty for no limit."""
        return self._packing.advice if self._lifecycle.config.measured else ""

    def stall_reason(self, *, at: float, refused: str) -> str:
        """Return why no trial starts, for the user; empty if one may."""
        return stall_reason(
            self.cluster_state,
            self._waiting.sizes,
            self._usual,
            is_running=bool(self._records.running),
            refused=refused,
            at=at,
            step_seconds=self._step_times.seconds()[0],
        )

    # --- what trials ask for ----------------------------------------------------------------

    def sizes(
        self, *, with_waiting: bool, without: Collection[AttemptId] = ()
    ) -> Mapping[Resources, int]:
        """Return the number of trials by what the user asked for, before packing.

        Args:
            with_waiting: Whether to count those that wait, too, and not only those that run.
            without: Running attempts that are not counted, as they need no workers of the master's.
        """
        most = self.cluster_state.most_memory_bytes
        waiting = self._waiting.numbers if with_waiting else ()
        own = (name.trial for name in self._records.running if name not in without)
        numbers = [*own, *waiting]
        usual = self._lifecycle.config.resources
        records = [self._records[number] for number in numbers]
        return Counter(
            record.wants(record.resources or usual, most_memory_bytes=most) for record in records
        )

    @property
    def _usual(self) -> Resources:
        return self._packing.usual(most_memory_bytes=self.cluster_state.most_memory_bytes)

    def _wanted(self, number: int) -> Resources:
        record, most = self._records[number], self.cluster_state.most_memory_bytes
        requested = self._requested(number)
        sized = self._packing.sized(record.trial.params, requested, most_memory_bytes=most)
        return record.wants(sized, most_memory_bytes=most)

    def _requested(self, number: int) -> Resources:
        """Return what the user asked for, for this trial or else for all."""
        own = self._records[number].resources if self._has_sizes else None
        return own or self._lifecycle.config.resources

    def _seconds(self, number: int) -> tuple[float, float]:
        epochs = self._lifecycle.config.pruner.epochs
        left = None if epochs is None else epochs - self._records[number].reached
        return self._step_times.seconds(number, steps_left=left)

    @property
    def _may_continue(self) -> bool:
        """Whether there is room for a paused trial that no waiting trial needs."""
        is_paused = self._records.count(TrialState.PAUSED)
        is_free = self._waiting.blocked is None
        return bool(is_paused and is_free and self.cluster_state.free_slots(self._usual))

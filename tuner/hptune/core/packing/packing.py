"""What trials are given where the user does not say: what other trials were measured to use.

The plan is decided outside the engine (`core.packing.decision`) and recorded in the ledger.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..attempt import AttemptId, Usage
from ..packing_plan import (
    MAX_TRIALS_PER_CORE,
    MIN_OBSERVED,
    Estimate,
    Observation,
    PackingEvidence,
    PackingPlan,
    Training,
)
from ..resources import Amount, Resources
from ..trial import Params
from .occupancy import Interval

ONE_IN = 10
"""A search that learns runs at most one in this many of its trials at once by sharing devices.

So it knows the results of nine tenths of them before it proposes the last. Measured
(benchmarks/README.md): batches of 8 cost bayesian and tpe 0.46 and 0.16 of the score where they
were a third of the trials, 0.17 both where they were a sixth, and 0.03 and nothing where they were
a twelfth.
"""

KEPT_BACK = 0.05
"""The share of a worker's memory that is not given to trials if memory is measured.

Together with the margin of each trial, it is more than the free share below which a worker ends
attempts that hold too much (`SHORT_SHARE` in `worker.monitoring`). A trial that asks for all of a
worker's memory gets the rest."""

_REMEMBERED = 96
"""Latest trials that a plan is decided from."""

_NEWS_SHARE = 8
"""A new plan is decided once more than one in this many observations are new."""

_ALIKE = 0.05
"""Measurements that differ by less than this share are the same: they are no news."""

_SIZES_PER_OCTAVE = 32
"""Sizes between a power of two and the next: few, so that many trials ask for the same."""

_SLACK = 1.05
"""Growth of a running trial that is not measured again (`worker.monitoring.usage`); a trial that
has trained for a while keeps no more than this free."""

_GPU_CONTEXT = 1.1
"""A framework's context on a GPU takes room in addition to the memory that it is limited to."""

_CAUTION = 1.25
_MAX_CAUTION = 4.0
_TRUST = 0.98
"""Each trial that runs out of memory multiplies what all are given by `_CAUTION`; each one that
ends well takes some of that back."""

_MOMENT_SECONDS = 1.0


def rounded_up(size: float) -> int:
    """Return a size in bytes, rounded up so that there are few different ones.

    >>> rounded_up(1000.0), rounded_up(1024.0), rounded_up(1025.0)
    (1003, 1024, 1047)
    """
    steps = math.ceil(_SIZES_PER_OCTAVE * math.log2(size) - 1e-9)
    return math.ceil(2 ** (steps / _SIZES_PER_OCTAVE))


@dataclass(slots=True)
class _Watched:
    """A running attempt.

    Attributes:
        params: Its hyperparameters.
        device: The kind of device that counts: GPUS if it holds one, else CPUS.
        most: The number of trials that could share its device when it was placed.
        first: Its usage at its first report; None before.
        latest: Its latest usage; None before the first measurement.
        first_interval: The occupancy of its device at `first`.
        latest_interval: The occupancy of its device at `latest`.
        has_trained: Whether it was observed to train for a while.
        observed: The latest observation of it, which may be too old to be remembered; None before
            the first.
    """

    params: Params
    device: Amount
    most: int
    first: Usage | None = None
    latest: Usage | None = None
    first_interval: Interval | None = None
    latest_interval: Interval | None = None
    has_trained: bool = False
    observed: Observation | None = None


class Packing:
    """Says what trials are given, and collects what the next plan is decided from.

    Its state follows from the events alone. Questions do not change it.

    Attributes:
        reason: The latest change and its reason, for the user; empty if nothing changed yet.
        requested: What the user asks for, where no configuration says otherwise.
        revision: A number that changes whenever trials may be given something else.
    """

    def __init__(self) -> None:
        self.reason = ""
        self.requested = Resources()
        self.revision = 0
        self._plan = PackingPlan()
        self._measured: tuple[Amount, ...] = ()
        self._search_trials: int | None = None
        self._limit = sys.maxsize
        self._caution = {Amount.MEMORY: 1.0, Amount.GPUS: 1.0}
        self._are_cores_used = False
        self._are_cores_scarce = False
        self._watched: dict[AttemptId, _Watched] = {}
        self._observations: dict[int, Observation] = {}
        self._settled = {Amount.CPUS: 0, Amount.GPUS: 0}
        self._news = 0
        self._is_due = False
        self._usual: tuple[object, Resources] = (None, self.requested)

    def open(
        self, requested: Resources, measured: Iterable[Amount], *, search_trials: int | None = None
    ) -> None:
        """Begin with a new master; nothing runs.

        Args:
            requested: What the user asked for.
            measured: The amounts that measurement decides instead.
            search_trials: The total number of trials of a search that learns; None if it does not
                learn, or has no end.
        """
        self.requested = requested
        self._are_cores_used = self._are_cores_scarce = False
        self.asked(requested)
        self._measured = tuple(sorted(set(measured)))
        self._search_trials = search_trials
        self._watched.clear()
        self.limit_for(0)
        # The last master may have ended before it answered.
        self._is_due = True

    def limit_for(self, unshared: int) -> None:
        """Limit the trials on a device where a search is to learn from them (`ONE_IN`).

        Args:
            unshared: The number of trials that run at once if they share no device; this many run
                in any case.
        """
        before, self._limit = self.most, sys.maxsize
        if self._search_trials is not None:
            self._limit = max(1, self._search_trials // (ONE_IN * max(1, unshared)))
        self._is_due = self._is_due or self.most != before
        self._changed(before)

    # --- the plan ---------------------------------------------------------------------------

    def take_evidence(self, *, most_memory_bytes: int) -> PackingEvidence | None:
        """Return what to decide the next plan from, once; None if too little is new.

        Args:
            most_memory_bytes: What the largest worker has; 0 if unknown.
        """
        if not (self._is_due and self._measured and self._observations):
            return None
        self._news, self._is_due = 0, False
        return PackingEvidence(
            self._plan,
            self._measured,
            tuple(self._observations.values()),
            dict(self._settled),
            self._limit,
            most_memory_bytes,
        )

    def adopt(self, plan: PackingPlan) -> None:
        """Give trials what a new plan says from now on."""
        before = self.most
        if plan.reason != self._plan.reason:
            self.reason = plan.reason
        self._plan = plan
        self._changed(before)

    def _changed(self, before: Mapping[Amount, int]) -> None:
        self.revision += 1
        for device, most in self.most.items():
            if most != before[device]:
                self._settled[device] = 0

    @property
    def advice(self) -> str:
        """The advice of the plan in force; see `PackingPlan`."""
        return self._plan.advice

    @property
    def most(self) -> Mapping[Amount, int]:
        """The number of trials that may share a core (without a GPU), or a GPU."""
        plan = self._plan
        return {
            Amount.CPUS: min(plan.cores.most, self._limit),
            Amount.GPUS: min(plan.gpus.most, self._limit),
        }

    # --- what trials are given --------------------------------------------------------------

    @property
    def is_memory_known(self) -> bool:
        """Whether trials are given the memory that they are expected to need."""
        return Amount.MEMORY in self._measured and self._plan.memory is not None

    def usual(self, *, most_memory_bytes: int) -> Resources:
        """Return what a trial is given whose hyperparameters are not known yet."""
        follows_from = self.revision, self.requested, most_memory_bytes
        if self._usual[0] != follows_from:
            sized = self.sized(None, self.requested, most_memory_bytes=most_memory_bytes)
            self._usual = follows_from, sized
        return self._usual[1]

    def sized(
        self, params: Params | None, requested: Resources, *, most_memory_bytes: int
    ) -> Resources:
        """Return what a trial is given.

        Args:
            params: Its hyperparameters; None if they are not known yet.
            requested: What was asked for; amounts that are not measured are left as they are.
            most_memory_bytes: What the largest worker has; 0 if unknown.
        """
        if requested.takes_cores_of_gpus and self._are_cores_scarce:
            requested = replace(requested, takes_cores_of_gpus=False)
        asked, count = requested.of_one_node.memory_bytes, requested.processes
        is_all = int((1.0 - KEPT_BACK) * asked) <= most_memory_bytes < asked
        if is_all and Amount.MEMORY in self._measured:
            each = requested.nodes * most_memory_bytes // count
            requested = replace(requested, memory_bytes=count * each)
        if count > 1:
            return requested  # what one process uses says nothing of several
        plan, changes = self._plan, dict[str, Any]()
        if not asked and self.is_memory_known and plan.memory is not None:
            needed = rounded_up(self._caution[Amount.MEMORY] * _upper(plan.memory, params))
            changes["memory_bytes"] = min(needed, most_memory_bytes or needed)
        if requested.cpus == 1 and Amount.CPUS in self._measured:
            changes["cpus"] = self._part_of_a_core(params)
        if self._is_gpu_measured(requested) and plan.gpu_memory is not None:
            margin = _GPU_CONTEXT * self._caution[Amount.GPUS]
            changes["gpu_memory_bytes"] = rounded_up(margin * _upper(plan.gpu_memory, params))
        return replace(requested, **changes) if changes else requested

    def _part_of_a_core(self, params: Params | None) -> float:
        # Where it will run is not known yet, so it is given what it needs anywhere.
        each = [sharing.trials_per_core(params) for sharing in (self._plan.cores, self._plan.gpus)]
        known = [count for count in each if count is not None]
        if not known:
            return 1
        # Where all trials hold GPUs, the limit concerns those.
        most = min(MAX_TRIALS_PER_CORE, self._limit)
        if self._are_cores_used:
            most = self.most[Amount.CPUS]
        count = min(most, *known)
        return 1 if count == 1 else 1 / count

    def _is_gpu_measured(self, requested: Resources) -> bool:
        is_open = requested.gpus is None and not requested.gpu_memory_bytes
        return is_open and Amount.GPUS in self._measured and self._plan.gpu_memory is not None

    def held(
        self, name: AttemptId, granted_bytes: int, wanted: Resources, *, requested: Resources
    ) -> Resources:
        """Return what a running attempt is assumed to hold.

        Args:
            name: The attempt.
            granted_bytes: Host memory that it was given.
            wanted: What it would be given now.
            requested: What was asked for.
        """
        watched = self._watched.get(name)
        used = None if watched is None else watched.latest
        if Amount.MEMORY not in self._measured or requested.memory_bytes:
            wanted = replace(wanted, memory_bytes=granted_bytes)
        elif used is not None:
            memory = rounded_up(_SLACK * used.peak_memory_bytes)
            if watched is None or not watched.has_trained:  # it may be about to need more
                memory = max(granted_bytes, memory)
            wanted = replace(wanted, memory_bytes=memory)
        if used is not None and wanted.gpu_memory_bytes and self._is_gpu_measured(requested):
            own = rounded_up(_SLACK * max(1, used.peak_gpu_memory_bytes or 0))
            wanted = replace(wanted, gpu_memory_bytes=max(wanted.gpu_memory_bytes, own))
        return wanted

    # --- what is observed -------------------------------------------------------------------

    def asked(self, requested: Resources) -> None:
        """Observe what a trial asks for: one that does without GPUs needs cores next to them."""
        if requested.gpus == 0 and not self._are_cores_scarce:
            self._are_cores_scarce = True
            self.revision += 1

    def placed(self, name: AttemptId, params: Params, *, has_gpus: bool) -> None:
        """Watch an attempt that was placed."""
        device = Amount.GPUS if has_gpus else Amount.CPUS
        if not has_gpus and not self._are_cores_used:
            self._are_cores_used = True
            self.revision += 1
        self._watched[name] = _Watched(params, device, self.most[device])

    def measured(
        self,
        name: AttemptId,
        usage: Usage,
        intervals: Mapping[Amount, Interval],
        *,
        has_reported: bool,
    ) -> None:
        """Observe what a running attempt has used.

        Args:
            name: The attempt.
            usage: What it has used.
            intervals: The occupancy of its worker's cores and GPUs.
            has_reported: Whether it has reported a step. One that has not counts once it has ended
                well: an attempt that fails at once says nothing about others.
        """
        watched = self._watched.get(name)
        if watched is None or not self._measured:
            return
        watched.latest, watched.latest_interval = usage, intervals[watched.device]
        if has_reported and watched.first is None:
            watched.first, watched.first_interval = usage, watched.latest_interval
            self._observe(name, watched, usage)
        elif has_reported and watched.first is not None:
            since = usage.since(watched.first)
            # Its start says little about the rest, and a moment says nothing.
            is_long = since.seconds >= min(_MOMENT_SECONDS, 0.25 * watched.first.seconds)
            self._observe(name, watched, usage, trained=since if is_long else None)

    def ended(
        self, name: AttemptId, *, granted_bytes: int, out_of: Amount | None, is_well: bool
    ) -> None:
        """Observe the end of an attempt.

        Args:
            name: The attempt.
            granted_bytes: Host memory that it was given.
            out_of: The memory that it ran out of: MEMORY of the host or of the GPUS; None if of
                neither.
            is_well: Whether it returned.
        """
        watched = self._watched.pop(name, None)
        if watched is None or not self._measured:
            return
        used = watched.latest
        if out_of is not None:
            self._ran_out(out_of)
            if out_of is Amount.MEMORY:
                held = max(granted_bytes, 0 if used is None else used.peak_memory_bytes)
                self._observe_shortage(name, watched.params, held)
        elif used is not None and (is_well or watched.first is not None):
            if max(self._caution.values()) > 1.0:
                self._caution = {a: max(1.0, _TRUST * c) for a, c in self._caution.items()}
                self.revision += 1
            if not watched.has_trained:
                self._observe(name, watched, used, trained=used)

    def _ran_out(self, amount: Amount) -> None:
        caution = min(_MAX_CAUTION, _CAUTION * self._caution[amount])
        self._caution[amount] = caution
        self.revision += 1
        kind = "GPU memory" if amount is Amount.GPUS else "memory"
        self.reason = f"{caution:.3g} times the expected {kind} for each trial (one ran out of it)"

    def _observe_shortage(self, name: AttemptId, params: Params, held: int) -> None:
        """Observe a trial that would have come to hold more; that matters if it was unexpected."""
        before = self._observations.pop(name.trial, None)
        expected = 0.0 if self._plan.memory is None else self._plan.memory.typical(params)
        if held > expected:
            self._put(
                name.trial, before, replace(before or Observation(params, 0), memory_bytes=held)
            )

    def _observe(
        self, name: AttemptId, watched: _Watched, usage: Usage, *, trained: Usage | None = None
    ) -> None:
        before = self._observations.pop(name.trial, watched.observed)
        training = None if before is None else before.training
        interval = watched.latest_interval
        if trained is not None and trained.seconds > 0.0 and interval is not None:
            co_located = interval.co_located_since(watched.first_interval or interval)
            training = Training(watched.device, co_located, trained.busy, trained.seconds_per_step)
            if not watched.has_trained:
                watched.has_trained = True
                if watched.most == self.most[watched.device]:
                    self._settled[watched.device] += 1
                    self._is_due |= self._settled[watched.device] == MIN_OBSERVED
        # 0 if a driver does not know the processes of the attempt.
        gpu_bytes = usage.peak_gpu_memory_bytes or (before.gpu_memory_bytes if before else 0)
        after = Observation(watched.params, usage.peak_memory_bytes, gpu_bytes, training)
        watched.observed = after
        self._put(name.trial, before, after)

    def _put(self, trial: int, before: Observation | None, after: Observation) -> None:
        self._observations[trial] = after
        if len(self._observations) > _REMEMBERED:
            del self._observations[next(iter(self._observations))]
        self._news += before is None or not _are_alike(before, after)
        self._is_due |= self._news > len(self._observations) // _NEWS_SHARE


def _upper(memory: Estimate, params: Params | None) -> float:
    return memory.usual_upper if params is None else memory.upper(params)


def _are_alike(one: Observation, other: Observation) -> bool:
    return (one.training is None) == (other.training is None) and all(
        math.isclose(*amounts, rel_tol=_ALIKE)
        for amounts in (
            (one.memory_bytes, other.memory_bytes),
            (one.gpu_memory_bytes, other.gpu_memory_bytes),
        )
    )

"""Costs of attempts: device hours, waiting time, idle cores and energy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ... import text
from ...core.attempt import Attempt, Outcome, known_sum
from ...core.budget import Device, held_seconds, hours_of
from ...core.goals import JOULES_PER_KWH
from ...core.trial import TrialState
from .evidence import NONE, Answer
from .view import StudyView

_HOUR = 3600.0

_LEAST_ENDED = 10
"""Trials that ended, from which on it is told what became of the device hours."""

_LEAST_SHARE = 0.01

_USES = {
    TrialState.COMPLETE: "used well",
    TrialState.PRUNED: "pruned",
    TrialState.FAILED: "failed",
}
_LOST, _IDLE, _UNFINISHED = "lost and repeated", "idle cores", "unfinished trials"
EVERY_USE = (*_USES.values(), _LOST, _IDLE, _UNFINISHED)
_USES_OF_ATTEMPTS = {Outcome.LOST: _LOST, Outcome.ERRORED: _USES[TrialState.FAILED]}
"""What some attempts were used for whatever became of their trials, which others may complete."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The cost of some attempts.

    Attributes:
        core_hours: Time for which cores were held, from the processes' starts to their ends.
        gpu_hours: Time for which GPUs were held; parts of a GPU count as parts.
        wait_seconds: Time from the attempts' placements to the starts of their processes, for
            example for devices that another study holds.
        idle_core_hours: Measured time for which held cores did not compute. Waiting for a core
            that other processes use does not count as idle.
        energy_kwh: Energy, of what could be measured; None if nothing could.
        gpu_energy_kwh: The part of GPUs.
        processor_energy_kwh: The part of processors and memory.
    """

    core_hours: float = 0.0
    gpu_hours: float = 0.0
    wait_seconds: float = 0.0
    idle_core_hours: float = 0.0
    energy_kwh: float | None = None
    gpu_energy_kwh: float | None = None
    processor_energy_kwh: float | None = None

    @property
    def idle_share(self) -> float:
        """The part of the core hours in which the cores did not compute."""
        return self.idle_core_hours / self.core_hours if self.core_hours else 0.0

    @property
    def energy_text(self) -> str:
        """The energy in words, with the part that it is of; empty if none was measured."""
        if self.energy_kwh is None:
            return ""
        words = text.energy(self.energy_kwh)
        if self.processor_energy_kwh is None:
            return f"{words} (GPUs only, processors not readable)"
        if self.gpu_energy_kwh is not None:
            return f"{words} (GPUs {text.energy(self.gpu_energy_kwh)})"
        return f"{words} (processors only, GPUs not readable)" if self.gpu_hours else words


def costs_of(attempts: Iterable[Attempt], *, now: float | None = None) -> Costs:
    """Return the costs of attempts.

    Args:
        attempts: The attempts; some may still run.
        now: The time in seconds since the epoch; None leaves out attempts without a known end,
            because it is unknown whether they still run.
    """
    counted = [attempt for attempt in attempts if attempt.ended_at is not None or now is not None]
    until = 0.0 if now is None else now
    used = [attempt.usage for attempt in counted if attempt.usage is not None]
    return Costs(
        core_hours=hours_of(counted, Device.CORE, now=until),
        gpu_hours=hours_of(counted, Device.GPU, now=until),
        wait_seconds=sum((_waited(each, until) for each in counted), start=0.0),
        idle_core_hours=sum(_idle_seconds(each, until) for each in counted) / _HOUR,
        energy_kwh=_kwh(usage.joules for usage in used),
        gpu_energy_kwh=_kwh(usage.gpu_joules for usage in used),
        processor_energy_kwh=_kwh(usage.processor_joules for usage in used),
    )


def _kwh(joules: Iterable[float | None]) -> float | None:
    found = known_sum(joules)
    return None if found is None else found / JOULES_PER_KWH


def costs_of_study(view: StudyView, now: float) -> Costs:
    """Return the costs of a study's attempts; without a master, of those whose end is known."""
    return costs_of(view.attempts, now=now if view.is_live else None)


def uses_of_study(view: StudyView, now: float) -> dict[str, tuple[int, Costs]]:
    """Return what the device hours were used for: how many trials, and their costs.

    Idle time is counted apart, and not with the trials whose cores were idle.
    """
    states = {trial.number: trial.state for trial in view.trials}
    groups: dict[str, list[Attempt]] = {}
    for each in view.attempts:
        use = _USES.get(states.get(each.id.trial, TrialState.RUNNING), _UNFINISHED)
        use = use if each.outcome is None else _USES_OF_ATTEMPTS.get(each.outcome, use)
        groups.setdefault(use, []).append(each)
    until = now if view.is_live else None
    uses, idle = {}, 0.0
    for use, attempts in groups.items():
        costs = costs_of(attempts, now=until)
        idle += costs.idle_core_hours
        busy = replace(costs, core_hours=costs.core_hours - costs.idle_core_hours)
        uses[use] = len({each.id.trial for each in attempts}), busy
    if idle:
        uses[_IDLE] = 0, Costs(core_hours=idle)
    return {use: uses[use] for use in EVERY_USE if use in uses}


def use_shares(uses: Mapping[str, tuple[int, Costs]]) -> tuple[Device, dict[str, float]]:
    """Return the hours of each use of GPUs, or of cores if there were no GPUs."""
    device = Device.GPU if any(costs.gpu_hours for _, costs in uses.values()) else Device.CORE
    is_gpu = device is Device.GPU
    hours = {use: c.gpu_hours if is_gpu else c.core_hours for use, (_, c) in uses.items()}
    return device, {use: each for use, each in hours.items() if each > 0.0}


def waste_answer(view: StudyView, now: float) -> Answer:
    """Return which part of the device hours was used well, and where the others went."""
    device, hours = use_shares(uses_of_study(view, now))
    whole = sum(hours.values())
    if view.ended < _LEAST_ENDED or not whole:
        return NONE
    held = text.held(whole, "GPU" if device is Device.GPU else "core")
    well = _USES[TrialState.COMPLETE]
    shares = {use: each / whole for use, each in hours.items() if use != well}
    others = ", ".join(f"{use} {each:.0%}" for use, each in shares.items() if each >= _LEAST_SHARE)
    words = f"of {held}, {hours.get(well, 0.0) / whole:.0%} were used well"
    return Answer(f"{words}; {others}" if others else words, "costs")


def trials_that_shared(attempts: Iterable[Attempt]) -> set[int]:
    """Return the trials that held a GPU, or a core if they had no GPU, at the same time as others.

    Only attempts that were packed by measurement count.
    """
    last: dict[tuple[str, object], tuple[float, int]] = {}
    shared: set[int] = set()
    for each in sorted(attempts, key=lambda each: each.placed_at):
        trial, end = each.id.trial, math.inf if each.ended_at is None else each.ended_at
        for rank in each.placement.ranks:
            for device in rank.gpus or rank.cpus:
                until, other = last.get((rank.worker, device), (-math.inf, trial))
                if each.why and each.placed_at < until:
                    shared |= {trial, other}
                last[rank.worker, device] = max((until, other), (end, trial))
    return shared


def _waited(attempt: Attempt, now: float) -> float:
    until = next(at for at in (attempt.started_at, attempt.ended_at, now) if at is not None)
    return max(0.0, until - attempt.placed_at)


def _idle_seconds(attempt: Attempt, now: float) -> float:
    used, seconds = attempt.usage, attempt.seconds(now)
    if used is None or not seconds:
        return 0.0
    # The measurement begins before the process, and ends with the last message from the worker.
    measured = min(used.seconds, seconds) / seconds
    held = measured * held_seconds(attempt, Device.CORE, now=now)
    return max(0.0, held - used.cpu_seconds - used.starved_seconds)

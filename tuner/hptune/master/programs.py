"""Programs that train trials, as workers under leases: what happens by their calls.

The same events follow whether a program lets them happen under its own lock (`ask_tell`), or a
master that runs beside it does (`user_requests`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..core.attempt import Attempt, Cause, Ending
from ..core.engine.engine import Engine
from ..core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    ParametersUsed,
    Reported,
    Start,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from ..core.resources import Capacity, Resources
from ..core.workers import Phase
from ..errors import StudyError
from ..text import duration

BESIDE_PROGRAMS_SECONDS = 0.05
"""How often a master looks for what programs tell while they have trials."""

_NO_PID = 0
"""The process of a program may be on any machine, and several may train one trial."""


def taken(at: float, start: Start) -> tuple[Event, ...]:
    """Return that a program has the trial that it asked for, and takes no second one."""
    return (
        AttemptStarted(at, start.attempt, _NO_PID),
        WorkerLeaving(at, start.placement.worker, "it has its trial"),
    )


def ended(at: float, attempt: Attempt, ending: Ending) -> tuple[Event, ...]:
    """Return the end of the attempt of a program, which is no worker any more then."""
    worker = attempt.placement.worker
    return (
        AttemptEnded(at, attempt.id, ending),
        WorkerLeft(at, worker, ending.reason or "its trial is over"),
    )


def without_trial(at: float, worker: str) -> WorkerLeft:
    """Return that a program that asked has left, as there is no trial for it."""
    return WorkerLeft(at, worker, "there was no trial for it")


def past_leases(engine: Engine, at: float) -> list[Event]:
    """Return the ends of the attempts that are past their leases."""
    events: list[Event] = []
    for leased in engine.leased.values():
        if leased.is_past_lease(at):
            reason = f"it was not told within its lease of {duration(leased.lease_seconds)}"
            events += ended(at, leased.attempt, Ending(Cause.WORKER_LOST, reason=reason))
    return events


# --- beside a master ------------------------------------------------------------------------


def requested(engine: Engine, event: Event | None, at: float) -> Sequence[Event]:
    """Return what happens by what a program asks or tells a master.

    A request that is repeated changes nothing: a trial is told once, and an asking worker has a
    name of its own.

    Raises:
        StudyError: It is refused.
    """
    match event:
        case WorkerJoined(worker=worker, lease_seconds=float(lease)) if 0 < lease < math.inf:
            if engine.workers.get(worker) is not None:
                return ()
            usual = engine.snapshot.usual
            if usual.nodes > 1:
                raise StudyError("its trials run on several nodes, which only a master provides")
            if not engine.has_trials:
                raise StudyError("no trial is free")
            place = _place(usual)
            return (WorkerJoined(at, worker, event.node, place, lease_seconds=lease),)
        case Reported(attempt=name, report=report) if engine.is_leased(name):
            if engine.leased[name].latest == report:
                return ()
            if report.metrics.keys() >= set(engine.snapshot.goals.metrics):
                return (Reported(at, name, report),)
        case ParametersUsed(attempt=name, values=values) if engine.is_leased(name):
            trial = engine.trial(name.trial)
            if trial is not None and values.keys() >= trial.params.keys():
                return (ParametersUsed(at, name, event.declared, values, event.unused),)
        case AttemptEnded(attempt=name, ending=ending) if engine.is_leased(name):
            return ended(at, engine.leased[name].attempt, ending)
        case _:
            pass
    raise StudyError("the trial is over, or the request is none")


def left_without_trial(engine: Engine, at: float) -> list[Event]:
    """Return that the programs leave for which the search has no trial now."""
    if engine.is_asking and engine.has_trials:
        return []
    return [
        without_trial(at, worker.name)
        for worker in engine.workers
        if worker.lease_seconds is not None and worker.phase is Phase.JOINED
    ]


def _place(usual: Resources) -> Capacity:
    """Return what a program is counted as beside a master: what a trial usually holds."""
    gpus = tuple(f"program-{number}" for number in range(math.ceil(usual.gpus or 0)))
    return Capacity(cpus=tuple(range(math.ceil(usual.cpus))), gpus=gpus)

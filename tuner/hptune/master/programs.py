"""Programs that train trials, as workers under leases: what happens by what they ask and tell.

The same events follow whether a program lets them happen under its own lock (`ask_tell`), or a
master that runs beside it does (`user_requests`).
"""

from __future__ import annotations

import math
import os
import re
import secrets
import socket
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.attempt import Attempt, AttemptId, Cause, Ending
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
from ..errors import StudyError, UsageError
from ..text import duration
from ..worker.process_ids import began

BESIDE_PROGRAMS_SECONDS = 0.05
"""How often a master looks for what programs tell while they have trials."""

Told = Reported | ParametersUsed | AttemptEnded
"""What programs tell of an attempt."""

_NAME = re.compile(r"(-[0-9]+\.[0-9]+)?-([0-9]{1,9})-[0-9a-f]{8}$")
"""The end of a program's name: its place and beginning if its trial ends with it, its process, and
what distinguishes its calls."""


def program(lease_seconds: float, *, ends_with_process: bool = False) -> WorkerJoined:
    """Return that this process asks for one trial, as a worker with a name of its own.

    Args:
        lease_seconds: How long it may report nothing.
        ends_with_process: Whether the trial is over if this process is; otherwise another one may
            train it, and tell its result.
    """
    host, pid = socket.gethostname(), os.getpid()
    life = f"-{_namespace()}.{began(pid)}" if ends_with_process else ""
    name = f"{host}{life}-{pid}-{secrets.token_hex(4)}"
    return WorkerJoined(time.time(), name, host, Capacity(()), lease_seconds=float(lease_seconds))


def is_gone(attempt: Attempt) -> bool:
    """Return whether an attempt was to end with a process of this machine, and this has ended."""
    found = _NAME.search(attempt.placement.worker)
    if found is None or not found[1] or attempt.node != socket.gethostname():
        return False
    namespace, _, beginning = found[1][1:].partition(".")
    pid = int(found[2])
    if namespace != _namespace():  # a container has process ids of its own
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # of another user
        pass
    return began(pid) not in ("", beginning)  # another process may have its id now


def may_wait(event: Event) -> bool:
    """Return whether a program may wait for the answer to an event; what it tells counts anyway.

    One that is hidden here may seem to have ended. It takes the lock itself without an answer.
    """
    if not isinstance(event, WorkerJoined) or event.node != socket.gethostname():
        return True
    found = _NAME.search(event.worker)
    return found is None or began(int(found[2])) != ""


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)


def follows(
    engine: Engine, event: Event | None, at: float, *, over: Collection[AttemptId] = ()
) -> Sequence[Event]:
    """Return what happens by what a program asks or tells.

    Args:
        engine: The study.
        event: What the program lets happen.
        at: The present time, in seconds since the epoch.
        over: Attempts that have just ended, which the engine does not know.

    Raises:
        StudyError: It is refused, as when the trial is over.
        UsageError: Programs do not send such an event.
    """
    match event:
        case WorkerJoined(worker=name, lease_seconds=float(lease)) if 0 < lease < math.inf:
            if _NAME.search(name):
                return _joined(engine, replace(event, at=at))
        case Reported() | ParametersUsed() | AttemptEnded():
            trial, attempt = engine.trial(event.attempt.trial), event.attempt
            if trial is None or attempt in over or not engine.is_leased(attempt):
                raise StudyError("the trial is over")
            if isinstance(event, AttemptEnded):
                return _ended(at, engine.leased[attempt].attempt, event.ending)
            if isinstance(event, ParametersUsed):  # another process may have declared others
                return (replace(event, at=at, values={**trial.params, **event.values}),)
            return (replace(event, at=at),)
        case _:
            pass
    raise UsageError("programs ask for trials, report, declare and tell; this is none of that")


def _joined(engine: Engine, asked: WorkerJoined) -> Sequence[Event]:
    """Return that a program may be given a trial; nothing if it has one, or there is none."""
    usual = engine.usual
    if usual.nodes > 1:
        raise StudyError(
            f"its trials run on {usual.nodes} nodes each, which a program cannot train; the "
            "workers of its master do"
        )
    has_trial = any(
        each.attempt.placement.worker == asked.worker for each in engine.leased.values()
    )
    if has_trial or not engine.has_trials:
        return ()
    # What is not known here was not asked for: a program is at no walltime's end, in no gang.
    return (replace(asked, capacity=_place(usual), ends_at=None, gang=""),)


def _place(usual: Resources) -> Capacity:
    """Return what a program is counted as: what a trial usually holds."""
    gpus = tuple(f"program-{number}" for number in range(math.ceil(usual.gpus or 0)))
    return Capacity(cpus=tuple(range(math.ceil(usual.cpus))), gpus=gpus)


def taken(at: float, start: Start) -> tuple[Event, ...]:
    """Return that a program has the trial that it asked for, and takes no second one."""
    name = start.placement.worker
    found = _NAME.search(name)
    return (
        AttemptStarted(at, start.attempt, 0 if found is None else int(found[2])),
        WorkerLeaving(at, name, "it has its trial"),
    )


def without_trial(engine: Engine, at: float) -> list[Event]:
    """Return that the programs leave for which there is no trial now."""
    if engine.is_asking and engine.has_trials:
        return []
    return [
        WorkerLeft(at, worker.name, "there was no trial for it")
        for worker in engine.workers
        if worker.is_program and worker.phase is Phase.JOINED
    ]


def past_leases(engine: Engine, at: float, *, told: Collection[AttemptId] = ()) -> list[Event]:
    """Return the ends of the attempts that are past their leases.

    Args:
        engine: The study.
        at: The present time, in seconds since the epoch.
        told: Attempts of which programs have just told something, which the engine does not know.
    """
    events: list[Event] = []
    for name, leased in engine.leased.items():
        if name not in told and leased.is_past_lease(at):
            reason = f"it was not told within its lease of {duration(leased.lease_seconds)}"
            events += _ended(at, leased.attempt, Ending(Cause.WORKER_LOST, reason=reason))
    return events


def _ended(at: float, attempt: Attempt, ending: Ending) -> tuple[Event, ...]:
    """Return the end of the attempt of a program, which is no worker any more then."""
    reason = ending.reason or "its trial is over"
    return (
        AttemptEnded(at, attempt.id, ending),
        WorkerLeft(at, attempt.placement.worker, reason),
    )

"""A small study at one instant, for the tests of everything that shows one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hptune.core.attempt import Attempt, AttemptId, Cause, Outcome, Report
from hptune.core.goals import Goals
from hptune.core.resources import Placement
from hptune.core.snapshot import RunningAttempt, StudySnapshot
from hptune.core.trial import Direction, Goal, Params, Trial, TrialState

GOAL = Goal("val_accuracy", Direction.MAX)
GOALS = Goals((GOAL,))
PARAMS: Mapping[str, bool | int | float | str | None] = {
    "learning_rate": 0.00123456,
    "units": 128,
    "activation": "relu",
}


@dataclass(frozen=True)
class LivingMaster:
    """A master that runs, as a view names it."""

    host: str = "login1"
    pid: int = 4242
    since: float = 1000.0


def trial(
    number: int,
    state: TrialState = TrialState.COMPLETE,
    value: float | None = None,
    *,
    params: Params = PARAMS,
    step: int | None = None,
    metrics: Mapping[str, float] | None = None,
    reason: str = "",
    origin: str = "tpe",
) -> Trial:
    return Trial(
        number=number,
        params=params,
        origin=origin,
        state=state,
        value=value,
        step=step,
        metrics=metrics or {},
        attempts=1,
        reason=reason,
    )


def attempt(
    trial_number: int,
    number: int = 0,
    *,
    placed_at: float = 1000.0,
    waited_seconds: float | None = 0.0,
    ended_at: float | None = None,
    outcome: Outcome | None = None,
    gpus: tuple[str, ...] = (),
    cause: Cause | None = None,
    reason: str = "",
) -> Attempt:
    return Attempt(
        id=AttemptId(trial_number, number),
        placement=Placement("worker-0", cpus=(0, 1), gpus=gpus),
        node="node01.cluster.example",
        placed_at=placed_at,
        started_at=None if waited_seconds is None else placed_at + waited_seconds,
        ended_at=ended_at,
        outcome=outcome,
        cause=cause,
        reason=reason,
    )


def parallel(trial_number: int, **options: Any) -> Attempt:
    """Return an attempt of three ranks: two on one node, and one on another."""
    peers = Placement("w1", (1,), ("1",), 10), Placement("w2", (0,), ("0",), 10)
    placement = Placement("w1", (0,), ("0",), 10, peers=peers)
    return replace(
        attempt(trial_number, **options),
        placement=placement,
        node="n1.org",
        peer_nodes=("n1.org", "n2"),
    )


def running(
    number: int,
    *,
    placed_at: float = 1000.0,
    waited_seconds: float | None = 0.0,
    step: int | None = None,
    value: float = 0.0,
    params: Params = PARAMS,
    earlier_seconds: float = 0.0,
) -> RunningAttempt:
    return RunningAttempt(
        trial=trial(number, TrialState.RUNNING, params=params),
        attempt=attempt(number, placed_at=placed_at, waited_seconds=waited_seconds),
        latest=None if step is None else Report(step, {GOAL.metric: value}),
        earlier_seconds=earlier_seconds,
    )


def snapshot(
    *ended: Trial,
    runs: tuple[RunningAttempt, ...] = (),
    budget: int | None = 10,
    stall_reason: str = "",
    stopping: str = "",
    workers: int = 2,
) -> StudySnapshot:
    counts = Counter(one.state for one in ended)
    if runs:
        counts[TrialState.RUNNING] = len(runs)
    complete = [one for one in ended if one.state is TrialState.COMPLETE]
    return StudySnapshot(
        goals=GOALS,
        budget_trials=budget,
        counts=counts,
        front=tuple(sorted(complete, key=lambda one: -(one.value or 0.0))[:1]),
        running=runs,
        workers=workers,
        cpus=8 * workers,
        cpus_held=2 * len(runs),
        gpus=0,
        gpus_held=0,
        stall_reason=stall_reason,
        stopping=stopping,
    )

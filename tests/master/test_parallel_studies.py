"""Studies of trials of one and of several processes on simulated nodes, in virtual time."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from engine_checks import check_engine
from hptune.core.attempt import Attempt, Cause, Outcome
from hptune.core.goals import Goals
from hptune.core.messages import Event, Suggested, WorkerJoined, WorkerLeft
from hptune.core.resources import Resources
from hptune.core.space.space import FloatParameter, IntParameter, SearchSpace
from hptune.core.trial import Direction, Goal, Params, TrialState
from hptune.master.suggester import sized
from hptune.samplers.random_search import RandomSampler
from simulated import SimulatedExecutor
from simulated_parts import Curve, Faults, SimulatedWorker
from simulated_studies import Memory, Played, attempts_by, play

SIZES = (
    Resources(),
    Resources(cpus=2),
    Resources(processes=2),
    Resources(nodes=2),
    Resources(processes=4, nodes=2),
    Resources(cpus=12, nodes=3),
)
SPACE = SearchSpace((IntParameter("size", 0, len(SIZES) - 1), FloatParameter("pace", 0.5, 3.0)))
GOALS = Goals((Goal("score", Direction.MAX),))
EPOCHS = 6
RANK_LOSS_SECONDS = 5.0


def size_of(params: Params) -> Resources:
    return SIZES[int(params["size"] or 0)]


def curve(params: Params, seed: int) -> Curve:
    return [{"score": epoch / 10} for epoch in range(EPOCHS)]


def nodes(count: int) -> list[SimulatedWorker]:
    """Return workers of four cores; every third job has two nodes, and one node two workers."""
    workers = [
        SimulatedWorker(name=f"w{n}", cores=4, gang=f"job {n // 2}" if n % 6 < 2 else "")
        for n in range(count)
    ]
    return [*workers, SimulatedWorker(name="second", cores=4, node="node-w0")]


def study(
    trials: int, workers: Sequence[SimulatedWorker], faults: Faults | None = None
) -> tuple[Played, Memory]:
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: float(params["pace"] or 0),
        workers=workers,
        faults=faults,
        rank_loss_seconds=RANK_LOSS_SECONDS,
    )
    memory = Memory()
    played = play(
        executor,
        space=SPACE,
        goals=GOALS,
        trials=trials,
        make_sampler=sized(
            lambda space: RandomSampler(space, 1),
            lambda _, asked: [replace(each, resources=size_of(each.params)) for each in asked],
        ),
        memory=memory,
    )
    check_engine(played.engine)
    return played, memory


def check_held(attempts: Sequence[Attempt], events: Sequence[Event]) -> None:
    """Check that no core is held twice, and no rank is on the same node as another node's."""
    node_of = {each.worker: each.node for each in events if isinstance(each, WorkerJoined)}
    held = defaultdict[tuple[str, int], list[tuple[float, float]]](list)
    for attempt in attempts:
        assert attempt.ended_at is not None
        workers = attempt.placement.workers
        assert len({node_of[worker] for worker in workers}) == len(workers)
        for rank in attempt.placement.ranks:
            for core in rank.cpus:
                held[rank.worker, core].append((attempt.placed_at, attempt.ended_at))
    for spans in held.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def test_a_thousand_mixed_trials_all_have_their_turn() -> None:
    played, memory = study(1_000, nodes(12))
    attempts = attempts_by(memory.events)
    check_held(attempts, memory.events)
    assert all(trial.state is TrialState.COMPLETE for trial in played.engine.trials)
    assert len(attempts) == 1_000
    assert played.engine.snapshot.cpus_held == 0
    suggested = {
        number: event.at
        for event in memory.events
        if isinstance(event, Suggested)
        for number in range(event.first_number, event.first_number + len(event.suggestions))
    }
    sizes = [trial.params["size"] for trial in played.engine.trials]
    for size in range(len(SIZES)):
        alike = [a for a in attempts if sizes[a.id.trial] == size]
        starts = [a.placed_at for a in sorted(alike, key=lambda each: each.id)]
        assert starts == sorted(starts), "of two alike, the one suggested first starts first"
        assert max(a.placed_at - suggested[a.id.trial] for a in alike) < 60.0
    busy = sum(
        len(rank.cpus) * (a.ended_at - a.placed_at)
        for a in attempts
        for rank in a.placement.ranks
        if a.ended_at is not None
    )
    assert busy > 0.85 * 13 * 4 * played.seconds


def test_lost_workers_and_killed_ranks_leave_nothing_held() -> None:
    faults = Faults(killed_attempts=0.05, worker_life_seconds=120.0, replaced_after_seconds=20.0)
    played, memory = study(400, nodes(8), faults)
    attempts = attempts_by(memory.events)
    check_held(attempts, memory.events)
    assert all(trial.state.is_final for trial in played.engine.trials)
    assert played.engine.snapshot.cpus_held == 0
    left = {each.worker: each.at for each in memory.events if isinstance(each, WorkerLeft)}
    parallel = [each for each in attempts if len(each.placement.workers) > 1]
    lost = [each for each in parallel if each.cause is Cause.WORKER_LOST]
    assert len(lost) > 20
    for attempt in lost:
        first = min(left[worker] for worker in attempt.placement.workers if worker in left)
        assert attempt.ended_at is not None
        assert attempt.ended_at <= first + RANK_LOSS_SECONDS + 1e-6
        assert attempt.outcome is Outcome.LOST

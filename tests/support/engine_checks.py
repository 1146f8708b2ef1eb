"""Checks that the state of an engine is consistent: what it counts, and what it remembers twice.

They read what its parts keep for themselves, so that the parts need no code for tests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hptune.core.engine.dispatch import Dispatch
from hptune.core.engine.engine import Engine
from hptune.core.engine.lifecycle import Lifecycle
from hptune.core.engine.records import AttemptRecord, TrialRecord, TrialRecords
from hptune.core.engine.retention import Retention
from hptune.core.messages import FinishReason
from hptune.core.resources import Placement
from hptune.core.scheduling.cluster import ClusterState
from hptune.core.scheduling.device_pool import WHOLE, DevicePool, parts_of
from hptune.core.scheduling.queue import TrialQueue
from hptune.core.trial import TrialState
from hptune.core.workers import Phase, Workers

_ALL_DONE = (FinishReason.DONE, FinishReason.EXHAUSTED)


def check_engine(engine: Engine, *, trials_changed: bool = True) -> None:
    """Check every invariant of an engine; those of trials only if one of them changed."""
    records, dispatch = engine._records, engine._dispatch
    check_workers(engine.workers)
    held = [*dispatch.cluster_state]
    assert {each.name for each in engine.workers} == {*held}, f"places are on {held}"
    finish = engine._finished
    # Said then: a late answer may bring a smaller trial, which what is left of a budget would pay.
    is_done = finish is not None and finish.finish_reason in _ALL_DONE
    if trials_changed:
        _check_lifecycle(engine._lifecycle, is_done=is_done)
    is_placing = engine.may_start and not (engine._is_closed or engine._finished)
    is_placing = is_placing and engine._question is None and dispatch.is_affordable
    _check_dispatch(dispatch, is_placing=is_placing, at=engine._latest_at)
    confirms = sum(record.trial.confirms is not None for record in records)
    assert confirms == engine._confirmations
    assert not (engine._finished and records.running), "finished with attempts running"


def check_workers(workers: Workers) -> None:
    """Check that a roster is consistent."""
    assert Counter(each.node for each in workers if not each.is_program) == workers._on_node
    for worker in workers:
        is_excluded = worker.node in workers._excluded and not worker.is_program
        assert not (worker.phase is Phase.JOINED and is_excluded), f"{worker} takes attempts"
    refused = (each for each in workers._workers.values() if each.phase is Phase.REFUSED)
    assert all(each.reason for each in refused), "a worker was refused for no reason"


# --- trials -----------------------------------------------------------------------------------


def _check_lifecycle(lifecycle: Lifecycle, *, is_done: bool) -> None:
    records = lifecycle.records
    _check_records(records)
    _check_front(lifecycle.retention, records)
    if is_done:
        assert not records.count(TrialState.PAUSED), "all is done, and trials are paused"
        assert not lifecycle.to_confirm(), "all is done, and trials are not repeated"


def _check_records(records: TrialRecords) -> None:
    states = [record.trial.state for record in records]
    assert records.counts == Counter(states)
    waiting = [each.trial for each in records if each.trial.state is TrialState.WAITING]
    assert records.interrupted == sum(trial.attempts > 0 for trial in waiting)
    running = {record.running for record in records if record.running is not None}
    assert running == set(records.running)
    on_workers = 0
    for run in records.running.values():
        ranks = _ranks(records, run)
        assert ranks, f"{run} is on no worker"
        on_workers += len({each.worker for each in ranks})
    assert sum(map(len, records._running_on.values())) == on_workers
    for number, record in enumerate(records):
        _check_record(number, record)


def _ranks(records: TrialRecords, run: AttemptRecord) -> list[Placement]:
    """Return the ranks of an attempt that are on workers which have not left since its start."""
    name, ranks = run.attempt.id, run.attempt.placement.ranks
    return [each for each in ranks if name in records.running_on(each.worker)]


def _check_record(number: int, record: TrialRecord) -> None:
    trial = record.trial
    assert trial.number == number, _story(record)
    assert (trial.state is TrialState.RUNNING) == (record.running is not None), _story(record)
    has_measured = trial.state in (TrialState.PRUNED, TrialState.PAUSED) and record.last_step > 0
    has_result = trial.state is TrialState.COMPLETE or record.before is not None
    assert (has_result or has_measured) == (trial.value is not None), _story(record)
    assert max(trial.rungs, default=0) <= record.last_step, _story(record)


def _story(record: TrialRecord) -> str:
    return "\n  ".join(record.story)


def _check_front(retention: Retention, records: TrialRecords) -> None:
    results = (record.result for record in records)
    scores = {each.number: each.score for each in results if each.state is TrialState.COMPLETE}
    front = retention.ranking.best
    for trial in front:
        assert scores.get(trial.number) == trial.score, f"{trial} is in the front"
        assert trial.number in retention.ranking.kept
    if retention.ranking.confirmed:
        return
    best = [trial.score for trial in front]
    for number, score in scores.items():
        if score not in best and retention._goals.is_nondominated(score, best):
            trial = records[number].result
            assert trial.confirms is not None, f"{trial} is missing in the front {front}"


# --- places -----------------------------------------------------------------------------------


def _check_dispatch(dispatch: Dispatch, *, is_placing: bool, at: float) -> None:
    records, cluster_state = dispatch._records, dispatch.cluster_state
    running = records.running.values()
    check_held(cluster_state, [rank for run in running for rank in _ranks(records, run)])
    waiting = [r.trial.number for r in records if r.trial.state is TrialState.WAITING]
    assert waiting or not cluster_state.reserved, "workers are reserved for no trial"
    _check_queue(dispatch._waiting, waiting, cluster_state if is_placing else ClusterState(), at)
    if is_placing and dispatch._may_continue:
        assert dispatch._lifecycle.promotion(is_last=False) is None, "a paused trial could continue"


def _check_queue(
    queue: TrialQueue, numbers: Sequence[int], cluster_state: ClusterState, at: float
) -> None:
    """Check that exactly these trials wait, and that there is no room for any."""
    assert sorted(queue.numbers) == sorted(numbers)
    for (wanted, lost_on), waiting in queue._queues.items():
        assert all(queue._key(number) == (wanted, lost_on) for _, number in waiting)
        soon, _ = queue._seconds(waiting[0][1])
        avoid = queue._to_avoid(wanted, lost_on, at + soon, cluster_state)
        has_room = cluster_state.free_slots(wanted, until=at + soon, avoid=avoid)
        assert not (queue._pays_for(wanted) and has_room), f"a trial that asks for {wanted} waits"


def check_held(cluster_state: ClusterState, placements: Iterable[Placement]) -> None:
    """Check that exactly these placements are held, and nothing twice."""
    held = [rank for each in placements for rank in each.ranks if rank.worker in cluster_state]
    held_on = {name: list[Placement]() for name in cluster_state}
    for rank in held:
        held_on[rank.worker].append(rank)
    assert [*cluster_state._free] == [*cluster_state._totals] == [*cluster_state]
    for name, record in cluster_state._workers.items():
        here = held_on[name]
        _check_pool(record.cpus, [(p.cpus, p.cpu_share) for p in here])
        _check_pool(record.gpus, [(p.gpus, p.gpu_share) for p in here])
        assert record.memory_bytes + sum(p.memory_bytes for p in here) == record.total_bytes
        assert record.memory_bytes >= 0 or cluster_state._kept_back
    cpus = sum(len(p.cpus) * p.cpu_share for p in held)
    gpus = sum(len(p.gpus) * p.gpu_share for p in held)
    assert abs(cluster_state.cpus_held - cpus) < 1e-6
    assert abs(cluster_state.gpus_held - gpus) < 1e-6


def _check_pool(
    pool: DevicePool[int] | DevicePool[str], held: Iterable[tuple[Sequence[int | str], float]]
) -> None:
    free: dict[int | str, int] = dict.fromkeys(pool._free, WHOLE)
    for devices, amount in held:
        for each in devices:
            free[each] -= WHOLE if amount >= 1 else parts_of(amount)
    assert free == pool._free
    assert min(free.values(), default=0) >= 0
    assert pool.whole == sum(each == WHOLE for each in free.values())

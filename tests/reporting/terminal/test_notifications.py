"""What is said of workers and attempts: each thing once, and many of a kind together."""

from __future__ import annotations

from dataclasses import replace

from fake_study import attempt

from tuner.core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from tuner.core.resources import Capacity
from tuner.core.trial import Attempt, AttemptId, Cause, Ending, Outcome, Usage
from tuner.reporting.terminal.notifications import QUIET_SECONDS, Notifications

EIGHT = Capacity(tuple(range(8)), ("0",))


def joined(number: int, *, node: str = "") -> WorkerJoined:
    return WorkerJoined(0.0, f"w{number}", node or f"node{number}", EIGHT)


def left(number: int) -> WorkerLeft:
    return WorkerLeft(0.0, f"w{number}", "the worker is gone")


def told(
    news: Notifications, *events: Event, attempts: tuple[Attempt, ...] = (), at: float
) -> list[str]:
    news.heed(events, attempts)
    return news.lines(at)


def test_a_worker_is_told_of_when_it_joins_when_it_leaves_and_when_it_is_lost() -> None:
    news = Notifications()
    assert told(news, joined(1), at=0.0) == [
        "the worker on node1 joined, with 8 cores, 1 GPU; 1 worker now"
    ]
    assert told(news, joined(2), at=100.0) == [
        "the worker on node2 joined, with 8 cores, 1 GPU; 2 workers now"
    ]
    leaving = WorkerLeaving(0.0, "w1", "SIGTERM")
    assert told(news, leaving, at=200.0) == []
    assert told(news, left(1), at=201.0) == ["the worker on node1 left (SIGTERM); 1 worker now"]
    assert told(news, left(1), at=300.0) == []
    lost = attempt(0, ended_at=1.0, outcome=Outcome.LOST)
    lost = replace(lost, placement=replace(lost.placement, worker="w2"))
    assert told(news, left(2), attempts=(lost,), at=400.0) == [
        "the worker on node2 was lost, 1 trial goes on from the last checkpoint; 0 workers now"
    ]


def test_a_worker_that_dies_while_it_was_to_leave_is_lost() -> None:
    news = Notifications()
    told(news, joined(1), WorkerLeaving(0.0, "w1", "it takes no more trials"), at=0.0)
    lost = attempt(0, ended_at=1.0, outcome=Outcome.LOST)
    lost = replace(lost, placement=replace(lost.placement, worker="w1"))
    assert told(news, left(1), attempts=(lost,), at=100.0) == [
        "the worker on node1 was lost, 1 trial goes on from the last checkpoint; 0 workers now"
    ]


def test_a_lost_worker_has_its_name_where_others_share_its_node() -> None:
    news = Notifications()
    told(news, joined(1, node="vm"), joined(2, node="vm"), at=0.0)
    assert told(news, left(2), at=100.0) == ["the worker on vm at w2 was lost; 1 worker now"]
    assert told(news, left(1), at=200.0) == ["the worker on vm was lost; 0 workers now"]


def test_thousands_of_workers_are_told_of_in_a_few_lines() -> None:
    news = Notifications()
    lines = []
    for number in range(3000):
        lines += told(news, joined(number, node=f"node{number // 2}"), at=number / 100)
    lines += news.lines(30.0 + QUIET_SECONDS)
    assert len(lines) <= 2 + 30 / QUIET_SECONDS
    assert lines[1].startswith("1000 workers (on node0, node1 (2), node2 (2) and 498 more)")
    assert lines[-1].endswith("; 3000 workers now")
    assert all(len(line) < 200 for line in lines)


def test_the_first_workers_of_a_local_run_are_in_its_header() -> None:
    news = Notifications(workers_are_known=True)
    assert told(news, joined(1), at=0.0) == []
    assert told(news, left(1), at=50.0) == ["the worker on node1 was lost; 0 workers now"]
    assert told(news, joined(2), at=100.0) != []


def test_a_refusal_is_told_once_for_each_reason() -> None:
    news = Notifications()
    refused = WorkerRefused(0.0, "w1", "node1", "it has Keras 2")
    assert told(news, refused, replace(refused, worker="w2"), at=0.0) == [
        "the worker on node1 was refused: it has Keras 2"
    ]
    assert news.lines(1000.0) == []


def test_waiting_for_another_study_is_told_once() -> None:
    news = Notifications()
    waits = AttemptWaits(0.0, AttemptId(3, 0), "waits for cores that another study holds")
    (line,) = told(news, waits, replace(waits, attempt=AttemptId(4, 0)), at=0.0)
    assert line.startswith("trial 3 waits for cores that another study holds")
    assert told(news, replace(waits, attempt=AttemptId(5, 0)), at=9999.0) == []


def test_a_trial_that_uses_more_memory_than_it_was_to_is_told_once_with_what_to_do() -> None:
    def using(size_bytes: float) -> Attempt:
        usage = Usage(peak_memory_bytes=int(size_bytes), cpu_seconds=1.0, seconds=1.0)
        one = attempt(7)
        placement = replace(one.placement, memory_bytes=4_000_000_000)
        return replace(one, placement=placement, usage=usage)

    news = Notifications(memory_bytes=4_000_000_000)
    assert told(news, attempts=(using(4e9),), at=0.0) == []
    (line,) = told(news, attempts=(using(5.2e9),), at=1.0)
    assert line.startswith("trial 7 uses 5.2 GB of memory, but --memory-per-trial is 4 GB")
    assert line.endswith("--memory-per-trial 7GB")
    assert told(news, attempts=(using(9e9),), at=2.0) == []
    assert told(Notifications(), attempts=(using(9e9),), at=3.0) == []


def test_a_trial_that_opens_none_of_its_gpus_is_told_once_with_what_to_do() -> None:
    def using(size_bytes: int | None, *, pace: float | None = 1.0, gpus: int = 1) -> Attempt:
        usage = Usage(
            peak_memory_bytes=1,
            peak_gpu_memory_bytes=size_bytes,
            cpu_seconds=1.0,
            seconds=1.0,
            seconds_per_step=pace,
        )
        one = attempt(7)
        placement = replace(one.placement, gpus=tuple(map(str, range(gpus))))
        return replace(one, placement=placement, usage=usage)

    news = Notifications()
    for other in (using(None), using(9), using(0, pace=None), using(0, gpus=0)):
        assert told(news, attempts=(other,), at=0.0) == []
    (line,) = told(news, attempts=(using(0),), at=1.0)
    assert line.startswith("trial 7 holds 1 GPU, but has not opened any: if the model trains on")
    assert "--gpus-per-trial 0" in line
    assert told(news, attempts=(using(0),), at=9999.0) == []
    ended = replace(using(0, pace=None), outcome=Outcome.FINISHED)
    assert told(Notifications(), attempts=(ended,), at=0.0) == [line]


def tried(
    trial: int, number: int = 0, *, cause: Cause | None = None, why: str = "", memory: float = 0
) -> Attempt:
    """An attempt; with a cause, one that ended by it and is not held against its trial."""
    outcome = None if cause is None else Outcome.LOST
    one = attempt(trial, number, ended_at=1.0 if cause else None, outcome=outcome, cause=cause)
    placement = replace(one.placement, memory_bytes=int(memory))
    return replace(one, node=f"node{number}", reason=why, placement=placement)


def lost(*attempts: Attempt) -> tuple[Event, ...]:
    return tuple(
        AttemptEnded(1.0, each.id, Ending(each.cause, reason=each.reason))
        for each in attempts
        if each.cause is not None
    )


def test_an_attempt_that_hung_is_told_of_with_where_its_trial_goes_on() -> None:
    news = Notifications()
    hung = tried(3, cause=Cause.HUNG, why="it hung: no report and no work for 600 s")
    assert told(news, *lost(hung), attempts=(hung, tried(3, 1)), at=0.0) == [
        "trial 3 on node0: it hung: no report and no work for 600 s; tried again on node1"
    ]
    assert told(news, attempts=(hung, tried(3, 1)), at=999.0) == []
    assert told(news, *lost(hung), attempts=(hung,), at=9999.0) == [
        "trial 3 on node0: it hung: no report and no work for 600 s; to be tried again"
    ]


def test_a_trial_that_ran_out_of_memory_is_told_of_with_what_it_is_given_next() -> None:
    ended = tried(3, cause=Cause.OUT_OF_MEMORY, why="out of memory (it held 4 GB)", memory=4e9)
    (line,) = told(Notifications(), *lost(ended), attempts=(ended, tried(3, 1, memory=8e9)), at=0.0)
    assert line == (
        "trial 3 on node0: out of memory (it held 4 GB); tried again on node1 with 8 GB of memory"
    )
    part = tried(3, cause=Cause.DEVICE_OUT_OF_MEMORY, why="OOM when allocating")
    part = replace(part, placement=replace(part.placement, gpus=("0",), gpu_share=0.5))
    (line,) = told(Notifications(), *lost(part), attempts=(part, tried(3, 1)), at=0.0)
    assert line.endswith("OOM when allocating; tried again on node1 with a whole GPU")


def test_thousands_of_retries_are_told_of_in_a_few_lines() -> None:
    news, lines = Notifications(), list[str]()
    for number in range(3000):
        ended = tried(number, cause=Cause.OUT_OF_MEMORY, why="out of memory", memory=4e9)
        again = (tried(number, 1, memory=8e9),) if number % 2 else ()
        lines += told(news, *lost(ended), attempts=(ended, *again), at=number / 100)
    lines += news.lines(30.0 + QUIET_SECONDS)
    assert len(lines) <= 2 + 30 / QUIET_SECONDS
    assert lines[1] == (
        "1000 attempts: out of memory, such as trial 1 on node0: out of memory; 500 tried again "
        "with up to 8 GB of memory, 500 to be"
    )


def test_what_is_held_against_its_trial_or_went_with_its_worker_is_no_news_of_a_retry() -> None:
    failed = replace(tried(1, cause=Cause.HUNG), outcome=Outcome.ERRORED)
    for other in (failed, tried(2, cause=Cause.WORKER_LOST), tried(3, cause=Cause.KILLED)):
        assert told(Notifications(), *lost(other), attempts=(other,), at=0.0) == []

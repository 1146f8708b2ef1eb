"""Trials of several processes: all ranks are placed or none, and they end together."""

from __future__ import annotations

from typing import Any

import pytest

from engine_driver import FIRST, EngineDriver, returned, states
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Outcome, Usage
from hptune.core.budget import Device, DeviceBudget
from hptune.core.messages import Command, Finish, FinishReason, Start, Stop
from hptune.core.resources import Amount, Capacity, Placement, Resources
from hptune.core.trial import TrialState

PAIR = Resources(processes=2, nodes=2)
LOST = Ending(Cause.WORKER_LOST, reason="rank 1 is gone")


def starts(commands: list[Command]) -> list[Start]:
    return [command for command in commands if isinstance(command, Start)]


def running_pair(trials: int = 1, **options: Any) -> EngineDriver:
    """Return a study whose first trial runs on the workers a and b."""
    driver = EngineDriver()
    driver.open(trials, resources=PAIR, **options)
    driver.join("a")
    driver.join("b")
    (start,) = starts(driver.suggest())
    assert start.placement.workers == ("a", "b")
    return driver


def test_all_ranks_get_a_place_or_none() -> None:
    driver = EngineDriver()
    driver.open(1, resources=Resources(processes=4, nodes=2, cpus=8, gpus=4))
    driver.join("a", cores=4, gpus=2)
    driver.join("b", cores=3, gpus=2)
    assert driver.ask is None, "there is room on one node"
    driver.join_with("same node", Capacity(tuple(range(4)), ("X", "Y")), node="node of a")
    assert driver.ask is None, "two workers of one node are one node"
    driver.join("c", cores=4, gpus=2)
    (start,) = starts(driver.suggest())
    assert start.placement.ranks == (
        Placement("a", (0, 1), ("g0",)),
        Placement("a", (2, 3), ("g1",)),
        Placement("c", (0, 1), ("g0",)),
        Placement("c", (2, 3), ("g1",)),
    )
    attempt = driver.attempt(start.attempt)
    assert attempt.peer_nodes == ("node of a", "node of c", "node of c")
    assert attempt.nodes == ("node of a", "node of c")
    assert driver.engine.story(0)[1].endswith(
        "attempt 0.0 is placed on a (node of a) and c (node of c)"
    )
    driver.end(start.attempt, returned(1.0))
    assert driver.engine.snapshot.cpus_held == 0


def test_the_loss_of_one_worker_ends_the_attempt_once_all_its_processes_are_gone() -> None:
    driver = running_pair()
    assert driver.leave("b") == []
    driver.join("c")
    assert states(driver)[0] is TrialState.RUNNING
    assert driver.engine.snapshot.cpus_held == 1, "rank 0 still holds its core"
    (start,) = starts(driver.end(FIRST, LOST))
    assert (start.attempt, start.placement.workers) == (AttemptId(0, 1), ("a", "c"))
    assert driver.attempt(FIRST).outcome is Outcome.LOST


def test_a_worker_that_is_back_before_the_other_ranks_have_ended_is_free_once() -> None:
    """What the old attempt held there was lost with it, and is not given back to the new one."""
    driver = running_pair(3)
    driver.leave("b")
    assert starts(driver.join("b", cores=2)) == []
    (start,) = starts(driver.end(FIRST, LOST))
    assert start.placement.workers == ("b", "a")
    snapshot = driver.engine.snapshot
    assert (snapshot.cpus, snapshot.cpus_held) == (3, 2)
    driver.end(start.attempt, returned(1.0))
    assert driver.engine.snapshot.cpus_held == 0


def test_an_attempt_whose_workers_have_all_left_is_lost() -> None:
    driver = running_pair()
    driver.leave("a")
    driver.leave("b")
    assert states(driver) == [TrialState.WAITING]
    assert driver.attempt(FIRST).cause is Cause.WORKER_LOST
    assert driver.end(FIRST, LOST) == [], "the message is late"


def test_an_attempt_of_which_a_worker_is_about_to_leave_is_released() -> None:
    driver = running_pair()
    assert driver.about_to_leave("b") == [Stop(FIRST, Halt.RELEASE)]
    assert driver.about_to_leave("a") == [], "it is told once"
    driver.join("c")
    driver.join("d")
    (start,) = starts(driver.end(FIRST, Ending(Cause.RELEASED)))
    assert start.placement.workers == ("c", "d")
    assert driver.attempt(FIRST).outcome is Outcome.RELEASED


def test_a_worker_releases_an_attempt_that_it_has_as_a_whole() -> None:
    driver = EngineDriver()
    driver.open(1, resources=Resources(processes=2))
    driver.join(cores=2)
    (start,) = starts(driver.suggest())
    assert [rank.cpus for rank in start.placement.ranks] == [(0,), (1,)]
    assert driver.about_to_leave() == []


def test_the_ranks_are_placed_on_workers_that_were_granted_together() -> None:
    driver = EngineDriver()
    driver.open(1, resources=PAIR)
    for worker, gang in (("a", ""), ("b", "job 1"), ("c", "job 2")):
        driver.join_with(worker, Capacity((0,)), gang=gang)
    (start,) = starts(driver.suggest())
    assert start.placement.workers == ("a", "b"), "if no gang is large enough, any will do"
    driver.join_with("d", Capacity((0,)), gang="job 2")
    driver.leave("a")
    driver.leave("b")
    assert driver.running[AttemptId(0, 1)].workers == ("c", "d")


def test_no_rank_is_placed_where_the_walltime_is_too_short() -> None:
    driver = EngineDriver()
    driver.open(3, resources=PAIR)
    driver.join("a")
    driver.join("b")
    driver.suggest()
    driver.report(FIRST, 1, score=0.0)
    usage = Usage(peak_memory_bytes=1, cpu_seconds=1.0, seconds=1.0, seconds_per_step=50.0)
    driver.measure(FIRST, usage)
    driver.join_with("c", Capacity((0,)), ends_at=driver.at + 60)
    driver.join_with("d", Capacity((0,)))
    assert driver.ask is None, "a step may take 75 s"
    assert driver.engine.snapshot.stall_reason == ""
    driver.join_with("e", Capacity((0,)), ends_at=driver.at + 90)
    (start,) = starts(driver.suggest())
    assert set(start.placement.workers) == {"d", "e"}


def test_the_devices_of_all_ranks_count_towards_the_budget() -> None:
    budget = DeviceBudget(Device.CORE, 60 / 3600)
    driver = running_pair(trials=9, budget=budget)
    driver.started(FIRST)
    driver.at += 28
    assert driver.report(FIRST, 1, score=0.0) == []
    driver.at += 1
    assert driver.report(FIRST, 2, score=0.0) == [Stop(FIRST, Halt.STOP)]
    (*_, finish) = driver.end(FIRST, Ending(Cause.STOPPED))
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.BUDGET_SPENT


def test_trials_of_several_processes_are_not_packed() -> None:
    """Others are: what those use changes neither what such a trial asks for nor what it holds."""
    driver = EngineDriver()
    driver.open(20, measured=tuple(Amount), ask_ahead=1.0)
    for worker in ("a", "b"):
        driver.join_with(worker, Capacity((0, 1), memory_bytes=1_000))
    while len(driver.over) < 10:
        if driver.ask:
            driver.suggest(resources=lambda n: Resources(processes=2) if n % 15 == 0 else None)
            continue
        name = next(name for name, held in driver.running.items() if not held.peers)
        for step in (1, 2):
            driver.report(name, step, score=0.0)
            usage = Usage(
                peak_memory_bytes=50,
                cpu_seconds=0.1 * step,
                seconds=9.0 * step,
                seconds_per_step=9.0,
            )
            driver.measure(name, usage)
        driver.end(name, returned(1.0))
    assert driver.engine.snapshot.packing
    latest = max(driver.starts)
    assert driver.starts[latest].placement.memory_bytes > 0
    whole = Placement("a", (0,), peers=(Placement("a", (1,)),))
    assert driver.attempt(FIRST).placement == whole, "it is not resized"
    while 15 not in driver.starts:
        if driver.ask:
            driver.suggest(resources=lambda n: Resources(processes=2) if n % 15 == 0 else None)
        else:
            driver.end(next(iter(driver.running)), returned(1.0))
    later = driver.starts[15].placement
    assert [(rank.cpu_share, rank.memory_bytes) for rank in later.ranks] == [(1.0, 0), (1.0, 0)]


def test_another_master_begins_the_attempt_again() -> None:
    driver = running_pair()
    driver.open(1, resources=Resources(processes=3, nodes=3))
    assert driver.attempt(FIRST).outcome is Outcome.LOST
    for worker in ("a", "b", "c"):
        commands = driver.join(worker)
    (start,) = starts(commands)
    assert start.placement.workers == ("a", "b", "c"), "at another size"


@pytest.mark.parametrize(
    ("resources", "said"),
    [
        (PAIR, ""),
        (Resources(processes=2), "no worker can hold a trial of 2 processes of 1 core: waiting"),
        (Resources(processes=3, nodes=3), "no 3 nodes with 1 core each for a trial: waiting"),
        (
            Resources(processes=4, nodes=2, gpus=8),
            "no 2 nodes with 2 cores and 4 GPUs each for a trial: waiting for more nodes",
        ),
    ],
)
def test_a_study_says_which_nodes_it_waits_for(resources: Resources, said: str) -> None:
    driver = EngineDriver()
    driver.open(1, resources=resources)
    driver.join("a")
    driver.join("b")
    reason = driver.engine.snapshot.stall_reason
    assert reason.startswith(said)
    assert bool(reason) == bool(said)


def test_ranks_have_gpus_on_all_nodes_or_on_none() -> None:
    driver = EngineDriver()
    driver.open(1, resources=PAIR)
    driver.join("a", gpus=1)
    driver.join("b")
    assert driver.ask is None
    driver.join("c", gpus=2)
    (start,) = starts(driver.suggest())
    assert [rank.gpus for rank in start.placement.ranks] == [("g0",), ("g0",)]


def test_a_node_where_one_rank_of_a_lost_pair_was_is_kept_for_it_too() -> None:
    """On which of its nodes it was lost is unknown."""
    driver = EngineDriver()
    driver.open(60)
    for worker in "abcd":
        driver.join(worker)

    def fill() -> None:
        while driver.ask is not None:
            driver.suggest(resources=lambda number: None if number else PAIR)

    fill()
    assert driver.running[FIRST].workers == ("a", "b")
    driver.leave("b")
    driver.end(FIRST, LOST)
    for _ in range(9):
        fill()
        on_a = [name for name, held in driver.running.items() if held.worker == "a"]
        driver.end((on_a or [*driver.running])[0], returned(0.5))
    assert driver.starts[0].attempt == AttemptId(0, 1)

"""Attempts of several processes on real executors."""

from __future__ import annotations

import abc
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from hptune.core.attempt import AttemptId, Cause
from hptune.core.clock import SystemClock
from hptune.core.meeting import RankReady
from hptune.core.messages import AttemptEnded, Event, Start, WorkerJoined
from hptune.core.resources import Placement
from hptune.executors.base import Executor, RunContext
from hptune.executors.dask import DaskExecutor
from hptune.executors.joblib import JoblibExecutor
from hptune.executors.parallel import ParallelExecutor
from hptune.testing.executor_driver import is_alive, open_stage
from hptune.testing.executors import Driver, ExecutorSuite, Stage
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.orders import AttemptOrder

CLOCK = SystemClock()


@contextmanager
def opened(executor: ParallelExecutor) -> Iterator[ParallelExecutor]:
    executor.open()
    try:
        yield executor
    finally:
        executor.close()


def run_of(stage: Stage) -> RunContext:
    return RunContext(
        name=f"hptune-{uuid.uuid4().hex[:12]}",
        source=stage.source,
        clock=CLOCK,
        fork_server=stage.fork_server_address,
    )


def on_dask(
    stage: Stage, cores: list[tuple[int, ...]], kind: type[DaskExecutor] = DaskExecutor
) -> DaskExecutor:
    return kind(run_of(stage), cores)


def dask_pid(executor: Executor, worker: str) -> int:
    assert isinstance(executor, ParallelExecutor)
    inner = executor._inner
    assert isinstance(inner, DaskExecutor)
    return int(inner._calls.client.run(os.getpid, workers=[worker])[worker])


class OfTwoProcesses(ExecutorSuite):
    ranks = 2

    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        with opened(ParallelExecutor(self.inner(stage, tuple(range(cores))), CLOCK)) as executor:
            yield executor

    @abc.abstractmethod
    def inner(self, stage: Stage, cores: tuple[int, ...]) -> Executor:
        """Return an executor whose workers have these cores each; not open yet."""


@pytest.mark.slow  # the suite once more, each attempt with two processes
class TestTwoProcessesOnDask(OfTwoProcesses):
    def inner(self, stage: Stage, cores: tuple[int, ...]) -> Executor:
        return on_dask(stage, [cores])

    def lose_worker(self, executor: Executor, worker: str) -> None:
        os.kill(dask_pid(executor, worker), signal.SIGKILL)


@pytest.mark.slow
class TestTwoProcessesOnJoblib(OfTwoProcesses):
    @pytest.fixture
    def shared(self, stage: Stage) -> Iterator[Driver]:
        """Make a new executor for each test, as workers fill the only pool of loky in a process."""
        with self.driver(stage) as driver:
            yield driver

    def inner(self, stage: Stage, cores: tuple[int, ...]) -> Executor:
        # joblib does not start a process for a single worker.
        return JoblibExecutor(run_of(stage), [cores] * 2)

    def lose_worker(self, executor: Executor, worker: str) -> None:
        os.kill(int(worker.split("-")[-2]), signal.SIGKILL)


MEETS = """
import os

def objective(hp, trial):
    trial.report(1, score=0.25)
    for _ in range(50):
        found = trial.ranks.gather(f"{trial.number} {trial.rank}".encode())
        assert found == [f"{trial.number} {rank}".encode() for rank in range(2)], found
        assert not trial.should_stop()
    return {"score": 1.0, "port": float(os.environ["MASTER_PORT"]),
            "node_rank": float(trial.ranks.node_rank), "interface":
            float("GLOO_SOCKET_IFNAME" in os.environ)}
"""


class Watched(DaskExecutor):
    """Shows the events of its ranks to a function, which may change them, before the study's."""

    watch: Callable[[Event], Event]

    def events(self, timeout_seconds: float) -> list[Event]:
        return [self.watch(event) for event in super().events(timeout_seconds)]


@contextmanager
def watched(
    stage: Stage, watch: Callable[[Event], Event], *, workers: int
) -> Iterator[ParallelExecutor]:
    cores: list[tuple[int, ...]] = [(2 * i, 2 * i + 1) for i in range(workers)]
    inner = on_dask(stage, cores, kind=Watched)
    assert isinstance(inner, Watched)
    inner.watch = watch
    with opened(ParallelExecutor(inner, CLOCK)) as executor:
        yield executor


@pytest.fixture(scope="module")
def meeting() -> Iterator[Stage]:
    """Return a stage whose objective exchanges data."""
    with open_stage() as stage:
        path = stage.folder / "meets.py"
        path.write_text(MEETS)
        yield replace(stage, source=ObjectiveSource(SourceKind.FILE, str(path)))


def orders(stage: Stage, workers: list[str], *, across: bool) -> list[AttemptOrder]:
    """Return orders of two attempts of two ranks each, over two workers."""
    found = []
    for trial, worker in enumerate(workers):
        peer = workers[trial - 1] if across else worker
        cpus = ((2 * trial,), (2 * trial + 1,))
        placement = Placement(worker, cpus[0], peers=(Placement(peer, cpus[1]),))
        found.append(AttemptOrder(stage.brief, Start(AttemptId(trial, 0), {}, placement, 1), ()))
    return found


def ended(executor: ParallelExecutor, count: int, *, seconds: float = 200.0) -> list[AttemptEnded]:
    """Wait until this many attempts have ended; return their ends in the order of the trials."""
    found: list[AttemptEnded] = []
    deadline = time.monotonic() + seconds
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += [each for each in executor.events(0.25) if isinstance(each, AttemptEnded)]
    return sorted(found, key=lambda each: each.attempt)


def joined(executor: ParallelExecutor, count: int) -> list[str]:
    found: list[str] = []
    while len(found) < count:
        found += [each.worker for each in executor.events(0.25) if isinstance(each, WorkerJoined)]
    return found


@pytest.mark.parametrize("across", [pytest.param(False, marks=pytest.mark.slow), True])
def test_two_attempts_at_once_never_meet(meeting: Stage, *, across: bool) -> None:
    def on_nodes_of_their_own(event: Event) -> Event:
        if across and isinstance(event, WorkerJoined):
            return replace(event, node=event.worker)
        return event

    with watched(meeting, on_nodes_of_their_own, workers=2) as executor:
        workers = joined(executor, 2)
        for order in orders(meeting, workers, across=across):
            executor.start(order)
        endings = [each.ending for each in ended(executor, 2)]
    assert [each.cause for each in endings] == [Cause.RETURNED] * 2, endings
    assert len({each.metrics["port"] for each in endings}) == 2
    # Between nodes, gloo and NCCL are told the interface.
    assert {each.metrics["interface"] for each in endings} == {float(across)}


SIGNALS: list[Any] = [
    pytest.param(signal.SIGKILL, 0, marks=pytest.mark.slow),
    (signal.SIGKILL, 1),
    pytest.param(signal.SIGSTOP, 0, marks=pytest.mark.slow),
    pytest.param(signal.SIGSTOP, 1, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("number", "rank"), SIGNALS)
def test_a_rank_that_dies_before_the_ranks_meet(meeting: Stage, number: int, rank: int) -> None:
    pids: list[int] = []

    def strike(event: Event) -> Event:
        if isinstance(event, RankReady):
            pids.append(event.pid)
            if event.attempt.rank == rank:
                os.kill(event.pid, number)
        return event

    with watched(meeting, strike, workers=1) as executor:
        (worker,) = joined(executor, 1)
        order, *_ = orders(meeting, [worker], across=False)
        executor.start(order)
        (end,) = ended(executor, 1)
        assert end.ending.cause is Cause.KILLED, end
        assert end.ending.reason.endswith(f"(rank {rank})")
        assert not any(is_alive(pid) for pid in pids)
        # Nothing of it is held.
        executor.start(replace(order, start=replace(order.start, attempt=AttemptId(0, 1))))
        pids.clear()
        rank = -1
        (again,) = ended(executor, 1)
    assert again.ending.cause is Cause.RETURNED, again

"""Attempts of several processes on real executors."""

from __future__ import annotations

import abc
import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tuner.core.clock import SystemClock
from tuner.executors.base import Executor
from tuner.executors.dask import DaskExecutor
from tuner.executors.joblib import JoblibExecutor
from tuner.executors.parallel import ParallelExecutor
from tuner.testing.executors import Driver, ExecutorSuite, Stage

CLOCK = SystemClock()


@contextmanager
def opened(executor: ParallelExecutor) -> Iterator[ParallelExecutor]:
    executor.open()
    try:
        yield executor
    finally:
        executor.close()


def on_dask(stage: Stage, cores: list[tuple[int, ...]]) -> DaskExecutor:
    return DaskExecutor(
        name=f"hptune-{uuid.uuid4().hex[:12]}",
        source=stage.source,
        clock=CLOCK,
        cores=cores,
        fork_server_address=stage.fork_server_address,
    )


def dask_pid(executor: Executor, worker: str) -> int:
    assert isinstance(executor, ParallelExecutor)
    inner = executor._inner
    assert isinstance(inner, DaskExecutor)
    return int(inner._client.run(os.getpid, workers=[worker])[worker])


class OfTwoProcesses(ExecutorSuite):
    ranks = 2

    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        with opened(ParallelExecutor(self.inner(stage, tuple(range(cores))), CLOCK)) as executor:
            yield executor

    @abc.abstractmethod
    def inner(self, stage: Stage, cores: tuple[int, ...]) -> Executor:
        """Return an executor whose workers have these cores each; not open yet."""


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
        return JoblibExecutor(
            source=stage.source,
            clock=CLOCK,
            # joblib does not start a process for a single worker.
            cores=[cores] * 2,
            fork_server_address=stage.fork_server_address,
        )

    def lose_worker(self, executor: Executor, worker: str) -> None:
        os.kill(int(worker.split("-")[-2]), signal.SIGKILL)

"""The simulation keeps the executor's contract, and does what it was told would happen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tuner.executors.base import Executor
from tuner.executors.simulated import (
    Faults,
    SimulatedExecutor,
    SimulatedWorker,
)
from tuner.testing.executors import ExecutorSuite, Stage, curve


@contextmanager
def simulated(*workers: SimulatedWorker) -> Iterator[SimulatedExecutor]:
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 1.0,
        workers=workers,
        faults=Faults(replaced_after_seconds=3.0),
    )
    executor.open()
    try:
        yield executor
    finally:
        executor.close()


class TestSimulatedExecutor(ExecutorSuite):
    has_processes = False

    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        with simulated(SimulatedWorker(name="w", cores=cores)) as executor:
            yield executor

    def lose_worker(self, executor: Executor, worker: str) -> None:
        assert isinstance(executor, SimulatedExecutor)
        executor.lose_worker(worker)

    @contextmanager
    def executor_without_workers(self, stage: Stage) -> Iterator[Executor]:
        with simulated() as executor:
            yield executor

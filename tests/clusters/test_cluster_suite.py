"""Every cluster keeps the contract; a cluster of one's own is used like those that are built in."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hptune.clusters.base import UNLIMITED, Cluster
from hptune.clusters.existing import at_scheduler
from hptune.clusters.local import LocalWorkers
from hptune.config.settings import StudySettings
from hptune.core.resources import Capacity
from hptune.testing.clusters import ClusterSuite
from hptune.testing.executor_driver import Stage, open_stage

PLUGIN = Path(__file__).parents[2] / "examples/plugin/hptune_evolution/workers.py"


def plugin() -> Any:
    """Return the module of the example."""
    spec = importlib.util.spec_from_file_location("worker_processes", PLUGIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class TestLocalWorkers(ClusterSuite):
    def cluster(self, settings: StudySettings, study: Path) -> Cluster:
        return LocalWorkers(settings, study)


class TestWorkerProcesses(ClusterSuite):
    def cluster(self, settings: StudySettings, study: Path) -> Cluster:
        cluster: Cluster = plugin().WorkerProcesses(settings, study, cores=2)
        return cluster


class TestScheduler(ClusterSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def stage(cls) -> Iterator[Stage]:
        """Others keep the scheduler and its worker; both are there before and after."""
        with open_stage() as stage, kept(stage):
            yield stage

    def cluster(self, settings: StudySettings, study: Path) -> Cluster:
        folder = Path(settings.working_directory)
        return at_scheduler(
            settings, study, connect=str(folder / "scheduler.json"), certs=str(folder)
        )


@contextmanager
def kept(stage: Stage) -> Iterator[None]:
    """Run a scheduler and a worker."""
    file, certs = stage.folder / "scheduler.json", ("--certs", str(stage.folder))
    hptune = [sys.executable, "-m", "hptune"]
    command = [*hptune, "scheduler", "--port", "0", "--scheduler-file", str(file), *certs]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as scheduler:
        assert scheduler.stdout is not None
        scheduler.stdout.readline()
        with subprocess.Popen([*hptune, "worker", str(file), "--cpus", "2", *certs]) as worker:
            yield
            worker.terminate()
        scheduler.terminate()


class LeavesAProcess(LocalWorkers):
    """Cluster that forgets a process."""

    def scale_up(self, resources: object, trials: int) -> None:
        self.forgotten = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


class MakesTwo(LocalWorkers):
    """Cluster whose executor is another one at each call."""

    def executor(self, *arguments: Any) -> Any:
        self._executor = None
        return super().executor(*arguments)


class HasNoLimit(LocalWorkers):
    """Cluster of this machine that has the capacity of those elsewhere."""

    @property
    def capacity(self) -> Capacity:
        return UNLIMITED


def test_the_suite_rejects_what_breaks_the_contract() -> None:
    made: list[LocalWorkers] = []

    class Suite(ClusterSuite):
        tidy_seconds = 1.0
        kind: type[LocalWorkers]

        def cluster(self, settings: StudySettings, study: Path) -> Cluster:
            made.append(self.kind(settings, study))
            return made[-1]

    suite = Suite()
    with open_stage() as stage:
        suite.kind = LeavesAProcess
        try:
            with pytest.raises(AssertionError, match="left behind: process"), suite.running(stage):
                pass
        finally:
            (leaves,) = made
            assert isinstance(leaves, LeavesAProcess)
            leaves.forgotten.kill()
            leaves.forgotten.wait()
        suite.kind = MakesTwo
        with suite.running(stage) as opened, pytest.raises(AssertionError):
            suite.test_it_has_one_executor(opened)
        suite.kind = HasNoLimit
        with suite.running(stage) as opened, pytest.raises(AssertionError):
            suite.test_a_local_one_has_no_more_cores_than_this_machine(opened)

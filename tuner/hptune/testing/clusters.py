# ruff: noqa: D102  (a test's name says what it asks for)
"""The contract of a cluster as tests.

A plug-in's author writes::

    class TestMyCluster(ClusterSuite):
        def cluster(self, settings: StudySettings, study: Path) -> Cluster:
            return MyCluster(settings, study)

and inherits the tests. Attempts are real processes that run `OBJECTIVE`.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ..clusters.base import Cluster
from ..clusters.layout import WorkerLayout, resolve_layout
from ..config.asked import asked
from ..config.settings import StudySettings
from ..core.attempt import Cause
from ..core.notice import Notice
from ..worker import devices
from .executor_driver import Driver, Stage, Traces, open_stage, wait_until

__all__ = ["ClusterSuite"]


@dataclass(frozen=True, slots=True)
class Opened:
    """A cluster that is open, and has begun to find workers for two trials.

    Attributes:
        cluster: The cluster.
        layout: What a trial holds.
        driver: Gives orders to its executor.
    """

    cluster: Cluster
    layout: WorkerLayout
    driver: Driver


class ClusterSuite(abc.ABC):
    """Subclass it, name the subclass Test…, and supply the cluster.

    Attributes:
        limit_seconds: How long to wait at most for a worker, and for what must happen there.
        tidy_seconds: How long processes, ports and folders may be there after they should not.
    """

    limit_seconds = 120.0
    tidy_seconds = 30.0

    @abc.abstractmethod
    def cluster(self, settings: StudySettings, study: Path) -> Cluster:
        """Return a cluster that is not open. Its workers have one core or more."""

    @pytest.fixture(scope="class")
    @classmethod
    def stage(cls) -> Iterator[Stage]:
        """A folder with the objective, and a warm parent; nothing may be left of either."""
        with open_stage() as stage:
            yield stage

    @pytest.fixture(scope="class")
    @classmethod
    def opened(cls, stage: Stage) -> Iterator[Opened]:
        """A cluster for the tests that leave it open."""
        with cls().running(stage) as opened:
            yield opened

    @contextmanager
    def closing(self, stage: Stage) -> Iterator[tuple[Cluster, WorkerLayout]]:
        """An open cluster, which is closed as a run closes it, and leaves nothing behind."""
        before = Traces.now(stage)
        settings = StudySettings(source=stage.source, working_directory=str(stage.folder))
        study = stage.folder / "study"
        study.mkdir(exist_ok=True)
        cluster = self.cluster(settings, study)
        layout = resolve_layout(asked(settings), {}, cluster.capacity, is_certain=cluster.is_local)
        notes: list[Notice] = []
        cluster.prepare(notes.append)
        try:
            cluster.open(stage.run)
            cluster.check_trial(layout.resources)
            yield cluster, layout
        finally:
            cluster.scale_down()
            cluster.close()
            cluster.close()
            cluster.close(force=True)
        assert not cluster.left_behind
        wait_until(lambda: not before.added(), self.tidy_seconds, before.added)

    @contextmanager
    def running(self, stage: Stage) -> Iterator[Opened]:
        """As the fixture `opened`."""
        with self.closing(stage) as (cluster, layout):
            cluster.scale_up(layout.resources, 2)
            executor = cluster.executor(layout, None)
            yield Opened(cluster, layout, Driver(executor, stage.brief, self.limit_seconds))

    def test_trials_run_on_its_workers(self, opened: Opened) -> None:
        name = opened.driver.start("return")
        assert opened.driver.ending(name).cause is Cause.RETURNED

    def test_it_tells_how_many_trials_run_at_once_and_where(self, opened: Opened) -> None:
        opened.driver.any_worker()
        assert opened.cluster.trials_at_once(opened.layout) >= 1
        assert opened.cluster.text(opened.layout)

    def test_a_local_one_has_no_more_cores_than_this_machine(self, opened: Opened) -> None:
        cluster = opened.cluster
        assert not cluster.is_local or set(cluster.capacity.cpus) <= set(devices.cpus())

    def test_it_has_one_executor(self, opened: Opened) -> None:
        again = opened.cluster.executor(opened.layout, None)
        assert again is opened.driver.executor

    def test_workers_stay_while_there_are_trials(self, opened: Opened) -> None:
        driver = opened.driver
        name = driver.running("wait")
        opened.cluster.scale_to({opened.layout.resources: 1}, driver.executor.workers)
        driver.executor.stop(name)
        assert driver.ending(name).cause is Cause.STOPPED

    def test_it_drains_only_workers_that_it_has(self, opened: Opened) -> None:
        opened.driver.any_worker()
        drained = opened.cluster.drained()
        assert set(drained) <= set(opened.driver.executor.workers)
        assert all(drained.values()), "a worker is drained: why?"

    def test_one_that_is_never_used_leaves_nothing(self, stage: Stage) -> None:
        with self.closing(stage):
            pass

    def test_attempts_end_with_it(self, stage: Stage) -> None:
        with self.running(stage) as opened:
            opened.driver.running("ignore")

"""Attempts on real Dask workers."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, LocalCluster

from hptune.core.attempt import Cause, Halt
from hptune.core.clock import SystemClock
from hptune.core.messages import (
    AttemptEnded,
    AttemptWaits,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from hptune.core.resources import Capacity
from hptune.errors import StudyError
from hptune.executors import dask_client
from hptune.executors.base import Executor, RunContext
from hptune.executors.dask import DaskExecutor
from hptune.storage.directory import StudyDirectory
from hptune.testing.executor_driver import wait_until
from hptune.testing.executors import Driver, ExecutorSuite, Stage
from hptune.worker.dask import study_access
from hptune.worker.dask.calls import remove_plugin
from hptune.worker.dask.study_access import StudyAccess, StudyAccessError, prepare_access


@contextmanager
def on_dask(
    stage: Stage, *, cores: int = 2, client: Any = None, access: StudyAccess | None = None
) -> Iterator[DaskExecutor]:
    run = RunContext(
        name=f"hptune-{uuid.uuid4().hex[:12]}",
        source=stage.source,
        clock=SystemClock(),
        fork_server=stage.fork_server_address,
    )
    executor = DaskExecutor(run, [tuple(range(cores))], client=client, access=access)
    executor.open()
    try:
        yield executor
    finally:
        executor.close()


@contextmanager
def cluster_of(workers: int) -> Iterator[tuple[Any, Any]]:
    """Return a cluster that hptune did not start, and its client."""
    with (
        dask.config.set({"distributed.worker.daemon": False}),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=2,
            processes=True,
            host="127.0.0.1",
            dashboard_address=":0",
            memory_limit=0,
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield cluster, client


def plugins(client: Any) -> list[str]:
    """Return the plugins in all workers."""
    plugins = client.run(lambda dask_worker: [*dask_worker.plugins])
    return [name for names in plugins.values() for name in names if "hptune" in name]


class TestDaskExecutor(ExecutorSuite):
    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        with on_dask(stage, cores=cores) as executor:
            yield executor

    def lose_worker(self, executor: Executor, worker: str) -> None:
        assert isinstance(executor, DaskExecutor)
        pids = executor._calls.client.run(os.getpid, workers=[worker])
        os.kill(pids[worker], signal.SIGKILL)

    @pytest.fixture(scope="class")
    @classmethod
    def cluster(cls, stage: Stage) -> Iterator[Any]:
        """A cluster of one worker for tests that leave it as it was."""
        del stage  # its folder is that of temporary files
        with cluster_of(1) as (cluster, _):
            yield cluster

    @pytest.fixture
    def client(self, cluster: Any) -> Iterator[Any]:
        with Client(cluster, set_as_default=False) as client:
            yield client
            assert plugins(client) == []

    @contextmanager
    def executor_without_workers(self, stage: Stage) -> Iterator[Executor]:
        with cluster_of(0) as (_, client), on_dask(stage, client=client) as executor:
            yield executor

    def test_workers_may_come_later(self, stage: Stage) -> None:
        with cluster_of(0) as (cluster, client), on_dask(stage, client=client) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds)
            assert driver.listen(0.1) == []
            cluster.scale(1)
            assert driver.ending(driver.start("return")).cause is Cause.RETURNED
            assert len(driver.workers) == 1

    def test_a_drained_worker_says_so_once_and_what_runs_there_goes_on(self, stage: Stage) -> None:
        with on_dask(stage) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds)
            running = driver.running("wait")
            (worker,) = driver.workers
            for name in (worker, worker, "tcp://unknown:1"):
                executor.drain(name, "it gives way")
            driver.wait(
                lambda: any(isinstance(event, WorkerLeaving) for event in driver.story),
                "the worker takes no more",
            )
            assert not any(isinstance(event, AttemptEnded) for event in driver.story)
            executor.stop(running)
            assert driver.ending(running).cause is Halt.STOP.cause
            leaving = [each for each in driver.story if isinstance(each, WorkerLeaving)]
            assert [(each.worker, each.reason) for each in leaving] == [(worker, "it gives way")]

    def test_what_waits_for_another_study_ends_at_once_when_told(
        self, stage: Stage, client: Any
    ) -> None:
        with on_dask(stage, client=client) as one, on_dask(stage, client=client) as two:
            first, second = (Driver(each, stage.brief, self.limit_seconds) for each in (one, two))
            running = first.running("wait")
            second.any_worker()
            waiting = second.start("wait")
            second.wait(
                lambda: any(isinstance(event, AttemptWaits) for event in second.story),
                "the second study's attempt waits",
            )
            two.stop(waiting, Halt.PAUSE)
            assert second.ending(waiting).cause is Cause.PAUSED
            behind = second.start("return")
            one.stop(running)
            assert second.ending(behind).cause is Cause.RETURNED
            assert first.ending(running).cause is Cause.STOPPED

    def test_an_agent_goes_whose_master_is_gone_without_a_word(
        self, stage: Stage, client: Any
    ) -> None:
        directory = StudyDirectory(stage.folder / "seen").create()
        with directory.acquire() as lock:
            access = prepare_access(directory.path, lock.owner.token, stage.source)
            with on_dask(stage, client=client, access=access) as executor:
                driver = Driver(executor, stage.brief, self.limit_seconds)
                driver.any_worker()
                assert driver.ending(driver.start("return")).cause is Cause.RETURNED
                lock.release()
                with directory.acquire():
                    wait_until(lambda: not plugins(client), 60.0, lambda: str(plugins(client)))

    def test_a_worker_without_hptune_is_refused_and_the_others_are_used(self, stage: Stage) -> None:
        with cluster_of(2) as (_, client):
            foreign, ours = client.nthreads()
            client.run(lambda: sys.modules.update(hptune=None), workers=[foreign])  # type: ignore[call-overload]  # no module
            with on_dask(stage, client=client) as executor:
                driver = Driver(executor, stage.brief, self.limit_seconds)
                driver.wait(
                    lambda: any(isinstance(event, WorkerRefused) for event in driver.story),
                    "the foreign worker is refused",
                )
                (refused,) = (each for each in driver.story if isinstance(each, WorkerRefused))
                assert (refused.worker, "is it installed?" in refused.reason) == (foreign, True)
                driver.wait(lambda: ours in driver.workers, "the other one has joined")
                ended = driver.ending(driver.start("return", worker=ours))
                assert ended.cause is Cause.RETURNED

    def test_a_worker_where_hptune_cannot_start_says_why(self, stage: Stage) -> None:
        def break_it() -> None:
            from hptune.worker import devices

            def capacity() -> Capacity:
                raise ValueError("nothing is known of this machine")

            devices.capacity = capacity

        with cluster_of(1) as (_, client):
            client.run(break_it)
            with on_dask(stage, client=client) as executor:
                driver = Driver(executor, stage.brief, self.limit_seconds)
                driver.wait(lambda: bool(driver.story), "the worker has answered")
                (refused,) = driver.story
                assert isinstance(refused, WorkerRefused)
                assert "nothing is known of this machine" in refused.reason
                assert not plugins(client)

    def test_a_plain_dask_worker_can_start_at_the_scheduler_of_a_study(self, stage: Stage) -> None:
        """Nothing that needs hptune waits there for workers, also not after a killed master."""
        script = (
            "import asyncio, sys\n"
            "sys.modules['hptune'] = None\n"
            "from distributed import Worker\n"
            "async def work():\n"
            "    async with Worker(sys.argv[1], dashboard=False) as worker:\n"
            "        print(worker.address, flush=True)\n"
            "        await worker.finished()\n"
            "asyncio.run(work())\n"
        )
        with cluster_of(1) as (cluster, client), on_dask(stage, client=client) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds)
            driver.any_worker()
            with subprocess.Popen(
                [sys.executable, "-c", script, cluster.scheduler_address],
                stdout=subprocess.PIPE,
                text=True,
            ) as started:
                try:
                    assert started.stdout is not None
                    address = started.stdout.readline().strip()
                    driver.wait(
                        lambda: address in {getattr(each, "worker", "") for each in driver.story},
                        "the plain worker has answered",
                    )
                finally:
                    started.kill()
            assert "is it installed?" in next(
                each.reason for each in driver.story if isinstance(each, WorkerRefused)
            )
            assert driver.ending(driver.start("return")).cause is Cause.RETURNED

    def test_a_worker_that_left_without_a_word_joins_again_and_no_attempt_is_charged(
        self, stage: Stage, client: Any
    ) -> None:
        """It leaves an idle study whose master is suspended."""
        with on_dask(stage, client=client) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds, may_return=True)
            worker = driver.any_worker()
            client.run(remove_plugin, executor._plugin.name)
            attempts = [driver.start("return", worker=worker) for _ in range(2)]
            for each in attempts:
                assert driver.ending(each).cause is Cause.RELEASED
            driver.wait(
                lambda: isinstance(driver.story[-1], WorkerJoined), "the worker has joined again"
            )
            assert [type(each) for each in driver.story] == [
                WorkerJoined,
                WorkerLeaving,
                AttemptEnded,
                AttemptEnded,
                WorkerLeft,
                WorkerJoined,
            ]
            assert driver.ending(driver.start("return", worker=worker)).cause is Cause.RETURNED

    def test_a_worker_that_hangs_holds_nobody_up(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(dask_client, "_STEP_SECONDS", 2.0)
        monkeypatch.setattr(dask_client, "_ASK_SECONDS", 1.0)
        with cluster_of(2) as (_, client):
            pids = client.run(os.getpid)
            hanging, other = pids
            os.kill(pids[hanging], signal.SIGSTOP)
            try:
                with on_dask(stage, client=client) as executor:
                    driver = Driver(executor, stage.brief, self.limit_seconds)
                    driver.wait(lambda: other in driver.workers, "the other one has joined")
                    ended = driver.ending(driver.start("return", worker=other))
                    assert ended.cause is Cause.RETURNED
                    assert [*driver.workers] == [other]
                    os.kill(pids[hanging], signal.SIGCONT)
                    driver.wait(lambda: hanging in driver.workers, "the first one has joined")
                    os.kill(pids[hanging], signal.SIGSTOP)
                    began = time.monotonic()
                assert time.monotonic() - began < 100
            finally:
                os.kill(pids[hanging], signal.SIGCONT)

    def test_a_connection_that_was_lost_and_is_back_ends_the_study(
        self, stage: Stage, client: Any
    ) -> None:
        with on_dask(stage, client=client) as executor:
            wait_until(lambda: bool(executor.workers), 60, lambda: "no worker")
            before = client.scheduler_comm
            client.loop.add_callback(before.comm.abort)
            wait_until(
                lambda: client.status == "running" and client.scheduler_comm is not before,
                60.0,
                lambda: client.status,
            )
            # What arrived before that counts, and nothing that came after the gap.
            client.log_event(
                executor._plugin.name, pickle.dumps(WorkerLeaving(0.0, "w", "too late"))
            )
            client.sync(client.scheduler.identity)
            assert [type(event) for event in executor.events(1.0)] == [WorkerJoined]
            with pytest.raises(StudyError, match="hptune resume"):
                executor.events(1.0)

    def test_it_is_known_which_workers_were_let_in_and_why_others_were_not(
        self, stage: Stage, client: Any
    ) -> None:
        (worker,) = client.nthreads()
        with on_dask(stage, client=client) as executor:
            wait_until(lambda: executor.workers == {worker: ""}, 60, lambda: "no worker")
        access = StudyAccess("/no/where", "token", stage.source)
        with on_dask(stage, client=client, access=access) as executor:
            wait_until(
                lambda: "files cannot be brought" in executor.workers.get(worker, ""),
                60,
                lambda: str(executor.workers),
            )

    def test_somebody_elses_client_is_left_as_it_was(self, stage: Stage, client: Any) -> None:
        with on_dask(stage, client=client) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds)
            pid = driver.pid(driver.running("wait"))
        self.check_gone(pid)
        assert plugins(client) == []
        assert client.submit(abs, -3).result() == 3


def _sees_nothing(**_: Any) -> None:
    """Have this worker take every study's directory for another one, and wait for none."""
    study_access.PATIENCE_SECONDS = 0.0
    study_access._check_directory = _unseen


def _unseen(directory: Path, token: str) -> None:
    del token
    raise StudyAccessError(f"{directory} is another directory there")


@pytest.mark.slow
class TestDaskExecutorWithoutSharedDirectory(ExecutorSuite):
    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        directory = StudyDirectory(stage.folder / "study")
        if not directory.path.exists():
            directory.create()
        with (
            dask.config.set({"distributed.worker.daemon": False}),
            LocalCluster(
                n_workers=1,
                threads_per_worker=cores,
                host="127.0.0.1",
                dashboard_address=":0",
                memory_limit=0,
            ) as cluster,
            Client(cluster, set_as_default=False) as client,
        ):
            client.register_worker_callbacks(_sees_nothing)
            access = prepare_access(directory.path, "token", stage.source)
            with on_dask(stage, client=client, access=access) as executor:
                yield executor
                seen = [each.sees_directory for each in executor._joined().values()]
                assert not any(seen), "a worker saw the directory"

    def lose_worker(self, executor: Executor, worker: str) -> None:
        assert isinstance(executor, DaskExecutor)
        pids = executor._calls.client.run(os.getpid, workers=[worker])
        os.kill(pids[worker], signal.SIGKILL)

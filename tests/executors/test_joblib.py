"""Attempts on the workers of joblib's backends, the user's own among them."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Listener
from pathlib import Path
from typing import Any

import joblib
import pytest
from joblib.parallel import BACKENDS, ThreadingBackend

from hptune.core.attempt import Cause
from hptune.core.messages import WorkerJoined
from hptune.executors.base import Executor
from hptune.executors.joblib import JoblibExecutor
from hptune.testing.executors import Driver, ExecutorSuite, Stage
from planted import Planted


@contextmanager
def on_joblib(stage: Stage, cores: list[tuple[int, ...]]) -> Iterator[JoblibExecutor]:
    executor = JoblibExecutor(stage.run, cores)
    executor.open()
    try:
        yield executor
    finally:
        executor.close()


class Kept:
    """One executor for tests in a row that leave it whole."""

    def __init__(self, opens: Callable[[], AbstractContextManager[Driver]]) -> None:
        self._opens = opens
        self._stack = ExitStack()
        self._driver: Driver | None = None

    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = self._stack.enter_context(self._opens())
        return self._driver

    def close(self) -> None:
        self._driver = None
        self._stack.close()


class TestJoblibExecutor(ExecutorSuite):
    @pytest.fixture(scope="class")
    @classmethod
    def kept(cls, stage: Stage) -> Iterator[Kept]:
        kept = Kept(lambda: cls().driver(stage))
        yield kept
        kept.close()

    @pytest.fixture
    def shared(self, kept: Kept) -> Driver:
        return kept.driver()

    @pytest.fixture(autouse=True)
    def _alone(self, request: pytest.FixtureRequest, kept: Kept) -> None:
        """Close it for a test with its own, as workers fill the only pool of loky in a process."""
        if "shared" not in request.fixturenames:
            kept.close()

    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        # joblib does not start a process for a single worker.
        with on_joblib(stage, [tuple(range(cores))] * 2) as executor:
            yield executor

    def lose_worker(self, executor: Executor, worker: str) -> None:
        pid = int(worker.split("-")[-2])
        assert pid != os.getpid()
        os.kill(pid, signal.SIGKILL)

    def wait_for_workers(self, driver: Driver, count: int) -> None:
        driver.wait(lambda: len(driver.workers) == count, f"{count} workers")
        for worker in [*driver.workers]:
            assert driver.ending(driver.start("return", worker=worker)).cause is Cause.RETURNED

    def test_each_seat_is_a_process_of_its_own(self, stage: Stage) -> None:
        with on_joblib(stage, [(0,), (1,)]) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds)
            self.wait_for_workers(driver, 2)
            assert len({worker.split("-")[-2] for worker in driver.workers}) == 2

    def test_a_stranger_who_says_nothing_keeps_no_seat_waiting(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        strangers: list[socket.socket] = []

        class Visited(Listener):
            def __init__(self, *arguments: Any, **keywords: Any) -> None:
                super().__init__(*arguments, **keywords)
                strangers.append(socket.create_connection(self.address))

        monkeypatch.setattr("hptune.executors.joblib.Listener", Visited)
        with on_joblib(stage, [(0,), (1,)]) as executor:
            self.wait_for_workers(Driver(executor, stage.brief, self.limit_seconds), 2)
            assert len(strangers) == 1
            strangers[0].close()

    def test_a_listener_without_a_free_descriptor_waits_for_one(self, stage: Stage) -> None:
        waits: list[float | None] = []

        class Closing(threading.Event):
            def wait(self, timeout: float | None = None) -> bool:
                waits.append(timeout)
                return super().wait(0)

        class Full:
            calls = 0

            def accept(self) -> None:
                self.calls += 1
                if self.calls == 3:
                    closing.set()
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        executor: Any = JoblibExecutor(stage.run, [(0,)])
        executor._closing = closing = Closing()
        executor._accept(Full())
        assert waits == [0.1] * 3

    def test_a_stranger_is_not_listened_to(self, stage: Stage, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        with joblib.parallel_config("threading"), on_joblib(stage, [(0,)]) as executor:
            assert executor._listener is not None
            self.wait_for_workers(Driver(executor, stage.brief, self.limit_seconds), 1)
            address = executor._listener.address
            with pytest.raises(AuthenticationError):
                Client(address, authkey=b"a guess")
            # A pickle in place of the answer to the challenge.
            planted = pickle.dumps(Planted(mark))
            with Client(address) as stranger:
                stranger.recv_bytes()
                stranger.send_bytes(planted)
                assert b"FAILURE" in stranger.recv_bytes()
        assert not mark.exists()

    def test_threads_are_used_where_the_user_says_so(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Their job's end is known, so that no trial is placed on them that ends too late."""
        monkeypatch.setenv("SLURM_JOB_END_TIME", "4000000000")
        with joblib.parallel_config("threading"), on_joblib(stage, [(0,), (1,)]) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds)
            self.wait_for_workers(driver, 2)
            assert {worker.split("-")[-2] for worker in driver.workers} == {str(os.getpid())}
            joined = [each for each in driver.story if isinstance(each, WorkerJoined)]
            assert [each.ends_at for each in joined] == [4e9] * 2

    def test_a_backend_of_the_users_own_is_used(self, stage: Stage) -> None:
        used: list[str] = []

        class Own(ThreadingBackend):
            def submit(self, func: Any, callback: Any = None) -> Any:
                used.append("here")
                return super().submit(func, callback)

            apply_async = submit

        joblib.register_parallel_backend("own", Own)
        try:
            with joblib.parallel_config("own"), on_joblib(stage, [(0,), (1,)]) as executor:
                self.wait_for_workers(Driver(executor, stage.brief, self.limit_seconds), 2)
        finally:
            del BACKENDS["own"]
        assert len(used) == 2

    def test_dask_is_used_where_the_user_says_so(self, stage: Stage) -> None:
        from distributed import Client, LocalCluster

        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=":0",
                memory_limit=0,
            ) as cluster,
            Client(cluster) as client,
            joblib.parallel_config("dask"),
        ):
            pids = {str(pid) for pid in client.run(os.getpid).values()}
            with on_joblib(stage, [(0,), (1,)]) as executor:
                driver = Driver(executor, stage.brief, self.limit_seconds)
                self.wait_for_workers(driver, 2)
                assert {worker.split("-")[-2] for worker in driver.workers} == pids


def test_a_worker_that_begins_after_its_master_was_killed_ends() -> None:
    """joblib would keep its process for minutes, with the master's output open."""
    script = """
import multiprocessing, os
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.joblib_worker import serve

multiprocessing.current_process().name = "LokyProcess-1"
try:
    serve(("127.0.0.1", 1), b"key", cpus=(0,), place=(0, 1), master_pid=MASTER,
          source=ObjectiveSource(SourceKind.FILE, "model.py"), fork_server_address=None)
except OSError:
    print("it goes on")
"""
    for master, ended in ((os.getpid(), (0, "it goes on\n")), (1 << 22, (1, ""))):
        found = subprocess.run(
            [sys.executable, "-c", script.replace("MASTER", str(master))],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (found.returncode, found.stdout) == ended, found.stderr

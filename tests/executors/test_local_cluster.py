"""A Dask cluster on this machine: its processes, killed or hanging, and one that cannot start."""

from __future__ import annotations

import contextlib
import errno
import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import dask
import psutil
import pytest
from distributed import Client, Status

from hptune.core.clock import SystemClock
from hptune.errors import StudyError
from hptune.executors import local_cluster
from hptune.executors.base import RunContext
from hptune.executors.dask import DaskExecutor
from hptune.executors.local_cluster import own_client, own_cluster
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.dask import worker_server
from hptune.worker.dask.worker_server import SERVER_NAME, WORKER_NAME, WorkerServer
from real_runs import is_alive, wait_for


def children_of(pid: int, name: str) -> list[psutil.Process]:
    found = psutil.Process(pid).children()
    return [each for each in found if each.name() == name and is_alive(each.pid)]


def test_workers_and_what_forks_them_start_again_when_killed(tmp_path: Path) -> None:
    with own_cluster([(0,), (0,)], (), tmp_path) as cluster, Client(cluster) as client:

        def pids() -> set[int]:
            client.wait_for_workers(2, timeout=60)
            return set(client.run(os.getpid, on_error="ignore").values())

        (server,) = children_of(os.getpid(), SERVER_NAME)
        first = pids()
        assert first == {each.pid for each in children_of(server.pid, WORKER_NAME)}
        killed = first.pop()
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: len(pids() - {killed}) == 2, "another worker")
        second = pids()
        assert first < second
        server.kill()
        wait_for(lambda: len(pids() - second) == 2, "other workers")
        assert not any(is_alive(each) for each in second)
        (another,) = children_of(os.getpid(), SERVER_NAME)
        third = pids()
    assert not is_alive(another.pid)
    wait_for(lambda: not any(is_alive(each) for each in third), "its workers' end")


def test_a_worker_that_cannot_be_forked_again_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork, forks = os.fork, itertools.count()

    def failing_fork() -> int:
        if next(forks) == 2:  # after those of the server and of the worker
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return fork()

    monkeypatch.setattr(worker_server, "_may_fork", lambda: True)
    monkeypatch.setattr(os, "fork", failing_fork)
    with own_cluster([(0,)], (), tmp_path) as cluster, Client(cluster) as client:
        client.wait_for_workers(1, timeout=60)
        servers = children_of(os.getpid(), SERVER_NAME)
        (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: pid not in client.run(os.getpid, on_error="ignore").values(), "its end")
        client.wait_for_workers(1, timeout=60)
        assert children_of(os.getpid(), SERVER_NAME) == servers


def test_workers_start_again_also_where_no_program_could_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, starts = subprocess.Popen, itertools.count()

    def failing_start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        if next(starts) == 0:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return start(*arguments, **options)

    with own_client([(0,)], (), str(tmp_path)) as client:
        (server,) = children_of(os.getpid(), SERVER_NAME)
        monkeypatch.setattr(subprocess, "Popen", failing_start)
        server.kill()
        wait_for(lambda: client.nthreads() == {}, "the end of its worker")
        client.wait_for_workers(1, timeout=60)


KILLED_AT_START = """
import os, pathlib
deaths = pathlib.Path({path!r})
if len(deaths.read_text()) < {most}:
    with deaths.open("a") as file:
        file.write("x")
    os.kill(os.getpid(), 9)
"""


def test_a_worker_that_is_killed_as_it_starts_is_started_again(tmp_path: Path) -> None:
    deaths, preload = tmp_path / "deaths", tmp_path / "preload.py"
    deaths.touch()
    settings = {"distributed.worker.preload": [str(preload)]}
    preload.write_text(KILLED_AT_START.format(path=str(deaths), most=2))
    with dask.config.set(settings), own_client([(0,)], (), str(tmp_path)) as client:
        assert list(client.nthreads().values()) == [1]
    preload.write_text(KILLED_AT_START.format(path=str(deaths), most=99))
    starts = own_client([(0,)], (), str(tmp_path))
    killed = pytest.raises(StudyError, match="was killed as it started, 3 times")
    with dask.config.set(settings), killed, starts:
        pass
    assert deaths.read_text() == "xx" + "xxx"


def test_signals_that_stop_a_study_are_left_to_its_master(tmp_path: Path) -> None:
    with own_client([(0,)], (), str(tmp_path)) as client:

        def survivors() -> list[int]:
            client.wait_for_workers(1, timeout=60)
            (server,) = children_of(os.getpid(), SERVER_NAME)
            pids = [server.pid, *client.run(os.getpid).values()]
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1):
                for pid in pids:
                    os.kill(pid, number)
            assert list(client.run(os.getpid).values()) == pids[1:]
            assert children_of(os.getpid(), SERVER_NAME) == [server]
            return pids

        first, _ = survivors()
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: client.nthreads() == {}, "the end of its worker")
        second, _ = survivors()
        assert first != second


@pytest.mark.parametrize("opened", ["nvidiactl", "other"])
def test_workers_are_forked_unless_a_gpus_driver_is_open(
    opened: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = SimpleNamespace(main=SimpleNamespace(__module__="hptune.__main__"))
    monkeypatch.setitem(sys.modules, "__main__", command)
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread()])
    files = (str(tmp_path / "nvidia"),)
    monkeypatch.setattr("hptune.worker.gpus.machine._DEVICE_FILES", files)
    others = {*psutil.Process().children()}
    with (tmp_path / opened).open("w"), contextlib.closing(WorkerServer()):
        (server,) = {*psutil.Process().children()} - others
        is_forked = server.cmdline() == psutil.Process().cmdline()
    assert is_forked is (opened == "other")


def test_a_worker_that_hangs_is_ended_with_its_cluster(tmp_path: Path) -> None:
    with own_cluster([(0,)], (), tmp_path) as cluster:
        with Client(cluster) as client:
            (pid,) = client.run(os.getpid).values()
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: not is_alive(pid), "its end")


def test_a_cluster_that_closes_too_slowly_is_closed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "_CLUSTER_SECONDS", 0.001)
    before = threading.active_count()
    with own_cluster([(0,)], (), tmp_path) as cluster:
        pass
    assert cluster.status is Status.closed
    wait_for(lambda: threading.active_count() <= before, "the end of its thread")


def test_a_cluster_that_cannot_be_closed_leaves_no_thread_and_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    with own_cluster([(0,)], (), tmp_path) as cluster:
        with Client(cluster) as client:
            (pid,) = client.run(os.getpid).values()
        worker = cluster.workers[0]
        monkeypatch.setattr(type(worker), "status", property(lambda _: Status.running, _ignore))
    wait_for(lambda: not is_alive(pid), "its end")
    assert cluster.status is Status.closed
    wait_for(lambda: threading.active_count() <= before, "the end of its thread")
    del cluster
    gc.collect()  # its warnings are errors


def _ignore(*_: object) -> None:
    """Change nothing."""


def test_why_a_worker_does_not_start_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    starts = own_cluster([(0,)], (), tmp_path / "file")
    with pytest.raises(StudyError, match=r"cannot be started: .*Not a directory"), starts:
        pass
    assert not children_of(os.getpid(), SERVER_NAME)


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("preload", ["no_such_module"], "No module named 'no_such_module'"),
        ("transfer.message-bytes-limit", "much", "Could not interpret 'much' as a byte unit"),
    ],
)
def test_what_dask_cannot_do_with_the_users_settings_is_said(
    setting: str, value: object, why: str, tmp_path: Path
) -> None:
    with dask.config.set({f"distributed.worker.{setting}": value}):
        starts = own_cluster([(0,)], (), tmp_path)
        with pytest.raises(StudyError, match=f"cannot be started: {why}"), starts:
            pass


def test_a_file_that_hides_a_module_of_python_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hiding = ModuleType("glob")
    hiding.__file__ = str(tmp_path / "glob.py")
    monkeypatch.setitem(sys.modules, "glob", hiding)
    monkeypatch.setattr(local_cluster, "_cluster", Mock(side_effect=RuntimeError("no glob")))
    starts = own_cluster([(0,)], (), tmp_path)
    with (
        pytest.raises(StudyError, match=r"no glob; .*/glob\.py hides Python's module glob"),
        starts,
    ):
        pass


def test_a_cluster_without_a_client_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[Any] = []

    class Cluster:
        scheduler = SimpleNamespace(listeners=())
        status = Status.closed

        def close(self, *, timeout: float) -> None:
            closed.append(timeout)

    def connect(*_: object, **__: object) -> NoReturn:
        raise OSError("the scheduler is gone")

    monkeypatch.setattr(local_cluster, "_cluster", lambda *_: Cluster())
    monkeypatch.setattr(local_cluster, "Client", connect)
    run = RunContext(
        name="study",
        source=ObjectiveSource(SourceKind.FILE, "model.py"),
        clock=SystemClock(),
        fork_server=str(tmp_path / "server"),
    )
    executor = DaskExecutor(run, [(0,)])
    with pytest.raises(StudyError, match="does not answer: the scheduler is gone"):
        executor.open()
    assert closed == [20]
    assert list(tmp_path.iterdir()) == []
    executor.close()

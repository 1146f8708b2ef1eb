"""What the fork server tells its owner, and of trials that ended."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hptune.core.space.space import SearchSpace
from hptune.user_code.model_file import UserCode, check_path, save
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.forkserver import client, orphans, server
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.gpus.machine import Gpus
from hptune.worker.orders import ProbeOrder
from nvml import Card, Driver


def test_what_cannot_be_killed_delays_one_end_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a program of root's that a trial started."""
    told: list[Any] = []
    owner: Any = SimpleNamespace(send=told.append)
    ended = [(os.getpid(), 0)]
    monkeypatch.setattr(orphans, "children", lambda: {4711})
    monkeypatch.setattr(orphans, "kill", lambda _, *, spares_trackers: spares_trackers)
    monkeypatch.setattr(os, "waitpid", lambda *_: ended.pop() if ended else (0, 0))
    serving = server._Server(str(tmp_path / "server"), 0)
    serving._children[os.getpid()] = server._Child("first", owner)
    serving._reap()
    assert told == []
    monkeypatch.setattr(serving, "_tell_at", time.monotonic())
    serving._reap()
    assert told == [("first", 0)]
    serving._children[os.getpid()] = server._Child("second", owner)
    ended.append((os.getpid(), 0))
    serving._reap()
    assert told[1:] == [("second", 0)]
    serving._listener.close()


def test_it_is_ready_though_a_process_that_it_has_left_imports_a_framework(tmp_path: Path) -> None:
    python = tmp_path / "python"
    lines = r"importing Keras\n\nready\nimporting JAX\n\n"
    python.write_text(f"#!/bin/sh\nprintf '{lines}'\nexec cat\n")
    python.chmod(0o700)
    source = ObjectiveSource(SourceKind.FILE, str(tmp_path / "model.py"), python=str(python))
    with contextlib.closing(ForkServer(source)) as made:
        ending = threading.Timer(20.0, made.close)
        ending.start()
        made.wait_ready()
        ending.cancel()


def test_an_owner_that_dies_while_it_ends_the_import_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at a second Ctrl-C."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = tmp_path / "model.py"
    code.write_text("import time\ntime.sleep(100)\n")
    made = ForkServer(ObjectiveSource(SourceKind.FILE, str(code)))
    assert len([*tmp_path.glob("hptune-*")]) == 1
    left: list[Path] = []
    end = orphans.kill_of_dead_server

    def look_and_end(folder: Path) -> None:
        left.extend(tmp_path.glob("hptune-*"))
        end(folder)

    monkeypatch.setattr(orphans, "kill_of_dead_server", look_and_end)
    made.close()
    assert made._process.returncode == -signal.SIGKILL
    assert left == []


def test_an_early_server_serves_the_code_that_it_was_started_for_or_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = tmp_path / "model.py"
    code.write_text("import time\ntime.sleep(100)\n")
    source = ObjectiveSource(SourceKind.FILE, str(code))
    with ForkServer.started_early(source):
        assert len([*tmp_path.glob("hptune-*")]) == 1
    assert [*tmp_path.glob("hptune-*")] == []
    with ForkServer.started_early(source):
        assert ForkServer.resting(replace(source, entry="Model")) is None
        assert [*tmp_path.glob("hptune-*")] == []
        assert ForkServer.resting(source) is None
    with ForkServer.started_early(source):
        taken = ForkServer.resting(source)
    assert taken is not None
    assert taken._process.poll() is None
    taken.close()
    assert [*tmp_path.glob("hptune-*")] == []


def test_an_early_server_serves_a_study_that_looks_for_gpus_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"):
        monkeypatch.setenv(name, "")  # so that it is put back
        monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "pynvml", Driver(Card("GPU-a", bus=1), Card("GPU-b", bus=2)))
    code = tmp_path / "model.py"
    code.write_text("import time\ntime.sleep(100)\n")
    source = ObjectiveSource(SourceKind.FILE, str(code))
    with ForkServer.started_early(source):
        assert Gpus().names == ("0", "1")
        assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        taken = ForkServer.resting(source)
    assert taken is not None
    taken.close()


def test_of_two_threads_one_gets_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seen(list[ForkServer]):
        """A list whose length both threads have seen before one of them takes something."""

        both = threading.Barrier(2, timeout=10)

        def __len__(self) -> int:
            length = super().__len__()
            self.both.wait()
            return length

    monkeypatch.setattr(client, "_resting", Seen())
    code = tmp_path / "model.py"
    code.write_text("import time\ntime.sleep(100)\n")
    source = ObjectiveSource(SourceKind.FILE, str(code))
    with ForkServer.started_early(source), ThreadPoolExecutor() as threads:
        taken = {*threads.map(ForkServer.resting, [source, source])}
    assert None in taken
    taken.remove(None)
    for each in taken:
        assert each is not None
        each.close()
    assert len(taken) == 1


def test_a_server_waits_for_its_own_process_only_and_for_any_of_its_studies(tmp_path: Path) -> None:
    """A forked process, such as one of a pool, neither ends it nor keeps it from its end."""
    sources = []
    for name in ("first", "second"):
        path = tmp_path / f"{name}.pkl"
        save(UserCode(objective=lambda hp: 0.0), path)
        sources.append(ObjectiveSource(SourceKind.PICKLE, str(path)))
    made = ForkServer(sources[0])
    made.wait_ready()
    made.rest()
    Path(sources[0].path).unlink()
    awake, waker = os.pipe()
    if (child := os.fork()) == 0:
        os.close(waker)
        is_none = ForkServer.resting(sources[1]) is None
        os.read(awake, 1)
        os._exit(0 if is_none else 1)
    try:
        assert ForkServer.resting(sources[1]) is made
        made.rest()
        assert ForkServer.resting(sources[1]) is made
        Path(sources[1].path).unlink()
        made.rest()
        assert made._process.returncode == 0, "the child has none of its pipes"
    finally:
        os.close(waker)
        assert os.waitpid(child, 0)[1] == 0
        os.close(awake)


@pytest.mark.parametrize("name", ["model.py", "code.py"])  # the latter is one of Python's own
@pytest.mark.parametrize(
    "edited", ["def objective(hp", "def objective(hp, trial): return hp.Int('b', 0, 9)"]
)
def test_children_run_the_file_as_their_server_imported_it(
    tmp_path: Path, name: str, edited: str
) -> None:
    path = tmp_path / name
    path.write_text("def objective(hp, trial):\n    return hp.Int('a', 0, 9)\n")
    served = ForkServer(check_path(path))
    try:
        served.wait_ready()
        path.write_text(edited)
        found = served.probe(ProbeOrder(served.source, str(tmp_path)))
    finally:
        served.close()
    assert [*SearchSpace.from_json(found.space).defaults()] == ["a"]


@pytest.mark.parametrize("thread", ["", "threading.Thread(target=threading.Event().wait).start()"])
@pytest.mark.parametrize("own", ["", "os.chdir(os.path.dirname(__file__))"])
def test_code_runs_where_its_paths_start_unless_it_goes_elsewhere(
    tmp_path: Path, own: str, thread: str
) -> None:
    """Imported by the server, or by the child if a thread keeps the server from it."""
    started, project = tmp_path / "started", tmp_path / "project"
    started.mkdir()
    project.mkdir()
    (project / "model.py").write_text(
        f"import os, threading\n{own}\n{thread}\nFIRST = os.getcwd()\n"
        "def objective(hp, trial):\n"
        "    return hp.Choice('a', [FIRST, '']), hp.Choice('b', [os.getcwd(), ''])\n"
    )
    source = replace(check_path(project / "model.py"), working_directory=str(started))
    with contextlib.closing(ForkServer(source)) as served:
        found = served.probe(ProbeOrder(source, str(tmp_path)))
        assert bool(thread) == any("starts threads" in each for each in found.warnings)
    where = str(project if own else started)
    assert SearchSpace.from_json(found.space).defaults() == {"a": where, "b": where}

"""What others on the machine do to a running study: it goes on, or ends with one clear sentence."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_process import InProcess
from real_runs import Hptune, Started, rows, wait_for

# Trials that report every 0.1 s until their gate is there.
GATED = """\
import importlib.util, os, time

def objective(hp, trial):
    assert importlib.util.find_spec("planted_by_others") is None
    x = hp.Float("x", 0, 1)
    for step in range(1, 10_000):
        trial.report(step, value=x)
        if trial.should_stop() or os.path.exists({gate!r}):
            return x
        time.sleep(0.1)
"""


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Return the file that ends all trials."""
    return tmp_path / "gate"


def start(hptune: Hptune, gate: Path, *options: object) -> Started:
    """Start a study, and return when its trials report."""
    model = hptune.file("model.py", GATED.format(gate=str(gate)))
    started = hptune.start("run", model, "--trials", 3, "-q", "--study", hptune.study(), *options)
    wait_for_reports(hptune, started)
    return started


def wait_for_reports(hptune: Hptune, started: Started) -> None:
    def has_reports() -> bool:
        assert started.process.poll() is None, started.wait()
        database = hptune.study() / "study.db"
        return database.exists() and bool(rows(hptune.study(), "SELECT * FROM reports"))

    wait_for(has_reports, "reports")


def test_a_second_master_fences_the_first_and_a_reader_delays_it(
    hptune: Hptune, cli: InProcess, gate: Path
) -> None:
    first = start(hptune, gate)
    for name in ("lock", "lease"):
        (hptune.study() / name).unlink()
    second = hptune.start("resume", "-q", hptune.study())
    ended = first.wait()
    assert ended.code == 1
    assert f"was taken over by process {second.pid} " in ended.err
    assert ended.err.count("\n") == 1, ended.err

    wait_for_reports(hptune, second)
    with contextlib.closing(sqlite3.connect(hptune.study() / "study.db")) as browser:
        browser.execute("BEGIN")
        browser.execute("SELECT * FROM trials").fetchall()
        assert second.process.stderr is not None
        lines = iter(second.process.stderr.readline, "")
        told = next(line for line in lines if "is kept locked by process" in line)
        assert "the study waits" in told
    gate.touch()
    ended = second.wait()
    assert ended.code == 0, ended.err
    assert cli("replay", hptune.study()).code == 0


@contextlib.contextmanager
def strangers(hptune: Hptune) -> Iterator[None]:
    """Put what other users may put into the temporary directory; check that nothing uses it."""
    mine = hptune.file("mine", "my thesis")
    pipe, link, endless, scratch = folders = [
        hptune.temporary / name
        for name in ("hptune-pipe", "hptune-link", "dask-hptune-endless", "dask-scratch-space")
    ]
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o777)
    os.mkfifo(pipe / "owner")
    (link / "owner").symlink_to(pipe / "owner")
    (endless / "owner").symlink_to("/dev/zero")
    (scratch / "global.lock").symlink_to(mine)
    for name in ("joblib", "hptune", "cloudpickle", "scipy", "psutil", "planted_by_others"):
        (scratch / f"{name}.py").write_text("raise SystemExit('planted code runs')")
    before = sorted(scratch.iterdir())
    yield
    assert mine.read_text() == "my thesis"
    assert sorted(scratch.iterdir()) == before
    for folder in folders:
        shutil.rmtree(folder)


def test_a_study_that_is_renamed_among_files_of_others(
    hptune: Hptune, cli: InProcess, gate: Path
) -> None:
    with strangers(hptune):
        rename_and_resume(hptune, cli, gate)


def rename_and_resume(hptune: Hptune, cli: InProcess, gate: Path) -> None:
    started = start(hptune, gate, "--workers", 1, "--pack", "off")
    hptune.study().rename(hptune.study("renamed"))
    ended = started.wait()
    assert ended.code == 1
    assert "was removed or renamed" in ended.err
    assert ended.err.count("\n") == 1, ended.err
    assert not hptune.study().exists()
    assert "warning" not in ended.err
    gate.touch()
    hptune.study("renamed").chmod(0o777)
    refused = cli("resume", "-q", hptune.study("renamed"))
    assert refused.code == 2
    assert "every user of this machine may write to" in refused.err
    hptune.study("renamed").chmod(0o700)
    resumed = hptune("resume", "-q", hptune.study("renamed"))
    assert resumed.code == 0

"""Whole studies in jobs of a real Grid Engine, also when jobs, workers and masters end."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import pytest

from hptune.clusters.base import Cluster
from hptune.clusters.batch_jobs import BatchWorkers
from hptune.config.settings import StudySettings
from hptune.testing.clusters import ClusterSuite
from hptune.testing.executor_driver import Stage, open_stage
from in_process import InProcess, signals_kept
from private_grid_engine import QUEUE, PrivateGridEngine
from real_runs import Hptune, Started, rows, states, wait_for
from slurm_studies import finish, go, model, reached

JOB: dict[str, Any] = {
    "cores": 1,
    "memory": "1GB",
    "walltime": "00:10:00",
    "interface": "lo",
    # A job has the environment of the run, by which the test finds what is left of it.
    "job-extra-directives": ["-V"],
}


def configure(hptune: Hptune, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
    """Write dask-jobqueue's configuration, as a site would."""
    (hptune.directory / "dask").mkdir(exist_ok=True)
    hptune.file("dask/jobqueue.yaml", json.dumps({"jobqueue": {"sge": {**JOB, **changes}}}))
    monkeypatch.setenv("DASK_CONFIG", str(hptune.directory / "dask"))


def start(hptune: Hptune, *options: object) -> Started:
    return hptune.start(
        "run", "model.py", "--cluster", "sge", "--study", "study", "--search", "random",
        "--seed", "1", *options,
    )  # fmt: skip


def workers(hptune: Hptune) -> dict[str, int]:
    """Return the processes of the workers, by their jobs' ids."""
    found = {}
    for pid, command in hptune.processes().items():
        if "-m hptune worker" in command:
            try:
                pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:  # it has ended meanwhile
                continue
            variables = dict(each.partition(b"=")[::2] for each in pairs)
            found[variables[b"JOB_ID"].decode()] = pid
    return found


def test_a_study_survives_a_deleted_job_a_killed_worker_and_ctrl_c(
    hptune: Hptune, grid_engine: PrivateGridEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(hptune, monkeypatch)
    model(hptune, epochs=400, seconds=0.25)
    run = start(hptune, "--trials", 2, "--max-jobs", 2)
    study = hptune.study()
    wait_for(lambda: reached(study, 2, count=2), "two trials under way")
    first, second = sorted(workers(hptune), key=int)
    grid_engine.run("qdel", first)
    os.kill(workers(hptune)[second], signal.SIGKILL)
    gone = {first, second}
    wait_for(lambda: len({*workers(hptune)} - gone) == 2, "two other jobs")
    run.interrupt()
    ended = run.wait()
    assert ended.code == 130, ended
    assert "in at most 2 Grid Engine jobs of 1 core, 500 MB" in ended.err
    assert f"job {first} has ended" in ended.err
    assert f"job {second} has ended" in ended.err
    assert grid_engine.jobs() == {}
    go(hptune)
    finish(hptune, hptune.start("resume", "study"), count=2, epochs=400)


@pytest.mark.slow
def test_a_worker_leaves_before_its_walltime_and_its_trial_continues_in_the_next_job(
    hptune: Hptune, grid_engine: PrivateGridEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(hptune, monkeypatch, walltime="16")  # it leaves after 12 seconds
    model(hptune, epochs=80, seconds=0.2)
    output = finish(hptune, start(hptune, "--trials", 1, "--max-jobs", 1), count=1, epochs=80)
    held = rows(hptune.study(), "SELECT outcome, reason FROM attempts ORDER BY number")
    assert [row["outcome"] for row in held] == ["RELEASED"] * (len(held) - 1) + ["FINISHED"]
    assert len(held) > 1
    (first, *_) = sorted((hptune.study() / "jobs").glob("*.o*"))
    assert "the end of the job's walltime, as it was when the job began" in first.read_text()
    assert re.search(r"job \d+ has ended", output)


@pytest.mark.slow
def test_jobs_that_wait_are_told_of_once_and_the_study_begins_when_they_start(
    hptune: Hptune, grid_engine: PrivateGridEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(hptune, monkeypatch)
    model(hptune, epochs=1, seconds=0.0)
    grid_engine.run("qmod", "-d", QUEUE)
    try:
        run = start(hptune, "--trials", 2)
        assert run.process.stderr is not None
        waits = re.compile(r"no worker has joined yet. Grid Engine shows: (\d+) .* qw .*\1$")
        seen = ""
        while not waits.search(seen.rstrip()):
            seen = run.process.stderr.readline()
            assert seen, "the run has ended"
        assert set(grid_engine.jobs().values()) == {"qw"}
    finally:
        grid_engine.run("qmod", "-e", QUEUE)
    ended = run.wait()
    assert ended.code == 0, ended
    assert "no worker has joined yet" not in ended.err
    assert states(hptune.study()) == {"COMPLETE": 2}


@pytest.mark.parametrize(
    ("changes", "options", "code", "words"),
    [
        (
            {"job-extra-directives": ["-l nope=1"]},
            (),
            2,
            'Grid Engine takes no job: Unable to run job: unknown resource "nope"',
        ),
        ({"cores": None}, (), 2, "describes no job: You must specify how much cores"),
        ({"walltime": "1 day"}, (), 2, "describes no job: its walltime is '1 day'; allowed is"),
        ({}, ("--cpus-per-trial", 2), 2, "a trial asks for 2 cores, but a job has 1 core"),
        (
            {"job-script-prologue": ["echo no such module >&2", "exit 3"]},
            (),
            1,
            "3 jobs in a row were of no use. The last one: job",
        ),
    ],
    ids=["refused", "no size", "walltime", "too large", "setup"],
)
def test_what_cannot_work_is_said_and_leaves_nothing(
    cli: InProcess,
    grid_engine: PrivateGridEngine,
    *,
    changes: dict[str, Any],
    options: tuple[object, ...],
    code: int,
    words: str,
) -> None:
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    with signals_kept():
        import dask_jobqueue  # noqa: F401  # its defaults would go with the changes
    place = ("--cluster", "sge", "--study", "study")
    with dask.config.set({f"jobqueue.sge.{k}": v for k, v in {**JOB, **changes}.items()}):
        ended = cli("run", "model.py", *place, "--trials", 4, *options)
    assert (ended.code, words in ended.err) == (code, True), ended.err
    assert "Traceback" not in ended.err
    assert ("no such module" in ended.err) == (code == 1)
    assert grid_engine.jobs() == {}


@pytest.mark.slow
class TestGridEngineJobs(ClusterSuite):
    """The contract of a cluster, which takes half a minute."""

    @pytest.fixture(scope="class")
    @classmethod
    def stage(cls, one_grid_engine: PrivateGridEngine) -> Iterator[Stage]:
        """The commands of Grid Engine find the private one for all tests."""
        keys = {"job-extra-directives": ["-V"], "cores": 2}
        with (
            pytest.MonkeyPatch.context() as patch,
            dask.config.set({f"jobqueue.sge.{k}": v for k, v in {**JOB, **keys}.items()}),
            open_stage() as stage,
        ):
            for name, value in one_grid_engine.environment.items():
                patch.setenv(name, value)
            yield stage

    def cluster(self, settings: StudySettings, study: Path) -> Cluster:
        return BatchWorkers(replace(settings, cluster="sge"), study, max_jobs=2)

"""Studies in jobs of batch systems whose commands are imitated, and the list of jobs."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any
from unittest import mock

import dask
import pytest
from dask.utils import parse_bytes

from fake_batch_system import COMMANDS, install
from hptune.clusters import batch_jobs
from hptune.clusters.batch_jobs import BatchJob, JobList, Seen
from hptune.clusters.batch_systems import SYSTEMS, JobMaker
from hptune_jobqueue.errors import JobsFailError
from hptune_jobqueue.scheduler import JoinedWorker
from hptune_jobqueue.script import job_class
from real_runs import Hptune, states, wait_for
from slurm_studies import model

JOB: dict[str, Any] = {"cores": 1, "memory": "1GB", "interface": "lo", "disk": "1GB"}
JOB["death-timeout"] = "2 minutes"  # as dask reads times, and a shell two words
TEN_MINUTES = {"pbs": "00:10:00", "lsf": "00:10", "htcondor": "10:00", "oar": "0:10"}


def test_a_study_runs_in_the_jobs_of_each_system_and_cancels_them(hptune: Hptune) -> None:
    model(hptune, epochs=1, seconds=0.0)
    config = {each: {**JOB, "walltime": TEN_MINUTES[each]} for each in COMMANDS}
    (hptune.directory / "dask").mkdir()
    hptune.file("dask/jobqueue.yaml", json.dumps({"jobqueue": config}))
    runs = {}
    for system in COMMANDS:
        folder = hptune.directory / system
        install(folder, system)
        runs[system] = hptune.start(
            "run", "model.py", "--cluster", system, "--study", f"study-{system}", "--trials", 2,
            "--search", "random", "--max-jobs", 1,
            PATH=f"{folder}:{os.environ['PATH']}", FAKE_BATCH_SYSTEM=str(folder),
            DASK_CONFIG=str(hptune.directory / "dask"),
        )  # fmt: skip
    for system, run in runs.items():
        ended = run.wait(seconds=120)
        assert ended.code == 0, (system, ended)
        assert states(hptune.study(f"study-{system}")) == {"COMPLETE": 2}
        (script,) = (hptune.directory / system).glob("*.sh")
        assert "-m hptune worker tls://127.0.0.1:" in script.read_text()
        assert "date -d +600sec +%s" in script.read_text()
        assert "--death-timeout 120 " in script.read_text()


def test_a_study_whose_first_job_is_refused_leaves_its_name_to_the_next_command(
    hptune: Hptune, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(hptune, epochs=1, seconds=0.0)
    config = {"lsf": {**JOB, "walltime": TEN_MINUTES["lsf"]}}
    (hptune.directory / "dask").mkdir()
    hptune.file("dask/jobqueue.yaml", json.dumps({"jobqueue": config}))
    install(hptune.directory / "lsf", "lsf")
    (hptune.directory / "lsf" / "bsub").write_text("#!/bin/sh\necho no such queue\nexit 1\n")
    monkeypatch.setenv("PATH", str(hptune.directory / "lsf"), prepend=os.pathsep)
    monkeypatch.setenv("FAKE_BATCH_SYSTEM", str(hptune.directory / "lsf"))
    monkeypatch.setenv("DASK_CONFIG", str(hptune.directory / "dask"))
    command = ("run", "model.py", "--study", "study", "--trials", 1, "--search", "random")
    refused = hptune(*command, "--cluster", "lsf")
    assert (refused.code, "no such queue" in refused.err) == (2, True)
    assert hptune(*command, "--executor", "joblib").code == 0
    refused = hptune("resume", "study", "--cluster", "lsf", "--trials", 2)
    assert (refused.code, "no such queue" in refused.err) == (2, True)
    assert "not running: LSF takes no job: " in hptune("status", "study").out


@pytest.mark.parametrize("system", COMMANDS)
def test_a_worker_is_granted_the_memory_that_it_offers(
    system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", system)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    job_class(SYSTEMS[system].job_class)  # its import sets defaults
    for memory in ("1GB", "64GB", "1200GB"):
        given = {f"jobqueue.{system}.{key}": each for key, each in JOB.items()}
        with dask.config.set({**given, f"jobqueue.{system}.memory": memory}):
            maker = JobMaker(SYSTEMS[system], name="a", logs=tmp_path, arguments=())
            script = maker.job("tcp://login:8786", "w").job_script()
        granted, offered = re.findall(r"--memory(?:-limit)? (\S+)", script)
        assert int(offered) <= parse_bytes(granted)


def job(number: int, *, joined: bool = False) -> BatchJob:
    return BatchJob(str(number), f"worker-{number}", float(number), has_joined=joined)


def test_jobs_without_a_worker_are_cancelled_first_and_those_with_trials_never() -> None:
    listed = JobList("Grid Engine", "qstat -j", jobs=[job(1), job(2), job(3)])
    seen = {"worker-2": Seen(is_busy=True), "worker-3": Seen(is_busy=False)}
    listed.see_joined(seen)
    assert listed.cancelled(2, seen) == ["1"], "the one that waits"
    assert listed.cancelled(0, seen) == ["3"]
    assert listed.cancelled(0, seen) == []
    assert listed.missing(2) == 1


def test_a_job_is_over_only_if_the_system_was_asked_after_it_was_submitted() -> None:
    listed = JobList("Grid Engine", "qstat -j", jobs=[job(1), job(2, joined=True), job(7)])
    assert listed.see_system({}, 5.0, {}) == [listed.jobs[0]]
    assert [each.id for each in listed.jobs] == ["1", "7"]
    assert listed.lines == ["job 2 has ended"]
    working = {"worker-1": Seen(is_busy=False)}
    assert listed.see_system({}, 5.0, working) == [], "a system may forget; its worker is there"


def test_three_jobs_of_no_use_in_a_row_end_submission_unless_one_works() -> None:
    listed = JobList("Grid Engine", "qstat -j", jobs=[job(each) for each in range(4)])
    refused = {f"worker-{each}": Seen(is_busy=False, refusal="it is older")
               for each in (0, 1)}  # fmt: skip
    listed.see_joined(refused)
    assert listed.fail_refused(refused) == ["0", "1"]
    listed.see_joined({"worker-3": Seen(is_busy=False)})
    assert listed.failures == 0
    for number in (4, 5):
        listed.jobs.append(job(number))
        listed.fail(listed.jobs[-1], "ended")
    assert listed.missing(4) == 2
    listed.fail(listed.jobs[0], "ended")
    assert (listed.missing(4), listed.failure) == (0, ""), "one job still works"
    listed.jobs.append(job(9))
    assert listed.cancelled(4, {"worker-3": Seen(is_busy=False)})[-1] == "9"
    assert "no more jobs are submitted" in listed.lines[-1]
    listed.jobs.clear()
    assert "The last one: job 2 ended" in listed.failure


def test_a_job_whose_worker_is_gone_for_long_is_replaced_though_the_system_shows_it() -> None:
    listed = JobList("Grid Engine", "qstat -j", jobs=[job(1), job(2)])
    there = {"worker-1": Seen(is_busy=True)}
    for now, workers, ids in ((0.0, there, []), (601.0, there, []), (602.0, {}, []),
                              (1200.0, {}, []), (1202.0, {}, ["1"])):  # fmt: skip
        listed.see_joined(workers)
        assert listed.lost(workers, now) == ids
        assert listed.see_system({"1": "1 r", "2": "2 qw"}, now, workers) == []
    assert listed.lines[0] == "job 1 is cancelled: its worker has been gone for 600 s"
    assert (listed.missing(2), listed.failures) == (1, 0)


def test_a_job_whose_worker_dies_at_once_was_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, there, lines = mock.Mock(), list[JoinedWorker](), list[str]()
    maker.submit.side_effect = ["7", "8"]
    maker.system.jobs.return_value = {"8": "8 is pending"}
    scheduler = mock.Mock(workers=lambda: list(there))
    monkeypatch.setattr(batch_jobs, "OwnScheduler", mock.Mock(return_value=scheduler))
    monkeypatch.setattr(batch_jobs, "_ROUND_SECONDS", 0.05)
    monkeypatch.setattr(batch_jobs, "_FIRST_ASK_SECONDS", 0.1)
    cluster = batch_jobs.BatchCluster(maker, max_jobs=1)

    def has_lines() -> bool:
        lines.extend(cluster.take_lines())
        return bool(lines)

    cluster.open(1)
    try:
        # Between two rounds of the thread: it joins, takes a trial and dies.
        there.append(JoinedWorker(maker.submit.call_args.args[1], "tcp://1", is_busy=True))
        cluster.scale_to(1, {"tcp://1": ""})
        there.clear()
        cluster.scale_to(1, {})
        wait_for(has_lines, "a line on the job")
    finally:
        maker.cancel.return_value = False
        cluster.scale_down()
    assert lines == ["job 7 has ended"]


def test_a_listing_in_another_encoding_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = tmp_path / "bjobs"
    command.write_bytes(b"#!/bin/sh\necho '7 caf\xe9 RUN'\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert SYSTEMS["lsf"].jobs() == {"7": "7 caf\ufffd RUN"}


@pytest.fixture
def _quick_rounds_without_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_jobs, "OwnScheduler", mock.Mock(return_value=mock.Mock(workers=list)))
    for name in ("_ROUND_SECONDS", "_FIRST_ASK_SECONDS"):
        monkeypatch.setattr(batch_jobs, name, 0.01)


@pytest.mark.usefixtures("_quick_rounds_without_workers")
@pytest.mark.parametrize("error", [OSError("no such file"), ArithmeticError("no such file")])
def test_a_thread_that_breaks_ends_the_study(error: Exception) -> None:
    maker = mock.Mock()
    maker.submit.return_value = "7"
    maker.cancel.return_value = True
    maker.system.jobs.side_effect = [error, {}]
    cluster = batch_jobs.BatchCluster(maker, max_jobs=1)
    cluster.open(1)
    try:
        cluster._thread.join(60)
        with pytest.raises(JobsFailError, match="no such file"):
            cluster.scale_to(1, {})
    finally:
        cluster.scale_down()


@pytest.mark.usefixtures("_quick_rounds_without_workers")
def test_lines_that_lead_to_a_failure_come_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = mock.Mock()
    maker.submit.side_effect = ["7", "8", "9"]
    maker.system.jobs.return_value = {}
    monkeypatch.setattr(batch_jobs, "read_output", lambda _: mock.Mock(tail=""))
    cluster = batch_jobs.BatchCluster(maker, max_jobs=1)
    failures: list[object] = []

    def seen(_: str) -> None:
        failures.append(cluster._failure)

    monkeypatch.setattr(cluster, "_lines", mock.Mock(put=seen))
    cluster.open(1)
    try:
        cluster._thread.join(60)
        with pytest.raises(JobsFailError, match="The last one: job 9 ended"):
            cluster.scale_to(1, {})
    finally:
        cluster.scale_down()
    assert set(failures) == {None}

"""Masters that are jobs of a real Slurm themselves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from in_process import InProcess
from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune, rows, states, trials, wait_for
from slurm_studies import SLICES, model, reached

TOML = SLICES + '[master]\npartition = "cpu"\nmemory = "500MB"\n'
RUN = ("run", "model.py", "--slurm", "slurm.toml", "--study", "study", "--search", "random",
       "--seed", 1, "--gpus-per-trial", 1, "--max-jobs", 2)  # fmt: skip


def named(slurm: PrivateSlurm, *, master: bool) -> dict[str, str]:
    """Return the master's or the workers' jobs, and their states."""
    lines = [line.split() for line in slurm.jobs()]
    return {job: state for job, state, name, *_ in lines if name.endswith(".master") is master}


def log_of(hptune: Hptune) -> str:
    log: Path = hptune.study() / "jobs" / "master.log"
    return " ".join(log.read_text().split()) if log.exists() else ""


@pytest.mark.slow  # a minute on a quiet machine
def test_a_master_whose_time_is_up_is_requeued_and_takes_over_its_jobs(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=100, seconds=0.3)
    hptune.file("slurm.toml", TOML)
    ended = hptune(*RUN, "--trials", 2, "--detach")
    assert (ended.code, ended.err.count("\n")) == (0, 1), ended.err  # it reads the model
    (master,) = named(slurm, master=True)
    assert f"The master is Slurm job {master} in partition cpu." in ended.out
    assert f"hptune stop {hptune.study().name}" in ended.out
    wait_for(lambda: reached(hptune.study(), 3, count=2), "two trials under way", seconds=120)
    workers = named(slurm, master=False)
    assert (
        f"The master is Slurm job {master} (running in cpu on c1" in hptune("status", "study").out
    )
    twice = hptune("resume", "study", "--detach")
    assert (twice.code, "already run by process" in twice.err) == (1, True)
    slurm.run("scancel", "--batch", "--signal=USR1", master)
    wait_until(
        lambda: "this job ends; Slurm starts it again" in log_of(hptune), "its end", seconds=60
    )
    queued = f"queued: Slurm starts the master's job {master} again"
    wait_for(lambda: queued in hptune("status", "study").out, "that its job waits")
    refused = hptune("resume", "study")
    assert (refused.code, "there is nothing to do" in " ".join(refused.err.split())) == (1, True)
    wait_until(lambda: "took over 2 jobs" in log_of(hptune), "the next one", seconds=90)
    assert named(slurm, master=True) == {master: "RUNNING"}
    assert named(slurm, master=False) == workers
    assert len(list(hptune.temporary.rglob("dask-jobs-*"))) == 1, "of the one that runs"
    said = hptune("stop", "study")
    assert said.code == 0, said.err
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert states(hptune.study()) == {"WAITING": 2}
    # None of them was run for nothing: they went on while there was no master.
    held = rows(hptune.study(), "SELECT outcome FROM attempts ORDER BY ended")
    assert {row["outcome"] for row in held} == {"RELEASED"}
    assert "The last master that was a Slurm job has ended" in hptune("status", "study").out


@pytest.mark.slow  # the refusal is tested without Slurm in tests/jobqueue
def test_a_master_that_slurm_refuses_to_requeue_stops_and_says_why(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=200, seconds=0.3)
    hptune.file("slurm.toml", TOML + 'directives = ["--no-requeue"]\n')
    assert hptune(*RUN, "--trials", 2, "--detach").code == 0
    (master,) = named(slurm, master=True)
    wait_for(lambda: reached(hptune.study(), 3), "a trial under way", seconds=120)
    slurm.run("scancel", "--batch", "--signal=USR1", master)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert f"Slurm refuses to requeue job {master}: " in log_of(hptune)
    assert "So the study stops before this job ends" in log_of(hptune)
    assert states(hptune.study()) == {"WAITING": 2}


def test_a_waiting_master_is_shown_and_stopped(
    hptune: Hptune, cli: InProcess, slurm: PrivateSlurm
) -> None:
    occupying = slurm.run("sbatch", "--parsable", "-p", "cpu", "-c", "4", "-o", "/dev/null",
                          "--mem=1G", "--wrap", "sleep 600").strip()  # fmt: skip
    model(hptune, epochs=2, seconds=0.1)
    hptune.file("slurm.toml", TOML)
    assert hptune(*RUN, "--trials", 2, "--detach").code == 0
    (master,) = set(named(slurm, master=True)) - {occupying}
    again = cli(*RUN, "--trials", 2, "--detach")
    assert (again.code, f"has a master already: Slurm job {master}" in again.err) == (2, True)
    waiting = f"The master is Slurm job {master} (pending in cpu: Resources"
    wait_for(lambda: waiting in cli("status", "study").out, "Slurm's reason")
    plain = json.loads(cli("status", "study", "--json").out)
    assert plain["study"] == str(hptune.study())
    assert (plain["master_job"]["id"], plain["master_job"]["state"]) == (master, "PENDING")
    said = cli("stop", "study")
    assert (said.code, "The study's Slurm jobs are cancelled" in said.out) == (0, True)
    wait_until(lambda: len(slurm.jobs()) == 1, "its end")
    slurm.run("scancel", occupying)
    refused = cli("stop", "study")
    assert (refused.code, "there is no study in" in refused.err) == (2, True)


@pytest.mark.slow  # the requeue is tested without Slurm in tests/jobqueue
def test_a_master_that_is_requeued_before_its_start_runs_the_same_command(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=1, seconds=0.1)
    assert hptune("run", "model.py", "--study", "study", "--trials", 1).code == 0
    again = "scontrol requeue $SLURM_JOB_ID; sleep 60"
    first = f'if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then {again}; fi'
    hptune.file("slurm.toml", f"{TOML}prologue = ['{first}']\n")
    points = ("--try", "x=0.25", "--slurm", "slurm.toml", "--max-jobs", 1)
    ended = hptune("resume", "study", "--trials", 3, *points, "--gpus-per-trial", 1, "--detach")
    assert (ended.code, ended.err.count("\n")) == (0, 1), ended.err  # it reads the model
    wait_until(lambda: states(hptune.study()) == {"COMPLETE": 3}, "three trials", seconds=150)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert 0.25 in [trial["params"]["x"] for trial in trials(hptune.study())]


@pytest.mark.slow
def test_what_a_study_cannot_be_given_any_more_is_said_before_anything_is_submitted(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=1, seconds=0.1)
    hptune.file("slurm.toml", TOML)
    assert hptune("run", "model.py", "--study", "study", "--trials", 3).code == 0
    again = ("resume", "study", "--slurm", "slurm.toml", "--detach")
    for options, said in (
        (("--trials", 2), "has already 3 trials (3 complete), and --trials is"),
        (("--trials", 9, "--try", "y=1"), "start point 1 (y=1)"),
        (("--trials", 9, "--try", "x=2"), "start point 1 (x=2)"),
        (("--trials", 9, "--try", "x"), "--try"),
        (("--trials", 3, "--try", "x=0.25"), "give --trials 4 or more"),
        (("--trials", 9, "--model-file", "gone.py"), "gone.py"),
    ):
        ended = hptune(*again, *options)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    (hptune.directory / "model.py").unlink()
    ended = hptune(*again, "--trials", 9)
    assert (ended.code, "name it" in ended.err) == (2, True), ended.err
    assert slurm.jobs() == []
    assert not (hptune.study() / "jobs").exists()


@pytest.mark.slow  # quoting is tested without Slurm in tests/jobqueue
def test_a_study_may_lie_anywhere(hptune: Hptune, slurm: PrivateSlurm) -> None:
    model(hptune, epochs=1, seconds=0.1)
    hptune.file("slurm.toml", TOML)
    study = hptune.study("it's 10 %j #1")
    said = list(RUN)
    said[said.index("study")] = study.name
    ended = hptune(*said, "--trials", 2, "--detach")
    assert (ended.code, ended.err.count("\n")) == (0, 1), ended.err  # it reads the model
    wait_until((study / "study.db").exists, "its begin")
    wait_until(lambda: states(study) == {"COMPLETE": 2}, "two trials", seconds=120)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    logs = sorted(path.name for path in (study / "jobs").glob("*.log"))
    assert (logs[-1], len(logs) > 1) == ("master.log", True)
    assert "2 complete" in (study / "jobs" / "master.log").read_text()


@pytest.mark.slow  # a refusal is met in test_slurm_commands too
def test_what_slurm_would_refuse_is_said_before_anything_is_submitted(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=2, seconds=0.1)
    for master, said in (
        ('partition = "nope"', "[master]: there is no partition 'nope'; Slurm has closed,"),
        ('partition = "closed"\naccount = "me"', "Invalid account or account/partition"),
        ("gpus = 1", "[master]: unknown key 'gpus'"),
    ):
        hptune.file("slurm.toml", f"{SLICES}[master]\n{master}\n")
        ended = hptune(*RUN, "--detach")
        assert (ended.code, said in ended.err) == (2, True), ended.err
    ended = hptune("run", "model.py", "--study", "study", "--detach")
    assert (
        ended.code,
        "give --slurm, or leave --detach out" in " ".join(ended.err.split()),
    ) == (
        2,
        True,
    )
    assert slurm.jobs() == []
    assert not hptune.study().exists()

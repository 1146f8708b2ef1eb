"""Whole studies in jobs of a real Slurm, also when jobs and masters end."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import sys

import pytest

from hptune_jobqueue.commands import JobState
from hptune_jobqueue.job_reports import read_jobs
from in_process import InProcess
from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune, rows, states, wait_for
from slurm_studies import GPUS, SLICES, WALLTIME, finish, go, job_ids, model, reached, start


def test_a_killed_master_is_resumed_with_the_same_jobs_and_no_two_trials_share_a_gpu(
    hptune: Hptune, cli: InProcess, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=400, seconds=0.8)  # none ends before all four GPUs are in use
    run = start(hptune, GPUS, "--trials", 8, "--gpus-per-trial", 1, "--max-jobs", 2)
    wait_for(lambda: reached(hptune.study(), 2, count=4), "four trials under way")
    wait_for(lambda: shown_running(hptune) == 2, "the master's next look at the queue")
    before = job_ids(slurm)
    ends = rows(hptune.study(), "SELECT json_extract(payload, '$.ends_at') AS at FROM events "
                                "WHERE kind = 'WorkerJoined'")  # fmt: skip
    assert len(ends) == 2
    assert all(row["at"] for row in ends), "squeue shows all jobs of an array for the last one's id"
    run.kill()
    status = cli("status", "study").out
    assert "jobs     2 running, as Slurm showed them " in status
    assert f"{min(before)}  running in gpu on g" in status
    go(hptune)
    output = finish(hptune, hptune.start("resume", "study"), count=8, epochs=400)
    assert "took over 2 jobs of an earlier run" in output
    shown = slurm.run("squeue", "--noheader", "--array", "--states=all", "-o", "%i").split()
    first = int(min(before).partition("_")[0])
    assert {each for each in shown if int(each.partition("_")[0]) >= first} == before
    held = rows(hptune.study(), "SELECT * FROM attempts")
    reports = rows(hptune.study(), "SELECT trial, attempt, value FROM reports "
                                   "WHERE metric = 'gpu'")  # fmt: skip
    seen = {(row["trial"], row["attempt"], int(row["value"])) for row in reports}
    places: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for row in held:
        (device,) = json.loads(row["devices"])["gpus"]
        assert (row["trial"], row["number"], int(device)) in seen
        places.setdefault((row["node"], int(device)), []).append((row["started"], row["ended"]))
    assert set(places) == {("g1", 0), ("g1", 1), ("g2", 0), ("g2", 1)}
    for spans in places.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    wait_until(lambda: slurm.jobs() == [], "an empty queue")
    assert not (hptune.study() / "jobs" / "scheduler.json").exists()


def shown_running(hptune: Hptune) -> int:
    """Return how many jobs ran when the master last looked."""
    shown = read_jobs(hptune.study() / "jobs")
    return sum(job.state is JobState.RUNNING for job in shown.jobs) if shown else 0


def test_trials_go_on_elsewhere_when_jobs_are_cancelled_requeued_or_lost_with_their_node(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    # Neither ends while the requeued job waits: one trial needs one job only.
    model(hptune, epochs=400, seconds=0.4)
    run = start(hptune, SLICES, "--trials", 2, "--gpus-per-trial", 1, "--max-jobs", 2)
    study = hptune.study()
    wait_for(lambda: reached(study, 3, count=2), "two trials under way")
    first, second = sorted(job_ids(slurm))
    slurm.run("scancel", first)
    wait_for(lambda: len(job_ids(slurm) - {first}) == 2, "a replacement")
    slurm.run("scontrol", "requeue", second)
    wait_for(lambda: reached(study, 12, count=2), "both to continue")
    assert second in job_ids(slurm)
    # The requeued job may still wait for its turn: then the replacement's node is lost.
    node = next(line.split()[-1] for line in slurm.jobs() if line.split()[1] == "RUNNING")
    slurm.kill_node(node)
    go(hptune)
    output = finish(hptune, run, count=2, epochs=400)
    slurm.mend_node(node)
    assert f"job {first} on " in output
    held = rows(study, "SELECT outcome, reason FROM attempts")
    outcomes = [row["outcome"] for row in held]
    assert outcomes.count("FINISHED") == 2
    assert set(outcomes) <= {"FINISHED", "RELEASED", "LOST"}
    released = [row["reason"] for row in held if row["outcome"] == "RELEASED"]
    assert len(released) >= 2
    # Slurm signals all processes of a job, and yet the trials left in good order.
    assert not [reason for reason in released if "killed" in reason]
    slurm.wait_until_idle(seconds=90)
    for left in hptune.leftovers():  # the lost node could not clean up
        shutil.rmtree(hptune.temporary / left)


@pytest.mark.slow  # a minute; the message is tested without Slurm in tests/jobqueue
def test_jobs_that_slurm_did_not_cancel_are_said_and_their_workers_leave(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=12, seconds=0.3)
    run = start(hptune, SLICES, "--trials", 1, "--gpus-per-trial", 1, "--max-jobs", 1)
    wait_for(lambda: reached(hptune.study(), 3), "a trial under way", seconds=120)
    (job,) = job_ids(slurm)
    slurm.stop_controller()
    try:
        ended = run.wait(seconds=150)
        log = next((hptune.study() / "jobs").glob(f"*-{job}.log"))
        wait_until(lambda: "no study needs this worker" in log.read_text(), "it left")
    finally:
        slurm.start_controller()
    assert ended.code == 1
    assert "Done: 1/1 trials" in ended.out
    (name,) = re.findall(r"Cancel them with: scancel --name=(\S+)", ended.err)
    assert log.name == f"{name}-{job}.log"
    wait_until(lambda: slurm.jobs() == [], "an empty queue")
    again = hptune("resume", "study")
    assert (again.code, "cancelled" in again.err) == (0, False)
    assert not (hptune.study() / "jobs" / "scheduler.json").exists()


@pytest.mark.slow  # a minute; both are tested without Slurm in tests/jobqueue
def test_an_inactive_partition_is_waited_for_also_after_a_requeue(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    """The job returns or, if a poll meets it while Slurm delays it, another one takes its place."""
    model(hptune, epochs=30, seconds=0.3)
    run = start(hptune, SLICES, "--trials", 2, "--gpus-per-trial", 1, "--max-jobs", 1)
    wait_for(lambda: reached(hptune.study(), 3), "a trial under way", seconds=120)
    slurm.run("scontrol", "requeue", *job_ids(slurm))

    def runs() -> bool:
        return any(" RUNNING " in line for line in slurm.jobs())

    wait_until(lambda: not runs(), "its end")
    wait_until(runs, "its return", seconds=90)
    slurm.run("scontrol", "update", "PartitionName=gpu", "State=INACTIVE")
    try:
        slurm.run("scancel", *job_ids(slurm))
        said = next(line for line in run.process.stderr or () if "can be submitted" in line)
    finally:
        slurm.run("scontrol", "update", "PartitionName=gpu", "State=UP")
    assert "no job can be submitted to partition gpu now, so it is tried again every 60 s" in said
    finish(hptune, run, count=2, epochs=30)


@pytest.mark.slow  # waiting with its reason is met in test_detached too
def test_a_run_waits_for_a_full_partition_and_shows_the_reason(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    occupying = slurm.run("sbatch", "--parsable", "-p", "cpu", "-c", "4", "-o", "/dev/null",
                          "--mem=1G", "--wrap", "sleep 600").strip()  # fmt: skip
    model(hptune, epochs=2, seconds=0.1)
    run = start(hptune, WALLTIME + 'partition = "cpu"', "--trials", 2)
    wait_for(lambda: len(slurm.jobs()) == 2, "a job that waits")
    wait_for(lambda: "pending in cpu: Resources" in hptune("status", "study").out, "its reason")
    slurm.run("scancel", occupying)
    output = finish(hptune, run, count=2, epochs=2)
    assert "Slurm: 1 pending in cpu" in output
    assert "the worker on c1 joined" in output


@pytest.mark.slow  # three to five minutes, and a cancelled job's trials continue in the same way
@pytest.mark.timeout(600)
def test_a_trial_longer_than_the_walltime_ends_in_another_job(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    # Slurm may send the signal up to a minute early, so a job has between 15 and 75 seconds.
    model(hptune, epochs=80, seconds=1.0)
    toml = 'walltime = "00:02:00"\nnotice_seconds = 45\ninterface = "lo"\npartition = "gpu"\n'
    run = start(hptune, toml + "trials_per_job = 1\n", "--trials", 1, "--gpus-per-trial", 1)
    finish(hptune, run, count=1, epochs=80, seconds=500)
    held = rows(hptune.study(), "SELECT outcome, reason FROM attempts ORDER BY number")
    *before, last = [row["outcome"] for row in held]
    assert last == "FINISHED"
    assert before
    assert set(before) == {"RELEASED"}


@pytest.mark.slow  # waiting is tested without Slurm in tests/master
def test_ctrl_c_ends_the_wait_for_workers_and_the_reason_is_shown(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    occupying = slurm.run("sbatch", "--parsable", "-p", "cpu", "-c", "4", "-o", "/dev/null",
                          "--mem=1G", "--wrap", "sleep 600").strip()  # fmt: skip
    model(hptune, epochs=2, seconds=0.1)
    toml = """
        walltime = "00:10:00"
        trials_per_job = 1
        [[shape]]
        name = "gpu"
        partition = "gpu"
        max_jobs = 1
        [[shape]]
        name = "cpu"
        partition = "cpu"
        max_jobs = 1
    """
    run = start(hptune, toml, "--trials", 4, "--min-workers", 2)
    words = re.compile(r"1 running on g\d; 1 pending in cpu: Resources")
    assert run.process.stderr is not None
    assert any(words.search(line) for line in run.process.stderr)
    run.interrupt()
    ended = run.wait()
    assert ended.code == 130, ended.err
    assert rows(hptune.study(), "SELECT * FROM attempts") == []
    slurm.run("scancel", occupying)
    wait_until(lambda: slurm.jobs() == [], "an empty queue")


SIZES = """
from hptune import Resources

OBJECTIVE = "wide:max"
RESOURCES = lambda hp: Resources(gpus=2 if hp["wide"] else 1)

def objective(hp, trial):
    return {"wide": float(hp.Boolean("wide"))}
"""


@pytest.mark.slow  # sizes are tested without Slurm in tests/jobqueue
def test_a_trial_that_needs_a_larger_job_gets_one(hptune: Hptune, slurm: PrivateSlurm) -> None:
    hptune.file("model.py", SIZES)
    hptune.file("slurm.toml", SLICES)
    ended = hptune(
        "run", "model.py", "--slurm", "slurm.toml", "--study", "study", "--search", "grid",
        "--max-jobs", 1, seconds=150,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    held = rows(hptune.study(), "SELECT devices FROM attempts")
    gpus = [len(json.loads(row["devices"])["gpus"]) for row in held]
    assert sorted(gpus) == [1, 2]
    shown = slurm.run("squeue", "--noheader", "--states=all", "-o", "%j").split()
    sizes = {"workers.1c1g0Mp", "workers.1c2g0Mp"}
    assert {name.rpartition("-")[2] for name in shown} >= sizes, shown


MANY_SMALL = """
import time
from hptune import Resources

OBJECTIVE = "width:max"
RESOURCES = lambda hp: Resources(gpus=2 if hp["width"] == 4 else 1)

def objective(hp, trial):
    width = hp.Int("width", 1, 16)
    time.sleep(2.0)
    return {"width": float(width)}
"""


@pytest.mark.slow  # draining is tested without Slurm in tests/jobqueue
def test_a_trial_that_needs_a_larger_job_need_not_wait_for_the_end_of_all_small_ones(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    hptune.file("model.py", MANY_SMALL)
    run = start(hptune, SLICES, "--search", "grid", "--max-jobs", 1)
    ended = run.wait(seconds=150)
    assert ended.code == 0, ended.err
    held = rows(hptune.study(), "SELECT devices FROM attempts ORDER BY started")
    gpus = [len(json.loads(row["devices"])["gpus"]) for row in held]
    assert gpus.count(2) == 1
    # Its job came as soon as the other was empty, which was made so unless it was by chance.
    assert gpus.index(2) < 12
    assert "but uses none. If the model trains on cores, stop" in ended.err


@pytest.mark.slow
def test_stop_does_not_wait_for_workers_that_end_with_their_jobs(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    """Their trials are placed, and wait for the framework to be imported."""
    model(hptune, epochs=200, seconds=0.3)
    run = start(hptune, SLICES, "--trials", 9, "--gpus-per-trial", 1, "--max-jobs", 4)
    placed = "SELECT * FROM attempts"
    database = hptune.study() / "study.db"
    wait_for(lambda: database.exists() and rows(hptune.study(), placed), "a trial", seconds=120)
    assert hptune("stop", "study").code == 0
    # Dask would ask those that are gone for half a minute.
    ended = run.wait()
    assert ended.code == 130, ended.err
    assert set(states(hptune.study())) == {"WAITING"}


@pytest.mark.slow  # forty seconds; leaving in good order is met in other tests too
def test_a_launcher_starts_the_worker_and_a_preempted_job_loses_nothing(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=15, seconds=0.3)
    launcher = hptune.file("in image", '#!/bin/sh\nexport IMAGE="$1"; shift\nexec "$@"\n')
    launcher.chmod(0o755)
    toml = f"{SLICES}launcher = \"'{launcher}' tf.sif\"\npython = '{sys.executable}'\n"
    toml += "prologue = ['ls /nowhere']\n"
    run = start(hptune, toml, "--trials", 1, "--gpus-per-trial", 1, "--max-jobs", 1)
    wait_for(lambda: reached(hptune.study(), 3), "a trial under way", seconds=120)
    (job,) = job_ids(slurm)
    assert any("hptune worker" in words and sys.executable in words
               for words in hptune.processes().values())  # fmt: skip
    # What Slurm sends a job whose nodes another one needs; its requeue or end comes later.
    slurm.run("scancel", "--batch", "--signal=TERM", job)
    said = finish(hptune, run, count=1, epochs=15)
    assert f"job {job}: hptune: setup failed: ls /nowhere (status 2)" in said
    held = rows(hptune.study(), "SELECT outcome, reason FROM attempts ORDER BY number")
    assert [row["outcome"] for row in held] == ["RELEASED", "FINISHED"]
    wait_until(lambda: slurm.jobs() == [], "an empty queue")


@pytest.mark.slow  # half a minute; what the thread does is tested without a Slurm
def test_jobs_that_slurm_refuses_in_mid_study_end_it_safely(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=200, seconds=0.3)
    run = start(hptune, SLICES, "--trials", 1, "--gpus-per-trial", 1, "--max-jobs", 1)
    wait_for(lambda: reached(hptune.study(), 3), "a trial under way", seconds=120)
    (job,) = job_ids(slurm)
    slurm.run("scontrol", "update", "PartitionName=gpu", "AllowAccounts=others")
    try:
        slurm.run("scancel", job)
        ended = run.wait(seconds=90)
    finally:
        slurm.run("scontrol", "update", "PartitionName=gpu", "AllowAccounts=ALL")
    assert ended.code == 1, ended.err
    assert "Slurm refuses the job in partition gpu, with your default account: " in ended.err
    assert "No job is left, so the study has stopped; nothing is lost" in ended.err
    assert states(hptune.study()).keys() <= {"WAITING", "RUNNING"}


@pytest.mark.slow  # half a minute
def test_a_node_whose_prolog_fails_is_avoided_by_the_next_master_too(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=200, seconds=0.3)
    with slurm.failing_prolog("g1"):
        run = start(hptune, SLICES + 'directives = ["--exclude=c1"]\n', "--trials", 4,
                    "--gpus-per-trial", 1, "--max-jobs", 3)  # fmt: skip
        wait_for(lambda: reached(hptune.study(), 2), "a trial under way", seconds=120)
        events = "SELECT payload FROM events WHERE kind = 'NodeExcluded'"
        wait_for(lambda: rows(hptune.study(), events), "the broken node", seconds=60)
        run.interrupt()
        assert run.wait().code == 130
        wait_until(lambda: not slurm.jobs(), "an empty queue")
        run = hptune.start("resume", "study")
        wait_until(lambda: bool(slurm.jobs()), "jobs")
        job = slurm.jobs()[0].split()[0]
        assert "ExcNodeList=c1,g1" in slurm.run("scontrol", "show", "job", job)
        run.interrupt()
        ended = run.wait()
    said = "node g1 is excluded from now on (--exclude=g1): no job can start there ("
    assert said in ended.err


@pytest.mark.slow  # half a minute; the wait is tested without Slurm in tests/cli
def test_a_run_that_starts_while_slurm_is_silent_waits_for_it(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=2, seconds=0.1)
    slurm.stop_controller()
    try:
        run = start(hptune, SLICES, "--trials", 1, "--gpus-per-trial", 1)
        assert run.process.stderr is not None
        said = next(line for line in run.process.stderr if "Slurm does not answer" in line)
    finally:
        slurm.start_controller()
    assert "waits until it does" in said
    finish(hptune, run, count=1, epochs=2)


@pytest.mark.slow  # half a minute
def test_nodes_that_do_not_see_the_study_are_named_by_the_first_job(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=2, seconds=0.1)
    logs = hptune.directory / "logs"
    hidden = f"prologue = ['function [ {{ test \"$2\" != {hptune.study()}/jobs/scheduler.json; }}']"
    run = start(hptune, f"{SLICES}log_directory = '{logs}'\n{hidden}\n", "--trials", 1,
                "--gpus-per-trial", 1, "--max-jobs", 1)  # fmt: skip
    assert run.process.stderr is not None
    said = next(line for line in run.process.stderr if "before its worker had joined" in line)
    assert "does not see" in said
    run.interrupt()
    assert run.wait().code == 130


@pytest.mark.slow  # a study in a job is met in other tests too
def test_the_jobs_of_a_study_that_is_done_end_as_completed(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=2, seconds=0.1)
    last = max((int(job.split("_")[0]) for job in all_jobs(slurm)), default=0)
    slices = SLICES.replace('"gpu"', '"*"')  # also where the site chooses the partition
    run = start(hptune, slices, "--trials", 2, "--gpus-per-trial", 1, "--max-jobs", 1)
    finish(hptune, run, count=2, epochs=2)
    ended = {job: state for job, state in all_jobs(slurm).items() if int(job.split("_")[0]) > last}
    assert [*ended.values()] in (["COMPLETED"], ["COMPLETING"])


def all_jobs(slurm: PrivateSlurm) -> dict[str, str]:
    """Return the states of the jobs, also of those that have ended."""
    shown = slurm.run("squeue", "--noheader", "--array", "--states=all", "-o", "%i %T")
    return {line.split()[0]: line.split()[1] for line in shown.splitlines()}

"""What a real Slurm offers, `hptune slurm …`, and the errors of `hptune run --slurm`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from hptune_jobqueue.cluster import ClusterOrder, check, check_scripts
from hptune_jobqueue.commands import Slurm
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import SubmissionError
from hptune_jobqueue.nodes import SINFO_FORMAT, parse_sinfo
from hptune_jobqueue.sizing import Need
from in_process import InProcess
from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune

MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"


def test_partitions_and_nodes_are_read_from_a_real_sinfo(slurm: PrivateSlurm) -> None:
    text = slurm.run("sinfo", "--noheader", "--exact", "-o", SINFO_FORMAT)
    partitions = {partition.name: partition for partition in parse_sinfo(text)}
    assert set(partitions) == {"main", "gpu", "cpu", "short", "closed"}
    assert partitions["main"].is_default
    assert partitions["main"].limit_seconds is None
    assert partitions["short"].limit_seconds == 300
    ((shape, count),) = partitions["gpu"].nodes
    assert (shape.cpus, shape.gpus, count) == (4, (("small", 2),), 2)
    assert shape.memory_bytes == 4000 * 2**20
    assert partitions["cpu"].nodes[0][0].gpus == ()
    for chosen in ({}, {"nodes": "g1,g2"}, {"partitions": "gpu,closed"}):
        assert Slurm().node_addresses(**chosen) == ("127.0.0.1",)


def test_what_init_writes_is_what_script_takes(cli: InProcess, slurm: PrivateSlurm) -> None:
    ended = cli("slurm", "init", "--account", "project")
    assert (ended.code, ended.err) == (0, "")
    assert "Wrote slurm.toml" in ended.out
    written = (cli.directory / "slurm.toml").read_text()
    refused = re.findall(
        r"^# (\w+): .*\n(?:#   \d.*\n)*#   Slurm refuses your jobs", written, re.MULTILINE
    )
    assert refused == ["closed"], written
    again = cli("slurm", "init")
    assert again.code == 2
    assert "slurm.toml already exists" in again.err
    ended = cli("slurm", "script", "slurm.toml", "--gpus-per-trial", "1", "--study", "s")
    assert (ended.code, ended.err) == (0, "")
    assert "#SBATCH -p main\n#SBATCH -A project\n" in ended.out
    assert "#SBATCH --gres=gpu:2\n" in ended.out
    assert f"-P -m hptune worker {cli.directory}/s/jobs/scheduler.json --name slurm-" in ended.out
    halves = cli("slurm", "script", "slurm.toml", "--gpus-per-trial", "0.5")
    assert "#SBATCH --cpus-per-task=4\n#SBATCH --mem=4000M\n" in halves.out
    assert "#SBATCH --gres=gpu:2\n" in halves.out
    ended = cli("slurm", "script", "slurm.toml", "--gpus-per-trial", "1.5")
    assert (ended.code, "parts of one GPU, such as 0.5" in ended.err) == (2, True)
    assert slurm.jobs() == []
    assert not cli.study("s").exists()


def test_what_cannot_be_had_is_said_at_once_and_leaves_nothing(
    cli: InProcess, slurm: PrivateSlurm
) -> None:
    gpu = 'partition = "gpu"\nwalltime = "10"'
    cpu = 'partition = "cpu"\nwalltime = "10"'
    on_three = ("--gpus-per-trial", "3")
    has_less = "Error: a trial needs 1 core and 3 GPUs, but a job in partition gpu"
    cli.file("model.py", MODEL)
    cli.file("gpus.py", f"RESOURCES = {{'gpus': 3}}\n{MODEL}")
    for text, command, said in (
        (
            'partition = "gup"\nwalltime = "10"',
            (),
            "there is no partition 'gup'; Slurm has closed,",
        ),
        ('partition = "short"\nwalltime = "30"', (), "partition short allows 00:05:00 at most"),
        (f'{cpu}\ndirectives = ["--time=1-0"]', (), "Requested time limit is invalid"),
        (
            'partition = "closed"\nwalltime = "10"\naccount = "me"',
            (),
            "job in partition closed, with account me: allocation failure: Invalid account or",
        ),
        (f'{gpu}\ninterface = "ib9"', (), "ib9"),
        (
            f'{gpu}\ngpu_type = "SMALL"',
            (),
            "gpu_type is 'SMALL', but partition gpu has small; write the type as here",
        ),
        (gpu, ("model.py", *on_three), has_less),
        (gpu, ("model.py", *on_three, "--detach"), has_less),
        (gpu, ("gpus.py",), has_less),
    ):
        cli.file("slurm.toml", text)
        asked = command or ("model.py",)
        ended = cli("run", *asked, "--slurm", "slurm.toml", "--study", "study")
        assert (ended.code, said in ended.err) == (2, True), ended.err
        assert "Traceback" not in ended.err
        assert slurm.jobs() == []
        assert not cli.study().exists()


def test_nodes_that_are_all_drained_are_waited_for(slurm: PrivateSlurm, tmp_path: Path) -> None:
    """sbatch takes such a job, but its test says that no node has what it asks for."""
    config = parse_config('partition = "cpu"\nwalltime = "10"')
    order = ClusterOrder(config=config, name="a", directory=tmp_path, module="a", max_jobs=1)
    more = replace(config.shapes[0], directives=("--mem=9G",))
    slurm.run("scontrol", "update", "NodeName=c1", "State=DRAIN", "Reason=test")
    try:
        check_scripts(order, check(order), Need())
    finally:
        slurm.run("scontrol", "update", "NodeName=c1", "State=RESUME")
    wait_until(slurm.all_idle, "three idle nodes")
    order = replace(order, config=replace(config, shapes=(more,)))
    with pytest.raises(SubmissionError, match="The job asks for 4 cores, 0 GPUs and"):
        check_scripts(order, check(order), Need())


def test_what_slurm_refuses_of_another_job_is_accepted_of_the_real_one(
    slurm: PrivateSlurm, tmp_path: Path
) -> None:
    def order(*lines: str) -> ClusterOrder:
        text = "\n".join(['partition = "gpu"\nwalltime = "10"', *lines])
        return ClusterOrder(
            config=parse_config(text), name="a", directory=tmp_path, module="a", max_jobs=1
        )

    slurm.run("scontrol", "update", "PartitionName=gpu", "MinNodes=2")
    try:
        pairs = order("trials_per_job = 1")
        check_scripts(pairs, check(pairs), Need(gpus=1, nodes=2))
        with pytest.raises(SubmissionError, match="Node count"):
            check_scripts(pairs, check(pairs), Need(gpus=1))
    finally:
        slurm.run("scontrol", "update", "PartitionName=gpu", "MinNodes=0")
    of_gpus = order('directives = ["--mem-per-gpu=500"]')
    check_scripts(of_gpus, check(of_gpus), Need(gpus=1))
    with pytest.raises(SubmissionError):
        check_scripts(of_gpus, check(of_gpus), Need())


def test_the_users_options_of_slurm_neither_rename_nor_hide_jobs(
    slurm: PrivateSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\n#SBATCH -J ours -p cpu --mem=100M -o /dev/null\nsleep 60\n"
    for name, value in (
        ("SBATCH_JOB_NAME", "mine"),
        ("SBATCH_MEM_PER_CPU", "50"),
        ("SQUEUE_PARTITION", "gpu"),
        ("SCANCEL_STATE", "SUSPENDED"),
    ):
        monkeypatch.setenv(name, value)
    ids = Slurm().submit(script, 2)
    assert {job.id for job in Slurm().jobs(["ours"])} == set(ids)
    Slurm().cancel_all(["ours"])
    wait_until(lambda: not slurm.jobs(), "an empty queue")


@pytest.mark.slow
def test_the_doctor_looks_around_in_a_job_too(hptune: Hptune, slurm: PrivateSlurm) -> None:
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", 'partition = "gpu"\nwalltime = "1:00:00"\n')
    ended = hptune("doctor", "model.py", "--study", "study", "--slurm", "slurm.toml", seconds=200)
    here, there = ended.out.split("\nin a Slurm job\n")
    assert "one batch" in here
    assert "on g1: 4 cores, 2 GPUs, 4.19 GB for 2 trials at once" in there
    assert re.search("GPUs +2 available: 0, 1", there)
    assert "one batch" in there
    # These GPUs are made up, and the framework in the job finds that out.
    assert "sees 0 of 2 GPUs" in there
    assert (ended.code, "1 fails." in there) == (1, True)
    assert slurm.jobs() == []
    assert {path.name for path in hptune.directory.iterdir()} == {"model.py", "slurm.toml"}


@pytest.mark.slow  # the template is tested without Slurm in tests/jobqueue
def test_what_init_writes_does_for_models_that_train_on_cores_too(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    """Its partition has nodes with GPUs, and one without."""
    hptune.file("model.py", MODEL)
    assert hptune("slurm", "init").code == 0
    on_cores = ("--slurm", "slurm.toml", "--study", "study", "--gpus-per-trial", 0)
    ended = hptune("doctor", "model.py", *on_cores, seconds=200)
    assert ended.code == 0, ended.out
    assert "none used; trials train on cores" in ended.out.split("\nin a Slurm job\n")[1]
    ended = hptune("run", "model.py", *on_cores, "--trials", 2, "--max-jobs", 1)
    assert ended.code == 0, ended.err
    assert "GPU" not in ended.err


@pytest.mark.slow  # the job of the doctor is met in the test above too
def test_a_job_that_waits_too_long_for_the_doctor_is_told_with_its_reason_and_cancelled(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    occupying = slurm.run("sbatch", "--parsable", "-p", "cpu", "-c", "4", "-o", "/dev/null",
                          "--mem=1G", "--wrap", "sleep 600").strip()  # fmt: skip
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", 'partition = "cpu"\nwalltime = "10"\n')
    command = ("doctor", "model.py", "--study", "study", "--slurm", "slurm.toml")
    ended = hptune(*command, "--wait", "5s", "--json")
    answer = json.loads(ended.out)
    (job,) = [each for each in answer["findings"] if each["where"]]
    assert (ended.code, answer["ok"], job["status"]) == (1, False, "fail")
    assert "was not started in 5 s; Slurm's reason is Resources" in job["found"]
    assert len(slurm.jobs()) == 1
    started = hptune.start(*command)
    wait_until(lambda: len(slurm.jobs()) == 2, "the job")
    started.interrupt()
    assert started.wait().code == 130
    assert len(slurm.jobs()) == 1
    slurm.run("scancel", occupying)
    assert {path.name for path in hptune.directory.iterdir()} == {"model.py", "slurm.toml"}


@pytest.mark.slow  # the trials' GPUs are compared in test_runs
def test_jobs_on_one_node_are_told_different_gpus(slurm: PrivateSlurm, tmp_path: Path) -> None:
    say = "echo $CUDA_VISIBLE_DEVICES; sleep 60"
    for number in range(3):
        out = f"{tmp_path}/{number}"
        slurm.run("sbatch", "-o", out, "-w", "g1", "--gres=gpu:1", "--mem=1G", "--wrap", say)

    def answers() -> list[str]:
        return sorted(path.read_text().strip() for path in tmp_path.iterdir())

    wait_until(lambda: answers() == ["0", "1"], "two jobs that run")
    waiting = [line for line in slurm.jobs() if "PENDING" in line]
    assert len(waiting) == 1
    assert len(slurm.clear()) == 3

"""`hptune slurm …`, and the errors of `hptune run --slurm`, against a real Slurm."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from in_process import InProcess
from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune

MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"


def test_what_init_writes_is_what_script_takes(cli: InProcess, slurm: PrivateSlurm) -> None:
    ended = cli("slurm", "init", "--account", "project")
    assert (ended.code, ended.err) == (0, "")
    assert "Wrote slurm.toml" in ended.out
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('partition = "gup"\nwalltime = "10"', "there is no partition 'gup'; Slurm has closed,"),
        ('partition = "short"\nwalltime = "30"', "partition short allows 300 s"),
        (
            'partition = "cpu"\nwalltime = "10"\ndirectives = ["--time=1-0"]',
            "Requested time limit is invalid",
        ),
        ('partition = "closed"\nwalltime = "10"\naccount = "me"', "Invalid account or account/par"),
        ('partition = "gpu"\nwalltime = "10"\ninterface = "ib9"', "ib9"),
        (
            'partition = "gpu"\nwalltime = "10"\ngpu_type = "SMALL"',
            "gpu_type is 'SMALL', but partition gpu has small; write the type as here",
        ),
    ],
)
def test_what_cannot_be_had_is_said_at_once_and_leaves_nothing(
    cli: InProcess, slurm: PrivateSlurm, text: str, said: str
) -> None:
    cli.file("model.py", MODEL)
    cli.file("slurm.toml", text)
    ended = cli("run", "model.py", "--slurm", "slurm.toml", "--study", "study")
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert slurm.jobs() == []
    assert not cli.study().exists()


def test_gpus_that_no_job_has_are_refused_before_there_is_a_study(
    cli: InProcess, slurm: PrivateSlurm
) -> None:
    cli.file("model.py", MODEL)
    cli.file("gpus.py", f"RESOURCES = {{'gpus': 3}}\n{MODEL}")
    cli.file("slurm.toml", 'partition = "gpu"\nwalltime = "10"\ninterface = "lo"')
    run = ("--slurm", "slurm.toml", "--study", "study")
    asked = ("--gpus-per-trial", "3")
    for command in (("model.py", *asked), ("model.py", *asked, "--detach"), ("gpus.py",)):
        ended = cli("run", *command, *run)
        assert ended.code == 2, ended.err
        assert "Error: a trial needs 1 core and 3 GPUs, but a job in partition gpu" in ended.err
        assert slurm.jobs() == []
        assert not cli.study().exists()


def test_without_slurm_it_is_said_where_to_go(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("model.py", MODEL)
    cli.file("slurm.toml", 'partition = "gpu"\nwalltime = "10"')
    monkeypatch.setenv("PATH", "/nowhere")
    ended = cli("run", "model.py", "--slurm", "slurm.toml")
    assert ended.code == 2, ended.err
    assert "sinfo is not found: run this where Slurm's commands are" in ended.err


def test_without_a_slurm_that_answers_init_says_what_to_do(
    cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = 'partition = "gpu", walltime = "04:00:00", and account where your site asks for one'
    monkeypatch.setenv("PATH", "/nowhere")
    ended = cli("slurm", "init")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "sinfo is not found: run this where Slurm's commands are" in ended.err
    assert by_hand in ended.err
    # Slurm is installed, but no controller is there.
    silent = tmp_path / "bin"
    silent.mkdir()
    (silent / "sinfo").write_text(
        "#!/bin/sh\necho first; echo 'sinfo: fatal: no controller' >&2; exit 1"
    )
    (silent / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{silent}:/usr/bin:/bin")
    ended = cli("slurm", "init")
    assert (ended.code, "sinfo failed: fatal: no controller. Run this where" in ended.err) == (
        2,
        True,
    )
    assert by_hand in ended.err
    assert not (cli.directory / "slurm.toml").exists()


@pytest.mark.slow
def test_the_doctor_looks_around_in_a_job_too(hptune: Hptune, slurm: PrivateSlurm) -> None:
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", 'partition = "gpu"\nwalltime = "1:00:00"\n')
    ended = hptune("doctor", "model.py", "--study", "study", "--slurm", "slurm.toml", seconds=200)
    here, there = ended.out.split("\nin a Slurm job\n")
    assert "one batch" in here
    assert "on g1: 2 cores, 2 GPUs, 4.19 GB for 2 trials at once" in there
    assert "GPUs             2 available: 0, 1" in there
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
    wait_until(lambda: len(slurm.jobs()) == 2, "the job", seconds=60)
    started.interrupt()
    assert started.wait(seconds=30).code == 130
    assert len(slurm.jobs()) == 1
    slurm.run("scancel", occupying)
    assert {path.name for path in hptune.directory.iterdir()} == {"model.py", "slurm.toml"}


@pytest.mark.parametrize(
    ("options", "environment", "why"),
    [
        (["--workers", 1], {}, "because of --workers"),
        ([], {"SLURM_STEP_ID": "0"}, "because srun started it; without srun it uses all of them"),
        ([], {"PATH": "/nowhere"}, "because srun is not found here"),
    ],
)
def test_a_run_on_one_of_several_nodes_says_so(
    hptune: Hptune, options: list[object], environment: dict[str, str], why: str
) -> None:
    hptune.file("model.py", MODEL)
    command = ("run", "model.py", "--trials", 1, "--study", "study", *options)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "3", "SLURMD_NODENAME": "n1"}
    ended = hptune.start(*command, **job, **environment).wait()
    assert ended.code == 0, ended.err
    said = " ".join(ended.err.split())
    assert f"Slurm job 7 has 3 nodes, but the trials run on this machine only, {why}" in said

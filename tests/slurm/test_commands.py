"""`hptune slurm …`, and what `hptune run --slurm` refuses, against a real Slurm."""

from __future__ import annotations

import pytest
from private_slurm import PrivateSlurm
from real_runs import Hptune

MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"


def test_what_init_writes_is_what_script_takes(hptune: Hptune, slurm: PrivateSlurm) -> None:
    ended = hptune("slurm", "init", "--account", "project")
    assert (ended.code, ended.err) == (0, "")
    assert "Wrote slurm.toml" in ended.out
    again = hptune("slurm", "init")
    assert again.code == 2
    assert "slurm.toml is there already" in again.err
    ended = hptune("slurm", "script", "slurm.toml", "--gpus-per-trial", "1", "--study", "s")
    assert (ended.code, ended.err) == (0, "")
    assert "#SBATCH -p main\n#SBATCH -A project\n" in ended.out
    assert "#SBATCH --gres=gpu:2\n" in ended.out
    assert f"-m tuner worker {hptune.directory}/s/jobs/scheduler.json --name slurm-" in ended.out
    halves = hptune("slurm", "script", "slurm.toml", "--gpus-per-trial", "0.5")
    assert "#SBATCH --cpus-per-task=4\n#SBATCH --mem=4000M\n" in halves.out
    assert "#SBATCH --gres=gpu:2\n" in halves.out
    ended = hptune("slurm", "script", "slurm.toml", "--gpus-per-trial", "1.5")
    assert (ended.code, "a part of a GPU, such as 0.5" in ended.err) == (2, True)
    assert slurm.jobs() == []
    assert not hptune.study("s").exists()


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
        ('partition = "gpu"\nwalltim = "10"', "did you mean 'walltime'?"),
    ],
)
def test_what_cannot_be_had_is_said_at_once_and_leaves_nothing(
    hptune: Hptune, slurm: PrivateSlurm, text: str, said: str
) -> None:
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", text)
    ended = hptune("run", "model.py", "--slurm", "slurm.toml", "--study", "study")
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert slurm.jobs() == []
    assert not hptune.study().exists()


def test_a_trial_that_fits_no_job_is_refused_after_the_model_was_read(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", 'partition = "gpu"\nwalltime = "10"\ninterface = "lo"')
    ended = hptune(
        "run", "model.py", "--slurm", "slurm.toml", "--study", "study", "--gpus-per-trial", "3"
    )
    assert ended.code == 2, ended.err
    assert "shape workers: a trial needs 1 core and 3 GPUs, but a job in partition gpu" in ended.err
    assert slurm.jobs() == []


def test_without_slurm_it_is_said_where_to_go(hptune: Hptune) -> None:
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", 'partition = "gpu"\nwalltime = "10"')
    ended = hptune("run", "model.py", "--slurm", "slurm.toml", PATH="/nowhere")
    assert ended.code == 2, ended.err
    assert "sinfo is not found: run this where Slurm's commands are" in ended.err

"""Choice of the allocation of a command that runs inside a Slurm job."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commands import Commands
from hptune.clusters.slurm_allocation import allocation_for
from hptune.config.settings import StudySettings
from hptune.user_code.model_file import check_path
from hptune_jobqueue.allocation import (
    Allocation,
    AllocationCluster,
    find_allocation,
    is_step,
    why_not,
)
from hptune_jobqueue.errors import ConfigError, JobsFailError
from real_runs import Hptune, wait_for

BATCH = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURMD_NODENAME": "n1",
    "SLURM_MEM_PER_NODE": "1024",
}


def test_a_batch_script_on_several_nodes_has_them_all() -> None:
    assert find_allocation(BATCH) == Allocation("7", 3, "n[1-3]", "1024MiB")
    by_core = {**BATCH, "SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_CPU": "512"}
    found = find_allocation(by_core)
    assert found is not None
    assert found.memory == "$((SLURM_CPUS_ON_NODE * 512))MiB"
    found = find_allocation({**BATCH, "SLURM_MEM_PER_NODE": "", "SLURM_MEM_PER_GPU": "700"})
    assert found is not None
    assert found.memory == "$((SLURM_GPUS_ON_NODE * 700))MiB"


DETAILS = """\
JobId=7 JobName=study
   JOB_GRES=gpu:small:5
     Nodes=n[1-2] CPU_IDs=0-1 Mem=4000 GRES=gpu:small:2(IDX:0-1)
     Nodes=n3 CPU_IDs=0 Mem=4000 GRES=gpu:small:1(IDX:0),nvme:1
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
"""


def test_a_worker_asks_for_the_gpus_that_the_job_has_on_its_node(
    commands: Commands, tmp_path: Path
) -> None:
    """Slurm gives a step on one node the GPUs of one task (--gpus-per-task), or none (--gpus)."""
    commands.make("sinfo", "echo 127.0.0.1")
    commands.make("squeue", "")
    commands.make("scontrol", f"cat <<'E'\n{DETAILS}E")
    commands.make("srun", f'echo "$@" > {tmp_path}/$$')
    found = find_allocation(BATCH)
    assert found is not None
    made = AllocationCluster(found, name="a", directory=tmp_path / "jobs", module="m")
    made.scale_up()
    with pytest.raises(JobsFailError):  # the workers have left
        lines_of(made, 4)
    made.close()
    asked = [each.read_text() for each in tmp_path.iterdir() if each.is_file()]
    gpus = [re.search(r"--nodelist=(\w+) .*--gpus=(\d)", each) for each in asked]
    assert sorted(each.groups() for each in gpus if each) == [("n1", "2"), ("n2", "2"), ("n3", "1")]


@pytest.mark.parametrize(
    "without",
    [
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_NUM_NODES": "1"},
        {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    ],
)
def test_elsewhere_this_machine_is_all_there_is(without: dict[str, str]) -> None:
    assert find_allocation({**BATCH, **without}) is None


def test_the_shell_of_an_salloc_on_a_login_node_uses_even_one_node() -> None:
    login = {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1"}
    assert find_allocation(login) == Allocation("7", 1)
    assert Allocation("7", 1).text() == "the node of Slurm job 7"


def test_the_steps_that_slurm_makes_itself_are_none() -> None:
    assert not is_step({**BATCH, "SLURM_STEP_ID": "4294967290"})
    assert find_allocation({**BATCH, "SLURM_STEP_ID": "4294967290"}) is not None


def test_several_masters_are_refused() -> None:
    with pytest.raises(ConfigError, match="starts this command 3 times, but a study has one"):
        find_allocation({**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"})


def test_why_nodes_are_left_aside_is_said() -> None:
    assert why_not({"PATH": "/nowhere"}) == "because srun is not found here"
    assert "without srun it uses all of them" in why_not({**BATCH, "SLURM_STEP_ID": "2"})


def test_a_run_on_one_of_several_nodes_says_so(
    hptune: Hptune, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = "Slurm job 7 has 3 nodes, but the trials run on this machine only,"
    model = hptune.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    settings = StudySettings(source=check_path(model), working_directory=str(hptune.directory))
    with monkeypatch.context() as patch:
        for name, value in BATCH.items():
            patch.setenv(name, value)
        fewer = replace(settings, workers=1)
        assert allocation_for(fewer) == (None, f"{words} because of --workers")
        patch.setenv("PATH", "/nowhere")
        assert allocation_for(settings)[1] == f"{words} because srun is not found here"
    command = ("run", "model.py", "--trials", 1, "--study", "study")
    ended = hptune.start(*command, **BATCH, SLURM_STEP_ID="0").wait()
    assert ended.code == 0, ended.err
    said = " ".join(ended.err.split())
    assert f"{words} because srun started it; without srun it uses all of them" in said


SRUN = """
for each; do case $each in --nodelist=*) file=HERE/${each#*=};; esac; done
line=$(head -n 1 $file); sed -i 1d $file; eval "$line"
"""


@pytest.fixture
def cluster(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AllocationCluster]:
    """Return a cluster on two nodes; each srun does what the next line of its node's file says."""
    monkeypatch.setattr("hptune_jobqueue.allocation._RESTART_DELAY_SECONDS", 0.1)
    commands.make("sinfo", "echo 127.0.0.1")
    commands.make("squeue", "")
    commands.make("srun", SRUN.replace("HERE", str(tmp_path)))
    made = AllocationCluster(
        Allocation("7", 2, "n[1-2]"), name="a", directory=tmp_path / "jobs", module="m"
    )
    try:
        yield made
    finally:
        made.close()


def lines_of(cluster: AllocationCluster, count: int) -> list[str]:
    """Return the output once it has this many lines."""
    found: list[str] = []
    deadline = time.monotonic() + 200
    while len(found) < count and time.monotonic() < deadline:
        found += cluster.check()
        time.sleep(0.01)
    return found


def test_a_worker_that_dies_is_followed_by_another_one(
    cluster: AllocationCluster, tmp_path: Path
) -> None:
    (tmp_path / "n1").write_text("exec sleep 60\n")
    (tmp_path / "n2").write_text("exit 9\nexec sleep 60\n")
    cluster.scale_up()
    assert lines_of(cluster, 1) == [
        "the worker on n2 has ended (srun's status is 9); another is started there"
    ]
    wait_for(lambda: (tmp_path / "n2").read_text() == "", "the other one")
    assert cluster.check() == []


def test_a_node_whose_workers_die_again_and_again_is_given_up(
    cluster: AllocationCluster, tmp_path: Path
) -> None:
    leaves = tmp_path / "leaves"
    (tmp_path / "n1").write_text(f"until [ -e {leaves} ]; do sleep 0.05; done\n")
    (tmp_path / "n2").write_text("echo no such module; exit 1\n" * 9)
    cluster.scale_up()
    *others, last = lines_of(cluster, 3)
    assert (
        others == ["the worker on n2 has ended (srun's status is 1); another is started there"] * 2
    )
    assert last == (
        "the worker on n2 has ended (srun's status is 1), and 2 before it: no other is started"
    )
    leaves.touch()
    # The other node's worker leaves as requested: then none is left.
    with pytest.raises(JobsFailError, match=r"no worker is left on the 2 nodes of Slurm job 7: "):
        lines_of(cluster, 2)
    assert (tmp_path / "n2").read_text().count("exit 1") == 6


def test_a_worker_that_cannot_be_started_again_ends_no_other_one(
    cluster: AllocationCluster, tmp_path: Path
) -> None:
    (tmp_path / "n1").write_text("exec sleep 60\n")
    (tmp_path / "n2").write_text("exit 9\n")
    cluster.scale_up()
    wait_for(lambda: (tmp_path / "n2").read_text() == "", "the first one")
    (tmp_path / "jobs").rename(tmp_path / "gone")  # where it writes what it says
    *_, last = lines_of(cluster, 3)
    assert last.startswith("the worker on n2 has ended (srun cannot be started: ")
    assert last.endswith("and 2 before it: no other is started")
    assert cluster.check() == []

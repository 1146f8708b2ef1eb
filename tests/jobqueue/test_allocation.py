"""Which allocation a command uses that runs inside a Slurm job."""

from __future__ import annotations

import pytest

from jobqueue.allocation import Allocation, find_allocation, is_step, why_not
from jobqueue.errors import ConfigError

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
    assert Allocation("7", 1).describe() == "the node of Slurm job 7"


def test_the_steps_that_slurm_makes_itself_are_none() -> None:
    assert not is_step({**BATCH, "SLURM_STEP_ID": "4294967290"})
    assert find_allocation({**BATCH, "SLURM_STEP_ID": "4294967290"}) is not None


def test_several_masters_are_refused() -> None:
    with pytest.raises(ConfigError, match="starts this command 3 times, but a study has one"):
        find_allocation({**BATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "3"})


def test_why_nodes_are_left_aside_is_said() -> None:
    assert why_not({"PATH": "/nowhere"}) == "since srun is not found here"
    assert "without srun it uses them all" in why_not({**BATCH, "SLURM_STEP_ID": "2"})

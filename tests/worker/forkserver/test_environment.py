"""The environment of attempts: whatever starts a study, each sees a world of its own."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts
from hptune.core.resources import Placement
from hptune.training.parallel.ranks import Ranks
from hptune.training.ports import reserve
from hptune.user_code.model_file import check_path
from hptune.worker.forkserver import environment
from hptune.worker.forkserver.client import ForkServer
from rank_threads import together
from real_runs import Hptune

CORES = sorted(os.sched_getaffinity(0))

JOB = {"SLURM_JOB_ID": "4242", "SLURM_CLUSTER_NAME": "big", "SLURMD_NODENAME": "n7"}
TASK = {
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "SLURM_NNODES"), "2"),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_ID"), "1"),
    **dict.fromkeys(("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"), "n[7-8]"),
    "SLURM_TASKS_PER_NODE": "1(x2)", "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_JOBID": "4242", "SLURM_JOB_NAME": "mine", "SLURM_MEM_PER_CPU": "7",
    "SRUN_CPUS_PER_TASK": "7", "PMI_RANK": "1", "PMI2_RANK": "1", "PMIX_RANK": "1",
}  # fmt: skip
SURROUNDINGS: dict[str, dict[str, str]] = {
    "plain": {},
    "job": JOB,
    "task": {**JOB, **TASK},
    "mpirun": {
        "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_UNIVERSE_SIZE": "2",
        "OMPI_MCA_orte_hnp_uri": "1.0;tcp://n7:1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1",
        "PMIX_NAMESPACE": "1", "MV2_COMM_WORLD_SIZE": "2", "HOROVOD_RANK": "1",
    },
    "torchrun": {
        **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "NODE_RANK"), "1"),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"), "2"),
        "TORCHELASTIC_RUN_ID": "x", "TORCHELASTIC_USE_AGENT_STORE": "True",
        "MASTER_ADDR": "n7", "MASTER_PORT": "29500", "TF_CONFIG": "{}",
        "JAX_COORDINATOR_ADDRESS": "n7:1", "JAX_COORDINATOR_BIND_ADDRESS": "n7:1",
        "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1",
    },
    "mpiexec": {
        "PMI_RANK": "1", "PMI_SIZE": "2", "PMI_FD": "9", "HYDI_CONTROL_FD": "8",
        "MPI_LOCALNRANKS": "2", "MPI_COMM_WORLD_RANK": "1", "PALS_RANKID": "1",
    },
    "jsrun": {
        "JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "2", "JSM_NAMESPACE_LOCAL_RANK": "1",
        "PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "FLUX_TASK_RANK": "1",
    },
    "accelerate": {
        "RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "n7", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "x",
        "PET_NPROC_PER_NODE": "2", "CROSS_RANK": "1",
    },
    "job script": {
        "OMP_PROC_BIND": "close", "OMP_PLACES": "cores", "GOMP_CPU_AFFINITY": "0-3",
        "KMP_AFFINITY": "compact", "KMP_HW_SUBSET": "1t",
    },
}  # fmt: skip
"""What the process has that starts a study, by what started it."""

SETTINGS = {
    "ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_CPU": "true",
    "OMPI_MCA_btl": "^openib", "PMIX_MCA_gds": "hash", "I_MPI_FABRICS": "shm", "OMPI_CC": "gcc",
    "MPI_HOME": "/opt/mpi", "SBATCH_ACCOUNT": "mine", "HOROVOD_CACHE_CAPACITY": "0",
    "NCCL_DEBUG": "INFO", "JAX_PLATFORMS": "cpu", "SLURM_TMPDIR": "/scratch",
    "TORCHINDUCTOR_CACHE_DIR": "/mine", "OMP_WAIT_POLICY": "active", "KMP_BLOCKTIME": "1",
}  # fmt: skip
"""What a site or a user sets, and everything keeps."""

ALONE = {"MASTER_ADDR", "MASTER_PORT", "PET_MASTER_PORT", "JAX_COORDINATOR_ADDRESS"}
ALONE_IN_JOB = {
    **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS", "SLURM_NNODES"), "1"),
    **dict.fromkeys(("SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES", "SLURM_OVERLAP"), "1"),
    **dict.fromkeys(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), "0"),
    "SLURM_STEP_NODELIST": "n7", "SLURM_JOB_NAME": "interactive", "SLURM_CPU_BIND": "none",
    "JAX_LOCAL_DEVICE_IDS": "0", "SLURM_GPUS_ON_NODE": "0",
}  # fmt: skip

MODEL = """
import json, os, pathlib, hptune

OBJECTIVE = "loss:min"

def objective(hp, trial):
    hp.Float("x", 0.0, 1.0)
    seen = {**os.environ, "port": str(trial.port)}
    pathlib.Path(type(trial).__name__ + ".json").write_text(json.dumps(seen))
    script = 'env -0 > program; echo "{{\\\\"loss\\\\": $1}}"'
    return hptune.run_program(["sh", "-c", script, "sh", "{trial.port}"], trial, hp)
"""


def of_process(pid: int) -> dict[str, str]:
    return as_mapping(Path(f"/proc/{pid}/environ").read_text())


def as_mapping(text: str) -> dict[str, str]:
    lines = [line.partition("=") for line in text.split("\0") if line]
    return {name: value for name, _, value in lines}


@pytest.mark.parametrize("place", SURROUNDINGS)
def test_whatever_starts_a_study_every_kind_of_attempt_is_alone_in_its_world(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SURROUNDINGS[place]
    for name, value in {**given, **SETTINGS}.items():
        monkeypatch.setenv(name, value)
    first = tmp_path / "first.py"
    first.write_text("def objective(hp, trial):\n    return 0\n")
    with contextlib.closing(ForkServer(check_path(first))) as server:
        attempts = Attempts(server, tmp_path)
        attempts.probe(MODEL)
        result = attempts.run(MODEL, placement=Placement("w", (CORES[0],)))
        seen = {"server": of_process(server._process.pid)}
    port = result.reports[0][1]["loss"]
    seen["probe"] = json.loads((tmp_path / "_ProbeTrial.json").read_text())
    seen["objective"] = json.loads((tmp_path / "TrialContext.json").read_text())
    seen["program"] = as_mapping((tmp_path / "program").read_text())
    for kind, variables in seen.items():
        own = {} if kind == "server" else ALONE_IN_JOB if "SLURM_JOB_ID" in given else {}
        assert variables.items() >= {**SETTINGS, **own}.items(), kind
        assert variables["TORCHINDUCTOR_CACHE_DIR"] == "/mine"
        cache = str(Path(server.address).parent / "triton") if "SLURM_JOB_ID" in given else None
        assert variables.get("TRITON_CACHE_DIR") == cache, kind
        names = variables.keys() - {"SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE", *own, *ALONE}
        assert names & given.keys() == JOB.keys() & given.keys(), kind
        if kind == "server":
            assert not variables.keys() & ALONE
            continue
        assert variables["MASTER_ADDR"] == "127.0.0.1"
        assert variables["JAX_COORDINATOR_ADDRESS"] == f"127.0.0.1:{variables['MASTER_PORT']}"
        assert variables["PET_MASTER_PORT"] == variables["MASTER_PORT"]
        assert variables["LOKY_MAX_CPU_COUNT"] == variables["RAYON_NUM_THREADS"] == "1"
    assert seen["probe"]["port"] == seen["probe"]["MASTER_PORT"]
    ports = {seen[kind]["MASTER_PORT"] for kind in ("objective", "program")}
    assert ports == {seen["objective"]["port"], f"{port:.0f}"}


RANKS = """
import json, os, pathlib

OBJECTIVE = "loss:min"

def objective(hp, trial):
    hp.Float("x", 0.0, 1.0)
    pathlib.Path(f"rank-{trial.rank}.json").write_text(json.dumps(dict(os.environ)))
    return 0.0
"""


def test_a_rank_has_its_place_in_its_trial_and_none_in_what_starts_the_study(
    hptune: Hptune,
) -> None:
    outside = [given for given in SURROUNDINGS.values() if "SLURM_JOB_ID" not in given]
    inherited = {name: value for each in outside for name, value in each.items()}
    given: dict[str, Any] = {**inherited, **SETTINGS}
    hptune.file("model.py", RANKS)
    ended = hptune(
        "run", "model.py", "--processes-per-trial", 2, "--trials", 1, "--study", "study", **given,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    for rank in range(2):
        variables = json.loads((hptune.directory / f"rank-{rank}.json").read_text())
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "NODE_RANK": "0", "GROUP_RANK": "0"}
        own |= {"JAX_PROCESS_ID": str(rank), "MASTER_ADDR": "127.0.0.1"}
        own |= dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "JAX_NUM_PROCESSES"), "2")
        assert variables.items() >= {**SETTINGS, **own}.items()
        others = {name: value for name, value in inherited.items() if name not in own}
        assert not variables.items() & others.items()


def test_ranks_are_slurms_tasks_inside_of_a_job_and_not_outside() -> None:
    def call(ranks: Ranks) -> dict[str, str]:
        return environment.of_rank(ranks, given=JOB)

    for rank, given in enumerate(together(4, call, nodes=2)):
        assert (given["SLURM_PROCID"], given["SLURM_LOCALID"]) == (given["RANK"], str(rank % 2))
        assert (given["SLURM_NTASKS"], given["SLURM_NTASKS_PER_NODE"]) == ("4", "2")
        assert (given["SLURM_NODEID"], given["SLURM_NNODES"]) == (str(rank // 2), "2")
        assert given["SLURM_STEP_NODELIST"] == given["SLURM_JOB_NODELIST"]
        assert len(given["SLURM_JOB_NODELIST"].split(",")) == 2
        assert "SLURM_JOB_NAME" not in given
    outside = together(2, environment.of_rank)
    assert not [name for given in outside for name in given if name.startswith("SLURM_")]


@pytest.mark.parametrize("is_rank", [False, True], ids=["alone", "rank 1 of 2"])
def test_jax_finds_the_world_of_the_attempt_by_itself(
    is_rank: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from requirements import require

    require("jax")
    from jax._src.clusters import ClusterEnv

    given = {**JOB, **TASK}
    if is_rank:
        own = together(2, lambda ranks: environment.of_rank(ranks, given=given))[1]
    else:
        own = environment.of_one_process(4711, given)
    for name, value in {**environment.without_others(given), **own}.items():
        monkeypatch.setenv(name, value)
    for name in TASK.keys() - own.keys():
        monkeypatch.delenv(name, raising=False)
    address = os.environ["JAX_COORDINATOR_ADDRESS"]
    devices = [int(each) for each in os.environ["JAX_LOCAL_DEVICE_IDS"].split(",")]
    found: Any = ClusterEnv.auto_detect_unset_distributed_params(
        address, None, None, devices, None, 1
    )
    assert found == (address, 2, 1, [0]) if is_rank else (address, 1, 0, [0])


def test_a_port_is_kept_from_others_and_a_server_of_its_attempt_may_use_it() -> None:
    kept = [reserve() for _ in range(20)]
    ports = {each.getsockname()[1] for each in kept}
    assert len(ports) == 20
    for port in ports:
        with socket.create_server(("127.0.0.1", port)):
            pass
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("", port))
    for each in kept:
        each.close()

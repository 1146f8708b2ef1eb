"""The environment of an attempt, decided here for every kind of attempt.

A study may be started by a process that is one of many: a task of Slurm, a rank of MPI, a process
of torchrun. Frameworks find their rank, their peers and their port in variables, and an attempt
that inherits them takes part in a training that is not its own. So an attempt has these:

| variables | of a fork server | of an attempt or a question | of a rank |
|---|---|---|---|
| ranks, sizes and addresses of others (`_OF_OTHERS`) | none | none | none |
| cores that OpenMP binds threads to (`_OF_OTHERS`) | none | none | none |
| Slurm's, but which job it is (`_OF_THE_JOB`) | none | of one task on one node | of the ranks |
| torchrun's, JAX's, TF_CONFIG | none | an address and a port | of the ranks |
| numbers of threads (`_THREADS`) | 1 of OpenMP and BLAS | its cores | its cores |
| folders of compiled code (`_CACHES`) | in a batch job its own, if not given | as it | as it |
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .. import devices

if TYPE_CHECKING:
    from ...training.parallel.ranks import Ranks

LOOPBACK = "127.0.0.1"

_OF_THE_JOB = re.compile(
    "SLURM_(JOB_ID|JOB_PARTITION|JOB_ACCOUNT|JOB_QOS|JOB_USER|JOB_UID|JOB_START_TIME|JOB_END_TIME"
    "|CLUSTER_NAME|CLUSTERS|CONF|CONF_SERVER|JWT|TMPDIR)"
)
"""Variables of Slurm that say which job this is, and how to ask Slurm. What derives a port or an
address from the job's id (JAX, Lightning) takes that of `MASTER_PORT` or of JAX's own first."""

_OF_OTHERS = re.compile(
    r"(SLURM|SRUN)_\w+"
    # MPI; what a site or a user sets for it (OMPI_MCA_btl, I_MPI_FABRICS) stays.
    r"|PMI\d?_\w+|PMIX_(?!MCA_)\w+|PRTE_\w+|HYDI_\w+|PALS_\w+|JSM_\w+|FLUX_TASK_\w+"
    r"|OMPI_(COMM_WORLD|UNIVERSE|APP_CTX|FIRST_RANKS|NUM_APP|COMMAND|ARGV|FILE_LOCATION)\w*"
    r"|OMPI_MCA_(orte|prte|ess|pmix|initial)_\w+|MPI_(LOCALRANKID|LOCALNRANKS|COMM_WORLD_\w+)"
    r"|(MV2|MVP)_COMM_WORLD_\w+|HOROVOD_(RANK|SIZE|LOCAL_\w+|CROSS_\w+|GLOO_RENDEZVOUS_\w+)"
    # torchrun, JAX, TensorFlow
    r"|((LOCAL|GROUP|ROLE|NODE|CROSS)_)?RANK|((LOCAL|GROUP|ROLE)_)?WORLD_SIZE|ROLE_NAME"
    r"|(TORCHELASTIC|PET)_\w+|MASTER_(ADDR|PORT)|TF_CONFIG"
    r"|JAX_(COORDINATOR_\w+|NUM_PROCESSES|PROCESS_ID|LOCAL_DEVICE_IDS)"
    # OpenMP would bind the fork server to one core, and all attempts to the same ones.
    r"|OMP_(PROC_BIND|PLACES)|GOMP_CPU_AFFINITY|KMP_(AFFINITY|HW_SUBSET|PLACE_THREADS)"
)

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "LOKY_MAX_CPU_COUNT",  # scikit-learn and LightGBM, with n_jobs=-1
    "RAYON_NUM_THREADS",  # tokenizers
    "POLARS_MAX_THREADS",
)

_CACHES = {
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "JAX_COMPILATION_CACHE_DIR": "jax",
}
"""Caches that processes may share. What a user has downloaded (XDG_CACHE_HOME, HF_HOME) stays."""

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def without_others(given: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without what places a process among others.

    >>> without_others({"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "RANK": "1", "OMPI_CC": "gcc"})
    {'SLURM_JOB_ID': '7', 'OMPI_CC': 'gcc'}
    """
    return {
        name: value
        for name, value in given.items()
        if _OF_THE_JOB.fullmatch(name) or not _OF_OTHERS.fullmatch(name)
    }


def caches(folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return where the attempts of a batch job keep compiled code: on the disk of their node.

    Triton's default is the home directory, which all nodes share and which may be read-only.

    Args:
        folder: A folder of this node that lasts as long as the fork server.
        given: Its environment: a cache that the user has chosen stays.
    """
    if not devices.batch_job(given):
        return {}
    return {name: str(folder / part) for name, part in _CACHES.items() if name not in given}


def threads(cpus: int) -> dict[str, str]:
    """Return the variables with the number of threads of numerical libraries."""
    return dict.fromkeys(_THREADS, str(cpus))


def of_one_process(
    port: int, given: Mapping[str, str], *, cpus: int = 1, gpus: int = 0
) -> dict[str, str]:
    """Return the variables of an attempt of one process: it is alone in its world.

    Args:
        port: Its port.
        given: Its environment so far.
        cpus: The number of its cores.
        gpus: The number of its GPUs.
    """
    slurm = _slurm(given, nodes=[devices.node()], cpus=cpus, gpus=gpus)
    if slurm:
        # Lightning starts its own processes then, and does not take Slurm's task for one of them.
        slurm["SLURM_JOB_NAME"] = "interactive"
        slurm["JAX_LOCAL_DEVICE_IDS"] = ",".join(map(str, range(gpus or 1)))
    return {
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(port),
        "PET_MASTER_PORT": str(port),  # the default of torchrun, which is 29500 in old releases
        "JAX_COORDINATOR_ADDRESS": f"{LOOPBACK}:{port}",
        **slurm,
    }


def of_rank(
    ranks: Ranks, interface: str = "", given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables of a rank. Their values hold for this attempt only.

    Args:
        ranks: The rank.
        interface: The network interface between the nodes, for gloo and NCCL; empty to leave it to
            them.
        given: The environment so far: an interface that the user has chosen stays.
    """
    given = given or {}
    chosen = {name: interface for name in _INTERFACES if interface and name not in given}
    first = ranks.members[0]
    workers = [member.address for member in ranks.members]
    slurm = _slurm(
        given,
        nodes=list(dict.fromkeys(member.node for member in ranks.members)),
        places=(ranks.rank, ranks.local_rank, ranks.node_rank),
        tasks=ranks.world_size,
        cpus=len(ranks.cpus),
        gpus=len(ranks.gpus) * ranks.local_world_size,
    )
    if slurm:
        slurm["SLURM_NTASKS_PER_NODE"] = str(ranks.local_world_size)
        slurm["SLURM_NODELIST"] = slurm["SLURM_JOB_NODELIST"] = slurm["SLURM_STEP_NODELIST"]
    return {
        "MASTER_ADDR": first.host,
        "MASTER_PORT": str(first.ports[1]),
        "RANK": str(ranks.rank),
        "WORLD_SIZE": str(ranks.world_size),
        "LOCAL_RANK": str(ranks.local_rank),
        "LOCAL_WORLD_SIZE": str(ranks.local_world_size),
        "NODE_RANK": str(ranks.node_rank),
        "GROUP_RANK": str(ranks.node_rank),
        "JAX_COORDINATOR_ADDRESS": ranks.address,
        # Without it, JAX listens on all of the machine's addresses.
        "JAX_COORDINATOR_BIND_ADDRESS": ranks.address,
        "JAX_NUM_PROCESSES": str(ranks.world_size),
        "JAX_PROCESS_ID": str(ranks.rank),
        # In a world of Slurm, JAX would take the GPU with the number of the local rank.
        "JAX_LOCAL_DEVICE_IDS": ",".join(map(str, range(len(ranks.gpus) or 1))),
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": ranks.rank}}
        ),
        **slurm,
        **chosen,
    }


def _slurm(
    given: Mapping[str, str],
    *,
    nodes: Sequence[str],
    places: tuple[int, int, int] = (0, 0, 0),
    tasks: int = 1,
    cpus: int,
    gpus: int,
) -> dict[str, str]:
    """Return Slurm's variables of one task among those of an attempt; none outside of a job.

    Args:
        given: The environment so far.
        nodes: The nodes of the attempt.
        places: The task's number, that on its node, and that of its node.
        tasks: The number of tasks.
        cpus: The number of cores of a task.
        gpus: The number of GPUs on the node.
    """
    if "SLURM_JOB_ID" not in given:
        return {}
    counted = dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"), tasks)
    counted |= dict.fromkeys(
        ("SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES"), len(nodes)
    )
    counted |= zip(("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID"), places, strict=True)
    counted |= {
        "SLURM_CPUS_PER_TASK": cpus,
        "SLURM_CPUS_ON_NODE": cpus * (tasks // len(nodes)),
        "SLURM_GPUS_ON_NODE": gpus,
        # Options of an srun that the attempt calls: the worker holds what the job has.
        "SLURM_OVERLAP": 1,
    }
    return {
        **{name: str(count) for name, count in counted.items()},
        "SLURM_STEP_NODELIST": ",".join(nodes),
        "SLURM_CPU_BIND": "none",
    }

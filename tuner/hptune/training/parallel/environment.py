"""The environment that torch, JAX and TensorFlow expect of a process among several."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .ranks import Ranks

_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")


def variables(
    ranks: Ranks, interface: str = "", given: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment variables of a rank.

    They are those of torchrun, JAX's `jax.distributed` and TensorFlow's TF_CONFIG. Their values
    hold for this attempt only.

    Args:
        ranks: The rank.
        interface: The network interface between the nodes, for gloo and NCCL; empty to leave it to
            them.
        given: The environment: an interface that the user has chosen stays.
    """
    chosen = {name: interface for name in _INTERFACES if interface and name not in (given or {})}
    first = ranks.members[0]
    workers = [member.address for member in ranks.members]
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
        "TF_CONFIG": json.dumps(
            {"cluster": {"worker": workers}, "task": {"type": "worker", "index": ranks.rank}}
        ),
        **chosen,
    }

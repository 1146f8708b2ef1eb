"""Partitions and their nodes, from the output of `sinfo`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import ConfigError
from .values import duration_seconds

SINFO_FORMAT = "%P|%a|%l|%c|%m|%G|%D|%t"
"""Partition, up or down, time limit; of equal nodes: cores, MB, GRES, count, state."""

_UNUSABLE = ("down", "drain", "drng", "fail", "boot", "maint", "unk", "inval", "pow_dn")


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Resources of one node.

    Attributes:
        cpus: Cores, as Slurm counts them.
        memory_bytes: Memory that Slurm allocates.
        gpus: How many GPUs of each type; the type is empty if Slurm knows none.
    """

    cpus: int
    memory_bytes: int
    gpus: tuple[tuple[str, int], ...] = ()

    def gpu_count(self, gpu_type: str | None = None) -> int:
        """Return the number of GPUs of a type, or of all types."""
        return sum(count for name, count in self.gpus if gpu_type in (None, name))


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of the cluster.

    Attributes:
        name: Its name.
        is_default: Whether Slurm uses it for jobs that name none.
        is_up: Whether jobs can start in it.
        limit_seconds: The longest walltime; None for no limit.
        nodes: The kinds of nodes, and how many of each can take jobs.
    """

    name: str
    is_default: bool
    is_up: bool
    limit_seconds: int | None
    nodes: tuple[tuple[NodeShape, int], ...]

    def gpu_types(self) -> tuple[str, ...]:
        """Return its types of GPUs, sorted."""
        return tuple(sorted({name for shape, _ in self.nodes for name, _ in shape.gpus}))


def parse_sinfo(text: str) -> tuple[Partition, ...]:
    """Parse the output of `sinfo --noheader --exact -o SINFO_FORMAT`.

    >>> parse_sinfo("gpu*|up|1-00:00:00|8|64000|gpu:a100:2|3|idle")[0].limit_seconds
    86400
    """
    facts: dict[str, tuple[bool, bool, int | None]] = {}
    nodes: dict[str, dict[NodeShape, int]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != SINFO_FORMAT.count("|") + 1:
            continue
        partition, available, limit, cpus, memory, gres, count, state = parts
        name = partition.removesuffix("*")
        facts[name] = (partition.endswith("*"), available == "up", _limit(limit))
        shape = NodeShape(_number(cpus), _number(memory) * 1024**2, parse_gpus(gres))
        usable = 0 if state.startswith(_UNUSABLE) or state.endswith("*") else _number(count)
        known = nodes.setdefault(name, {})
        known[shape] = known.get(shape, 0) + usable
    return tuple(
        Partition(name, *facts[name], tuple(shapes.items())) for name, shapes in nodes.items()
    )


def parse_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """Return the GPUs among a node's generic resources, as (type, count).

    >>> parse_gpus("gpu:a100:4(S:0-1),gpu:2,mps:200,nvme:1")
    (('a100', 4), ('', 2))
    """
    bare = re.sub(r"\([^)]*\)", "", gres)
    found = []
    for part in bare.split(","):
        words = part.strip().split(":")
        if words[0] == "gpu" and words[-1].isdigit():
            found.append((":".join(words[1:-1]), int(words[-1])))
    return tuple(found)


def node_names(text: str) -> tuple[str, ...]:
    """Return the nodes that Slurm's short form denotes.

    >>> node_names("gpu[1-2,07-09],login")
    ('gpu1', 'gpu2', 'gpu07', 'gpu08', 'gpu09', 'login')
    >>> node_names("r[1-2]n[1-2]")
    ('r1n1', 'r1n2', 'r2n1', 'r2n2')
    """
    return tuple(name for part in re.findall(r"(?:\[[^]]*\]|[^,\[])+", text) for name in _all(part))


def _all(text: str) -> list[str]:
    found = re.search(r"\[([^]]*)\]", text)
    if found is None:
        return [text]
    before, after = text[: found.start()], _all(text[found.end() :])
    names = []
    for part in found[1].split(","):
        first, _, last = part.partition("-")
        for number in range(int(first), int(last or first) + 1):
            names += [f"{before}{number:0{len(first)}}{rest}" for rest in after]
    return names


def _limit(text: str) -> int | None:
    try:
        return duration_seconds(text)
    except ConfigError:
        return None  # infinite, or n/a


def _number(text: str) -> int:
    found = re.match(r"\d+", text)
    return int(found.group()) if found else 0

"""The text of a first slurm.toml, from the partitions that Slurm has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .commands import Slurm
from .errors import ClosedForNowError, SubmissionError
from .nodes import NodeShape, Partition
from .values import clock, gigabytes

_HEAD = """\
# The Slurm jobs that hptune submits. Keys above the first [[shape]] apply to all of them.

walltime = "{walltime}"  # how long a job may run; trials then continue in another job
{account}

# Further keys, here or in a shape (the guide describes all of them):
# trials_per_job = 1                         # instead of as many trials as fit on a node
# max_jobs = 4
# nodes = 2                                  # of one job; its workers start and end together
# qos = "normal"
# gpu_type = "a100"
# memory = "64GB"                            # of a job; 0 leaves it to Slurm
# exclusive = true
# directives = ["--constraint=skylake"]      # further #SBATCH lines
# modules = ["cuda/12.4"]
# environment = {{ DATA = "/data" }}
# prologue = ["source ~/venv/bin/activate"]
# python = "/path/to/python"
# image = "hptune.sif"                       # a container with hptune, next to this file
# image_program = "singularity"              # or "pyxis": the program that runs the image
# interface = "ib0"                          # the network between the nodes and this machine
# scratch = "/tmp"
# log_directory = "/path/to/logs"
# notice_seconds = 120                       # how long before its end a job stops its trials
# grace_seconds = 600                        # how long a job may run without a master
#
# The job of the master, for `hptune run … --detach`; all keys are optional:
# [master]
# partition = "cpu"                          # default: Slurm's default partition
# walltime = "1-00:00:00"                    # default: the longest; the job is then requeued
# memory = "4GB"                             # the data of load_data must fit in it
"""

_LONGEST_SECONDS = 4 * 3600
"""The walltime in the template at most: short jobs start sooner."""


def refused_partitions(
    slurm: Slurm, partitions: Sequence[Partition], *, account: str | None = None
) -> dict[str, str]:
    """Return the partitions in which Slurm takes no small job of the user, and its words.

    Nothing is submitted. Partitions that take no jobs for now are left out.

    Raises:
        SlurmUnavailableError: Slurm does not answer.
    """
    refused = {}
    for partition in partitions:
        options = [f"-p {partition.name}", "-n 1", "-t 1"]
        options += ["--gres=gpu:1"] if partition.gpu_types() else []
        options += [f"-A {account}"] if account else []
        lines = ["#!/bin/sh", *(f"#SBATCH {option}" for option in options), ""]
        try:
            slurm.check("\n".join(lines))
        except ClosedForNowError:
            continue
        except SubmissionError as error:
            refused[partition.name] = str(error).partition(": ")[2]
    return refused


def template_text(
    partitions: Sequence[Partition],
    *,
    account: str | None = None,
    refused: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a slurm.toml with all partitions, all but one of them as comments.

    The chosen partition is one with GPUs if there are any, Slurm's default one among equals. One
    that refuses the user's jobs is chosen only if all do.

    Args:
        partitions: The partitions of the cluster.
        account: The user's account; None if unknown.
        refused: The partitions in which Slurm takes no job of the user, and its words.
    """
    refused = refused or {}
    usable = [
        partition
        for partition in partitions
        if partition.is_up and any(count for _, count in partition.nodes)
    ] or partitions
    open_ones = [partition for partition in usable if partition.name not in refused]
    chosen = min(open_ones or usable, key=lambda each: (not each.gpu_types(), not each.is_default))
    limit = min(_LONGEST_SECONDS, chosen.limit_seconds or _LONGEST_SECONDS)
    says = f'account = "{account}"' if account else '# account = "project"'
    parts = [_HEAD.format(walltime=clock(limit), account=says)]
    parts += [
        _shape(partition, refused.get(partition.name, ""), is_chosen=partition is chosen)
        for partition in partitions
    ]
    return "\n".join(parts)


def describe_node(node: NodeShape) -> str:
    """Return a node's resources, for the user.

    >>> describe_node(NodeShape(64, 512 * 2**30, (("a100", 4),)))
    '64 cores, 550 GB, 4 GPUs (a100)'
    """
    words = [f"{node.cpus} cores", gigabytes(node.memory_bytes)]
    for kind, count in node.gpus:
        words.append(f"{count} GPUs" + (f" ({kind})" if kind else ""))
    return ", ".join(words)


def _shape(partition: Partition, refusal: str, *, is_chosen: bool) -> str:
    mark = "" if is_chosen else "# "
    limit = partition.limit_seconds
    longest = "no time limit" if limit is None else f"at most {clock(limit)}"
    facts = [longest, *([] if partition.is_up else ["down now"])]
    if partition.is_default:
        facts.append("Slurm's default")
    lines = [f"# {partition.name}: {', '.join(facts)}"]
    lines += [f"#   {count} x {describe_node(node)}" for node, count in partition.nodes]
    if refusal:
        lines.append(f"#   Slurm refuses your jobs there: {refusal}")
    if is_chosen and partition.gpu_types():
        lines.append("#   A trial gets one GPU. If the model trains on cores, use")
        lines.append("#   `hptune run … --gpus-per-trial 0`; then no GPU is requested.")
    lines += [f"{mark}[[shape]]", f'{mark}name = "{partition.name}"']
    lines += [f'{mark}partition = "{partition.name}"']
    if not is_chosen and limit is not None and limit < _LONGEST_SECONDS:
        lines.append(f'{mark}walltime = "{clock(limit)}"')
    return "\n".join(lines) + "\n"

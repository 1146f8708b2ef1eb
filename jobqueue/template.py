"""Writes a first slurm.toml from what Slurm says there is."""

from __future__ import annotations

from collections.abc import Sequence

from .nodes import NodeShape, Partition
from .values import clock

_HEAD = """\
# Which Slurm jobs hptune submits. What stands here above the first [[shape]] holds for all of them.

walltime = "{walltime}"  # how long a job may run; trials go on in another job
{account}

# What else may be said, here or in a shape (all of it in the guide):
# trials_per_job = 1                         # slices instead of as many trials as fit on a node
# max_jobs = 4
# nodes = 2                                  # of one job: its workers come and go together
# qos = "normal"
# gpu_type = "a100"
# memory = "64GB"                            # of a job; 0 leaves it to Slurm
# exclusive = true
# directives = ["--constraint=skylake"]      # further #SBATCH lines
# modules = ["cuda/12.4"]
# environment = {{ DATA = "/data" }}
# prologue = ["source ~/venv/bin/activate"]
# python = "/path/to/python"
# container = "/path/to/image.sif"           # or launcher = "apptainer exec …", with python
# interface = "ib0"                          # the network between the nodes and this machine
# scratch = "/tmp"
# log_directory = "/path/to/logs"
# notice_seconds = 120                       # before its end a job tells its trials to leave
# grace_seconds = 600                        # so long a job waits for a master that is gone
#
# The job of the master itself, for `hptune run … --detach`; all of it is optional:
# [master]
# partition = "cpu"                          # else Slurm's default one
# walltime = "1-00:00:00"                    # else as long as it allows; the next job goes on
# memory = "4GB"                             # the data of load_data must fit in
"""

_LONGEST_SECONDS = 4 * 3600


def template_text(partitions: Sequence[Partition], *, account: str | None = None) -> str:
    """The text of a slurm.toml with all partitions; those beside the first choice as comments.

    The first choice is one with GPUs if there are any, Slurm's default one among equals.

    Args:
        partitions: What there is.
        account: The user's account, where Slurm knows one.
    """
    usable = [each for each in partitions if each.is_up and any(count for _, count in each.nodes)]
    chosen = min(usable or partitions, key=lambda each: (not each.gpu_types(), not each.is_default))
    limit = min(_LONGEST_SECONDS, chosen.limit_seconds or _LONGEST_SECONDS)
    says = f'account = "{account}"' if account else '# account = "project"'
    parts = [_HEAD.format(walltime=clock(limit), account=says)]
    parts += [_shape(each, is_chosen=each is chosen) for each in partitions]
    return "\n".join(parts)


def describe_node(node: NodeShape) -> str:
    """A node in words.

    >>> describe_node(NodeShape(64, 512 * 2**30, (("a100", 4),)))
    '64 cores, 550 GB, 4 GPUs (a100)'
    """
    words = [f"{node.cpus} cores", f"{node.memory_bytes / 1e9:.3g} GB"]
    for kind, count in node.gpus:
        words.append(f"{count} GPUs" + (f" ({kind})" if kind else ""))
    return ", ".join(words)


def _shape(partition: Partition, *, is_chosen: bool) -> str:
    mark = "" if is_chosen else "# "
    limit = partition.limit_seconds
    longest = "no time limit" if limit is None else f"at most {clock(limit)}"
    facts = [longest, *([] if partition.is_up else ["down now"])]
    if partition.is_default:
        facts.append("Slurm's default")
    lines = [f"# {partition.name}: {', '.join(facts)}"]
    lines += [f"#   {count} x {describe_node(node)}" for node, count in partition.nodes]
    if is_chosen and partition.gpu_types():
        lines.append("#   A trial gets one GPU; where the model trains on cores, say")
        lines.append("#   `hptune run … --gpus-per-trial 0`, and none is asked for.")
    lines += [f"{mark}[[shape]]", f'{mark}name = "{partition.name}"']
    lines += [f'{mark}partition = "{partition.name}"']
    if not is_chosen and limit is not None and limit < _LONGEST_SECONDS:
        lines.append(f'{mark}walltime = "{clock(limit)}"')
    return "\n".join(lines) + "\n"

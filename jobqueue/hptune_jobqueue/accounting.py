"""What Slurm's accounting has on some jobs: what they were given, and what they used."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from .commands import Slurm

SACCT_FORMAT = "JobID,JobName,ElapsedRaw,AllocTRES,TotalCPU,ConsumedEnergyRaw"


@dataclass(frozen=True, slots=True)
class JobUsage:
    """The sum over some jobs.

    Attributes:
        jobs: How many have started.
        core_seconds: Time for which they had cores.
        gpu_seconds: Time for which they had GPUs.
        cpu_seconds: Processor time that they used.
        energy_joules: Energy that their nodes used meanwhile; 0 where Slurm does not measure it.
    """

    jobs: int = 0
    core_seconds: float = 0.0
    gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    energy_joules: float = 0.0


def usage_of(name: str, *, since: float) -> JobUsage:
    """Return what the user's jobs had whose names are this one, or begin with it and a dot or dash.

    Args:
        name: The name.
        since: The time from which on the jobs were submitted, in seconds since the epoch.

    Raises:
        SlurmUnavailableError: Slurm keeps no accounting, or does not answer.
    """
    start = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since))
    return parse_sacct(Slurm().accounting(SACCT_FORMAT, since=start), name)


def parse_sacct(text: str, name: str) -> JobUsage:
    r"""Return the sum of the lines of `sacct --parsable2` whose job has this name.

    >>> job = "9_0|a.gpu|60|billing=8,cpu=8,gres/gpu=2,mem=4G|01:30.500|\n"
    >>> parse_sacct(job + "9_0.batch|batch|60|cpu=8,gres/gpu=2|01:30.500|7200\n", "a")
    JobUsage(jobs=1, core_seconds=480.0, gpu_seconds=120.0, cpu_seconds=90.5, energy_joules=7200.0)
    """
    seen, current = set[str](), ""
    cores, gpus, used = 0.0, 0.0, 0.0
    energies = list[int]()
    for line in text.splitlines():
        job, _, rest = line.partition("|")
        name_and_fields = rest.rsplit("|", SACCT_FORMAT.count(",") - 1)
        if len(name_and_fields) != SACCT_FORMAT.count(","):
            continue  # not of sacct, as a banner
        job_name, elapsed, resources, cpu_time, joules = name_and_fields
        if "." not in job:
            is_ours = resources and re.fullmatch(rf"{re.escape(name)}([.-].*)?", job_name)
            current = job if is_ours else ""
            if is_ours:
                seen.add(job)
                energies.append(0)
                counts = dict(part.partition("=")[::2] for part in resources.split(","))
                cores += _number(elapsed) * _number(counts.get("cpu", ""))
                gpus += _number(elapsed) * _gpus(counts)
                used += _seconds(cpu_time)
        # Each step has the energy of its nodes while it ran, and steps run at the same time.
        if current and job.partition(".")[0] == current:
            energies[-1] = max(energies[-1], _number(joules))
    return JobUsage(len(seen), cores, gpus, used, float(sum(energies)))


def _gpus(counts: Mapping[str, str]) -> int:
    """Return the number of GPUs, of which Slurm may count only those of each type."""
    if "gres/gpu" in counts:
        return _number(counts["gres/gpu"])
    return sum(_number(each) for kind, each in counts.items() if kind.startswith("gres/gpu:"))


def _number(text: str) -> int:
    """Return a whole number; 0 for what Slurm does not tell."""
    return int(text) if text.isdecimal() else 0


def _seconds(cpu_time: str) -> float:
    """Return a processor time, which sacct writes as D-HH:MM:SS or MM:SS.mmm, in seconds."""
    found = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)", cpu_time)
    if found is None:
        return 0.0
    days, hours, minutes = (int(part or 0) for part in found.groups()[:3])
    return days * 86400 + hours * 3600 + minutes * 60 + float(found[4])

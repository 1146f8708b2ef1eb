"""What Slurm's accounting has on some jobs: what they were given, and what they used."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from .commands import Slurm
from .values import duration_seconds

SACCT_FORMAT = "JobID,JobName,ElapsedRaw,AllocTRES,TotalCPU,ConsumedEnergyRaw"


@dataclass(frozen=True, slots=True)
class JobUsage:
    """The sum over some jobs.

    Attributes:
        jobs: How many have started.
        core_seconds: Time for which they had cores.
        gpu_seconds: Time for which they had GPUs.
        cpu_seconds: Processor time that they used.
        energy_joules: Energy that their nodes used for them; 0 where Slurm does not measure it.
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
    found = set[str]()
    cores, gpus, used, energy = 0.0, 0.0, 0.0, 0.0
    for line in text.splitlines():
        job, job_name, elapsed, resources, cpu_time, joules = line.split("|")
        if "." in job:
            # Energy is that of steps, processor time also that of the job.
            is_ours = job.partition(".")[0] in found
            energy += int(joules) if is_ours and joules.isdecimal() else 0
        elif resources and re.fullmatch(rf"{re.escape(name)}([.-].*)?", job_name):
            found.add(job)
            counts = dict(part.split("=", 1) for part in resources.split(","))
            cores += int(elapsed) * int(counts.get("cpu", 0))
            gpus += int(elapsed) * int(counts.get("gres/gpu", 0))
            used += _seconds(cpu_time)
    return JobUsage(len(found), cores, gpus, used, energy)


def _seconds(cpu_time: str) -> float:
    """Return a processor time, which sacct writes as D-HH:MM:SS or MM:SS.mmm, in seconds."""
    whole, _, fraction = cpu_time.partition(".")
    if not whole.strip("0:-"):
        return float(f"0.{fraction or 0}")
    return duration_seconds(whole) + float(f"0.{fraction or 0}")

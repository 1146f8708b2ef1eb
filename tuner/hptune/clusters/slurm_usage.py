"""What Slurm's accounting has on the jobs of a study, beside what its trials held."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from hptune_jobqueue.commands import Slurm
from hptune_jobqueue.errors import NoAccountingError, SlurmUnavailableError

from ..core.goals import JOULES_PER_KWH
from ..errors import StudyError
from ..storage.directory import StudyDirectory
from ..text import amount, energy
from .jobs import jobs_name

SACCT_FORMAT = "JobID,JobName,ElapsedRaw,AllocTRES,TotalCPU,ConsumedEnergyRaw"

_HOUR = 3600.0
_UNMEASURED = "not measured here, or not before the jobs end"


def usage_lines(
    directory: StudyDirectory, *, since: float, core_hours: float, gpu_hours: float
) -> list[tuple[str, str]]:
    """Return the accounting as labels with words.

    Args:
        directory: The study's directory.
        since: When the study was created, in seconds since the epoch.
        core_hours: Time for which its trials held cores.
        gpu_hours: Time for which they held GPUs.

    Raises:
        StudyError: Slurm keeps no accounting, or knows no job of the study.
    """
    try:
        usage = usage_of(jobs_name(directory.path), since=since)
    except NoAccountingError as error:
        raise StudyError(
            f"this cluster keeps no accounting ({error}), so it is unknown what the jobs used. The "
            f"study's trials held {_hours(core_hours, gpu_hours)}"
        ) from error
    except SlurmUnavailableError as error:
        raise StudyError(f"Slurm's accounting cannot be read: {error}. {error.ADVICE}") from error
    if not usage.jobs:
        raise StudyError(
            f"Slurm's accounting has no job of {directory}; it may forget jobs after some time, or "
            "show them some seconds after they have begun"
        )
    cores, gpus = usage.core_seconds / _HOUR, usage.gpu_seconds / _HOUR
    used = usage.cpu_seconds / _HOUR
    lines = [
        ("jobs", "1 has started" if usage.jobs == 1 else f"{usage.jobs} have started"),
        ("allocated", _hours(cores, gpus)),
        ("held by trials", _hours(core_hours, gpu_hours, cores, gpus)),
        ("processor time", _hours(used, 0.0, cores) if used else _UNMEASURED),
    ]
    if usage.energy_joules:
        lines.append(("energy", energy(usage.energy_joules / JOULES_PER_KWH)))
    return lines


def _hours(cores: float, gpus: float, all_cores: float = 0.0, all_gpus: float = 0.0) -> str:
    """Return core and GPU hours, with their shares of all if these are given."""
    parts = []
    for hours, noun, whole in ((cores, "core", all_cores), (gpus, "GPU", all_gpus)):
        share = f" ({hours / whole:.0%})" if whole else ""
        if hours or whole or noun == "core":
            parts.append(f"{amount(hours)} {noun} hours{share}")
    return ", ".join(parts)


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

"""What Slurm's accounting has on the jobs of a study, beside what its trials held."""

from __future__ import annotations

from hptune_jobqueue.accounting import usage_of
from hptune_jobqueue.errors import NoAccountingError, SlurmUnavailableError

from ..errors import StudyError
from ..storage.directory import StudyDirectory
from ..text import amount
from .jobs import jobs_name

_HOUR = 3600.0
_KILOWATT_HOUR = 3.6e6
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
        lines.append(("energy", f"{amount(usage.energy_joules / _KILOWATT_HOUR)} kWh"))
    return lines


def _hours(cores: float, gpus: float, all_cores: float = 0.0, all_gpus: float = 0.0) -> str:
    """Return core and GPU hours, with their shares of all if these are given."""
    parts = []
    for hours, noun, whole in ((cores, "core", all_cores), (gpus, "GPU", all_gpus)):
        share = f" ({hours / whole:.0%})" if whole else ""
        if hours or whole or noun == "core":
            parts.append(f"{amount(hours)} {noun} hours{share}")
    return ", ".join(parts)

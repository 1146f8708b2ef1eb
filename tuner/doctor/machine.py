"""Python, the packages, and what this machine grants."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Iterator, Mapping

from ..worker import devices
from .findings import Finding, Subject, failed, passed, warned

_SHOWN = ("hptune", "dask", "distributed", "keras", "keras-tuner", "numpy", "tensorflow")
_KNOWN_PYTHON = ((3, 11), (3, 13))


def check_versions(_subject: Subject) -> Iterator[Finding]:
    """Python, and the packages against what hptune asks for."""
    least, most = _KNOWN_PYTHON
    here = f"{platform.python_version()} in {sys.prefix}"
    if least <= sys.version_info[:2] <= most:
        yield passed("Python", here)
    else:
        known = f"{least[0]}.{least[1]} to {most[0]}.{most[1]}"
        yield warned("Python", here, f"hptune is tested with {known}")
    wrong = list(_unmet_requirements())
    shown = [f"{name} {version}" for name in _SHOWN if (version := _version(name))]
    if wrong:
        yield failed(
            "packages", "; ".join(wrong), f"{sys.executable} -m pip install --upgrade hptune"
        )
    elif _version("dask") != _version("distributed"):
        yield warned(
            "packages",
            f"dask {_version('dask')} with distributed {_version('distributed')}",
            "they are made for each other: install the same version of both",
        )
    else:
        yield passed("packages", ", ".join(shown))


def _unmet_requirements() -> Iterator[str]:
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires("hptune") or ():
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        version = _version(needed.name)
        if version is None:
            yield f"{needed.name} is not installed"
        elif not needed.specifier.contains(version, prereleases=True):
            yield f"{needed.name} {version} is not {needed.specifier}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_machine(subject: Subject) -> Iterator[Finding]:
    """Cores, memory and GPUs: what there is, what is granted, and what Slurm says of it."""
    granted = devices.capacity()
    if subject.connect:
        yield passed(
            "this machine",
            f"{len(granted.cpus)} cores, {granted.memory_bytes / 1e9:.3g} GB, for the study's "
            "master; its trials run on the workers (below)",
        )
        return
    yield _cores(len(granted.cpus), os.cpu_count() or 1)
    yield _memory(granted.memory_bytes)
    if granted.gpus:
        yield passed("GPUs", f"{len(granted.gpus)} granted: {', '.join(granted.gpus)}")
    elif subject.gpus_per_trial == 0:
        yield passed("GPUs", "none granted, none wanted; trials train on cores")
    elif os.environ.get("CUDA_VISIBLE_DEVICES") is not None:
        yield warned(
            "GPUs",
            "none granted: CUDA_VISIBLE_DEVICES is set and names none",
            "unset it to use all GPUs of this machine, or ask Slurm for some (--gres=gpu:1)",
        )
    else:
        yield passed("GPUs", "none on this machine; trials train on its cores")
    if "SLURM_JOB_ID" in os.environ:
        yield from check_slurm(os.environ, cores=len(granted.cpus), gpus=len(granted.gpus))


def _cores(granted: int, there: int) -> Finding:
    if granted == there:
        return passed("cores", f"{there}, all granted")
    if granted == 1:
        return warned(
            "cores",
            f"1 of {there} granted, by affinity or by the control group's quota",
            "one trial at a time runs here; in a Slurm job ask for more (--cpus-per-task), in a "
            "container raise its limit",
        )
    return passed("cores", f"{granted} of {there} granted, by affinity or the control group")


def _memory(granted_bytes: int) -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    words = f"{granted_bytes / 1e9:.3g} of {memory.total / 1e9:.3g} GB granted"
    free = min(granted_bytes, int(memory.available))
    if free < 2e9:
        return warned(
            "memory",
            f"{words}, {free / 1e9:.2g} GB free",
            "a trial with TensorFlow takes about 1 GB: run fewer at once (--workers), or end what "
            "else runs here",
        )
    return passed("memory", f"{words}, {free / 1e9:.3g} GB free")


def check_slurm(environment: Mapping[str, str], *, cores: int, gpus: int) -> Iterator[Finding]:
    """Whether Slurm granted what this process sees.

    Args:
        environment: The variables that Slurm sets in a job.
        cores: How many cores this process may use.
        gpus: How many GPUs it may use.
    """
    job = environment["SLURM_JOB_ID"]
    said_cores = environment.get("SLURM_CPUS_PER_TASK") or environment.get("SLURM_CPUS_ON_NODE")
    said_gpus = environment.get("SLURM_GPUS_ON_NODE")
    wrong = []
    if said_cores and said_cores.isdigit() and int(said_cores) != cores:
        wrong.append(f"Slurm granted {said_cores} cores and this process may use {cores}")
    if said_gpus and said_gpus.isdigit() and int(said_gpus) != gpus:
        wrong.append(f"Slurm granted {said_gpus} GPUs and this process sees {gpus}")
    if wrong:
        yield warned(
            "Slurm",
            f"job {job}: {'; '.join(wrong)}",
            "start it with srun, so that Slurm confines it to what it granted; if the numbers "
            "still differ, ask the cluster's admins whether jobs are confined (cgroup.conf)",
        )
    else:
        yield passed("Slurm", f"job {job}: this process may use what Slurm granted")

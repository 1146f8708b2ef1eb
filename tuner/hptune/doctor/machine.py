"""Checks of Python, the packages and this machine's resources."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping

from hptune_jobqueue.script import NOTICE

from ..core.resources import size
from ..text import plural
from ..worker import devices
from ..worker.gpus.machine import Gpus
from .findings import Finding, Subject, failed, passed, warned

_SHOWN = ("hptune", "dask", "distributed", "keras", "keras-tuner", "numpy", "tensorflow")
_KNOWN_PYTHON = ((3, 11), (3, 14))


def check_versions(_subject: Subject) -> Iterator[Finding]:
    """Check Python and the packages against hptune's requirements."""
    least, most = _KNOWN_PYTHON
    here = f"{platform.python_version()} in {sys.prefix}"
    if least <= sys.version_info[:2] <= most:
        yield passed("Python", here)
    else:
        known = f"{least[0]}.{least[1]} to {most[0]}.{most[1]}"
        yield warned("Python", here, f"hptune is tested with {known}")
    wrong = dict(_unmet_requirements())
    shown = [f"{name} {version}" for name in _SHOWN if (version := _version(name))]
    if wrong:
        needed = shlex.join(wrong)
        yield failed(
            "packages", "; ".join(wrong.values()), f"{sys.executable} -m pip install {needed}"
        )
    elif _version("dask") != _version("distributed"):
        yield warned(
            "packages",
            f"dask {_version('dask')} with distributed {_version('distributed')}",
            "install the same version of both",
        )
    else:
        yield passed("packages", ", ".join(shown))


def _unmet_requirements() -> Iterator[tuple[str, str]]:
    """Yield each requirement that is not met, and what is installed instead."""
    from packaging.requirements import Requirement

    for text in importlib.metadata.requires("hptune") or ():
        needed = Requirement(text)
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        version = _version(needed.name)
        if version is None:
            yield text, f"{needed.name} is not installed"
        elif not needed.specifier.contains(version, prereleases=True):
            yield text, f"{needed.name} {version} does not meet {needed.specifier}"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_machine(subject: Subject) -> Iterator[Finding]:
    """Check the cores, memory and GPUs that this process may use, and Slurm's grant."""
    granted = devices.capacity()
    if subject.connect:
        yield passed(
            "this machine",
            f"{plural(len(granted.cpus), 'core')}, {size(granted.memory_bytes)}; trials run on the "
            "workers below",
        )
        return
    yield _cores(len(granted.cpus), os.cpu_count() or 1)
    yield _memory(granted.memory_bytes)
    gpus = Gpus()
    if granted.gpus:
        names = ", ".join(granted.gpus)
        yield passed("GPUs", f"{len(granted.gpus)} available: {names} ({gpus.way})")
    elif subject.gpus_per_trial == 0:
        yield passed("GPUs", "none used; trials train on cores")
    elif set_here := [variable for variable in gpus.vendor.variables() if variable in os.environ]:
        yield warned(
            "GPUs",
            f"none available: {' and '.join(set_here)} is set and names none",
            "unset it to use all GPUs of this machine, or request some from Slurm (--gres=gpu:1)",
        )
    else:
        yield passed("GPUs", "none on this machine; trials train on its cores")
    for note in gpus.notes:
        yield warned("GPUs", *note)
    if "SLURM_JOB_ID" in os.environ:
        yield from check_slurm(os.environ, cores=len(granted.cpus), gpus=len(granted.gpus))


def _cores(granted: int, total: int) -> Finding:
    if granted == total:
        return passed("cores", f"all {total} available")
    if granted == 1:
        return warned(
            "cores",
            f"1 of {total} available (CPU affinity or a cgroup limit)",
            "only one trial runs at a time: in Slurm request more (--cpus-per-task), in a "
            "container raise its limit",
        )
    return passed("cores", f"{granted} of {total} available (CPU affinity or a cgroup limit)")


def _memory(granted_bytes: int) -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    words = f"{size(granted_bytes)} of {size(memory.total)} available"
    free = min(granted_bytes, int(memory.available))
    if free < 2e9:
        return warned(
            "memory",
            f"{words}, {size(free)} free",
            "a trial with TensorFlow needs about 1 GB: run fewer at once (--workers), or end other "
            "programs",
        )
    return passed("memory", f"{words}, {size(free)} free")


def check_slurm(environment: Mapping[str, str], *, cores: int, gpus: int) -> Iterator[Finding]:
    """Check that this process may use what Slurm granted, no more and no less."""
    job = environment["SLURM_JOB_ID"]
    of_task, of_node = "SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE"
    granted_cores = environment.get(of_task) or environment.get(of_node, "")
    # Some sites add the sockets: 8(S:0-1).
    granted_gpus = environment.get("SLURM_GPUS_ON_NODE", "").partition("(")[0]
    wrong = []
    if granted_cores.isdigit() and int(granted_cores) != cores:
        wrong.append(
            f"Slurm granted {plural(int(granted_cores), 'core')}, this process may use {cores}"
        )
    if granted_gpus.isdigit() and int(granted_gpus) != gpus:
        wrong.append(f"Slurm granted {plural(int(granted_gpus), 'GPU')}, this process sees {gpus}")
    if wrong:
        # A job that hptune submits starts its worker without srun.
        advice = (
            "no key of the slurm.toml changes this: ask the cluster's administrators whether "
            "slurm.conf has the node's true size, and whether cgroup.conf confines jobs to "
            "what they are granted (ConstrainCores, ConstrainDevices)"
            if NOTICE in environment
            else "start with srun, so that Slurm confines the process to its grant; if the numbers "
            "still differ, ask the cluster's administrators about cgroup.conf"
        )
        yield warned("Slurm", f"job {job}: {'; '.join(wrong)}", advice)
    else:
        yield passed("Slurm", f"job {job}: this process may use exactly what Slurm granted")

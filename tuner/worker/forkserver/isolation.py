"""An attempt sees its own cores and devices, and no others.

All of this happens in the attempt's process: after the fork, while it has one thread, and before
a framework has looked at the machine. What it starts later (data loaders, say) inherits it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...core.resources import Placement
from .. import devices

_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMEXPR_MAX_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
)

_claims: list[socket.socket] = []
"""Kept open until the process ends, however it ends."""


def confine(placement: Placement) -> tuple[int, ...]:
    """Keep this process to the placement's cores and GPUs; returns the cores.

    They are the placement's own, unless an attempt of another study or of another worker runs on
    one of them already: then a free one is taken in its place, as long as there is one. One that
    shares a core runs on any of its worker's: when its neighbours all compute at once, another
    core may have nothing to do, and the kernel knows better than we at each instant.
    """
    allowed = os.sched_getaffinity(0)
    if placement.floats_on:
        cores = tuple(sorted(allowed.intersection(placement.floats_on))) or placement.cpus
    else:
        cores = tuple(_claimed(placement.cpus, allowed))
    with contextlib.suppress(OSError):  # as when the worker's control group has changed
        os.sched_setaffinity(0, cores)
    limit_threads(len(placement.cpus))
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(placement.gpus)
    # A framework that takes a whole GPU at once leaves nothing to measure, and nothing to others.
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    if placement.gpu_share < 1:
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{placement.gpu_share:.4f}"
    return cores


def be_the_first_to_go() -> None:
    """Where memory runs out, the kernel is to end a trial, and neither worker nor master."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def limit_threads(cpus: int) -> None:
    """Let every numerical library use so many threads."""
    for name in _THREADS:
        os.environ[name] = str(cpus)
    if cpus > 1:
        # The warm parent loaded these libraries with one thread, which is what makes it safe to
        # fork; their environment variables are read no more.
        from threadpoolctl import threadpool_limits

        threadpool_limits(cpus)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(cpus)
        with contextlib.suppress(RuntimeError):  # the user's file has set it
            torch.set_num_interop_threads(cpus)


def cap_gpu_memory(placement: Placement) -> None:
    """Let the frameworks that are imported use no more of a shared GPU than was granted.

    Called after the user's file is imported, and before anything is trained. A file that has used
    its device already is left alone.
    """
    if not placement.gpus or placement.gpu_share >= 1:
        return
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        if tensorflow := sys.modules.get("tensorflow"):
            _cap_tensorflow(tensorflow, placement)
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        if torch := sys.modules.get("torch"):
            for number in range(len(placement.gpus)):
                # Does what it says when, and if, the device is first used.
                torch.cuda._lazy_call(  # noqa: SLF001 - the public way would use the device now
                    lambda number=number: torch.cuda.set_per_process_memory_fraction(
                        placement.gpu_share, number
                    )
                )


def look_for_no_gpu(placement: Placement) -> None:
    """Let TensorFlow find out that an attempt without GPUs has none, and say nothing of that.

    It looks once in a process, and where it finds none, as it is to, calls that an error ("failed
    call to cuInit"). Its other errors, those of the same moment too, are left to be read.
    """
    tensorflow = sys.modules.get("tensorflow")
    if placement.gpus or tensorflow is None:
        return
    with _leaving_out(b"cuInit"), contextlib.suppress(RuntimeError, ValueError, AttributeError):
        tensorflow.config.list_physical_devices("GPU")


@contextlib.contextmanager
def _leaving_out(word: bytes) -> Iterator[None]:
    """What is written to standard error meanwhile comes after it, without lines with this word."""
    sys.stderr.flush()
    with os.fdopen(os.dup(2), "wb") as stderr, os.fdopen(os.memfd_create("stderr"), "rb") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(stderr.fileno(), 2)
            held.seek(0)
            stderr.writelines(line for line in held if word not in line)


def _cap_tensorflow(tensorflow: Any, placement: Placement) -> None:
    if not placement.gpu_memory_bytes:
        return  # at least it takes no more than it needs
    config = tensorflow.config
    limit = config.LogicalDeviceConfiguration(memory_limit=placement.gpu_memory_bytes // 2**20)
    for device in config.list_physical_devices("GPU"):
        config.set_logical_device_configuration(device, [limit])


def _claimed(wanted: Iterable[int], allowed: set[int]) -> Iterator[int]:
    """The cores to use: each wanted one, or another that nobody uses, or else the wanted one."""
    wanted = list(wanted)
    taken = [core for core in wanted if not _claim(core)]
    yield from (core for core in wanted if core not in taken)
    others = iter(sorted(allowed - set(wanted)))
    for core in taken:
        yield next((other for other in others if _claim(other)), core)


def _claim(core: int) -> bool:
    """Hold a core as long as this process lives; False if another attempt of this user does."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # An abstract name: it is no file, and gone with the process.
        claim.bind(f"\0hptune-core-{core}-{os.getuid()}-{devices.node()}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    return True

"""Isolation: an attempt sees its own cores and devices, and no others.

These functions are called in the attempt's process: after the fork, while it has one thread, and
before a framework looks at the machine. Its own child processes (data loaders, say) inherit it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.resources import Placement
from ...training.ports import reserve
from .. import device_locks
from ..gpus import machine
from . import environment, imports_without_gpu


def confine(placement: Placement) -> tuple[int, ...]:
    """Restrict this process to the placement's cores and GPUs, and return the cores.

    A core on which an attempt of another study or worker runs is replaced by a free one, if there
    is one. An attempt that shares a core may run on all cores of its worker: when its neighbours
    compute at once, another core may be idle, and the kernel knows which.
    """
    allowed = os.sched_getaffinity(0)
    if placement.floats_on:
        cores = tuple(sorted(allowed.intersection(placement.floats_on))) or placement.cpus
    else:
        cores = device_locks.lock_cores(placement.cpus, allowed)
    with contextlib.suppress(OSError):  # for example, the worker's control group has changed
        os.sched_setaffinity(0, cores)
    limit_threads(len(placement.cpus))
    machine.confine(placement.gpus, os.environ)
    imports_without_gpu.choose_device(has_gpus=bool(placement.gpus))
    allocate_as_needed()
    if placement.gpu_share < 1:
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{placement.gpu_share:.4f}"
    return cores


def be_alone(placement: Placement) -> socket.socket:
    """Let this process be the only one of its world; return what keeps its port, until closed.

    Raises:
        OSError: There is no free port.
    """
    reserved = reserve()
    os.environ |= environment.of_one_process(
        reserved.getsockname()[1],
        os.environ,
        cpus=len(placement.cpus),
        gpus=len(placement.gpus),
    )
    return reserved


def allocate_as_needed() -> None:
    """Let no framework allocate a whole GPU, which leaves nothing to measure and to others."""
    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"


def be_the_first_to_go() -> None:
    """Let the kernel kill this trial, not the worker or the master, when memory runs out."""
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def schedule_as_batch() -> None:
    """Tell the kernel that this process computes: no thread that it wakes interrupts its waker.

    TensorFlow 2.21 needs it on few cores. At the end of an epoch, tf.data wakes a thread to cancel
    it, and marks the cancellation afterwards (`CancellationManager::StartCancelWithStatus`). If the
    woken thread runs in between, it goes back to sleep, and the epoch lasts until it wakes by
    itself: 0.15, 0.31, 0.63, 1.27 seconds and so on after its start, up to twice as long.
    """
    with contextlib.suppress(OSError):  # forbidden, in some containers
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def limit_threads(cpus: int) -> None:
    """Set the number of threads of every numerical library."""
    os.environ |= environment.threads(cpus)
    if cpus > 1:
        # The fork server loaded these libraries with one thread, so that it may fork. They do not
        # read their environment variables again.
        from threadpoolctl import threadpool_limits

        threadpool_limits(cpus)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(cpus)
        with contextlib.suppress(RuntimeError):  # the user's file has set it
            torch.set_num_interop_threads(cpus)


def cap_gpu_memory(placement: Placement) -> None:
    """Limit the imported frameworks to the granted part of a shared GPU's memory.

    Called after the user's file is imported and before anything is trained. If the file has used
    its device already, nothing is limited.
    """
    if not placement.gpus or placement.gpu_share >= 1:
        return
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        if tensorflow := sys.modules.get("tensorflow"):
            _cap_tensorflow(tensorflow, placement)
    with contextlib.suppress(RuntimeError, ValueError, AttributeError):
        if torch := sys.modules.get("torch"):
            for number in range(len(placement.gpus)):
                # Takes effect when the device is first used.
                torch.cuda._lazy_call(  # noqa: SLF001 - the public function would use it now
                    lambda number=number: torch.cuda.set_per_process_memory_fraction(
                        placement.gpu_share, number
                    )
                )


def look_for_no_gpu(placement: Placement) -> None:
    """Let TensorFlow look for GPUs, without its error message if the attempt has none.

    TensorFlow looks once in a process. If it finds no GPU, it prints an error ("failed call to
    cuInit"). Its other messages are kept.
    """
    tensorflow = sys.modules.get("tensorflow")
    if placement.gpus or tensorflow is None:
        return
    with _leaving_out(b"cuInit"), contextlib.suppress(RuntimeError, ValueError, AttributeError):
        tensorflow.config.list_physical_devices("GPU")


@contextlib.contextmanager
def _leaving_out(word: bytes) -> Iterator[None]:
    """Hold back standard error, and write it afterwards without the lines that have this word."""
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
        return  # it still allocates no more than it needs
    config = tensorflow.config
    limit = config.LogicalDeviceConfiguration(memory_limit=placement.gpu_memory_bytes // 2**20)
    for device in config.list_physical_devices("GPU"):
        config.set_logical_device_configuration(device, [limit])

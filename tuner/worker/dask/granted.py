"""What studies may use of a Dask worker."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ...core.resources import Capacity
from .. import device_locks, devices


def granted_by(worker: Any) -> Capacity:
    """Return what studies may use of a Dask worker that hptune did not start."""
    # A worker of `hptune worker` has what its user granted.
    granted: Capacity | None = getattr(worker, "granted", None)
    if granted is not None:
        return granted
    # Other workers may run on this machine; by Dask's convention its threads are its share.
    has, threads = devices.capacity(), worker.state.nthreads
    share = min(1.0, threads / len(has.cpus))
    gpus = device_locks.lock_gpus(has.gpus, math.ceil(share * len(has.gpus)))
    return replace(
        has,
        cpus=has.cpus[:threads],
        gpus=gpus,
        memory_bytes=int(share * has.memory_bytes),
        memory_taken_bytes=int(share * has.memory_taken_bytes),
    )

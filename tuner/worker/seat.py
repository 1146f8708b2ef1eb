"""A worker without Dask: one place that a joblib backend carries to wherever it runs things."""

from __future__ import annotations

import os
import threading
from multiprocessing.connection import Client

from ..core.messages import Event, WorkerJoined
from ..core.resources import Capacity
from ..model_file import ObjectiveSource
from . import devices
from .orders import AttemptOrder
from .runner import AttemptRunner


def serve(
    address: tuple[str, int],
    key: bytes,
    *,
    cpus: tuple[int, ...],
    source: ObjectiveSource,
    warm_address: str | None,
) -> None:
    """Join the master at `address` and run its attempts until it lets go (or is gone).

    Args:
        address: Where the master listens.
        key: The study's secret.
        cpus: The ids of the cores that this place holds.
        source: The user's code.
        warm_address: A warm parent on this machine that may be used.
    """
    node = devices.node()
    with Client(address, authkey=key) as connection:
        lock = threading.Lock()

        def tell(event: Event) -> None:
            with lock:
                connection.send(event)

        has = devices.capacity()
        name = f"{node}-{os.getpid()}-{threading.get_ident()}"
        tell(WorkerJoined(0.0, name, node, Capacity(cpus, has.gpus, has.memory_bytes)))
        runner = AttemptRunner(source, tell, warm_address=warm_address)
        try:
            while True:
                order = connection.recv()
                if order is None:
                    return
                if isinstance(order, AttemptOrder):
                    runner.start(order)
                else:
                    runner.stop(order)
        except (EOFError, OSError):
            return
        finally:
            runner.close()

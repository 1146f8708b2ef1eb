"""Our part inside a Dask worker: announces what the worker has, and runs attempts in it."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Mapping
from typing import Any

from distributed import WorkerPlugin, get_worker, secede

from ..core.messages import AttemptEnded, Event, WorkerJoined
from ..core.resources import Capacity
from ..core.trial import AttemptId
from ..model_file import ObjectiveSource
from . import devices
from .orders import AttemptOrder, StopOrder
from .runner import AttemptRunner


class Agent(WorkerPlugin):
    """Dask installs one in each worker, those that join later included.

    Args:
        name: The study's name: of the plugin, and of the topic that events go to.
        source: The user's code.
        warm_address: A warm parent on this node that may be used.
        cores: Core ids by the worker's name in Dask, where the master has shared out this
            machine's cores; other workers use what their `--nthreads` grants.
    """

    def __init__(
        self,
        *,
        name: str,
        source: ObjectiveSource,
        warm_address: str | None,
        cores: Mapping[object, tuple[int, ...]],
    ) -> None:
        self.name = name
        self._source = source
        self._warm_address = warm_address
        self._cores = cores

    def setup(self, worker: Any) -> None:
        """Announce the worker; called by Dask when the worker is ready."""
        self._worker = worker
        self._lock = threading.Lock()
        self._ended: dict[AttemptId, threading.Event] = {}
        node = devices.node()
        self._runner = AttemptRunner(
            self._source,
            self._tell,
            warm_address=self._warm_address,
        )
        has = devices.capacity()
        if worker.name in self._cores:
            has = devices.share(has, list(self._cores).index(worker.name), len(self._cores))
            has = Capacity(self._cores[worker.name], has.gpus, has.memory_bytes)
        else:
            has = Capacity(has.cpus[: worker.state.nthreads], has.gpus, has.memory_bytes)
        self.announcement = WorkerJoined(0.0, worker.address, node, has)
        self._tell(self.announcement)

    def teardown(self, worker: Any) -> None:  # noqa: ARG002 - Dask's signature
        """Kill what runs; called by Dask when the worker closes."""
        self._runner.close()
        with self._lock:
            for ended in self._ended.values():
                ended.set()

    def run(self, order: AttemptOrder) -> None:
        """Run an attempt and wait for its end; what happens meanwhile goes to the study's topic."""
        ended = threading.Event()
        with self._lock:
            self._ended[order.attempt] = ended
        self._runner.start(order)
        ended.wait()

    def stop(self, order: StopOrder) -> None:
        """Tell an attempt to stop."""
        self._runner.stop(order.attempt, order.halt)

    def _tell(self, event: Event) -> None:
        # As bytes: Dask forwards plain data between processes only.
        self._worker.log_event(self.name, pickle.dumps(event))
        if isinstance(event, AttemptEnded):
            with self._lock:
                ended = self._ended.pop(event.attempt, None)
            if ended is not None:
                ended.set()


def announcement(name: str, dask_worker: Any = None) -> WorkerJoined:
    """What this worker has to announce."""
    announced: WorkerJoined = dask_worker.plugins[name].announcement
    return announced


def run_attempt(name: str, order: AttemptOrder) -> None:
    """The Dask task of one attempt."""
    agent: Any = get_worker().plugins[name]
    # Our own placement says how many attempts a worker carries, not its number of threads.
    secede()
    agent.run(order)


async def stop_attempt(name: str, order: StopOrder, dask_worker: Any = None) -> None:
    """Tell an attempt on this worker to stop."""
    agent = dask_worker.plugins.get(name)
    if agent is not None:
        # It may have to wait while another attempt is started; Dask's own work may not.
        await asyncio.to_thread(agent.stop, order)

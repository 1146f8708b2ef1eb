"""The workers of one run: the warm parent, and the executor that places trials on workers."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from ..clusters.base import Cluster, ExistingScheduler
from ..config.model_file import OF_EACH_TRIAL, Found
from ..config.settings import StudySettings
from ..core.clock import SystemClock
from ..core.messages import Event
from ..core.resources import Amount, Capacity, Resources
from ..core.snapshot import StudySnapshot
from ..core.space.completion import completed
from ..core.space.space import SearchSpace
from ..core.trial import Attempt, Params
from ..errors import StudyError, UsageError
from ..executors.base import Executor
from ..worker import device_locks, devices
from ..worker.dask.study_access import StudyAccess
from ..worker.forkserver.client import ForkServer
from ..worker.orders import ProbeOrder, SizeOrder
from .local_resources import LocalShape, resolve_shape, trial_resources, worker_cores

_ANYTHING = Capacity(cpus=tuple(range(1_000_000)))
"""Workers may be larger than this machine; a trial that fits none of them waits."""


class Workforce:
    """Starts what a run needs as early as it can, and ends it all on exit; a context manager.

    Attributes:
        name: The run's name on the workers.
        clock: The run's clock.
        notes: What the user should know of where the trials run.

    Args:
        settings: What the user asked for.
        client: A `distributed.Client` whose workers to use; None for those at
            `settings.connect`, or to start workers here.
        cluster: Where the workers come from instead.
        notes: What the user should know of where the trials run.
    """

    def __init__(
        self,
        settings: StudySettings,
        client: Any = None,
        *,
        cluster: Cluster | None = None,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.name = f"hptune-{uuid.uuid4().hex[:12]}"
        self.clock = SystemClock()
        self.notes = notes
        self._settings = settings
        if client is not None and settings.connect:
            raise UsageError("both client and connect are given; give one of them")
        if cluster is None and settings.connect:
            cluster = ExistingScheduler(settings.connect)
        self._client = client
        self._cluster = cluster
        self._machine = devices.capacity()
        self._are_sized = False
        # What can be seen to be wrong is said before seconds are spent on reading the model.
        self.shape({})
        self._stack = contextlib.ExitStack()
        self._executor: Executor | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if self.is_local:
                self._take_devices(stack)
            # First of all, since importing a framework takes seconds; all else goes on meanwhile.
            self._warm = ForkServer(self._settings.source)
            stack.callback(self._warm.close)
            if self._cluster is not None:
                stack.callback(self._cluster.close)
                self._client = self._connected(self._cluster, stack)
            if self.is_local and self._settings.executor == "dask":
                self._executor = self._opened(self._make_dask(), stack)
            self._stack = stack.pop_all()
        return self

    def _take_devices(self, stack: contextlib.ExitStack) -> None:
        """Keep to the GPUs that no other study or worker on this machine has.

        Raises:
            StudyError: There is none left, or too few for a trial.
        """
        has = self._machine
        stack.callback(device_locks.release, has.gpus, has.cpus)
        if not device_locks.lock_core_set(has.cpus):
            beside = "another study or worker of yours uses the same cores of this machine"
            self.notes += (f"{beside}, so both are slower (taskset divides them)",)
        if not has.gpus or self._settings.gpus_per_trial == 0:
            return
        free = device_locks.lock_gpus(has.gpus, len(has.gpus))
        if free == has.gpus:
            return
        there = f"{len(has.gpus)} GPUs" if len(has.gpus) > 1 else "only GPU"
        taken = ", ".join(name for name in has.gpus if name not in free)
        words = f"of this machine's {there}, other studies or workers of yours use {taken}"
        if not free or self._settings.executor == "joblib":
            raise StudyError(
                f"{words}. Wait for them; or name the GPUs of each study by CUDA_VISIBLE_DEVICES; "
                "or have all share them: `hptune scheduler`, `hptune worker`, `--connect`; or "
                "train on cores: --gpus-per-trial 0"
            )
        self._machine = replace(has, gpus=free)
        self.notes += (f"{words}; this one has {', '.join(free)}",)
        try:
            self.shape({})
        except UsageError as error:
            raise StudyError(f"{error.message}; {words}") from error

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it all; may be repeated."""
        try:
            if self._cluster is not None:
                self._cluster.dismiss()
        finally:
            self._stack.close()

    def read_objective(self) -> Found:
        """Run the user's code in a child, and find what it declares.

        Raises:
            ModelFileError: It cannot be used.
        """
        settings = self._settings
        order = ProbeOrder(
            settings.source, settings.working_directory, cache_bytes=settings.cache_bytes
        )
        found = self._warm.probe(order)
        if found.constants.get("RESOURCES") != OF_EACH_TRIAL:
            return found
        if self._settings.executor == "joblib":
            raise UsageError(
                "RESOURCES is a function, but the seats of --executor joblib are all of one size; "
                "give tuner.Resources(…), or leave the executor out"
            )
        # What the defaults ask for is what the study's trials are taken to ask for.
        space = SearchSpace.from_json(found.space)
        self._are_sized = True
        usual = self._said(space, [completed(space, {})])[0]
        return replace(found, constants={**found.constants, "RESOURCES": usual})

    @property
    def are_sized(self) -> bool:
        """Whether the user's code says of each configuration what it asks for."""
        return self._are_sized

    def sizes(self, space: SearchSpace, configurations: Sequence[Params]) -> list[Resources]:
        """What these configurations ask for; may be called from any thread.

        Raises:
            UsageError: The user's RESOURCES failed, or asks for more than this machine has.
        """
        sizes = []
        for params, said in zip(configurations, self._said(space, configurations), strict=True):
            try:
                sizes.append(self._size(said))
            except UsageError as error:
                values = ", ".join(f"{name}={value!r}" for name, value in params.items())
                raise UsageError(f"RESOURCES(hp) with {values}: {error.message}") from error
        return sizes

    def _said(
        self, space: SearchSpace, configurations: Sequence[Params]
    ) -> Sequence[Mapping[str, Any]]:
        source, directory = self._settings.source, self._settings.working_directory
        order = SizeOrder(source, directory, tuple(space.to_json()), tuple(configurations))
        return self._warm.sizes(order)

    @property
    def is_local(self) -> bool:
        """Whether all workers are processes that this run starts on this machine."""
        return self._client is None and self._cluster is None

    @property
    def outlives_master(self) -> bool:
        """Whether the workers are still there when the master is gone."""
        if self._cluster is not None:
            return self._cluster.outlives_master
        return self._client is not None

    def abandon(self) -> None:
        """Let the workers go as far as that takes no time: the master leaves at once."""
        if self._cluster is not None:
            self._cluster.abandon()

    def shape(self, constants: Mapping[str, object]) -> LocalShape:
        """How cores are shared out, and what a trial holds.

        Raises:
            UsageError: This machine can never hold such a trial.
        """
        machine = self._machine if self.is_local else _ANYTHING
        shape = resolve_shape(self._settings, constants, machine, is_certain=self.is_local)
        if self._are_sized:  # their code says of each how many cores and GPUs it gets
            measured = tuple(each for each in shape.measured if each is Amount.MEMORY)
            shape = replace(shape, measured=measured)
        return shape

    def _size(self, said: Mapping[str, Any]) -> Resources:
        if self.is_local:
            return trial_resources(self._settings, said, self._machine)
        return trial_resources(self._settings, said, _ANYTHING, is_certain=False)

    def at_once(self, shape: LocalShape) -> int:
        """How many trials run at once, as far as is known now; 0 where there is no worker yet."""
        if self.is_local:
            return shape.at_once
        cores: Mapping[str, int] = self._client.nthreads()
        return sum(int(count // shape.resources.cpus) for count in cores.values())

    def executor(self, shape: LocalShape, access: StudyAccess | None) -> Executor:
        """The open executor.

        Args:
            shape: How this machine's cores are shared out.
            access: What workers elsewhere must see of the study; None if there are none.
        """
        if self._executor is None:
            make = self._make_joblib(shape) if self.is_local else self._make_dask(access)
            self._executor = self._opened(make, self._stack)
        return self._executor

    def recruit(self, shape: LocalShape, trials: int) -> None:
        """Find workers, where they do not come by themselves.

        Args:
            shape: What a trial holds.
            trials: How many trials could run at once now.

        Raises:
            UsageError: No worker can be had as it was asked for.
        """
        if self._cluster is not None:
            self._cluster.start(shape.resources, trials)

    def least_workers(self) -> int:
        """How many workers there must be for the first trial, as things stand."""
        return 0 if self._cluster is None else self._cluster.least_workers()

    def follow(self, snapshot: StudySnapshot) -> Sequence[str]:
        """Find or let go workers as a study needs them; returns what the user should know of it.

        Raises:
            StudyError: No worker can be had any more.
        """
        if self._cluster is None or self._executor is None:
            return ()
        told = self._cluster.scale_to(_places(snapshot), self._executor.workers)
        for worker in self._cluster.drained():
            self._executor.retire(worker, "its place goes to a trial that fits into no job")
        return told

    def heed(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> None:
        """Take note of what happened, and of the attempts that were changed by it."""
        if self._cluster is not None:
            self._cluster.heed(events, attempts)

    def words(self, shape: LocalShape) -> str:
        """How much runs at once, in words."""
        wanted = shape.resources
        if self._cluster is not None:
            return self._cluster.describe()
        if self._client is not None:
            return f"on the Dask cluster at {self._client.scheduler_info()['address']}"
        count = shape.at_once
        trials = "1 trial" if count == 1 else f"{count} trials"
        there = len(self._machine.cpus)
        shared = f", sharing the {there} cores there are" if count * wanted.cpus > there else ""
        if wanted.gpus is None and self._machine.gpus:
            wanted = replace(wanted, gpus=1)
        begins = " to begin with" if shape.measured else ""
        return (
            f"{trials} at once on this machine{begins}, {wanted} each{shared} "
            f"({self._settings.executor})"
        )

    def _connected(self, cluster: Cluster, stack: contextlib.ExitStack) -> Any:
        from ..executors.dask import connect

        client = connect(cluster.address, name=self.name)
        stack.callback(client.close)
        return client

    def _make_dask(self, access: StudyAccess | None = None) -> Executor:
        from ..executors.dask import DaskExecutor

        return DaskExecutor(
            name=self.name,
            source=self._settings.source,
            clock=self.clock,
            cores=worker_cores(self._settings.workers, self._machine.cpus),
            gpus=self._machine.gpus,
            client=self._client,
            workers_end=self._cluster is not None and self._cluster.ends_workers,
            warm_address=self._warm.address,
            access=access,
        )

    def _make_joblib(self, shape: LocalShape) -> Executor:
        from ..executors.joblib import JoblibExecutor

        return JoblibExecutor(
            source=self._settings.source,
            clock=self.clock,
            cores=shape.cores,
            warm_address=self._warm.address,
        )

    @staticmethod
    def _opened(executor: Executor, stack: contextlib.ExitStack) -> Executor:
        stack.callback(executor.close)
        executor.open()
        return executor


ENDLESS = 1_000_000
"""Trials of a study that goes on until its space is exhausted."""


def _places(snapshot: StudySnapshot) -> dict[Resources, int]:
    """How many trials could run at once, by what they ask for, the running ones included.

    Those that are not suggested yet are taken to ask for the usual.
    """
    if snapshot.stopping:
        return {snapshot.usual: len(snapshot.running)}
    sizes = Counter(snapshot.sizes)
    budget = snapshot.budget_trials
    left = ENDLESS if budget is None else budget - snapshot.ended
    sizes[snapshot.usual] += max(0, left - sizes.total())
    return dict(sizes)

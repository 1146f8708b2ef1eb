"""Workers that are processes on this machine."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..config.plugins import find_executor, made
from ..config.settings import StudySettings
from ..core.resources import Capacity
from ..errors import StudyError
from ..executors.base import Executor, RunContext
from ..registry import shown_name
from ..worker import device_locks, devices
from ..worker.dask.study_access import StudyAccess
from .base import Cluster
from .layout import WorkerLayout, worker_cores


def here(settings: StudySettings, study: Path, *, insecure: bool = False) -> Cluster:
    """Return workers on the nodes of the Slurm job that this process runs in, or on this machine.

    Raises:
        UsageError: Srun has started this command several times.
    """
    note = ""
    if devices.is_slurm_job():
        from .slurm_allocation import AllocationWorkers, allocation_for

        allocation, note = allocation_for(settings)
        if allocation is not None:
            return AllocationWorkers(allocation, study, insecure=insecure)
    ignored = "--insecure changes nothing: the workers are processes of this machine"
    notes = (note, ignored if insecure else "")
    return LocalWorkers(settings, notes=tuple(filter(None, notes)))


class LocalWorkers(Cluster):
    """Processes on this machine, which share out those of its GPUs that no other study uses.

    Args:
        settings: What the user asked for.
        study: The study's directory; not needed here.
        notes: Lines for the user about where the trials run.
    """

    def __init__(
        self, settings: StudySettings, study: Path | None = None, *, notes: Sequence[str] = ()
    ) -> None:
        del study
        self._settings = settings
        self._kind = find_executor(settings)
        self._notes = tuple(notes)
        self._machine = devices.capacity()
        self._stack = contextlib.ExitStack()
        self._executor: Executor | None = None
        self._run: RunContext | None = None

    @property
    def is_local(self) -> bool:
        """Yes."""
        return True

    @property
    def capacity(self) -> Capacity:
        """The cores and memory of this machine, and the GPUs that are free."""
        return self._machine

    @property
    def outlives_master(self) -> bool:
        """No: they end with the master."""
        return False

    @property
    def notes(self) -> tuple[str, ...]:
        """What the run shares with others, in lines for the user."""
        return self._notes

    def open(self, run: RunContext) -> None:
        """Lock the devices; start workers that trials share, while the model file is read.

        Raises:
            StudyError: No GPU is free, too few are free for a trial, or no worker can start.
        """
        self._run = run
        self._lock_devices()
        if self._kind.shares_workers:
            self._start(worker_cores(self._settings.workers, self._machine.cpus))

    def executor(self, layout: WorkerLayout, access: StudyAccess | None) -> Executor:
        """Return the open executor; some start when it is known what a trial holds."""
        del access
        return self._executor or self._start(layout.cores)

    def trials_at_once(self, layout: WorkerLayout) -> int:
        """Return how many trials this machine's cores and GPUs can hold."""
        return layout.at_once

    def text(self, layout: WorkerLayout) -> str:
        """Return how many trials run at once, and what each holds."""
        resources, count = layout.usual, layout.at_once
        trials = "1 trial" if count == 1 else f"{count} trials"
        cores = len(self._machine.cpus)
        shared = f", sharing {cores} cores" if count * resources.cpus > cores else ""
        initially = " to begin with" if layout.measured else ""
        each = f"{resources} each" if resources.processes == 1 else f"each {resources}"
        return (
            f"{trials} at once on this machine{initially}, {each}{shared} "
            f"({shown_name(self._kind.name)})"
        )

    def close(self, *, force: bool = False) -> None:
        """End the workers and release the devices; with `force`, do nothing: both end with us."""
        if not force:
            self._stack.close()

    def _start(self, cores: Sequence[tuple[int, ...]]) -> Executor:
        given = self._settings.own_options(self._kind.what)
        gpus = self._machine.gpus
        executor: Executor = made(self._kind, Executor, self._run, cores, gpus, given=given)
        self._stack.callback(executor.close)
        executor.open()
        self._executor = executor
        return executor

    def _lock_devices(self) -> None:
        """Lock the GPUs that no other study or worker on this machine uses.

        Raises:
            StudyError: None is free, or too few for a trial.
        """
        has = self._machine
        self._stack.callback(device_locks.release, self)
        if not device_locks.lock_core_set(has.cpus, self):
            shared = "another study or worker of this user runs on the same cores"
            self._notes += (f"{shared}, so both are slower; `taskset` can divide the cores",)
        uses_gpus = has.gpus and self._settings.fixed_gpus != 0
        most = len(has.gpus)
        free = device_locks.lock_gpus(has.gpus, most, self) if uses_gpus else has.gpus
        self._notes += tuple(filter(None, [device_locks.others_locks()]))
        if free == has.gpus:
            return
        whole = f"{len(has.gpus)} GPUs" if len(has.gpus) > 1 else "only GPU"
        used = ", ".join(name for name in has.gpus if name not in free)
        words = f"of this machine's {whole}, other studies or workers of yours use {used}"
        if not free or not self._kind.chooses_gpus:
            raise StudyError(
                f"{words}. Wait for them; or name the GPUs of each study by a variable such as "
                "CUDA_VISIBLE_DEVICES; "
                "or have all share them: `hptune scheduler`, `hptune worker`, `--connect`; or "
                "train on cores: --gpus-per-trial 0"
            )
        self._machine = replace(has, gpus=free)
        self._notes += (f"{words}; this one has {', '.join(free)}",)
        # Of a trial's number in the model file, the layout says whether the free ones hold it.
        shares = (self._settings.workers or 1) if self._kind.shares_workers else 1
        wanted, most = self._settings.fixed_gpus or 0, -(-len(free) // shares)
        if wanted > most:
            raise StudyError(
                f"{words}, which leaves {most} for a trial that asks for {wanted:g}; wait for "
                "them, or ask for fewer"
            )

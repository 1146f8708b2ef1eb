"""A run inside a Slurm job of several nodes: it uses them all, by a worker on each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hptune_jobqueue.allocation import Allocation, AllocationCluster, find_allocation, why_not

from ..config.plugins import find_executor
from ..config.settings import StudySettings
from ..core.notice import Notice
from ..core.resources import Resources
from ..errors import UsageError
from ..registry import shown_name
from .jobs import (
    COMMAND,
    JobWorkers,
    jobs_folder,
    jobs_name,
    translated_errors,
    worker_arguments,
)
from .layout import WorkerLayout


def allocation_for(settings: StudySettings) -> tuple[Allocation | None, str]:
    """Return the allocation that a run uses, and a line for the user if it does not use one.

    Raises:
        UsageError: Srun has started this command several times.
    """
    with translated_errors():
        found = find_allocation(os.environ)
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    job = found.job if found else os.environ.get("SLURM_JOB_ID", "")
    why = why_not(os.environ)
    if not find_executor(settings).elsewhere:
        why = f"because of --executor {shown_name(settings.executor)}"
    elif settings.workers:
        why = "because of --workers"
    if found and not why:
        return found, ""
    if not found and nodes == "1":
        return None, ""
    words = "1 node" if nodes == "1" else f"{nodes} nodes"
    return None, f"Slurm job {job} has {words}, but the trials run on this machine only, {why}"


def in_this_job(
    settings: StudySettings, study: Path, *, insecure: bool = False
) -> AllocationWorkers:
    """Return workers on the nodes of the Slurm job that this process runs in.

    Raises:
        UsageError: It runs in none.
    """
    del settings
    with translated_errors():
        found = find_allocation(os.environ)
    if found is None:
        raise UsageError(
            f"--cluster is allocation, but {why_not(os.environ) or 'this is no Slurm job'}; run "
            "hptune in a job (see docs/guide/slurm.md), or leave --cluster out"
        )
    return AllocationWorkers(found, study, insecure=insecure)


class AllocationWorkers(JobWorkers[AllocationCluster]):
    """A worker on each node of an allocation; they end with the master.

    Args:
        allocation: The nodes.
        study: The study's directory, which every node must see.
        insecure: Whether scheduler and workers use no certificates.
    """

    def __init__(self, allocation: Allocation, study: Path, *, insecure: bool = False) -> None:
        super().__init__(study, insecure=insecure)
        self._allocation = allocation
        self._new: list[Notice] = []

    def _make(self, security: Any) -> AllocationCluster:
        return AllocationCluster(
            self._allocation,
            name=jobs_name(self._study),
            directory=jobs_folder(self._study),
            module=COMMAND,
            arguments=worker_arguments(self._study, insecure=self._insecure),
            security=security,
        )

    @property
    def outlives_master(self) -> bool:
        """No: they end with the master."""
        return False

    def text(self, layout: WorkerLayout) -> str:
        """Return where the trials run."""
        del layout
        return f"on {self._allocation.text()}"

    def scale_up(self, resources: Resources, trials: int) -> None:
        """Start the workers."""
        del resources, trials
        with translated_errors():
            self.cluster.scale_up()

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> None:
        """Start workers again that died, and have a line on each of them."""
        del sizes, workers
        with translated_errors(is_running=True):
            self._new += [Notice(line) for line in self.cluster.check()]

    def notices(self) -> Sequence[Notice]:
        """Return lines on workers that died."""
        new, self._new = self._new, []
        return new

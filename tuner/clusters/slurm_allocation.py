"""A run inside a Slurm job of several nodes: it uses them all, by a worker on each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from jobqueue.allocation import Allocation, find_allocation, why_not

from ..config.settings import StudySettings
from ..core.resources import Resources
from .base import Cluster
from .slurm_jobs import COMMAND, as_ours, jobs_name


def allocation_for(settings: StudySettings) -> tuple[Allocation | None, str]:
    """The allocation that a run uses, and a line for the user where it leaves one aside.

    Raises:
        UsageError: Srun has started this command several times.
    """
    if settings.connect or settings.slurm:
        return None, ""
    with as_ours():
        found = find_allocation(os.environ)
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "1")
    job = found.job if found else os.environ.get("SLURM_JOB_ID", "")
    why = why_not(os.environ)
    if settings.executor == "joblib":
        why = "as --executor joblib has it"
    elif settings.workers:
        why = "as --workers has it"
    if found and not why:
        return found, ""
    if not found and nodes == "1":
        return None, ""
    words = "1 node" if nodes == "1" else f"{nodes} nodes"
    return None, f"Slurm job {job} has {words}, but the trials run on this machine only, {why}"


class AllocationWorkers(Cluster):
    """A worker on each node of an allocation.

    Args:
        allocation: The nodes.
        study: The study's directory, which every node must see.

    Raises:
        UsageError: Slurm does not answer.
    """

    def __init__(self, allocation: Allocation, study: Path) -> None:
        from jobqueue.allocation import AllocationCluster

        self._allocation = allocation
        with as_ours():
            self._cluster = AllocationCluster(
                allocation,
                name=jobs_name(study),
                directory=study.absolute() / "jobs",
                module=COMMAND,
            )

    @property
    def address(self) -> str:
        """The address of the scheduler that the workers join."""
        return self._cluster.address

    @property
    def outlives_master(self) -> bool:
        """The workers end with the master."""
        return False

    @property
    def ends_workers(self) -> bool:
        """They were started for this run."""
        return True

    def describe(self) -> str:
        """Where the trials run, in words."""
        return f"on {self._allocation.describe()}"

    def start(self, resources: Resources, trials: int) -> None:
        """Start the workers.

        Raises:
            UsageError: Slurm cannot.
        """
        del resources, trials
        with as_ours():
            self._cluster.start()

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> Sequence[str]:
        """See that there are workers still; says which ones died, and were started again.

        Raises:
            StudyError: There are none any more.
        """
        del sizes, workers
        with as_ours(is_under_way=True):
            return self._cluster.check()

    def dismiss(self) -> None:
        """Have the workers leave; may be repeated."""
        self._cluster.dismiss()

    def abandon(self) -> None:
        """Have the workers end at once."""
        self._cluster.abandon()

    def close(self) -> None:
        """End the workers and the scheduler; may be repeated."""
        self._cluster.close()

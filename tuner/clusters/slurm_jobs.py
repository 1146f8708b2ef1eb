"""A run's workers in Slurm jobs: what a study wants, said in the words of `jobqueue`."""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import queue
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobqueue.config import read_config
from jobqueue.errors import JobQueueError, JobsFailError, SlurmUnavailableError
from jobqueue.sizing import Need

from ..core.messages import AttemptEnded, Event, WorkerLeft
from ..core.resources import Resources
from ..core.trial import Attempt, Cause, Outcome
from ..errors import StudyError, UsageError
from .base import Cluster

DEFAULT_MAX_JOBS = 10

TROUBLES_OF_A_NODE = 3
"""A node is avoided once so many attempts in a row were killed there, or lost with their worker."""

COMMAND = "tuner worker"
"""What a job runs, as `python -m …`."""


class NodeTroubles:
    """Counts, by node, how often attempts were killed there or lost with their worker.

    An attempt that goes well clears its node. What is the trial's own doing (an exception, too
    much memory) and what was done on purpose (a release) blames no node.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def heed(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> list[str]:
        """Take note of what happened at once; returns the nodes that have failed too often.

        Args:
            events: What happened.
            attempts: The attempts that were changed by it.
        """
        killed = {
            event.attempt
            for event in events
            if isinstance(event, AttemptEnded) and event.ending.cause is Cause.KILLED
        }
        lost = {event.worker for event in events if isinstance(event, WorkerLeft)}
        bad = set()
        for attempt in attempts:
            if attempt.outcome in (Outcome.FINISHED, Outcome.PRUNED):
                self._counts.pop(attempt.node, None)
            elif attempt.outcome in (Outcome.LOST, Outcome.ERRORED) and (
                attempt.id in killed or attempt.placement.worker in lost
            ):
                bad.add(attempt.node)
        self._counts.update(bad)
        return sorted(node for node in bad if self._counts[node] >= TROUBLES_OF_A_NODE)


class SlurmWorkers(Cluster):
    """The workers of one study in Slurm jobs.

    Args:
        config: The slurm.toml.
        study: The study's directory, which every node must see.
        max_jobs: How many jobs there may be at once.
        min_workers: How many workers to wait for before the first trial.

    Raises:
        UsageError: There can never be `min_workers`; the slurm.toml is wrong, or Slurm would
            refuse such a job (in its words).
    """

    def __init__(
        self,
        config: Path,
        study: Path,
        *,
        max_jobs: int | None,
        min_workers: int,
    ) -> None:
        from jobqueue.cluster import SlurmCluster

        self._order = _order(config, study, max_jobs)
        if min_workers > self._order.most_workers:
            raise UsageError(
                f"--min-workers is {min_workers}, but there are {self._order.most_workers} workers "
                "at most, one on each node of a job; raise max_jobs, or wait for fewer"
            )
        self._min_workers = min_workers
        self._usual = Need()
        self._troubles = NodeTroubles()
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        with as_ours():
            self._cluster = SlurmCluster(self._order, tell=self._lines.put)

    @property
    def address(self) -> str:
        """The address of the scheduler that the jobs' workers join."""
        return self._cluster.address

    @property
    def outlives_master(self) -> bool:
        """Jobs wait for the next master for a while."""
        return True

    @property
    def ends_workers(self) -> bool:
        """The jobs are cancelled."""
        return True

    def describe(self) -> str:
        """Where the trials run, in words."""
        shapes = self._order.config.shapes
        names = ", ".join(shape.name for shape in shapes)
        if len(shapes) == 1:
            names = f"partition {shapes[0].partition}"
        jobs = "1 Slurm job" if self._order.max_jobs == 1 else f"{self._order.max_jobs} Slurm jobs"
        return f"in at most {jobs} ({names})"

    def start(self, resources: Resources, trials: int) -> None:
        """Submit the first jobs, or take back those that an earlier master left.

        Raises:
            UsageError: Slurm refuses them, in its own words; none is left.
        """
        self._usual = _need(resources)
        with as_ours():
            self._cluster.start(self._usual, trials)

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> Sequence[str]:
        """See that so many trials can run at once, as far as that is possible; returns at once.

        What became of the jobs comes back in lines.

        Args:
            sizes: How many trials run or could begin now, by what they ask for.
            workers: The addresses of the workers that asked to be let in, and why each was
                refused; empty for those that take trials.

        Raises:
            StudyError: No job is left, and none can be had; or they end again without ever having
                been of use.
        """
        needs: Counter[Need] = Counter()
        for resources, count in sizes.items():
            needs[_need(resources)] += count
        usual = needs.pop(self._usual, 0)
        with as_ours(is_under_way=True):
            self._cluster.scale_to(usual, workers, needs)
        lines = []
        with contextlib.suppress(queue.Empty):
            while True:
                lines.append(self._lines.get_nowait())
        return lines

    def drained(self) -> Sequence[str]:
        """The workers of a job that gives way to one for a trial that fits into none there is."""
        return self._cluster.drained()

    def heed(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> None:
        """Avoid nodes that fail attempts again and again."""
        for node in self._troubles.heed(events, attempts):
            why = f"{TROUBLES_OF_A_NODE} attempts in a row were killed or lost there"
            self._cluster.avoid(node, why)

    def least_workers(self) -> int:
        """How many workers to wait for: no more than there is work for."""
        return min(self._min_workers, self._cluster.most_workers())

    def dismiss(self) -> None:
        """Cancel the jobs; may be repeated."""
        self._cluster.dismiss()

    def abandon(self) -> None:
        """Cancel the jobs by one command."""
        self._cluster.abandon()

    def close(self) -> None:
        """Cancel the jobs and end the scheduler; may be repeated."""
        self._cluster.close()


def starter_text(account: str | None) -> str:
    """A slurm.toml for what there is.

    Raises:
        UsageError: There is no Slurm here, or it does not answer.
    """
    from jobqueue.commands import Slurm
    from jobqueue.template import starter

    try:
        partitions = Slurm().partitions()
    except SlurmUnavailableError as error:
        raise UsageError(
            f"{error}. Ask where Slurm answers, such as on a login node; or write "
            "slurm.toml by hand: it needs partition and walltime, each as in "
            'partition = "gpu", walltime = "04:00:00", and account where your site asks for one'
        ) from error
    if not partitions:
        raise UsageError("Slurm shows no partition to you; ask those who run it")
    return starter(partitions, account=account)


def script_texts(config: Path, study: Path, resources: Resources) -> list[str]:
    """The job script of each shape that can hold such a trial; nothing is submitted.

    Raises:
        UsageError: The slurm.toml is wrong, or asks for what there is not.
    """
    from jobqueue.cluster import job_kinds

    with as_ours():
        return [kind.script for kind in job_kinds(_order(config, study, None), _need(resources))]


def check_jobs(config: Path, study: Path, max_jobs: int | None) -> None:
    """Find what is wrong with the jobs; nothing is submitted.

    Raises:
        UsageError: The slurm.toml is wrong, or Slurm would refuse a job (in its words).
    """
    from jobqueue.cluster import check

    with as_ours():
        check(_order(config, study, max_jobs))


def _order(config: Path, study: Path, max_jobs: int | None) -> Any:
    from jobqueue.cluster import Order

    with as_ours():
        read = read_config(config)
    return Order(
        config=read,
        name=jobs_name(study),
        directory=study.absolute() / "jobs",
        module=COMMAND,
        max_jobs=max_jobs or DEFAULT_MAX_JOBS,
    )


def jobs_name(study: Path) -> str:
    """What a study's jobs are called: the same whenever it is resumed, and no other study's.

    >>> jobs_name(Path("/home/me/studies/digits-1"))
    'hptune-digits-1-8a6c0ac5'
    """
    path = study.absolute()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:8]
    return f"hptune-{re.sub(r'[^A-Za-z0-9.-]', '_', path.name)}-{digest}"


def _need(resources: Resources) -> Need:
    return Need(math.ceil(resources.cpus), resources.gpus, resources.memory_bytes)


@contextlib.contextmanager
def as_ours(*, is_under_way: bool = False) -> Iterator[None]:
    """Turn the errors of `jobqueue` into ours.

    Args:
        is_under_way: Whether the study has begun: then it is no mistake in the command.

    Raises:
        UsageError: What was asked for cannot be had.
        StudyError: There are no workers any more; the study can be resumed.
    """
    try:
        yield
    except JobsFailError as error:
        message, _, output = str(error).partition("\n")
        raise StudyError(message, output) from error
    except JobQueueError as error:
        if is_under_way:
            raise StudyError(
                f"{error}. No job is left, so the study has stopped, and nothing is lost: go on "
                "with `hptune resume DIR` (and `--slurm`, for another slurm.toml)"
            ) from error
        raise UsageError(str(error)) from error

"""A Dask scheduler in this process, and Slurm jobs whose workers join it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .commands import Slurm
from .config import ANY_PARTITION, Shape, SlurmConfig
from .errors import (
    ClosedForNowError,
    ConfigError,
    JobQueueError,
    SlurmUnavailableError,
    SubmissionError,
)
from .image import check_image
from .job_kinds import JobKind, JobKinds, size_suffix
from .job_messages import Demand
from .job_reports import remove_jobs
from .jobs import Jobs
from .master import master_shape
from .nodes import Partition
from .scheduler import OwnScheduler
from .script import WorkerCommand, job_of, job_script
from .sizing import Need, WorkerShape, are_nodes_up, beside_master, choose_worker

_NO_SUCH_NODE = "node configuration is not available"
"""Part of Slurm's words for a job that no node can run, or a test while all that can are down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOrder:
    """Contents of a cluster of jobs.

    Attributes:
        config: The slurm.toml.
        name: The prefix of the jobs' names; no other study's jobs have it.
        directory: Holds the jobs' output and the file with the scheduler's address; every node
            must see it.
        module: The Python module that a job runs, as `python -m MODULE FILE … ARGUMENTS`.
        max_jobs: How many jobs there may be at once.
        arguments: Further arguments of the module.
        has_master_job: Whether the master is a Slurm job too, which holds a part of a node.
    """

    config: SlurmConfig
    name: str
    directory: Path
    module: str
    max_jobs: int
    arguments: tuple[str, ...] = ()
    has_master_job: bool = False

    @property
    def max_workers(self) -> int:
        """How many workers there can be at once, by `max_jobs` here and of the shapes."""
        workers, left = 0, self.max_jobs
        for shape in sorted(self.config.shapes, key=lambda each: -each.nodes):
            jobs = left if shape.max_jobs is None else min(left, shape.max_jobs)
            workers, left = workers + jobs * shape.nodes, left - jobs
        return workers


def scheduler_file(directory: Path) -> Path:
    """Return the file with the scheduler's address, which is empty if no worker is needed now.

    A new master replaces it. It is removed when no job is left.

    Args:
        directory: The directory of the order.
    """
    return directory / "scheduler.json"


def job_kinds(order: ClusterOrder, need: Need) -> tuple[JobKind, ...]:
    """Return the kinds of jobs that can hold such a trial, each with its script.

    Args:
        order: What the cluster consists of.
        need: What one trial holds.

    Raises:
        ConfigError: No shape holds a trial, or one asks for something that does not exist.
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    return _kinds_for(order, Slurm().partitions(), need)


def _kinds_for(
    order: ClusterOrder, partitions: Sequence[Partition], need: Need
) -> tuple[JobKind, ...]:
    kinds, problems = [], []
    for shape in order.config.shapes:
        try:
            kinds.append(_job_kind(order, shape, partitions, need))
        except ConfigError as error:
            problems.append(str(error))
    if not kinds:
        raise ConfigError("; ".join(problems))
    return tuple(kinds)


def check(order: ClusterOrder) -> tuple[Partition, ...]:
    """Check what holds for trials of any size; returns the partitions that Slurm has.

    Args:
        order: What the cluster consists of.

    Raises:
        ConfigError: A shape asks for something that does not exist.
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    partitions = Slurm().partitions()
    for shape in order.config.shapes:
        _job_kind(order, shape, partitions, Need())
    return partitions


def check_scripts(order: ClusterOrder, partitions: Sequence[Partition], need: Need) -> None:
    """Have Slurm check the scripts of the jobs for such trials; a refusal tells of no others.

    Args:
        order: What the cluster consists of.
        partitions: The partitions, as `check` has returned them.
        need: What one trial holds.

    Raises:
        ConfigError: No shape holds a trial.
        SubmissionError: Slurm would refuse a job; the message has its words.
        SlurmUnavailableError: Slurm does not answer.
    """
    for kind in _kinds_for(order, partitions, need):
        try:
            Slurm().check(kind.script)
        except ClosedForNowError:
            continue  # the study waits, and says so
        except SubmissionError as error:
            words = f"{order.config.prefix(kind.shape)}{error}"
            if _NO_SUCH_NODE in words:
                if not are_nodes_up(partitions, kind.shape, kind.worker):
                    continue  # sbatch takes the job nevertheless, and Slurm says what it waits for
                words += (
                    f". The job asks for {kind.worker.text()} on each node; if nodes keep a "
                    "part for the system, set cpus and memory in the slurm.toml to less"
                )
            raise SubmissionError(words) from error


def _job_kind(
    order: ClusterOrder, shape: Shape, partitions: Sequence[Partition], need: Need
) -> JobKind:
    wanted = replace(shape, nodes=max(shape.nodes, need.nodes))
    try:
        check_image(wanted)
        worker = _worker(order, shape, partitions, need)
    except ConfigError as error:
        raise ConfigError(f"{order.config.prefix(shape)}{error}") from error
    name = f"{order.name}-{shape.name}{size_suffix(need)}"
    file = scheduler_file(order.directory)
    command = WorkerCommand(address=str(file), module=order.module, arguments=order.arguments)
    script = job_script(
        wanted,
        worker,
        command,
        job_name=name,
        logs=order.directory,
        ends_whole=wanted.nodes == need.nodes,
    )
    return JobKind(wanted, worker, name, script, order.directory, need)


def _worker(
    order: ClusterOrder, shape: Shape, partitions: Sequence[Partition], need: Need
) -> WorkerShape:
    if not order.has_master_job:
        return choose_worker(partitions, shape, need)
    master = master_shape(order.config, partitions)
    wanted = replace(shape, nodes=max(shape.nodes, need.nodes))
    beside = beside_master(partitions, wanted, master)
    try:
        return choose_worker(beside, shape, need)
    except ConfigError as error:
        if beside == tuple(partitions):
            raise
        raise ConfigError(
            f"{error}. The job of the master holds the rest of the only node there; name another "
            "partition under [master] in the slurm.toml, or ask for less"
        ) from error


def _addresses(partitions: str) -> tuple[str, ...]:
    """Return the addresses of the nodes; none if Slurm does not answer."""
    with contextlib.suppress(SlurmUnavailableError):
        return Slurm().node_addresses(partitions=partitions)
    return ()


def may_have_jobs(directory: Path) -> bool:
    """Return whether jobs of this cluster may exist: one was opened, and not all have ended.

    Args:
        directory: The directory of the order.
    """
    return scheduler_file(directory).exists()


def forget_jobs(directory: Path) -> None:
    """Remove what only jobs need; called when none is left."""
    remove_jobs(directory)
    with contextlib.suppress(OSError):
        scheduler_file(directory).unlink(missing_ok=True)


class SlurmCluster:
    """Workers in Slurm jobs, as many as the trials need. `close` it in the end.

    The scheduler listens from the beginning, so that a client can connect. Jobs are submitted
    after `scale_up`, when it is known what a trial needs.

    Attributes:
        jobs: The jobs.
        address: The scheduler's address.

    Args:
        order: What the cluster consists of.
        partitions: The partitions, as `check` has returned them.
        notify: Takes a line for the user; called from a thread.
        security: Dask's object with the scheduler's certificate; None for no encryption.

    Raises:
        JobQueueError: The scheduler cannot listen on the network interface, or its address cannot
            be written.
    """

    def __init__(
        self,
        order: ClusterOrder,
        partitions: Sequence[Partition],
        *,
        notify: Callable[[str], None],
        security: Any = None,
    ) -> None:
        self._partitions = partitions
        self._order = order
        self.jobs = Jobs(
            JobKinds(sized=lambda need: _kinds_for(order, partitions, need)),
            max_jobs=order.max_jobs,
            notify=notify,
            prefix=f"{order.name}-",
            directory=order.directory,
        )
        # Other nodes may be in other networks.
        names = dict.fromkeys(shape.partition for shape in order.config.shapes)
        chosen = "" if ANY_PARTITION in names else ",".join(names)
        self._scheduler = OwnScheduler(
            lambda: _addresses(chosen),
            interface=order.config.interface,
            security=security,
        )
        self.address = self._scheduler.address
        try:
            if may_have_jobs(order.directory):
                self._write_address(self.address)  # before workers of an earlier master leave
        except BaseException:
            self._scheduler.close()
            raise

    def check_need(self, need: Need) -> None:
        """Check that a job can hold a trial, and that Slurm takes it; not if Slurm is silent.

        Raises:
            ConfigError: None can.
            SubmissionError: Slurm would refuse one; the message has its words.
        """
        with contextlib.suppress(SlurmUnavailableError):
            check_scripts(self._order, self._partitions, need)

    def scale_up(self, need: Need, trials: int) -> None:
        """Take over jobs of an earlier master, and submit others; returns before they start.

        Args:
            need: What one trial holds.
            trials: How many trials could run now.

        Raises:
            JobQueueError: Slurm refuses the jobs, and none is left.
        """
        self._order.directory.mkdir(parents=True, exist_ok=True)
        self.jobs.kinds.begin(_kinds_for(self._order, self._partitions, need))
        self._write_address(self.address)
        self.jobs.open(trials)

    def scale_to(self, trials: int, workers: Mapping[str, str], others: Mapping[Need, int]) -> None:
        """Adjust the jobs to the trials, as by `Jobs.set_demand`; returns at once.

        Args:
            trials: How many trials of the usual size run or could begin now.
            workers: The addresses of the workers that asked to join, and why each was refused;
                empty for those that take trials.
            others: How many trials of other sizes run or could begin now.
        """
        useful: dict[str, bool] = {}
        refused: dict[str, str] = {}
        for worker in self._scheduler.workers():
            job, why = job_of(worker.name), workers.get(worker.address)
            if job is None or why is None:
                continue
            if why:
                refused[job] = why
            else:
                # A job is useful if any of its workers is.
                useful[job] = useful.get(job, False) or worker.is_busy
        refused = {job: why for job, why in refused.items() if job not in useful}
        self.jobs.set_demand(Demand(trials, useful, refused, dict(others)))

    def drained(self) -> list[str]:
        """Return the addresses of the workers that must take no more trials."""
        ids = self.jobs.drained()
        workers = self._scheduler.workers() if ids else ()
        return [worker.address for worker in workers if job_of(worker.name) in ids]

    def hand_over(self) -> None:
        """Leave the jobs on which trials run to the next master, and cancel the others.

        A job whose trials end before that leaves by itself. Only `close` may follow.
        """
        if self.jobs.is_open:
            with contextlib.suppress(JobQueueError):
                self._write_address("")
            with contextlib.suppress(SlurmUnavailableError):
                self.jobs.hand_over()
        self._scheduler.remove_files()

    def scale_down(self) -> None:
        """Cancel the jobs; may be repeated."""
        if not self.jobs.is_open:
            return
        with contextlib.suppress(JobQueueError):
            # Workers of jobs that cannot be cancelled leave by themselves.
            self._write_address("", has_ended=True)
        joined = self._scheduler.workers()
        leaving: frozenset[str] = frozenset()
        if not any(each.is_busy for each in joined):
            leaving = frozenset(filter(None, (job_of(each.name) for each in joined)))
            self._scheduler.dismiss()
        self.jobs.close(leaving=leaving)
        if not self.jobs.left:
            forget_jobs(self._order.directory)

    def close(self, *, force: bool = False) -> None:
        """Cancel the jobs and stop the scheduler; may be repeated.

        Args:
            force: Only cancel the jobs, by one quick command each.
        """
        if force:
            self.jobs.close(force=True)
            return
        self.scale_down()
        self._scheduler.close()

    def _write_address(self, address: str, *, has_ended: bool = False) -> None:
        file = scheduler_file(self._order.directory)
        new = file.with_suffix(f".{os.getpid()}")
        try:
            content = {"address": address, "has_ended": has_ended}
            new.write_text(json.dumps(content), encoding="utf-8")
            new.replace(file)
        except OSError as error:
            raise JobQueueError(f"{file} cannot be written: {error.strerror}") from error

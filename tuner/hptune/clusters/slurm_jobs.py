"""A run's workers in Slurm jobs: translates what a study needs into calls of `hptune_jobqueue`."""

from __future__ import annotations

import math
import os
import queue
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hptune_jobqueue.cluster import ClusterOrder, SlurmCluster, check, check_scripts
from hptune_jobqueue.commands import JobState, Slurm
from hptune_jobqueue.config import read_config
from hptune_jobqueue.errors import ConfigError, SlurmUnavailableError, SubmissionError
from hptune_jobqueue.jobs import answer_of
from hptune_jobqueue.master import notice_seconds, restarts
from hptune_jobqueue.nodes import Partition
from hptune_jobqueue.sizing import Need
from hptune_jobqueue.template import refused_partitions, template_text

from ..config.settings import StudySettings
from ..core.notice import Notice, Notify, Subject
from ..core.resources import Resources
from ..errors import UsageError
from ..executors.base import RunContext
from .jobs import (
    COMMAND,
    JobWorkers,
    jobs_folder,
    jobs_name,
    translated_errors,
    worker_arguments,
)
from .layout import WorkerLayout
from .shown_jobs import jobs_line, states_line
from .slurm_master import handover

DEFAULT_MAX_JOBS = 10

_PATIENCE_SECONDS = 600.0
"""How long a run waits at its beginning for a Slurm that does not answer."""


class SlurmWorkers(JobWorkers[SlurmCluster]):
    """The workers of one study in Slurm jobs, which wait for the next master for a while.

    Args:
        study: The study's directory, which every node must see.
        slurm: The path of the slurm.toml.
        max_jobs: How many jobs there may be at once.
        min_workers: How many workers to wait for before the first trial.
        insecure: Whether scheduler and workers use no certificates.

    Raises:
        UsageError: There can never be `min_workers`, or the slurm.toml is wrong.
    """

    def __init__(
        self,
        _settings: StudySettings,
        study: Path,
        *,
        slurm: str,
        max_jobs: int | None = None,
        min_workers: int = 0,
        insecure: bool = False,
    ) -> None:
        super().__init__(study, insecure=insecure)
        self._order = order_of(
            Path(slurm), study, max_jobs, min_workers=min_workers, insecure=insecure
        )
        self._min_workers = min_workers
        self._usual = Need()
        self._partitions: Sequence[Partition] = ()
        self._excluded: frozenset[str] = frozenset()
        self._looked_at = 0.0
        self._states = ""
        self._notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()

    def open(self, run: RunContext) -> None:
        """Start the scheduler and connect to it; no job is submitted yet."""
        # The model file may import modules next to it.
        config = self._order.config.showing(Path(run.source.path).parent)
        self._order = replace(self._order, config=config)
        super().open(run)

    def _make(self, security: Any) -> SlurmCluster:
        return SlurmCluster(
            self._order,
            self._partitions,
            notify=lambda line: self._notices.put(Notice(line)),
            security=security,
        )

    def text(self, layout: WorkerLayout) -> str:
        """Return where the trials run."""
        del layout
        shapes = self._order.config.shapes
        names = ", ".join(shape.name for shape in shapes)
        if len(shapes) == 1:
            names = f"partition {shapes[0].partition}"
        jobs = "1 Slurm job" if self._order.max_jobs == 1 else f"{self._order.max_jobs} Slurm jobs"
        return f"in at most {jobs} ({names})"

    def check_trial(self, resources: Resources) -> None:
        """Check that a job can hold a trial, and that Slurm takes its script."""
        with translated_errors():
            self.cluster.check_need(need_of(resources))

    def scale_up(self, resources: Resources, trials: int) -> None:
        """Submit the first jobs, or take over those that an earlier master left."""
        self._usual = need_of(resources)
        with translated_errors():
            self.cluster.scale_up(self._usual, trials)

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> None:
        """Adjust the jobs to the trials; returns at once.

        Raises:
            StudyError: No job is left, and none can be had; or jobs end again and again without
                ever having been useful.
        """
        needs: Counter[Need] = Counter()
        for resources, count in sizes.items():
            needs[need_of(resources)] += count
        usual = needs.pop(self._usual, 0)
        with translated_errors(is_running=True):
            self.cluster.scale_to(usual, workers, needs)
        if any(sizes.values()):
            self._look_at_states()

    def notices(self) -> Sequence[Notice]:
        """Return lines on what became of the jobs."""
        return [self._notices.get() for _ in range(self._notices.qsize())]

    def _look_at_states(self) -> None:
        """Have a line on the states of all jobs, if Slurm shows others than before."""
        shown = self.cluster.jobs.shown()
        if shown.at == self._looked_at:
            return
        self._looked_at, before = shown.at, self._states
        self._states = states_line(shown.jobs)
        if self._states not in ("", before):
            self._notices.put(Notice(f"Slurm: {self._states}", Subject.JOBS))

    def jobs_text(self, now: float) -> str:
        """Return how many jobs run, how many are pending and why, and why there are no others."""
        shown = self.cluster.jobs.shown()
        return jobs_line(shown.jobs, shown.problems, now=now)

    def longest_wait(self, now: float) -> float:
        """Return for how long the oldest of the pending jobs has waited."""
        jobs = self.cluster.jobs.shown().jobs
        pending = (job.submitted_at for job in jobs if job.state is JobState.PENDING)
        return max((now - at for at in pending if at is not None), default=0.0)

    def prepare(self, notify: Notify) -> None:
        """Look at what Slurm has; wait while it does not answer.

        A master that is a job waits until its time is up: nobody is there to start it again.
        """
        with translated_errors():
            self._partitions = answer_of(
                lambda: check(self._order),
                notify=lambda line: notify(Notice(line)),
                seconds=_PATIENCE_SECONDS if notice_seconds() is None else math.inf,
            )

    def stops_on_signal(
        self, notify: Notify, end: Callable[[str], None]
    ) -> Callable[[int], bool] | None:
        """Return whether the study stops with a master that is a job, or is left to the next."""
        return handover(
            lambda line: notify(Notice(line)), give_back=self.cluster.hand_over, end=end
        )

    @property
    def was_requeued(self) -> bool:
        """Whether this master is a job that Slurm has put back into its queue."""
        return notice_seconds() is not None and restarts(os.environ) > 0

    @property
    def left_behind(self) -> str:
        """Which jobs could not be cancelled, and the command that does it."""
        return "" if self._cluster is None else self._cluster.jobs.left

    def drained(self) -> Mapping[str, str]:
        """Return the workers of the job that makes room for another kind of job."""
        why = "it makes room for a trial that fits into no other job"
        return dict.fromkeys(self.cluster.drained(), why)

    def exclude(self, nodes: Mapping[str, str]) -> None:
        """Submit no more jobs to these nodes, unless Slurm has no others."""
        for node in sorted(nodes.keys() - self._excluded):
            self.cluster.jobs.exclude_node(node, nodes[node])
        self._excluded = frozenset(nodes)

    def take_excluded(self) -> Mapping[str, str]:
        """Return the nodes on which jobs have failed since the last call, and why."""
        return self.cluster.jobs.take_excluded()

    def required_workers(self) -> int:
        """Return how many workers to wait for: no more than there is work for."""
        return min(self._min_workers, self.cluster.jobs.max_workers())


def slurm_toml(account: str | None) -> str:
    """Return the text of a first slurm.toml for this cluster.

    Raises:
        UsageError: There is no Slurm here, or it does not answer.
    """
    slurm = Slurm()
    try:
        partitions = slurm.partitions(with_hidden=False)
        refused = refused_partitions(slurm, partitions, account=account)
    except SlurmUnavailableError as error:
        raise UsageError(
            f"{error}. {error.ADVICE}; or write "
            "slurm.toml by hand: it needs partition and walltime, each as in "
            'partition = "gpu", walltime = "04:00:00", and account where your site asks for one'
        ) from error
    if not partitions:
        raise UsageError("Slurm shows you no partition; ask the administrators of the cluster")
    return template_text(partitions, account=account, refused=refused)


def check_jobs(
    order: ClusterOrder, resources: Resources, notify: Callable[[str], None], *, is_certain: bool
) -> None:
    """Check the jobs beside that of a master, and wait while Slurm does not answer.

    Nothing is submitted.

    Args:
        order: What the cluster consists of.
        resources: What a trial holds.
        notify: Takes a line for the user if Slurm does not answer, or if it would refuse such a
            job and trials may hold something else.
        is_certain: Whether trials hold just this. If not, the model file may say otherwise.

    Raises:
        UsageError: No job holds a trial, or Slurm would refuse a job (in its words).
    """
    order = replace(order, has_master_job=True)
    with translated_errors():
        partitions = answer_of(lambda: check(order), notify=notify, seconds=_PATIENCE_SECONDS)
        try:
            check_scripts(order, partitions, need_of(resources))
        except (ConfigError, SubmissionError) as error:
            if is_certain:
                raise
            notify(
                f"{error}. This is submitted nevertheless: the model file, which is read where "
                "the job runs, may ask for another one"
            )


def order_of(
    config: Path,
    study: Path,
    max_jobs: int | None = None,
    *,
    min_workers: int | None = None,
    insecure: bool = False,
) -> ClusterOrder:
    """Return what the cluster of a study consists of, by the slurm.toml.

    Raises:
        UsageError: The slurm.toml is wrong, or there can never be `min_workers`.
    """
    with translated_errors():
        read = read_config(config)
    order = ClusterOrder(
        config=read.showing(study.absolute()),
        name=jobs_name(study),
        directory=jobs_folder(study),
        module=COMMAND,
        arguments=worker_arguments(study, insecure=insecure),
        max_jobs=max_jobs or DEFAULT_MAX_JOBS,
        has_master_job=notice_seconds() is not None,
    )
    if min_workers is not None and min_workers > order.max_workers:
        raise UsageError(
            f"--min-workers is {min_workers}, but there are {order.max_workers} workers at most, "
            "one on each node of a job; raise max_jobs, or wait for fewer"
        )
    return order


def need_of(resources: Resources) -> Need:
    """Return what a trial holds on each of its nodes."""
    share = resources.of_one_node
    return Need(
        math.ceil(share.cpus),
        share.gpus,
        share.memory_bytes,
        share.processes,
        resources.nodes,
        takes_cores_of_gpus=share.takes_cores_of_gpus and share.gpus != 0,
    )

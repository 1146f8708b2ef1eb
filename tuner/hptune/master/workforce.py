"""The workers of one run: the cluster that they come from, and how many of them are needed."""

from __future__ import annotations

import contextlib
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from ..clusters.base import Cluster
from ..clusters.layout import UNREAD, WorkerLayout, checked_trial, resolve_layout
from ..config.asked import Asked
from ..config.parallel_trials import Carrier, carrier_of
from ..config.resolved import Resolved
from ..core.clock import SystemClock
from ..core.goals import ENERGY, NO_ENERGY
from ..core.messages import NodeExcluded
from ..core.resources import Resources
from ..core.snapshot import StudySnapshot
from ..core.space.space import SearchSpace
from ..core.trial import Suggestion
from ..errors import UsageError
from ..executors.base import Executor, RunContext
from ..user_code.source import SourceKind
from ..user_code.source_checks import check_source
from ..worker.forkserver.client import ForkServer
from ..worker.monitoring.energy import can_be_read
from .code_reader import CodeReader

UNLIMITED_TRIALS = 1_000_000
"""The number of trials to run at once where a study ends only when its space is exhausted."""


def check_workers(asked: Asked, cluster: Cluster) -> None:
    """Check the trial and the user's file, before the seconds that reading the model takes.

    Args:
        asked: What the user asked for.
        cluster: Where the workers come from; it is not open yet.

    Raises:
        UsageError: The cluster can never hold a trial, or the file cannot be used.
    """
    settings = asked.settings
    checked_trial(asked, {"RESOURCES": UNREAD}, cluster.capacity, is_certain=cluster.is_local)
    if settings.source.kind is SourceKind.FILE:
        check_source(
            Path(settings.source.path), has_entry=bool(settings.entry), python=settings.python
        )


class Workforce:
    """Owner of a run's cluster and fork server; a context manager that closes both.

    Attributes:
        name: The run's name on the workers.
        clock: The run's clock.
        cluster: Where the workers come from.
        code: Reads what the user's code declares.

    Args:
        asked: What the user asked for.
        cluster: Where the workers come from; it is not open yet.

    Raises:
        UsageError: As for `check_workers`.
    """

    def __init__(self, asked: Asked, cluster: Cluster) -> None:
        self.name = f"hptune-{uuid.uuid4().hex[:12]}"
        self.clock = SystemClock()
        self.cluster = cluster
        self._asked = asked
        self._stack = contextlib.ExitStack()
        check_workers(asked, cluster)

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            # Started first: it imports a framework, which takes seconds, while the cluster opens.
            source = self._asked.settings.source
            # The next study of a script or notebook need not wait for the import again.
            fork_server = ForkServer.resting(source) or ForkServer(source)
            stack.callback(fork_server.rest)
            self.code = CodeReader(self._asked, fork_server, self.cluster)
            stack.callback(self.cluster.close)
            self.cluster.open(
                RunContext(
                    name=self.name,
                    source=source,
                    clock=self.clock,
                    fork_server=fork_server.address,
                )
            )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, *, force: bool = False) -> None:
        """Stop the workers and close the cluster. May be repeated.

        Args:
            force: Only stop workers if that takes no time: the process ends now.
        """
        if force:
            self.cluster.close(force=True)
            return
        try:
            self.cluster.scale_down()
        finally:
            self._stack.close()

    def layout(self, constants: Mapping[str, object]) -> WorkerLayout:
        """Return how cores are divided and what a trial holds, by the model file's constants.

        Raises:
            UsageError: This machine's workers can never hold such a trial.
        """
        cluster = self.cluster
        layout = resolve_layout(
            self._asked, constants, cluster.capacity, is_certain=cluster.is_local
        )
        if self.code.is_sized:  # the user's code states the cores and GPUs of each trial
            layout = layout.without_sharing()
        return replace(layout, measured=()) if self.code.runs_elsewhere else layout

    def placed(self, resolved: Resolved) -> tuple[WorkerLayout, Carrier]:
        """Return how cores are divided, and what trains on several devices.

        Trials share no device if their times are compared.

        Raises:
            UsageError: The cluster can never hold such a trial, or nothing can train it.
        """
        layout = self.layout(self.code.usual(resolved.code))
        self.cluster.check_trial(layout.resources)
        if "seconds_per_epoch" in resolved.goals.metrics:
            layout = layout.without_sharing()
        if ENERGY in resolved.goals.metrics:
            cluster = self.cluster
            if cluster.is_local and not can_be_read(cluster.capacity.gpus):
                raise UsageError(f"{NO_ENERGY}. Make one readable, or leave {ENERGY} out")
        return layout, carrier_of(resolved.code, layout.resources, resolved.asked.settings)

    def at_once(self, layout: WorkerLayout) -> int:
        """Return how many trials can run at once."""
        return self.cluster.trials_at_once(layout)

    def sized(self, space: SearchSpace, suggestions: Sequence[Suggestion]) -> list[Suggestion]:
        """Return suggestions with the resources that they ask for, by the user's code."""
        return self.code.sized(space, suggestions)

    def scale_to(self, snapshot: StudySnapshot, executor: Executor) -> None:
        """Start or stop workers as the study needs them.

        Raises:
            StudyError: No worker can be had any more.
        """
        self.cluster.exclude(snapshot.unfit_nodes)
        self.cluster.scale_to(runnable(snapshot), executor.workers)
        for worker, why in self.cluster.drained().items():
            executor.drain(worker, why)

    def take_excluded(self) -> Sequence[NodeExcluded]:
        """Return that the cluster has excluded nodes since the last call."""
        found = self.cluster.take_excluded().items()
        return [NodeExcluded(self.clock.now(), node, why) for node, why in found]


def runnable(snapshot: StudySnapshot) -> dict[Resources, int]:
    """Return how many trials run or could begin now, by what they ask for.

    Those that are not suggested yet count as asking for the usual. In a paused study only those
    that run count, so that its Slurm jobs end with them. The first trials of `--first` count as one
    of each size, so that they share a job.
    """
    sizes = Counter(snapshot.sizes)
    if snapshot.is_first and not (snapshot.stopping or snapshot.paused_by):
        return dict.fromkeys(sizes or [snapshot.usual], 1)
    if snapshot.stopping or snapshot.paused_by:
        return dict(sizes)
    budget = snapshot.budget_trials
    left = UNLIMITED_TRIALS if budget is None else budget - snapshot.ended
    sizes[snapshot.usual] += max(0, left - sizes.total())
    return dict(sizes)

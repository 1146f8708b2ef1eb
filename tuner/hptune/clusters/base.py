"""The contract of a cluster: where a run's workers come from."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..core.notice import Notice, Notify
from ..core.resources import Capacity, Resources
from ..executors.base import Executor, RunContext
from ..security.certificates import Identity
from ..worker.dask.study_access import StudyAccess
from .layout import WorkerLayout, fitting

UNLIMITED = Capacity(cpus=tuple(range(100_000)))
"""Workers elsewhere may be larger than this machine; a trial that fits none of them waits.

Each process of a run builds it: ten times as many cores take 40 ms and 40 MB.
"""


class Cluster(abc.ABC):
    """Source of a run's workers, and of the executor that uses them.

    The workforce is the only caller, from one thread; `close(force=True)` may also be called from
    a signal handler. The defaults are those of workers that come and go by themselves. The calls
    of one run::

        prepare(notify)              waits for what brings the workers
        open(run)                    connects to the workers, or starts them
        check_trial(resources)       when the user's code is read, before the study is made
        executor(layout, access)     an open executor; the same one at every call
        exclude({})                  before any worker is sought, and whenever others are
        scale_up(resources, 40)      begins to find workers for 40 trials
        scale_to({resources: 12}, …) whenever the number of trials has changed
        notices()                    after each scale_to, and at the end, also after an error
        scale_down()                 stops the workers that it found
        close()                      closes the executor and all else
    """

    @property
    def is_local(self) -> bool:
        """Whether all workers are processes that this run starts on this machine."""
        return False

    @property
    def capacity(self) -> Capacity:
        """The most that a worker can have.

        A local cluster must return what this machine has (`worker.devices.capacity`): its cores
        are divided among the workers.
        """
        return UNLIMITED

    @property
    def outlives_master(self) -> bool:
        """Whether the workers remain when the master is gone."""
        return True

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines for the user about where the trials run."""
        return ()

    def prepare(self, notify: Notify) -> None:
        """Check that workers can be had, and wait for what brings them.

        Called once, before `open`; may take any time.

        Args:
            notify: Takes a line for the user.

        Raises:
            UsageError: What was asked for does not exist here, or did not answer in time.
        """
        del notify

    @abc.abstractmethod
    def open(self, run: RunContext) -> None:
        """Connect to the workers or start them. Called once.

        Raises:
            StudyError: There are no workers, or none that this run can use.
            UsageError: What was asked for does not exist here.
        """

    def check_trial(self, resources: Resources) -> None:  # noqa: B027 - few know their workers
        """Check that a worker can hold a trial; called when the cluster is open.

        Raises:
            UsageError: None can.
        """

    @abc.abstractmethod
    def executor(self, layout: WorkerLayout, access: StudyAccess | None) -> Executor:
        """Return the open executor, the same one at every call.

        Args:
            layout: How this machine's cores are divided.
            access: How workers elsewhere find the study; None if there are none.
        """

    @abc.abstractmethod
    def trials_at_once(self, layout: WorkerLayout) -> int:
        """Return how many trials can run at once now; 0 if there is no worker yet."""

    @abc.abstractmethod
    def text(self, layout: WorkerLayout) -> str:
        """Return where the trials run, such as "on the workers at tls://node1:8786"."""

    def scale_up(self, resources: Resources, trials: int) -> None:
        """Begin to find workers; returns before they have joined.

        Args:
            resources: What a trial holds.
            trials: How many trials could run at once.

        Raises:
            UsageError: No worker can be had as it was asked for.
        """
        del resources, trials

    def scale_to(self, sizes: Mapping[Resources, int], workers: Mapping[str, str]) -> None:
        """Adjust the number of workers to the trials; returns at once.

        Args:
            sizes: How many trials run or could begin now, by what they ask for.
            workers: The addresses of the workers that asked to join, and why each was refused;
                empty for those that take trials.

        Raises:
            StudyError: No worker can be had any more.
        """
        del sizes, workers

    def notices(self) -> Sequence[Notice]:
        """Return lines for the user since the last call."""
        return ()

    def jobs_text(self, now: float) -> str:
        """Return which jobs bring the workers, and what they wait for; empty if there are none.

        Args:
            now: The time in seconds since the epoch.
        """
        del now
        return ""

    def longest_wait(self, now: float) -> float:
        """Return for how many seconds the job that waits longest has waited; 0.0 if none does.

        Args:
            now: The time in seconds since the epoch.
        """
        del now
        return 0.0

    def drained(self) -> Mapping[str, str]:
        """Return the addresses of the workers that must take no more attempts, and why."""
        return {}

    def exclude(self, nodes: Mapping[str, str]) -> None:
        """Have no more workers on these nodes.

        Args:
            nodes: Why each is excluded.
        """
        del nodes

    def take_excluded(self) -> Mapping[str, str]:
        """Return the nodes that it has excluded by itself since the last call, and why."""
        return {}

    def required_workers(self) -> int:
        """Return how many workers there must be before the first trial begins."""
        return 0

    def scale_down(self) -> None:  # noqa: B027 - workers of others are left alone
        """Stop the workers that it found, before anything that may take long or hang."""

    def stops_on_signal(
        self, notify: Notify, end: Callable[[str], None]
    ) -> Callable[[int], bool] | None:
        """Return what decides whether a signal stops the study; None if each signal does.

        The returned function takes the signal's number, and is called again and again until it
        returns True, or has called `end`.

        Args:
            notify: Takes a line for the user.
            end: Ends the process, and leaves all that runs to the next master. Takes what starts
                that, in words, or an empty text if it is unknown whether anything does.
        """
        del notify, end
        return None

    @property
    def was_requeued(self) -> bool:
        """Whether the batch system has started this master again, without its user."""
        return False

    @property
    def left_behind(self) -> str:
        """What could not be stopped, and how the user stops it; empty if nothing is left."""
        return ""

    @abc.abstractmethod
    def close(self, *, force: bool = False) -> None:
        """Close the executor, and end what was started. May be repeated.

        Args:
            force: Only stop workers if that takes no time: the process ends now.
        """


class SchedulerCluster(Cluster):
    """Cluster whose workers join a Dask scheduler, which the run connects to.

    Args:
        ends_workers: Whether the workers have stopped before the executor is closed, so that
            nothing need be removed from them.
    """

    def __init__(self, *, ends_workers: bool = False) -> None:
        self._ends_workers = ends_workers
        self._stack = contextlib.ExitStack()
        self._client: Any = None
        self._run: RunContext | None = None
        self._executor: Executor | None = None

    @property
    @abc.abstractmethod
    def address(self) -> str:
        """The scheduler's address, such as `tls://node1:8786`."""

    def identity(self) -> Identity | None:
        """Return the certificate that the run shows to the scheduler; None for no encryption.

        Raises:
            UsageError: The scheduler has no certificates, which the user has not accepted.
            StudyError: There is no certificate.
        """
        return None

    def open(self, run: RunContext) -> None:
        """Connect to the scheduler.

        Raises:
            UsageError: It has no certificates, which the user has not accepted.
            StudyError: It does not answer, or refuses the run's certificate.
        """
        from ..executors.dask_client import connect

        self.use(run, connect(self.address, name=run.name, identity=self.identity()))
        self._stack.callback(self._client.close)

    def use(self, run: RunContext, client: Any) -> None:
        """Use a client that is connected already."""
        self._run, self._client = run, client

    def executor(self, layout: WorkerLayout, access: StudyAccess | None) -> Executor:
        """Return the open executor; it runs attempts on all workers that join."""
        del layout
        if self._executor is None:
            from ..executors.dask import DaskExecutor

            assert self._run is not None
            executor = DaskExecutor(
                self._run, client=self._client, workers_end=self._ends_workers, access=access
            )
            self._stack.callback(executor.close)
            executor.open()
            self._executor = executor
        return self._executor

    def trials_at_once(self, layout: WorkerLayout) -> int:
        """Return how many trials the workers' cores can hold; their GPUs are not known yet."""
        from ..executors.dask_client import lost_scheduler

        with lost_scheduler():
            cores: Mapping[str, int] = self._client.nthreads()
        has = (Capacity(tuple(range(count))) for count in cores.values())
        return fitting(replace(layout.resources, gpus=0), has)

    def close(self, *, force: bool = False) -> None:
        """Close the executor and the connection; workers of others are left alone."""
        if not force:
            self._stack.close()

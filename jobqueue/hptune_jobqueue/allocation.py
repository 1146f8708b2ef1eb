"""Workers on the nodes of the Slurm job that this process runs in, restarted when they die."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .commands import Slurm, outside_environment
from .errors import ConfigError, JobsFailError, SlurmUnavailableError
from .job_records import FAILURES_IN_A_ROW
from .job_reports import read_output
from .nodes import node_names
from .scheduler import OwnScheduler
from .script import ENDS_AT, GANG, WHOLE_NODE

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""The first of the step numbers that mean a batch script or the shell of salloc, not a step."""

_SCHEDULER_TIMEOUT_SECONDS = 60
"""How long a worker waits for the scheduler; no other one follows it."""

_SHUTDOWN_SECONDS = 25.0
"""How long workers may take to leave in good order."""

_STABLE_SECONDS = 600.0
"""A worker that has run for this long clears the failures of its node."""

_RESTART_DELAY_SECONDS = 10.0
"""Delay per earlier failure of the node before a worker is started again."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """The Slurm job that this process runs in, or that salloc was granted for its shell.

    Attributes:
        job: The job's id.
        nodes: How many nodes it has.
        node_list: Their names, in Slurm's short form.
        memory: The memory limit of each node, as a shell word; empty for no limit.
    """

    job: str
    nodes: int
    node_list: str = ""
    memory: str = ""

    def text(self) -> str:
        """Return text for the user.

        >>> Allocation("7", 3).text()
        'the 3 nodes of Slurm job 7'
        """
        return f"the {'node' if self.nodes == 1 else f'{self.nodes} nodes'} of Slurm job {self.job}"


def find_allocation(environment: Mapping[str, str]) -> Allocation | None:
    """Return the allocation that has more nodes than this machine; None if there is none.

    That is an allocation of several nodes, or of any number of nodes if this process runs on none
    of them, as in the shell that salloc starts on a login node.

    >>> find_allocation({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURMD_NODENAME": "a"})
    Allocation(job='7', nodes=2, node_list='', memory='')

    Raises:
        ConfigError: Srun has started this command several times.
    """
    job = environment.get("SLURM_JOB_ID", "")
    nodes = _number(environment, "SLURM_JOB_NUM_NODES") or _number(environment, "SLURM_NNODES")
    if not job or not nodes:
        return None
    if (times := _number(environment, "SLURM_STEP_NUM_TASKS")) > 1:
        raise ConfigError(
            f"srun starts this command {times} times, but a study has one master; start it "
            "without srun: it starts a worker on each node by itself"
        )
    is_here = bool(environment.get("SLURMD_NODENAME"))
    if is_here and (nodes == 1 or is_step(environment)):
        return None
    return Allocation(job, nodes, environment.get("SLURM_JOB_NODELIST", ""), _memory(environment))


def is_step(environment: Mapping[str, str]) -> bool:
    """Return whether srun started this process, and so chose which of the job's nodes it uses."""
    return 0 <= _number(environment, "SLURM_STEP_ID", absent=-1) < _FIRST_SPECIAL_STEP


def why_not(environment: Mapping[str, str]) -> str:
    """Return why this process cannot use the other nodes of its job; empty if it can."""
    if is_step(environment):
        return "because srun started it; without srun it uses all of them"
    if shutil.which("srun", path=environment.get("PATH")) is None:
        return "because srun is not found here"
    return ""


def _memory(environment: Mapping[str, str]) -> str:
    if of_node := _number(environment, "SLURM_MEM_PER_NODE"):
        return f"{of_node}MiB"
    if of_core := _number(environment, "SLURM_MEM_PER_CPU"):
        return f"$((SLURM_CPUS_ON_NODE * {of_core}))MiB"
    if of_gpu := _number(environment, "SLURM_MEM_PER_GPU"):
        return f"$((SLURM_GPUS_ON_NODE * {of_gpu}))MiB"
    return ""


def _number(environment: Mapping[str, str], name: str, *, absent: int = 0) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else absent


@dataclass(slots=True)
class _NodeWorker:
    """The worker of one node.

    Attributes:
        node: The node's name.
        log: The file that its workers write.
        gpus: The GPUs that the job has there; 0 if unknown.
        srun: The process of its step; None while there is none.
        since: When the step was started, or when it will be, by the monotonic clock.
        failures: How many workers in a row have died.
        status: The line for the user on the last worker that ended.
        is_over: Whether no other worker is started.
    """

    node: str
    log: Path
    gpus: int = 0
    srun: subprocess.Popen[bytes] | None = None
    since: float = 0.0
    failures: int = 0
    status: str = ""
    is_over: bool = False

    def on_exit(self, failure: str) -> str:
        """Decide whether to start another worker after one has ended; returns a line on it.

        Args:
            failure: What went wrong; empty if the worker left as requested.
        """
        now = time.monotonic()
        self.failures = 1 if now - self.since > _STABLE_SECONDS else self.failures + 1
        self.srun, self.since = None, now + _RESTART_DELAY_SECONDS * (self.failures - 1)
        self.is_over = not failure or self.failures >= FAILURES_IN_A_ROW
        self.status = f"the worker on {self.node} has ended"
        if not failure:
            self.status += ", as requested"
        elif self.is_over:
            before = self.failures - 1
            self.status += f" ({failure}), and {before} before it: no other is started"
        else:
            self.status += f" ({failure}); another is started there"
        return self.status


class AllocationCluster:
    """Workers on all nodes of an allocation, which end with this process. `close` it in the end.

    A worker that dies is replaced, unless several in a row died on its node. A worker that Slurm
    asked to leave before the job's end is not replaced.

    Args:
        allocation: The nodes.
        name: The name of the steps; no other step of the job has it.
        directory: Holds the workers' output; every node must see it.
        module: The Python module that runs on each node, as `python -m MODULE ADDRESS …`.
        arguments: Further arguments of the module.
        security: Dask's object with the scheduler's certificate; None for no encryption.

    Attributes:
        address: The scheduler's address.

    Raises:
        JobQueueError: The scheduler cannot listen, or Slurm does not answer.
    """

    def __init__(
        self,
        allocation: Allocation,
        *,
        name: str,
        directory: Path,
        module: str,
        arguments: Sequence[str] = (),
        security: Any = None,
    ) -> None:
        self._allocation = allocation
        self._name = name
        self._directory = directory
        self._module = module
        self._arguments = arguments
        self._slurm = Slurm()
        self._scheduler = OwnScheduler(
            lambda: self._slurm.node_addresses(nodes=allocation.node_list), security=security
        )
        self.address = self._scheduler.address
        self._workers: list[_NodeWorker] = []
        self._environment: dict[str, str] = {}

    def scale_up(self) -> None:
        """Start the workers; returns before they have joined.

        Raises:
            SlurmUnavailableError: Srun cannot be started, or Slurm does not answer.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        job = self._allocation.job
        self._environment = {**outside_environment(), "SLURM_JOB_ID": job}
        if self._allocation.nodes > 1:
            self._environment[GANG] = job
        if end := self._ends_at():
            self._environment[ENDS_AT] = end
        # A worker is one task, and gets those of one if the job has GPUs per task. If it has them
        # by `--gpus`, a step on one of its nodes must say how many.
        gpus: Mapping[str, int] = {}
        with contextlib.suppress(SlurmUnavailableError):
            gpus = self._slurm.gpus_of(job)
        for node in node_names(self._allocation.node_list):
            log = self._directory / f"allocation-{job}-{node}.log"
            worker = _NodeWorker(node, log, gpus.get(node, 0))
            self._workers.append(worker)
            try:
                self._launch(worker)
            except OSError as error:
                raise SlurmUnavailableError(f"srun cannot be started: {error}") from error

    def check(self) -> list[str]:
        """Replace the workers that died; returns lines for the user.

        Raises:
            JobsFailError: All have ended, and none is replaced. The message has the output of
                the last.
        """
        lines = []
        for worker in self._workers:
            if worker.srun is not None and (status := worker.srun.poll()) is not None:
                failure = f"srun's status is {status}" if status else ""
                lines.append(worker.on_exit(failure))
            if worker.srun is None and not worker.is_over and time.monotonic() >= worker.since:
                try:
                    self._launch(worker)
                except OSError as error:  # the other workers are not affected
                    lines.append(worker.on_exit(f"srun cannot be started: {error}"))
        if self._workers and all(worker.is_over for worker in self._workers):
            last = max(self._workers, key=lambda each: each.since)
            raise JobsFailError(
                f"no worker is left on {self._allocation.text()}: "
                f"{last.status}. It wrote into {last.log}:\n{read_output(last.log).tail}"
            )
        return lines

    def scale_down(self) -> None:
        """Have the workers leave in good order, and wait for them; may be repeated."""
        workers, deadline = self._workers, time.monotonic() + _SHUTDOWN_SECONDS
        with contextlib.suppress(SlurmUnavailableError):
            # Signals go to the steps: srun itself would kill the workers on one.
            nodes = self._slurm.signal_steps(self._allocation.job, self._name) if workers else ()
            # Workers on other nodes are not waited for: these may have failed.
            _wait([worker for worker in workers if worker.node in nodes], deadline)
        self._terminate()
        _wait(workers, time.monotonic() + _SHUTDOWN_SECONDS)
        self._workers = []

    def close(self, *, force: bool = False) -> None:
        """Stop the workers and the scheduler; may be repeated.

        Args:
            force: Only have the workers killed; returns at once.
        """
        if force:
            self._terminate()
            return
        self.scale_down()
        self._scheduler.close()

    def _terminate(self) -> None:
        for worker in self._workers:
            if worker.srun is not None and worker.srun.poll() is None:
                worker.srun.terminate()

    def _ends_at(self) -> str:
        with contextlib.suppress(SlurmUnavailableError):
            return self._slurm.end_of(self._allocation.job)
        # From release 23.02 on; as it was when the job began.
        return os.environ.get("SLURM_JOB_END_TIME", "")

    def _launch(self, worker: _NodeWorker) -> None:
        with worker.log.open("ab") as log:
            worker.srun = subprocess.Popen(
                self._command(worker),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # In its own session, srun does not receive Ctrl-C, which would end the workers.
                start_new_session=True,
            )
        worker.since = time.monotonic()

    def _command(self, worker: _NodeWorker) -> list[str]:
        python = [sys.executable, "-P", "-m", *self._module.split(), self.address]
        python += ["--death-timeout", str(_SCHEDULER_TIMEOUT_SECONDS), *self._arguments]
        # Nodes may differ, and so does the number of cores granted on each.
        words = f'exec {shlex.join(python)} --nthreads "$SLURM_CPUS_ON_NODE"'
        if self._allocation.memory:
            words += f' --memory-limit "{self._allocation.memory}"'
        return [
            "srun",
            f"--jobid={self._allocation.job}",
            f"--job-name={self._name}",
            f"--nodelist={worker.node}",
            "--nodes=1",
            "--ntasks=1",
            *([f"--gpus={worker.gpus}"] if worker.gpus else []),
            *WHOLE_NODE,
            "sh",
            "-c",
            words,
        ]


def _wait(workers: Sequence[_NodeWorker], deadline: float) -> None:
    """Wait until the workers have ended, at most until a time by the monotonic clock."""
    for worker in workers:
        if worker.srun is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.srun.wait(max(0.0, deadline - time.monotonic()))

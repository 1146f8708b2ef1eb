"""The nodes of the Slurm job that we run in: a worker on each, started by one `srun`."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import ConfigError, JobsFailError, SlurmUnavailableError
from .fates import tail_of
from .meeting import MeetingPoint
from .queue import Slurm, outside_environment
from .script import ENDS_AT, GANG, ON_ALL_NODES

_FIRST_SPECIAL_STEP = 0xFFFFFFF0
"""From here on, Slurm's numbers mean the batch script and the shell of an salloc, not a step."""

_NO_SCHEDULER_SECONDS = 60
"""So long a worker waits for the scheduler: for nobody comes back after it."""

_LEAVE_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """The Slurm job that this process runs in, or that salloc has got for its shell.

    Attributes:
        job: The job's id.
        nodes: How many nodes it has.
        node_list: Which, in Slurm's short form.
        memory: What each node's memory is limited to, as a shell word; empty for no limit.
    """

    job: str
    nodes: int
    node_list: str = ""
    memory: str = ""

    def describe(self) -> str:
        """It in words.

        >>> Allocation("7", 3).describe()
        'the 3 nodes of Slurm job 7'
        """
        return f"the {'node' if self.nodes == 1 else f'{self.nodes} nodes'} of Slurm job {self.job}"


def find_allocation(environment: Mapping[str, str]) -> Allocation | None:
    """The allocation that has more to give than this machine; None if there is none.

    That is one of several nodes; or of any, where this process is on none of them, as in the shell
    that salloc starts on a login node.

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
            f"srun starts this command {times} times, but a study has "
            "one master; start it once, without srun: it starts a worker on each node by itself"
        )
    is_here = bool(environment.get("SLURMD_NODENAME"))
    if is_here and (nodes == 1 or is_step(environment)):
        return None
    return Allocation(job, nodes, environment.get("SLURM_JOB_NODELIST", ""), _memory(environment))


def is_step(environment: Mapping[str, str]) -> bool:
    """Whether srun has started this process, and so said which of the job's nodes it is to use."""
    return 0 <= _number(environment, "SLURM_STEP_ID", absent=-1) < _FIRST_SPECIAL_STEP


def why_not(environment: Mapping[str, str]) -> str:
    """Why this process cannot use other nodes of its job than its own; empty if it can."""
    if is_step(environment):
        return "since srun started it there; without srun it uses them all"
    if shutil.which("srun", path=environment.get("PATH")) is None:
        return "since srun is not found here"
    return ""


def _memory(environment: Mapping[str, str]) -> str:
    if of_node := _number(environment, "SLURM_MEM_PER_NODE"):
        return f"{of_node}MiB"
    if of_core := _number(environment, "SLURM_MEM_PER_CPU"):
        return f"$((SLURM_CPUS_ON_NODE * {of_core}))MiB"
    return ""


def _number(environment: Mapping[str, str], name: str, *, absent: int = 0) -> int:
    text = environment.get(name, "")
    return int(text) if text.isdecimal() else absent


class AllocationCluster:
    """Workers on all nodes of an allocation, which end with us. `close` it in the end.

    Args:
        allocation: The nodes.
        name: What the step is called; no other one of the job is.
        directory: For the workers' output; every node must see it.
        module: What runs on each node, as `python -m MODULE ADDRESS …`.

    Raises:
        JobQueueError: The scheduler cannot listen, or Slurm does not answer.
    """

    def __init__(self, allocation: Allocation, *, name: str, directory: Path, module: str) -> None:
        self._allocation = allocation
        self._name = name
        self._directory = directory
        self._module = module
        self._slurm = Slurm()
        self._meeting = MeetingPoint(lambda: self._slurm.node_addresses(allocation.node_list))
        self._srun: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """The scheduler's address."""
        return self._meeting.address

    def start(self) -> None:
        """Start the workers; returns before they have joined.

        Raises:
            SlurmUnavailableError: Srun cannot be started.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        environment = outside_environment()
        environment["SLURM_JOB_ID"] = self._allocation.job
        if self._allocation.nodes > 1:
            environment[GANG] = self._allocation.job
        if end := self._ends_at():
            environment[ENDS_AT] = end
        with self._log.open("ab") as log:
            try:
                self._srun = subprocess.Popen(
                    self._command(),
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # Ctrl-C is ours; srun would make the workers leave at once.
                    start_new_session=True,
                )
            except OSError as error:
                raise SlurmUnavailableError(
                    f"srun cannot be started: {error.strerror or error}"
                ) from error

    def check(self) -> None:
        """See that there are workers still.

        Raises:
            JobsFailError: All have ended; the message has what they wrote.
        """
        if self._srun is not None and (status := self._srun.poll()) is not None:
            raise JobsFailError(
                f"the workers on {self._allocation.describe()} have ended (srun's status is "
                f"{status}). They wrote into {self._log}:\n{tail_of(self._log)}"
            )

    def dismiss(self) -> None:
        """Have the workers leave in good order, and wait for that; may be repeated."""
        if self._srun is None:
            return
        with contextlib.suppress(SlurmUnavailableError):
            # A signal to srun itself would have it kill them.
            self._slurm.signal_step(self._allocation.job, self._name)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._srun.wait(_LEAVE_SECONDS)
        self.abandon()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._srun.wait(_LEAVE_SECONDS)
        self._srun = None

    def abandon(self) -> None:
        """Have the workers killed; returns at once."""
        if self._srun is not None and self._srun.poll() is None:
            self._srun.terminate()

    def close(self) -> None:
        """End the workers and the scheduler; may be repeated."""
        self.dismiss()
        self._meeting.close()

    @property
    def _log(self) -> Path:
        return self._directory / f"allocation-{self._allocation.job}.log"

    def _ends_at(self) -> str:
        if end := os.environ.get("SLURM_JOB_END_TIME"):  # from release 23.02 on
            return end
        with contextlib.suppress(SlurmUnavailableError):
            return self._slurm.end_of(self._allocation.job)
        return ""

    def _command(self) -> list[str]:
        nodes = self._allocation.nodes
        worker = [sys.executable, "-m", *self._module.split(), self.address]
        worker += ["--death-timeout", str(_NO_SCHEDULER_SECONDS)]
        # Where nodes differ, so do the cores that are granted there.
        words = f'exec {shlex.join(worker)} --nthreads "$SLURM_CPUS_ON_NODE"'
        if self._allocation.memory:
            words += f' --memory-limit "{self._allocation.memory}"'
        return [
            "srun",
            f"--jobid={self._allocation.job}",
            f"--job-name={self._name}",
            f"--nodes={nodes}",
            f"--ntasks={nodes}",
            "--ntasks-per-node=1",
            *ON_ALL_NODES,
            "sh",
            "-c",
            words,
        ]

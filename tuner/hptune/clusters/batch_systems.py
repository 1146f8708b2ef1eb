"""The batch systems that dask-jobqueue knows besides Slurm: their jobs, and how they are asked."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import importlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hptune_jobqueue.errors import ConfigError, SubmissionError

from ..core.resources import Resources
from ..worker.devices import notice_seconds

_COMMAND_SECONDS = 30.0
"""How long a command of a batch system may take."""

_DEATH_TIMEOUT_SECONDS = 60
"""How long a worker waits for the scheduler; that of a dead master is not replaced."""

_WORKER_BYTES = 2**30
"""The memory of a job that the worker keeps for itself, but no more than half."""


@dataclass(frozen=True, slots=True)
class BatchSystem:
    """A batch system, and the words in which it is asked.

    Attributes:
        name: What users call it, and dask-jobqueue in its configuration.
        title: Its name in messages.
        job_class: dask-jobqueue's class of its jobs.
        listing: The command that lists the user's jobs, each in a line that begins with its id.
        why: The command that tells of a job what it waits for; the id follows.
        walltime_rest: What completes a walltime to hours, minutes and seconds.
        directives: Further options of its jobs.
        no_jobs: Words of the command's error if there are no jobs; empty if that is no error.
    """

    name: str
    title: str
    job_class: str
    listing: tuple[str, ...]
    why: str
    walltime_rest: str = ""
    directives: tuple[str, ...] = ()
    no_jobs: str = ""

    def jobs(self) -> dict[str, str] | None:
        """Return the lines on the user's jobs by their ids; None if it does not answer."""
        user = getpass.getuser()
        done = _done([user if each == "USER" else each for each in self.listing])
        if done is None or (
            done.returncode and not (self.no_jobs and self.no_jobs in done.stderr + done.stdout)
        ):
            return None
        found = (re.match(r"\s*(\d+)", line) for line in done.stdout.splitlines())
        return {each[1]: " ".join(each.string.split()) for each in found if each}

    def seconds(self, walltime: str) -> float:
        """Return a walltime of its jobs in seconds.

        >>> SYSTEMS["sge"].seconds("01:30:00"), SYSTEMS["sge"].seconds("90")
        (5400.0, 90.0)
        >>> SYSTEMS["lsf"].seconds("01:30"), SYSTEMS["oar"].seconds("2")
        (5400.0, 7200.0)

        Raises:
            ValueError: It is none.
        """
        if walltime.count(":") > 2:
            raise ValueError(walltime)
        parts = f"{walltime}{self.walltime_rest}".split(":")[:3]
        return sum(float(part) * 60.0**i for i, part in enumerate(reversed(parts)))


SYSTEMS: Mapping[str, BatchSystem] = {
    each.name: each
    for each in (
        BatchSystem(
            "sge",
            "Grid Engine",
            "dask_jobqueue.sge:SGEJob",
            ("qstat", "-u", "USER"),
            "qstat -j",
            directives=("-notify",),  # else a job that is deleted gets no signal before SIGKILL
        ),
        BatchSystem("pbs", "PBS", "dask_jobqueue.pbs:PBSJob", ("qstat", "-u", "USER"), "qstat -f"),
        BatchSystem(
            "lsf",
            "LSF",
            "dask_jobqueue.lsf:LSFJob",
            ("bjobs", "-w"),
            "bjobs -l",
            walltime_rest=":0",
            no_jobs="No unfinished job found",
        ),
        BatchSystem(
            "htcondor",
            "HTCondor",
            "dask_jobqueue.htcondor:HTCondorJob",
            ("condor_q", "-nobatch", "USER"),
            "condor_q -better-analyze",
        ),
        BatchSystem(
            "oar",
            "OAR",
            "dask_jobqueue.oar:OARJob",
            ("oarstat", "-u", "USER"),
            "oarstat -fj",
            walltime_rest=":0:0",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class JobSize:
    """What a job has.

    Attributes:
        cores: Its cores.
        memory_bytes: Its memory for trials.
        gpus: Its GPUs.
        walltime_seconds: How long it may run; None if that is unknown.
    """

    cores: int
    memory_bytes: int
    gpus: int
    walltime_seconds: float | None

    def holds(self, trial: Resources) -> int:
        """Return how many trials a job holds.

        >>> JobSize(8, 16 * 2**30, 2, None).holds(Resources(cpus=2, memory_bytes=6 * 2**30))
        2
        """
        gpus = min(self.gpus, trial.processes) if trial.gpus is None else trial.gpus
        counts = [self.cores / trial.cpus]
        counts += [self.gpus / gpus] if gpus else []
        counts += [self.memory_bytes / trial.memory_bytes] if trial.memory_bytes else []
        return int(min(counts))

    def __str__(self) -> str:
        return Resources(self.cores, self.gpus, self.memory_bytes).amounts


class JobMaker:
    """Makes the jobs of a study, as dask-jobqueue's configuration describes them.

    Attributes:
        system: The batch system.
        size: What each job has.
        interface: The network interface for the scheduler; None for all.
        cancel_command: The command that cancels jobs; their ids follow.

    Args:
        system: The batch system.
        name: The jobs' name.
        logs: The folder of their output.
        arguments: Further arguments of `hptune worker`.

    Raises:
        ConfigError: The system's commands are missing here, or the configuration is wrong.
    """

    def __init__(
        self, system: BatchSystem, *, name: str, logs: Path, arguments: Sequence[str]
    ) -> None:
        self.system = system
        self.logs = logs
        self._name = name
        self._class = _job_class(system.job_class)
        command = shlex.split(self._class.submit_command)[0]
        if shutil.which(command) is None:
            raise ConfigError(
                f"{command} is not found; run this where {system.title} answers, such as on a "
                "login node"
            )
        gpus = self._gpus()
        self._arguments = (*arguments, "--gpus", str(gpus))
        job = self.job("", "none")
        self.cancel_command: str = job.cancel_command.strip()
        half, rest = job.worker_memory // 2, job.worker_memory - _WORKER_BYTES
        self.size = JobSize(job.worker_cores, max(half, rest), gpus, self._walltime())
        self._arguments += ("--memory", str(self.size.memory_bytes))
        options: Mapping[str, Any] = self._configured("scheduler-options") or {}
        self.interface: str | None = options.get("interface") or self._configured("interface")

    @property
    def section(self) -> str:
        """Where the configuration of the jobs is, for messages."""
        return f"jobqueue.{self.system.name} in dask's configuration"

    def job(self, address: str, worker: str) -> Any:
        """Return a job of dask-jobqueue's, which is not submitted.

        Args:
            address: The address of the scheduler that its worker joins.
            worker: The worker's name in Dask.

        Raises:
            ConfigError: The configuration is wrong.
        """
        python = shlex.quote(self._configured("python") or sys.executable)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on old names of keys
                return self._class(
                    scheduler=shlex.quote(address),
                    name=worker,
                    job_name=self._name,
                    processes=1,
                    log_directory=str(self.logs),
                    **self._directives(),
                    job_script_prologue=[*self._exports(), *self._prologue()],
                    python=f"exec {python} -P",
                    worker_command="hptune worker",
                    worker_extra_args=[shlex.quote(each) for each in self._arguments],
                    death_timeout=self._configured("death-timeout") or _DEATH_TIMEOUT_SECONDS,
                )
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{self.section} describes no job: {' '.join(str(error).split())}. It needs cores "
                "and memory; see docs/guide/batch-systems.md"
            ) from error

    def submit(self, address: str, worker: str) -> str:
        """Submit a job; returns its id.

        Raises:
            SubmissionError: The system refuses it, or does not answer.
        """
        job, title = self.job(address, worker), self.system.title
        try:
            asyncio.run(asyncio.wait_for(job.start(), _COMMAND_SECONDS))
        except TimeoutError as error:
            raise SubmissionError(
                f"{title} has not taken a job in {_COMMAND_SECONDS:g} s"
            ) from error
        except (RuntimeError, ValueError, OSError) as error:
            raise SubmissionError(f"{title} takes no job: {_words(str(error))}") from error
        return str(job.job_id)

    def cancel(self, ids: Sequence[str], *, waits: bool = True) -> bool:
        """Cancel jobs; returns whether the system answers. `BatchSystem.jobs` tells what is left.

        Args:
            ids: Their ids.
            waits: Whether to wait for the answer.
        """
        command = [*shlex.split(self.cancel_command), *ids]
        if ids and waits:
            return _done(command) is not None
        if ids:
            with contextlib.suppress(OSError):
                subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True)  # fmt: skip
        return True

    def output(self, job_id: str) -> Path:
        """Return the file that a job has written; the folder if there is none."""
        number = job_id.partition(".")[0]
        found = [each for each in self.logs.glob(f"*{number}*") if each.stat().st_size]
        return max(found, key=lambda each: each.stat().st_mtime, default=self.logs)

    def _prologue(self) -> list[str]:
        return self._configured("job-script-prologue") or self._configured("env-extra") or []

    def _directives(self) -> dict[str, list[str]]:
        if not self.system.directives:
            return {}
        given = self._configured("job-extra-directives") or self._configured("job-extra") or []
        return {"job_extra_directives": [*given, *self.system.directives]}

    def _exports(self) -> list[str]:
        seconds = self._walltime()
        if seconds is None:
            return []
        return [
            # HTCondor would replace a `$(`.
            f"export HPTUNE_WORKER_ENDS_AT=`date -d +{seconds:.0f}sec +%s`",
            f"export HPTUNE_WORKER_NOTICE={notice_seconds(seconds):.0f}",
        ]

    def _walltime(self) -> float | None:
        text = self._configured("walltime")
        if not text:
            return None
        try:
            return self.system.seconds(str(text))
        except ValueError:
            raise ConfigError(
                f"walltime of {self.section} is {text!r}; allowed is a time as "
                f"{self.system.title} writes it, between quotes, such as '04:00:00'"
            ) from None

    def _gpus(self) -> int:
        value = self._configured("gpus") or 0
        if type(value) is not int or value < 0:
            raise ConfigError(
                f"gpus of {self.section} is {value!r}; allowed are whole numbers from 0 on"
            )
        return value

    def _configured(self, key: str) -> Any:
        import dask

        return dask.config.get(f"jobqueue.{self.system.name}.{key}", None)


def _job_class(target: str) -> Any:
    """Return a class of jobs whose commands Ctrl-C in the terminal does not reach."""
    before = signal.getsignal(signal.SIGINT)
    module, _, name = target.partition(":")
    found: Any = getattr(importlib.import_module(module), name)
    # The import installs a handler on which Ctrl-C ends the process with exit status 0.
    if signal.getsignal(signal.SIGINT) is not before:
        signal.signal(signal.SIGINT, before)

    async def call(command: Sequence[str], **options: Any) -> str:
        out: str = await found._call(command, start_new_session=True, **options)  # noqa: SLF001 - dask-jobqueue's one way to run a command
        return out

    return type(name, (found,), {"_call": staticmethod(call)})


def _done(command: Sequence[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a command; returns None if it cannot be run or does not end."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
            start_new_session=True,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _words(error: str) -> str:
    r"""Return what a command wrote, from an error of dask-jobqueue's.

    >>> _words("Exit code: 1\nstdout:\n\nstderr:\nno such queue\nExiting.\n\n")
    'no such queue Exiting.'
    """
    out, _, err = error.partition("stdout:\n")[2].partition("\nstderr:\n")
    return " ".join((err or out).split()) or " ".join(error.split())

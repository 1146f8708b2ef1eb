"""The batch systems that dask-jobqueue knows besides Slurm: their jobs, and how they are asked."""

from __future__ import annotations

import asyncio
import getpass
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hptune_jobqueue.errors import ConfigError, SubmissionError
from hptune_jobqueue.script import job_class
from hptune_jobqueue.sizing import for_trials

from ..core.resources import Capacity, Resources
from ..worker.devices import notice_seconds

_COMMAND_SECONDS = 30.0
"""How long a command of a batch system may take."""

_DEATH_TIMEOUT_SECONDS = 60
"""How long a worker waits for the scheduler; that of a dead master is not replaced."""


@dataclass(frozen=True, slots=True)
class BatchSystem:
    """A batch system, and the words in which it is asked.

    Attributes:
        name: What users call it, and dask-jobqueue in its configuration.
        title: Its name in messages.
        job_class: dask-jobqueue's class of its jobs, as module:Name.
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
        # Without -notify, a job that is deleted gets no signal before SIGKILL.
        BatchSystem("sge", "Grid Engine", "sge:SGEJob", ("qstat", "-u", "USER"), "qstat -j",
                    directives=("-notify",)),
        BatchSystem("pbs", "PBS", "pbs:PBSJob", ("qstat", "-u", "USER"), "qstat -f"),
        BatchSystem("lsf", "LSF", "lsf:LSFJob", ("bjobs", "-w"), "bjobs -l",
                    walltime_rest=":0", no_jobs="No unfinished job found"),
        BatchSystem("htcondor", "HTCondor", "htcondor:HTCondorJob",
                    ("condor_q", "-nobatch", "USER"), "condor_q -better-analyze"),
        BatchSystem("oar", "OAR", "oar:OARJob", ("oarstat", "-u", "USER"), "oarstat -fj",
                    walltime_rest=":0:0"),
    )
}  # fmt: skip


class JobMaker:
    """Makes the jobs of a study, as dask-jobqueue's configuration describes them.

    Attributes:
        system: The batch system.
        has: What each job has for trials.
        size: The same in words.
        section: Where the configuration of the jobs is, for messages.
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
        self.section = f"jobqueue.{system.name} in dask's configuration"
        self._name = name
        self._class = _job_class(system.job_class)
        self._arguments = tuple(arguments)
        job = self.job("", "none")
        self.cancel_command: str = job.cancel_command.strip()
        command = shlex.split(job.submit_command)[0]
        if shutil.which(command) is None:
            raise ConfigError(
                f"{command} is not found; run this where {system.title} answers, such as on a "
                "login node"
            )
        memory = for_trials(job.worker_memory)
        gpus = tuple(map(str, range(self._gpus())))
        self.has = Capacity(tuple(range(job.worker_cores)), gpus, memory)
        self.size = Resources(job.worker_cores, len(gpus), memory).amounts
        self._arguments += ("--memory", str(memory))
        options: Mapping[str, Any] = self._configured("scheduler-options") or {}
        self.interface: str | None = options.get("interface") or self._configured("interface")

    def job(self, address: str, worker: str) -> Any:
        """Return a job of dask-jobqueue's, which is not submitted.

        Args:
            address: The address of the scheduler that its worker joins.
            worker: The worker's name in Dask.

        Raises:
            ConfigError: The configuration is wrong.
        """
        from dask.utils import parse_timedelta

        python = shlex.quote(self._configured("python") or sys.executable)
        prologue = self._configured("job-script-prologue", "env-extra") or []
        more = {}
        if self.system.directives:
            given = self._configured("job-extra-directives", "job-extra") or []
            more["job_extra_directives"] = [*given, *self.system.directives]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # on old names of keys
                return self._class(
                    scheduler=shlex.quote(address),
                    name=worker,
                    job_name=self._name,
                    processes=1,
                    log_directory=str(self.logs),
                    job_script_prologue=[*self._end_of_job(), *prologue],
                    python=f"exec {python} -P",
                    worker_command="hptune worker",
                    worker_extra_args=[*map(shlex.quote, self._arguments), "--gpus", self._gpus()],
                    death_timeout=parse_timedelta(
                        self._configured("death-timeout") or _DEATH_TIMEOUT_SECONDS
                    ),
                    **more,
                )
        except (TypeError, ValueError, KeyError) as error:
            raise ConfigError(
                f"{self.section} describes no job: {' '.join(str(error).split())}; see "
                "docs/guide/batch-systems.md"
            ) from error

    def submit(self, address: str, worker: str) -> str:
        """Submit a job; returns its id.

        Raises:
            SubmissionError: The system refuses it, or does not answer.
        """
        job = self.job(address, worker)

        async def start() -> None:
            await asyncio.wait_for(job.start(), _COMMAND_SECONDS)

        try:
            with ThreadPoolExecutor(1) as pool:  # a notebook's thread has a loop of its own
                pool.submit(lambda: asyncio.run(start())).result()
        except (TimeoutError, RuntimeError, ValueError, OSError) as error:
            why = _words(str(error)) or f"no answer in {_COMMAND_SECONDS:g} s"
            raise SubmissionError(f"{self.system.title} takes no job: {why}") from error
        return str(job.job_id)

    def cancel(self, ids: Sequence[str], *, seconds: float = _COMMAND_SECONDS) -> bool:
        """Cancel jobs; returns whether the system answers in this time.

        What is left then, `BatchSystem.jobs` tells.
        """
        command = [*shlex.split(self.cancel_command), *ids]
        return not ids or _done(command, seconds=seconds) is not None

    def output(self, job_id: str) -> Path:
        """Return the file that a job has written; the folder if there is none."""
        pattern = re.compile(rf"(^|\.[oe]|-){job_id.partition('.')[0]}(\.|$)")
        found = [path for path in self.logs.iterdir() if pattern.search(path.name)]
        return max(found, key=lambda each: each.stat().st_size, default=self.logs)

    def _end_of_job(self) -> list[str]:
        """Return the lines of a job that tell its worker when it ends.

        Raises:
            ValueError: The walltime is none.
        """
        if not (text := self._configured("walltime")):
            return []
        try:
            seconds = self.system.seconds(str(text))
        except ValueError:
            raise ValueError(
                f"its walltime is {text!r}; allowed is a time as {self.system.title} writes it, "
                "between quotes, such as '04:00:00'"
            ) from None
        return [
            # HTCondor would replace a `$(`.
            f"export HPTUNE_WORKER_ENDS_AT=`date -d +{seconds:.0f}sec +%s`",
            f"export HPTUNE_WORKER_NOTICE={notice_seconds(seconds):.0f}",
        ]

    def _gpus(self) -> int:
        return int(self._configured("gpus") or 0)

    def _configured(self, *keys: str) -> Any:
        """Return the value of a key, or of one of its former names in dask-jobqueue."""
        import dask

        found = (dask.config.get(f"jobqueue.{self.system.name}.{key}", None) for key in keys)
        return next((each for each in found if each), None)


def _job_class(target: str) -> Any:
    """Return a class of jobs whose commands Ctrl-C in the terminal does not reach."""
    found = job_class(target)

    async def call(command: Sequence[str], **options: Any) -> str:
        out: str = await found._call(command, start_new_session=True, **options)  # noqa: SLF001 - dask-jobqueue's one way to run a command
        return out

    return type(found.__name__, (found,), {"_call": staticmethod(call)})


def _done(
    command: Sequence[str], *, seconds: float = _COMMAND_SECONDS
) -> subprocess.CompletedProcess[str] | None:
    """Run a command; returns None if it cannot be run or does not end."""
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            errors="replace",
            timeout=seconds,
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

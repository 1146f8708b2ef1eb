"""The job of a study's master: small, and requeued for as long as the study lasts."""

from __future__ import annotations

import contextlib
import enum
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import ANSWER_SECONDS, Job, JobState, Slurm
from .config import ANY_PARTITION, Shape, SlurmConfig, check_notice
from .errors import ConfigError, SlurmUnavailableError, SubmissionError
from .nodes import Partition
from .script import MASTER_NOTICE, master_script
from .sizing import allowing, chosen_partitions
from .values import clock

_DEFAULT_MEMORY_BYTES = 2 * 10**9
_LONGEST_SECONDS = 7 * 86400
"""The walltime in a partition without limit; Slurm then requeues the job."""

_PATIENCE_SECONDS = 10.0
"""How long one command may take before the job's end; then it is tried again."""

_PAUSE_SECONDS = 1.0

_WHAT = "the master's job ([master] in the slurm.toml)"


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterOrder:
    """The job of a master, to be submitted.

    Attributes:
        config: The slurm.toml.
        study: The prefix of the names of the study's jobs.
        directory: Holds the script and the output; the master's node must see it.
        lines: The shell lines that it runs; those that its Python runs begin with `python`.
    """

    config: SlurmConfig
    study: str
    directory: Path
    lines: Sequence[str]

    @property
    def script_file(self) -> Path:
        """The script that was submitted last; it exists if one ever was."""
        return self.directory / "master.sbatch"

    @property
    def log_file(self) -> Path:
        """The file that the master writes."""
        return self.directory / "master.log"


_ENDING = ".master"
"""End of the name of a master's job, which so lacks the prefix of the workers' names."""


def master_name(study: str) -> str:
    """Return the name of a master's job."""
    return f"{study}{_ENDING}"


def master_shape(config: SlurmConfig, partitions: Sequence[Partition]) -> Shape:
    """Return what the master's job asks for: by slurm.toml, else little, for as long as possible.

    Raises:
        ConfigError: There is no such partition, it allows no such walltime, or the notice is
            longer than the walltime.
    """
    given = dict(config.master)
    default = next((each.name for each in partitions if each.is_default and each.is_up), None)
    of_workers = config.shapes[0].partition
    free = of_workers if of_workers == ANY_PARTITION else default or of_workers
    names = given.setdefault("partition", free)
    try:
        chosen = chosen_partitions(names, partitions)
    except ConfigError as error:
        raise ConfigError(f"[master]: {error}") from error
    limits = [partition.limit_seconds or _LONGEST_SECONDS for partition in chosen]
    longest = max(limits) if names == ANY_PARTITION else min(limits)
    given.setdefault("walltime", clock(longest))
    given.setdefault("memory", _DEFAULT_MEMORY_BYTES)
    shape = Shape(name="master", **given)
    try:
        allowing(shape, partitions)
        check_notice(shape)
    except ConfigError as error:
        raise ConfigError(f"[master]: {error}") from error
    return shape


def planned_master_script(order: MasterOrder) -> str:
    """Return the script of the job; nothing is submitted.

    Raises:
        ConfigError: As `master_shape`.
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    return _script(order, master_shape(order.config, Slurm().partitions()))


def _script(order: MasterOrder, shape: Shape) -> str:
    name = master_name(order.study)
    return master_script(shape, order.lines, job_name=name, log=order.log_file)


def submit_master(order: MasterOrder) -> Job:
    """Submit the job; returns it when Slurm has accepted it.

    Raises:
        ConfigError: The partition does not exist, or the study has a master's job already.
        SubmissionError: Slurm refuses it; the message has Slurm's words.
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    slurm = Slurm()
    shape = master_shape(order.config, slurm.partitions())
    if there := find_masters().get(order.study):
        raise ConfigError(f"the study has a master already: Slurm job {there.id}")
    script = _script(order, shape)
    slurm.check(script, what=_WHAT)
    order.directory.mkdir(parents=True, exist_ok=True)
    order.script_file.write_text(script, encoding="utf-8")
    job_id = slurm.submit_one(script, what=_WHAT)
    name = master_name(order.study)
    return Job(job_id, name, JobState.PENDING, "PENDING", partition=shape.partition)


def find_masters(timeout_seconds: float = ANSWER_SECONDS) -> Mapping[str, Job]:
    """Return the masters' jobs that wait or run, by the prefix of the names of the study's jobs.

    Args:
        timeout_seconds: How long Slurm may take to answer.

    Raises:
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    return {
        job.name.removesuffix(_ENDING): job
        for job in Slurm().jobs(None, timeout_seconds=timeout_seconds)
        if job.name.endswith(_ENDING) and job.state is not JobState.OVER
    }


def cancel_study(study: str, *, is_master: bool = False) -> int:
    """Cancel all jobs of a study, the master first; returns how many there were.

    Args:
        study: The prefix of the names of the study's jobs.
        is_master: Whether this process is the master, whose job is left alone.

    Raises:
        SlurmUnavailableError: Slurm does not answer.
    """
    slurm = Slurm()
    name, prefix = master_name(study), f"{study}-"
    jobs = [job for job in slurm.jobs(None) if job.state is not JobState.OVER]
    ours = [
        job for job in jobs if job.name.startswith(prefix) or (job.name == name and not is_master)
    ]
    ours.sort(key=lambda each: each.name != name)
    slurm.cancel([each.id for each in ours])
    return len(ours)


class RequeueOutcome(enum.Enum):
    """Slurm's answer about this process's job after a signal."""

    REQUEUED = enum.auto()
    ENDS = enum.auto()
    UNKNOWN = enum.auto()


def notice_seconds() -> float | None:
    """Return how long before its end the master's job is signalled; None if there is no job."""
    given = os.environ.get(MASTER_NOTICE)
    return None if given is None else float(given)


def restarts(environment: Mapping[str, str]) -> int:
    """Return how often Slurm has put the job of an environment back into its queue."""
    return int(environment.get("SLURM_RESTART_COUNT") or 0)


class RequeueInquiry:
    """Finds out from Slurm, in a thread, whether this process's job is requeued.

    Created when a signal has come. Slurm signals a job that is requeued or cancelled, or whose
    time is nearly over. In the last case the job still runs, and is requeued now.

    Attributes:
        answer: Slurm's answer; UNKNOWN if there was none in time; None until then.

    Args:
        seconds: How long to try again while Slurm does not answer.
        environment: The job's environment.
    """

    def __init__(self, seconds: float, environment: Mapping[str, str] = os.environ) -> None:
        self._job = environment.get("SLURM_JOB_ID", "")
        self._restarts = restarts(environment)
        self._end = time.monotonic() + seconds
        self.answer: RequeueOutcome | None = None
        self._refusal = ""
        threading.Thread(target=self._ask, name="requeue-inquiry", daemon=True).start()

    @property
    def refusal(self) -> str:
        """Why Slurm refused to requeue the job, in its words; empty if it did not."""
        return self._refusal if self.answer is RequeueOutcome.ENDS else ""

    def _ask(self) -> None:
        while (left := self._end - time.monotonic()) > 0:
            pause = min(left, _PAUSE_SECONDS)
            with contextlib.suppress(SlurmUnavailableError):
                self.answer = self._once(min(left, _PATIENCE_SECONDS))
                if self.answer is not None:
                    return
            time.sleep(pause)
        self.answer = RequeueOutcome.UNKNOWN

    def _once(self, timeout_seconds: float) -> RequeueOutcome | None:
        slurm = Slurm()
        restarts, is_running = slurm.restarts_of(self._job, timeout_seconds=timeout_seconds)
        if is_running:
            try:
                slurm.requeue(self._job, timeout_seconds=timeout_seconds)
            except SubmissionError as error:
                # The job may have begun to end since the last query: the next one tells.
                was_refused, self._refusal = bool(self._refusal), str(error)
                return RequeueOutcome.ENDS if was_refused else None
            return RequeueOutcome.REQUEUED
        self._refusal = ""
        return RequeueOutcome.REQUEUED if restarts > self._restarts else RequeueOutcome.ENDS

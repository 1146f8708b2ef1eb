"""The job of a study's master itself: small, and the same one for as long as the study lasts."""

from __future__ import annotations

import contextlib
import enum
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import Job, JobState, Slurm
from .config import Shape, SlurmConfig, check_notice
from .errors import ConfigError, SlurmUnavailableError, SubmissionError
from .nodes import Partition
from .script import MASTER_NOTICE, master_script
from .values import clock

_DEFAULT_MEMORY_BYTES = 4 * 10**9
_LONGEST_SECONDS = 7 * 86400
"""Where a partition has no limit. When the time is over the job begins again anyway."""

_PATIENCE_SECONDS = 10.0
"""How long one command may take when there is little time; then it is given again."""

_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterOrder:
    """What is to be run as a job.

    Attributes:
        config: The slurm.toml.
        study: What the study's jobs are called by.
        directory: Where script and output go; the master's node must see it.
        lines: What it runs, as shell lines; `python` begins those that its Python runs.
    """

    config: SlurmConfig
    study: str
    directory: Path
    lines: Sequence[str]

    @property
    def script_file(self) -> Path:
        """What was submitted last; it is there if anything ever was."""
        return self.directory / "master.sbatch"

    @property
    def log_file(self) -> Path:
        """What the master writes."""
        return self.directory / "master.log"


def master_name(study: str) -> str:
    """What a study's master is called; it does not begin like its workers."""
    return f"{study}.master"


def master_shape(config: SlurmConfig, partitions: Sequence[Partition]) -> Shape:
    """What the master's job asks for: what slurm.toml says, else little, for as long as it may.

    Raises:
        ConfigError: There is no such partition, or the job would be over before it hears of it.
    """
    said = dict(config.master)
    known = {each.name: each for each in partitions}
    default = next((each.name for each in partitions if each.is_default and each.is_up), None)
    names = said.setdefault("partition", default or config.shapes[0].partition).split(",")
    for name in names:
        if name not in known:
            raise ConfigError(
                f"[master]: there is no partition {name!r}; Slurm has {', '.join(sorted(known))}"
            )
    limits = [known[name].limit_seconds or _LONGEST_SECONDS for name in names]
    said.setdefault("walltime", clock(min(limits)))
    said.setdefault("memory", _DEFAULT_MEMORY_BYTES)
    shape = Shape(name="master", **said)
    try:
        check_notice(shape)
    except ConfigError as error:
        raise ConfigError(f"[master]: {error}") from error
    return shape


def submit_master(order: MasterOrder) -> Job:
    """Submit the job; returns it when Slurm has accepted it.

    Raises:
        ConfigError: It is asked for what there is not, or there is such a job already.
        SubmissionError: Slurm refuses it, in its own words.
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    slurm = Slurm()
    shape = master_shape(order.config, slurm.partitions())
    if there := find_master(order.study):
        raise ConfigError(f"the study's master is there already: Slurm job {there.id}")
    name = master_name(order.study)
    script = master_script(shape, order.lines, job_name=name, log=order.log_file)
    slurm.check(script)
    order.directory.mkdir(parents=True, exist_ok=True)
    order.script_file.write_text(script, encoding="utf-8")
    job_id = slurm.submit_one(script)
    return Job(job_id, name, JobState.PENDING, "PENDING", partition=shape.partition)


def find_master(study: str) -> Job | None:
    """The job of a study's master, while it waits or runs.

    Raises:
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    shown = Slurm().jobs([master_name(study)])
    return next((job for job in shown if job.state is not JobState.OVER), None)


def cancel_study(study: str) -> int:
    """Cancel all jobs of a study, the master first; returns how many there were.

    Raises:
        SlurmUnavailableError: Slurm does not answer.
    """
    slurm = Slurm()
    name, prefix = master_name(study), f"{study}-"
    jobs = [each for each in slurm.jobs(None) if each.state is not JobState.OVER]
    ours = [each for each in jobs if each.name == name or each.name.startswith(prefix)]
    ours.sort(key=lambda each: each.name != name)
    slurm.cancel([each.id for each in ours])
    return len(ours)


class RequeueOutcome(enum.Enum):
    """What becomes of the job that we run in, after a signal has come."""

    REQUEUED = enum.auto()
    ENDS = enum.auto()
    UNKNOWN = enum.auto()


def notice_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """How long before its walltime the master's job is told of it; None if we run in none."""
    said = environment.get(MASTER_NOTICE)
    return None if said is None else float(said)


class RequeueInquiry:
    """Asks Slurm, in a thread of its own, what becomes of the job that we run in.

    To be made when a signal came. Slurm signals a job that is requeued, that was cancelled, or
    whose time is over; if none of this is so, its end is only near, and it is requeued now.

    Args:
        seconds: How long to ask again and again, where Slurm is silent.
        environment: The job's.
    """

    def __init__(self, seconds: float, environment: Mapping[str, str] = os.environ) -> None:
        self._job = environment.get("SLURM_JOB_ID", "")
        self._restarts = int(environment.get("SLURM_RESTART_COUNT") or 0)
        self._end = time.monotonic() + seconds
        self._answer: RequeueOutcome | None = None
        self._refusal = ""
        threading.Thread(target=self._ask, name="fate of the job", daemon=True).start()

    @property
    def answer(self) -> RequeueOutcome | None:
        """What Slurm said; UNKNOWN if it said nothing in time; None as yet."""
        return self._answer

    @property
    def refusal(self) -> str:
        """Why the job ends that could have begun again, in Slurm's words; empty otherwise."""
        return self._refusal if self._answer is RequeueOutcome.ENDS else ""

    def _ask(self) -> None:
        while (left := self._end - time.monotonic()) > 0:
            pause = min(left, _PAUSE_SECONDS)
            with contextlib.suppress(SlurmUnavailableError):
                self._answer = self._once(min(left, _PATIENCE_SECONDS))
                if self._answer is not None:
                    return
            time.sleep(pause)
        self._answer = RequeueOutcome.UNKNOWN

    def _once(self, timeout_seconds: float) -> RequeueOutcome | None:
        slurm = Slurm()
        restarts, is_running = slurm.restarts_of(self._job, timeout_seconds=timeout_seconds)
        if is_running:
            try:
                slurm.requeue(self._job, timeout_seconds=timeout_seconds)
            except SubmissionError as error:
                # It may be on its way out since we looked: the next look tells.
                was_refused, self._refusal = bool(self._refusal), str(error)
                return RequeueOutcome.ENDS if was_refused else None
            return RequeueOutcome.REQUEUED
        self._refusal = ""
        return RequeueOutcome.REQUEUED if restarts > self._restarts else RequeueOutcome.ENDS

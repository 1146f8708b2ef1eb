"""Slurm's own commands: what is asked of them, and what they answer."""

from __future__ import annotations

import enum
import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .errors import SlurmUnavailableError, SubmissionError
from .nodes import SINFO_FORMAT, Partition, parse_sinfo

SQUEUE_FORMAT = "%i|%j|%T|%r|%P|%N|%e"
"""Id, name, state, reason, partition, nodes, end."""

ANSWER_SECONDS = 60.0
"""A busy slurmctld may take its time; from then on it counts as silent."""

HOPELESS = re.compile(
    r"BadConstraints|Invalid|NotAllowed|PartitionTimeLimit|PartitionNodeLimit|AccountingPolicy"
    r"|MaxWallDurationPerJobLimit|Max\w+PerJob|Max\w+MinutesPerJob|DependencyNeverSatisfied"
)
"""Reasons for which a job pends for ever."""


class JobState(enum.StrEnum):
    """Where a job stands, as far as it matters here."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"


_STATES = {
    **dict.fromkeys(("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"), JobState.PENDING),
    **dict.fromkeys(("RUNNING", "CONFIGURING", "SUSPENDED", "SIGNALING"), JobState.RUNNING),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), JobState.ENDING),
}


@dataclass(frozen=True, slots=True)
class Job:
    """One of our jobs, as squeue shows it.

    Attributes:
        id: Such as `123_4`.
        name: The name of its kind.
        state: Where it stands.
        word: Slurm's word for that, such as TIMEOUT.
        reason: Why it pends; empty if Slurm says nothing.
        partition: Where it runs, or waits.
        node: The node it runs on; empty before.
        ends_at: When it must end, in seconds since the epoch; None if nobody knows.
    """

    id: str
    name: str
    state: JobState
    word: str
    reason: str = ""
    partition: str = ""
    node: str = ""
    ends_at: float | None = None

    @property
    def is_hopeless(self) -> bool:
        """Whether it pends for a reason that will not pass."""
        return self.state is JobState.PENDING and bool(HOPELESS.search(self.reason))


def parse_squeue(text: str) -> tuple[Job, ...]:
    """Understand what squeue prints in SQUEUE_FORMAT, with times as seconds.

    >>> parse_squeue("7_0|hptune-a|RUNNING|None|gpu|n1|1795275307")[0].ends_at
    1795275307.0
    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != SQUEUE_FORMAT.count("|") + 1:
            continue
        identity, name, word, reason, partition, node, end = parts
        jobs.append(
            Job(
                id=identity,
                name=name,
                state=_STATES.get(word, JobState.OVER),
                word=word,
                reason="" if reason == "None" else reason,
                partition=partition,
                node=node,
                ends_at=float(end) if end.isdigit() else None,
            )
        )
    return tuple(jobs)


class Slurm:
    """Asks Slurm; every call is one command."""

    def partitions(self) -> tuple[Partition, ...]:
        """All partitions that the user may see.

        Raises:
            SlurmUnavailableError: There is no Slurm here, or it does not answer.
        """
        return parse_sinfo(self._ask("sinfo", "--noheader", "--exact", "-o", SINFO_FORMAT))

    def node_addresses(self) -> tuple[str, ...]:
        """Under which names or addresses Slurm reaches the nodes, sorted.

        Raises:
            SlurmUnavailableError: There is no Slurm here, or it does not answer.
        """
        return tuple(sorted(set(self._ask("sinfo", "--noheader", "--Node", "-o", "%o").split())))

    def jobs(self, names: Iterable[str] | None) -> tuple[Job, ...]:
        """The user's jobs of these names, also those that ended a moment ago; None for all names.

        Raises:
            SlurmUnavailableError: Slurm does not answer; nothing is known of the jobs.
        """
        return parse_squeue(
            self._ask(
                "squeue",
                "--noheader",
                "--array",
                "--states=all",
                *([] if names is None else [f"--name={','.join(names)}"]),
                f"--user={os.getuid()}",
                f"--format={SQUEUE_FORMAT}",
            )
        )

    def submit(self, script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        """Submit so many jobs by one call; returns their ids.

        Args:
            script: The job script.
            count: How many jobs.
            exclude: The nodes that they are not to run on.

        Raises:
            SubmissionError: Slurm refuses them; none of them was submitted.
            SlurmUnavailableError: There is no Slurm here, or it does not answer.
        """
        command = ["sbatch", "--parsable", f"--array=0-{count - 1}"]
        if nodes := ",".join(sorted(exclude)):
            command.append(f"--exclude={nodes}")
        done = self._run(command, script)
        if done.returncode:
            raise SubmissionError(f"Slurm refuses the job: {_words(done.stderr)}")
        number = done.stdout.strip().partition(";")[0]
        return tuple(f"{number}_{i}" for i in range(count))

    def check(self, script: str) -> None:
        """Have Slurm check a script without submitting it.

        Raises:
            SubmissionError: Slurm would refuse it.
            SlurmUnavailableError: There is no Slurm here, or it does not answer.
        """
        done = self._run(["sbatch", "--test-only"], script)
        if done.returncode:
            raise SubmissionError(f"Slurm refuses the job: {_words(done.stderr)}")

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs; those that are over already do not matter.

        Raises:
            SlurmUnavailableError: Slurm does not answer.
        """
        if ids:
            self._ask("scancel", "--quiet", *ids)

    def _ask(self, *command: str) -> str:
        done = self._run(list(command))
        if done.returncode:
            raise SlurmUnavailableError(f"{command[0]} failed: {_words(done.stderr)}")
        return done.stdout

    @staticmethod
    def _run(command: list[str], script: str = "") -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                command,
                input=script,
                env=_environment(),
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=ANSWER_SECONDS,
                # Ctrl-C in the terminal is ours: an sbatch that it ended might have submitted.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise SlurmUnavailableError(
                f"{command[0]} is not found: run this where Slurm's commands are, such as a login "
                "node"
            ) from error
        except subprocess.TimeoutExpired as error:
            raise SlurmUnavailableError(
                f"{command[0]} has not answered for {ANSWER_SECONDS:g} s"
            ) from error
        except OSError as error:
            raise SlurmUnavailableError(
                f"{command[0]} cannot be started: {error.strerror or error}"
            ) from error


def _environment() -> dict[str, str]:
    """Ours, without what an allocation that we run in says of itself: sbatch would obey it."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("SLURM_") or name == "SLURM_CONF"
    }
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


def _words(stderr: str) -> str:
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in stderr.strip().splitlines()]
    return "; ".join(lines) or "it does not say why"

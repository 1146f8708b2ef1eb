"""Slurm's commands: how they are called, and how their output is read."""

from __future__ import annotations

import contextlib
import enum
import math
import os
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .errors import (
    ClosedForNowError,
    NoAccountingError,
    NoSlurmError,
    SlurmUnavailableError,
    SubmissionError,
)
from .nodes import SINFO_FORMAT, Partition, node_names, parse_gpus, parse_sinfo

SQUEUE_FORMAT = "%i|%j|%T|%r|%P|%N|%e|%S|%V"
"""Id, name, state, reason, partition, nodes, end, start, submission."""

ANSWER_SECONDS = 60.0
"""How long a command may take, as slurmctld may be busy; then it counts as unavailable."""

_QUICK_SECONDS = 5.0
"""The same when the process is about to end."""

SECONDS_OF_A_CALL, CALLS_AHEAD = 14.0, 5
"""The time that a call takes from a study's allowance, and how many calls it may be ahead of it. A
poll of the jobs makes up to four, so five minutes have 21 + 5 + 3 calls at most, about six a
minute."""

HOPELESS = re.compile(
    r"BadConstraints|Invalid|NotAllowed|PartitionTimeLimit|PartitionNodeLimit|AccountingPolicy"
    r"|MaxWallDurationPerJobLimit|Max\w+Per(Job|Node)|MaxMemPerLimit|QOSMin"
    r"|DependencyNeverSatisfied"
)
"""Reasons of pending that never pass."""

_HELD = re.compile("requeued held|JobHoldMaxRequeue")
"""Reasons of jobs that Slurm could not start on a node, as the prolog failed there, or on one node
after the other, and that it starts nowhere else until an administrator releases them."""

_NO_ANSWER = re.compile(
    r"unable to contact|timed out|connect|communication|zero bytes|standby|temporarily"
    r"|message (send|receive)|authentication|retry|again later|shutting down",
    re.IGNORECASE,
)
"""Messages of commands that got no lasting answer (`slurm_strerror` lists all messages)."""


_CLOSED_FOR_NOW = re.compile(
    r"not available \((inactive or drain|down, drained or reserved)\)"
    r"|nodes are busy|maintenance|SubmitJob",
    re.IGNORECASE,
)
"""Messages of refusals that end with the partition's pause, the maintenance, or other jobs of the
user (such as QOSMaxSubmitJobPerUserLimit)."""

_MEMORY_ADVICE = (
    '. If the site takes memory by core only, give directives = ["--mem-per-cpu=4G"] in the '
    "slurm.toml, without memory"
)
"""What follows refusals that name the memory."""

_NO_ACCOUNTING = "accounting storage is disabled"
"""Part of sacct's message where the cluster has no accounting."""

_WHICH_SLURM = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_CLUSTERS", "SLURM_JWT")
"""Environment variables by which commands find their cluster and prove who asks."""

_SUBMISSION_DEFAULTS = {
    "SBATCH_ACCOUNT": r"-A|--account\b",
    "SBATCH_QOS": r"-q|--qos\b",
    "SBATCH_RESERVATION": r"--reservation\b",
    "SBATCH_WCKEY": r"--wckey\b",
}
"""Environment variables of sbatch that count where a script lacks their option: they say who pays.

To sbatch itself, such variables count more than the options in a script.
"""


class JobState(enum.StrEnum):
    """State of a job, reduced to what this package distinguishes."""

    PENDING = "pending"
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"


ALIVE = (JobState.PENDING, JobState.RUNNING)
"""The states of jobs that can still be useful."""


_STATES = {
    **dict.fromkeys(
        ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT"),
        JobState.PENDING,
    ),
    **dict.fromkeys(
        ("RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING"),
        JobState.RUNNING,
    ),
    **dict.fromkeys(("COMPLETING", "STAGE_OUT"), JobState.ENDING),
    **dict.fromkeys(
        (
            "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED",
            "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT",
        ),
        JobState.OVER,
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Job:
    """One of our jobs, as squeue shows it.

    Attributes:
        id: Such as `123_4`.
        name: The name of its kind.
        state: Its state.
        slurm_state: Slurm's word for the state, such as TIMEOUT.
        reason: Why it pends; empty if unknown.
        partition: Where it runs or waits.
        node: The node it runs on, or several in Slurm's short form; empty before it starts.
        ends_at: When it must end, in seconds since the epoch; None if unknown.
        starts_at: When Slurm expects to start it, while it pends; None if unknown.
        submitted_at: When it was submitted, in seconds since the epoch; None if unknown.
    """

    id: str
    name: str
    state: JobState
    slurm_state: str
    reason: str = ""
    partition: str = ""
    node: str = ""
    ends_at: float | None = None
    starts_at: float | None = None
    submitted_at: float | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it runs on."""
        return node_names(self.node)

    @property
    def is_hopeless(self) -> bool:
        """Whether it pends for a reason that never passes."""
        return self.state is JobState.PENDING and bool(HOPELESS.search(self.reason))

    @property
    def is_held(self) -> bool:
        """Whether Slurm keeps it because it could not start it on a node."""
        return self.state is JobState.PENDING and bool(_HELD.search(self.reason))


def parse_squeue(text: str) -> tuple[Job, ...]:
    """Parse the output of squeue in SQUEUE_FORMAT, with times as seconds.

    >>> parse_squeue("7_0|hptune-a|RUNNING|None|gpu|n1|1795275307|1795271707|N/A")[0].ends_at
    1795275307.0
    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != SQUEUE_FORMAT.count("|") + 1:
            continue
        job_id, name, slurm_state, reason, partition, node, end, start, submission = parts
        # A later release may have other states, such as EXPEDITING; only known ones are ends.
        state = _STATES.get(slurm_state, JobState.RUNNING if node else JobState.PENDING)
        is_expected = state is JobState.PENDING and start.isdigit()
        jobs.append(
            Job(
                id=job_id,
                name=name,
                state=state,
                slurm_state=slurm_state,
                reason="" if reason == "None" else reason,
                partition=partition,
                node=node,
                ends_at=float(end) if end.isdigit() else None,
                starts_at=float(start) if is_expected else None,
                submitted_at=float(submission) if submission.isdigit() else None,
            )
        )
    return tuple(jobs)


class Slurm:
    """Slurm's commands; every method but `rest_seconds` runs one.

    Without `--all`, those that list leave out hidden partitions, also the user's own jobs there.

    Raises:
        SlurmUnavailableError: By every method: there is no Slurm here, or it does not answer.
    """

    def __init__(self) -> None:
        self._allowed_at = -math.inf

    def rest_seconds(self) -> float:
        """Return how long to call nothing, so that administrators need not notice."""
        ahead = self._allowed_at - time.monotonic()
        return max(0.0, ahead - SECONDS_OF_A_CALL * (CALLS_AHEAD - 1))

    def _count_call(self) -> None:
        self._allowed_at = max(self._allowed_at, time.monotonic()) + SECONDS_OF_A_CALL

    def partitions(self, *, with_hidden: bool = True) -> tuple[Partition, ...]:
        """Return the partitions, with or without those that the administrators hide."""
        shown = ["--all"] if with_hidden else []
        return parse_sinfo(self._ask("sinfo", *shown, "--noheader", "--exact", "-o", SINFO_FORMAT))

    def node_addresses(self, *, nodes: str = "", partitions: str = "") -> tuple[str, ...]:
        """Return the names or addresses by which Slurm reaches the nodes, sorted.

        Args:
            nodes: The nodes, in Slurm's short form; empty for all.
            partitions: The partitions that they are in, with commas; empty for all.
        """
        # sinfo refuses --all together with partitions, of which it shows hidden ones anyway.
        chosen = [f"--partition={partitions}"] if partitions else ["--all"]
        chosen += [f"--nodes={nodes}"] if nodes else []
        shown = self._ask("sinfo", *chosen, "--noheader", "--Node", "-o", "%o")
        return tuple(sorted(set(shown.split())))

    def failed_prologs(self) -> Mapping[str, str]:
        """Return the nodes that Slurm uses no more because its prolog failed, and its words."""
        shown = self._ask("sinfo", "--all", "--noheader", "--Node", "--states=drain", "-o", "%N|%E")
        lines = (line.strip().partition("|") for line in shown.splitlines())
        return {node: why for node, _, why in lines if "prolog" in why.lower()}

    def jobs(
        self, names: Iterable[str] | None, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> tuple[Job, ...]:
        """Return the user's jobs of these names, and those that just ended; None for all names."""
        return parse_squeue(
            self._ask(
                "squeue",
                "--all",
                "--noheader",
                "--array",
                "--states=all",
                *([] if names is None else [f"--name={','.join(names)}"]),
                f"--user={os.getuid()}",
                f"--format={SQUEUE_FORMAT}",
                timeout_seconds=timeout_seconds,
            )
        )

    def accounting(self, columns: str, *, since: str) -> str:
        """Return lines on the user's jobs and their steps since a time, as sacct prints them.

        A job that was requeued has lines for each of its runs. With `--allocations` it would leave
        out the steps, but also what the jobs used.

        Raises:
            NoAccountingError: The cluster keeps no accounting.
        """
        return self._ask(
            *("sacct", "--parsable2", "--noheader", "--duplicates", f"--format={columns}"),
            *(f"--user={os.getuid()}", f"--starttime={since}"),
        )

    def submit(self, script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        """Submit a number of jobs as one array; returns their ids.

        Args:
            script: The job script.
            count: How many jobs.
            exclude: The nodes that they must not run on.

        Raises:
            SubmissionError: Slurm refuses them; none of them was submitted. It is a
                ClosedForNowError if Slurm may take them later.
        """
        command = ["sbatch", "--parsable", f"--array=0-{count - 1}"]
        if nodes := ",".join(sorted(exclude)):
            command.append(f"--exclude={nodes}")
        number = self._submitted(command, script)
        return tuple(f"{number}_{i}" for i in range(count))

    def submit_one(self, script: str, *, what: str = "the job") -> str:
        """Submit one job, not as an array; returns its id.

        Args:
            script: The job script.
            what: Which job it is, for the message.

        Raises:
            SubmissionError: Slurm refuses it.
        """
        return self._submitted(["sbatch", "--parsable"], script, what=what)

    def exclude(self, job: str, nodes: Iterable[str]) -> None:
        """Have Slurm start a pending job on none of these nodes, in place of those before.

        Raises:
            SubmissionError: It has started.
        """
        command = ["scontrol", "update", f"JobId={job}", f"ExcNodeList={','.join(sorted(nodes))}"]
        self._accepted(command, what=f"to change job {job}")

    def requeue(self, job: str, *, timeout_seconds: float = ANSWER_SECONDS) -> None:
        """End a job and have Slurm start it again later, with the same id.

        Raises:
            SubmissionError: Slurm refuses it.
        """
        command = ["scontrol", "requeue", job]
        self._accepted(command, what=f"to requeue job {job}", timeout_seconds=timeout_seconds)

    def restarts_of(self, job: str, *, timeout_seconds: float = ANSWER_SECONDS) -> tuple[int, bool]:
        """Return how often a job was requeued, and whether it runs now."""
        columns = "RestartCnt:9,State:20"
        shown = self._ask(
            "squeue", "--noheader", f"--jobs={job}", "-O", columns, timeout_seconds=timeout_seconds
        )
        count, _, state = shown.strip().partition(" ")
        return int(count) if count.isdecimal() else 0, state.strip() == "RUNNING"

    def check(self, script: str, *, what: str = "the job") -> None:
        """Have Slurm check a script without submitting it.

        Args:
            script: The job script.
            what: Which job it is, for the message.

        Raises:
            SubmissionError: Slurm would refuse it.
        """
        self._submitted(["sbatch", "--test-only"], script, what=what)

    def cancel(self, ids: Sequence[str]) -> None:
        """Cancel jobs; those that are over already are ignored."""
        if ids:
            self._ask("scancel", "--quiet", *ids)

    def cancel_all(self, names: Iterable[str]) -> None:
        """Cancel the user's jobs of these names, by one quick command each."""
        for name in names:
            user = f"--user={os.getuid()}"
            self._ask("scancel", "--quiet", user, f"--name={name}", timeout_seconds=_QUICK_SECONDS)

    def signal_steps(self, job: str, name: str) -> frozenset[str]:
        """Send SIGTERM to all tasks of a job's steps of this name; returns their nodes."""
        shown = self._ask(
            "squeue", "--all", "--noheader", "--steps", f"--jobs={job}", "--format=%i|%N|%j"
        )
        lines = (line.strip().split("|", 2) for line in shown.splitlines())
        running = set[str]()
        for step, nodes, found in lines:
            if found == name:
                running.update(node_names(nodes))
                # Some releases signal a step and then report that there is no such job. A step
                # that has just ended must not keep the others from being signalled.
                with contextlib.suppress(SlurmUnavailableError):
                    self._ask("scancel", "--quiet", "--signal=TERM", step)
        return frozenset(running)

    def nodes_of(self, job: str) -> tuple[str, ...]:
        """Return the nodes of a job."""
        return node_names(self._column(job, "%N"))

    def gpus_of(self, job: str) -> dict[str, int]:
        """Return how many GPUs a job has on each of its nodes."""
        shown = self._ask("scontrol", "show", "job", "--details", job)
        own = re.search(rf"^JobId={job} .*?(?=^JobId=|\Z)", shown, re.MULTILINE | re.DOTALL)
        found: dict[str, int] = {}
        for line in re.finditer(r"\n\s*Nodes=(\S+) .*\bGRES=(\S*)", own[0] if own else ""):
            count = sum(each for _, each in parse_gpus(line[2]))
            for node in node_names(line[1]):
                found[node] = found.get(node, 0) + count
        return found

    def end_of(self, job: str) -> str:
        """Return when a job must end, in seconds since the epoch; no number if unknown."""
        return self._column(job, "%e")

    def _column(self, job: str, column: str) -> str:
        """Return what squeue shows of a job alone: one of an array has the id of the whole."""
        shown = self._ask("squeue", "--noheader", f"--jobs={job}", f"--format=%A|{column}")
        lines = (line.strip().partition("|") for line in shown.splitlines())
        return next((found for each, _, found in lines if each == job), "")

    def _submitted(self, command: list[str], script: str, *, what: str = "the job") -> str:
        """Run an sbatch; returns the id of the job or the array that it prints, if it has one."""
        printed = self._accepted(command, script, what=f"{what}{_place_of(script)}")
        # A site may print a banner before it.
        ids = re.findall(r"^(\d+)(?:;\S*)?\s*$", printed, re.MULTILINE)
        if not ids and "--test-only" not in command:
            raise SlurmUnavailableError(f"sbatch prints no job's id, but {printed.strip()!r}")
        return ids[-1] if ids else ""

    def _accepted(
        self,
        command: list[str],
        script: str = "",
        *,
        what: str = "the job",
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> str:
        """Run a command that Slurm may refuse; returns what it prints."""
        done = self._run(command, script, timeout_seconds=timeout_seconds)
        if done.returncode:
            words = _message(done.stderr)
            if _NO_ANSWER.search(words):
                raise SlurmUnavailableError(f"{command[0]} failed: {words}")
            kind = ClosedForNowError if _CLOSED_FOR_NOW.search(words) else SubmissionError
            advice = _MEMORY_ADVICE if script and re.search("--mem|memory", words, re.I) else ""
            raise kind(f"Slurm refuses {what}: {words}{advice}")
        return done.stdout

    def _ask(self, *command: str, timeout_seconds: float = ANSWER_SECONDS) -> str:
        done = self._run(list(command), timeout_seconds=timeout_seconds)
        if done.returncode:
            # The last line has the error; those before it lead to it.
            words = _message(done.stderr).rpartition("; ")[2]
            kind = NoSlurmError if words.startswith("fatal") else SlurmUnavailableError
            kind = NoAccountingError if _NO_ACCOUNTING in words else kind
            raise kind(f"{command[0]} failed: {words}")
        return done.stdout

    def _run(
        self, command: list[str], script: str = "", *, timeout_seconds: float = ANSWER_SECONDS
    ) -> subprocess.CompletedProcess[str]:
        self._count_call()
        # A job inherits what sbatch has, such as the user's language.
        own = _defaults(script) if script else {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}
        try:
            return subprocess.run(
                command,
                input=script,
                env={**outside_environment(), **own},
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                timeout=timeout_seconds,
                # An sbatch that Ctrl-C ends might have submitted: run it in its own session.
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise NoSlurmError(f"{command[0]} is not found") from error
        except subprocess.TimeoutExpired as error:
            raise SlurmUnavailableError(
                f"{command[0]} has not answered for {timeout_seconds:g} s"
            ) from error
        except OSError as error:
            raise SlurmUnavailableError(
                f"{command[0]} cannot be started: {error.strerror or error}"
            ) from error


def outside_environment() -> dict[str, str]:
    """Return the environment without the variables of this job, and without options of commands.

    Such an option may change the names of our jobs, hide them from squeue, or have the srun of a
    job wait for cores that it never gets.
    """
    commands = ("SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SCANCEL_")
    options = (*commands, "HPTUNE_WORKER_", "HPTUNE_MASTER_")
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(options) or name in _WHICH_SLURM
    }


def _defaults(script: str) -> dict[str, str]:
    """Return the variables of the environment for options that a script lacks."""
    return {
        name: os.environ[name]
        for name, option in _SUBMISSION_DEFAULTS.items()
        if name in os.environ and not re.search(rf"^#SBATCH ({option})", script, re.MULTILINE)
    }


def _place_of(script: str) -> str:
    r"""Return the partition and account that a script asks for, to be added to a message.

    >>> _place_of("#SBATCH -p gpu"), _place_of("#SBATCH --partition=gpu\n#SBATCH -A mine")
    (' in partition gpu, with your default account', ' in partition gpu, with account mine')
    >>> _place_of("#SBATCH -n 1")
    ', with your default account'
    """
    found = dict[str, str]()
    for letter, name in (("p", "partition"), ("A", "account")):
        pattern = rf"^#SBATCH (?:-{letter}\s*|--{name}[=\s]\s*)(\S+)"
        if asked := re.findall(pattern, script, re.MULTILINE):
            found[name] = asked[-1]  # sbatch obeys the last one
    partition = f" in partition {found['partition']}" if "partition" in found else ""
    account = found.get("account") or _defaults(script).get("SBATCH_ACCOUNT")
    return f"{partition}, with {f'account {account}' if account else 'your default account'}"


def _message(stderr: str) -> str:
    lines = [re.sub(r"^\w+: (error: )?", "", line) for line in stderr.strip().splitlines()]
    return "; ".join(lines).rstrip(".") or "it does not say why"

"""What the user should know of workers and attempts while a study runs, each thing once.

There may be thousands of workers, so notifications of one kind are joined into one line.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ... import text
from ...core.attempt import (
    FROM_OUTSIDE,
    NON_FINITE_REMEDY,
    Attempt,
    AttemptId,
    Cause,
    Ending,
    Outcome,
)
from ...core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    Reported,
    UserRequested,
    WorkerJoined,
    WorkerLeft,
    WorkerRefused,
)
from ...core.resources import size
from ...core.trial import Trial, TrialState
from ...core.user_requests import UserAction
from ...core.workers import Phase, Workers
from ..results.remarks import remarks_on
from .report_checks import ReportChecks

QUIET_SECONDS = 10.0
"""Shortest time between two lines of one kind; what happens in between is joined."""

_LEAVES_WITHIN_SECONDS = 60.0
"""Time after which a worker that takes no more trials has a line, if it has not left by then."""

_NAMED = 3
_REASON_CHARACTERS = 80
"""Limit of the reason of a retry: the whole line takes at most two lines of a terminal."""
_NOT_NOTIFIED = (*FROM_OUTSIDE, Cause.MASTER_LOST)
"""Ends without a line of their own: a lost worker has one, and killing may end the study. An error
in the user's code, such as that of a disk, has a line; it comes with its traceback."""

_MEMORY_MARGIN = 1.25
"""Memory to ask for, per memory that one trial used: another trial may use more."""


class Notifications:
    """Observes what goes into the ledger, and returns lines for the display.

    Args:
        workers: The roster, which has taken in what is observed.
        reports: What is said of reports.
        workers_are_known: Whether the header names the first workers, because the run starts
            them itself. Then no line says that they joined.
        memory_bytes: The user's `--memory-per-trial`; 0 if left out.
        has_checkpoint: Returns whether a trial has a checkpoint to continue from.
    """

    def __init__(
        self,
        workers: Workers,
        reports: ReportChecks,
        *,
        workers_are_known: bool = False,
        memory_bytes: int = 0,
        has_checkpoint: Callable[[int], bool] = lambda _trial: False,
    ) -> None:
        self._workers = workers
        self._reports = reports
        self._shows_joins = not workers_are_known
        self._memory_bytes = memory_bytes
        self._stays_until = -math.inf
        self._joined: list[WorkerJoined] = []
        self._left: dict[str, list[str]] = {}
        self._died: dict[str, str] = {}
        self._left_first = False
        self._has_checkpoint = has_checkpoint
        self._lost_trials: list[int] = []
        self._released: dict[AttemptId, tuple[str, ...]] = {}  # and their workers
        self._released_trials: list[int] = []
        self._retried: dict[AttemptId, Attempt] = {}
        self._next: dict[AttemptId, Attempt] = {}
        self._refused: dict[tuple[str, str], None] = {}
        self._shown: set[str] = set()
        self._urgent: list[str] = []
        self._quiet_until = -math.inf

    def observe(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> None:
        """Observe events and the attempts that they changed."""
        attempts = tuple(attempts)
        for attempt in attempts:
            if attempt.cause is Cause.RELEASED and attempt.outcome is Outcome.RELEASED:
                self._released[attempt.id] = attempt.placement.workers
        died = self._observe_events(events, attempts)
        over = (each for each in attempts if each.outcome)
        for kind, line in remarks_on(over, self._reports.pruner).items():
            self._show_once(kind, line)
        ended = {each.attempt: each.ending for each in events if isinstance(each, AttemptEnded)}
        for attempt in attempts:
            self._observe_retry(attempt, ended.get(attempt.id), died)
            if attempt.cause is Cause.NON_FINITE and attempt.outcome is Outcome.ERRORED:
                self._show_once(
                    "nan",
                    f"trial {attempt.id.trial}: {attempt.reason}. The study continues, and the "
                    "search avoids such configurations; if many trials end so, "
                    f"{NON_FINITE_REMEDY}",
                )
            self._check_memory(attempt)
            self._check_gpus(attempt)

    def _observe_events(self, events: Sequence[Event], attempts: Sequence[Attempt]) -> set[str]:
        """Observe events; return the names of the workers that died."""
        died = set()
        lost = [each for each in attempts if each.outcome is Outcome.LOST]
        lost_at = {worker for each in lost for worker in each.placement.workers}
        for event in events:
            match event:
                case WorkerJoined():
                    if self._shows_joins and event.lease_seconds is None:
                        self._joined.append(event)
                case WorkerLeft():
                    worker = self._workers.get(event.worker)
                    # It may have joined again since then.
                    if worker is None or worker.since < event.at or worker.phase is Phase.REFUSED:
                        continue  # it had left before
                    if worker.is_program:
                        continue  # a program, which comes and goes with each trial
                    # A worker of the run's own that comes back is worth a line.
                    self._shows_joins = True
                    self._left_first |= not self._joined
                    for name in [n for n, at in self._released.items() if worker.name in at]:
                        del self._released[name]
                        self._released_trials.append(name.trial)
                    if worker.was_drained and worker.name not in lost_at:
                        self._left.setdefault(worker.reason, []).append(worker.node)
                    else:
                        died.add(worker.name)
                        self._died[worker.name] = worker.node
                case WorkerRefused():
                    self._refused[event.node, event.reason] = None
                case AttemptWaits():
                    trial = f"trial {event.attempt.trial}"
                    self._show_once("waits", f"{trial} {event.reason}; other trials may wait, too")
                case Reported():
                    for kind, line in self._reports.observe(event):
                        self._show_once(kind, line)
                case UserRequested(refused=""):
                    self._urgent += _requested(event)
                case _:
                    pass
        return died

    def _observe_retry(self, attempt: Attempt, ending: Ending | None, died: set[str]) -> None:
        is_lost = attempt.outcome is Outcome.LOST
        # Of several workers, one was lost: the attempt has ended some time after that.
        is_partly = attempt.cause is Cause.WORKER_LOST and len(attempt.placement.workers) > 1
        has_line = ending is not None and (
            is_partly or attempt.cause not in _NOT_NOTIFIED or bool(ending.detail)
        )
        if is_lost and died.intersection(attempt.placement.workers) and not is_partly:
            self._lost_trials.append(attempt.id.trial)
        if is_lost and has_line:
            self._retried[attempt.id] = attempt
        before = AttemptId(attempt.id.trial, attempt.id.number - 1)
        if before in self._retried:
            self._next[before] = attempt

    def observe_ended(self, trials: Sequence[Trial]) -> None:
        """Observe trials that ended."""
        for trial in trials:
            if trial.state is not TrialState.COMPLETE:
                self._reports.forget(trial)
                continue
            for kind, line in self._reports.observe_complete(trial):
                self._show_once(kind, line)

    def lines(self, now: float) -> list[str]:
        """Return the lines to show now."""
        lines, self._urgent = self._urgent, []
        if now < self._quiet_until:
            return lines
        lines += self._stay_lines(now) + self._worker_lines() + self._retry_lines()
        if lines:
            self._quiet_until = now + QUIET_SECONDS
        return lines

    def _stay_lines(self, now: float) -> list[str]:
        """Return a line on the workers that take no more trials, but do not leave."""
        if now == math.inf:
            return []
        since, self._stays_until = self._stays_until, now - _LEAVES_WITHIN_SECONDS
        staying: dict[str, list[str]] = {}
        for worker in self._workers:
            is_due = since <= worker.since < self._stays_until
            if worker.phase is Phase.DRAINING and is_due and not worker.is_program:
                staying.setdefault(worker.reason, []).append(worker.node)
        return [
            f"{_workers(nodes)} {'takes' if len(nodes) == 1 else 'take'} no more trials: {reason}"
            for reason, nodes in staying.items()
        ]

    def _worker_lines(self) -> list[str]:
        joined, gone = [], []
        if self._joined:
            cores = sum(len(each.capacity.cpus) for each in self._joined)
            gpus = sum(len(each.capacity.gpus) for each in self._joined)
            has = text.plural(cores, "core") + (f" and {text.plural(gpus, 'GPU')}" if gpus else "")
            joined.append(f"{_workers([each.node for each in self._joined])} joined with {has}")
        for reason, nodes in self._left.items():
            gone.append(f"{_workers(nodes)} left{f' ({reason})' if reason else ''}")
        if gone:
            gone[-1] += self._continue_text(self._released_trials)
            self._released_trials = []
        if self._died:
            nodes = list(self._died.values())
            who = _workers(nodes)
            if len(nodes) == 1 and self._workers.count_on(nodes[0]):
                who += f" at {next(iter(self._died))}"  # the node has other workers
            trials = self._continue_text(self._lost_trials)
            gone.append(f"{who} {'was' if len(nodes) == 1 else 'were'} lost{trials}")
        lines = [*gone, *joined] if self._left_first else [*joined, *gone]
        if lines:
            # The number is that after all of them.
            lines[-1] += f"; now {text.plural(len(self._workers), 'worker')}"
        for node, reason in self._refused:
            lines.append(f"the worker on {node} was refused: {reason}")
        self._joined, self._left, self._died, self._refused = [], {}, {}, {}
        self._left_first = False
        self._lost_trials = []
        return lines

    def _continue_text(self, trials: Sequence[int]) -> str:
        """Return what the trials of workers that are gone do; empty if there are none."""
        known = sum(self._has_checkpoint(trial) for trial in trials)
        unknown = len(trials) - known
        resume = "resumes from its" if known == 1 else "resume from their"
        words = [f"{text.plural(known, 'trial')} {resume} last checkpoint"] if known else []
        start = "starts" if unknown == 1 else "start"
        words += [f"{text.plural(unknown, 'trial')} {start} again"] if unknown else []
        return "".join(f"; {word}" for word in words)

    def _retry_lines(self) -> list[str]:
        """Return one line for each cause of attempts that are retried."""
        by_cause: dict[Cause | None, list[Attempt]] = {}
        for attempt in self._retried.values():
            by_cause.setdefault(attempt.cause, []).append(attempt)
        lines = [self._retry_line(cause, attempts) for cause, attempts in by_cause.items()]
        self._retried, self._next = {}, {}
        return lines

    def _retry_line(self, cause: Cause | None, attempts: Sequence[Attempt]) -> str:
        first = attempts[0]
        following = [self._next[attempt.id] for attempt in attempts if attempt.id in self._next]
        given = _given(cause, following, first)
        reason = text.shorten(first.reason, _REASON_CHARACTERS)
        trial = f"trial {first.id.trial} on {'+'.join(first.nodes)}: {reason}"
        if len(attempts) == 1:
            if not following:
                return f"{trial}; it will be retried"
            return f"{trial}; retrying on {'+'.join(following[0].nodes)}{given}"
        left = len(attempts) - len(following)
        retried = f"{len(following) if left else 'all'} retried{given}"
        retried += f", {left} will be" if left else ""
        return f"{len(attempts)} attempts ended ({cause}), such as {trial}; {retried}"

    def _check_memory(self, attempt: Attempt) -> None:
        granted = sum(rank.memory_bytes for rank in attempt.placement.ranks)
        used = attempt.usage
        if not self._memory_bytes or not granted or used is None:  # 0 is unknown
            return
        if used.peak_memory_bytes <= granted:
            return
        self._show_once(
            "memory",
            f"trial {attempt.id.trial} uses {size(used.peak_memory_bytes)} of memory, but "
            f"--memory-per-trial is {size(granted)}: the machine may run out of memory. "
            f"Stop, then resume with --memory-per-trial {_to_ask_for(used.peak_memory_bytes)}",
        )

    def _check_gpus(self, attempt: Attempt) -> None:
        """Notify if a trial that holds GPUs trains without them."""
        gpus = [gpu for rank in attempt.placement.ranks for gpu in rank.gpus]
        used = attempt.usage
        if not gpus or used is None or used.peak_gpu_memory_bytes != 0:
            return
        # After several steps a trial has opened its GPUs, if it ever does.
        if attempt.outcome is Outcome.FINISHED or used.seconds_per_step is not None:
            self._show_once(
                "gpus",
                f"trial {attempt.id.trial} holds {text.plural(len(gpus), 'GPU')} but uses none. "
                "If the model trains on cores, stop, then resume with --gpus-per-trial 0; if not, "
                "run `hptune doctor`",
            )

    def _show_once(self, kind: str, line: str) -> None:
        if kind not in self._shown:
            self._shown.add(kind)
            self._urgent.append(line)


def _requested(event: UserRequested) -> list[str]:
    """Return what a user asked for, one line for each; a pause has a line of its own."""
    by = text.clean(event.by)
    match event.action:
        case UserAction.STOP_TRIAL:
            return [f"trial {event.trial} is stopped by {by}"]
        case UserAction.ENQUEUE:
            return [
                f"a trial is enqueued by {by}: {' '.join(text.assignments(each.params))}"
                for each in event.added
            ]
        case UserAction.RESUME:
            return [f"resumed by {by}: trials start again"]
        case _:
            return []


def _given(cause: Cause | None, following: Sequence[Attempt], before: Attempt) -> str:
    """Return what retries after an end for lack of memory are given, in words; else nothing."""
    if not following:
        return ""
    if cause is Cause.DEVICE_OUT_OF_MEMORY and before.placement.gpu_share < 1:
        return " with a whole GPU" if following[0].placement.gpu_share == 1 else ""
    most = max(each.placement.memory_bytes for each in following)
    if cause is not Cause.OUT_OF_MEMORY or not most:
        return ""
    return f" with {'up to ' if len(following) > 1 else ''}{size(most)} of memory"


def _workers(nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        return f"the worker on {nodes[0]}"
    if len(set(nodes)) == 1:
        return f"{len(nodes)} workers on {nodes[0]}"
    named = [node + (f" ({count})" if count > 1 else "") for node, count in Counter(nodes).items()]
    return f"{len(nodes)} workers (on {text.some(named, _NAMED)})"


def _to_ask_for(used_bytes: int) -> str:
    """Return an amount of memory with a margin, as the command line takes it."""
    unit, name = (1e9, "GB") if used_bytes >= 1e9 else (1e6, "MB")
    return f"{math.ceil(used_bytes * _MEMORY_MARGIN / unit)}{name}"

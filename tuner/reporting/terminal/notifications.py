"""What the user should know of workers and attempts while a study runs: each thing said once.

There may be thousands of workers, so news of one kind are told together.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from ...core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from ...core.trial import Attempt, AttemptId, Cause, Outcome
from .. import text

QUIET_SECONDS = 10.0
"""The shortest time between two tellings; what happens in between is told together."""

_NAMED = 3
_TOLD_OTHERWISE = (Cause.KILLED, Cause.WORKER_LOST, Cause.MASTER_LOST)
"""A lost worker is told of as such; and what is killed may be so because the study ends."""

_ROOM = 1.25
"""Memory to ask for, by the most that was seen: what one trial used, another may exceed."""


class Notifications:
    """Takes note of what is written down, and tells of it in lines.

    Args:
        workers_are_known: Whether the header speaks of the first workers already, since the run
            starts them itself; only what becomes of them is told then.
        memory_bytes: What the user says that a trial needs; 0 where that was left open.
    """

    def __init__(self, *, workers_are_known: bool = False, memory_bytes: int = 0) -> None:
        self._joins_are_news = not workers_are_known
        self._memory_bytes = memory_bytes
        self._nodes: dict[str, str] = {}
        self._leaving: dict[str, str] = {}
        self._joined: list[WorkerJoined] = []
        self._left: list[tuple[str, str]] = []
        self._died: dict[str, str] = {}
        self._interrupted = 0
        self._retried: dict[AttemptId, Attempt] = {}
        self._next: dict[AttemptId, Attempt] = {}
        self._refused: dict[tuple[str, str], None] = {}
        self._said: set[str] = set()
        self._urgent: list[str] = []
        self._quiet_until = -math.inf

    def heed(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> None:
        """Take note of what happened, and of the attempts that were changed by it."""
        attempts, died, ended = tuple(attempts), set(), set()
        lost_at = {each.placement.worker for each in attempts if each.outcome is Outcome.LOST}
        for event in events:
            match event:
                case WorkerJoined():
                    self._nodes[event.worker] = event.node
                    if self._joins_are_news:
                        self._joined.append(event)
                case WorkerLeaving():
                    self._leaving.setdefault(event.worker, event.reason)
                case WorkerLeft() if event.worker in self._nodes:
                    node = self._nodes.pop(event.worker)
                    # A worker of our own that comes back is news, too.
                    self._joins_are_news = True
                    reason = self._leaving.pop(event.worker, None)
                    if reason is not None and event.worker not in lost_at:
                        self._left.append((node, reason))
                    else:
                        died.add(event.worker)
                        self._died[event.worker] = node
                case WorkerRefused():
                    self._refused[event.node, event.reason] = None
                case AttemptEnded():
                    ended.add(event.attempt)
                case AttemptWaits():
                    waits = f"trial {event.attempt.trial} {event.reason}; others may have to, too"
                    self._say_once("waits", waits)
                case _:
                    pass
        for attempt in attempts:
            if attempt.placement.worker in died and attempt.outcome is Outcome.LOST:
                self._interrupted += 1
            if attempt.id in ended:
                self._look_at_end(attempt)
            if (before := _before(attempt)) in self._retried:
                self._next[before] = attempt
            self._look_at_memory(attempt)
            self._look_at_gpus(attempt)

    def lines(self, now: float) -> list[str]:
        """What is to be said now.

        Args:
            now: The time in seconds since the epoch.
        """
        told, self._urgent = self._urgent, []
        if now < self._quiet_until:
            return told
        told += self._of_workers() + self._of_retries()
        if told:
            self._quiet_until = now + QUIET_SECONDS
        return told

    def _of_workers(self) -> list[str]:
        told = []
        if self._joined:
            cores = sum(len(each.capacity.cpus) for each in self._joined)
            gpus = sum(len(each.capacity.gpus) for each in self._joined)
            has = text.plural(cores, "core") + (f", {text.plural(gpus, 'GPU')}" if gpus else "")
            who = _workers([each.node for each in self._joined])
            told.append(f"{who} joined, with {has}{self._now_there()}")
        by_reason: dict[str, list[str]] = {}
        for node, reason in self._left:
            by_reason.setdefault(reason, []).append(node)
        for reason, nodes in by_reason.items():
            why = f" ({reason})" if reason else ""
            told.append(f"{_workers(nodes)} left{why}{self._now_there()}")
        if self._died:
            goes_on = ""
            if self._interrupted:
                go = "trial goes" if self._interrupted == 1 else "trials go"
                goes_on = f", {self._interrupted} {go} on from the last checkpoint"
            nodes = list(self._died.values())
            were = "was" if len(nodes) == 1 else "were"
            who = _workers(nodes)
            if len(nodes) == 1 and nodes[0] in self._nodes.values():
                who += f" at {next(iter(self._died))}"  # there are others
            told.append(f"{who} {were} lost{goes_on}{self._now_there()}")
        for node, reason in self._refused:
            told.append(f"the worker on {node} was refused: {reason}")
        self._joined, self._left, self._died, self._refused = [], [], {}, {}
        self._interrupted = 0
        return told

    def _of_retries(self) -> list[str]:
        """One line for each way in which attempts ended that are not held against their trials."""
        by_cause: dict[Cause | None, list[Attempt]] = {}
        for attempt in self._retried.values():
            by_cause.setdefault(attempt.cause, []).append(attempt)
        told = [self._of_retry(cause, attempts) for cause, attempts in by_cause.items()]
        self._retried, self._next = {}, {}
        return told

    def _of_retry(self, cause: Cause | None, attempts: Sequence[Attempt]) -> str:
        first, *others = attempts
        following = [self._next[each.id] for each in attempts if each.id in self._next]
        given = _given(cause, following, first)
        trial = f"trial {first.id.trial} on {first.node}: " + text.shorten(
            first.reason, text.FAILURE_CHARACTERS
        )
        if not others:
            again = (
                f"tried again on {following[0].node}{given}" if following else "to be tried again"
            )
            return f"{trial}; {again}"
        again = f"{len(following)} tried again{given}, {len(attempts) - len(following)} to be"
        if len(following) == len(attempts):
            again = f"all tried again{given}"
        return f"{len(attempts)} attempts: {cause}, such as {trial}; {again}"

    def _now_there(self) -> str:
        return f"; {text.plural(len(self._nodes), 'worker')} now"

    def _look_at_end(self, attempt: Attempt) -> None:
        """Remember an attempt whose bad end is not held against its trial, which is tried again."""
        if attempt.outcome is Outcome.LOST and attempt.cause not in _TOLD_OTHERWISE:
            self._retried[attempt.id] = attempt

    def _look_at_memory(self, attempt: Attempt) -> None:
        granted, used = attempt.placement.memory_bytes, attempt.usage
        if not self._memory_bytes or used is None or used.peak_memory_bytes <= granted:
            return
        self._say_once(
            "memory",
            f"trial {attempt.id.trial} uses {text.size(used.peak_memory_bytes)} of memory, but "
            f"--memory-per-trial is {text.size(granted)}: where many run, the machine may run out "
            f"of it. Stop, and resume with --memory-per-trial {_more(used.peak_memory_bytes)}",
        )

    def _look_at_gpus(self, attempt: Attempt) -> None:
        """See whether a trial that holds GPUs has trained without them."""
        gpus, used = attempt.placement.gpus, attempt.usage
        if not gpus or used is None or used.peak_gpu_memory_bytes != 0:
            return
        # What trains for several steps has come to its GPUs by now.
        if attempt.outcome is Outcome.FINISHED or used.seconds_per_step is not None:
            self._say_once(
                "gpus",
                f"trial {attempt.id.trial} holds {text.plural(len(gpus), 'GPU')}, but has not "
                "opened any: if the model trains on cores, stop, and resume with "
                "--gpus-per-trial 0; if not, `hptune doctor` says why no GPU is seen",
            )

    def _say_once(self, kind: str, line: str) -> None:
        if kind not in self._said:
            self._said.add(kind)
            self._urgent.append(line)


def _before(attempt: Attempt) -> AttemptId:
    return AttemptId(attempt.id.trial, attempt.id.number - 1)


def _given(cause: Cause | None, following: Sequence[Attempt], before: Attempt) -> str:
    """What trials that ran out of memory are given now, in words; empty for others."""
    if not following:
        return ""
    if cause is Cause.DEVICE_OUT_OF_MEMORY and before.placement.gpu_share < 1:
        return " with a whole GPU" if following[0].placement.gpu_share == 1 else ""
    most = max(each.placement.memory_bytes for each in following)
    if cause is not Cause.OUT_OF_MEMORY or not most:
        return ""
    return f" with {'up to ' if len(following) > 1 else ''}{text.size(most)} of memory"


def _workers(nodes: Sequence[str]) -> str:
    if len(nodes) == 1:
        return f"the worker on {nodes[0]}"
    if len(set(nodes)) == 1:
        return f"{len(nodes)} workers on {nodes[0]}"
    named = [node + (f" ({count})" if count > 1 else "") for node, count in Counter(nodes).items()]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return f"{len(nodes)} workers (on {', '.join(named[:_NAMED])}{more})"


def _more(used_bytes: int) -> str:
    """An amount to ask for, as the command line takes it."""
    unit, name = (1e9, "GB") if used_bytes >= 1e9 else (1e6, "MB")
    return f"{math.ceil(used_bytes * _ROOM / unit)}{name}"

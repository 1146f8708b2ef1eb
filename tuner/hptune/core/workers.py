"""The roster of a study's workers: who there is, and on which nodes attempts are lost.

It is fed with the events of the ledger alone, so a master that resumes a study knows what the last
one knew. The engine has one, which everybody reads that acts on what is in the ledger. Those who
handle events before the engine does have one of their own: `executors.parallel_state`, and
`scaling.step_runner`, which runs before the study is opened.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from .attempt import Attempt, Cause
from .messages import (
    NodeExcluded,
    StudyOpened,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from .node_failures import FAILING, WHY, Loss, NodeFailures
from .resources import Capacity

RosterEvent = StudyOpened | WorkerJoined | WorkerRefused | WorkerLeaving | WorkerLeft | NodeExcluded


class Phase(enum.StrEnum):
    """What a worker is to the study."""

    JOINED = "joined"
    DRAINING = "draining"
    """It is there, and takes no more attempts."""
    LEFT = "left"
    REFUSED = "refused"
    AWAY = "away"
    """It was there for the last master. If it joins again, nobody has restarted it."""


TRANSITIONS: Mapping[tuple[Phase | None, type[RosterEvent]], Phase] = {
    (None, WorkerJoined): Phase.JOINED,
    (None, WorkerRefused): Phase.REFUSED,
    (Phase.JOINED, WorkerLeaving): Phase.DRAINING,
    (Phase.JOINED, NodeExcluded): Phase.DRAINING,
    (Phase.JOINED, WorkerLeft): Phase.LEFT,
    (Phase.JOINED, StudyOpened): Phase.AWAY,
    (Phase.DRAINING, WorkerLeft): Phase.LEFT,
    (Phase.DRAINING, StudyOpened): Phase.AWAY,
    (Phase.LEFT, WorkerJoined): Phase.JOINED,
    (Phase.LEFT, WorkerRefused): Phase.REFUSED,
    (Phase.REFUSED, WorkerJoined): Phase.JOINED,
    (Phase.REFUSED, WorkerRefused): Phase.REFUSED,
    (Phase.AWAY, WorkerJoined): Phase.JOINED,
    (Phase.AWAY, WorkerRefused): Phase.REFUSED,
    (Phase.AWAY, StudyOpened): Phase.AWAY,
}
"""The next phase of a worker, by the present one (None: unknown) and what happens.

An event without a row is late or repeated, and changes nothing. When another master opens the
study, workers without a row are forgotten."""


_NONE = Capacity(())


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A worker at one instant.

    Attributes:
        name: Its name.
        node: The machine that it runs on.
        phase: What it is to the study.
        since: Time of the event that brought it there, in seconds since the epoch.
        capacity: What it has.
        ends_at: When it must leave, in seconds since the epoch; None if unknown.
        gang: The name of the workers that it was granted together with; empty if by itself.
        reason: Why it was refused or drained.
        was_drained: Whether it took no more attempts, before it left or until now.
        lease_seconds: How long it may report nothing; None if others watch it.
    """

    name: str
    node: str
    phase: Phase
    since: float
    capacity: Capacity = _NONE
    ends_at: float | None = None
    gang: str = ""
    reason: str = ""
    was_drained: bool = False
    lease_seconds: float | None = None

    @property
    def is_there(self) -> bool:
        """Whether it is connected and was not refused."""
        return self.phase in (Phase.JOINED, Phase.DRAINING)

    @property
    def is_program(self) -> bool:
        """Whether it is a program that asked for one trial, which says nothing of its node."""
        return self.lease_seconds is not None


class Workers:
    """The roster.

    A node *fails* if attempts are lost there again and again. It is *excluded* by the event that
    answers `to_exclude`, or that says why jobs fail there: its workers are drained, and so is one
    that returns there to the next master. Both end when somebody starts a worker there, or asks for
    it as the study is resumed.

    Attributes:
        refused: The last worker that was refused and why; empty if this master refused none.
    """

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self._on_node = Counter[str]()
        self._failures = NodeFailures()
        self._excluded: dict[str, str] = {}
        self.refused = ""

    # --- events -----------------------------------------------------------------------------

    def handle(self, event: RosterEvent) -> list[Worker]:
        """Take in what happened; returns the workers that it changed, as they are then."""
        match event:
            case StudyOpened():
                self.refused = ""
                if event.retries_nodes:
                    self._failures = NodeFailures()
                    self._excluded.clear()
                changed = self._move(list(self._workers), event)
                self._workers = {each.name: each for each in changed}
                return changed
            case NodeExcluded(node=node, reason=reason):
                self._excluded[node] = reason
                there = [each.name for each in self if each.node == node and not each.is_program]
                return self._move(there, event)
            case WorkerJoined(worker=name, node=node):
                before = self._workers.get(name)
                changed = self._move([name], event)
                if event.lease_seconds is not None:
                    return changed
                if changed and (before is None or before.phase is not Phase.AWAY):
                    self._failures.restart(node)
                    self._excluded.pop(node, None)
                elif changed and node in self._excluded:
                    changed += self._move(
                        [name], NodeExcluded(event.at, node, self._excluded[node])
                    )
                return changed
            case WorkerRefused():
                self.refused = f"{event.node} was refused: {event.reason}"
        return self._move([event.worker], event)

    def attempt_ended(self, attempt: Attempt, cause: Cause, at: float) -> None:
        """Take in the end of an attempt, which may say something about its node."""
        self._failures.ended(attempt, cause, at)

    def _move(self, names: list[str], event: RosterEvent) -> list[Worker]:
        """Move workers by their rows in the table; returns those that have one."""
        changed = []
        for name in names:
            before = self._workers.get(name)
            phase = TRANSITIONS.get((None if before is None else before.phase, type(event)))
            if phase is None:
                continue
            after = _moved(before, phase, event)
            if before is not None:
                self._count(before, -1)
            self._count(after, 1)
            self._workers[name] = after
            if after.is_program and phase is Phase.LEFT:
                del self._workers[name]  # no other has its name, and there are as many as trials
            changed.append(after)
        return changed

    def _count(self, worker: Worker, sign: int) -> None:
        if worker.is_program or not worker.is_there:
            return
        self._on_node[worker.node] += sign
        if not self._on_node[worker.node]:
            del self._on_node[worker.node]

    # --- questions --------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Worker]:
        """Iterate over the workers that are there, in the order in which they first joined."""
        return (worker for worker in self._workers.values() if worker.is_there)

    def __len__(self) -> int:
        return sum(worker.is_there for worker in self._workers.values())

    def __contains__(self, name: str) -> bool:
        worker = self._workers.get(name)
        return worker is not None and worker.is_there

    def get(self, name: str) -> Worker | None:
        """Return what is known of a worker; None if nothing is."""
        return self._workers.get(name)

    def node(self, name: str) -> str:
        """Return the machine that a worker runs on; its name if that is unknown."""
        worker = self._workers.get(name)
        return name if worker is None else worker.node

    def count_on(self, node: str) -> int:
        """Return how many workers are there on a node, without programs."""
        return self._on_node[node]

    @property
    def unfit_nodes(self) -> Mapping[str, str]:
        """The nodes on which attempts are lost again and again, or jobs fail, and why."""
        found = {node: why for node, why in self._excluded.items() if why}
        return dict.fromkeys(self._failures.nodes, WHY) | found

    @property
    def to_exclude(self) -> str:
        """The failing node to exclude next; empty while attempts are lost on all nodes there are.

        What fails everywhere, such as a file server, is no fault of the nodes.
        """
        found = next((node for node in self._failures.nodes if node not in self._excluded), "")
        return "" if all(map(self._failures.any_on, self._on_node)) else found

    def losses_on(self, node: str) -> tuple[Loss, ...]:
        """Return the losses that are the fault of a failing node, and not of the one trial."""
        return self._failures.losses(node)


def _moved(before: Worker | None, phase: Phase, event: RosterEvent) -> Worker:
    match event:
        case WorkerJoined():
            return Worker(
                name=event.worker,
                node=event.node,
                phase=phase,
                since=event.at,
                capacity=event.capacity,
                ends_at=event.ends_at,
                gang=event.gang,
                lease_seconds=event.lease_seconds,
            )
        case WorkerRefused():
            return Worker(
                name=event.worker, node=event.node, phase=phase, since=event.at, reason=event.reason
            )
    assert before is not None, "the table has rows of unknown workers for the above alone"
    if phase is not Phase.DRAINING:
        return replace(before, phase=phase, since=event.at)
    reason = event.reason if isinstance(event, WorkerLeaving | NodeExcluded) else ""
    reason = reason or FAILING
    return replace(before, phase=phase, since=event.at, reason=reason, was_drained=True)

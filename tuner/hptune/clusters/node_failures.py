"""Counting the failures of nodes, so that trials avoid those that fail again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from ..core.attempt import Attempt, Cause, Outcome
from ..core.messages import AttemptEnded, Event, WorkerJoined, WorkerLeft

MAX_NODE_FAILURES = 3
"""How many attempts in a row are killed or lost on a node until it takes no more.

Less than the retries of a trial whose worker is lost: the node is free again at once, and would
otherwise use up those of one trial after the other. Kills of one trial alone are not enough, as it
may kill itself."""

FAILING = f"{MAX_NODE_FAILURES} attempts in a row were killed or lost there"
"""Why a node takes no more, for the user."""

_OF_NODE = (Cause.KILLED, Cause.WORKER_LOST)


class NodeFailures:
    """Counts, by node, how many attempts in a row were killed or lost there.

    They are lost with their worker, or by themselves, as on a node whose disk fails. An attempt
    that succeeds clears its nodes. Failures of the trial itself (an exception, too much memory) and
    deliberate stops (a release) count against no node, nor does an attempt of several nodes: which
    of them failed is unknown.
    """

    def __init__(self) -> None:
        self._failures: defaultdict[str, list[int | None]] = defaultdict(list)
        """For each failure in a row, by node, the trial that was killed; None if it was lost."""
        self._nodes: dict[str, str] = {}

    def on_events(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> list[str]:
        """Count what happened; returns the nodes that have failed too often.

        Args:
            events: What happened.
            attempts: The attempts that it changed.
        """
        causes = {
            event.attempt: event.ending.cause
            for event in events
            if isinstance(event, AttemptEnded) and event.ending.cause in _OF_NODE
        }
        lost = {event.worker for event in events if isinstance(event, WorkerLeft)}
        failed: dict[str, int | None] = {}
        for attempt in attempts:
            if attempt.outcome in (Outcome.FINISHED, Outcome.PRUNED):
                for node in attempt.nodes:
                    self._failures.pop(node, None)
            elif (
                attempt.outcome in (Outcome.LOST, Outcome.ERRORED)
                and len(attempt.nodes) == 1
                and (attempt.id in causes or attempt.placement.worker in lost)
            ):
                is_kill = causes.get(attempt.id) is Cause.KILLED
                failed[attempt.node] = attempt.id.trial if is_kill else None
        for node, killed in failed.items():
            self._failures[node].append(killed)
        self._observe_workers(events)
        return sorted(filter(self._is_failing, failed))

    def _is_failing(self, node: str) -> bool:
        failures = self._failures[node]
        is_of_one_trial = None not in failures and len(set(failures)) == 1
        return len(failures) >= MAX_NODE_FAILURES and not is_of_one_trial

    def _observe_workers(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, WorkerLeft):
                self._nodes.pop(event.worker, None)
            elif isinstance(event, WorkerJoined):
                self._nodes[event.worker] = event.node
                if self._is_failing(event.node):
                    del self._failures[event.node]  # somebody has started a worker there again

    @property
    def failing_workers(self) -> list[str]:
        """The workers on nodes that have failed too often; none if all nodes fail.

        What fails everywhere, such as a file server, is no fault of the nodes.
        """
        if all(self._failures[node] for node in self._nodes.values()):
            return []
        return [worker for worker, node in self._nodes.items() if self._is_failing(node)]

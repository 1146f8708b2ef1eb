"""Counting the failures of nodes, so that trials avoid those that fail again and again."""

from __future__ import annotations

from dataclasses import dataclass

from .attempt import FROM_OUTSIDE, Attempt, Cause

MAX_NODE_FAILURES = 3
"""How many failures in a row, each of them after the one before, until a node takes no more.

Less than the retries of a trial whose worker is lost: the node is free again at once, and would
otherwise use up those of one trial after the other. Kills of one trial alone are not enough, as it
may kill itself."""

WHY = f"{MAX_NODE_FAILURES} attempts in a row were killed or lost there"
FAILING = f"{WHY}; restart it to use it"
"""Why a worker on such a node takes no more, for the user."""

_WELL = (Cause.RETURNED, Cause.PRUNED, Cause.PAUSED)


@dataclass(frozen=True, slots=True)
class Loss:
    """An attempt that was killed or lost.

    Attributes:
        trial: The trial's number.
        cause: How it ended.
        at: When it ended, in seconds since the epoch.
    """

    trial: int
    cause: Cause
    at: float


class NodeFailures:
    """Counts, by node, how often in a row attempts were killed or lost there.

    They are lost with their worker, or by themselves, as on a node whose disk fails. Attempts that
    were on the node together count once. An attempt that succeeds clears its nodes. Failures of the
    trial itself (an exception, too much memory) and deliberate stops (a release) count against no
    node, nor does an attempt of several nodes: which of them failed is unknown.
    """

    def __init__(self) -> None:
        self._failures: dict[str, list[list[Loss]]] = {}
        """The failures in a row, by node: for each, the attempts that were lost."""

    def ended(self, attempt: Attempt, cause: Cause, at: float) -> None:
        """Count the end of an attempt."""
        if cause in _WELL:
            for node in attempt.nodes:
                self._failures.pop(node, None)
        elif cause in FROM_OUTSIDE and len(attempt.nodes) == 1:
            failures = self._failures.setdefault(attempt.node, [])
            loss = Loss(attempt.id.trial, cause, at)
            if failures and attempt.placed_at < failures[-1][0].at:
                failures[-1].append(loss)
            else:
                failures.append([loss])

    def restart(self, node: str) -> None:
        """Begin again with a failing node, on which somebody has started a worker."""
        if self._is_failing(node):
            del self._failures[node]

    def any_on(self, node: str) -> bool:
        """Return whether the last attempt that says something about a node was lost there."""
        return node in self._failures

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that have failed too often."""
        return tuple(filter(self._is_failing, self._failures)) if self._failures else ()

    def losses(self, node: str) -> tuple[Loss, ...]:
        """Return the losses on a node; none if they are of one trial alone."""
        found = tuple(loss for each in self._failures.get(node, ()) for loss in each)
        return found if len({each.trial for each in found}) > 1 else ()

    def _is_failing(self, node: str) -> bool:
        failures = self._failures.get(node, [])
        if len(failures) < MAX_NODE_FAILURES:
            return False
        losses = [loss for failure in failures for loss in failure]
        return len({each.trial for each in losses}) > 1 or any(
            each.cause is not Cause.KILLED for each in losses
        )

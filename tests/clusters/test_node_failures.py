"""Nodes that a study's Slurm jobs avoid."""

from __future__ import annotations

from tuner.clusters.node_failures import MAX_NODE_FAILURES, NodeFailures
from tuner.core.attempt import Attempt, AttemptId, Cause, Ending, Outcome
from tuner.core.messages import AttemptEnded, WorkerLeft
from tuner.core.resources import Placement


def attempt(trial: int, node: str, outcome: Outcome) -> Attempt:
    placement = Placement(worker=f"on-{node}", cpus=(0,))
    return Attempt(AttemptId(trial, 1), placement, node, 1.0, 2.0, 3.0, outcome)


def ended(
    failures: NodeFailures, trial: int, node: str, cause: Cause, outcome: Outcome = Outcome.LOST
) -> list[str]:
    event = AttemptEnded(3.0, AttemptId(trial, 1), Ending(cause))
    return failures.on_events([event], [attempt(trial, node, outcome)])


def test_three_kills_in_a_row_make_a_node_one_to_avoid() -> None:
    failures = NodeFailures()
    returned = [ended(failures, i, "bad", Cause.KILLED) for i in range(MAX_NODE_FAILURES)]
    assert returned == [[], [], ["bad"]]
    assert ended(failures, 9, "good", Cause.KILLED) == []


def test_a_success_clears_a_node() -> None:
    failures = NodeFailures()
    for i in range(9):
        assert ended(failures, i, "node", Cause.KILLED, Outcome.ERRORED) == []
        assert ended(failures, i, "node", Cause.KILLED) == []
        assert ended(failures, i, "node", Cause.RETURNED, Outcome.FINISHED) == []


def test_a_worker_lost_with_many_attempts_counts_once() -> None:
    failures = NodeFailures()
    attempts = [attempt(i, "node", Outcome.LOST) for i in range(8)]
    gone = WorkerLeft(3.0, "on-node", "its connection broke")
    returned = [failures.on_events([gone], attempts) for _ in range(MAX_NODE_FAILURES)]
    assert returned == [[], [], ["node"]]


def test_trials_faults_and_releases_blame_no_node() -> None:
    failures = NodeFailures()
    for i in range(9):
        assert ended(failures, i, "node", Cause.EXCEPTION, Outcome.ERRORED) == []
        assert ended(failures, i, "node", Cause.OUT_OF_MEMORY) == []
        assert ended(failures, i, "node", Cause.RELEASED, Outcome.RELEASED) == []
        assert ended(failures, i, "node", Cause.MASTER_LOST) == []

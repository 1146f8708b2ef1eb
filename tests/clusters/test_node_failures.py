"""Which nodes a study's Slurm jobs avoid."""

from __future__ import annotations

from tuner.clusters.slurm_jobs import TROUBLES_OF_A_NODE, NodeTroubles
from tuner.core.messages import AttemptEnded, WorkerLeft
from tuner.core.resources import Placement
from tuner.core.trial import Attempt, AttemptId, Cause, Ending, Outcome


def attempt(trial: int, node: str, outcome: Outcome) -> Attempt:
    placement = Placement(worker=f"on-{node}", cpus=(0,))
    return Attempt(AttemptId(trial, 1), placement, node, 1.0, 2.0, 3.0, outcome)


def ended(
    troubles: NodeTroubles, trial: int, node: str, cause: Cause, outcome: Outcome = Outcome.LOST
) -> list[str]:
    event = AttemptEnded(3.0, AttemptId(trial, 1), Ending(cause))
    return troubles.heed([event], [attempt(trial, node, outcome)])


def test_three_kills_in_a_row_make_a_node_one_to_avoid() -> None:
    troubles = NodeTroubles()
    told = [ended(troubles, i, "bad", Cause.KILLED) for i in range(TROUBLES_OF_A_NODE)]
    assert told == [[], [], ["bad"]]
    assert ended(troubles, 9, "good", Cause.KILLED) == []


def test_a_success_clears_a_node() -> None:
    troubles = NodeTroubles()
    for i in range(9):
        assert ended(troubles, i, "node", Cause.KILLED, Outcome.ERRORED) == []
        assert ended(troubles, i, "node", Cause.KILLED) == []
        assert ended(troubles, i, "node", Cause.RETURNED, Outcome.FINISHED) == []


def test_a_worker_lost_with_many_attempts_counts_once() -> None:
    troubles = NodeTroubles()
    attempts = [attempt(i, "node", Outcome.LOST) for i in range(8)]
    gone = WorkerLeft(3.0, "on-node", "its connection broke")
    told = [troubles.heed([gone], attempts) for _ in range(TROUBLES_OF_A_NODE)]
    assert told == [[], [], ["node"]]


def test_trials_faults_and_releases_blame_no_node() -> None:
    troubles = NodeTroubles()
    for i in range(9):
        assert ended(troubles, i, "node", Cause.EXCEPTION, Outcome.ERRORED) == []
        assert ended(troubles, i, "node", Cause.OUT_OF_MEMORY) == []
        assert ended(troubles, i, "node", Cause.RELEASED, Outcome.RELEASED) == []
        assert ended(troubles, i, "node", Cause.MASTER_LOST) == []

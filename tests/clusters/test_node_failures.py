"""Nodes that a study avoids."""

from __future__ import annotations

from hptune.clusters.existing import ExistingScheduler
from hptune.clusters.node_failures import FAILING, MAX_NODE_FAILURES, NodeFailures
from hptune.core.attempt import Attempt, AttemptId, Cause, Ending, Outcome
from hptune.core.messages import AttemptEnded, WorkerJoined, WorkerLeft
from hptune.core.resources import Capacity, Placement


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


def test_a_trial_that_kills_itself_again_and_again_blames_no_node() -> None:
    failures = NodeFailures()
    own = [ended(failures, 5, "node", Cause.KILLED) for _ in range(MAX_NODE_FAILURES)]
    assert own == [[], [], []]
    assert ended(failures, 6, "node", Cause.KILLED) == ["node"]


def test_a_node_whose_disk_fails_is_one_to_avoid_although_its_worker_stays() -> None:
    failures = NodeFailures()
    returned = [ended(failures, i, "bad", Cause.WORKER_LOST) for i in range(MAX_NODE_FAILURES)]
    assert returned == [[], [], ["bad"]]


def test_workers_of_others_on_such_a_node_take_no_more_until_they_are_started_again() -> None:
    cluster = ExistingScheduler("tls://127.0.0.1:1")

    def lose(number: int, node: str) -> None:
        event = AttemptEnded(3.0, AttemptId(number, 1), Ending(Cause.WORKER_LOST))
        cluster.on_events([event], [attempt(number, node, Outcome.LOST)])

    def join(worker: str, node: str) -> None:
        cluster.on_events([WorkerJoined(1.0, worker, node, Capacity((0,)))], [])

    join("on-bad", "bad")
    for number in range(MAX_NODE_FAILURES):
        lose(number, "bad")
    assert cluster.drained() == {}, "there is no other"
    join("on-good", "good")
    assert cluster.drained() == {"on-bad": f"{FAILING}; restart it to use it"}
    lose(9, "good")
    assert cluster.drained() == {}, "the same happens everywhere"
    cluster.on_events([], [attempt(10, "good", Outcome.FINISHED)])
    assert [*cluster.drained()] == ["on-bad"]
    cluster.on_events([WorkerLeft(4.0, "on-bad", "")], [])
    assert cluster.drained() == {}
    join("on-bad-again", "bad")
    lose(11, "bad")
    assert cluster.drained() == {}


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

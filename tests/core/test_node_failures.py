"""Which nodes fail, by how the attempts on them ended."""

from __future__ import annotations

import itertools

from hptune.core.attempt import Attempt, AttemptId, Cause
from hptune.core.node_failures import MAX_NODE_FAILURES, NodeFailures
from hptune.core.resources import Placement


class Nodes(NodeFailures):
    """Failures, of attempts that run one after another."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def end(self, trial: int, cause: Cause, node: str = "node", *, others: str = "") -> list[str]:
        """End an attempt that begins now; returns the failing nodes."""
        placement = Placement(worker=f"on-{node}", cpus=(0,))
        peers = tuple(others)
        self.now += 1.0
        attempt = Attempt(AttemptId(trial, 1), placement, node, self.now, peer_nodes=peers)
        self.now += 1.0
        self.ended(attempt, cause, self.now)
        return [*self.nodes]


def test_three_kills_in_a_row_make_a_node_fail() -> None:
    nodes = Nodes()
    found = [nodes.end(i, Cause.KILLED, "bad") for i in range(MAX_NODE_FAILURES)]
    assert found == [[], [], ["bad"]]
    assert nodes.end(9, Cause.KILLED, "good") == ["bad"]


def test_a_trial_that_kills_itself_again_and_again_blames_no_node() -> None:
    nodes = Nodes()
    assert [nodes.end(5, Cause.KILLED) for _ in range(MAX_NODE_FAILURES)] == [[], [], []]
    assert nodes.end(6, Cause.KILLED) == ["node"]


def test_a_node_whose_disk_fails_is_one_although_its_worker_stays() -> None:
    nodes = Nodes()
    found = [nodes.end(5, Cause.WORKER_LOST) for _ in range(MAX_NODE_FAILURES)]
    assert found == [[], [], ["node"]]
    assert nodes.losses("node") == (), "they are of one trial, so they may be its fault"
    nodes.end(6, Cause.WORKER_LOST)
    assert [each.trial for each in nodes.losses("node")] == [5, 5, 5, 6]


def test_a_success_clears_a_node() -> None:
    nodes = Nodes()
    for i, success in itertools.product(range(4), (Cause.RETURNED, Cause.PRUNED, Cause.PAUSED)):
        assert nodes.end(i, Cause.KILLED) == []
        assert nodes.end(i + 9, Cause.KILLED) == []
        assert nodes.any_on("node")
        assert nodes.end(i, success) == []
        assert not nodes.any_on("node")


def test_attempts_that_were_there_together_count_once() -> None:
    nodes = NodeFailures()
    placement = Placement(worker="w", cpus=(0,))
    for failure in range(MAX_NODE_FAILURES):
        assert nodes.nodes == ()
        for trial in range(8):
            attempt = Attempt(AttemptId(trial, failure), placement, "node", 10.0 * failure)
            nodes.ended(attempt, Cause.WORKER_LOST, 10.0 * failure + trial + 1.0)
    assert nodes.nodes == ("node",)
    assert len(nodes.losses("node")) == 8 * MAX_NODE_FAILURES


def test_trials_faults_releases_and_attempts_of_several_nodes_blame_no_node() -> None:
    nodes = Nodes()
    for i in range(9):
        for cause in (Cause.EXCEPTION, Cause.OUT_OF_MEMORY, Cause.RELEASED, Cause.MASTER_LOST):
            assert nodes.end(i, cause) == []
        assert nodes.end(i, Cause.WORKER_LOST, others="x") == []


def test_a_node_begins_again_only_if_it_failed() -> None:
    nodes = Nodes()
    nodes.end(1, Cause.KILLED)
    nodes.restart("node")
    nodes.end(2, Cause.KILLED)
    assert nodes.end(3, Cause.KILLED) == ["node"]
    nodes.restart("node")
    assert nodes.nodes == ()
    assert not nodes.any_on("node")

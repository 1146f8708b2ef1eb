"""The roster of workers: each row of its table, and that all else changes nothing."""

from __future__ import annotations

import itertools

import pytest

from engine_checks import check_workers
from hptune.core.attempt import Attempt, AttemptId, Cause
from hptune.core.goals import Goals
from hptune.core.messages import (
    NodeExcluded,
    StudyOpened,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from hptune.core.node_failures import FAILING, MAX_NODE_FAILURES
from hptune.core.resources import Capacity, Placement
from hptune.core.study_config import StudyConfig
from hptune.core.workers import TRANSITIONS, Phase, RosterEvent, Worker, Workers

NODE = "n1"
HAS = Capacity((0, 1), memory_bytes=9)
OPENED = StudyOpened(9.0, StudyConfig(trials=1, goals=Goals(()), seed=0))


def event_of(kind: type[RosterEvent], worker: str = "w", node: str = NODE) -> RosterEvent:
    at = 5.0
    events: dict[type[RosterEvent], RosterEvent] = {
        WorkerJoined: WorkerJoined(at, worker, node, HAS, 99.0, "job 1"),
        WorkerRefused: WorkerRefused(at, worker, node, "it has Keras 2"),
        WorkerLeaving: WorkerLeaving(at, worker, "SIGTERM"),
        WorkerLeft: WorkerLeft(at, worker, "gone"),
        NodeExcluded: NodeExcluded(at, node),
        StudyOpened: OPENED,
    }
    return events[kind]


JOIN, REFUSE, DRAIN, LEAVE, EXCLUDE, OPEN = (
    event_of(kind)
    for kind in (
        WorkerJoined,
        WorkerRefused,
        WorkerLeaving,
        WorkerLeft,
        NodeExcluded,
        StudyOpened,
    )
)
STORIES: dict[Phase | None, list[RosterEvent]] = {
    None: [],
    Phase.JOINED: [JOIN],
    Phase.DRAINING: [JOIN, DRAIN],
    Phase.LEFT: [JOIN, LEAVE],
    Phase.REFUSED: [REFUSE],
    Phase.AWAY: [JOIN, OPEN],
}
EVENTS = [JOIN, REFUSE, DRAIN, LEAVE, EXCLUDE, OPEN]
ROWS = {
    None: (Phase.JOINED, Phase.REFUSED, None, None, None, None),
    Phase.JOINED: (None, None, Phase.DRAINING, Phase.LEFT, Phase.DRAINING, Phase.AWAY),
    Phase.DRAINING: (None, None, None, Phase.LEFT, None, Phase.AWAY),
    Phase.LEFT: (Phase.JOINED, Phase.REFUSED, None, None, None, None),
    Phase.REFUSED: (Phase.JOINED, Phase.REFUSED, None, None, None, None),
    Phase.AWAY: (Phase.JOINED, Phase.REFUSED, None, None, None, Phase.AWAY),
}
"""What becomes of a worker by each of the events; None for no change."""


def after(*events: RosterEvent) -> Workers:
    workers = Workers()
    for event in events:
        workers.handle(event)
        check_workers(workers)
    return workers


def phase_of(workers: Workers, name: str = "w") -> Phase | None:
    worker = workers.get(name)
    return None if worker is None else worker.phase


@pytest.mark.parametrize(("phase", "event"), [*itertools.product(STORIES, EVENTS)])
def test_an_event_follows_its_row_and_changes_nothing_without_one(
    phase: Phase | None, event: RosterEvent
) -> None:
    workers = after(*STORIES[phase])
    before = workers.get("w")
    assert phase_of(workers) is phase
    changed = workers.handle(event)
    check_workers(workers)
    row = ROWS[phase][EVENTS.index(event)]
    if row is not None:
        assert [each.phase for each in changed] == [row]
        assert changed == [workers.get("w")]
        assert changed[0].since == event.at
    else:
        assert changed == []
        # Those of an earlier master that were not there at its end are forgotten.
        assert workers.get("w") == (None if event is OPEN else before)
    there = row in (Phase.JOINED, Phase.DRAINING) if row else before is not None and before.is_there
    assert ("w" in workers, len(workers), workers.count_on(NODE)) == (there, there, there)


def test_the_table_has_no_other_row() -> None:
    assert len(TRANSITIONS) == sum(row is not None for rows in ROWS.values() for row in rows)


def test_a_worker_is_what_it_said_as_it_joined_and_says_why_it_was_drained() -> None:
    workers = after(JOIN)
    assert [*workers] == [
        Worker(
            name="w",
            node=NODE,
            phase=Phase.JOINED,
            since=5.0,
            capacity=HAS,
            ends_at=99.0,
            gang="job 1",
        )
    ]
    assert (workers.node("w"), workers.node("unknown")) == (NODE, "unknown")
    (drained,) = workers.handle(DRAIN)
    (left,) = workers.handle(LEAVE)
    assert (drained.reason, left.reason, left.was_drained) == ("SIGTERM", "SIGTERM", True)
    (joined,) = workers.handle(JOIN)
    assert (joined.reason, joined.was_drained) == ("", False)


def test_the_last_refusal_is_known_until_the_next_master() -> None:
    workers = after(REFUSE)
    assert workers.refused == f"{NODE} was refused: it has Keras 2"
    workers.handle(OPEN)
    assert workers.refused == ""


# --- nodes ------------------------------------------------------------------------------------


class Nodes(Workers):
    """A roster with a worker on each of some nodes."""

    def __init__(self, *nodes: str) -> None:
        super().__init__()
        self.now = 10.0
        for node in nodes:
            self.join(node)

    def join(self, node: str, worker: str = "") -> list[Phase]:
        joined = self.handle(event_of(WorkerJoined, worker or f"on-{node}", node))
        return [each.phase for each in joined]

    def end(self, trial: int, node: str, cause: Cause = Cause.WORKER_LOST) -> None:
        placement = Placement(f"on-{node}", (0,))
        self.now += 2.0
        attempt = Attempt(AttemptId(trial, 0), placement, node, placed_at=self.now - 1.0)
        self.attempt_ended(attempt, cause, self.now)

    def fail(self, node: str) -> None:
        for trial in range(MAX_NODE_FAILURES):
            self.end(trial, node)

    def exclude(self) -> list[Worker]:
        return self.handle(NodeExcluded(self.now, self.to_exclude))


def test_a_failing_node_is_to_be_excluded_if_another_one_works() -> None:
    workers = Nodes("bad")
    workers.fail("bad")
    assert [*workers.unfit_nodes] == ["bad"]
    assert workers.to_exclude == "", "there is no other"
    workers.join("good")
    assert workers.to_exclude == "bad"
    workers.end(9, "good")
    assert workers.to_exclude == "", "the same happens everywhere"
    workers.end(9, "good", Cause.RETURNED)
    assert workers.to_exclude == "bad"
    workers.handle(event_of(WorkerLeft, "on-good"))
    assert workers.to_exclude == "", "the other one is gone"
    workers.join("bad", "second")
    assert not workers.unfit_nodes, "somebody has started a worker there"


def test_the_workers_of_an_excluded_node_are_drained() -> None:
    workers = Nodes("good", "bad")
    workers.join("bad", "second")
    workers.fail("good")
    workers.end(9, "good", Cause.PRUNED)
    workers.handle(event_of(WorkerLeaving, "second"))
    workers.fail("bad")
    changed = workers.exclude()
    assert [(each.name, each.phase, each.reason) for each in changed] == [
        ("on-bad", Phase.DRAINING, FAILING)
    ], "the other one was drained before"
    assert workers.to_exclude == ""
    assert workers.unfit_nodes.keys() == {"bad"}
    assert phase_of(workers, "on-good") is Phase.JOINED
    check_workers(workers)


def test_the_next_master_excludes_it_until_a_worker_is_started_there() -> None:
    workers = Nodes("good", "bad")
    workers.fail("bad")
    workers.exclude()
    for _ in range(2):
        workers.handle(OPENED)
        assert workers.unfit_nodes.keys() == {"bad"}
    assert workers.join("bad") == [Phase.JOINED, Phase.DRAINING]
    assert workers.join("good") == [Phase.JOINED]
    assert workers.unfit_nodes.keys() == {"bad"}
    check_workers(workers)
    assert workers.join("bad", "another") == [Phase.JOINED]
    assert phase_of(workers, "on-bad") is Phase.DRAINING, "it may be what failed"
    workers.handle(OPENED)
    assert workers.join("bad", "another") == [Phase.JOINED], "the node is excluded no more"


def test_a_user_has_unfit_nodes_used_again() -> None:
    workers = Nodes("good", "bad", "third")
    workers.fail("bad")
    workers.exclude()
    workers.fail("third")
    workers.handle(StudyOpened(9.0, OPENED.config, retries_nodes=True))
    assert workers.unfit_nodes == {}
    assert workers.join("bad") == [Phase.JOINED]
    workers.end(1, "bad")
    assert workers.unfit_nodes == {}


def test_a_node_where_jobs_fail_is_avoided_by_the_next_master_too() -> None:
    workers = Nodes("good", "bad")
    workers.handle(NodeExcluded(5.0, "bad", "its prolog fails"))
    workers.handle(OPENED)
    assert workers.unfit_nodes == {"bad": "its prolog fails"}
    assert workers.join("bad") == [Phase.JOINED, Phase.DRAINING]
    worker = workers.get("on-bad")
    assert worker is not None
    assert worker.reason == "its prolog fails"
    workers.join("bad", "another")
    assert workers.unfit_nodes == {}


def test_a_program_says_nothing_of_its_node() -> None:
    program = WorkerJoined(9.0, "p", NODE, HAS, lease_seconds=60.0)
    workers = after(JOIN, program)
    assert (len(workers), workers.count_on(NODE)) == (2, 1)
    workers.handle(EXCLUDE)
    assert [workers.get(name).phase for name in "wp"] == [Phase.DRAINING, Phase.JOINED]  # type: ignore[union-attr]
    workers.handle(WorkerJoined(9.0, "q", NODE, HAS, lease_seconds=60.0))
    assert NODE in after(JOIN, NodeExcluded(5.0, NODE, "no disk"), program).unfit_nodes

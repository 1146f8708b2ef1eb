"""The state machine of a Dask executor: its events and the instructions that it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from attempt_orders import BRIEF
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Report
from hptune.core.messages import (
    AttemptEnded,
    Reported,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from hptune.core.resources import Capacity, Placement
from hptune.executors.dask_state import (
    Added,
    Ask,
    AskedLongAgo,
    Cancel,
    Closed,
    DaskEvent,
    DaskState,
    Drain,
    Emit,
    Listed,
    OrdersGiven,
    PluginMissing,
    Refuse,
    Removed,
    Submit,
    TaskFailed,
    Tell,
    Told,
)
from hptune.worker.dask.announcement import Announcement
from hptune.worker.orders import AttemptOrder, MeetOrder, StopOrder

A, B = AttemptId(0, 0), AttemptId(1, 0)
RETURNED = Ending(Cause.RETURNED, {"loss": 1.0}, step=1)
AWAY = "it left the study while the master was suspended, and is asked to join again"


def joins(worker: str = "w", **frameworks: str) -> Announcement:
    return Announcement(WorkerJoined(0.0, worker, f"node of {worker}", Capacity((0,))), frameworks)


def is_refused(worker: str = "w") -> Announcement:
    return Announcement(WorkerRefused(0.0, worker, worker, "it has no disk"))


def order(attempt: AttemptId = A, worker: str = "w") -> AttemptOrder:
    return AttemptOrder(BRIEF, attempt, {}, (), Placement(worker, (0,)), 7, ())


def left(worker: str, why: str = "") -> Emit:
    return Emit(WorkerLeft(0.0, worker, f"the worker {worker} is gone{why and ': '}{why}"))


def state_after(*events: DaskEvent) -> DaskState:
    state = DaskState()
    for each in events:
        state.handle(each)
        state.validate()
    return state


JOINED: tuple[DaskEvent, ...] = (Added("w"), joins())


def test_a_worker_is_asked_until_it_has_answered() -> None:
    state = DaskState()
    assert state.handle(Listed(("w", "v"))) == (Ask(("w", "v")),)
    assert state.handle(Added("w")) == (), "it is being asked"
    assert state.handle(AskedLongAgo("w")) == (Ask(("w",)),)
    assert state.handle(joins()) == (Emit(joins().event),)
    assert state.handle(is_refused("v")) == (Emit(is_refused("v").event),)
    for name in ("w", "v"):
        assert state.handle(AskedLongAgo(name)) == state.handle(joins(name)) == ()
        assert state.handle(is_refused(name)) == ()
    assert state.refusals == {"w": "", "v": "it has no disk"}
    assert [*state.joined] == ["w"]


def test_a_worker_with_other_frameworks_than_the_first_is_refused_and_told() -> None:
    state = state_after(Listed(("w", "v")), joins(keras="3.1"))
    reason = "the first worker has keras 3.1, this one has 3.2"
    event = WorkerRefused(0.0, "v", "node of v", reason)
    answer = Announcement(event, {"keras": "3.2"}, is_of_versions=True)
    assert state.handle(joins("v", keras="3.2")) == (Refuse(answer), Emit(event))
    assert state.handle(order(worker="v")) == ()


def test_a_worker_that_is_gone_cannot_join() -> None:
    """Its answer comes late; and the list of workers may be older than its going."""
    state = state_after(Removed("w"))
    assert state.handle(joins()) == state.handle(Listed(("w",))) == ()
    assert state.handle(Added("w")) == (Ask(("w",)),)
    assert state.handle(joins()) == (Emit(joins().event),)
    assert state.handle(joins("unknown")) == ()


@pytest.mark.parametrize("before", [(Added("w"),), (Added("w"), is_refused())])
def test_a_worker_that_never_joined_goes_without_a_word_and_may_come_again(
    before: tuple[DaskEvent, ...],
) -> None:
    state = state_after(*before)
    assert state.handle(Removed("w")) == ()
    assert state.refusals == {}
    assert state.handle(AskedLongAgo("w")) == ()
    assert state.handle(Added("w")) == (Ask(("w",)),)


def test_an_attempt_is_known_before_it_is_submitted_and_until_it_has_ended() -> None:
    """For its worker may ask for files before Dask has answered."""
    state = state_after(*JOINED)
    report = Reported(0.0, A, Report(1, {"loss": 1.0}))
    assert state.handle(report) == (), "it is of no attempt that was ordered"
    assert state.handle(order()) == (Submit(order()),)
    assert state.runs("w", 0)
    assert not state.runs("v", 0)
    assert not state.runs("w", 1)
    assert state.handle(report) == (Emit(report),)
    ended = AttemptEnded(0.0, A, RETURNED)
    assert state.handle(ended) == (Emit(ended),)
    assert not state.runs("w", 0)
    for late in (ended, report, TaskFailed(A, "late"), PluginMissing(A), StopOrder(A, Halt.STOP)):
        assert state.handle(late) == ()


def test_orders_reach_attempts_that_have_not_ended() -> None:
    """The shell delivers an order again that did not arrive."""
    state = state_after(*JOINED, order())
    for told in (StopOrder(A, Halt.PRUNE), MeetOrder(A, ())):
        assert state.handle(told) == state.handle(told) == (Tell("w", told),)
    assert state.handle(StopOrder(A, Halt.STOP)) == (), "the first reason counts"
    killed = StopOrder(A, Halt.ABORT)
    assert state.handle(killed) == (Tell("w", killed),)
    state.handle(AttemptEnded(0.0, A, RETURNED))
    assert state.handle(StopOrder(A, Halt.PRUNE)) == ()


def test_an_attempt_whose_task_fails_is_lost() -> None:
    state = state_after(*JOINED, order())
    reason = "the worker could not run it: KeyError('w')"
    ending = Ending(Cause.WORKER_LOST, reason=reason)
    assert state.handle(TaskFailed(A, "KeyError('w')")) == (Emit(AttemptEnded(0.0, A, ending)),)


def test_what_dask_holds_for_a_worker_that_left_is_cancelled() -> None:
    """Else Dask would run it on a worker that returns to the same address."""
    state = state_after(*JOINED, order(A), order(B))
    assert state.handle(Removed("w")) == (Cancel((A, B)), left("w"))
    assert state.handle(AttemptEnded(0.0, A, RETURNED)) == ()
    assert state.handle(Removed("w")) == state.handle(order()) == ()


def test_a_worker_is_drained_once_and_what_runs_there_goes_on() -> None:
    state = state_after(*JOINED, order())
    leaving = WorkerLeaving(0.0, "w", "it gives way")
    assert state.handle(Drain("w", "it gives way")) == (Emit(leaving),)
    assert state.handle(Drain("w", "again")) == state.handle(Drain("unknown", "no")) == ()
    assert state.runs("w", 0)
    own = WorkerLeaving(0.0, "w", "its local disk is full")
    assert state.handle(own) == (Emit(own),)
    state.handle(Removed("w"))
    assert state.handle(own) == ()


def test_a_worker_that_left_without_a_word_is_drained_first_and_its_attempts_are_released() -> None:
    state = state_after(*JOINED, order(A), order(B))
    released = Ending(Cause.RELEASED, reason="its worker left while the master was suspended")
    assert state.handle(PluginMissing(A)) == (
        Emit(WorkerLeaving(0.0, "w", AWAY)),
        Cancel((A, B)),
        Emit(AttemptEnded(0.0, A, released)),
        Emit(AttemptEnded(0.0, B, released)),
        left("w", AWAY),
    )
    assert state.handle(PluginMissing(B)) == ()


def test_an_order_for_a_worker_that_had_left_does_not_reach_it_when_it_is_back() -> None:
    """The caller gave it before it knew, and runs the trial again elsewhere."""
    for goes in ((PluginMissing(A),), (Removed("w"), Added("w"))):
        state = state_after(*JOINED, order(A), *goes)
        assert state.handle(OrdersGiven()) == (), "the caller does not know yet"
        assert state.handle(joins()) == state.handle(order(B)) == ()
        assert state.handle(Told("w")) == ()
        assert state.handle(joins()) == state.handle(order(B)) == (), "it processes what it got"
        assert state.handle(OrdersGiven()) == (Ask(("w",)),)
        assert state.handle(joins()) == (Emit(joins().event),)
        assert state.handle(order(B)) == (Submit(order(B)),)


def test_a_worker_that_left_dask_meanwhile_is_not_asked_to_come_back() -> None:
    state = state_after(*JOINED, order(A), PluginMissing(A))
    assert state.handle(Removed("w")) == (), "the caller was told already"
    assert state.handle(Told("w")) == state.handle(OrdersGiven()) == ()
    assert state.handle(Added("w")) == (Ask(("w",)),)


def test_nothing_is_done_when_the_study_has_ended() -> None:
    state = state_after(*JOINED, order(), Closed())
    for each in (Added("v"), Removed("w"), order(B), joins("v"), StopOrder(A, Halt.STOP)):
        assert state.handle(each) == ()


WORKERS = st.sampled_from(["w", "w", "w", "v"])


class DaskMachine(RuleBasedStateMachine):
    """Dask, workers and a caller that knows later; events in any order, late and repeated ones.

    Attributes:
        queue: What the caller was told, and has not taken.
        before: The workers that it counted on before it took the last events.
        counts_on: Those that it counts on now.
        held: Where Dask holds attempts.
        open: The attempts that have not ended, and their workers.
        refused: Workers that were refused and are still there.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = DaskState()
        self.queue: list[Any] = []
        self.before = set[str]()
        self.counts_on = set[str]()
        self.held: dict[AttemptId, str] = {}
        self.open: dict[AttemptId, str] = {}
        self.refused = set[str]()
        self.number = 0

    def feed(self, event: DaskEvent) -> None:
        for each in self.state.handle(event):
            match each:
                case Emit(told):
                    self.queue.append(told)
                    self.note(told)
                case Submit(ordered):
                    self.held[ordered.attempt] = ordered.placement.worker
                case Cancel(attempts):
                    for attempt in attempts:
                        del self.held[attempt]
                case Ask(workers):
                    assert not self.refused & {*workers}, "a refused worker is asked again"
                case Tell(worker, told_to):
                    assert self.open[told_to.attempt] == worker
        self.state.validate()

    def note(self, told: Any) -> None:
        match told:
            case WorkerRefused():
                self.refused.add(told.worker)
            case WorkerLeft():
                for attempt, worker in [*self.open.items()]:
                    if worker == told.worker:
                        del self.open[attempt]
                assert told.worker not in self.held.values(), "Dask may run a lost order"
            case AttemptEnded():
                del self.open[told.attempt]  # fails if it has ended or was lost
                self.held.pop(told.attempt, None)
            case Reported():
                assert told.attempt in self.open

    @invariant()
    def all_agree(self) -> None:
        assert {each for each in self.held if each not in self.open} == set()
        for attempt, worker in self.open.items():
            assert self.state.runs(worker, attempt.trial)
        assert not self.refused & self.state.joined.keys()

    @rule(worker=WORKERS)
    def dask_adds(self, worker: str) -> None:
        self.feed(Added(worker))

    @rule(worker=WORKERS)
    def dask_removes(self, worker: str) -> None:
        self.refused.discard(worker)
        self.feed(Removed(worker))

    @rule(worker=WORKERS)
    def worker_restarts_at_its_address(self, worker: str) -> None:
        self.dask_removes(worker)
        self.feed(Added(worker))

    @rule(worker=WORKERS, keras=st.sampled_from(["3.1", "3.1", "3.2"]))
    def worker_joins(self, worker: str, keras: str) -> None:
        self.feed(joins(worker, keras=keras))

    @rule(
        worker=WORKERS,
        event=st.sampled_from([is_refused, AskedLongAgo, lambda each: Drain(each, "it gives way")]),
    )
    def something_happens_to_a_worker(self, worker: str, event: Callable[[str], DaskEvent]) -> None:
        self.feed(event(worker))

    @rule()
    def caller_takes_events(self) -> None:
        self.feed(OrdersGiven())
        self.before = {*self.counts_on}
        taken, self.queue = self.queue, []
        for each in taken:
            if isinstance(each, WorkerJoined):
                assert each.worker not in self.counts_on
                self.counts_on.add(each.worker)
            elif isinstance(each, WorkerLeft):
                self.counts_on.remove(each.worker)
                self.feed(Told(each.worker))

    @precondition(lambda self: self.before | self.counts_on)
    @rule(data=st.data())
    def caller_orders(self, data: st.DataObject) -> None:
        worker = data.draw(st.sampled_from(sorted(self.before | self.counts_on)))
        has_left = worker not in self.counts_on or any(
            isinstance(each, WorkerLeft) and each.worker == worker for each in self.queue
        )
        attempt = AttemptId(self.number, 0)
        self.number += 1
        if not has_left:
            self.open[attempt] = worker
        self.feed(order(attempt, worker))
        assert (attempt in self.held) is not has_left, "an order counted as lost runs, or reverse"

    @precondition(lambda self: self.number)
    @rule(
        data=st.data(),
        event=st.sampled_from(
            [
                lambda each: AttemptEnded(0.0, each, RETURNED),
                lambda each: AttemptEnded(0.0, each, RETURNED),
                lambda each: Reported(0.0, each, Report(1, {"loss": 1.0})),
                lambda each: TaskFailed(each, "error"),
                lambda each: StopOrder(each, Halt.STOP),
                PluginMissing,
            ]
        ),
    )
    def something_happens_to_an_attempt(
        self, data: st.DataObject, event: Callable[[AttemptId], DaskEvent]
    ) -> None:
        number = data.draw(st.integers(0, self.number - 1))
        self.feed(event(AttemptId(number, 0)))

    def teardown(self) -> None:
        """Every attempt that goes on can still end, once."""
        for attempt in [*self.open]:
            self.feed(AttemptEnded(0.0, attempt, RETURNED))
        assert not self.open


TestDaskMachine = DaskMachine.TestCase
TestDaskMachine.settings = settings(max_examples=150)

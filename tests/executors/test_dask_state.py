"""The state machine of a Dask executor: its events and the instructions that it returns."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller as event
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from attempt_orders import BRIEF
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Report
from hptune.core.messages import (
    AttemptEnded,
    Reported,
    Start,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from hptune.core.resources import Capacity, Placement
from hptune.executors.dask_state import Ask, Cancel, DaskState, Instructions, Phase, Refuse, Tell
from hptune.worker.dask.announcement import Announcement
from hptune.worker.orders import AttemptOrder, MeetOrder, StopOrder

Happening = Callable[[DaskState], Instructions]
"""A call of a method of the state, which is an event."""

A, B = AttemptId(0, 0), AttemptId(1, 0)
RETURNED = Ending(Cause.RETURNED, {"loss": 1.0}, step=1)
AWAY = "it left the study while the master was suspended, and is asked to join again"


def joins(worker: str = "w", **frameworks: str) -> Announcement:
    return Announcement(WorkerJoined(0.0, worker, f"node of {worker}", Capacity((0,))), frameworks)


def is_refused(worker: str = "w") -> Announcement:
    return Announcement(WorkerRefused(0.0, worker, worker, "it has no disk"))


def order(attempt: AttemptId = A, worker: str = "w") -> AttemptOrder:
    return AttemptOrder(BRIEF, Start(attempt, {}, Placement(worker, (0,)), 7), ())


def left(worker: str, why: str = "") -> WorkerLeft:
    return WorkerLeft(0.0, worker, f"the worker {worker} is gone{why and ': '}{why}")


USED = (Phase.JOINED, Phase.DRAINING)


def validate(state: DaskState) -> None:
    """Check what must hold between two events."""
    for name, each in state._workers.items():
        answer = None if each.announcement is None else type(each.announcement.event)
        assert (each.phase in USED) <= (answer is WorkerJoined), (name, each)
        assert (each.phase is Phase.REFUSED) <= (answer is WorkerRefused), (name, each)
        assert (each.phase is Phase.GONE) <= (not each.is_in_dask), (name, each)
        is_away = each.phase in (Phase.LEFT, Phase.KNOWN, Phase.GONE)
        assert is_away or each.is_in_dask, (name, each)
    for attempt, found in state._attempts.items():
        assert state._workers[found.worker].phase in USED, (attempt, found)


def state_after(*events: Happening) -> DaskState:
    state = DaskState()
    for each in events:
        each(state)
        validate(state)
    return state


JOINED: tuple[Happening, ...] = (event("added", "w"), event("announced", joins()))
ORDERED = event("order", order(A))


def test_a_worker_is_asked_until_it_has_answered() -> None:
    state = DaskState()
    assert state.listed(("w", "v")) == (Ask(("w", "v")),)
    assert state.added("w") == (), "it is being asked"
    assert state.asked_long_ago("w") == (Ask(("w",)),)
    assert state.announced(joins()) == (joins().event,)
    assert state.announced(is_refused("v")) == (is_refused("v").event,)
    for name in ("w", "v"):
        assert state.asked_long_ago(name) == state.announced(joins(name)) == ()
        assert state.announced(is_refused(name)) == ()
    assert state.refusals == {"w": "", "v": "it has no disk"}
    assert [*state.joined] == ["w"]


def test_a_worker_with_other_frameworks_than_the_first_is_refused_and_told() -> None:
    state = state_after(event("listed", ("w", "v")), event("announced", joins(keras="3.1")))
    reason = "the first worker has keras 3.1, this one has 3.2"
    refused = WorkerRefused(0.0, "v", "node of v", reason)
    answer = Announcement(refused, {"keras": "3.2"}, is_of_versions=True)
    assert state.announced(joins("v", keras="3.2")) == (Refuse(answer), refused)
    assert state.order(order(worker="v")) == ()


def test_a_worker_that_is_gone_cannot_join() -> None:
    """Its answer comes late; and the list of workers may be older than its going."""
    state = state_after(event("removed", "w"))
    assert state.announced(joins()) == state.listed(("w",)) == ()
    assert state.added("w") == (Ask(("w",)),)
    assert state.announced(joins()) == (joins().event,)
    assert state.announced(joins("unknown")) == ()


@pytest.mark.parametrize("before", [JOINED[:1], (JOINED[0], event("announced", is_refused()))])
def test_a_worker_that_never_joined_goes_without_a_word_and_may_come_again(
    before: tuple[Happening, ...],
) -> None:
    state = state_after(*before)
    assert state.removed("w") == ()
    assert state.refusals == {}
    assert state.asked_long_ago("w") == ()
    assert state.added("w") == (Ask(("w",)),)


def test_an_attempt_is_known_before_it_is_submitted_and_until_it_has_ended() -> None:
    """For its worker may ask for files before Dask has answered."""
    state = state_after(*JOINED)
    report = Reported(0.0, A, Report(1, {"loss": 1.0}))
    assert state.from_worker(report) == (), "it is of no attempt that was ordered"
    assert state.order(order()) == (order(),)
    assert state.runs("w", 0)
    assert not state.runs("v", 0)
    assert not state.runs("w", 1)
    assert state.from_worker(report) == (report,)
    ended = AttemptEnded(0.0, A, RETURNED)
    assert state.from_worker(ended) == (ended,)
    assert not state.runs("w", 0)
    assert state.from_worker(ended) == state.from_worker(report) == ()
    assert state.task_failed(A, "late") == state.plugin_missing(A) == ()
    assert state.tell(StopOrder(A, Halt.STOP)) == ()


def test_orders_reach_attempts_that_have_not_ended() -> None:
    """The shell delivers an order again that did not arrive."""
    state = state_after(*JOINED, ORDERED)
    for told in (StopOrder(A, Halt.PRUNE), MeetOrder(A, ())):
        assert state.tell(told) == state.tell(told) == (Tell("w", told),)
    assert state.tell(StopOrder(A, Halt.STOP)) == (), "the first reason counts"
    killed = StopOrder(A, Halt.ABORT)
    assert state.tell(killed) == (Tell("w", killed),)
    state.from_worker(AttemptEnded(0.0, A, RETURNED))
    assert state.tell(StopOrder(A, Halt.PRUNE)) == ()


def test_an_attempt_whose_task_fails_is_lost() -> None:
    state = state_after(*JOINED, ORDERED)
    reason = "the worker could not run it: KeyError('w')"
    ending = Ending(Cause.WORKER_LOST, reason=reason)
    assert state.task_failed(A, "KeyError('w')") == (AttemptEnded(0.0, A, ending),)


def test_what_dask_holds_for_a_worker_that_left_is_cancelled() -> None:
    """Else Dask would run it on a worker that returns to the same address."""
    state = state_after(*JOINED, ORDERED, event("order", order(B)))
    assert state.removed("w") == (Cancel((A, B)), left("w"))
    assert state.from_worker(AttemptEnded(0.0, A, RETURNED)) == ()
    assert state.removed("w") == state.order(order()) == ()


def test_a_worker_is_drained_once_and_what_runs_there_goes_on() -> None:
    state = state_after(*JOINED, ORDERED)
    leaving = WorkerLeaving(0.0, "w", "it gives way")
    assert state.drain("w", "it gives way") == (leaving,)
    assert state.drain("w", "again") == state.drain("unknown", "no") == ()
    assert state.runs("w", 0)
    own = WorkerLeaving(0.0, "w", "its local disk is full")
    assert state.from_worker(own) == (own,)
    state.removed("w")
    assert state.from_worker(own) == ()


def test_a_worker_that_left_without_a_word_is_drained_first_and_its_attempts_are_released() -> None:
    state = state_after(*JOINED, ORDERED, event("order", order(B)))
    released = Ending(Cause.RELEASED, reason="its worker left while the master was suspended")
    assert state.plugin_missing(A) == (
        WorkerLeaving(0.0, "w", AWAY),
        Cancel((A, B)),
        AttemptEnded(0.0, A, released),
        AttemptEnded(0.0, B, released),
        left("w", AWAY),
    )
    assert state.plugin_missing(B) == ()


def test_an_order_for_a_worker_that_had_left_does_not_reach_it_when_it_is_back() -> None:
    """The caller gave it before it knew, and runs the trial again elsewhere."""
    for goes in ((event("plugin_missing", A),), (event("removed", "w"), JOINED[0])):
        state = state_after(*JOINED, ORDERED, *goes)
        assert state.orders_given() == (), "the caller does not know yet"
        assert state.announced(joins()) == state.order(order(B)) == ()
        assert state.left_is_known("w") == ()
        assert state.announced(joins()) == state.order(order(B)) == (), "it processes what it got"
        assert state.orders_given() == (Ask(("w",)),)
        assert state.announced(joins()) == (joins().event,)
        assert state.order(order(B)) == (order(B),)


def test_a_worker_that_left_dask_meanwhile_is_not_asked_to_come_back() -> None:
    state = state_after(*JOINED, ORDERED, event("plugin_missing", A))
    assert state.removed("w") == (), "the caller was told already"
    assert state.left_is_known("w") == state.orders_given() == ()
    assert state.added("w") == (Ask(("w",)),)


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

    @initialize()
    def first_worker_joins(self) -> None:
        self.dask_adds("w")
        self.worker_joins("w", "3.1")
        self.caller_takes_events()

    def feed(self, name: str, *given: object) -> None:
        for each in event(name, *given)(self.state):
            match each:
                case AttemptOrder():
                    self.held[each.attempt] = each.placement.worker
                case Cancel(attempts):
                    for attempt in attempts:
                        del self.held[attempt]
                case Ask(workers):
                    assert not self.refused & {*workers}, "a refused worker is asked again"
                case Tell(worker, told_to):
                    assert self.open[told_to.attempt] == worker
                case WorkerRefused() | WorkerLeft() | AttemptEnded() | Reported() | WorkerJoined():
                    self.queue.append(each)
                    self.note(each)
        validate(self.state)

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
        self.feed("added", worker)

    @rule(worker=WORKERS)
    def dask_removes(self, worker: str) -> None:
        self.refused.discard(worker)
        self.feed("removed", worker)

    @rule(worker=WORKERS)
    def worker_restarts_at_its_address(self, worker: str) -> None:
        self.dask_removes(worker)
        self.feed("added", worker)

    @rule(worker=WORKERS, keras=st.sampled_from(["3.1", "3.1", "3.2"]))
    def worker_joins(self, worker: str, keras: str) -> None:
        self.feed("announced", joins(worker, keras=keras))

    @rule(
        worker=WORKERS,
        happening=st.sampled_from(
            [
                lambda each: ("announced", is_refused(each)),
                lambda each: ("asked_long_ago", each),
                lambda each: ("drain", each, "it gives way"),
            ]
        ),
    )
    def something_happens_to_a_worker(
        self, worker: str, happening: Callable[[str], tuple[Any, ...]]
    ) -> None:
        self.feed(*happening(worker))

    @rule()
    def caller_takes_events(self) -> None:
        self.feed("orders_given")
        self.before = {*self.counts_on}
        taken, self.queue = self.queue, []
        for each in taken:
            if isinstance(each, WorkerJoined):
                assert each.worker not in self.counts_on
                self.counts_on.add(each.worker)
            elif isinstance(each, WorkerLeft):
                self.counts_on.remove(each.worker)
                self.feed("left_is_known", each.worker)

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
        self.feed("order", order(attempt, worker))
        assert (attempt in self.held) is not has_left, "an order counted as lost runs, or reverse"

    @precondition(lambda self: self.number)
    @rule(
        data=st.data(),
        happening=st.sampled_from(
            [
                lambda each: ("from_worker", AttemptEnded(0.0, each, RETURNED)),
                lambda each: ("from_worker", AttemptEnded(0.0, each, RETURNED)),
                lambda each: ("from_worker", Reported(0.0, each, Report(1, {"loss": 1.0}))),
                lambda each: ("task_failed", each, "error"),
                lambda each: ("tell", StopOrder(each, Halt.STOP)),
                lambda each: ("plugin_missing", each),
            ]
        ),
    )
    def something_happens_to_an_attempt(
        self, data: st.DataObject, happening: Callable[[AttemptId], tuple[Any, ...]]
    ) -> None:
        number = data.draw(st.integers(0, self.number - 1))
        self.feed(*happening(AttemptId(number, 0)))

    def teardown(self) -> None:
        """Every attempt that goes on can still end, once."""
        for attempt in [*self.open]:
            self.feed("from_worker", AttemptEnded(0.0, attempt, RETURNED))
        assert not self.open


TestDaskMachine = DaskMachine.TestCase
TestDaskMachine.settings = settings(max_examples=150)

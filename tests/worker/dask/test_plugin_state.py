"""The state machine of a study on a worker: its events and the instructions that it returns."""

from __future__ import annotations

import dataclasses
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
    WorkerRefused,
)
from hptune.core.resources import Capacity, Placement
from hptune.worker.dask.announcement import Announcement
from hptune.worker.dask.plugin_state import (
    Abandon,
    Begin,
    EnterQueue,
    Free,
    Instruction,
    Instructions,
    Phase,
    PluginState,
    SendFiles,
)
from hptune.worker.orders import AttemptLimits, AttemptOrder, StopOrder
from hptune.worker.transport.remote_study import NotSent

A, B = AttemptId(0, 0), AttemptId(1, 0)
RETURNED = AttemptEnded(0.0, A, Ending(Cause.RETURNED, {"loss": 1.0}, step=1))
JOINED = Announcement(WorkerJoined(0.0, "w", "node", Capacity((0,))))
REMOTE = dataclasses.replace(JOINED, sees_directory=False)
REFUSED = Announcement(WorkerRefused(0.0, "w", "node", "it has no disk"))
FULL = WorkerLeaving(0.0, "w", "its local disk is full")


def order(attempt: AttemptId = A, *, grace_seconds: float = 0.0) -> AttemptOrder:
    limits = AttemptLimits(master_grace_seconds=grace_seconds)
    brief = dataclasses.replace(BRIEF, limits=limits)
    return AttemptOrder(brief, Start(attempt, {}, Placement("w", (0,)), 7), ())


def ended(attempt: AttemptId, ending: Ending) -> tuple[Instruction, ...]:
    return (AttemptEnded(0.0, attempt, ending), Free(attempt))


def validate(state: PluginState) -> None:
    """Check what must hold between two events."""
    has_joined = state.announcement and isinstance(state.announcement.event, WorkerJoined)
    assert (state.phase is Phase.ACCEPTED) <= bool(has_joined), state.phase
    assert (state.phase is Phase.REFUSED) <= (has_joined is False), state.phase
    assert state.phase is not Phase.JOINING or state.announcement is None, state.phase
    for name, each in state._attempts.items():
        assert state.announcement is not None, name
        assert not each.is_waiting or state.phase is Phase.ACCEPTED, name
        assert each.ended is None or (state._is_remote and not each.is_waiting), name


Happening = Callable[[PluginState], Any]
"""A call of a method of the state, which is an event."""

JOINS, REFUSES = event("announced", JOINED), event("announced", REFUSED)
JOINS_REMOTELY = event("announced", REMOTE)
ORDERED_A, ORDERED_B = event("order", order(A)), event("order", order(B))
GRANTED_A, GRANTED_B = event("granted", A), event("granted", B)


def state_after(*events: Happening) -> PluginState:
    state = PluginState()
    for each in events:
        each(state)
        validate(state)
    return state


def test_an_attempt_begins_when_it_holds_its_devices_and_ends_once() -> None:
    state = PluginState()
    assert state.announced(JOINED) == (JOINED,)
    assert state.order(order()) == (EnterQueue(order()),)
    assert state.granted(A) == (Begin(order()),)
    assert state.granted(A) == ()
    report = Reported(0.0, A, Report(1, {"loss": 1.0}))
    assert state.from_runner(report) == (report,)
    assert state.from_runner(RETURNED) == ended(A, RETURNED.ending)
    assert state.from_runner(RETURNED) == state.from_runner(report) == ()
    assert state.granted(A) == state.orphaned(A) == state.not_brought(A, "no") == ()
    assert state.runner_closed() == ()


@pytest.mark.parametrize("halt", [Halt.PAUSE, Halt.RELEASE])
def test_an_order_to_stop_ends_what_waits_and_is_passed_on_for_what_runs(halt: Halt) -> None:
    state = state_after(JOINS, ORDERED_A, ORDERED_B, GRANTED_B)
    assert state.stop(A, halt) == ended(A, halt.ending)
    assert state.granted(A) == (), "its devices were free at the same moment"
    assert state.stop(B, halt) == (StopOrder(B, halt),)


def test_an_order_to_stop_may_overtake_the_order_to_start() -> None:
    state = state_after(JOINS, event("stop", A, Halt.PRUNE), event("stop", A, Halt.STOP))
    assert state.order(order()) == ended(A, Halt.PRUNE.ending)


@pytest.mark.parametrize(
    "after",
    [
        event("leave", "SIGTERM"),
        event("study_ends"),
        event("leave_if_idle"),
        event("refused", REFUSED),
    ],
)
def test_nothing_begins_on_a_worker_that_leaves_or_is_refused(after: Happening) -> None:
    state = state_after(JOINS, after)
    assert state.order(order()) == ended(A, Halt.RELEASE.ending)


@pytest.mark.parametrize("before", [event("leave", "SIGTERM"), event("study_ends")])
def test_a_worker_that_left_while_it_was_joining_announces_nothing(before: Happening) -> None:
    state = PluginState()
    assert before(state) == ()
    assert state.announced(JOINED) == state.announced(REFUSED) == ()
    assert state.announcement is None


def test_a_worker_is_refused_by_itself_or_by_the_master() -> None:
    state = PluginState()
    assert state.announced(REFUSED) == (REFUSED,)
    assert state.announced(JOINED) == state.leave("SIGTERM") == ()
    state = state_after(JOINS)
    assert state.refused(REFUSED) == ()
    assert (state.phase, state.announcement) == (Phase.REFUSED, REFUSED)


def test_a_worker_that_leaves_says_so_before_it_releases_its_attempts() -> None:
    """Else the master could order them there again."""
    state = state_after(JOINS, ORDERED_A, ORDERED_B, GRANTED_B)
    assert state.leave("SIGTERM") == (
        WorkerLeaving(0.0, "w", "SIGTERM"),
        *ended(A, Halt.RELEASE.ending),
        StopOrder(B, Halt.RELEASE),
    )
    assert state.leave("again") == ()
    late = AttemptEnded(0.0, B, Halt.RELEASE.ending)
    assert state.from_runner(late) == ended(B, late.ending)


def test_a_plugin_goes_with_its_master_when_nothing_runs() -> None:
    state = state_after(JOINS, ORDERED_A)
    assert not state.leave_if_idle()
    state.stop(A, Halt.STOP)
    assert state.leave_if_idle()
    assert state.phase is Phase.LEAVING


@pytest.mark.parametrize(
    ("announced", "grace_seconds", "expected"),
    [
        (JOINED, 0.0, (StopOrder(A, Halt.RELEASE),)),
        (JOINED, 60.0, ()),  # the runner stops it when its grace time is over
        (REMOTE, 60.0, (Abandon(A), StopOrder(A, Halt.RELEASE))),
    ],
)
def test_an_orphan_stops_unless_it_may_outlive_its_master(
    announced: Announcement, grace_seconds: float, expected: Instructions
) -> None:
    asked = order(grace_seconds=grace_seconds)
    state = state_after(event("announced", announced), event("order", asked))
    assert state.orphaned(A) == ended(A, Halt.RELEASE.ending)
    state = state_after(event("announced", announced), event("order", asked), GRANTED_A)
    assert state.orphaned(A) == expected


def test_no_files_are_offered_to_a_master_that_cannot_be_reached() -> None:
    state = state_after(JOINS_REMOTELY, ORDERED_A, ORDERED_B, GRANTED_B)
    stops = (Abandon(B), StopOrder(B, Halt.RELEASE))
    assert state.cut_off() == (*ended(A, Halt.RELEASE.ending), *stops)
    assert state.attempts == [B]


def test_ranks_do_not_wait_without_their_master_for_trials_that_outlive_it() -> None:
    outlives = event("order", order(B, grace_seconds=600.0))
    state = state_after(JOINS, ORDERED_A, outlives, GRANTED_A, GRANTED_B)
    assert state.cut_off() == (StopOrder(A, Halt.RELEASE),)


def test_the_end_of_an_attempt_follows_its_files() -> None:
    state = state_after(JOINS_REMOTELY, ORDERED_A, GRANTED_A)
    assert state.files_sent(RETURNED, None) == ()
    assert state.from_runner(RETURNED) == (SendFiles(RETURNED),)
    assert state.from_runner(RETURNED) == (), "its end is known"
    assert state.files_sent(RETURNED, None) == ended(A, RETURNED.ending)
    assert state.files_sent(RETURNED, None) == ()
    state = state_after(JOINS_REMOTELY, ORDERED_A, GRANTED_A, event("from_runner", RETURNED))
    reason = "its files could not be sent from node to the study: no answer"
    lost = Ending(Cause.WORKER_LOST, reason=reason)
    assert state.files_sent(RETURNED, NotSent("no answer")) == ended(A, lost)


def test_an_attempt_that_is_stopped_while_its_files_are_brought_ends_as_it_was_told() -> None:
    state = state_after(JOINS_REMOTELY, ORDERED_A, GRANTED_A)
    for halt in (Halt.PRUNE, Halt.RELEASE):
        assert state.stop(A, halt) == (StopOrder(A, halt),)
    assert state.not_brought(A, "it was told to stop") == ended(A, Halt.PRUNE.ending)


def test_a_worker_whose_disk_is_full_leaves() -> None:
    state = state_after(JOINS_REMOTELY, ORDERED_A, GRANTED_A, ORDERED_B, GRANTED_B)
    lost = Ending(Cause.WORKER_LOST, reason="no room")
    assert state.not_brought(A, "no room", is_full=True) == (FULL, *ended(A, lost))
    assert state.not_brought(A, "no room", is_full=True) == ()
    end = AttemptEnded(0.0, B, Ending(Cause.NO_ROOM, reason="a checkpoint"))
    assert state.from_runner(end) == (SendFiles(end),)
    instructions = state.files_sent(end, None)
    assert (instructions[0], instructions[-1]) == (FULL, Free(B))


def test_a_study_that_ends_leaves_nothing() -> None:
    state = state_after(JOINS, ORDERED_A, ORDERED_B, GRANTED_B)
    assert state.study_ends() == ended(A, Halt.RELEASE.ending)
    assert state.runner_closed() == (Free(B),)
    assert state.from_runner(AttemptEnded(0.0, B, RETURNED.ending)) == ()
    assert state.attempts == []


EVENTS: list[Callable[[AttemptId], tuple[Any, ...]]] = [
    lambda each: ("order", order(each)),
    lambda each: ("stop", each, Halt.PRUNE),
    lambda each: ("granted", each),
    lambda each: ("granted", each),
    lambda each: ("not_brought", each, "no room"),
    lambda each: ("from_runner", AttemptEnded(0.0, each, RETURNED.ending)),
    lambda each: ("files_sent", AttemptEnded(0.0, each, RETURNED.ending), None),
    lambda each: ("orphaned", each),
]


class PluginMachine(RuleBasedStateMachine):
    """A master, a runner and a worker that leaves; events in any order, late and repeated ones.

    Attributes:
        ordered: The attempts that were ordered.
        ended: Those whose end the master was told.
        held: Those that hold devices or wait for them, and have a thread.
        has_left: Whether the worker takes no more attempts.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = PluginState()
        self.ordered = set[AttemptId]()
        self.ended = set[AttemptId]()
        self.held = set[AttemptId]()
        self.has_left = False

    @initialize(announced=st.sampled_from([JOINED, REMOTE, JOINED, REMOTE, REFUSED]))
    def worker_joins(self, announced: Announcement) -> None:
        self.feed("announced", announced)
        self.has_left = self.state.phase is Phase.REFUSED

    def feed(self, name: str, *given: object) -> None:
        for each in event(name, *given)(self.state):
            match each:
                case AttemptEnded(_, attempt, _):
                    assert attempt not in self.ended, "it ends twice"
                    assert attempt in self.held
                    self.ended.add(attempt)
                case Reported(_, attempt, _):
                    assert attempt in self.held
                case EnterQueue() | Begin():
                    assert not self.has_left, "it begins on a worker that leaves"
                case Free(attempt):
                    self.held.remove(attempt)  # fails if it is given back twice
        validate(self.state)

    @invariant()
    def what_is_held_has_not_ended(self) -> None:
        assert self.held == {*self.state.attempts}
        assert not self.held & self.ended

    @rule(number=st.integers(0, 3), happening=st.sampled_from(EVENTS))
    def something_happens_to_an_attempt(
        self, number: int, happening: Callable[[AttemptId], tuple[Any, ...]]
    ) -> None:
        attempt = AttemptId(number, 0)
        name, *given = happening(attempt)
        if name == "order":
            if attempt in self.ordered:
                return  # the master orders each attempt once
            self.ordered.add(attempt)
            self.held.add(attempt)  # by the thread of its task
        self.feed(name, *given)

    @rule(number=st.integers(0, 3))
    def attempt_reports(self, number: int) -> None:
        self.feed("from_runner", Reported(0.0, AttemptId(number, 0), Report(1, {"loss": 1.0})))

    @rule(
        happening=st.sampled_from(
            [("announced", JOINED), ("announced", REFUSED), ("cut_off",), ("leave_if_idle",)]
        )
    )
    def something_happens_to_the_worker(self, happening: tuple[Any, ...]) -> None:
        runs, had_left = bool(self.held), self.has_left
        if happening == ("leave_if_idle",):
            assert self.state.leave_if_idle() is not runs
        else:
            self.feed(*happening)
        self.has_left |= self.state.phase is not Phase.ACCEPTED
        assert not (runs and self.has_left and not had_left), "it leaves though something runs"

    @precondition(lambda self: len(self.ordered) > 2)
    @rule(happening=st.sampled_from([("leave", "SIGTERM"), ("study_ends",), ("refused", REFUSED)]))
    def worker_leaves(self, happening: tuple[Any, ...]) -> None:
        self.feed(*happening)
        self.has_left = True

    def teardown(self) -> None:
        """Nothing stays when the study has ended."""
        self.feed("study_ends")
        self.has_left = True
        self.feed("runner_closed")
        assert not self.held
        for attempt in self.ordered:
            self.feed("from_runner", AttemptEnded(0.0, attempt, RETURNED.ending))
            self.feed("granted", attempt)


TestPluginMachine = PluginMachine.TestCase
TestPluginMachine.settings = settings(max_examples=100)

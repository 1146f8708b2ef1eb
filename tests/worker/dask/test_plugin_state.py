"""The state machine of a study on a worker: its events and the instructions that it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from attempt_orders import BRIEF
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Report
from hptune.core.messages import (
    AttemptEnded,
    Reported,
    WorkerJoined,
    WorkerLeaving,
    WorkerRefused,
)
from hptune.core.resources import Capacity, Placement
from hptune.worker.dask.announcement import Announcement
from hptune.worker.dask.plugin_state import (
    Abandon,
    Begin,
    CutOff,
    EnterQueue,
    FilesSent,
    Free,
    Granted,
    Halted,
    Instruction,
    Instructions,
    Leave,
    MasterGone,
    NotBrought,
    Orphaned,
    Phase,
    PluginEvent,
    PluginState,
    Refused,
    RemovePlugin,
    RunnerClosed,
    Send,
    SendFiles,
    StudyEnds,
)
from hptune.worker.orders import AttemptLimits, AttemptOrder, StopOrder
from hptune.worker.transport.remote_study import NotSent

A, B = AttemptId(0, 0), AttemptId(1, 0)
RETURNED = AttemptEnded(0.0, A, Ending(Cause.RETURNED, {"loss": 1.0}, step=1))
JOINED = Announcement(WorkerJoined(0.0, "w", "node", Capacity((0,))))
REMOTE = dataclasses.replace(JOINED, sees_directory=False)
REFUSED = Announcement(WorkerRefused(0.0, "w", "node", "it has no disk"))
FULL = Send(WorkerLeaving(0.0, "w", "its local disk is full"))


def order(attempt: AttemptId = A, *, grace_seconds: float = 0.0) -> AttemptOrder:
    limits = AttemptLimits(master_grace_seconds=grace_seconds)
    brief = dataclasses.replace(BRIEF, limits=limits)
    return AttemptOrder(brief, attempt, {}, (), Placement("w", (0,)), 7, ())


def ended(attempt: AttemptId, ending: Ending) -> tuple[Instruction, ...]:
    return (Send(AttemptEnded(0.0, attempt, ending)), Free(attempt))


def state_after(*events: PluginEvent) -> PluginState:
    state = PluginState()
    for each in events:
        state.handle(each)
        state.validate()
    return state


def test_an_attempt_begins_when_it_holds_its_devices_and_ends_once() -> None:
    state = PluginState()
    assert state.handle(JOINED) == (Send(JOINED),)
    assert state.handle(order()) == (EnterQueue(order()),)
    assert state.handle(Granted(A)) == (Begin(order()),)
    assert state.handle(Granted(A)) == ()
    report = Reported(0.0, A, Report(1, {"loss": 1.0}))
    assert state.handle(report) == (Send(report),)
    assert state.handle(RETURNED) == ended(A, RETURNED.ending)
    for late in (RETURNED, report, Granted(A), Orphaned(A), NotBrought(A, "no"), RunnerClosed()):
        assert state.handle(late) == ()


@pytest.mark.parametrize("halt", [Halt.PAUSE, Halt.RELEASE])
def test_an_order_to_stop_ends_what_waits_and_is_passed_on_for_what_runs(halt: Halt) -> None:
    state = state_after(JOINED, order(A), order(B), Granted(B))
    assert state.handle(StopOrder(A, halt)) == ended(A, halt.ending)
    assert state.handle(Granted(A)) == (), "its devices were free at the same moment"
    assert state.handle(StopOrder(B, halt)) == (Halted(B, halt),)


def test_an_order_to_stop_may_overtake_the_order_to_start() -> None:
    state = state_after(JOINED, StopOrder(A, Halt.PRUNE), StopOrder(A, Halt.STOP))
    assert state.handle(order()) == ended(A, Halt.PRUNE.ending)


@pytest.mark.parametrize("after", [Leave("SIGTERM"), StudyEnds(), MasterGone(), Refused(REFUSED)])
def test_nothing_begins_on_a_worker_that_leaves_or_is_refused(after: PluginEvent) -> None:
    state = state_after(JOINED, after)
    assert state.handle(order()) == ended(A, Halt.RELEASE.ending)


@pytest.mark.parametrize("before", [Leave("SIGTERM"), StudyEnds()])
def test_a_worker_that_left_while_it_was_joining_announces_nothing(before: PluginEvent) -> None:
    state = PluginState()
    assert state.handle(before) == ()
    assert state.handle(JOINED) == state.handle(REFUSED) == ()
    assert state.announcement is None


def test_a_worker_is_refused_by_itself_or_by_the_master() -> None:
    state = PluginState()
    assert state.handle(REFUSED) == (Send(REFUSED),)
    assert state.handle(JOINED) == state.handle(Leave("SIGTERM")) == ()
    state = state_after(JOINED)
    assert state.handle(Refused(REFUSED)) == ()
    assert (state.phase, state.announcement) == (Phase.REFUSED, REFUSED)


def test_a_worker_that_leaves_says_so_before_it_releases_its_attempts() -> None:
    """Else the master could order them there again."""
    state = state_after(JOINED, order(A), order(B), Granted(B))
    assert state.handle(Leave("SIGTERM")) == (
        Send(WorkerLeaving(0.0, "w", "SIGTERM")),
        *ended(A, Halt.RELEASE.ending),
        Halted(B, Halt.RELEASE),
    )
    assert state.handle(Leave("again")) == ()
    late = AttemptEnded(0.0, B, Halt.RELEASE.ending)
    assert state.handle(late) == ended(B, late.ending)


def test_a_plugin_goes_with_its_master_when_nothing_runs() -> None:
    state = state_after(JOINED, order())
    assert state.handle(MasterGone()) == ()
    state.handle(StopOrder(A, Halt.STOP))
    assert state.handle(MasterGone()) == (RemovePlugin(),)


@pytest.mark.parametrize(
    ("announced", "grace_seconds", "expected"),
    [
        (JOINED, 0.0, (Halted(A, Halt.RELEASE),)),
        (JOINED, 60.0, ()),  # the runner stops it when its grace time is over
        (REMOTE, 60.0, (Abandon(A), Halted(A, Halt.RELEASE))),
    ],
)
def test_an_orphan_stops_unless_it_may_outlive_its_master(
    announced: Announcement, grace_seconds: float, expected: Instructions
) -> None:
    asked = order(grace_seconds=grace_seconds)
    state = state_after(announced, asked)
    assert state.handle(Orphaned(A)) == ended(A, Halt.RELEASE.ending)
    state = state_after(announced, asked, Granted(A))
    assert state.handle(Orphaned(A)) == expected


def test_no_files_are_offered_to_a_master_that_cannot_be_reached() -> None:
    state = state_after(REMOTE, order(A), order(B), Granted(B))
    assert state.handle(CutOff()) == (*ended(A, Halt.RELEASE.ending), Abandon(B))
    assert state.attempts == [B]
    assert state_after(JOINED, order(), Granted(A)).handle(CutOff()) == ()


def test_the_end_of_an_attempt_follows_its_files() -> None:
    state = state_after(REMOTE, order(), Granted(A))
    assert state.handle(FilesSent(RETURNED, None)) == ()
    assert state.handle(RETURNED) == (SendFiles(RETURNED),)
    assert state.handle(RETURNED) == (), "its end is known"
    assert state.handle(FilesSent(RETURNED, None)) == ended(A, RETURNED.ending)
    assert state.handle(FilesSent(RETURNED, None)) == ()
    state = state_after(REMOTE, order(), Granted(A), RETURNED)
    reason = "its files could not be sent from node to the study: no answer"
    lost = Ending(Cause.WORKER_LOST, reason=reason)
    assert state.handle(FilesSent(RETURNED, NotSent("no answer"))) == ended(A, lost)


def test_a_worker_whose_disk_is_full_leaves() -> None:
    state = state_after(REMOTE, order(A), Granted(A), order(B), Granted(B))
    lost = Ending(Cause.WORKER_LOST, reason="no room")
    assert state.handle(NotBrought(A, "no room", is_full=True)) == (FULL, *ended(A, lost))
    assert state.handle(NotBrought(A, "no room", is_full=True)) == ()
    end = AttemptEnded(0.0, B, Ending(Cause.NO_ROOM, reason="a checkpoint"))
    assert state.handle(end) == (SendFiles(end),)
    instructions = state.handle(FilesSent(end, None))
    assert (instructions[0], instructions[-1]) == (FULL, Free(B))


def test_a_study_that_ends_leaves_nothing() -> None:
    state = state_after(JOINED, order(A), order(B), Granted(B))
    assert state.handle(StudyEnds()) == ended(A, Halt.RELEASE.ending)
    assert state.handle(RunnerClosed()) == (Free(B),)
    assert state.handle(AttemptEnded(0.0, B, RETURNED.ending)) == ()
    assert state.attempts == []


EVENTS: list[Callable[[AttemptId], PluginEvent]] = [
    order,
    lambda each: StopOrder(each, Halt.PRUNE),
    Granted,
    Granted,
    lambda each: NotBrought(each, "no room", is_full=True),
    lambda each: AttemptEnded(0.0, each, RETURNED.ending),
    lambda each: FilesSent(AttemptEnded(0.0, each, RETURNED.ending), None),
    Orphaned,
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
        self.feed(announced)
        self.has_left = self.state.phase is Phase.REFUSED

    def feed(self, event: PluginEvent) -> None:
        for each in self.state.handle(event):
            match each:
                case Send(AttemptEnded(_, attempt, _)):
                    assert attempt not in self.ended, "it ends twice"
                    assert attempt in self.held
                    self.ended.add(attempt)
                case Send(Reported(_, attempt, _)):
                    assert attempt in self.held
                case EnterQueue() | Begin():
                    assert not self.has_left, "it begins on a worker that leaves"
                case Free(attempt):
                    self.held.remove(attempt)  # fails if it is given back twice
        self.state.validate()

    @invariant()
    def what_is_held_has_not_ended(self) -> None:
        assert self.held == {*self.state.attempts}
        assert not self.held & self.ended

    @rule(number=st.integers(0, 3), event=st.sampled_from(EVENTS))
    def something_happens_to_an_attempt(
        self, number: int, event: Callable[[AttemptId], PluginEvent]
    ) -> None:
        attempt = AttemptId(number, 0)
        if event is order:
            if attempt in self.ordered:
                return  # the master orders each attempt once
            self.ordered.add(attempt)
            self.held.add(attempt)  # by the thread of its task
        self.feed(event(attempt))

    @rule(number=st.integers(0, 3))
    def attempt_reports(self, number: int) -> None:
        self.feed(Reported(0.0, AttemptId(number, 0), Report(1, {"loss": 1.0})))

    @rule(event=st.sampled_from([JOINED, REFUSED, CutOff(), MasterGone()]))
    def something_happens_to_the_worker(self, event: PluginEvent) -> None:
        runs, had_left = bool(self.held), self.has_left
        self.feed(event)
        self.has_left |= self.state.phase is not Phase.ACCEPTED
        assert not (runs and self.has_left and not had_left), "it leaves though something runs"

    @precondition(lambda self: len(self.ordered) > 2)
    @rule(event=st.sampled_from([Leave("SIGTERM"), StudyEnds(), Refused(REFUSED)]))
    def worker_leaves(self, event: PluginEvent) -> None:
        self.feed(event)
        self.has_left = True

    def teardown(self) -> None:
        """Nothing stays when the study has ended."""
        self.feed(StudyEnds())
        self.has_left = True
        self.feed(RunnerClosed())
        assert not self.held
        for attempt in self.ordered:
            self.feed(AttemptEnded(0.0, attempt, RETURNED.ending))
            self.feed(Granted(attempt))


TestPluginMachine = PluginMachine.TestCase
TestPluginMachine.settings = settings(max_examples=100)

"""The state machine of a runner: its events and the instructions that it returns."""

from __future__ import annotations

import dataclasses
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

import attempt_orders
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Report, StopAt
from hptune.core.messages import AttemptEnded, Reported
from hptune.worker.orders import AttemptLimits, StopOrder, StudyBrief
from hptune.worker.runner_state import (
    GRACE_SECONDS,
    Drain,
    DumpStacks,
    EarlyStops,
    EndAttempt,
    Instructions,
    Kill,
    RunnerState,
)

LIMITS = AttemptLimits(trial_timeout_seconds=100.0)
BRIEF = dataclasses.replace(attempt_orders.BRIEF, limits=LIMITS)
A, B = AttemptId(0, 0), AttemptId(1, 0)
RETURNED = Ending(Cause.RETURNED, {"loss": 1.0}, step=1)
HUNG = Ending(Cause.HUNG, reason="it hung")
TOO_LARGE = Ending(Cause.OUT_OF_MEMORY, reason="too large")


def running(*, brief: StudyBrief = BRIEF, attempt: AttemptId = A) -> RunnerState:
    """Return the state of a runner in which one attempt runs since time 0."""
    state = RunnerState()
    assert state.start(attempt, brief) == ()
    state.forked(attempt, now=0.0)
    return state


def ended(attempt: AttemptId, cause: Cause, reason: str) -> AttemptEnded:
    return AttemptEnded(0.0, attempt, Ending(cause, reason=reason))


def end_of(state: RunnerState, status: int | None) -> EndAttempt:
    """Return the instructions after the exit of A's process."""
    assert state.exited(A, status) == (Drain(A),)
    (finish,) = state.channel_closed(A)
    assert isinstance(finish, EndAttempt)
    return finish


def test_an_attempt_ends_when_its_process_has_exited_and_its_channel_is_read() -> None:
    state = running()
    report = Reported(0.0, A, Report(1, {"loss": 1.0}))
    assert state.message(A, report, now=1.0) == (report,)
    assert state.message(A, AttemptEnded(0.0, A, RETURNED), now=2.0) == ()
    assert state.end_early(A, HUNG, now=3.0) == (), "it has ended in time"
    assert state.next_deadline == 2.0 + GRACE_SECONDS, "its exit may take this long"
    assert state.open_channels == [A]
    assert state.exited(A, 0) == (Drain(A),)
    assert state.channel_closed(A) == (EndAttempt(A, RETURNED),)
    assert not state.open_channels
    assert state.next_deadline is None


def test_a_channel_may_close_before_the_exit_is_known() -> None:
    state = running()
    state.message(A, AttemptEnded(0.0, A, RETURNED), now=2.0)
    assert state.channel_closed(A) == ()
    assert state.open_channels == []
    assert state.exited(A, 0) == (EndAttempt(A, RETURNED),)


@pytest.mark.parametrize(
    ("status", "cause", "reason"),
    [
        (0, Cause.EXITED, "its process exited with status 0 and gave no result"),
        (3, Cause.EXITED, "its process exited with status 3 and gave no result"),
        (-signal.SIGSEGV, Cause.EXITED, "its process crashed with SIGSEGV"),
        (-signal.SIGTERM, Cause.KILLED, "its process was killed by SIGTERM"),
        (-signal.SIGKILL, Cause.KILLED, "its process was killed by SIGKILL"),
        (None, Cause.WORKER_LOST, "the process that it was forked from failed"),
    ],
)
def test_a_process_that_ends_without_a_result(
    status: int | None, cause: Cause, reason: str
) -> None:
    found = end_of(running(), status)
    assert found == EndAttempt(A, Ending(cause, reason=reason), status == -signal.SIGKILL)


def test_an_attempt_that_is_told_to_stop_is_killed_after_the_grace_time() -> None:
    state = running()
    assert state.stop(A, Halt.PRUNE, now=5.0) == (StopOrder(A, Halt.PRUNE),)
    assert state.stop(A, Halt.RELEASE, now=6.0) == (), "the first order counts"
    assert state.tick(now=5.0 + GRACE_SECONDS - 0.1) == ()
    assert state.tick(now=5.0 + GRACE_SECONDS) == (Kill(A),)
    assert state.tick(now=50.0) == ()
    finish = end_of(state, -signal.SIGKILL)
    assert finish.ending.cause is Cause.PRUNED
    assert finish.ending.reason.endswith("killed after the grace time")
    assert not finish.was_sigkilled, "the runner killed it, not the kernel"


def test_an_attempt_that_may_end_its_epoch_is_killed_at_its_time_limit_only() -> None:
    state = running(
        brief=dataclasses.replace(BRIEF, limits=dataclasses.replace(LIMITS, stop_at=StopAt.EPOCH))
    )
    assert state.stop(A, Halt.PRUNE, now=5.0) == (StopOrder(A, Halt.PRUNE),)
    assert state.stop(A, Halt.PAUSE, now=6.0) == (), "the first order counts"
    assert state.tick(now=99.0) == ()
    assert state.next_deadline == 100.0, "its time limit stays"
    assert state.tick(now=100.0) == ()
    assert state.tick(now=100.0 + GRACE_SECONDS) == (Kill(A),)
    ending = end_of(state, -signal.SIGKILL).ending
    assert ending.cause is Cause.PRUNED
    assert ending.reason.endswith("killed: ran longer than the 100 s allowed")


@pytest.mark.parametrize("first", [Halt.STOP, Halt.PRUNE, Halt.PAUSE])
def test_an_attempt_that_may_end_its_epoch_may_not_once_its_worker_leaves(first: Halt) -> None:
    limits = AttemptLimits(stop_at=StopAt.EPOCH)
    state = running(brief=dataclasses.replace(BRIEF, limits=limits))
    assert state.stop(A, first, now=5.0) == (StopOrder(A, first),)
    assert state.stop(A, Halt.RELEASE, now=6.0) == (StopOrder(A, Halt.RELEASE),)
    assert state.stop(A, Halt.RELEASE, now=7.0) == state.stop(A, Halt.STOP, now=7.0) == ()
    assert state.next_deadline == 6.0 + GRACE_SECONDS
    state.message(A, AttemptEnded(0.0, A, Halt.RELEASE.ending), now=8.0)
    ending = end_of(state, 0).ending
    assert (ending.cause, ending.reason) == (first.cause, Halt.RELEASE.reason), "the first counts"


SIGTERM = Ending(Cause.KILLED, reason="SIGTERM")


@pytest.mark.parametrize(
    ("halt", "own", "status", "found"),
    [
        # Slurm sends SIGTERM to a trial and to its worker, and Lightning says that it was killed.
        (Halt.RELEASE, SIGTERM, 0, Ending(Cause.RELEASED, reason="SIGTERM")),
        (Halt.PRUNE, SIGTERM, 0, Ending(Cause.PRUNED, reason="SIGTERM")),
        (Halt.PRUNE, RETURNED, 0, RETURNED),  # it was done before the order came
        (None, Halt.RELEASE.ending, 0, Halt.RELEASE.ending),
        (Halt.PAUSE, None, 3, Ending(Cause.PAUSED, reason="its process exited with status 3")),
    ],
)
def test_which_ending_counts(
    halt: Halt | None, own: Ending | None, status: int, found: Ending
) -> None:
    state = running()
    if halt is not None:
        state.stop(A, halt, now=5.0)
    if own is not None:
        state.message(A, AttemptEnded(0.0, A, own), now=6.0)
    ending = end_of(state, status).ending
    assert ending.reason.endswith(found.reason)
    assert dataclasses.replace(ending, reason=found.reason) == found


def test_an_attempt_that_hangs_before_it_ends_its_epoch_is_killed() -> None:
    limits = AttemptLimits(stop_at=StopAt.EPOCH)
    state = running(brief=dataclasses.replace(BRIEF, limits=limits))
    state.stop(A, Halt.STOP, now=5.0)
    assert state.end_early(A, HUNG, now=50.0) == (DumpStacks(A),)
    assert state.end_early(A, HUNG, now=51.0) == ()
    assert state.tick(now=55.0) == (Kill(A),)
    finish = end_of(state, -signal.SIGKILL)
    assert finish.ending == Ending(Cause.STOPPED, reason="the study stopped; killed: it hung")


def test_the_time_limit() -> None:
    state = running()
    assert state.next_deadline == 100.0
    assert state.tick(now=100.0) == (StopOrder(A, Halt.STOP),)
    assert state.next_deadline == 100.0 + GRACE_SECONDS
    assert state.tick(now=100.0 + GRACE_SECONDS) == (Kill(A),)
    finish = end_of(state, -signal.SIGKILL)
    assert finish.ending == Ending(Cause.TIMED_OUT, reason="ran longer than the 100 s allowed")


@pytest.mark.parametrize(
    ("own", "result"),
    [
        (None, TOO_LARGE),
        (Ending(Halt.STOP.cause), TOO_LARGE),
        (RETURNED, RETURNED),
    ],
    ids=["no result", "stopped", "returned"],
)
def test_an_attempt_that_breaks_a_limit(own: Ending | None, result: Ending) -> None:
    state = running()
    assert state.end_early(A, TOO_LARGE, now=5.0) == (StopOrder(A, Halt.STOP),)
    assert state.end_early(A, HUNG, now=5.0) == (), "the first reason counts"
    assert state.stop(A, Halt.PRUNE, now=5.0) == ()
    if own is not None:
        state.message(A, AttemptEnded(0.0, A, own), now=5.0)
    assert end_of(state, 0).ending == result


def test_an_attempt_that_hangs_writes_its_stacks_and_is_killed() -> None:
    state = running()
    assert state.end_early(A, HUNG, now=5.0) == (DumpStacks(A),)
    assert state.tick(now=9.9) == ()
    assert state.tick(now=10.0) == (Kill(A),)
    assert end_of(state, -signal.SIGKILL).ending == HUNG


def test_an_attempt_that_is_stopped_breaks_no_limit() -> None:
    state = running()
    state.stop(A, Halt.PRUNE, now=5.0)
    assert state.end_early(A, HUNG, now=5.0) == ()


def test_an_attempt_that_waits_for_its_process() -> None:
    state = RunnerState()
    state.start(A, BRIEF)
    assert state.is_starting(A)
    assert state.open_channels == []
    assert state.stop(A, Halt.PAUSE, now=0.0) == (ended(A, Cause.PAUSED, Halt.PAUSE.reason),)
    assert not state.is_starting(A)
    assert state.fork_failed(A, "no memory") == ()
    state.start(B, BRIEF)
    reason = "no process could be started for it: no memory"
    assert state.fork_failed(B, "no memory") == (ended(B, Cause.WORKER_LOST, reason),)


def test_a_rank_whose_peer_is_gone_is_killed_at_once() -> None:
    state = running()
    assert state.stop(A, Halt.ABORT, now=5.0) == (Kill(A),)
    assert end_of(state, -signal.SIGKILL).ending.cause is Halt.ABORT.cause
    told = running()
    told.stop(A, Halt.PRUNE, now=5.0)
    assert told.stop(A, Halt.ABORT, now=6.0) == (Kill(A),)
    assert end_of(told, -signal.SIGKILL).ending.cause is Cause.PRUNED, "the first order counts"
    hung = running()
    hung.end_early(A, HUNG, now=5.0)
    hung.stop(A, Halt.ABORT, now=6.0)
    assert end_of(hung, -signal.SIGKILL).ending == HUNG
    over = running()
    over.message(A, AttemptEnded(0.0, A, RETURNED), now=5.0)
    assert over.stop(A, Halt.ABORT, now=6.0) == (Kill(A),)
    by_rank_0 = running()
    by_rank_0.message(A, AttemptEnded(0.0, A, Halt.STOP.ending), now=5.0)
    by_rank_0.stop(A, Halt.ABORT, now=6.0)
    assert end_of(by_rank_0, -signal.SIGKILL).ending == Halt.STOP.ending
    assert end_of(over, -signal.SIGKILL).ending == RETURNED


def test_an_order_to_stop_may_overtake_the_order_to_start() -> None:
    state = RunnerState()
    assert state.stop(A, Halt.RELEASE, now=0.0) == ()
    assert state.start(A, BRIEF) == (ended(A, Cause.RELEASED, Halt.RELEASE.reason),)
    assert not state.is_starting(A)


def test_the_latest_early_stops_are_remembered() -> None:
    stops = EarlyStops()
    for number in range(2000):
        stops.add(AttemptId(number, 0), Halt.PRUNE)
    stops.add(AttemptId(1999, 0), Halt.PAUSE)
    assert stops.take(AttemptId(0, 0)) is None
    assert stops.take(AttemptId(1999, 0)) is Halt.PRUNE
    assert stops.take(AttemptId(1999, 0)) is None


def test_nothing_follows_after_the_runner_has_closed() -> None:
    state = running()
    state.close()
    assert state.message(A, Reported(0.0, A, Report(1, {})), now=1.0) == ()
    assert (state.exited(A, 0), state.channel_closed(A), state.tick(now=999.0)) == ((), (), ())
    assert state.kill(A, HUNG) == ()
    assert state.start(B, BRIEF) == (ended(B, Cause.RELEASED, "its worker has ended"),)


def test_attempts_may_outlive_their_master_for_their_grace_time() -> None:
    patient = dataclasses.replace(
        BRIEF, limits=dataclasses.replace(LIMITS, master_grace_seconds=60.0)
    )
    state = running(brief=patient)
    state.start(B, BRIEF)
    state.forked(B, now=0.0)
    assert state.may_outlive_master
    assert state.stop_survivors(Halt.STOP, now=0.0, lost_seconds=60.0) == ()
    assert state.stop_survivors(Halt.STOP, now=0.0, lost_seconds=60.1) == (StopOrder(A, Halt.STOP),)
    assert running(brief=patient).stop_survivors(Halt.STOP, now=0.0) == (StopOrder(A, Halt.STOP),)
    assert running(brief=patient).stop_survivors(Halt.RELEASE, now=0.0) == (
        StopOrder(A, Halt.RELEASE),
    )
    without = running()
    assert not without.may_outlive_master
    assert without.stop_survivors(Halt.STOP, now=0.0) == ()


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            ["start", "fork", "fork failed", "stop", "end", "close channel", "exit", "lost", "tick",
             "limit", "master"]
        ),
        st.sampled_from([A, B]),
    ),
    max_size=40,
)  # fmt: skip


@given(EVENTS)
def test_each_started_attempt_ends_once_in_any_order_of_events(
    events: list[tuple[str, AttemptId]],
) -> None:
    state, now = RunnerState(), 0.0
    started: set[AttemptId] = set()
    ends: list[AttemptId] = []

    def note(instructions: Instructions) -> None:
        ended = (each for each in instructions if isinstance(each, EndAttempt | AttemptEnded))
        ends.extend(each.attempt for each in ended)

    def fork(attempt: AttemptId) -> Instructions:
        if state.is_starting(attempt):
            state.forked(attempt, now=now)
        return ()

    def start(attempt: AttemptId) -> Instructions:
        if attempt in started:
            return ()
        started.add(attempt)
        return state.start(
            attempt,
            dataclasses.replace(
                BRIEF, limits=dataclasses.replace(LIMITS, master_grace_seconds=5.0)
            ),
        )

    for event, attempt in events:
        now += 10.0
        match event:
            case "start":
                note(start(attempt))
            case "fork":
                note(fork(attempt))
            case "fork failed":
                note(state.fork_failed(attempt, "no memory"))
            case "stop":
                note(state.stop(attempt, Halt.PRUNE, now=now))
            case "end":
                note(state.message(attempt, AttemptEnded(0.0, attempt, RETURNED), now=now))
            case "close channel":
                note(state.channel_closed(attempt))
            case "exit" | "lost":
                note(state.exited(attempt, 0 if event == "exit" else None))
            case "tick":
                note(state.tick(now=now))
            case "limit":
                note(state.end_early(attempt, TOO_LARGE, now=now))
            case "master":
                note(state.stop_survivors(Halt.STOP, now=now, lost_seconds=now))
    for attempt in started:
        note(fork(attempt))
        note(state.exited(attempt, 0))
        note(state.channel_closed(attempt))
    assert sorted(ends) == sorted(started)
    assert state.next_deadline is None

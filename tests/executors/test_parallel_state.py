"""The ranks of an attempt as one attempt: the state machine, in any order of events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import attempt_orders
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Report, Usage
from hptune.core.meeting import Member, RankReady
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    AttemptWaits,
    Event,
    Measured,
    Reported,
    Start,
    WorkerJoined,
    WorkerLeft,
)
from hptune.core.resources import Capacity, Placement
from hptune.executors.parallel_state import (
    GIVE_WAY_SECONDS,
    LINGER_SECONDS,
    NEWS_SECONDS,
    READY_SECONDS,
    Instruction,
    ParallelState,
)
from hptune.worker.orders import AttemptLimits, AttemptOrder, MeetOrder, StopOrder
from hptune.worker.runner_state import GRACE_SECONDS

NAME = AttemptId(3, 0)
RETURNED = Ending(Cause.RETURNED, {"loss": 1.0}, step=1)
KILLED = Ending(Cause.KILLED, reason="killed by SIGKILL")
RAISED = Ending(Cause.EXCEPTION, reason="ValueError: no")
ON_GPU = Ending(Cause.DEVICE_OUT_OF_MEMORY, reason="CUDA out of memory")
FULL = Ending(Cause.NO_ROOM, reason="the disk is full")
RELEASED = Halt.RELEASE.ending
LOST_RANK = Ending(Cause.RANK_LOST, reason="rank 0 of this trial is gone")
ABORTED = Ending(Halt.ABORT.cause, reason="another rank is gone")
BRIEF = replace(attempt_orders.BRIEF, limits=AttemptLimits(master_grace_seconds=600.0))


def order(*workers: str) -> AttemptOrder:
    first, *peers = (Placement(worker, (i,)) for i, worker in enumerate(workers))
    placement = Placement(first.worker, first.cpus, peers=tuple(peers))
    return AttemptOrder(BRIEF, Start(NAME, {}, placement, 7), ())


class Ranks:
    """The state with one attempt, and what became of it.

    It plays the executor of the ranks: a rank that is aborted ends.

    Attributes:
        given: All instructions but those to emit, which the executor has carried out.
        told: All events for the study.
        now: The time.
    """

    def __init__(self, *workers: str, obeys: bool = True) -> None:
        self.state = ParallelState()
        self.given: list[Instruction] = []
        self.told: list[Event] = []
        self.now = 0.0
        self._obeys = obeys
        self.living: set[int] = set()
        for worker in dict.fromkeys(workers):
            self.event(WorkerJoined(1.0, worker, f"node of {worker}", Capacity((0, 1))))
        self.carry_out(self.state.start(order(*workers), secret=b"secret"))

    def carry_out(self, instructions: list[Instruction]) -> None:
        for each in instructions:
            match each:
                case AttemptOrder():
                    self.living.add(each.attempt.rank)
                case StopOrder() | MeetOrder():
                    pass
                case event:
                    self.told.append(event)
                    continue
            self.given.append(each)
            if self._obeys and isinstance(each, StopOrder) and each.halt is Halt.ABORT:
                self.end(each.attempt.rank, ABORTED)

    def event(self, event: Event) -> None:
        self.carry_out(self.state.event(event, now=self.now))

    def ready(self, *ranks: int) -> None:
        for rank in ranks:
            member = Member(rank, "127.0.0.1", "node", (1000 + rank, 2000 + rank))
            self.event(RankReady(1.0, NAME._replace(rank=rank), 100 + rank, member))

    def end(self, rank: int, ending: Ending) -> None:
        if rank in self.living:
            self.living.discard(rank)
            self.event(AttemptEnded(1.0, NAME._replace(rank=rank), ending))

    def stop(self, halt: Halt) -> None:
        self.carry_out(self.state.stop(NAME, halt, now=self.now))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.carry_out(self.state.tick(now=self.now))

    @property
    def endings(self) -> list[Ending]:
        return [each.ending for each in self.told if isinstance(each, AttemptEnded)]

    @property
    def ending(self) -> Ending:
        (found,) = self.endings
        assert not self.living
        assert self.state.next_deadline is None
        return found

    def met(self) -> bool:
        return any(isinstance(each, MeetOrder) for each in self.given)


def two(*, ready: bool = True) -> Ranks:
    ranks = Ranks("a", "a")
    if ready:
        ranks.ready(0, 1)
    return ranks


def test_each_rank_gets_its_part_of_the_order() -> None:
    ranks = Ranks("a", "b")
    orders = [each for each in ranks.given if isinstance(each, AttemptOrder)]
    assert [str(each.attempt) for each in orders] == ["3.0", "3.0r1"]
    assert [each.placement.worker for each in orders] == ["a", "b"]
    assert not any(each.placement.peers for each in orders)
    for each in orders:
        assert each.parallel is not None
        assert (each.parallel.world_size, each.parallel.is_on_one_node) == (2, False)
        assert each.brief.limits.master_grace_seconds == 0.0, "it ends with its master"
        assert "secret" not in repr(each)
    assert [each.log for each in orders] == [
        Path("study/trials/3/log.txt"),
        Path("study/trials/3/log.rank1.txt"),
    ]


def test_ranks_meet_when_all_are_ready_and_one_attempt_is_told() -> None:
    ranks = two(ready=False)
    for rank in (1, 0):
        ranks.event(AttemptWaits(1.0, NAME._replace(rank=rank), "the device queue"))
    ranks.ready(0)
    assert not ranks.met()
    ranks.ready(1)
    assert ranks.met()
    for rank in (0, 1):
        ranks.event(Reported(1.0, NAME._replace(rank=rank), Report(1, {"loss": float(rank)})))
        gpu = None if rank else 3.0
        usage = Usage(
            peak_memory_bytes=100,
            cpu_seconds=2.0,
            seconds=3.0,
            gpu_joules=gpu,
            processor_joules=4.0,
        )
        ranks.event(Measured(1.0, NAME._replace(rank=rank), usage))
    ranks.end(1, Ending(Cause.RETURNED))
    assert not ranks.endings
    ranks.end(0, RETURNED)
    assert ranks.ending == RETURNED
    _, waits, started, reported, _, measured, _ = ranks.told
    assert (waits, started) == (AttemptWaits(1.0, NAME, "the device queue"),
                                AttemptStarted(1.0, NAME, 100))  # fmt: skip
    assert reported == Reported(1.0, NAME, Report(1, {"loss": 0.0}))
    assert isinstance(measured, Measured)
    assert (measured.usage.peak_memory_bytes, measured.usage.cpu_seconds) == (200, 4.0)
    assert (measured.usage.gpu_joules, measured.usage.processor_joules) == (3.0, 8.0)


@pytest.mark.parametrize(
    ("endings", "cause", "reason"),
    [
        # The other rank's framework raises when its peer is killed, and may say so first.
        ([(0, RAISED), (1, KILLED)], Cause.KILLED, "killed by SIGKILL (rank 1)"),
        ([(1, KILLED), (0, RAISED)], Cause.KILLED, "killed by SIGKILL (rank 1)"),
        ([(0, RAISED), (1, ON_GPU)], Cause.DEVICE_OUT_OF_MEMORY, "CUDA out of memory (rank 1)"),
        ([(0, RAISED), (1, FULL)], Cause.NO_ROOM, "the disk is full (rank 1)"),
        # Its worker leaves, and rank 0 was told later, and waited for it.
        ([(1, RELEASED), (0, RAISED)], Cause.RELEASED, "its worker had to leave (rank 1)"),
        ([(1, RELEASED), (0, LOST_RANK)], Cause.RELEASED, "its worker had to leave (rank 1)"),
        ([(0, RAISED), (1, RELEASED)], Cause.EXCEPTION, "ValueError: no (rank 0)"),
        # It explains why rank 0 lost its connection, though it is told later.
        ([(0, LOST_RANK), (1, RELEASED)], Cause.RELEASED, "its worker had to leave (rank 1)"),
        ([(1, LOST_RANK), (0, Halt.PRUNE.ending)], Cause.PRUNED, Halt.PRUNE.reason),
        ([(1, Ending(Cause.RETURNED)), (0, RAISED)], Cause.EXCEPTION, "ValueError: no (rank 0)"),
        ([(1, RAISED), (0, ABORTED)], Cause.EXCEPTION, "ValueError: no (rank 1)"),
        ([(0, ABORTED), (1, RAISED)], Cause.EXCEPTION, "ValueError: no (rank 1)"),
        ([(0, ABORTED)], Cause.WORKER_LOST, "another rank is gone (rank 0)"),
        ([(1, Ending(Cause.HUNG, reason="hung"))], Cause.HUNG, "hung (rank 1)"),
        ([(0, RETURNED), (1, KILLED)], Cause.RETURNED, ""),
        ([(1, Ending(Cause.RETURNED)), (0, RETURNED)], Cause.RETURNED, ""),
    ],
)
def test_which_ending_counts(endings: list[tuple[int, Ending]], cause: Cause, reason: str) -> None:
    ranks = two()
    for rank, ending in endings:
        ranks.end(rank, ending)
        ranks.wait(0.1)
    ranks.wait(NEWS_SECONDS)
    assert (ranks.ending.cause, ranks.ending.reason) == (cause, reason)


def test_the_others_of_a_dead_rank_are_killed_at_once() -> None:
    ranks = Ranks("a", "a", "b", obeys=False)
    ranks.ready(0, 1, 2)
    ranks.end(1, KILLED)
    ranks.wait(0.0)
    assert ranks.given[-2:] == [
        StopOrder(NAME, Halt.ABORT),
        StopOrder(NAME._replace(rank=2), Halt.ABORT),
    ]


@pytest.mark.parametrize(
    ("said_first", "cause"), [(LOST_RANK, Cause.EXCEPTION), (KILLED, Cause.KILLED)]
)
def test_an_exception_counts_whose_files_arrive_after_the_others_were_aborted(
    said_first: Ending, cause: Cause
) -> None:
    """On a worker that does not see the study's directory, an end follows the attempt's files."""
    ranks = Ranks("a", "b", obeys=False)
    ranks.ready(0, 1)
    ranks.end(1, said_first)
    ranks.wait(NEWS_SECONDS)
    assert ranks.given[-1] == StopOrder(NAME, Halt.ABORT)
    ranks.end(0, RAISED)
    assert ranks.ending.cause is cause


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_the_earlier_of_two_limits_for_the_other_ranks_counts(first: float) -> None:
    ranks = Ranks("a", "a", "a", obeys=False)
    ranks.ready(0, 1, 2)
    ends = [(1, RAISED), (2, Ending(Cause.RETURNED))]
    for rank, ending in ends if first else reversed(ends):
        ranks.end(rank, ending)
        ranks.wait(1.0)
    assert ranks.state.next_deadline == 1.0 - first + NEWS_SECONDS
    ranks.wait(NEWS_SECONDS)
    assert ranks.given[-1] == StopOrder(NAME, Halt.ABORT)
    assert ranks.state.next_deadline is None


def test_a_worker_that_leaves_while_its_rank_is_killed_does_not_hide_the_error() -> None:
    ranks = Ranks("a", "b", obeys=False)
    ranks.ready(0, 1)
    ranks.end(0, RAISED)
    ranks.wait(NEWS_SECONDS)
    ranks.living.discard(1)
    ranks.event(WorkerLeft(1.0, "b", "its walltime is over"))
    assert ranks.ending.cause is Cause.EXCEPTION


def test_other_ranks_have_some_time_after_the_result() -> None:
    ranks = two()
    ranks.end(0, RETURNED)
    ranks.wait(LINGER_SECONDS - 1.0)
    assert not ranks.endings
    ranks.wait(1.0)
    assert ranks.ending == RETURNED


def test_only_rank_0_is_told_to_stop_once_they_have_met() -> None:
    before, after = two(ready=False), two()
    before.ready(0)
    for ranks in (before, after):
        ranks.stop(Halt.PRUNE)
        ranks.stop(Halt.STOP)
    told = [each for each in before.given if isinstance(each, StopOrder)]
    both = [StopOrder(NAME._replace(rank=rank), Halt.PRUNE) for rank in (0, 1)]
    assert told[:2] == both
    before.ready(1)
    assert not before.met(), "they met though they are to stop"
    assert after.given[-2] == StopOrder(NAME, Halt.PRUNE)
    after.now = 1.0
    after.end(0, Ending(Cause.PRUNED, reason="told to prune"))
    after.wait(GRACE_SECONDS - 1.5)
    assert not after.endings, "rank 1 may take the grace time"
    after.wait(0.5)
    assert after.ending.cause is Cause.PRUNED


def test_a_rank_that_is_not_ready_in_time_ends_the_attempt() -> None:
    late, waiting = two(ready=False), two(ready=False)
    waiting.event(AttemptWaits(1.0, NAME._replace(rank=1), "the device queue"))
    for ranks in (late, waiting):
        ranks.wait(10 * READY_SECONDS)
        assert not ranks.endings, "the time begins with the first that is ready"
        ranks.ready(0)
        ranks.wait(GIVE_WAY_SECONDS[1])
    # Two studies may hold half of what the other one waits for.
    assert waiting.ending.cause is Cause.RELEASED
    assert not late.endings, "a framework's import may be slow"
    late.wait(READY_SECONDS - GIVE_WAY_SECONDS[1])
    assert late.ending.cause is Cause.WORKER_LOST
    assert "rank 1 was not ready 300 s after" in late.ending.reason


def test_ranks_that_never_met_and_do_not_stop_when_told_are_killed() -> None:
    ranks = two(ready=False)
    ranks.ready(0)
    ranks.stop(Halt.PAUSE)
    ranks.stop(Halt.STOP)
    ranks.ready(1)
    ranks.wait(READY_SECONDS)
    assert ranks.ending.cause is Cause.PAUSED
    assert not ranks.met()


def test_two_attempts_that_wait_for_each_other_give_way_at_different_times() -> None:
    times = set()
    for secret in (b"\0" * 16, b"\x80" * 16, b"\xff" * 16):
        state = ParallelState()
        state.start(order("a", "b"), secret=secret)
        state.event(AttemptWaits(0.0, NAME._replace(rank=1), "the device queue"), now=0.0)
        state.event(RankReady(0.0, NAME, 100, Member(0, "127.0.0.1", "node", (1, 2))), now=0.0)
        assert state.next_deadline is not None
        times.add(state.next_deadline)
    assert min(times) == GIVE_WAY_SECONDS[0]
    assert max(times) == GIVE_WAY_SECONDS[1]
    assert len(times) == 3


def test_a_lost_worker_ends_the_ranks_elsewhere_and_then_the_attempt() -> None:
    ranks = Ranks("a", "b", obeys=False)
    ranks.ready(0, 1)
    ranks.event(WorkerLeft(1.0, "b", "its node failed"))
    assert isinstance(ranks.told[-1], WorkerLeft)
    assert ranks.given[-1] == StopOrder(NAME, Halt.ABORT)
    assert not ranks.endings
    ranks.living.discard(1)
    ranks.end(0, ABORTED)
    assert ranks.ending == Ending(Cause.WORKER_LOST, reason="its node failed (rank 1)")


def test_the_study_is_told_nothing_more_if_all_workers_are_lost() -> None:
    ranks = Ranks("a", "b", obeys=False)
    ranks.ready(0, 1)
    for worker in ("b", "a"):
        ranks.event(WorkerLeft(1.0, worker, "its node failed"))
    assert not ranks.endings, "the engine ends it"
    assert ranks.state.next_deadline is None


def test_a_result_is_not_lost_with_the_last_worker() -> None:
    ranks = Ranks("a", "b")
    ranks.ready(0, 1)
    ranks.end(0, RETURNED)
    for worker in ("a", "b"):
        ranks.event(WorkerLeft(1.0, worker, "its walltime is over"))
    assert [type(each) for each in ranks.told[-2:]] == [AttemptEnded, WorkerLeft]
    assert ranks.endings == [RETURNED]


@pytest.mark.parametrize("left", [("a",), ("a", "b")])
def test_an_order_for_a_worker_that_is_gone_starts_nothing(left: tuple[str, ...]) -> None:
    state = ParallelState()
    for worker in ("a", "b"):
        state.event(WorkerJoined(1.0, worker, worker, Capacity((0,))), now=0.0)
    for worker in left:
        state.event(WorkerLeft(1.0, worker, "gone"), now=0.0)
    found = state.start(order("a", "b"), secret=b"")
    if len(left) == 2:
        assert found == [], "the engine ends it"
        return
    (ended,) = found
    assert isinstance(ended, AttemptEnded)
    assert ended.ending.cause is Cause.WORKER_LOST


def test_attempts_of_one_process_pass() -> None:
    state = ParallelState()
    events: list[Event] = [
        WorkerJoined(1.0, "a", "node", Capacity((0,))),
        AttemptStarted(1.0, NAME, 5),
        AttemptEnded(1.0, NAME, RETURNED),
        WorkerLeft(1.0, "a", "gone"),
    ]
    for event in events:
        assert state.event(event, now=0.0) == [event]
    assert state.stop(NAME, Halt.PRUNE, now=0.0) == [StopOrder(NAME, Halt.PRUNE)]
    stranger = AttemptEnded(1.0, NAME._replace(rank=1), RETURNED)
    assert state.event(stranger, now=0.0) == [], "a late event of a rank"


RANKS = st.integers(0, 2)
ENDINGS = st.sampled_from([each for each in Cause if each is not Cause.RANK_LOST]).map(
    lambda cause: Ending(cause, reason="why")
)
HAPPENINGS = st.lists(
    st.tuples(st.just("ready"), RANKS)
    | st.tuples(st.just("end"), st.tuples(RANKS, ENDINGS | st.just(ABORTED)))
    | st.tuples(st.just("stop"), st.sampled_from(Halt))
    | st.tuples(st.just("left"), st.sampled_from(["a", "b"]))
    | st.tuples(st.just("wait"), st.sampled_from([0.5, NEWS_SECONDS, 400.0]))
    | st.tuples(st.just("report"), RANKS)
)


@given(happenings=HAPPENINGS, together=st.booleans())
def test_in_any_order_an_attempt_ends_once_and_leaves_no_rank(
    happenings: list[tuple[str, object]], *, together: bool
) -> None:
    ranks = Ranks("a", "a", "a" if together else "b")
    workers = {"a"} if together else {"a", "b"}
    left: set[str] = set()
    result = None

    def leave(worker: str) -> None:
        left.add(worker)
        ranks.living -= {0, 1, 2} if together else ({0, 1} if worker == "a" else {2})
        ranks.event(WorkerLeft(1.0, worker, "gone"))

    for what, value in happenings:
        match what, value:
            case "ready", int(rank) if rank in ranks.living:
                ranks.ready(rank)
            case "end", (int(rank), Ending() as ending) if rank in ranks.living:
                if rank == 0 and ending.cause is Cause.RETURNED:
                    result = ending
                ranks.end(rank, ending)
            case "stop", Halt() as halt:
                ranks.stop(halt)
            case "left", str(worker) if worker in workers - left:
                leave(worker)
            case "wait", float(seconds):
                ranks.wait(seconds)
            case "report", int(rank) if rank in ranks.living:
                ranks.event(Reported(1.0, NAME._replace(rank=rank), Report(1, {"loss": 1.0})))
        assert len(ranks.endings) <= 1
        if ranks.endings or left == workers:
            assert not ranks.living, "a rank is left running"
    # Whatever was open ends when all ranks that run do; nothing waits for more than that.
    for rank in [*ranks.living]:
        ranks.end(rank, ABORTED)
    ranks.wait(0.0)
    assert ranks.state.next_deadline is None
    if ranks.endings:
        (ending,) = ranks.endings
        assert ending.cause is not Cause.RANK_LOST
        if result is not None:
            assert ending == result
    else:
        assert left == workers
        assert result is None
    known = {AttemptEnded, AttemptStarted, Reported}
    of_attempt = [each for each in ranks.told if type(each) in known]
    assert all(each.attempt == NAME for each in of_attempt)  # type: ignore[union-attr]  # of_attempt
    if ranks.endings:
        assert isinstance(of_attempt[-1], AttemptEnded), "something follows its end"


@given(first=ENDINGS, rank=RANKS)
def test_a_rank_that_ends_never_leaves_others_for_long(first: Ending, rank: int) -> None:
    ranks = Ranks("a", "a", "b")
    ranks.ready(0, 1, 2)
    ranks.end(rank, first)
    ranks.wait(LINGER_SECONDS)
    assert not ranks.living
    assert rank == 0 or ranks.ending.cause is not Cause.RETURNED, "rank 0 has the result"
    assert len(ranks.endings) == 1

# ruff: noqa: D102  (a test's name says what it asks for)
"""The contract of an executor as tests.

A plug-in's author writes::

    class TestMyExecutor(ExecutorSuite):
        @contextmanager
        def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
            mine = MyExecutor(stage.run, [tuple(range(cores))], ())  # one worker
            mine.open()
            try:
                yield mine
            finally:
                mine.close()

        def lose_worker(self, executor: Executor, worker: str) -> None:
            os.kill(process_id_of(worker), signal.SIGKILL)

and inherits the tests. Attempts are real processes that run `OBJECTIVE`.
"""

from __future__ import annotations

import abc
import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from ..core.attempt import AttemptId, Cause, Halt
from ..core.messages import AttemptEnded, Continue, Measured, Reported, WorkerJoined
from ..executors.base import Executor
from ..worker.runner_state import GRACE_SECONDS
from .executor_driver import Driver, Stage, Traces, is_alive, open_stage, wait_until

__all__ = ["Driver", "ExecutorSuite", "Stage"]


HALTS = [(halt, halt.cause) for halt in Halt if halt is not Halt.ABORT]
"""How an attempt ends after each request to stop."""


class ExecutorSuite(abc.ABC):
    """Subclass it, name the subclass Test…, and supply the executor.

    Attributes:
        ranks: The number of processes of each attempt.
        replaces_workers: Whether another worker comes for one that was lost.
        limit_seconds: How long to wait at most for what must happen.
        tidy_seconds: How long processes, ports and folders may be there after they should not.
    """

    ranks = 1
    replaces_workers = True
    limit_seconds = 60.0
    tidy_seconds = 30.0

    @abc.abstractmethod
    def executor(self, stage: Stage, cores: int) -> AbstractContextManager[Executor]:
        """Return an open executor whose workers have this many cores each; closed on leaving."""

    @abc.abstractmethod
    def lose_worker(self, executor: Executor, worker: str) -> None:
        """Kill a worker's process, as the kernel would."""

    def executor_without_workers(self, stage: Stage) -> AbstractContextManager[Executor] | None:
        """An open executor that no worker joins; None where that cannot be."""
        del stage
        return None

    # --- fixtures ---------------------------------------------------------------------------

    @pytest.fixture(scope="class")
    @classmethod
    def stage(cls) -> Iterator[Stage]:
        """A folder with the objective, and a warm parent; nothing may be left of either."""
        with open_stage() as stage:
            yield stage

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, stage: Stage) -> Iterator[Driver]:
        """An executor for the tests that leave it whole."""
        with cls().driver(stage) as driver:
            yield driver

    @contextmanager
    def driver(self, stage: Stage, cores: int = 2) -> Iterator[Driver]:
        """A driver of an executor that is closed in the end, and leaves nothing behind."""
        before = Traces.now(stage)
        with self.executor(stage, cores * self.ranks) as executor:
            driver = Driver(executor, stage.brief, self.limit_seconds, ranks=self.ranks)
            yield driver
        wait_until(lambda: not before.added(), self.tidy_seconds, before.added)

    # --- attempts ---------------------------------------------------------------------------

    def test_a_worker_joins_before_anything_else(self, shared: Driver) -> None:
        worker = shared.any_worker()
        first = shared.story[0]
        assert isinstance(first, WorkerJoined)
        assert first.node
        assert len(set(shared.workers[worker].cpus)) == 2 * self.ranks

    def test_an_attempt_starts_reports_and_returns(self, shared: Driver) -> None:
        name = shared.start("return")
        ending = shared.ending(name)
        assert ending.cause is Cause.RETURNED, ending
        assert ending.metrics == {"score": name.trial / 8, "seed": 1_000.0 + name.trial}
        assert shared.reports(name) == [(1, {"score": 0.25}), (2, {"score": 0.5})]
        shared.nothing_more()

    def test_a_worker_with_two_cores_runs_two_at_once(self, shared: Driver) -> None:
        one, two = (shared.running("wait", cpu=cpu) for cpu in (0, 1))
        assert shared.pid(one) != shared.pid(two)
        shared.executor.stop(one)
        assert shared.ending(one).cause is Cause.STOPPED
        third = shared.start("return")
        assert shared.ending(third).cause is Cause.RETURNED
        shared.executor.stop(two)
        assert shared.ending(two).cause is Cause.STOPPED

    @pytest.mark.parametrize(("halt", "cause"), HALTS)
    def test_an_attempt_can_be_stopped(self, shared: Driver, halt: Halt, cause: Cause) -> None:
        name = shared.running("wait")
        shared.executor.stop(name, halt)
        shared.executor.stop(name, Halt.STOP)  # the first reason counts
        ending = shared.ending(name)
        assert ending.cause is cause, ending
        assert "killed" not in ending.reason, ending
        self.check_gone(shared.pid(name))

    def test_an_attempt_learns_that_it_may_continue_after_a_rung(self, shared: Driver) -> None:
        name = shared.running("wait at a rung")
        shared.executor.tell(Continue(name, 1))
        assert shared.ending(name).cause is Cause.RETURNED
        shared.executor.tell(Continue(name, 2))  # too late
        shared.nothing_more()

    def test_an_attempt_can_be_killed_at_once(self, shared: Driver) -> None:
        name = shared.running("ignore")
        shared.executor.stop(name, Halt.ABORT)
        ending = shared.ending(name)
        assert ending.cause in (Cause.RANK_LOST, Cause.WORKER_LOST), ending
        assert self.seconds_to_end(shared) < GRACE_SECONDS, "it was killed later"
        self.check_gone(shared.pid(name))

    def test_an_attempt_can_be_stopped_before_it_has_begun(self, shared: Driver) -> None:
        shared.any_worker()
        name = shared.start("wait")
        shared.executor.stop(name)
        ending = shared.ending(name)
        assert ending.cause is Cause.STOPPED, ending

    def test_an_attempt_that_ignores_the_order_ends_after_the_grace_time(
        self, shared: Driver
    ) -> None:
        name = shared.running("ignore")
        shared.executor.stop(name)
        ending = shared.ending(name)
        assert ending.cause is Cause.STOPPED, ending
        assert self.seconds_to_end(shared) < GRACE_SECONDS + self.limit_seconds
        self.check_gone(shared.pid(name))

    def test_stopping_again_or_too_late_does_nothing(self, shared: Driver) -> None:
        shared.any_worker()
        over = shared.start("return")
        assert shared.ending(over).cause is Cause.RETURNED
        shared.executor.stop(over)
        name = shared.running("wait")
        for _ in range(3):
            shared.executor.stop(name)
        assert shared.ending(name).cause is Cause.STOPPED
        shared.executor.stop(name)
        shared.executor.stop(AttemptId(9_999, 0))
        shared.nothing_more()

    @pytest.mark.parametrize(
        ("behaviour", "cause", "reason"),
        [
            ("raise", Cause.EXCEPTION, "ValueError: it is broken"),
            ("exit", Cause.EXITED, "status 3"),
            ("leave", Cause.EXITED, "exit(4)"),
            ("be killed", Cause.KILLED, "SIGKILL"),
            ("report NaN", Cause.NON_FINITE, "score is nan at step 2"),
        ],
    )
    def test_failures_are_reported_as_what_they_are(
        self, shared: Driver, behaviour: str, cause: Cause, reason: str
    ) -> None:
        shared.any_worker()
        name = shared.start(behaviour)
        ending = shared.ending(name)
        assert ending.cause is cause, ending
        assert reason in ending.reason
        if cause is Cause.EXCEPTION:
            assert "ValueError" in ending.detail
        assert shared.reports(name)[0] == (1, {"score": 0.25}), "the report before is lost"
        shared.nothing_more()
        again = shared.start("return")
        assert shared.ending(again).cause is Cause.RETURNED, "the worker is of no use any more"

    def test_results_that_make_no_sense_are_passed_on_for_the_engine(self, shared: Driver) -> None:
        shared.any_worker()
        other = shared.ending(shared.start("return another metric"))
        assert other.metrics["loss"] == 1.0  # beside what it has reported
        assert other.cause in (Cause.RETURNED, Cause.UNKNOWN_METRIC)
        nan = shared.ending(shared.start("return NaN"))
        assert nan.cause is Cause.NON_FINITE or math.isnan(nan.metrics["score"])

    def test_a_wake_makes_a_waiting_call_return(self, shared: Driver) -> None:
        name = shared.running("wait")
        begun = time.monotonic()
        while True:
            shared.executor.wake()
            events = shared.listen(60.0)
            if not events:
                break
            # What is measured of the attempt may come at any time.
            assert all(isinstance(event, Measured) for event in events), events
        assert time.monotonic() - begun < 30.0
        shared.executor.stop(name)
        shared.ending(name)

    # --- workers ----------------------------------------------------------------------------

    def test_a_lost_worker_is_reported_and_its_attempts_end_with_it(self, stage: Stage) -> None:
        with self.driver(stage) as driver:
            worker, count = driver.any_worker(), len(driver.workers)
            names = [driver.running("wait", cpu=cpu) for cpu in (0, 1)]
            self.lose_worker(driver.executor, worker)
            driver.wait(lambda: worker not in driver.workers, f"{worker} left")
            for name in names:
                self.check_gone(driver.pid(name))
                driver.executor.stop(name)
            if self.replaces_workers:
                self.check_replaced(driver, count)
            driver.nothing_more()

    def test_an_order_for_a_worker_that_is_gone_does_no_harm(self, stage: Stage) -> None:
        with self.driver(stage) as driver:
            worker, count = driver.any_worker(), len(driver.workers)
            self.lose_worker(driver.executor, worker)
            driver.start("return", worker=worker)
            driver.wait(lambda: worker not in driver.workers, f"{worker} left")
            if self.replaces_workers:
                self.check_replaced(driver, count)

    def check_replaced(self, driver: Driver, count: int) -> None:
        """Check that this many workers are there again and usable; more of them may go first."""
        for _ in range(5):
            driver.wait(lambda: len(driver.workers) >= count, "another worker joins")
            again = driver.start("return")
            if driver.is_over(again):
                assert driver.ending(again).cause is Cause.RETURNED
                return
        raise AssertionError("no worker that came could run anything")

    def test_having_no_worker_is_a_state(self, stage: Stage) -> None:
        without = self.executor_without_workers(stage)
        if without is None:
            pytest.skip("this executor always has workers")
        with without as executor:
            for _ in range(3):
                assert executor.events(0.1) == []

    # --- the end ----------------------------------------------------------------------------

    def test_closing_kills_what_runs_and_leaves_nothing(self, stage: Stage) -> None:
        with self.driver(stage) as driver:
            pids = [driver.pid(driver.running("wait", cpu=cpu)) for cpu in (0, 1)]
            driver.executor.close()
            for pid in pids:
                self.check_gone(pid)

    def test_closing_twice_is_closing_once(self, stage: Stage) -> None:
        with self.driver(stage) as driver:
            driver.executor.close()
            driver.executor.close()

    @staticmethod
    def seconds_to_end(driver: Driver) -> float:
        """The time between the latest report and the latest end of an attempt."""
        times = {type(event): event.at for event in driver.story}
        return times[AttemptEnded] - times[Reported]

    def check_gone(self, pid: int) -> None:
        """An attempt's process is gone, or is gone in a moment."""
        wait_until(lambda: not is_alive(pid), self.tidy_seconds, lambda: f"process {pid}")

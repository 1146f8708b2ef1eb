"""Masters in threads of this process: the real loop, ledger and requests, on workers that wait."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attempt_orders import BRIEF
from hptune.ask_tell.places import AskersPlaces, stored_code
from hptune.core.attempt import Attempt, AttemptId, Cause, Ending, Halt
from hptune.core.clock import SystemClock
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    FinishReason,
    StopRequested,
    WorkerJoined,
)
from hptune.core.resources import Capacity
from hptune.core.snapshot import StudySnapshot
from hptune.core.trial import Trial
from hptune.executors.base import EventQueue, Executor
from hptune.master.followed_search import stored_sampler
from hptune.master.loop import StudyLoop
from hptune.master.past import Past
from hptune.master.recovery import discard_journals
from hptune.master.resume_plan import Changes, allowed_changes, plan_resume, resume_request
from hptune.master.stop_requests import StopRequests
from hptune.master.user_requests import UserRequests
from hptune.storage.artifacts import StudyFiles
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.storage.turn import acquired
from hptune.worker.orders import AttemptOrder
from masters import MasterKilled


class WaitingExecutor(Executor):
    """Workers of one core, whose attempts end when a test says so.

    Attributes:
        running: The attempts that run, in the order in which they began.
    """

    def __init__(self, workers: Sequence[str]) -> None:
        self._workers = workers
        self._queue = EventQueue(SystemClock())
        self.running: list[AttemptId] = []

    def open(self) -> None:
        for name in self._workers:
            self._queue.put(WorkerJoined(0.0, name, f"node-{name}", Capacity(cpus=(0,))))

    def start(self, order: AttemptOrder) -> None:
        self.running.append(order.attempt)
        self._queue.put(AttemptStarted(0.0, order.attempt, 1))

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        self.end(attempt, Ending(halt.cause))

    def end(self, attempt: AttemptId, ending: Ending) -> None:
        """End an attempt."""
        self.running.remove(attempt)
        self._queue.put(AttemptEnded(0.0, attempt, ending))

    def events(self, timeout_seconds: float) -> list[Event]:
        return self._queue.get(min(timeout_seconds, 0.01))

    def wake(self) -> None:
        self._queue.wake()

    def close(self) -> None:
        """Do nothing."""


class ThreadMaster:
    """A master of a study that exists, from its thread's start to its end.

    Args:
        path: The study.
        workers: The names of its own workers.
        clock: Stamps its events.

    Attributes:
        executor: Its own workers.
        snapshot: What its display has shown last.
        error: What ended it; None if it ended by itself.
    """

    def __init__(
        self, path: Path, workers: Sequence[str] = (), *, clock: SystemClock | None = None
    ) -> None:
        self._path = path
        self._clock = clock or SystemClock()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._may_write = threading.Event()
        self._may_write.set()
        self._dies: str = ""
        self._is_stopped = False
        self.executor = WaitingExecutor(workers)
        self.snapshot: StudySnapshot | None = None
        self.error: BaseException | None = None

    # --- for tests --------------------------------------------------------------------------

    def start(self) -> ThreadMaster:
        """Start it, and wait until it has opened the study."""
        self._thread.start()
        assert self._begun.wait(60.0)
        return self

    def stop(self) -> None:
        """Have it stop, and wait until it has ended."""
        self._is_stopped = True
        self._thread.join(60.0)
        assert not self._thread.is_alive()

    def dies(self, when: str) -> None:
        """Have it die at the next request of a program: `before` or `after` it has written."""
        self._dies = when

    def kill(self) -> None:
        """Have it die now."""
        self._dies = "now"
        self._thread.join(60.0)

    def suspend(self) -> None:
        """Have it answer nothing until it is killed, or `resumed`."""
        self._may_write.clear()

    def resumed(self) -> None:
        """Have it answer again."""
        self._may_write.set()

    # --- the master -------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._work()
        except MasterKilled as death:
            self.error = death
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._begun.set()

    def _work(self) -> None:
        directory = StudyDirectory(self._path).open()
        directory.requests.skip()
        with acquired(directory) as lock, Ledger.open(directory, lock=lock) as ledger:
            past = Past.begin(directory, ledger.facts)
            past.read(ledger.events())
            past.engine.take_changes()
            request = resume_request(allowed_changes(Changes(), past), past)
            plan = plan_resume(request, past, stored_code(past), AskersPlaces())
            discard_journals(directory)
            ledger.set_facts(plan.facts())
            users = UserRequests(
                directory.requests,
                past.engine,
                lambda: plan.space,
                lambda _, added: added,
                lock.owner.token,
            )
            requests = StopRequests(
                lock,
                self._clock,
                users=users,
                poll_seconds=lambda: 0.01,
            )
            self.executor.open()
            loop = StudyLoop(
                engine=past.engine,
                recorder=_Recorder(ledger, self),
                make_sampler=stored_sampler(past.settings, past.facts),
                space=plan.space,
                executor=self.executor,
                clock=self._clock,
                brief=BRIEF,
                files=StudyFiles(directory, plan.goals),
                observer=self,
                requests=lambda: self._asked(requests),
            )
            finish = loop.run(plan.opened(at=self._clock.now()))
            ended = {"finish_reason": str(finish.finish_reason), "reason": finish.reason}
            ledger.set_facts({"ended": ended})

    def _asked(self, requests: StopRequests) -> Sequence[Event]:
        if self._dies == "now":
            raise MasterKilled
        if not self._may_write.is_set():
            return ()
        events = [*requests()]
        if self._is_stopped:
            stop = StopRequested(self._clock.now(), FinishReason.INTERRUPTED, "stopped by a test")
            events.append(stop)
        return events

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Observe the study."""
        self.snapshot = snapshot
        self._begun.set()

    def dies_at(self, events: Sequence[Event], when: str) -> bool:
        """Return whether it dies before or after it has written these events."""
        return self._dies == when and any(is_of_program(event) for event in events)


def is_of_program(event: Event) -> bool:
    """Return whether an event is a master's answer to a program."""
    return getattr(event, "action", "") == "train"


class _Recorder:
    def __init__(self, ledger: Ledger, master: ThreadMaster) -> None:
        self._ledger = ledger
        self._master = master

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        if self._master.dies_at(events, "before"):
            raise MasterKilled
        self._ledger.append(events, trials=trials, attempts=attempts)
        if self._master.dies_at(events, "after"):
            raise MasterKilled

    def set_facts(self, facts: Mapping[str, object]) -> None:
        self._ledger.set_facts(facts)


@contextlib.contextmanager
def beside(path: Path, workers: Sequence[str] = ()) -> Iterator[ThreadMaster]:
    """Run a master of a study within the context; it is killed at its end if it still runs."""
    master = ThreadMaster(path, workers).start()
    try:
        yield master
    finally:
        master.resumed()
        master.kill()


def until(happens: object, seconds: float = 30.0) -> None:
    """Wait until a function returns something true."""
    assert callable(happens)
    give_up_at = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < give_up_at, "it did not happen"
        time.sleep(0.005)


def result(loss: float) -> Ending:
    """Return the end of an attempt with a result."""
    return Ending(Cause.RETURNED, metrics={"loss": loss})

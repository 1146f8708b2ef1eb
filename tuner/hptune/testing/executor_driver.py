"""What the executors' conformance suite is played with: an objective, a driver, a look around."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ..core.attempt import AttemptId, Cause, Ending, Usage
from ..core.clock import SystemClock, polls
from ..core.goals import Goals
from ..core.messages import (
    AttemptEnded,
    AttemptStarted,
    AttemptWaits,
    Event,
    Measured,
    Reported,
    Start,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from ..core.resources import Capacity, Placement
from ..core.trial import Direction, Goal, Params
from ..executors.base import Executor, RunContext
from ..user_code.source import ObjectiveSource, SourceKind
from ..worker.forkserver.client import ForkServer
from ..worker.orders import AttemptOrder, StudyBrief

OBJECTIVE = '''"""Does what the configuration says."""

import math
import os
import signal
import time


def objective(hp, trial):
    behaviour = trial.params["behaviour"]
    trial.report(1, score=0.25)
    if behaviour == "wait":
        while not trial.should_stop():
            time.sleep(0.02)
    elif behaviour == "wait at a rung":
        while trial.rank == 0 and trial.continued < 1:
            time.sleep(0.02)
    elif behaviour == "ignore":
        while True:
            time.sleep(60)
    elif behaviour == "raise":
        raise ValueError("it is broken")
    elif behaviour == "exit":
        os._exit(3)
    elif behaviour == "leave":
        raise SystemExit(4)
    elif behaviour == "be killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "report NaN":
        trial.report(2, score=math.nan)
    elif behaviour == "return NaN":
        return {"score": math.nan}
    elif behaviour == "return another metric":
        return {"loss": 1.0}
    trial.report(2, score=0.5)
    return {"score": trial.params["x"], "seed": trial.seed}
'''


@dataclass(frozen=True, slots=True)
class Stage:
    """What executors under test are given.

    Attributes:
        folder: A folder of the test's own.
        source: The file with `OBJECTIVE`.
        fork_server_address: The address of a ready fork server.
    """

    folder: Path
    source: ObjectiveSource
    fork_server_address: str

    @property
    def brief(self) -> StudyBrief:
        """What every attempt needs to know of the study."""
        return StudyBrief(
            name="suite",
            directory=str(self.folder / "study"),
            working_directory=str(self.folder),
            source=self.source,
            goals=Goals((Goal("score", Direction.MAX),)),
        )

    @property
    def run(self) -> RunContext:
        """The facts of a run, for the cluster or executor under test."""
        return RunContext(
            name=self.brief.name,
            source=self.source,
            clock=SystemClock(),
            fork_server=self.fork_server_address,
        )


@contextmanager
def open_stage() -> Iterator[Stage]:
    """Give a folder with the objective, and a warm parent; both go in the end."""
    # Short, because the address of a warm parent is a path of a hundred letters at most.
    folder = Path(tempfile.mkdtemp(prefix="suite-"))
    before = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    (folder / "objective.py").write_text(OBJECTIVE)
    source = ObjectiveSource(SourceKind.FILE, str(folder / "objective.py"))
    warm = ForkServer(source)
    try:
        warm.wait_ready()
        yield Stage(folder, source, warm.address)
    finally:
        warm.close()
        tempfile.tempdir = before[0]
        os.environ.pop("TMPDIR")
        if before[1] is not None:
            os.environ["TMPDIR"] = before[1]
        shutil.rmtree(folder)


@dataclass(slots=True)
class _AttemptEvents:
    """Events of an attempt so far."""

    worker: str
    started: AttemptStarted | None = None
    reports: list[Reported] = field(default_factory=list)
    usage: Usage | None = None
    ended: AttemptEnded | None = None


class Driver:
    """Gives an executor its orders, and checks that its events make sense.

    Attributes:
        executor: The executor under test, open.
        workers: The workers that have joined and not left.
        story: All its events so far.

    Args:
        executor: The executor under test, open.
        brief: What every attempt needs to know of the study.
        limit_seconds: Longest wait for what must happen.
        ranks: The number of processes of each attempt.
        may_return: Whether a worker that left may join again under its name.
    """

    def __init__(
        self,
        executor: Executor,
        brief: StudyBrief,
        limit_seconds: float,
        *,
        ranks: int = 1,
        may_return: bool = False,
    ) -> None:
        self._ranks = ranks
        self._may_return = may_return
        self.executor = executor
        self.workers: dict[str, Capacity] = {}
        self.story: list[Event] = []
        self._brief = brief
        self._limit_seconds = limit_seconds
        self._known: dict[AttemptId, _AttemptEvents] = {}
        self._names: set[str] = set()
        self._trials = 0

    def start(self, behaviour: str, *, cpu: int = 0, worker: str | None = None) -> AttemptId:
        """Start an attempt of a new trial on one core of a worker for each of its processes."""
        if worker is None:
            worker = self.any_worker()
        has = self.workers[worker].cpus
        first, *others = ((has[self._ranks * cpu + rank],) for rank in range(self._ranks))
        peers = tuple(Placement(worker, cpus) for cpus in others)
        name = AttemptId(self._trials, 0)
        params: Params = {"behaviour": behaviour, "x": self._trials / 8}
        start = Start(name, params, Placement(worker, first, peers=peers), 1_000 + self._trials)
        self._trials += 1
        self._known[name] = _AttemptEvents(worker)
        self.executor.start(AttemptOrder(self._brief, start, ()))
        return name

    def any_worker(self) -> str:
        """A worker, waited for if there is none."""
        self.wait(lambda: bool(self.workers), "a worker joins")
        return next(iter(self.workers))

    def running(self, behaviour: str, *, cpu: int = 0) -> AttemptId:
        """Start an attempt, and wait until it has reported."""
        name = self.start(behaviour, cpu=cpu)
        self.wait(lambda: bool(self.reports(name)), f"{name} reports")
        return name

    def ending(self, name: AttemptId) -> Ending:
        """Wait for an attempt's end."""
        self.wait(lambda: self._known[name].ended is not None, f"{name} ends")
        ended = self._known[name].ended
        assert ended is not None
        return ended.ending

    def is_over(self, name: AttemptId) -> bool:
        """Wait until an attempt ended, or its worker left; whether it was the former."""
        known = self._known[name]
        self.wait(
            lambda: known.ended is not None or known.worker not in self.workers,
            f"{name} ends, or its worker leaves",
        )
        return known.ended is not None

    def reports(self, name: AttemptId) -> list[tuple[int, Mapping[str, float]]]:
        """What an attempt has reported so far: steps and metrics."""
        return [(report.report.step, report.report.metrics) for report in self._known[name].reports]

    def pid(self, name: AttemptId) -> int:
        """The process of an attempt that has started."""
        started = self._known[name].started
        assert started is not None, f"{name} has not started"
        return started.pid

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Take in events until the condition holds.

        Raises:
            AssertionError: It does not come to hold in the time allowed.
        """
        waited = 0.0
        while not condition():
            assert waited < self._limit_seconds, f"no sign that {what}; the events are {self.story}"
            waited += 0.0 if self.listen(0.25) else 0.25

    def listen(self, seconds: float) -> list[Event]:
        """Return the executor's next events, checked."""
        events = self.executor.events(seconds)
        for event in events:
            self._check(event)
            self.story.append(event)
        return events

    def nothing_more(self, seconds: float = 0.5) -> None:
        """Check that no event of any attempt comes for a while."""
        waited = 0.0
        while waited < seconds:
            events = self.listen(0.25)
            waited += 0.25
            about = [event for event in events if not isinstance(event, WorkerJoined | WorkerLeft)]
            assert not about, f"further events: {about}"

    def _check(self, event: Event) -> None:
        latest = self.story[-1].at if self.story else 0.0
        assert event.at >= latest, f"{event} is stamped with an earlier time than the one before"
        match event:
            case WorkerJoined(worker=worker, capacity=capacity):
                assert worker not in self.workers, f"{worker} joined twice"
                is_new = self._may_return or worker not in self._names
                assert is_new, f"a second worker has the name {worker}"
                self._names.add(worker)
                self.workers[worker] = capacity
            case WorkerLeft(worker=worker):
                assert worker in self.workers, f"{worker} left, and was not there"
                del self.workers[worker]
            case WorkerLeaving(worker=worker):
                assert worker in self.workers, f"{worker} is about to leave, and was not there"
            case WorkerRefused(worker=worker, reason=reason):
                assert worker not in self.workers, f"{worker} is refused, and has joined"
                assert reason, f"{worker} is refused: why?"
            case AttemptWaits(attempt=name, reason=reason):
                known = self._alive(name, event)
                assert known.started is None, f"{name} waits, and has started"
                assert reason, f"{name} waits: for what?"
            case AttemptStarted(attempt=name):
                known = self._alive(name, event)
                assert known.started is None, f"{name} started twice"
                assert not known.reports, f"{name} reported before it started"
                known.started = event
            case Reported(attempt=name):
                known = self._alive(name, event)
                assert known.started is not None, f"{name} reported before it started"
                known.reports.append(event)
            case Measured(attempt=name, usage=usage):
                known = self._alive(name, event)
                assert known.started is not None, f"{name} was measured before it started"
                before = known.usage or usage
                assert usage.peak_memory_bytes >= before.peak_memory_bytes, f"{name}: a peak sank"
                assert usage.cpu_seconds >= before.cpu_seconds, f"{name}: time ran backwards"
                known.usage = usage
            case AttemptEnded(attempt=name, ending=ending):
                known = self._alive(name, event)
                known.ended = event
                assert ending.reason or ending.cause is Cause.RETURNED, f"{name} ended: why?"
            case _:
                raise AssertionError(f"an executor does not tell {event}")

    def _alive(self, name: AttemptId, event: Event) -> _AttemptEvents:
        assert name in self._known, f"{event} of an attempt that nobody ordered"
        known = self._known[name]
        assert known.ended is None, f"{event} after the end of {name}"
        assert known.worker in self.workers, f"{event} after its worker was gone"
        return known


@dataclass(frozen=True, slots=True)
class Traces:
    """What an executor could leave behind."""

    stage: Stage
    processes: frozenset[int]
    ports: frozenset[int]
    folders: frozenset[str]

    @classmethod
    def now(cls, stage: Stage) -> Traces:
        """What is there at present."""
        me = psutil.Process()
        ports = {
            connection.laddr.port
            for connection in me.net_connections(kind="tcp")
            if connection.status == psutil.CONN_LISTEN
        }
        return cls(
            stage=stage,
            processes=frozenset(child.pid for child in me.children(recursive=True)),
            ports=frozenset(ports),
            folders=frozenset(path.name for path in stage.folder.glob("hptune-*")),
        )

    def added(self) -> str:
        """What is there now that was not, in words."""
        now = Traces.now(self.stage)
        left = []
        for pid in now.processes - self.processes:
            try:
                words = " ".join(psutil.Process(pid).cmdline())
            except psutil.NoSuchProcess:
                continue
            # Python's own helper, one for all of the program; it stays until the program ends.
            if is_alive(pid) and "resource_tracker" not in words:
                left.append(f"process {pid} ({words})")
        left += [f"listening port {port}" for port in now.ports - self.ports]
        left += [f"folder {name}" for name in now.folders - self.folders]
        return ", ".join(left)


def is_alive(pid: int) -> bool:
    """Return whether the process runs."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], seconds: float, left: Callable[[], str]) -> None:
    """Wait until it is tidy.

    Raises:
        AssertionError: It is not in the time allowed.
    """
    for _ in polls(seconds, 0.05):
        if condition():
            return
    raise AssertionError(f"left behind: {left()}")

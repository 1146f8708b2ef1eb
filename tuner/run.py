"""Start a study or take it up again: read the user's code, find workers, run the loop."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from .core.clock import SystemClock
from .core.engine import Engine
from .core.messages import Event, Finish, StopRequested, StudyOpened, Verdict
from .core.sampler import Sampler
from .core.space import SearchSpace
from .core.trial import Direction, Goal, Trial
from .errors import ObjectiveFailedError, SpaceChangedError, StudyExistsError, UnknownMetricError
from .executors.base import Executor
from .ledger import Ledger
from .loop import StudyLoop
from .master_lock import MasterLock
from .model_file import ObjectiveSource, SourceKind
from .reporting.progress import Progress, RunHeader
from .samplers import make_sampler
from .settings import LocalShape, StudySettings, resolve_epochs, resolve_goal, resolve_shape
from .settings import worker_cores as share_cores
from .study_directory import StudyDirectory
from .study_files import StudyFiles
from .worker import devices
from .worker.orders import Found, ProbeOrder, StudyBrief
from .worker.warm_parent import WarmParent

STOP_POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, and how long masters have worked on the study in all."""

    finish: Finish
    seconds: float


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that is settled before the first trial."""

    settings: StudySettings
    goal: Goal
    epochs: int | None
    seed: int
    space: SearchSpace
    shape: LocalShape
    notes: tuple[str, ...]


def start(
    settings: StudySettings,
    directory: StudyDirectory,
    *,
    progress: Progress,
    client: Any = None,
    leave_at_once: Callable[[], None] | None = None,
) -> RunResult:
    """Start a study and run it to its end.

    Args:
        settings: What the user asked for.
        directory: Where to keep the study; must not hold one yet.
        progress: Shows how it goes.
        client: A `distributed.Client` whose workers to use; None to start a cluster here.
        leave_at_once: Called on a second Ctrl-C; None to raise KeyboardInterrupt.

    Raises:
        UsageError: Something in the request or in the user's code is wrong. No study was made.
        StudyError: The study could not go on; it can be resumed.
    """
    if directory.database.exists():
        directory.create()  # says what is wrong
        raise StudyExistsError(f"{directory} already holds a study")
    # Fails on an unknown name before seconds are spent on reading the model.
    make_sampler(settings.search, SearchSpace(), 0, direction=Direction.MAX)
    with _workers(settings, client) as workers:
        found = workers.read_objective()
        goal, notes = resolve_goal(settings, found)
        space = SearchSpace.from_json(found.space)
        plan = _Plan(
            settings=settings,
            goal=goal,
            epochs=resolve_epochs(settings, found),
            seed=secrets.randbelow(2**31) if settings.seed is None else settings.seed,
            space=space,
            shape=workers.shape(found.constants),
            notes=(*found.warnings, *notes, *_space_notes(settings, space)),
        )
        existed = directory.path.exists()
        directory.create()
        engine = Engine()
        facts = {
            "hptune_version": _version(),
            "created_at": workers.clock.now(),
            "settings": settings.to_json(),
            "goal": {"metric": goal.metric, "direction": str(goal.direction)},
            "epochs": plan.epochs,
            "seed": plan.seed,
            "space": space.to_json(),
            "declared_space": space.to_json(),
            "is_keras": found.is_keras,
        }
        try:
            with directory.acquire() as lock, Ledger.create(directory, facts) as ledger:
                return _run(
                    plan,
                    directory=directory,
                    lock=lock,
                    ledger=ledger,
                    engine=engine,
                    workers=workers,
                    progress=progress,
                    leave_at_once=leave_at_once,
                )
        except UnknownMetricError as error:
            if existed or engine.best is not None:
                raise UnknownMetricError(
                    f"{error.message} Start again with another --study (or remove {directory})."
                ) from error
            # Nothing in it can be used, and it would stand in the way of the mended command.
            shutil.rmtree(directory.path, ignore_errors=True)
            raise


def resume(
    directory: StudyDirectory,
    changes: Mapping[str, Any],
    *,
    progress: Progress,
    accept_space: bool = False,
    client: Any = None,
    leave_at_once: Callable[[], None] | None = None,
) -> RunResult:
    """Take a study up where its last master left it.

    Args:
        directory: Where the study is.
        changes: Fields of `StudySettings` to change, such as a larger `trials`.
        progress: Shows how it goes.
        accept_space: Go on although the model file now declares another search space.
        client: As for `start`.
        leave_at_once: As for `start`.

    Raises:
        NoStudyError: There is no study.
        StudyLockedError: Another master runs it.
        SpaceChangedError: The model file declares another search space than before.
        UsageError: As for `start`.
        StudyError: The study could not go on; it can be resumed.
    """
    directory.open()
    with directory.acquire() as lock, Ledger.open(directory) as ledger:
        facts = ledger.facts
        settings = replace(StudySettings.from_json(facts["settings"]), **changes)
        if settings.source.kind is SourceKind.PICKLE:
            # It lies in the study directory, which may have been moved since.
            beside = directory.path / Path(settings.source.path).name
            settings = replace(settings, source=ObjectiveSource(SourceKind.PICKLE, str(beside)))
        engine = Engine()
        for event in ledger.events():
            engine.handle(event)
        engine.take_changes()
        with _workers(settings, client) as workers:
            found = workers.read_objective()
            space = SearchSpace.from_json(facts["space"])
            declared = SearchSpace.from_json(found.space)
            differences = SearchSpace.from_json(facts["declared_space"]).differences(declared)
            if differences and not accept_space:
                raise SpaceChangedError(
                    f"The search space of {settings.source.path} has changed since the study "
                    f"began: {'; '.join(differences)}. Undo that, or go on in the new space with "
                    f"`hptune resume {directory} --accept-space` (trials that are over stay), or "
                    "start a new study with `hptune run … --study OTHER`."
                )
            if differences:
                space = declared
            goal = Goal(facts["goal"]["metric"], Direction(facts["goal"]["direction"]))
            epochs = changes.get("epochs") or facts["epochs"]
            plan = _Plan(
                settings=settings,
                goal=goal,
                epochs=epochs,
                seed=facts["seed"],
                space=space,
                shape=workers.shape(found.constants),
                notes=(*found.warnings, *_resume_notes(engine)),
            )
            ledger.set_fact("settings", settings.to_json())
            ledger.set_fact("epochs", epochs)
            ledger.set_fact("declared_space", declared.to_json())
            ledger.set_fact("space", space.to_json())
            return _run(
                plan,
                directory=directory,
                lock=lock,
                ledger=ledger,
                engine=engine,
                workers=workers,
                progress=progress,
                leave_at_once=leave_at_once,
            )


# --- workers --------------------------------------------------------------------------------


class _Workers:
    """The warm parent and the executor of this run."""

    def __init__(self, settings: StudySettings, client: Any, stack: contextlib.ExitStack) -> None:
        self.name = f"hptune-{uuid.uuid4().hex[:12]}"
        self.clock = SystemClock()
        self._settings = settings
        self._client = client
        self._stack = stack
        self._machine = devices.cpus()
        # First of all, since importing a framework takes seconds; all else goes on meanwhile.
        self._warm = WarmParent(settings.source)
        stack.callback(self._warm.close)
        self._executor: Executor | None = None
        if settings.executor == "dask":
            self._executor = self._opened(self._make_dask())

    def read_objective(self) -> Found:
        """Run the user's code in a child, and find what it declares."""
        settings = self._settings
        return self._warm.probe(ProbeOrder(settings.source, settings.working_directory))

    def shape(self, constants: Mapping[str, object]) -> LocalShape:
        """How cores are shared out, and what a trial holds."""
        return resolve_shape(self._settings, constants, self._machine)

    def executor(self, shape: LocalShape) -> Executor:
        """The open executor."""
        if self._executor is None:
            from .executors.joblib_executor import JoblibExecutor

            self._executor = self._opened(
                JoblibExecutor(
                    source=self._settings.source,
                    clock=self.clock,
                    cores=shape.cores,
                    warm_address=self._warm.address,
                )
            )
        return self._executor

    def words(self, shape: LocalShape) -> str:
        """How much runs at once, in words."""
        cpus = shape.resources.cpus
        if self._client is not None:
            return f"on the Dask cluster at {self._client.scheduler_info()['address']}"
        count = shape.at_once
        trials = "1 trial" if count == 1 else f"{count} trials"
        cores = "1 core" if cpus == 1 else f"{cpus} cores"
        return f"{trials} at once on this machine, {cores} each ({self._settings.executor})"

    def _make_dask(self) -> Executor:
        from .executors.dask_executor import DaskExecutor

        return DaskExecutor(
            name=self.name,
            source=self._settings.source,
            clock=self.clock,
            cores=share_cores(self._settings.workers, self._machine),
            client=self._client,
            warm_address=self._warm.address,
        )

    def _opened(self, executor: Executor) -> Executor:
        self._stack.callback(executor.close)
        executor.open()
        return executor


@contextlib.contextmanager
def _workers(settings: StudySettings, client: Any) -> Iterator[_Workers]:
    with contextlib.ExitStack() as stack:
        yield _Workers(settings, client, stack)


# --- the run --------------------------------------------------------------------------------


def _run(
    plan: _Plan,
    *,
    directory: StudyDirectory,
    lock: MasterLock,
    ledger: Ledger,
    engine: Engine,
    workers: _Workers,
    progress: Progress,
    leave_at_once: Callable[[], None] | None,
) -> RunResult:
    settings, clock = plan.settings, workers.clock
    executor = workers.executor(plan.shape)
    files = StudyFiles(directory)
    files.sweep(_over(engine))
    directory.clear_stop_request()
    requests = _Requests(settings, directory, lock, clock, worked_seconds=engine.active_seconds)

    def new_sampler(space: SearchSpace) -> Sampler:
        return make_sampler(
            settings.search,
            space,
            plan.seed,
            direction=plan.goal.direction,
            grid_resolution=settings.grid_resolution,
        )

    loop = StudyLoop(
        engine=engine,
        recorder=ledger,
        make_sampler=new_sampler,
        space=plan.space,
        executor=executor,
        clock=clock,
        brief=_brief(plan, directory, workers.name),
        files=_Kept(files, plan.goal),
        observer=progress,
        requests=requests,
    )
    progress.start(_header(plan, directory, workers, executor))
    try:
        with _interrupts(requests, executor, progress, leave_at_once):
            finish = loop.run(
                StudyOpened(
                    at=clock.now(),
                    trials=settings.budget_trials,
                    goal=plan.goal,
                    seed=plan.seed,
                    resources=plan.shape.resources,
                    max_failures=settings.max_failures,
                    same_failure_limit=settings.same_failure_limit,
                )
            )
    finally:
        progress.stop()
    _raise_verdict(finish, directory)
    return RunResult(finish, engine.active_seconds)


def _brief(plan: _Plan, directory: StudyDirectory, name: str) -> StudyBrief:
    settings = plan.settings
    return StudyBrief(
        name=name,
        directory=str(directory.path),
        working_directory=settings.working_directory,
        source=settings.source,
        metric=plan.goal.metric,
        direction=plan.goal.direction,
        epochs=plan.epochs,
        trial_timeout_seconds=settings.trial_timeout_seconds,
        deterministic=settings.seed is not None,
    )


def _header(
    plan: _Plan, directory: StudyDirectory, workers: _Workers, executor: Executor
) -> RunHeader:
    return RunHeader(
        study=str(directory),
        search=plan.settings.search,
        goal=str(plan.goal),
        trials=plan.settings.budget_trials,
        parallelism=workers.words(plan.shape),
        dashboard=executor.dashboard,
        notes=plan.notes,
        epochs=plan.epochs,
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """The loop's view of the files: the goal is the study's."""

    files: StudyFiles
    goal: Goal

    def keep_best(self, trial: Trial) -> None:
        self.files.keep_best(trial, self.goal)

    def discard(self, number: int) -> None:
        self.files.discard(number)


def _raise_verdict(finish: Finish, directory: StudyDirectory) -> None:
    if finish.verdict is Verdict.UNKNOWN_METRIC:
        raise UnknownMetricError(f"{finish.reason}. Name one of these with --objective.")
    if finish.verdict in (Verdict.SAME_FAILURE, Verdict.TOO_MANY_FAILURES):
        raise ObjectiveFailedError(
            f"The study was stopped: {finish.reason}. Its trials' logs are in "
            f"{directory.trials}. Mend the cause and go on with `hptune resume {directory}`.",
            finish.detail,
        )


class _Requests:
    """What comes from outside: interrupts, `hptune stop`, the end of the study's time."""

    def __init__(
        self,
        settings: StudySettings,
        directory: StudyDirectory,
        lock: MasterLock,
        clock: SystemClock,
        *,
        worked_seconds: float,
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._clock = clock
        self._next_poll = 0.0
        self._told = False
        self.interrupted = ""
        left = None if settings.timeout_seconds is None else settings.timeout_seconds
        self._limit = "" if left is None else f"the time limit of {left:g} s is reached"
        self._end = None if left is None else clock.now() - worked_seconds + left

    def __call__(self) -> Sequence[Event]:
        now = self._clock.now()
        self._lock.refresh()
        if self._told:
            return ()
        event = None
        if self.interrupted:
            event = StopRequested(now, Verdict.INTERRUPTED, self.interrupted)
        elif self._end is not None and now >= self._end:
            event = StopRequested(now, Verdict.TIME_UP, self._limit)
        elif now >= self._next_poll:
            self._next_poll = now + STOP_POLL_SECONDS
            if reason := self._directory.stop_requested():
                event = StopRequested(now, Verdict.INTERRUPTED, reason)
        if event is None:
            return ()
        self._told = True
        return (event,)


@contextlib.contextmanager
def _interrupts(
    requests: _Requests,
    executor: Executor,
    progress: Progress,
    leave_at_once: Callable[[], None] | None,
) -> Iterator[None]:
    """Ctrl-C (and SIGTERM) once: let go. Twice: leave at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if not requests.interrupted:
            requests.interrupted = f"interrupted by {name}"
            executor.wake()
            return
        progress.stop()
        if leave_at_once is not None:
            leave_at_once()
        raise KeyboardInterrupt

    before = {each: signal.signal(each, on_signal) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


# --- small words ----------------------------------------------------------------------------


def _over(engine: Engine) -> set[int]:
    best = engine.best
    return {
        trial.number
        for trial in engine.trials
        if trial.state.is_final and not (best and trial.number == best.number)
    }


def _space_notes(settings: StudySettings, space: SearchSpace) -> list[str]:
    if not len(space):
        return ["the model declares no hyperparameters: it is trained once"]
    if settings.search == "grid":
        from .samplers.grid import DEFAULT_RESOLUTION

        resolution = settings.grid_resolution or DEFAULT_RESOLUTION
        size = space.grid_size(resolution)
        points = f", {resolution} values of each continuous parameter"
        return [f"the grid has {size:,} configurations{points if space.size() is None else ''}"]
    return []


def _resume_notes(engine: Engine) -> list[str]:
    trials = list(engine.trials)
    over = sum(trial.state.is_final for trial in trials)
    waiting = len(trials) - over
    again = f", {waiting} run again" if waiting else ""
    return [f"resumed: {over} trials are over{again}"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hptune")
    except PackageNotFoundError:
        return "unknown"


def leave_at_once() -> None:
    """End the process now; workers and trials notice and end too."""
    os._exit(130)


def free_directory(model: Path) -> StudyDirectory:
    """A directory for a study that was given none: `studies/NAME-1`, or the next free number."""
    number = 1
    while (path := Path("studies") / f"{model.stem}-{number}").exists():
        number += 1
    return StudyDirectory(path)

"""Start a study or take it up again: read the user's code, find workers, run the loop."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.model_file import SourceKind
from ..config.objectives import goals_to_json
from ..config.settings import StudySettings
from ..core.clock import SystemClock
from ..core.engine.engine import Engine
from ..core.messages import Finish, FinishReason, GrowSpace, Reported, StudyClosed, StudyOpened
from ..core.resources import Amount
from ..core.trial import AttemptId, Suggestion
from ..errors import UnknownMetricError
from ..executors.base import Executor
from ..pruners.registry import make_pruner
from ..reporting.terminal.notifications import Notifications
from ..reporting.terminal.progress import RunHeader
from ..samplers.registry import learns
from ..storage.artifacts import StudyFiles
from ..storage.directory import StudyDirectory, storage_errors
from ..storage.ledger import Ledger
from ..storage.lock import MasterLock
from ..worker import devices
from ..worker.dask.study_access import StudyAccess, prepare_access
from ..worker.orders import StudyBrief
from .exit_errors import raise_finish
from .loop import StudyLoop
from .observers import RunDisplay, RunObservers, StudyRecorder
from .plan import Past, RunPlan, check_request, plan_resume, plan_start
from .recovery import collect, forget
from .resume_checks import ResumeState, check_changes
from .stop_requests import Requests
from .suggester import ask_ahead, sampler_maker, sized, with_sizes
from .workforce import ENDLESS, Workforce


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, and how long masters have worked on the study in all."""

    finish: Finish
    seconds: float


@dataclass(frozen=True, slots=True)
class _Home:
    """Where the study is written down, and the right to do so."""

    directory: StudyDirectory
    lock: MasterLock
    ledger: Ledger


def start(
    settings: StudySettings,
    directory: StudyDirectory,
    *,
    watch: RunDisplay,
    client: Any = None,
) -> RunResult:
    """Start a study and run it to its end.

    Args:
        settings: What the user asked for.
        directory: Where to keep the study; must not hold one yet.
        watch: Who looks on.
        client: A `distributed.Client` whose workers to use; None to start workers here.

    Raises:
        UsageError: Something in the request or in the user's code is wrong. No study was made.
        StudyError: The study could not go on; it can be resumed.
    """
    directory.check_place()
    try:
        return _start(settings, directory, watch, client)
    except UnknownMetricError as error:
        # Nothing in it can be used, and it would stand in the way of the mended command.
        directory.remove()
        raise UnknownMetricError(
            f"{error.message} The study in {directory} was taken away again.", error.detail
        ) from None
    finally:
        directory.give_up()  # if nothing came of it


def _start(
    settings: StudySettings, directory: StudyDirectory, watch: RunDisplay, client: Any
) -> RunResult:
    check_request(settings)
    with _workforce(settings, directory, client) as workers:
        _tell_reading(settings, watch)
        found = workers.read_objective()
        plan = plan_start(settings, found, workers)
        directory.create()
        engine = Engine(make_pruner)
        facts = {
            "hptune_version": _version(),
            "created_at": workers.clock.now(),
            "settings": plan.settings.to_json(),
            "goals": goals_to_json(plan.goals),
            "epochs": plan.epochs,
            "seed": plan.seed,
            "space": plan.space.to_json(),
            "declared_space": plan.declared.to_json(),
            "warm_start": [study.to_json() for study in plan.studies],
            "is_keras": found.is_keras,
            "ended": None,
        }
        with directory.acquire() as lock, Ledger.create(directory, facts) as ledger:
            directory.clear_stop_request()
            try:
                return _run(plan, _Home(directory, lock, ledger), engine, workers, watch)
            finally:
                # Before anybody else may become the study's master.
                workers.close()


def resume(
    directory: StudyDirectory,
    changes: Mapping[str, Any],
    *,
    watch: RunDisplay,
    accept_space: bool = False,
    tries: Sequence[Mapping[str, object]] = (),
    client: Any = None,
) -> RunResult:
    """Take a study up where its last master left it.

    Args:
        directory: Where the study is.
        changes: Fields of `StudySettings` to change, such as a larger `trials`.
        watch: Who looks on.
        accept_space: Go on although the model file now declares another search space.
        tries: Configurations, given in part, to try next unless they were tried before.
        client: As for `start`.

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
        stored = StudySettings.from_json(facts["settings"]).found_in(directory.path)
        settings = stored.changed(changes)
        # A request from now on is meant for this master.
        directory.clear_stop_request()
        past, heard = _replay(directory, ledger)
        # Before what still runs for a master that is gone is asked to leave.
        engine = past.engine
        check_changes(
            settings, ResumeState(directory, facts, tuple(engine.trials), engine.active_seconds)
        )
        _collect(ledger, past, heard)
        asks_for_more = bool(changes or tries or accept_space)
        if not asks_for_more and (finish := _finished(facts)) is not None:
            watch.progress.note(
                "nothing is left to do here; --trials, --epochs or --try asks for more"
            )
            return RunResult(finish, past.engine.active_seconds)
        with _workforce(settings, directory, client) as workers:
            _tell_reading(settings, watch)
            found = workers.read_objective()
            plan = plan_resume(
                settings,
                past,
                found,
                workers,
                epochs=changes.get("epochs"),
                accept_space=accept_space,
                # Those that it began with come without that.
                tries=[point for point in tries if point not in stored.start_points],
            )
            ledger.set_facts(
                {
                    "settings": settings.to_json(),
                    "epochs": plan.epochs,
                    "declared_space": plan.declared.to_json(),
                    "space": plan.space.to_json(),
                    "ended": None,
                }
            )
            return _run(plan, _Home(directory, lock, ledger), past.engine, workers, watch)


def _finished(facts: Mapping[str, Any]) -> Finish | None:
    """How the last run ended, if all was done that there was to do."""
    ended = facts["ended"]
    if ended is None or ended["finish_reason"] not in (FinishReason.DONE, FinishReason.EXHAUSTED):
        return None
    return Finish(FinishReason(ended["finish_reason"]), ended["reason"])


def _replay(directory: StudyDirectory, ledger: Ledger) -> tuple[Past, Mapping[AttemptId, int]]:
    """Where the study stands, and how many reports of each attempt the ledger has."""
    engine = Engine(make_pruner)
    found_later: list[Sequence[Mapping[str, object]]] = []
    heard: Counter[AttemptId] = Counter()
    for event in ledger.events():
        commands = engine.handle(event)
        if isinstance(event, Reported):
            heard[event.attempt] += 1
        found_later.extend(each.declared for each in commands if isinstance(each, GrowSpace))
    engine.take_changes()
    ledger.check(engine.trials)
    return Past(directory, ledger.facts, engine, found_later), heard


def _collect(ledger: Ledger, past: Past, heard: Mapping[AttemptId, int]) -> None:
    """Take in what attempts have told while the study had no master."""
    directory, engine = past.directory, past.engine
    running = [run.attempt.id for run in engine.snapshot.running] if engine.is_opened else []
    collected = collect(directory, running, heard)
    if collected:
        events = [StudyClosed(SystemClock().now()), *collected]
        # Other commands are given again, or are not needed any more, once the study is opened.
        for event in events:
            commands = engine.handle(event)
            grown = (each.declared for each in commands if isinstance(each, GrowSpace))
            past.found_later.extend(grown)
        trials, attempts = engine.take_changes()
        ledger.append(events, trials=trials, attempts=attempts)
    forget(directory)


def _run(
    plan: RunPlan, home: _Home, engine: Engine, workers: Workforce, watch: RunDisplay
) -> RunResult:
    settings, clock, directory = plan.settings, workers.clock, home.directory
    budget = settings.budget_trials
    over = sum(trial.state.is_final for trial in engine.trials)
    executor = workers.executor(plan.shape, _study_access(settings, home, workers))
    files = StudyFiles(directory, plan.goals, keep_checkpoints=settings.keep_checkpoints > 0)
    files.sweep(_over(engine), engine.able_to_go_on)
    requests = Requests(
        directory,
        home.lock,
        clock,
        timeout_seconds=settings.timeout_seconds,
        worked_seconds=engine.active_seconds,
        overspent=engine.overspent,
        may_let_go=_handing_on(watch),
    )

    news = Notifications(
        workers_are_known=workers.is_local, memory_bytes=plan.shape.resources.memory_bytes
    )
    make_sampler = sampler_maker(settings, goals=plan.goals, seed=plan.seed, studies=plan.studies)
    loop = StudyLoop(
        engine=engine,
        recorder=StudyRecorder(home.ledger, workers, news),
        make_sampler=sized(make_sampler, workers.sizes) if workers.are_sized else make_sampler,
        space=plan.space,
        executor=executor,
        clock=clock,
        brief=_brief(plan, home, workers),
        files=files,
        observer=RunObservers(watch.progress, news, workers, watch.is_quiet),
        requests=requests,
        least_workers=workers.least_workers,
    )

    def leave() -> None:
        watch.progress.stop()
        workers.abandon()
        watch.leave_at_once()

    try:
        with requests.from_signals(wake=executor.wake, leave_at_once=leave):
            # Ctrl-C lets go in good order from the first job on.
            workers.recruit(plan.shape, ENDLESS if budget is None else max(0, budget - over))
            watch.progress.start(_header(plan, directory, workers, executor))
            finish = loop.run(
                StudyOpened(
                    at=clock.now(),
                    trials=settings.budget_trials,
                    goals=plan.goals,
                    seed=plan.seed,
                    resources=plan.shape.resources,
                    max_failures=settings.max_failures,
                    same_failure_limit=settings.same_failure_limit,
                    pruner=plan.pruner,
                    keep_checkpoints=settings.keep_checkpoints,
                    go_on=plan.go_on,
                    answers=settings.answers,
                    budget=settings.device_budget,
                    measured=plan.shape.measured,
                    learns=learns(settings.search),
                    space=tuple(plan.space.to_json()),
                    ask_ahead=ask_ahead(settings),
                    confirm=settings.confirm,
                    confirm_repeats=settings.repeats,
                    added=_sized(plan, workers),
                )
            )
    finally:
        for line in news.lines(math.inf):
            watch.progress.note(line)
        watch.progress.stop()
    home.ledger.set_facts(
        {"ended": {"finish_reason": str(finish.finish_reason), "reason": finish.reason}}
    )
    forget(directory)
    raise_finish(finish, directory, engine, settings.budget_trials)
    return RunResult(finish, engine.active_seconds)


def _sized(plan: RunPlan, workers: Workforce) -> tuple[Suggestion, ...]:
    """What is to be tried next, with what it asks for."""
    if not workers.are_sized:
        return plan.added
    return tuple(with_sizes(plan.added, lambda asked: workers.sizes(plan.space, asked)))


def _handing_on(watch: RunDisplay) -> Callable[[int], bool] | None:
    from .detached import handing_on

    return handing_on(watch.progress.note, last=watch.progress.stop)


def _workforce(settings: StudySettings, directory: StudyDirectory, client: Any) -> Workforce:
    """The workers that the user asked for, or those that are at hand."""
    if client is not None:
        return Workforce(settings, client)
    if settings.slurm:
        from ..clusters.slurm_jobs import SlurmWorkers

        jobs = SlurmWorkers(
            Path(settings.slurm),
            directory.path,
            max_jobs=settings.max_jobs,
            min_workers=settings.min_workers,
        )
        return Workforce(settings, cluster=jobs)
    if not devices.is_slurm_job():
        return Workforce(settings)
    from ..clusters.slurm_allocation import AllocationWorkers, allocation_for

    allocation, note = allocation_for(settings)
    if allocation is not None:
        return Workforce(settings, cluster=AllocationWorkers(allocation, directory.path))
    return Workforce(settings, notes=(note,) if note else ())


def _study_access(settings: StudySettings, home: _Home, workers: Workforce) -> StudyAccess | None:
    if workers.is_local:
        return None
    with storage_errors(home.directory.path):
        return prepare_access(home.directory.path, home.lock.owner.token, settings.source)


def _brief(plan: RunPlan, home: _Home, workers: Workforce) -> StudyBrief:
    settings = plan.settings
    return StudyBrief(
        name=workers.name,
        directory=str(home.directory.path),
        working_directory=settings.working_directory,
        source=settings.source,
        goals=plan.goals,
        epochs=plan.epochs,
        trial_timeout_seconds=settings.trial_timeout_seconds,
        deterministic=settings.seed is not None,
        checkpoint_every=settings.checkpoint_every,
        stop_at=settings.stop_at,
        packs_gpus=Amount.GPUS in plan.shape.measured,
        hang_timeout_seconds=settings.hang_timeout_seconds or None,
        cache_bytes=settings.cache_bytes,
        master=home.lock.owner.token,
        master_grace_seconds=settings.master_grace_seconds if workers.outlives_master else 0.0,
    )


def _header(
    plan: RunPlan, directory: StudyDirectory, workers: Workforce, executor: Executor
) -> RunHeader:
    settings = plan.settings
    return RunHeader(
        study=str(directory),
        search=settings.search,
        goal=str(plan.goals),
        trials=settings.budget_trials,
        parallelism=workers.words(plan.shape),
        dashboard=executor.dashboard,
        notes=(*plan.notes, *workers.notes),
        epochs=plan.epochs,
        confirm=settings.confirm,
        repeats=settings.repeats,
        budget="" if settings.device_budget is None else str(settings.device_budget),
        timeout_seconds=settings.timeout_seconds,
        trial_timeout_seconds=settings.trial_timeout_seconds,
    )


def _over(engine: Engine) -> set[int]:
    kept = engine.kept
    return {t.number for t in engine.trials if t.state.is_final and t.number not in kept}


def _tell_reading(settings: StudySettings, watch: RunDisplay) -> None:
    if watch.is_quiet:
        return
    source = settings.source
    name = Path(source.path).name if source.kind is SourceKind.FILE else "the model function"
    watch.progress.note(f"reading {name} and its data …")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hptune")
    except PackageNotFoundError:
        return "unknown"

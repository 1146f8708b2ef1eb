"""Start a study or take it up again: read the user's code, find workers, run the loop."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .core.aims import Aims
from .core.beliefs import believing
from .core.completion import completed
from .core.earlier import EarlierStudy
from .core.engine import Engine
from .core.messages import Finish, GrowSpace, StudyOpened, Verdict
from .core.pruner import PrunerSettings
from .core.space import SearchSpace
from .core.trial import Direction, Goal, TrialState
from .earlier_studies import read_earlier, words
from .errors import (
    ModelFileError,
    ObjectiveFailedError,
    SpaceChangedError,
    SpaceError,
    UnknownMetricError,
    UsageError,
)
from .executors.base import Executor
from .interrupts import Requests, raise_interrupt
from .ledger import Ledger
from .loop import StudyLoop
from .master_lock import MasterLock
from .model_file import SourceKind
from .objectives import aims_of, aims_to_json, resolve_aims
from .pruners import make_pruner
from .reporting.progress import Progress, RunHeader
from .samplers import AUTO
from .samplers.auto import choose
from .settings import LocalShape, StudySettings, pruner_settings, resolve_epochs
from .study_directory import StudyDirectory, storage_full, study_exists
from .study_files import StudyFiles
from .suggesting import ask_ahead, sampler_maker
from .worker.orders import StudyBrief
from .workforce import Workforce


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended, and how long masters have worked on the study in all."""

    finish: Finish
    seconds: float


@dataclass(frozen=True, slots=True)
class Watch:
    """Who looks on.

    Attributes:
        progress: Shows how it goes.
        leave_at_once: What a second Ctrl-C does.
        is_quiet: Whether only what needs attention is told.
    """

    progress: Progress
    leave_at_once: Callable[[], None] = raise_interrupt
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class _Home:
    """Where the study is written down, and the right to do so."""

    directory: StudyDirectory
    lock: MasterLock
    ledger: Ledger


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that is settled before the first trial."""

    settings: StudySettings
    aims: Aims
    epochs: int | None
    pruner: PrunerSettings
    go_on: tuple[int, ...]
    seed: int
    space: SearchSpace
    studies: tuple[EarlierStudy, ...]
    shape: LocalShape
    notes: tuple[str, ...]


def start(
    settings: StudySettings,
    directory: StudyDirectory,
    *,
    watch: Watch,
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
    if directory.database.exists():
        raise study_exists(directory)
    try:
        return _start(settings, directory, watch, client)
    except UnknownMetricError:
        # Nothing in it can be used, and it would stand in the way of the mended command.
        directory.remove()
        raise
    finally:
        directory.give_up()  # if nothing came of it


def _start(
    settings: StudySettings, directory: StudyDirectory, watch: Watch, client: Any
) -> RunResult:
    # Fails on an unknown name before seconds are spent on reading the model.
    sampler_maker(settings, aims=Aims((Goal("", Direction.MAX),)), seed=0)(SearchSpace())
    if settings.search == "grid" and settings.priors:
        raise UsageError("a grid goes through all values alike and heeds no prior; leave it out")
    _checked_pruner(settings, settings.epochs or _PLENTY, Aims((Goal("", Direction.MAX),)))
    for name in settings.warm_start:
        StudyDirectory(Path(name)).open()
    with Workforce(settings, client) as workers:
        _tell_reading(settings, watch)
        found = workers.read_objective()
        aims, notes = resolve_aims(
            found, settings.objectives, settings.constraints, settings.direction
        )
        space = SearchSpace.from_json(found.space)
        epochs = resolve_epochs(settings, found)
        _check_start_points(settings, space)
        believing(space, settings.priors)
        studies = tuple(read_earlier(name, aims.goal, space) for name in settings.warm_start)
        shape = workers.shape(found.constants)
        settings, why = _settled(settings, space, at_once=workers.at_once(shape))
        plan = _Plan(
            settings=settings,
            aims=aims,
            epochs=epochs,
            pruner=_checked_pruner(settings, epochs, aims),
            go_on=(),
            seed=secrets.randbelow(2**31) if settings.seed is None else settings.seed,
            space=space,
            studies=studies,
            shape=shape,
            notes=(
                *found.warnings,
                *notes,
                *why,
                *_space_notes(settings, space),
                *(words(study, space) for study in studies),
            ),
        )
        directory.create()
        engine = Engine(make_pruner)
        facts = {
            "hptune_version": _version(),
            "created_at": workers.clock.now(),
            "settings": settings.to_json(),
            "aims": aims_to_json(aims),
            "epochs": plan.epochs,
            "seed": plan.seed,
            "space": space.to_json(),
            "declared_space": space.to_json(),
            "warm_start": [study.to_json() for study in studies],
            "is_keras": found.is_keras,
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
    watch: Watch,
    accept_space: bool = False,
    client: Any = None,
) -> RunResult:
    """Take a study up where its last master left it.

    Args:
        directory: Where the study is.
        changes: Fields of `StudySettings` to change, such as a larger `trials`.
        watch: Who looks on.
        accept_space: Go on although the model file now declares another search space.
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
        settings = replace(stored, **changes)
        if settings.source.kind is SourceKind.FILE and not Path(settings.source.path).exists():
            raise ModelFileError(
                f"The model file {settings.source.path} is gone. If it was moved, say where it is: "
                f"`hptune resume {directory} --model-file FILE`"
            )
        # A request from now on is meant for this master.
        directory.clear_stop_request()
        engine, found_later = _replay(ledger)
        _check_budget(settings, engine, directory)
        _check_repeats(settings, engine, facts["settings"].get("confirm_repeats"))
        with Workforce(settings, client) as workers:
            _tell_reading(settings, watch)
            found = workers.read_objective()
            # The fact "space" is written after the event that grew it: a master may die between.
            known = _grown(SearchSpace.from_json(facts["space"]), found_later)
            before = SearchSpace.from_json(facts["declared_space"])
            declared = SearchSpace.from_json(found.space)
            if not found.is_complete:
                # It was not followed to its end, so what is missing need not be gone.
                declared = _grown(declared, [before.to_json()])
            # Trials came upon what is known beyond that, and may do so again.
            space = _grown(declared, [known.beyond(before)])
            differences = known.differences(space)
            if differences and not accept_space:
                raise SpaceChangedError(
                    f"The search space of {settings.source.path} has changed since the study "
                    f"began: {'; '.join(differences)}. Undo that, or go on in the new space with "
                    f"`hptune resume {directory} --accept-space` (trials that are over stay), or "
                    "start a new study with `hptune run … --study OTHER`."
                )
            if not differences:
                space = known  # in its old order, by which samplers draw
            aims = aims_of(facts)
            epochs = changes.get("epochs") or facts["epochs"]
            go_on = _that_train_on(engine, StudyFiles(directory, aims), epochs)
            plan = _Plan(
                settings=settings,
                aims=aims,
                epochs=epochs,
                pruner=_checked_pruner(settings, epochs, aims),
                go_on=go_on,
                seed=facts["seed"],
                space=space,
                studies=tuple(map(EarlierStudy.from_json, facts.get("warm_start", ()))),
                shape=workers.shape(found.constants),
                notes=(
                    *found.warnings,
                    *_resume_notes(engine),
                    *_epoch_notes(engine, go_on, epochs),
                ),
            )
            ledger.set_facts(
                {
                    "settings": settings.to_json(),
                    "epochs": epochs,
                    "declared_space": declared.to_json(),
                    "space": space.to_json(),
                }
            )
            return _run(plan, _Home(directory, lock, ledger), engine, workers, watch)


def _settled(
    settings: StudySettings, space: SearchSpace, *, at_once: int
) -> tuple[StudySettings, list[str]]:
    """The settings with a search chosen, once for all of the study's runs, and a line on it."""
    if settings.search != AUTO:
        return settings, []
    choice = choose(space, trials=settings.budget_trials, at_once=at_once)
    settled = replace(
        settings,
        search=choice.search,
        grid_resolution=choice.grid_resolution,
        trials=settings.budget_trials,
    )
    return settled, [f"--search auto takes {choice.search}: {choice.why}"]


def _that_train_on(engine: Engine, files: StudyFiles, epochs: int | None) -> tuple[int, ...]:
    """The complete trials that are given more epochs: the best ones, from their checkpoints."""
    if engine.epochs is None or epochs is None or epochs <= engine.epochs:
        return ()
    return tuple(number for number in engine.able_to_go_on if files.has_checkpoint(number))


def _epoch_notes(engine: Engine, go_on: tuple[int, ...], epochs: int | None) -> list[str]:
    before = engine.epochs
    complete = sum(trial.state is TrialState.COMPLETE for trial in engine.trials)
    if before == epochs or not complete:
        return []
    some = f"{len(go_on)} best trials train on from epoch {before}, the" if go_on else "the"
    note = (
        f"{epochs} epochs instead of {before}: {some} other {complete - len(go_on)} complete ones "
        f"stay as they are; mind, when you compare them, that they trained {before} at most"
    )
    return [note]


_PLENTY = 1_000_000
"""More epochs than anybody trains, where it is not known yet how many there are."""


def _checked_pruner(settings: StudySettings, epochs: int | None, aims: Aims) -> PrunerSettings:
    """How the study prunes.

    Raises:
        UsageError: It cannot prune like this.
    """
    asked = pruner_settings(settings, epochs)
    make_pruner(asked, aims.goal)
    if asked.name != "none" and len(aims.goals) > 1:
        raise UsageError(
            f"the pruner {asked.name!r} stops trials that are poor by one objective, and there are "
            f"{len(aims.goals)}; say one objective (and --constraint for the others), or no pruner"
        )
    return asked


def _grown(space: SearchSpace, additions: Iterable[Sequence[Mapping[str, object]]]) -> SearchSpace:
    """The space with what can be added; what depends on a parameter that is gone cannot."""
    for entry in itertools.chain.from_iterable(additions):
        with contextlib.suppress(SpaceError):
            space = space.grown([entry])
    return space


def _replay(ledger: Ledger) -> tuple[Engine, list[Sequence[Mapping[str, object]]]]:
    """The engine as its last master left it, and what trials declared beyond the first space."""
    engine = Engine(make_pruner)
    found_later: list[Sequence[Mapping[str, object]]] = []
    for event in ledger.events():
        commands = engine.handle(event)
        found_later.extend(each.declared for each in commands if isinstance(each, GrowSpace))
    engine.take_changes()
    return engine, found_later


def _run(plan: _Plan, home: _Home, engine: Engine, workers: Workforce, watch: Watch) -> RunResult:
    settings, clock, directory = plan.settings, workers.clock, home.directory
    executor = workers.executor(plan.shape)
    files = StudyFiles(directory, plan.aims, keep_checkpoints=settings.keep_checkpoints > 0)
    files.sweep(_over(engine), engine.able_to_go_on)
    requests = Requests(
        directory,
        home.lock,
        clock,
        timeout_seconds=settings.timeout_seconds,
        worked_seconds=engine.active_seconds,
    )

    loop = StudyLoop(
        engine=engine,
        recorder=home.ledger,
        make_sampler=sampler_maker(settings, aims=plan.aims, seed=plan.seed, studies=plan.studies),
        space=plan.space,
        executor=executor,
        clock=clock,
        brief=_brief(plan, directory, workers.name),
        files=files,
        observer=watch.progress,
        requests=requests,
    )

    def leave() -> None:
        watch.progress.stop()
        watch.leave_at_once()

    watch.progress.start(_header(plan, directory, workers, executor))
    try:
        with requests.from_signals(wake=executor.wake, leave_at_once=leave):
            finish = loop.run(
                StudyOpened(
                    at=clock.now(),
                    trials=settings.budget_trials,
                    aims=plan.aims,
                    seed=plan.seed,
                    resources=plan.shape.resources,
                    max_failures=settings.max_failures,
                    same_failure_limit=settings.same_failure_limit,
                    pruner=plan.pruner,
                    keep_checkpoints=settings.keep_checkpoints,
                    go_on=plan.go_on,
                    space=tuple(plan.space.to_json()),
                    ask_ahead=ask_ahead(settings),
                    confirm=settings.confirm,
                    confirm_repeats=settings.confirm_repeats,
                )
            )
    finally:
        watch.progress.stop()
    _raise_verdict(finish, directory)
    return RunResult(finish, engine.active_seconds)


def _brief(plan: _Plan, directory: StudyDirectory, name: str) -> StudyBrief:
    settings = plan.settings
    return StudyBrief(
        name=name,
        directory=str(directory.path),
        working_directory=settings.working_directory,
        source=settings.source,
        aims=plan.aims,
        epochs=plan.epochs,
        trial_timeout_seconds=settings.trial_timeout_seconds,
        deterministic=settings.seed is not None,
        checkpoint_every=settings.checkpoint_every,
    )


def _header(
    plan: _Plan, directory: StudyDirectory, workers: Workforce, executor: Executor
) -> RunHeader:
    return RunHeader(
        study=str(directory),
        search=plan.settings.search,
        goal=str(plan.aims),
        trials=plan.settings.budget_trials,
        parallelism=workers.words(plan.shape),
        dashboard=executor.dashboard,
        notes=plan.notes,
        epochs=plan.epochs,
    )


def _raise_verdict(finish: Finish, directory: StudyDirectory) -> None:
    if finish.verdict is Verdict.UNKNOWN_METRIC:
        raise UnknownMetricError(
            f"{finish.reason}. Name one of these as the objective (--objective, OBJECTIVE in the "
            "model file, or Tuner(objective=…)) and in constraints (--constraint, CONSTRAINTS)."
        )
    if finish.verdict is Verdict.NO_ROOM:
        raise storage_full(directory.path, finish.reason)
    if finish.verdict in (Verdict.SAME_FAILURE, Verdict.TOO_MANY_FAILURES):
        raise ObjectiveFailedError(
            f"The study was stopped: {finish.reason}. Its trials' logs are in "
            f"{directory.trials}. Mend the cause and go on with `hptune resume {directory}`.",
            finish.detail,
        )


def _over(engine: Engine) -> set[int]:
    kept = engine.kept
    return {t.number for t in engine.trials if t.state.is_final and t.number not in kept}


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


def _check_start_points(settings: StudySettings, space: SearchSpace) -> None:
    for number, point in enumerate(settings.start_points, start=1):
        try:
            completed(space, point)
        except UsageError as error:
            words = ", ".join(f"{name}={value}" for name, value in point.items())
            raise UsageError(f"start point {number} ({words}): {error.message}") from error


def _check_budget(settings: StudySettings, engine: Engine, directory: StudyDirectory) -> None:
    have = sum(trial.confirms is None for trial in engine.trials)
    if settings.trials is not None and settings.trials < have:
        raise UsageError(
            f"{directory} has {have} trials already, and --trials is the total: allowed are "
            f"{have} and more, {settings.trials} was given"
        )


def _check_repeats(settings: StudySettings, engine: Engine, before: int | None) -> None:
    if settings.confirm_repeats == before:
        return
    if any(trial.confirms is not None for trial in engine.trials):
        raise UsageError(
            f"configurations of this study were confirmed with {before} repeats each, and means of "
            f"more or fewer cannot be compared with theirs; allowed is --confirm-repeats {before}"
        )


def _tell_reading(settings: StudySettings, watch: Watch) -> None:
    if watch.is_quiet:
        return
    source = settings.source
    name = Path(source.path).name if source.kind is SourceKind.FILE else "the model function"
    watch.progress.note(f"reading {name} and its data …")


def _resume_notes(engine: Engine) -> list[str]:
    trials = list(engine.trials)
    over = sum(trial.state.is_final for trial in trials)
    waiting = len(trials) - over
    again = f", {waiting} go on" if waiting else ""
    return [f"resumed: {over} trials are over{again}"]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("hptune")
    except PackageNotFoundError:
        return "unknown"

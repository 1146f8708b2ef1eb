"""What is settled before the first trial of a run, of a new study or of one taken up again."""

from __future__ import annotations

import contextlib
import itertools
import secrets
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.model_file import Found
from ..config.objectives import goals_of, resolve_goals
from ..config.resolved import pruner_settings, resolve_epochs
from ..config.settings import StudySettings
from ..core.engine.engine import Engine
from ..core.goals import Goals
from ..core.pruner import PrunerSettings
from ..core.resources import Amount
from ..core.space.completion import completed
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.space.user_priors import believing
from ..core.trial import ADDED, Direction, Goal, Params, Suggestion, Trial, TrialState
from ..errors import SpaceChangedError, SpaceError, UsageError
from ..pruners.registry import make_pruner
from ..samplers.auto import choose
from ..samplers.registry import AUTO
from ..storage.artifacts import StudyFiles
from ..storage.directory import StudyDirectory
from .earlier_studies import read_earlier, words
from .local_resources import LocalShape
from .resume_checks import ResumeState, check_changes, check_room
from .suggester import sampler_maker
from .workforce import Workforce


@dataclass(frozen=True, slots=True)
class RunPlan:
    """All that is settled before the first trial.

    Attributes:
        settings: What the user asked for, with a search chosen.
        goals: What to optimise, and what to keep to.
        epochs: The full training of a trial; None where nobody said.
        pruner: How trials are pruned.
        go_on: Complete trials that are given more epochs.
        seed: The study's seed.
        declared: The search space as the user's code declares it now.
        space: The search space, with what trials came upon beyond that.
        studies: Earlier studies to learn from.
        added: Configurations that the user wants tried next, of a study that is taken up again.
        shape: How cores are shared out, and what a trial holds.
        notes: What the user should know before it begins.
    """

    settings: StudySettings
    goals: Goals
    epochs: int | None
    pruner: PrunerSettings
    go_on: tuple[int, ...]
    seed: int
    declared: SearchSpace
    space: SearchSpace
    studies: tuple[EarlierStudy, ...]
    added: tuple[Suggestion, ...]
    shape: LocalShape
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Past:
    """What a study's ledger says when it is taken up again.

    Attributes:
        directory: Where the study is.
        facts: What is known of it as a whole.
        engine: As its last master left it.
        found_later: What trials declared beyond the space that was known first.
    """

    directory: StudyDirectory
    facts: Mapping[str, Any]
    engine: Engine
    found_later: list[Sequence[Mapping[str, object]]]


def check_request(settings: StudySettings) -> None:
    """Find what can be seen to be wrong before seconds are spent on reading the model.

    Raises:
        UsageError: Something is.
    """
    anything = Goals((Goal("", Direction.MAX),))
    sampler_maker(settings, goals=anything, seed=0)(SearchSpace())
    if settings.search == "grid" and settings.priors:
        raise UsageError("a grid goes through all values alike and heeds no prior; leave it out")
    _checked_pruner(settings, settings.epochs or _PLENTY, anything)
    for name in settings.warm_start:
        StudyDirectory(Path(name)).open()


def plan_start(settings: StudySettings, found: Found, workers: Workforce) -> RunPlan:
    """Plan a new study.

    Raises:
        UsageError: What was asked for does not go with what the user's code declares.
    """
    goals, notes = resolve_goals(
        found, settings.objectives, settings.constraints, settings.direction
    )
    space = SearchSpace.from_json(found.space)
    epochs = resolve_epochs(settings, found)
    _completed(settings.start_points, space)
    believing(space, settings.priors)
    studies = tuple(read_earlier(name, goals, space) for name in settings.warm_start)
    shape = workers.shape(found.constants)
    settings, why = _settled(settings, space, at_once=workers.at_once(shape))
    return RunPlan(
        settings=settings,
        goals=goals,
        epochs=epochs,
        pruner=_checked_pruner(settings, epochs, goals),
        go_on=(),
        seed=secrets.randbelow(2**31) if settings.seed is None else settings.seed,
        declared=space,
        space=space,
        studies=studies,
        added=(),
        shape=_undisturbed(shape, goals),
        notes=(
            *found.warnings,
            *notes,
            *why,
            *_space_notes(settings, space),
            *(words(study, space, goals) for study in studies),
        ),
    )


def check_resume(
    settings: StudySettings,
    standing: ResumeState,
    *,
    epochs: int | None,
    accept_space: bool,
    tries: Sequence[Mapping[str, object]],
) -> None:
    """Find what can be seen to be wrong before a study goes on elsewhere.

    Args:
        settings: As for `plan_resume`, and so are the others.
        standing: How far the study has come.
        epochs: As there.
        accept_space: As there; what space that will be is not seen here.
        tries: As there.

    Raises:
        UsageError: Something is.
    """
    facts, trials = standing.facts, standing.trials
    check_changes(settings, standing)
    _checked_pruner(settings, epochs or facts["epochs"], goals_of(facts))
    if not accept_space:
        space = SearchSpace.from_json(facts["space"])
        added, _ = _added(_completed(tries, space), space, trials)
        check_room(settings, len(added), standing)


def plan_resume(
    settings: StudySettings,
    past: Past,
    found: Found,
    workers: Workforce,
    *,
    epochs: int | None,
    accept_space: bool,
    tries: Sequence[Mapping[str, object]] = (),
) -> RunPlan:
    """Plan how a study goes on.

    Args:
        settings: What the user asks for now.
        past: What was done so far.
        found: What the user's code declares now.
        workers: The workers of the run.
        epochs: The full training of a trial, where it is changed.
        accept_space: Go on in another search space than before.
        tries: Configurations to try next, given in part.

    Raises:
        SpaceChangedError: The user's code declares another search space than before.
        UsageError: What was asked for does not go with that.
    """
    facts, engine = past.facts, past.engine
    declared, space = _spaces(settings, past, found, accept_space=accept_space)
    trials = tuple(engine.trials)
    added, known = _added(_completed(tries, space), space, trials)
    check_room(settings, len(added), ResumeState(past.directory, facts, trials))
    goals = goals_of(facts)
    epochs = epochs or facts["epochs"]
    go_on = _that_train_on(engine, StudyFiles(past.directory, goals), epochs)
    return RunPlan(
        settings=settings,
        goals=goals,
        epochs=epochs,
        pruner=_checked_pruner(settings, epochs, goals),
        go_on=go_on,
        seed=facts["seed"],
        declared=declared,
        space=space,
        studies=tuple(map(EarlierStudy.from_json, facts.get("warm_start", ()))),
        added=added,
        shape=_undisturbed(workers.shape(found.constants), goals),
        notes=(
            *found.warnings,
            *_resume_notes(engine),
            *known,
            *_epoch_notes(engine, go_on, epochs),
        ),
    )


def _undisturbed(shape: LocalShape, goals: Goals) -> LocalShape:
    """Where times are compared, trials share no device, since their neighbours would count too."""
    if "seconds_per_epoch" not in goals.metrics:
        return shape
    return replace(shape, measured=tuple(each for each in shape.measured if each is Amount.MEMORY))


def _spaces(
    settings: StudySettings, past: Past, found: Found, *, accept_space: bool
) -> tuple[SearchSpace, SearchSpace]:
    """The search space as it is declared now, and as it is known."""
    # The fact "space" is written after the event that grew it: a master may die between.
    known = _grown(SearchSpace.from_json(past.facts["space"]), past.found_later)
    before = SearchSpace.from_json(past.facts["declared_space"])
    declared = SearchSpace.from_json(found.space)
    if not found.is_complete:
        # It was not followed to its end, so what is missing need not be gone.
        declared = _grown(declared, [before.to_json()])
    # Trials came upon what is known beyond that, and may do so again.
    space = _grown(declared, [known.beyond(before)])
    differences = known.differences(space)
    if not differences:
        return declared, known  # in its old order, by which samplers draw
    if accept_space:
        return declared, space
    raise SpaceChangedError(
        f"the search space of {settings.source.path} has changed since the study "
        f"began: {'; '.join(differences)}. Undo that, or go on in the new space with "
        f"`hptune resume {past.directory} --accept-space` (trials that are over stay), or "
        "start a new study with `hptune run … --study OTHER`."
    )


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
    told, others = [], complete - len(go_on)
    if go_on:
        trials = "best trial trains" if len(go_on) == 1 else "best trials train"
        told.append(f"{len(go_on)} {trials} on from epoch {before}")
    if before is not None and epochs is not None and epochs > before and engine.ended_early:
        told.append(
            f"{len(engine.ended_early)} that ended by themselves (by EarlyStopping, say) do not, "
            "for they would do so again"
        )
        others -= len(engine.ended_early)
    if others:
        told.append(
            f"the other {others} complete ones stay as they are; mind, when you compare them, that "
            f"they trained {before} at most"
        )
    return [f"{epochs} epochs instead of {before}: {'; '.join(told)}"]


_PLENTY = 1_000_000
"""More epochs than anybody trains, where it is not known yet how many there are."""


def _checked_pruner(settings: StudySettings, epochs: int | None, goals: Goals) -> PrunerSettings:
    """How the study prunes.

    Raises:
        UsageError: It cannot prune like this.
    """
    asked = pruner_settings(settings, epochs)
    make_pruner(asked, goals.goal)
    if asked.name != "none" and len(goals.objectives) > 1:
        raise UsageError(
            f"the pruner {asked.name!r} stops trials that are poor by one objective, and there are "
            f"{len(goals.objectives)}; say one objective (and --constraint for the others), or no "
            "pruner"
        )
    return asked


def _grown(space: SearchSpace, additions: Iterable[Sequence[Mapping[str, object]]]) -> SearchSpace:
    """The space with what can be added; what depends on a parameter that is gone cannot."""
    for entry in itertools.chain.from_iterable(additions):
        with contextlib.suppress(SpaceError):
            space = space.grown([entry])
    return space


def _space_notes(settings: StudySettings, space: SearchSpace) -> list[str]:
    if not len(space):
        return ["the model declares no hyperparameters: it is trained once"]
    if settings.search == "grid":
        from ..samplers.grid import DEFAULT_RESOLUTION

        resolution = settings.grid_resolution or DEFAULT_RESOLUTION
        size = space.grid_size(resolution)
        points = f", {resolution} values of each continuous parameter"
        return [f"the grid has {size:,} configurations{points if space.size() is None else ''}"]
    return []


def _completed(points: Sequence[Mapping[str, object]], space: SearchSpace) -> list[Params]:
    """The configurations that these points mean.

    Raises:
        UsageError: One has no place in the space.
    """
    found = []
    for number, point in enumerate(points, start=1):
        try:
            found.append(completed(space, point))
        except UsageError as error:
            words = ", ".join(f"{name}={value}" for name, value in point.items())
            raise UsageError(f"start point {number} ({words}): {error.message}") from error
    return found


def _added(
    tries: Sequence[Params], space: SearchSpace, trials: Collection[Trial]
) -> tuple[tuple[Suggestion, ...], list[str]]:
    """What of these is new to the study, and a line on each that is not."""
    known = {space.key(trial.params): trial.number for trial in reversed(list(trials))}
    found: dict[Hashable, Suggestion] = {}
    notes = []
    for number, params in enumerate(tries, start=1):
        key = space.key(params)
        if key in known:
            notes.append(f"start point {number} is trial {known[key]} already")
        else:
            found.setdefault(key, Suggestion(params, ADDED))
    return tuple(found.values()), notes


def _resume_notes(engine: Engine) -> list[str]:
    trials = list(engine.trials)
    over = sum(trial.state.is_final for trial in trials)
    waiting = len(trials) - over
    again = f", {waiting} go on" if waiting else ""
    return [f"resumed: {over} trials are over{again}"]

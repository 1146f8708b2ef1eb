"""The second moment: what settings and the user's code say together, such as goals and epochs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..core.goals import Goals
from ..core.pruner import Pruner, PrunerSettings
from ..core.sampler import Sampler
from ..core.space.completion import completed_points
from ..core.space.space import SearchSpace
from ..core.space.user_priors import with_priors
from ..core.spelling import plural
from ..errors import UsageError
from ..pruners.registry import PRUNERS, make_pruner
from ..registry import shown_name
from ..samplers.auto import choose
from ..samplers.registry import AUTO, SAMPLERS, listed
from ..user_code.source import OF_EACH_TRIAL, Found, SourceKind
from .asked import Asked, check_methods
from .objectives import resolve_goals
from .parallel_trials import check_splits
from .plugins import made
from .settings import BY_NAME, StudySettings

DEFAULT_EPOCHS = 10


def possible_trials(settings: StudySettings, space: SearchSpace) -> int | None:
    """Return how many configurations the search can try; None for no limit."""
    count = listed(settings.search, space, settings.own_options("search"))
    return space.size() if count is None else count


def resolve_epochs(settings: StudySettings, found: Found) -> int | None:
    """Return how many epochs a trial trains; None if unknown, for an objective function.

    Raises:
        UsageError: EPOCHS of the model file is not allowed.
    """
    if settings.epochs is not None:
        return settings.epochs
    given = found.constants.get("EPOCHS")
    if given is None:
        return DEFAULT_EPOCHS if found.is_keras else None
    epochs: int = replace(BY_NAME["epochs"], flag="EPOCHS").read(given)
    return epochs


def epochs_notes(settings: StudySettings, found: Found) -> list[str]:
    """Return a line for the user if `--epochs` has no effect."""
    own, asked = found.own_epochs, settings.epochs
    if asked is None or own in (None, asked):
        return []
    remedy = "pass on to model.fit the epochs that it gets"
    trains = f"fit() trains {plural(own, 'epoch')} whatever it is given"
    return [f"--epochs is {asked}, but {trains}; {remedy}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Settings and the user's code, which fit together.

    Attributes:
        asked: The settings, with the entry point that was found, for all workers and later runs.
        code: What the user's code declares.
        goals: What to optimise, and the constraints.
        epochs: The full training of a trial; None if unknown.
        space: The search space.
        notes: Lines for the user.
    """

    asked: Asked
    code: Found
    goals: Goals
    epochs: int | None
    space: SearchSpace
    notes: tuple[str, ...] = ()

    @property
    def pruner(self) -> PrunerSettings:
        """How the study prunes."""
        return _pruner_settings(self.asked.settings, self.epochs)


def resolve(asked: Asked, code: Found) -> Resolved:
    """Return what the settings of a new study and the user's code say together.

    Raises:
        UsageError: They contradict each other, or a sampler or pruner of others cannot be made.
    """
    settings = asked.settings
    goals, notes = resolve_goals(code, settings.objectives, settings.constraints)
    space = SearchSpace.from_json(code.space)
    completed_points(settings.start_points, space)
    with_priors(space, settings.priors)
    epochs = resolve_epochs(settings, code)
    if settings.epochs is None or not settings.objectives:  # the options did not say all
        check_methods(asked, [goal.direction for goal in goals.objectives], epochs)
    asked = checked_code(asked, code)
    resolved = Resolved(
        asked=asked, code=code, goals=goals, epochs=epochs, space=space, notes=tuple(notes)
    )
    check_plug_ins(resolved, seed=settings.seed or 0)
    return resolved


def checked_code(asked: Asked, code: Found) -> Asked:
    """Return the settings with the entry point of the code, whose trials can run as asked for.

    Raises:
        UsageError: The code's trials cannot be divided, measured or sized as it is asked for.
    """
    settings = asked.settings
    if code.constants.get("RESOURCES") == OF_EACH_TRIAL:
        if not asked.executor.shares_workers:
            raise UsageError(
                "RESOURCES is a function, but the workers of --executor "
                f"{shown_name(asked.executor.name)} are all of one size; give "
                "hptune.Resources(…), or leave the executor out"
            )
        if settings.chooses_split:
            raise UsageError(
                "RESOURCES is a function, which says what each trial holds, but "
                f"{settings.splitting_option} is auto, which chooses it; leave one of them out"
            )
    check_splits(code, settings)
    if settings.source.kind is not SourceKind.FILE:
        return asked
    return replace(asked, settings=replace(settings, entry=code.entry))


def with_search(found: Resolved, *, at_once: int) -> tuple[Asked, list[str]]:
    """Return the settings with a search chosen for all of the study's runs, and a line on it.

    Args:
        found: What settings and code say.
        at_once: How many trials can run at once.
    """
    asked, settings = found.asked, found.asked.settings
    if settings.search != AUTO:
        return asked, []
    choice = choose(
        found.space,
        trials=settings.budget_trials,
        parallel_trials=at_once,
        # The grid ignores priors.
        is_complete=found.code.is_complete and not settings.priors,
    )
    sampler = SAMPLERS.built_in[choice.search]
    settings = replace(
        settings,
        search=choice.search,
        grid_resolution=choice.grid_resolution,
        trials=settings.budget_trials,
    )
    line = f"--search auto takes {choice.search}: {choice.why}"
    return replace(asked, settings=settings, sampler=sampler), [line]


def check_plug_ins(found: Resolved, *, seed: int) -> None:
    """Make a sampler and a pruner of others once, before a run needs them.

    Raises:
        UsageError: One of them cannot be made, such as because it refuses its options.
    """
    sampler, pruner = found.asked.sampler, found.asked.pruner
    directions = tuple(goal.direction for goal in found.goals.objectives)
    if sampler.name not in SAMPLERS.built_in:
        own = found.asked.settings.own_options(SAMPLERS.what)
        made(sampler, Sampler, found.space, seed, given=own, directions=directions)
    if pruner.name not in PRUNERS.built_in:
        given = found.pruner.options
        made(pruner, Pruner, given=given, directions=directions, epochs=found.epochs)


def _pruner_settings(settings: StudySettings, epochs: int | None) -> PrunerSettings:
    name, options = settings.pruner or "none", settings.own_options(PRUNERS.what)
    return PrunerSettings(name=name, epochs=epochs, options=options)


def known_rungs(settings: StudySettings, epochs: int | None, goals: Goals) -> tuple[int, ...]:
    """Return the rungs of a built-in pruner. That of a plug-in is not loaded, so it has none here.

    Args:
        settings: The settings of a study.
        epochs: The full training of a trial; None if unknown.
        goals: What to optimise.
    """
    asked = _pruner_settings(settings, epochs)
    return make_pruner(asked, goals.objectives).rungs if asked.name in PRUNERS.built_in else ()


def space_notes(asked: Asked, space: SearchSpace) -> list[str]:
    """Return lines for the user on how many configurations there are, if it matters."""
    if not len(space):
        return ["the model declares no hyperparameters: it is trained once"]
    settings, options = asked.settings, asked.sampler.options
    own = settings.own_options("search")
    size = listed(settings.search, space, own)
    if size is None:
        return []
    note = f"the {settings.search} has {size:,} configurations"
    if space.size() is None:
        words = (f"{option.flag} {own.get(option.name, option.default_text)}" for option in options)
        note += f" ({', '.join(words)})"
    trials = settings.budget_trials
    if trials is not None and trials < size:
        note += (
            f"; --trials {trials} tries the first {trials:,}, in which the last parameters "
            "vary most (sobol spreads few trials over the whole space)"
        )
    return [note]

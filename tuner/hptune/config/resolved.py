"""Values that follow from the settings and the model file together, such as the epochs."""

from __future__ import annotations

import operator
from dataclasses import replace

from ..core.goals import Goals
from ..core.pruner import PrunerSettings
from ..core.space.space import SearchSpace
from ..core.spelling import plural
from ..errors import UsageError
from ..pruners.registry import PRUNERS, make_pruner
from ..samplers.auto import choose
from ..samplers.registry import AUTO, listed
from ..user_code.model_file import Found, SourceKind
from .plugins import check_own_options, find_pruner, find_sampler
from .settings import StudySettings

DEFAULT_EPOCHS = 10

PLENTY = 1_000_000
"""More epochs than anybody trains; used while their number is unknown."""


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
    try:
        epochs = operator.index(given)  # type: ignore[arg-type]  # a number of NumPy's is one too
    except TypeError:
        epochs = 0
    if epochs < 1:
        raise UsageError(f"EPOCHS is {given!r}; allowed are whole numbers from 1 on")
    return epochs


def epochs_notes(settings: StudySettings, found: Found) -> list[str]:
    """Return a line for the user if `--epochs` has no effect."""
    own, asked = found.own_epochs, settings.epochs
    if asked is None or own in (None, asked):
        return []
    remedy = "pass on to model.fit the epochs that it gets"
    trains = f"fit() trains {plural(own, 'epoch')} whatever it is given"
    return [f"--epochs is {asked}, but {trains}; {remedy}"]


def with_entry(settings: StudySettings, found: Found) -> StudySettings:
    """Return the settings with the entry point that was found, for all workers and later runs."""
    is_file = settings.source.kind is SourceKind.FILE
    return replace(settings, entry=found.entry) if is_file else settings


def with_search(
    settings: StudySettings, space: SearchSpace, *, at_once: int
) -> tuple[StudySettings, list[str]]:
    """Return the settings with a search chosen for all of the study's runs, and a line on it."""
    if settings.search != AUTO:
        return settings, []
    choice = choose(space, trials=settings.budget_trials, parallel_trials=at_once)
    chosen = replace(
        settings,
        search=choice.search,
        grid_resolution=choice.grid_resolution,
        trials=settings.budget_trials,
    )
    return chosen, [f"--search auto takes {choice.search}: {choice.why}"]


def check_search(settings: StudySettings, goals: Goals) -> None:
    """Check that the search can be made.

    Raises:
        UsageError: There is no such search, or its options or the objectives do not permit it.
    """
    row = find_sampler(settings)
    check_own_options(settings, row)
    directions = tuple(goal.direction for goal in goals.objectives)
    row.check(settings.own_options("search"), directions=directions)
    if row.count is not None and settings.priors:
        raise UsageError(
            f"--search {row.name} tries every value and ignores priors; leave --prior out"
        )


def checked_pruner(settings: StudySettings, epochs: int | None, goals: Goals) -> PrunerSettings:
    """Return how the study prunes.

    Args:
        settings: What the user asked for.
        epochs: The full training of a trial; None if unknown.
        goals: What to optimise.

    Raises:
        UsageError: Its options, epochs or objectives do not permit that pruner.
    """
    row = find_pruner(settings)
    check_own_options(settings, row)
    options = settings.own_options("pruner")
    directions = tuple(goal.direction for goal in goals.objectives)
    row.check(options, directions=directions, epochs=epochs)
    return PrunerSettings(name=settings.pruner or "none", epochs=epochs, options=options)


def known_rungs(settings: StudySettings, epochs: int | None, goals: Goals) -> tuple[int, ...]:
    """Return the rungs of a built-in pruner. That of a plug-in is not loaded, so it has none here.

    Args:
        settings: Settings that `checked_pruner` has accepted.
        epochs: The full training of a trial; None if unknown.
        goals: What to optimise.
    """
    name = settings.pruner or "none"
    if name not in PRUNERS.built_in:
        return ()
    options = settings.own_options("pruner")
    asked = PrunerSettings(name=name, epochs=epochs, options=options)
    return make_pruner(asked, goals.objectives).rungs


def space_notes(settings: StudySettings, space: SearchSpace) -> list[str]:
    """Return lines for the user on how many configurations there are, if it matters."""
    if not len(space):
        return ["the model declares no hyperparameters: it is trained once"]
    own, options = settings.own_options("search"), find_sampler(settings).options
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

"""Values that follow from the settings and the model file together, such as the epochs."""

from __future__ import annotations

import operator

from ..core.pruner import PrunerSettings
from ..core.space.space import SearchSpace
from ..errors import UsageError
from ..samplers.registry import listed
from .model_file import Found
from .settings import StudySettings

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
    try:
        epochs = operator.index(given)  # type: ignore[arg-type]  # a number of NumPy's is one too
    except TypeError:
        epochs = 0
    if epochs < 1:
        raise UsageError(f"EPOCHS is {given!r}; allowed are whole numbers from 1 on")
    return epochs


def pruner_settings(settings: StudySettings, epochs: int | None) -> PrunerSettings:
    """Return how to prune."""
    return PrunerSettings(
        name=settings.pruner or "none", epochs=epochs, options=settings.own_options("pruner")
    )

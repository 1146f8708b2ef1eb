"""The pruners, by the names that users call them. Each is loaded when it is asked for."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping

from ..core.pruner import NeverPrune, Pruner, PrunerSettings
from ..core.trial import Direction, Goal
from ..errors import UsageError


def _none(settings: PrunerSettings, direction: Direction) -> Pruner:  # noqa: ARG001 - as all makers
    return NeverPrune()


def _asha(settings: PrunerSettings, direction: Direction) -> Pruner:
    from .halving import HalvingPruner

    if settings.brackets not in (None, 1):
        raise UsageError(
            f"asha has one bracket, and brackets is {settings.brackets}; "
            "say --pruner hyperband for more"
        )
    return HalvingPruner(
        direction=direction,
        rungs=_rungs(settings),
        reduction_factor=settings.reduction_factor,
        mode=settings.mode,
    )


def _hyperband(settings: PrunerSettings, direction: Direction) -> Pruner:
    from .halving import HalvingPruner

    if settings.epochs is None:
        raise UsageError("hyperband must know how long a full training is; say --epochs")
    rungs = _rungs(settings)
    most = len(rungs) + 1
    brackets = most if settings.brackets is None else settings.brackets
    if brackets > most:
        raise UsageError(
            f"brackets is {brackets}; with {settings.epochs} epochs, rungs at "
            f"{', '.join(map(str, rungs))} allow {most} at most"
        )
    return HalvingPruner(
        direction=direction,
        rungs=rungs,
        reduction_factor=settings.reduction_factor,
        mode=settings.mode,
        brackets=brackets,
    )


def _median(settings: PrunerSettings, direction: Direction) -> Pruner:
    from .median import MedianPruner

    return MedianPruner(
        direction=direction, min_epochs=_min_epochs(settings), rungs=_rungs(settings)
    )


_PARTS = 20

_MAKERS: Mapping[str, Callable[[PrunerSettings, Direction], Pruner]] = {
    "none": _none,
    "asha": _asha,
    "hyperband": _hyperband,
    "median": _median,
}

PRUNER_NAMES: tuple[str, ...] = tuple(_MAKERS)
"""What `--pruner` accepts."""


def make_pruner(settings: PrunerSettings, goal: Goal) -> Pruner:
    """Make the pruner that the settings name, told nothing yet.

    Raises:
        UsageError: There is no such pruner, or it cannot work with these settings.
    """
    if settings.name not in _MAKERS:
        near = difflib.get_close_matches(settings.name.lower(), PRUNER_NAMES, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"there is no pruner called {settings.name!r}; allowed are "
            f"{', '.join(PRUNER_NAMES)}.{hint}"
        )
    for name, least in (("reduction_factor", 2), ("min_epochs", 1), ("brackets", 1)):
        value = getattr(settings, name)
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}; allowed are whole numbers from {least} on")
    return _MAKERS[settings.name](settings, goal.direction)


def _min_epochs(settings: PrunerSettings) -> int:
    """A twentieth of the training, rounded up, where nothing is said.

    On recorded learning curves of 52 epochs, the order after the first one says next to nothing
    of the last (rank correlations of -0.2 to 0.3), and after the third most of it (0.7 to 0.9).
    """
    if settings.min_epochs is not None:
        return settings.min_epochs
    return 1 if settings.epochs is None else -(-settings.epochs // _PARTS)


def _rungs(settings: PrunerSettings) -> tuple[int, ...]:
    from .halving import rung_levels

    min_epochs = _min_epochs(settings)
    if settings.epochs is not None and min_epochs >= settings.epochs > 1:
        raise UsageError(
            f"min_epochs is {min_epochs}, and a trial trains {settings.epochs} epochs at "
            "most, so no trial could ever be stopped early; say a smaller --min-epochs"
        )
    return rung_levels(
        min_epochs=min_epochs,
        reduction_factor=settings.reduction_factor,
        epochs=settings.epochs,
    )

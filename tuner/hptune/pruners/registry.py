"""Pruners by name. A pruner's module is imported only when the pruner is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..core.pruner import NeverPrune, Pruner, PrunerSettings
from ..core.spelling import did_you_mean
from ..core.trial import Direction, Goal
from ..errors import UsageError

Directions = Sequence[Direction]


def _none(settings: PrunerSettings, directions: Directions) -> Pruner:  # noqa: ARG001 - as all makers
    return NeverPrune()


def _halving(settings: PrunerSettings, directions: Directions, brackets: int) -> Pruner:
    from .halving import HalvingPruner

    return HalvingPruner(
        directions=directions,
        rungs=_rungs(settings),
        reduction_factor=settings.reduction_factor,
        mode=settings.mode,
        brackets=brackets,
    )


def _asha(settings: PrunerSettings, directions: Directions) -> Pruner:
    if settings.brackets not in (None, 1):
        raise UsageError(
            f"asha has one bracket, but brackets is {settings.brackets}; "
            "use --pruner hyperband for more"
        )
    return _halving(settings, directions, 1)


def _hyperband(settings: PrunerSettings, directions: Directions) -> Pruner:
    if settings.epochs is None:
        raise UsageError("hyperband needs the length of a full training; add --epochs")
    rungs = _rungs(settings)
    most = len(rungs) + 1
    brackets = most if settings.brackets is None else settings.brackets
    if brackets > most:
        raise UsageError(
            f"brackets is {brackets}; with {settings.epochs} epochs, rungs at "
            f"{', '.join(map(str, rungs))} allow {most} at most"
        )
    return _halving(settings, directions, brackets)


def _median(settings: PrunerSettings, directions: Directions) -> Pruner:
    if len(directions) > 1:
        raise UsageError(
            f"median compares trials by one objective, and there are {len(directions)}; use "
            "--pruner asha or hyperband, or name one objective (and --constraint for the others)"
        )
    from .median import MedianPruner

    return MedianPruner(
        direction=directions[0], min_epochs=_min_epochs(settings), rungs=_rungs(settings)
    )


_DEFAULT_MIN_PART = 20
"""The default of `min_epochs` is `epochs` divided by this (see `_min_epochs`)."""

_MAKERS: Mapping[str, Callable[[PrunerSettings, Directions], Pruner]] = {
    "none": _none,
    "asha": _asha,
    "hyperband": _hyperband,
    "median": _median,
}

PRUNER_NAMES: tuple[str, ...] = tuple(_MAKERS)
"""Values of `--pruner`."""


def make_pruner(settings: PrunerSettings, objectives: Sequence[Goal]) -> Pruner:
    """Make a new pruner with these settings, for one or more objectives.

    Raises:
        UsageError: The pruner does not exist, or does not accept these settings.
    """
    if settings.name not in _MAKERS:
        hint = did_you_mean(settings.name, PRUNER_NAMES, likeness=0.5)
        raise UsageError(
            f"unknown pruner {settings.name!r}; allowed are {', '.join(PRUNER_NAMES)}.{hint}"
        )
    for name, least in (("reduction_factor", 2), ("min_epochs", 1), ("brackets", 1)):
        value = getattr(settings, name)
        if value is not None and value < least:
            raise UsageError(f"{name} is {value}; allowed are whole numbers from {least} on")
    return _MAKERS[settings.name](settings, [goal.direction for goal in objectives])


def _min_epochs(settings: PrunerSettings) -> int:
    """Return the first step at which trials are judged; by default a twentieth of the training.

    On recorded learning curves of 52 epochs, the ranking after the first epoch hardly predicts
    the final one (rank correlations of -0.2 to 0.3), and after the third it does (0.7 to 0.9).
    """
    if settings.min_epochs is not None:
        return settings.min_epochs
    return 1 if settings.epochs is None else -(-settings.epochs // _DEFAULT_MIN_PART)


def _rungs(settings: PrunerSettings) -> tuple[int, ...]:
    from .halving import rung_levels

    min_epochs = _min_epochs(settings)
    if settings.epochs is not None and min_epochs >= settings.epochs > 1:
        raise UsageError(
            f"--min-epochs is {min_epochs}, but a trial trains at most {settings.epochs} epochs, "
            "so no trial could be stopped early; use a smaller --min-epochs"
        )
    return rung_levels(
        min_epochs=min_epochs,
        reduction_factor=settings.reduction_factor,
        epochs=settings.epochs,
    )

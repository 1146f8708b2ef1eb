"""Pruners by name. A pruner's module is imported only when the pruner is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..core.kinds import choice, whole_number
from ..core.pruner import HalvingMode, NeverPrune, Pruner, PrunerSettings
from ..core.table import option
from ..core.trial import Goal
from ..registry import Registry, Row
from .checked import CheckedPruner


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunerRow(Row):
    """A pruner that can be chosen: `factory(directions=…, epochs=…, **options)`.

    `epochs` is the full training of a trial, in steps; None if it is unknown.
    """

    what: ClassVar[str] = "pruner"
    group: ClassVar[str] = "hptune.pruners"
    keywords: ClassVar[tuple[str, ...]] = ("directions", "epochs")


_ASHA = "hptune.pruners.halving:HalvingPruner"
_HYPERBAND = "hptune.pruners.halving:hyperband"
_MEDIAN = "hptune.pruners.median:MedianPruner"

_MIN_EPOCHS = option(
    "min_epochs",
    whole_number(1),
    "no trial is stopped before this epoch.",
    default_text="a twentieth of the epochs, at least 2",
    flag="--min-epochs",
)
_HALVING = (
    _MIN_EPOCHS,
    option(
        "reduction_factor",
        whole_number(2),
        "at each rung, one trial in N continues.",
        default_text="3",
        flag="--reduction-factor",
    ),
    option(
        "pruner_mode",
        choice(*HalvingMode, make=HalvingMode),
        "poor trials stop for good (stop), or pause and may continue later from their checkpoints "
        "(promote).",
        default_text="stop",
        flag="--pruner-mode",
    ),
)
_BRACKETS = option(
    "brackets",
    whole_number(1),
    "number of brackets.",
    default_text="as many as the epochs allow",
    flag="--brackets",
)

PRUNERS = Registry(
    PrunerRow,
    (
        PrunerRow(
            name="none",
            summary="trains every trial to its end",
            factory=lambda directions, epochs: NeverPrune(),  # noqa: ARG005 - as all
        ),
        PrunerRow(
            name="asha",
            summary="successive halving: at each rung, one trial in a few continues",
            factory=_ASHA,
            checks=_ASHA,
            options=_HALVING,
        ),
        PrunerRow(
            name="hyperband",
            summary="successive halving in several brackets, which begin to judge later and later",
            factory=_HYPERBAND,
            checks=_HYPERBAND,
            options=(*_HALVING, _BRACKETS),
        ),
        PrunerRow(
            name="median",
            summary="stops trials that are worse than the median; for one objective",
            factory=_MEDIAN,
            checks=_MEDIAN,
            options=(_MIN_EPOCHS,),
        ),
    ),
)
"""Values of `--pruner`."""


def make_pruner(
    settings: PrunerSettings, objectives: Sequence[Goal], row: PrunerRow | None = None
) -> Pruner:
    """Make a new pruner with these settings, for one or more objectives.

    Args:
        settings: The settings.
        objectives: What to optimise.
        row: The pruner; None for the one that has the settings' name.

    Raises:
        UsageError: There is no such pruner.
        StudyError: It cannot be made, or what a plug-in has made is no pruner.
    """
    found = PRUNERS.find(settings.name) if row is None else row
    directions = [goal.direction for goal in objectives]
    return CheckedPruner(
        found.name,
        lambda: found.make(given=settings.options, directions=directions, epochs=settings.epochs),
    )

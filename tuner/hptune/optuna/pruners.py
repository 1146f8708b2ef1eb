"""Optuna's pruners as settings of a study."""

from __future__ import annotations

from typing import Any

from ..errors import UsageError
from .missing import beside

__getattr__ = beside(globals())

Settings = dict[str, Any]


def NopPruner() -> Settings:
    """Train every trial to its end."""
    return {"pruner": "none"}


def MedianPruner(n_startup_trials: int = 5, n_warmup_steps: int = 0, **_unused: Any) -> Settings:
    """Stop trials that are worse than the median; the number of trials before that is hptune's."""
    del n_startup_trials
    return {"pruner": "median", "min_epochs": n_warmup_steps + 1}


def SuccessiveHalvingPruner(
    min_resource: str | int = 1, reduction_factor: int = 4, **_unused: Any
) -> Settings:
    """Let one trial in `reduction_factor` continue at each rung."""
    first = 1 if isinstance(min_resource, str) else min_resource
    return {"pruner": "asha", "min_epochs": first, "reduction_factor": reduction_factor}


def HyperbandPruner(
    min_resource: int = 1, max_resource: str | int = "auto", reduction_factor: int = 3, **_: Any
) -> Settings:
    """Halve in several brackets; in one if `max_resource` is not a number of steps."""
    halving = SuccessiveHalvingPruner(min_resource, reduction_factor)
    brackets = {"pruner": "hyperband", "epochs": max_resource}
    return halving if isinstance(max_resource, str) else {**halving, **brackets}


def settings_of(pruner: Any, *, goals: int) -> Settings:
    """Return the settings of a pruner, for a study with this number of objectives.

    Raises:
        UsageError: It is none of this module.
    """
    if pruner is None or goals > 1:  # of several objectives, Optuna takes no reports
        return {"pruner": "median" if goals == 1 else "none"}
    if isinstance(pruner, dict):
        return pruner
    raise UsageError(
        f"pruner is {pruner!r}; allowed are those of hptune.optuna.pruners, such as MedianPruner"
    )

"""What an oracle of KerasTuner says, as settings of `hptune.Tuner`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Any

from ..errors import UsageError


def library() -> Any:
    """Return the installed KerasTuner, which imports Keras."""
    import keras_tuner

    return keras_tuner


def settings_of(oracle: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of `hptune.Tuner` that do what an oracle says.

    Raises:
        UsageError: It is none of KerasTuner's own.
    """
    kind = type(oracle)
    if kind is not getattr(library().oracles, kind.__name__, None):
        raise UsageError(
            f"the oracle is a {kind.__name__}, which hptune does not know; allowed are those of "
            "keras_tuner.oracles, or search= with a sampler of your own (hptune's guide: plug-ins)"
        )
    found: dict[str, Any] = {
        "objective": _objective(oracle.objective),
        "trials": oracle.max_trials,
        "seed": oracle.seed,
        "hyperparameters": oracle.hyperparameters if oracle.hyperparameters.space else None,
        "same_failures": oracle.max_consecutive_failed_trials,
        "tune_new_entries": oracle.tune_new_entries,
    }
    if oracle.max_retries_per_trial:
        found["on_failure"] = [f"exception=retry:{oracle.max_retries_per_trial}"]
    search = {"GridSearchOracle": "grid", "BayesianOptimizationOracle": "bayesian"}
    found["search"] = search.get(kind.__name__, "random")
    if kind.__name__ == "HyperbandOracle":
        found |= _hyperband(oracle, given)
    return {name: value for name, value in found.items() if value is not None}


def directed(objective: Any) -> Any:
    """Return an objective with the direction that its name says.

    KerasTuner minimises each metric of Keras that is not in its list, such as `val_f1_score`.
    """
    from ..config.objectives import direction_of

    if isinstance(objective, list):
        return [directed(each) for each in objective]
    if not isinstance(objective, str) or (direction := direction_of(objective)) is None:
        return objective
    return library().Objective(objective, str(direction))


def _objective(objective: Any) -> Any:
    """Return an oracle's objective as `hptune.Tuner` takes it; None if it has none."""
    from ..config.objectives import direction_of

    if hasattr(objective, "objectives"):
        return [_objective(each) for each in objective.objectives]
    if objective.name == "default_objective":
        return None
    meant = direction_of(objective.name)
    if meant not in (None, objective.direction):
        warnings.warn(
            f"{objective.name} is optimised towards {objective.direction}, as the oracle says; "
            f"keras_tuner.Objective({objective.name!r}, {str(meant)!r}) is the other way",
            stacklevel=4,
        )
    return f"{objective.name}:{objective.direction}"


def _hyperband(oracle: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with KerasTuner's brackets: how many, of what sizes, from which epoch.

    >>> from types import SimpleNamespace
    >>> _hyperband(SimpleNamespace(max_epochs=9, factor=3, hyperband_iterations=2), {})["trials"]
    38
    """
    epochs, factor = given.get("epochs") or oracle.max_epochs, oracle.factor
    last = int(math.log(epochs, factor) + 1e-9)  # the number of the bracket that stops most
    width = math.ceil(1 + math.log(epochs, factor) - 1e-9)
    sizes = [math.ceil(width / (each + 1) * factor**each) for each in range(last + 1)]
    found: dict[str, Any] = {"epochs": epochs}
    if math.isfinite(oracle.hyperband_iterations):
        found["trials"] = sum(sizes) * oracle.hyperband_iterations
    if last and "pruner" not in given:
        found |= {
            "pruner": "hyperband",
            "reduction_factor": factor,
            "min_epochs": math.ceil(epochs / factor**last),
            "brackets": last + 1,
        }
    return found

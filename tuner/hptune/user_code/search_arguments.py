"""What KerasTuner's `Tuner` and `search` take besides the model.

In a model file these are the constants `HYPERPARAMETERS`, `TUNE_NEW_ENTRIES` and `FIT`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.spelling import nearest_name
from ..errors import UsageError

if TYPE_CHECKING:  # loads NumPy, which a command that only reads its options need not wait for
    from ..core.space.parameters.json_form import JsonEntry

FIT_ARGUMENTS = (
    "batch_size", "callbacks", "class_weight", "epochs", "initial_epoch", "sample_weight",
    "shuffle", "steps_per_epoch", "validation_batch_size", "validation_data", "validation_freq",
    "validation_split", "validation_steps", "verbose",
)  # fmt: skip
"""Arguments of Keras's `Model.fit`, besides the data."""


def has_own_fit(hypermodel: Any) -> bool:
    """Return whether the user's HyperModel has its own `fit`."""
    fit = getattr(type(hypermodel), "fit", None)
    keras_tuner = sys.modules.get("keras_tuner")
    return fit is not None and (keras_tuner is None or fit is not keras_tuner.HyperModel.fit)


def check_fit_arguments(names: Iterable[str], hypermodel: Any, *, given_to: str) -> None:
    """Check that the training takes arguments of these names.

    Raises:
        UsageError: One is unknown.
    """
    known = list(FIT_ARGUMENTS)
    if has_own_fit(hypermodel):
        takes = inspect.signature(hypermodel.fit).parameters
        if any(take.kind is take.VAR_KEYWORD for take in takes.values()):
            return
        known = [*known, *takes]
    for name in names:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"did you mean {near}?" if near else f"it takes {', '.join(sorted(known))}"
            raise UsageError(f"{given_to} has {name!r}, which Keras's fit does not take; {hint}")


def read_hyperparameters(given: Any, *, given_to: str) -> tuple[JsonEntry, ...]:
    """Return declarations that precede those of the user's code, in their JSON form.

    Raises:
        UsageError: It is neither.
        SpaceError: A declaration is not valid.
    """
    if given is None:
        return ()
    from ..core.space.parameters import FixedParameter
    from ..core.space.parameters.json_form import parameter_to_json
    from ..core.space.space import SearchSpace

    if callable(getattr(given, "get_config", None)):
        return tuple(SearchSpace.from_json(given.get_config()["space"]).to_json())
    if isinstance(given, Mapping):
        return tuple(parameter_to_json(FixedParameter(*each)) for each in given.items())
    raise UsageError(
        f"{given_to} is {given!r}; allowed are a HyperParameters object, or a dict of fixed values"
    )

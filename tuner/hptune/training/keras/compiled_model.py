"""What a compiled Keras model says about itself, before it is trained."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...errors import ModelFileError
from ...user_code.user_errors import one_line
from ..unused_tensorflow import tensorflow_left_out
from .objective import MUST_RETURN

_ACCURACY = ("accuracy", "acc")
_BY_DATA = {"loss": ("crossentropy", "ce"), "metric": _ACCURACY}
"""Names, in any case, for which Keras chooses by the shape of the data."""


def check_model(model: Any, built_by: str) -> None:
    """Check that Keras can train what the user's code has built.

    Raises:
        ModelFileError: It is no compiled model.
    """
    if isinstance(model, type):
        raise ModelFileError(
            f"{built_by} returned the class {model.__name__}; {MUST_RETURN}: make one with "
            f"{model.__name__}(…)"
        )
    if not callable(getattr(model, "fit", None)) or not hasattr(model, "compile"):
        other = "; train other models in objective(hp, trial)" if hasattr(model, "fit") else ""
        raise ModelFileError(f"{built_by} returned {model!r}; {MUST_RETURN}{other}")
    if not getattr(model, "compiled", True):
        raise ModelFileError(
            f"{built_by} returned a model that is not compiled; {MUST_RETURN}: call "
            "model.compile(…) before returning it"
        )


def check_names(model: Any) -> None:
    """Check the names of losses and metrics, which Keras looks up only when it trains.

    Raises:
        ModelFileError: Keras does not know one of them.
    """
    import keras

    config = _compile_config(model)
    for kind in ("loss", "metrics", "weighted_metrics"):
        one, module = ("loss", "losses") if kind == "loss" else ("metric", "metrics")
        known: Any = getattr(keras, module)
        for name in _texts(config.get(kind)):
            if name.lower() in _BY_DATA[one]:
                continue
            try:
                known.get(name)
            except ValueError as error:
                near = difflib.get_close_matches(name, [*_BY_DATA[one], *dir(known)], 1)
                hint = f"; did you mean {near[0]}?" if near else f" (see keras.{module})"
                raise ModelFileError(
                    f"the {one} is {name!r}, which Keras does not know{hint}"
                ) from error


def default_metric(model: Any, reported: Iterable[str]) -> str:
    """Return the metric to optimise if the user names none, without the prefix `val_`.

    Args:
        model: A compiled model.
        reported: What `reported_values` returned.
    """
    names = [*reported] or [*_texts(_compile_config(model).get("metrics"))]
    accuracies = [name for name in names if name.lower() in _ACCURACY]
    others = [name for name in names if name.lower().endswith("_accuracy")]
    return [*accuracies, *others, "loss"][0]


def reported_values(model: Any, batch: Any, *, is_sure: bool, data: str = "data") -> dict[str, int]:
    """Return the metrics of a training step: how many numbers each has, by name.

    Keras makes and names them when it sees the first batch. It is shown one without values, so
    that nothing is computed.

    Args:
        model: A compiled model.
        batch: What `batch_like` returned; None if the data cannot be known.
        is_sure: Whether training does as Keras does, so that an error here is one of each trial.
        data: What the batch is of, for the error.

    Returns:
        The metrics; empty if they cannot be known.

    Raises:
        ModelFileError: The model and the data do not fit together.
    """
    step = getattr(model, "_symbolic_build", None)
    if step is None:
        return {}
    is_sure = is_sure and batch is not None and not model.run_eagerly
    try:
        step(data_batch=(model.inputs, model.outputs) if batch is None else batch)
    except Exception as error:  # of the user's layers, losses and metrics
        if is_sure and isinstance(error, ValueError | TypeError):
            raise ModelFileError(f"the model does not fit the {data}: {one_line(error)}") from error
    try:
        return _counts(model.get_metrics_result())
    except Exception:  # a metric of the user's own may need a value first
        return {}


def compiled_metrics(model: Any) -> set[str] | None:
    """Return the names of the metrics that a model is compiled with; None if unknown."""
    metrics = getattr(model, "_compile_metrics", None)
    if metrics is None:
        return set()
    try:
        if not metrics.built:
            metrics.build(model.outputs, model.outputs)  # the targets do not change the names
        return {*_counts(metrics.result())}
    except Exception:  # a model without known outputs, or a metric that needs a value first
        return None


def _counts(results: Mapping[str, Any]) -> dict[str, int]:
    """Return how many numbers each metric has; one that is a dict has the names of its parts."""
    counts: dict[str, int] = {}
    for name, value in results.items():
        if isinstance(value, Mapping):
            counts |= _counts(value)
        else:
            counts[name] = math.prod(getattr(value, "shape", ()))
    return counts


def has_own_step(model: Any) -> bool:
    """Return whether code of the user's own trains the model, and may report other metrics."""
    steps = ("fit", "train_step", "test_step", "compute_metrics")
    return any(
        name in vars(kind)
        for kind in type(model).__mro__
        if kind.__module__.partition(".")[0] != "keras"
        for name in steps
    )


def normalises_parts(model: Any) -> bool:
    """Return whether the model has BatchNormalization that is not asked to synchronise itself."""
    import keras

    layers: Iterable[Any] = getattr(model, "_flatten_layers", tuple)()
    return bool(keras.config.backend() != "jax") and any(
        isinstance(layer, keras.layers.BatchNormalization) and not layer.synchronized
        for layer in layers
    )


def _texts(config: Any) -> Iterator[str]:
    """Yield the losses or metrics that are given as texts, of all outputs."""
    if isinstance(config, str):
        yield config
    elif isinstance(config, Mapping | list | tuple):
        is_object = isinstance(config, Mapping) and "class_name" in config
        inner = config.values() if isinstance(config, Mapping) else config
        for each in () if is_object else inner:
            yield from _texts(each)


def _compile_config(model: Any) -> Mapping[str, Any]:
    """Return what the model was compiled with, in the form of Keras's JSON if it has one."""
    try:
        with tensorflow_left_out():
            return getattr(model, "get_compile_config", dict)() or {}
    except Exception:  # Keras reads the source of a function, which may have none
        return getattr(getattr(model, "_compile_config", None), "config", {})

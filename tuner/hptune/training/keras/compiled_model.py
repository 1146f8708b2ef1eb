"""What a compiled Keras model says about itself, before it is trained."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...core.goals import MEASURED
from ...errors import ModelFileError
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


def metric_names(model: Any) -> list[str]:
    """Return the names under which a model of one output reports its compiled metrics."""
    names = []
    for kind in ("metrics", "weighted_metrics"):
        given: Any = _compile_config(model).get(kind)
        is_by_output = isinstance(given, Mapping) and "class_name" not in given
        is_one = is_by_output and not _has_several_outputs(model)
        names += [name for each in (given.values() if is_one else [given]) for name in _named(each)]
    return names


def default_metric(names: Sequence[str]) -> str:
    """Return the metric to optimise if the user names none, without the prefix `val_`."""
    accuracies = [name for name in names if name.lower() in _ACCURACY]
    others = [name for name in names if name.lower().endswith("_accuracy")]
    return [*accuracies, *others, "loss"][0]


def reported_metrics(model: Any, names: Sequence[str], prefix: str) -> tuple[str, ...]:
    """Return the metrics that a training reports; empty if their names cannot be predicted."""
    if _has_several_outputs(model):
        return ()  # Keras names losses and metrics after the outputs
    trained = ("loss", *names)
    return tuple(dict.fromkeys([*trained, *(prefix + name for name in trained), *MEASURED]))


def _has_several_outputs(model: Any) -> bool:
    return len(getattr(model, "output_names", None) or ()) > 1


def is_of_keras(model: Any) -> bool:
    """Return whether the model and its layers are Keras's own: others may have metrics of theirs.

    Args:
        model: A model or a layer.
    """
    is_own = type(model).__module__.partition(".")[0] == "keras"
    return is_own and all(map(is_of_keras, getattr(model, "layers", ())))


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
        return getattr(model, "get_compile_config", dict)() or {}
    except Exception:  # Keras reads the source of a function, which may have none
        return getattr(getattr(model, "_compile_config", None), "config", {})


def _named(config: Any) -> list[str]:
    if isinstance(config, str):
        return [config]
    if not isinstance(config, Mapping | list | tuple):
        name = getattr(config, "name", getattr(config, "__name__", None))
        return [name] if isinstance(name, str) else []
    if isinstance(config, Mapping):
        inner = config.get("config")
        name = inner.get("name") if isinstance(inner, Mapping) else inner
        return [name] if isinstance(name, str) else []
    # A list within the list belongs to one of several outputs; Keras puts its name first.
    return [name for each in config if not isinstance(each, list) for name in _named(each)]

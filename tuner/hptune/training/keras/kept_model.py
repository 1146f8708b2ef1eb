"""Kept models, loaded from their files.

Keras alone loads a model of its own layers, losses and metrics. For others it needs the user's
classes and functions by name. What is defined inside a function (a closure, a lambda) has no name:
then the model is built again by the user's code, and gets the kept weights.
"""

from __future__ import annotations

import enum
import json
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core.trial import Params
from ...errors import StudyError
from ...user_code.model_file import UserCode, load, own_objects
from ...user_code.source import ObjectiveSource
from ..hyperparameters import make_hyperparameters
from ..resume.checkpoint import Checkpoints
from ..resume.model_state import finalize_layers, set_weights, variables_of
from ..resume.resumption import TrainingState
from .objective import MODEL_FILE, build, build_variables, load_data

_LAMBDA = "__lambda__"


class Loader(enum.StrEnum):
    """What loads a kept model."""

    KERAS = "keras"
    """`keras.saving.load_model(path)`."""
    STUDY = "study"
    """`Study(directory).best_model()`, which has the user's code."""
    NOTHING = "nothing"


def load_kept(
    path: Path,
    source: ObjectiveSource,
    space: Sequence[Mapping[str, object]],
    params: Params,
    *,
    step: int | None,
) -> Any:
    """Return the model in a file.

    Args:
        path: `model.keras`, `model.weights.h5`, or a trial's directory with a checkpoint.
        source: The user's code.
        space: The search space in its JSON form.
        params: The configuration of the model's trial.
        step: The epoch that the trial's result is of. If None, its `fit` returned the result, and a
            checkpoint's model is as `fit` left it.

    Raises:
        StudyError: The model cannot be loaded.
    """
    errors: list[Exception] = []
    code: UserCode | None = None
    try:
        code = load(source)
    except Exception as error:  # the file is gone, or was edited since
        errors.append(error)
    ways: list[Callable[[], Any]] = []
    if path.name == MODEL_FILE:
        ways.append(lambda: _from_file(path, code))
    if code is not None and code.hypermodel is not None:
        hp = make_hyperparameters(space, params)
        ways.append(lambda: _from_code(path, code, hp, step))
    if path.name == MODEL_FILE and _LAMBDA in _others(path):
        ways.reverse()  # Keras loads a lambda, but not the names that it uses
    if not ways and not errors:
        raise StudyError(
            f"{path} is no Keras model, but what {code.entry if code else ''}() stored"
        )
    for way in ways:
        try:
            return way()
        except Exception as error:  # from classes of the user's own, too
            errors.append(error)
    reason = "; ".join(str(error).partition("\n")[0] for error in errors)
    raise StudyError(f"{path} cannot be loaded: {reason}") from errors[-1]


def try_loading(
    path: Path, source: ObjectiveSource, space: Sequence[Mapping[str, object]], params: Params
) -> Loader:
    """Load a kept model, and return what it takes."""
    try:
        load_kept(path, source, space, params, step=None)
    except Exception:  # it may be the user's code that fails
        return Loader.NOTHING
    return Loader.KERAS if path.name == MODEL_FILE and not _others(path) else Loader.STUDY


def _from_file(path: Path, code: UserCode | None) -> Any:
    import keras

    # What the user's own code trained and saved is as safe as that code.
    own = {} if code is None else own_objects(code)
    return keras.saving.load_model(path, custom_objects=own, safe_mode=False)


def _from_code(path: Path, code: UserCode, hp: Any, step: int | None) -> Any:
    model = build(code, hp)
    if not model.built:
        build_variables(model, load_data(code, hp))
    if path.is_dir():
        _restore(model, path, step)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the optimizer begins without its state
            model.load_weights(path)
    return model


def _restore(model: Any, directory: Path, step: int | None) -> None:
    found = Checkpoints(directory).newest(cleans_up=False)
    if found is None:
        raise StudyError(
            "its last checkpoint is not kept. Besides the best model, a study keeps the last "
            "checkpoints of the best trials (keep_checkpoints) that trained by one call of fit"
        )
    state: TrainingState = found[1]
    best, own = state.recorder["best"], variables_of(model)
    if len(own) != len(state.model.model):
        raise StudyError("its checkpoint has other weights than what is built, as by enable_lora")
    if best is not None and best[0] == step:
        set_weights(model, best[2])
    elif step in (None, state.recorder["step"]):
        for variable, value in zip(own, state.model.model, strict=True):
            variable.assign(value)
    else:  # it trains on, or its last checkpoint had no room
        raise StudyError(f"its last checkpoint does not have the weights of epoch {step}")
    finalize_layers(model)


def _others(path: Path) -> set[str]:
    """Return the kinds of objects in a model that are not Keras's own; none if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            config = json.loads(archive.read("config.json"))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile):
        return set()
    return {
        each["class_name"]
        for each in _objects(config)
        if each["class_name"] == _LAMBDA or not str(each.get("module", "keras")).startswith("keras")
    }


def _objects(config: Any) -> Iterator[Mapping[str, Any]]:
    """Yield all serialized objects within one."""
    if isinstance(config, Mapping) and "class_name" in config:
        yield config
    if isinstance(config, Mapping | list):
        for each in config.values() if isinstance(config, Mapping) else config:
            yield from _objects(each)

"""Find the search space of the user's code, by building once with all conditions opened.

Runs in a child process: it calls the user's code. What it finds is sent on at once, so that a
crash or a long training does not hide the hyperparameters that were declared before it.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..config.model_file import Found, UserCode
from ..core.goals import MEASURED
from ..core.space.parameters import BooleanParameter, ChoiceParameter, IntParameter
from ..errors import ModelFileError, SpaceError
from .function_objective import read_result
from .hyperparameters import HyperParameters, make_hyperparameters
from .keras.objective import fit_arguments, has_own_fit, load_data, own_fit

MAX_BUILDS = 60
MAX_SECONDS = 30.0
QUICK_SECONDS = 0.5
_ACCURACY = ("accuracy", "acc")


class _Enough(BaseException):
    """The user's code has come to its training; all is declared that will be."""


class _ProbeTrial:
    """Stands in for the trial: the first report means that the training has begun."""

    number = 0
    seed = 0
    epochs = None

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params

    def report(self, _step: int, **_metrics: Any) -> None:
        raise _Enough

    def should_stop(self) -> bool:
        raise _Enough

    @property
    def checkpoint_dir(self) -> Path:
        raise _Enough


class _Findings:
    """What is known so far, told whenever it changes."""

    def __init__(self, found: Found, tell: Callable[[Found], None]) -> None:
        self._found = found
        self._tell = tell

    def add(self, **changes: Any) -> None:
        self._found = replace(self._found, **changes)
        self._tell(self._found)

    def warn(self, warning: str) -> None:
        self.add(warnings=(*self._found.warnings, warning))


def find_space(code: UserCode, nothing: Found, *, tell: Callable[[Found], None]) -> None:
    """Run the user's code until all its hyperparameters are known.

    Args:
        code: The user's entry points.
        nothing: What is known before.
        tell: Called with what is known, whenever it has grown.

    Raises:
        BaseException: What the user's code raises with the default values.
    """
    findings = _Findings(nothing, tell)
    hp = make_hyperparameters()
    hp.on_declaration = lambda: findings.add(space=tuple(hp.get_config()["space"]))
    if code.objective is None:
        _find_keras_space(code, hp, findings)
    else:
        _call_objective(code.objective, hp, findings)


def _call_objective(
    objective: Callable[[Any, Any], Any], hp: HyperParameters, findings: _Findings
) -> None:
    findings.add(may_train=True)

    def call() -> Any:
        return objective(hp, _ProbeTrial(hp.values))

    began = time.monotonic()
    try:
        result = call()
    except _Enough:
        is_quick = True
    except SpaceError:
        raise
    except (Exception, SystemExit):
        # A trial may fail, with its reason; but a file that fails before it has declared
        # anything is wrong.
        if not hp.space:
            raise
        return
    else:
        read_result(result, "value")
        is_quick = time.monotonic() - began < QUICK_SECONDS
    # One that never asks its trial for anything has trained, and is not called for each branch.
    findings.add(is_complete=is_quick and _open_corners(call, hp))


def _find_keras_space(code: UserCode, hp: HyperParameters, findings: _Findings) -> None:
    model = code.hypermodel.build(hp)
    owns_fit = code.fit is not None or has_own_fit(code.hypermodel)
    _check_model(model, owns_fit=owns_fit)
    data = load_data(code, hp)
    arguments = {} if code.fit is not None else fit_arguments(data)[1]  # says what is wrong
    given = {**arguments, **code.fit_arguments}
    validates = bool(given.get("validation_data") is not None or given.get("validation_split"))
    # A fit of the user's own may take its validation data from anywhere.
    names, prefix = _metric_names_of(model), "val_" if validates or owns_fit else ""
    findings.add(metric=prefix + _chosen(names), metrics=_reported(model, names, prefix))
    finished = _open_corners(lambda: code.hypermodel.build(hp), hp, findings.warn)
    if owns_fit:
        # Last, since it may train if it calls neither `model.fit` nor a callback.
        findings.add(may_train=True)
        hp.values = _defaults(hp)
        _probe_fit(code, hp, model, data)
    findings.add(is_complete=finished)


def _open_corners(
    call: Callable[[], Any], hp: HyperParameters, warn: Callable[[str], None] = lambda _: None
) -> bool:
    """Call with the values of each corner; False if there was no time for all of them."""
    began = time.monotonic()
    for count, values in enumerate(_corners(hp)):
        if count >= MAX_BUILDS or time.monotonic() - began > MAX_SECONDS:
            return False
        hp.values = dict(values)
        try:
            call()
        except _Enough:
            pass
        except SpaceError:
            raise
        except (Exception, SystemExit) as error:
            chosen = ", ".join(f"{name}={value!r}" for name, value in values.items())
            warn(f"with {chosen} the model cannot be built: {error}")
    return True


def _check_model(model: Any, *, owns_fit: bool) -> None:
    wanted = "it must return a compiled Keras model"
    if model is None:
        raise ModelFileError(f"build_model(hp) returned None; {wanted}")
    if owns_fit:
        return  # which may train whatever it likes
    if not callable(getattr(model, "fit", None)):
        raise ModelFileError(f"build_model(hp) returned {model!r}; {wanted}")
    if not getattr(model, "compiled", True):
        raise ModelFileError(
            f"build_model(hp) returned a model that is not compiled; {wanted}: call "
            "model.compile(…) before returning it"
        )


def _corners(hp: HyperParameters) -> Iterator[dict[str, Any]]:
    """Values that lead into each branch of the user's code, one build at a time.

    First every conditional scope (`hp` notes, as it is built, which were active). Then the
    branches that are written without scopes: `for i in range(hp.Int("layers", 1, 5))` by one build
    with all integers at their upper bounds, `if hp.Boolean("deep")` by the other truth value,
    `if hp.Choice("head", ["flat", "pool"])` by each of the words. What hides deeper still joins
    the space when a trial comes upon it.
    """
    tried: list[Any] = []
    while True:
        known = [*hp.active_scopes, *tried]
        closed = next((scope for scope in hp.inactive_scopes if scope not in known), None)
        if closed is None:
            break
        tried.append(closed)
        yield {**_defaults(hp), **{each.name: each.values[0] for each in closed}}
    largest = {p.name: p.high for p in hp.space if isinstance(p, IntParameter)}
    flipped = {p.name: not p.default for p in hp.space if isinstance(p, BooleanParameter)}
    if largest or flipped:
        yield {**_defaults(hp), **largest, **flipped}
    for parameter in hp.space:
        if isinstance(parameter, ChoiceParameter) and isinstance(parameter.values[0], str):
            for word in parameter.values:
                if word != parameter.default:
                    yield {**_defaults(hp), parameter.name: word}


def _defaults(hp: HyperParameters) -> dict[str, Any]:
    return {p.name: p.default for p in hp.space}


def _probe_fit(code: UserCode, hp: HyperParameters, model: Any, data: Any) -> None:
    """Call the user's fit up to the moment when it would train."""
    import keras

    def no_training(*_arguments: Any, **_keywords: Any) -> None:
        raise _Enough

    class NoTraining(keras.callbacks.Callback):
        """For training loops of the user's own, which call the callbacks by themselves."""

        on_train_begin = on_epoch_begin = on_epoch_end = no_training
        on_train_batch_begin = on_train_batch_end = no_training

    with contextlib.suppress(_Enough):
        model.fit = no_training
        if code.fit is not None:
            code.fit(hp, model, data, [NoTraining()], 1)
        else:
            arguments, keywords = fit_arguments(data)
            keywords.update({"epochs": 1, "verbose": 2, "callbacks": [NoTraining()]})
            own_fit(code.hypermodel, hp, model, arguments, keywords)


def _metric_names_of(model: Any) -> list[str]:
    config: dict[str, Any] = getattr(model, "get_compile_config", dict)() or {}
    return [*_metric_names(config.get("metrics")), *_metric_names(config.get("weighted_metrics"))]


def _chosen(names: Sequence[str]) -> str:
    """What the training can be judged by, by the name that Keras reports it under."""
    accuracies = (name for name in names if name.lower() in _ACCURACY)
    others = (name for name in names if name.lower().endswith("_accuracy"))
    return next(itertools.chain(accuracies, others), "loss")


def _reported(model: Any, names: Sequence[str], prefix: str) -> tuple[str, ...]:
    """All that a training reports by itself; nothing where the names cannot be foretold."""
    if len(getattr(model, "output_names", None) or ()) > 1:
        return ()  # then losses and metrics are named after the outputs
    trained = ("loss", *names)
    return tuple(dict.fromkeys([*trained, *(prefix + name for name in trained), *MEASURED]))


def _metric_names(config: Any) -> list[str]:
    """The names that a model of one output reports its compiled metrics under."""
    if isinstance(config, str):
        return [config]
    if isinstance(config, Mapping):
        inner = config.get("config")
        name = inner.get("name") if isinstance(inner, Mapping) else inner
        return [name] if isinstance(name, str) else []
    if not isinstance(config, list | tuple):
        return []
    # Metrics in a list of lists belong to outputs, whose names come before theirs.
    return [name for each in config if not isinstance(each, list) for name in _metric_names(each)]

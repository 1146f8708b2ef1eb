"""Every `fit` of a Keras model in this process, made through a strategy.

So `model.fit` in a user's own `fit` trains in parallel too, also of a model that it builds itself.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from ...errors import ModelFileError
from ..context import AttemptStopped
from ..replaced_methods import replaced
from ..resume.model_state import build_optimizer
from . import batches, learning_rate
from .base import Strategy
from .equal_weights import EqualWeights

WRITERS = ("BackupAndRestore", "CSVLogger", "ModelCheckpoint", "RemoteMonitor", "TensorBoard")
"""Keras's callbacks that write files or send data: rank 0's do so."""

NOT_PARALLEL = (
    "fit() did not call model.fit, so no strategy could divide its batches; call model.fit, use "
    "objective(hp, trial) with trial.rank, or one process (--strategy none on several GPUs)"
)


@contextlib.contextmanager
def whole_training(strategy: Strategy) -> Iterator[None]:
    """Let a strategy train what the code within builds, until rank 0 has saved its result.

    Raises:
        ModelFileError: The code has called no `fit`.
    """
    with strategy.scope(), train_by(strategy) as trained:
        try:
            yield
        except AttemptStopped:
            strategy.disconnect()
            raise
        if not trained:
            raise ModelFileError(NOT_PARALLEL)
    strategy.disconnect()


@contextlib.contextmanager
def train_by(strategy: Strategy) -> Iterator[list[Any]]:
    """Let a strategy carry out each `fit` and `predict` of a model, and let only rank 0 save it.

    Yields:
        The models that `fit` was called of so far.
    """
    cls: Any = keras.Model
    fit, predict, evaluate = cls.fit, cls.predict, cls.evaluate
    trained: list[Any] = []

    @functools.wraps(fit)
    def fit_by_strategy(*given: Any, **named: Any) -> Any:
        model, arguments = bound(fit, given, named)
        trained.append(model)
        prepared = _prepared(strategy, model, arguments)
        try:
            return strategy.fit(fit, model, prepared)
        finally:  # the user's code may catch an error, and train the model again
            learning_rate.restore_rate(prepared["callbacks"])

    @functools.wraps(predict)
    def predict_by_strategy(*given: Any, **named: Any) -> Any:
        return strategy.predict(predict, *bound(predict, given, named))

    @functools.wraps(evaluate)
    def evaluate_by_strategy(model: Any, *given: Any, **named: Any) -> Any:
        return strategy.evaluate(evaluate, model, *given, **named)

    methods = {
        "fit": fit_by_strategy,
        "predict": predict_by_strategy,
        "evaluate": evaluate_by_strategy,
        "save": _by_rank_0(strategy, cls.save),
        "save_weights": _by_rank_0(strategy, cls.save_weights),
    }
    with replaced(cls, methods):
        yield trained


def bound(
    method: Any, given: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return the model of a call, and its other arguments by name."""
    arguments = dict(inspect.signature(method).bind(*given, **named).arguments)
    return arguments.pop("self"), arguments


def _by_rank_0(strategy: Strategy, save: Any) -> Any:
    @functools.wraps(save)
    def save_alone(*given: Any, **named: Any) -> Any:
        if strategy.rank == 0:
            with strategy.alone():
                return save(*given, **named)
        return None

    return save_alone


def _prepared(strategy: Strategy, model: Any, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the global batch size and our callbacks."""
    build_optimizer(model)  # a MultiOptimizer may not know those within it before
    scales = learning_rate.is_scaled(strategy)
    if batches.is_arrays(arguments.get("x")):
        size = arguments.get("batch_size")
        if size is None and not arguments.get("steps_per_epoch"):
            size = batches.DEFAULT_BATCH_SIZE
        if size is None and scales:
            raise ModelFileError(
                f"--batch-rule {strategy.asked.rule} multiplies the batch size, but model.fit has "
                "steps_per_epoch alone; give it batch_size, or use --batch-rule global"
            )
        if scales and arguments.get("validation_steps"):
            # The same samples validate on any number of devices.
            arguments["validation_batch_size"] = arguments.get("validation_batch_size") or size
        if size is not None:
            arguments["batch_size"] = size = size * strategy.replicas if scales else size
            batches.check_divides(size, strategy.replicas)
    elif scales:
        raise ModelFileError(
            f"--batch-rule {strategy.asked.rule} needs arrays; a "
            f"{type(arguments.get('x')).__name__} makes its own batches, which are global ones"
        )
    callbacks = arguments.get("callbacks")
    given = keras.tree.flatten(getattr(callbacks, "callbacks", callbacks) or [])
    ours = [EqualWeights(strategy)] if strategy.replicas > 1 else []
    if scales:
        learning_rate.check_rate(strategy, model, given)
        ours.append(learning_rate.ScaledRate(strategy))
    arguments["callbacks"] = [*ours, *(each for each in given if _acts_on(each, strategy.rank))]
    return arguments


def _acts_on(callback: Any, rank: int) -> bool:
    return rank == 0 or all(kind.__name__ not in WRITERS for kind in type(callback).__mro__)

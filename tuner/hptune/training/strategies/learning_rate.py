"""The learning rate of larger batches: `--batch-rule linear` and `sqrt`, with warm-up."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from ...core.data_parallel import BatchRule
from ...errors import ModelFileError
from .base import Strategy
from .optimizer_calls import innermost


def check_rate(strategy: Strategy, model: Any, callbacks: Iterable[Any]) -> None:
    """Check that the model's learning rate can be multiplied.

    Args:
        strategy: What trains the model.
        model: The model.
        callbacks: The user's callbacks.

    Raises:
        ModelFileError: It follows a schedule.
    """
    import keras

    schedule = keras.optimizers.schedules.LearningRateSchedule
    rates = [each.get_config().get("learning_rate") for each in innermost(model.optimizer)]
    if any(isinstance(rate, dict | schedule) for rate in rates):
        raise ModelFileError(
            f"--batch-rule {strategy.asked.rule} multiplies the learning rate, but that of the "
            "model follows a schedule; use --batch-rule global, or a number as learning rate"
        )
    if any(isinstance(each, keras.callbacks.LearningRateScheduler) for each in callbacks):
        raise ModelFileError(
            f"--batch-rule {strategy.asked.rule} multiplies the learning rate, but a "
            "LearningRateScheduler sets it; use --batch-rule global, or ReduceLROnPlateau"
        )


def rate_callback(strategy: Strategy) -> Any:
    """Return a Keras callback that multiplies the learning rate, epoch by epoch, during one `fit`.

    Changes by other callbacks, such as ReduceLROnPlateau, multiply with it.
    """
    return _callback_class()(strategy)


def restore_rate(callbacks: Iterable[Any]) -> None:
    """Undo what a `rate_callback` among these has multiplied: the next `fit` does it again."""
    for each in callbacks:
        if isinstance(each, _callback_class()):
            each.multiply(1.0)


def is_scaled(strategy: Strategy) -> bool:
    """Return whether the rule multiplies learning rate and batch size."""
    return strategy.asked.rule is not BatchRule.GLOBAL


@functools.cache
def _callback_class() -> Any:
    import keras

    class ScaledRate(keras.callbacks.Callback):
        def __init__(self, strategy: Strategy) -> None:
            super().__init__()
            self._strategy = strategy
            self._factor = 1.0

        def __deepcopy__(self, _copies: Any) -> Any:
            return self

        def get_state(self) -> float:
            # The learning rate in a checkpoint is multiplied by it.
            return self._factor

        def set_state(self, state: float) -> None:
            self._factor = state

        def on_epoch_begin(self, epoch: int, *_: Any, **__: Any) -> None:
            self.multiply(self._strategy.asked.rate_factor(self._strategy.replicas, epoch))

        def multiply(self, factor: float) -> None:
            if factor != self._factor:
                for optimizer in innermost(self.model.optimizer):
                    rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
                    optimizer.learning_rate = rate * factor / self._factor
                self._factor = factor

    return ScaledRate

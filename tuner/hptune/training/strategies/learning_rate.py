"""The learning rate of larger batches: `--batch-rule linear` and `sqrt`, with warm-up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import keras

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
    schedule = keras.optimizers.schedules.LearningRateSchedule
    rates = [each.get_config().get("learning_rate") for each in innermost(model.optimizer)]
    if any(isinstance(rate, dict | schedule) for rate in rates):
        raise ModelFileError(
            f"--batch-rule {strategy.asked.rule} multiplies the learning rate, but that of the "
            "model follows a schedule; use --batch-rule global, or a number as learning rate"
        )
    if any(isinstance(callback, keras.callbacks.LearningRateScheduler) for callback in callbacks):
        raise ModelFileError(
            f"--batch-rule {strategy.asked.rule} multiplies the learning rate, but a "
            "LearningRateScheduler sets it; use --batch-rule global, or ReduceLROnPlateau"
        )


def restore_rate(callbacks: Iterable[Any]) -> None:
    """Undo what a `ScaledRate` among these has multiplied: the next `fit` does it again."""
    for callback in callbacks:
        if isinstance(callback, ScaledRate):
            callback.multiply(1.0)


def is_scaled(strategy: Strategy) -> bool:
    """Return whether the rule multiplies learning rate and batch size."""
    return strategy.asked.rule is not BatchRule.GLOBAL


class ScaledRate(keras.callbacks.Callback):
    """Multiplies the learning rate, epoch by epoch, during one `fit`.

    Changes by other callbacks, such as ReduceLROnPlateau, multiply with it.
    """

    def __init__(self, strategy: Strategy) -> None:
        super().__init__()
        self._strategy = strategy
        self._factor = 1.0

    def __deepcopy__(self, _copies: Any) -> Any:
        return self

    def get_state(self) -> float:
        """Return the factor, by which the learning rate in a checkpoint is multiplied."""
        return self._factor

    def set_state(self, state: float) -> None:
        """Continue with the factor of a checkpoint."""
        self._factor = state

    def on_epoch_begin(self, epoch: int, *_: Any, **__: Any) -> None:
        """Set the factor of an epoch."""
        self.multiply(self._strategy.asked.rate_factor(self._strategy.replicas, epoch))

    def multiply(self, factor: float) -> None:
        """Multiply the learning rate by this factor in place of the last one."""
        if factor != self._factor:
            for optimizer in innermost(self.model.optimizer):
                rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
                optimizer.learning_rate = rate * factor / self._factor
            self._factor = factor

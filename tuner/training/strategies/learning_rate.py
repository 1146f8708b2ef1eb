"""The learning rate of larger batches: `--batch-rule linear` and `sqrt`, with warm-up."""

from __future__ import annotations

import functools
from typing import Any

from ...core.data_parallel import BatchRule
from ...errors import ModelFileError
from .base import Strategy


def check_rate(strategy: Strategy, model: Any) -> None:
    """Check that the model's learning rate can be multiplied.

    Raises:
        ModelFileError: It follows a schedule.
    """
    import keras

    schedules = keras.optimizers.schedules
    config = model.optimizer.get_config() if model.optimizer is not None else {}
    rate = config.get("learning_rate")
    if isinstance(rate, dict | schedules.LearningRateSchedule):
        raise ModelFileError(
            f"--batch-rule {strategy.asked.rule} multiplies the learning rate, but that of the "
            "model follows a schedule; use --batch-rule global, or a number as learning rate"
        )


def rate_callback(strategy: Strategy) -> Any:
    """Return a Keras callback that multiplies the learning rate, epoch by epoch.

    Changes by other callbacks, such as ReduceLROnPlateau, multiply with it.
    """
    return _callback_class()(strategy)


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
            strategy, optimizer = self._strategy, self.model.optimizer
            factor = strategy.asked.rate_factor(strategy.replicas, epoch)
            if factor != self._factor:
                rate = float(keras.ops.convert_to_numpy(optimizer.learning_rate))
                optimizer.learning_rate = rate * factor / self._factor
                self._factor = factor

    return ScaledRate

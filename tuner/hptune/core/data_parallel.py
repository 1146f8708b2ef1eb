"""Data-parallel training, as the user asks for it: who divides the batches, and what they mean."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass


class StrategyChoice(enum.StrEnum):
    """What trains a Keras model on several devices."""

    AUTO = "auto"
    """Data parallelism as soon as a trial has more than one device."""
    DATA_PARALLEL = "data-parallel"
    NONE = "none"
    """Nothing: the model file does it itself, or one device trains."""


class BatchRule(enum.StrEnum):
    """What the batch size of a model file means on several devices."""

    GLOBAL = "global"
    """It is that of all devices together; the learning rate is unchanged."""
    LINEAR = "linear"
    """It is that of each device; the learning rate is multiplied by the number of devices."""
    SQRT = "sqrt"
    """It is that of each device; the learning rate is multiplied by the number's square root."""

    def factor(self, devices: int) -> float:
        """Return what the learning rate is multiplied by.

        >>> [rule.factor(4) for rule in BatchRule]
        [1.0, 4.0, 2.0]
        """
        if self is BatchRule.GLOBAL:
            return 1.0
        return float(devices) if self is BatchRule.LINEAR else math.sqrt(devices)


DEFAULT_WARM_UP_EPOCHS = 5
"""As in Goyal et al."""


@dataclass(frozen=True, slots=True)
class DataParallel:
    """How the trials of a study train on several devices.

    Attributes:
        choice: What divides the work.
        rule: What the batch size means.
        warm_up_epochs: Epochs in which the learning rate rises to its multiple.
    """

    choice: StrategyChoice = StrategyChoice.AUTO
    rule: BatchRule = BatchRule.GLOBAL
    warm_up_epochs: int = DEFAULT_WARM_UP_EPOCHS

    def rate_factor(self, devices: int, epoch: int) -> float:
        """Return what the learning rate is multiplied by in an epoch, from 0.

        It rises linearly from 1, as in Goyal et al., "Accurate, Large Minibatch SGD" (2017), 2.2.

        >>> linear = DataParallel(rule=BatchRule.LINEAR, warm_up_epochs=2)
        >>> [linear.rate_factor(5, epoch) for epoch in range(4)]
        [1.0, 3.0, 5.0, 5.0]
        """
        whole = self.rule.factor(devices)
        if epoch >= self.warm_up_epochs:
            return whole
        return 1.0 + (whole - 1.0) * epoch / self.warm_up_epochs


DATA_PARALLEL = DataParallel()
"""The defaults."""

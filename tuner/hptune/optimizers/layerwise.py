"""LARS and LAMB, whose step is scaled for each layer, and their learning rate schedule.

Both scale the step of each variable by the ratio of its norm to that of its update, so layers with
small gradients learn as fast as others with a large batch. These rules hold for both:

- Variables with one dimension or fewer (biases, scales and offsets of normalization layers) are
  neither scaled nor decayed: they may be 0, and a ratio would keep them there.
- Weight decay is part of the update whose norm is compared, as in the papers. That of
  `keras.optimizers.Lamb` is not.
- Where a norm is 0, the ratio is 1.
- The gradients must be those of the global batch: with several devices, they are averaged first.
"""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

_PACKAGE = "hptune"


class _Layerwise(keras.optimizers.Optimizer):
    """A Keras optimizer with decay within the update.

    Attributes:
        decay: The weight decay. The base class's own, which would be applied outside of the
            update, is None.
    """

    def __init__(self, learning_rate: Any, weight_decay: float, **options: Any) -> None:
        super().__init__(learning_rate=learning_rate, **options)
        self.decay = weight_decay

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {**super().get_config(), "weight_decay": self.decay}

    def _decay_of(self, variable: Any) -> float:
        """Return a variable's decay; 0 if `exclude_from_weight_decay` names it."""
        return self.decay if self._use_weight_decay(variable) else 0.0


def _norm(values: Any) -> Any:
    """Return the Euclidean norm; `keras.ops.norm` refuses arrays of more than two dimensions."""
    return ops.sqrt(ops.sum(ops.square(values)))


def _ratio(numerator: Any, denominator: Any) -> Any:
    """Return the ratio of two norms; 1 where one of them is 0."""
    is_known = ops.logical_and(numerator > 0, denominator > 0)
    return ops.where(is_known, numerator / ops.where(is_known, denominator, 1.0), 1.0)


def _whole(gradient: Any, dtype: Any) -> Any:
    """Return a gradient as an array of the whole variable.

    TensorFlow has that of an embedding as a list of rows, of which several may be one row's.
    """
    return ops.add(ops.cast(gradient, dtype), 0.0)  # the sum of such a list is an array


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Lars(_Layerwise):
    """SGD with momentum and a learning rate for each layer.

    For weights w with the gradient g, with the trust coefficient eta and the decay d::

        rate = eta |w| / (|g| + d |w|)
        v    = momentum v + learning_rate rate (g + d w)
        w    = w - v

    Source: You, Gitman and Ginsburg 2017, "Large batch training of convolutional networks"
    (arXiv 1708.03888), algorithm 1. Its learning rates are of the order of 1 to 30, and must be
    tuned for each batch size; the paper warms up for 5 epochs and decays with power 2 (`WarmUp`).

    Args:
        learning_rate: The global learning rate, or a schedule.
        momentum: The momentum.
        weight_decay: The decay d.
        trust_coefficient: The coefficient eta.
        name: The optimizer's name.
        options: Further arguments of `keras.optimizers.Optimizer`, such as `clipnorm`.
    """

    def __init__(
        self,
        learning_rate: Any = 1.0,
        momentum: float = 0.9,
        weight_decay: float = 5e-4,
        trust_coefficient: float = 0.001,
        *,
        name: str = "lars",
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay, name=name, **options)
        self.momentum = momentum
        self.trust_coefficient = trust_coefficient

    def build(self, variables: Any) -> None:
        """Make the momentum of each variable."""
        if self.built:
            return
        super().build(variables)
        self._momenta = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = _whole(gradient, variable.dtype)
        if len(variable.shape) > 1:
            decay = self._decay_of(variable)
            of_weights, of_gradient = _norm(variable), _norm(gradient)
            of_update = ops.where(of_gradient > 0, of_gradient + decay * of_weights, 0.0)
            rate = rate * _ratio(self.trust_coefficient * of_weights, of_update)
            gradient = gradient + decay * variable
        momentum = self._momenta[self._get_variable_index(variable)]
        self.assign(momentum, self.momentum * momentum + rate * gradient)
        self.assign_sub(variable, momentum)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "momentum": self.momentum,
            "trust_coefficient": self.trust_coefficient,
        }


@keras.saving.register_keras_serializable(package=_PACKAGE)
class Lamb(_Layerwise):
    """Adam with a learning rate for each layer.

    With Adam's moments m and v, corrected for their bias, and the decay d::

        r = m / (sqrt(v) + epsilon) + d w
        w = w - learning_rate |w| / |r| r

    Source: You et al. 2020, "Large batch optimization for deep learning: training BERT in 76
    minutes" (arXiv 1904.00962), algorithm 2, with the identity as phi.

    Args:
        learning_rate: The learning rate, or a schedule.
        weight_decay: The decay d.
        beta_1: Decay of the first moment.
        beta_2: Decay of the second moment.
        epsilon: Added to the root of the second moment.
        name: The optimizer's name.
        options: Further arguments of `keras.optimizers.Optimizer`, such as `clipnorm`.
    """

    def __init__(
        self,
        learning_rate: Any = 0.001,
        weight_decay: float = 0.01,
        *,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        name: str = "lamb",
        **options: Any,
    ) -> None:
        super().__init__(learning_rate, weight_decay, name=name, **options)
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon

    def build(self, variables: Any) -> None:
        """Make the moments of each variable."""
        if self.built:
            return
        super().build(variables)
        self._first, self._second = self.add_optimizer_variables(variables, ["first", "second"])

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Update one variable."""
        rate = ops.cast(learning_rate, variable.dtype)
        gradient = _whole(gradient, variable.dtype)
        step = ops.cast(self.iterations + 1, variable.dtype)
        index = self._get_variable_index(variable)
        first, second = self._first[index], self._second[index]
        self.assign(first, self.beta_1 * first + (1.0 - self.beta_1) * gradient)
        self.assign(second, self.beta_2 * second + (1.0 - self.beta_2) * ops.square(gradient))
        corrected = first / (1.0 - ops.power(self.beta_1, step))
        spread = ops.sqrt(second / (1.0 - ops.power(self.beta_2, step)))
        update = corrected / (spread + self.epsilon)
        if len(variable.shape) > 1:
            update = update + self._decay_of(variable) * variable
            rate = rate * _ratio(_norm(variable), _norm(update))
        self.assign_sub(variable, rate * update)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return {
            **super().get_config(),
            "beta_1": self.beta_1,
            "beta_2": self.beta_2,
            "epsilon": self.epsilon,
        }


@keras.saving.register_keras_serializable(package=_PACKAGE)
class WarmUp(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly, and then falls to 0 as a power of what is left.

    Its lengths are epochs: with a batch size that is searched, a number of steps would mean
    something else in each trial.

    Args:
        peak: The learning rate at the end of the warm-up.
        epochs: Epochs of the whole training.
        steps_per_epoch: Steps of an epoch, the samples divided by the batch size.
        warm_up_epochs: Epochs of the warm-up, a number from 0 to `epochs`.
        power: The power of the decay; 2 as for LARS, 1 for LAMB.

    Raises:
        ValueError: The warm-up is longer than the training.
    """

    def __init__(
        self,
        peak: float,
        epochs: float,
        steps_per_epoch: float,
        warm_up_epochs: float = 5.0,
        power: float = 2.0,
    ) -> None:
        if not 0.0 <= warm_up_epochs <= epochs:
            raise ValueError(
                f"warm_up_epochs is {warm_up_epochs}; allowed are 0 to {epochs}, the epochs of the "
                "training"
            )
        self.peak = peak
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.warm_up_epochs = warm_up_epochs
        self.power = power

    def __call__(self, step: Any) -> Any:
        """Return the learning rate at a step."""
        epoch = ops.cast(step, "float32") / self.steps_per_epoch
        # The first step is not at 0, which would leave the weights as they are.
        first = 1.0 / self.steps_per_epoch
        rising = (epoch + first) / max(self.warm_up_epochs, first)
        falling_epochs = max(self.epochs - self.warm_up_epochs, first)
        left = ops.clip((self.epochs - epoch) / falling_epochs, 0.0, 1.0)
        return self.peak * ops.minimum(ops.minimum(rising, 1.0), ops.power(left, self.power))

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        names = ("peak", "epochs", "steps_per_epoch", "warm_up_epochs", "power")
        return {name: getattr(self, name) for name in names}

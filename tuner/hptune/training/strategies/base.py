"""The contract of a strategy: what trains one model on several devices.

A strategy is used on every rank, in this order::

    strategy.enter()                    # before anything is seeded or built
    with whole_training(strategy):      # in strategy.scope()
        model = build_model(hp)
        model.fit(x, y, ...)            # calls strategy.fit(original, model, arguments)
    strategy.disconnect()               # called by it, when rank 0 has saved its result

With n devices in all it computes what one device computes with the same global batches, but for
the order of floating point additions.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ...core.data_parallel import DataParallel
from ..parallel.ranks import Ranks

Method = Callable[..., Any]
"""A method of Keras's `Model`, called with the model and its arguments."""


class Strategy:
    """Trains one model on all devices of all ranks of a trial.

    This class itself is Keras alone, on one device.

    Attributes:
        ranks: This rank's handle; None in a trial of one process.
        devices: Devices of this process that train; ranks have equal numbers.
        asked: What the user asked for.

    Args:
        ranks: This rank's handle; None in a trial of one process.
        devices: Devices of this process.
        asked: What the user asked for.
    """

    def __init__(self, ranks: Ranks | None, devices: int, asked: DataParallel) -> None:
        self.ranks = ranks
        self.devices = devices
        self.asked = asked

    @property
    def rank(self) -> int:
        """This process's rank."""
        return 0 if self.ranks is None else self.ranks.rank

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return 1 if self.ranks is None else self.ranks.world_size

    @property
    def replicas(self) -> int:
        """The number of devices of all ranks, which divide each global batch."""
        return self.world_size * self.devices

    @property
    def on_cpu(self) -> bool:
        """Whether the devices are CPUs: the weights are then compared after each epoch."""
        return False

    def enter(self) -> None:
        """Set up the framework in this process, once, before it uses any device.

        Raises:
            ParallelTrainingError: The framework cannot.
        """

    def scope(self) -> AbstractContextManager[Any]:
        """Return the context in which models are built and trained."""
        return contextlib.nullcontext()

    def alone(self) -> AbstractContextManager[Any]:
        """Return a context in which this rank uses the model without the others, to save it."""
        return contextlib.nullcontext()

    def fit(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        """Train in place of Keras's `fit`, and return what it returns.

        The logs of every rank have the metrics of the global batches, so that all callbacks decide
        alike on every rank.

        Args:
            original: Keras's own `fit`.
            model: The model, compiled.
            arguments: Arguments of Keras's `fit` by name, those of the user and ours: a batch size
                is global and divides by `replicas`; callbacks include the check of equal weights.
        """
        return original(model, **arguments)

    def predict(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        """Predict in place of Keras's `predict`, and return the outputs for all samples.

        Every rank calls it with the same samples, and gets the same outputs.

        Args:
            original: Keras's own `predict`.
            model: The model.
            arguments: Arguments of Keras's `predict` by name.
        """
        return original(model, **arguments)

    def evaluate(self, original: Method, model: Any, *given: Any, **named: Any) -> Any:
        """Evaluate in place of Keras's `evaluate`, which its `fit` also calls."""
        return original(model, *given, **named)

    def copies(self, _model: Any) -> Iterable[Mapping[str, Any]]:
        """Yield the trainable weights on each device of this process, as arrays by name.

        Called after a batch, so they may be where the framework keeps them while it trains.
        """
        return ()

    def disconnect(self) -> None:
        """Wait on every rank until rank 0 has saved its result, and disconnect."""
        if self.ranks is not None:
            self.ranks.gather(b"")


class ParallelTrainingError(Exception):
    """The ranks or devices of a trial do not train one model together."""

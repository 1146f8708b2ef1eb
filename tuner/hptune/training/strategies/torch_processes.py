"""Keras on PyTorch: several processes, each with one device and a model of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import keras
import torch
import torch.distributed as dist
import torch.utils.data

from ..replaced_methods import replaced
from . import batches, rank_values
from .base import Method, ParallelTrainingError, Strategy
from .optimizer_calls import replaced_apply
from .torch_gradients import BACKENDS, GradientAverage, device_type

_MEET_SECONDS = 60
"""Longest time for the ranks to connect; they have met before."""

_KERAS_AVERAGES = "_initialize_ddp"
"""Method of the trainer of a Keras that can average gradients itself."""


class TorchProcesses(Strategy):
    """`torch.distributed` under Keras's own `fit`: the gradients of each step are averaged.

    Keras from 3.16 can do it itself; see `_leave_averaging_to_us`.
    """

    _device = "cpu"

    @property
    def on_cpu(self) -> bool:
        """Whether the ranks train on CPUs."""
        return self._device == "cpu"

    def enter(self) -> None:
        """Connect PyTorch with the other ranks."""
        ranks = self.ranks
        if ranks is None or not dist.is_available():
            raise ParallelTrainingError("this PyTorch is built without torch.distributed")
        self._device = device_type(has_gpus=bool(ranks.gpus))
        first = ranks.members[0]
        if first.host == "127.0.0.1":  # gloo would use the address of the machine's name
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        _leave_averaging_to_us()
        try:
            store = dist.TCPStore(  # type: ignore[attr-defined]  # not in its stubs
                first.host,
                first.ports[1],
                ranks.world_size,
                ranks.rank == 0,
                timeout=timedelta(seconds=_MEET_SECONDS),
                master_listen_fd=_listening(first.host, first.ports[1]) if not ranks.rank else None,
            )
            ranks.release_port()
            dist.init_process_group(
                BACKENDS[self._device],
                store=store,
                rank=ranks.rank,
                world_size=ranks.world_size,
            )
        except (OSError, RuntimeError) as error:
            raise ParallelTrainingError(f"PyTorch cannot connect the ranks: {error}") from error

    def fit(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        """Train with Keras's own `fit` on this rank's part of the batches."""
        assert self.ranks is not None
        average = GradientAverage(self._device)
        callbacks = [
            _Together(self.ranks),
            *arguments["callbacks"],
            _Stops(self.ranks, average),
        ]
        local = batches.local_arguments(
            {**arguments, "callbacks": callbacks},
            permutation=_permutation,
            rank=self.rank,
            world_size=self.world_size,
        )
        averaged = torch.compiler.disable(lambda _, gradients: average.average(gradients))
        with replaced_apply(model.optimizer, averaged), self._watched(model, average):
            return original(model, **local)

    @contextlib.contextmanager
    def _watched(self, model: Any, average: GradientAverage) -> Iterator[None]:
        """Count the samples of each step, and let the metrics of an epoch be those of all ranks.

        A step's own metrics stay those of its rank: it need not wait for the others.
        """
        ranks = self.ranks
        assert ranks is not None
        train_step, test_step, result = model.train_step, model.test_step, model.get_metrics_result
        within = [False]

        def in_step(step: Callable[[Any], Any], data: Any) -> Any:
            within[0] = True
            try:
                return step(data)
            finally:
                within[0] = False

        def begin(data: Any) -> None:
            average.begin_step(batches.size_of(data) or 0)

        begin = torch.compiler.disable(begin)

        @functools.wraps(train_step)
        def counted(data: Any) -> Any:
            begin(data)
            return in_step(train_step, data)

        @functools.wraps(test_step)
        def tested(data: Any) -> Any:
            return in_step(test_step, data)

        @functools.wraps(result)
        def of_all_ranks() -> Any:
            if within[0]:
                return result()
            with rank_values.global_metrics(ranks, model):
                return result()

        watched = {"train_step": counted, "test_step": tested, "get_metrics_result": of_all_ranks}
        with replaced(model, watched):
            yield

    def copies(self, model: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the weights of this process."""
        yield {
            variable.path: keras.ops.convert_to_numpy(variable)
            for variable in model.trainable_variables
        }

    def disconnect(self) -> None:
        """Disconnect from the other ranks."""
        super().disconnect()
        dist.destroy_process_group()


def _leave_averaging_to_us() -> None:
    """Switch off what Keras from 3.16 does as soon as there is a process group.

    Its `DistributedDataParallel` counts the gradients of all ranks alike, also where a batch does
    not divide, and its metrics wait for all ranks in each step. Keras has no switch for it, so this
    replaces two methods of its trainer; the process trains one trial only.
    """
    for kind in keras.Model.__mro__:
        if _KERAS_AVERAGES in vars(kind):
            setattr(kind, _KERAS_AVERAGES, lambda _model: None)
            if "get_metrics_result" in vars(kind):
                del kind.get_metrics_result  # the base class has the one of this process


def _listening(host: str, port: int) -> int:
    """Return a socket that listens there only; PyTorch's own would listen on all addresses."""
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(1024)
    return listener.detach()


def _permutation(count: int) -> Any:
    """Return a permutation, drawn as Keras does on PyTorch."""
    return list(torch.utils.data.RandomSampler(range(count)))


def _broadcast(model: Any) -> None:
    """Give all ranks the weights, and the optimizer's variables, of rank 0."""
    optimizer = [] if model.optimizer is None else model.optimizer.variables
    for each in (*model.trainable_variables, *optimizer):
        dist.broadcast(each.value.detach(), 0)


class _Together(keras.callbacks.Callback):
    """Gives all ranks equal weights, statistics and logs; the first in its list."""

    def __init__(self, ranks: Any) -> None:
        super().__init__()
        self._ranks = ranks
        self._has_begun = False
        self._has_trained = False

    def __deepcopy__(self, _copies: Any) -> Any:
        return self

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        if not self._has_begun and self.model.built:
            _broadcast(self.model)
            rank_values.draw_differently(self._ranks, self.model)
        self._has_begun = self._has_trained = True

    def on_test_begin(self, *_: Any, **__: Any) -> None:
        self._average()

    def on_epoch_end(self, _epoch: int, logs: Any) -> None:
        self._average()
        logs.update(rank_values.mean_logs(self._ranks, logs))

    def _average(self) -> None:
        if self._has_trained:
            self._has_trained = False
            rank_values.average_statistics(self._ranks, self.model)


class _Stops(keras.callbacks.Callback):
    """Lets all ranks stop where a callback of one of them does; the last in its list."""

    def __init__(self, ranks: Any, average: GradientAverage) -> None:
        super().__init__()
        self._ranks = ranks
        self._average = average

    def __deepcopy__(self, _copies: Any) -> Any:
        return self

    def on_train_batch_end(self, *_: Any, **__: Any) -> None:
        # The others are in the next step already, so this rank takes part in it.
        self._average.wants_stop |= bool(self.model.stop_training)
        self.model.stop_training = self._average.stops()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        own = bool(self.model.stop_training) or self._average.wants_stop
        self.model.stop_training = rank_values.any_true(self._ranks, own=own)

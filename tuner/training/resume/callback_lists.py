"""Lets a `Resumption` act before and after all callbacks of a Keras training."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from .resumption import Resumption


@contextlib.contextmanager
def extended_callback_lists() -> Iterator[None]:
    """Let Keras's `CallbackList` call the `resumption` of the callback that has one.

    A checkpoint is taken after all callbacks have seen the end of an epoch, and it holds their
    states. A callback cannot do that: it is called at its own place in the list, and it does not
    see the others. Keras has no other hook, so this replaces methods of the class, and puts them
    back at the end. The process trains one trial only. A list without our callback is not
    affected.
    """
    import keras

    cls: Any = keras.callbacks.CallbackList
    originals = {name: getattr(cls, name) for name in _METHODS}
    for name, make in _METHODS.items():
        setattr(cls, name, functools.wraps(originals[name])(make(originals[name])))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(cls, name, original)


def _resumption_of(callback_list: Any) -> Resumption | None:
    found = (getattr(each, "resumption", None) for each in callback_list.callbacks)
    return next((each for each in found if isinstance(each, Resumption)), None)


def _on_train_begin(original: Any) -> Any:
    def method(self: Any, logs: Any = None) -> None:
        resumption = _resumption_of(self)
        if resumption is not None:
            resumption.before_fit(self.callbacks)
        original(self, logs)
        if resumption is not None:
            resumption.fit_begins(self.model, self.callbacks, self.params)

    return method


def _on_epoch_begin(original: Any) -> Any:
    def method(self: Any, epoch: int, logs: Any = None) -> None:
        if (resumption := _resumption_of(self)) is not None:
            resumption.epoch_begins(epoch)
        original(self, epoch, logs)

    return method


def _on_epoch_end(original: Any) -> Any:
    def method(self: Any, epoch: int, logs: Any = None) -> None:
        original(self, epoch, logs)
        if (resumption := _resumption_of(self)) is not None:
            resumption.epoch_ends(epoch)

    return method


def _on_train_batch_end(original: Any) -> Any:
    def method(self: Any, batch: int, logs: Any = None) -> None:
        original(self, batch, logs)
        if (resumption := _resumption_of(self)) is not None:
            resumption.batch_ends()

    return method


def _on_test_batch_end(original: Any) -> Any:
    def method(self: Any, batch: int, logs: Any = None) -> None:
        original(self, batch, logs)
        if (resumption := _resumption_of(self)) is not None:
            resumption.test_batch_ends()

    return method


_METHODS = {
    "on_train_begin": _on_train_begin,
    "on_epoch_begin": _on_epoch_begin,
    "on_epoch_end": _on_epoch_end,
    "on_train_batch_end": _on_train_batch_end,
    "on_test_batch_end": _on_test_batch_end,
}

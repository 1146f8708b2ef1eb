"""Lets a `Resumption` act before and after all callbacks of a Keras training."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from .resumption import Resumption


@contextlib.contextmanager
def extended_callback_lists(resumption: Resumption) -> Iterator[None]:
    """Let Keras's `CallbackList` call the resumption, if one of its callbacks has it.

    A checkpoint is taken after all callbacks have seen the end of an epoch, and it holds their
    states. A callback cannot do that: it is called at its own place in the list, and it does not
    see the others. Keras has no other hook, so this replaces methods of the class, and puts them
    back at the end. The process trains one trial only. A list without our callback is not
    affected, except that the resumption is told when a model is evaluated.
    """
    import keras

    cls: Any = keras.callbacks.CallbackList
    originals = {name: getattr(cls, name) for name in _HOOKS}
    for name, original in originals.items():
        setattr(cls, name, _extended(original, resumption, *_HOOKS[name]))
    try:
        yield
    finally:
        for name, original in originals.items():
            setattr(cls, name, original)


def _extended(
    original: Any, resumption: Resumption, before: _Hook | None, after: _Hook | None
) -> Any:
    """Return a method of `CallbackList` with what a resumption does before and after it."""

    @functools.wraps(original)
    def method(self: Any, *given: Any, **named: Any) -> None:
        has_it = before is _evaluates or _has(self, resumption)
        if has_it and before is not None:
            before(resumption, self, *given, **named)
        original(self, *given, **named)
        if has_it and after is not None:
            after(resumption, self, *given, **named)

    return method


def _has(callback_list: Any, resumption: Resumption) -> bool:
    found = (getattr(each, "resumption", None) for each in callback_list.callbacks)
    return any(each is resumption for each in found)


def _before_fit(resumption: Resumption, callback_list: Any, *_: Any, **__: Any) -> None:
    resumption.before_fit(callback_list.model, callback_list.callbacks)


def _fit_begins(resumption: Resumption, callback_list: Any, *_: Any, **__: Any) -> None:
    resumption.fit_begins(callback_list.model, callback_list.callbacks, callback_list.params)


def _epoch_begins(resumption: Resumption, _: Any, epoch: int, *__: Any, **___: Any) -> None:
    resumption.epoch_begins(epoch)


def _epoch_ends(resumption: Resumption, _: Any, epoch: int, *__: Any, **___: Any) -> None:
    resumption.epoch_ends(epoch)


def _test_ends(resumption: Resumption, callback_list: Any, *_: Any, **__: Any) -> None:
    resumption.test_ends(callback_list.model, callback_list.callbacks)


def _evaluates(resumption: Resumption, *_: Any, **__: Any) -> None:
    resumption.is_evaluated()


def _fit_ends(resumption: Resumption, *_: Any, **__: Any) -> None:
    resumption.fit_ends()


_Hook = Callable[..., None]
_HOOKS: dict[str, tuple[_Hook | None, _Hook | None]] = {
    "on_train_begin": (_before_fit, _fit_begins),
    "on_train_end": (None, _fit_ends),
    "on_epoch_begin": (_epoch_begins, None),
    "on_epoch_end": (None, _epoch_ends),
    "on_test_begin": (_evaluates, None),
    "on_test_end": (_test_ends, None),
    "on_predict_begin": (_evaluates, None),
    "on_train_batch_end": (None, lambda resumption, *_, **__: resumption.batch_ends()),
    "on_test_batch_end": (None, lambda resumption, *_, **__: resumption.test_batch_ends()),
}
"""What a resumption does before and after each of these methods."""

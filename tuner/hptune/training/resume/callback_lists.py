"""Lets a `Resumption` act before and after all callbacks of a Keras training."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..replaced_methods import replaced
from .resumption import Resumption


@contextlib.contextmanager
def extended_callback_lists(resumption: Resumption) -> Iterator[None]:
    """Let Keras's `CallbackList` call the resumption, if one of its callbacks has it.

    A checkpoint is taken after all callbacks have seen the end of an epoch, and it holds their
    states. A callback cannot do that: it is called at its own place in the list, and it does not
    see the others. A list without our callback is not affected, except that the resumption is told
    when a model is evaluated.
    """
    import keras

    lists, model = keras.callbacks.CallbackList, keras.Model
    of_lists = {name: _extended(getattr(lists, name), resumption, *_HOOKS[name]) for name in _HOOKS}
    of_batches = {
        name: _extended(getattr(model, name), resumption, _evaluates) for name in _BATCH_METHODS
    }
    with replaced(lists, of_lists), replaced(model, of_batches):
        yield


def _extended(
    original: Any, resumption: Resumption, before: _Hook | None, after: _Hook | None = None
) -> Any:
    """Return a method with what a resumption does before and after it."""

    @functools.wraps(original)
    def method(self: Any, *given: Any, **named: Any) -> Any:
        has_it = before is _evaluates or _has(self, resumption)
        if has_it and before is not None:
            before(resumption, self, *given, **named)
        result = original(self, *given, **named)
        if has_it and after is not None:
            after(resumption, self, *given, **named)
        return result

    return method


def _has(callback_list: Any, resumption: Resumption) -> bool:
    found = (getattr(callback, "resumption", None) for callback in callback_list.callbacks)
    return any(each is resumption for each in found)


_Hook = Callable[..., None]


def _evaluates(resumption: Resumption, *_: Any, **__: Any) -> None:
    resumption.is_evaluated()


# What a resumption does before and after each of these methods. `r` is the resumption, and `c` the
# list; Keras passes the logs in several ways.
_HOOKS: dict[str, tuple[_Hook | None, _Hook | None]] = {
    "on_train_begin": (
        lambda r, c, *_, **__: r.before_fit(c.callbacks),
        lambda r, c, *_, **__: r.fit_begins(c.model, c.callbacks, c.params),
    ),
    "on_train_end": (None, lambda r, c, *_, **__: r.fit_ends(c.model)),
    "on_epoch_begin": (lambda r, _, epoch, *__, **___: r.epoch_begins(epoch), None),
    "on_epoch_end": (None, lambda r, _, epoch, *__, **___: r.epoch_ends(epoch)),
    "on_test_begin": (_evaluates, None),
    "on_test_end": (lambda r, c, *_, **__: r.test_ends(c.model, c.callbacks), None),
    "on_predict_begin": (_evaluates, None),
    "on_train_batch_end": (None, lambda r, *_, **__: r.batch_ends()),
    "on_test_batch_end": (None, lambda r, *_, **__: r.test_batch_ends()),
}
_BATCH_METHODS = ("train_on_batch", "test_on_batch", "predict_on_batch")
"""Methods of a model that use its weights and call no callback."""

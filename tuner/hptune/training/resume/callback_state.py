"""The states of a training's callbacks, for a checkpoint.

Keras's own callbacks keep their state in plain attributes (`EarlyStopping.wait`, for example).
Those that have changed since the training began are the state. The others are what the user
configured, and stay as the user's code sets them now. A callback of the user's takes part if it has
two methods: `get_state()`, which returns something that can be pickled, and `set_state(state)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_PLAIN = (type(None), bool, int, float, str, np.generic)
_NEVER = {
    "_model",
    "params",
    "min_delta",  # MonitorCallback gives it its sign when it first compares
}


def with_state(callbacks: Iterable[Any]) -> list[Any]:
    """Return the callbacks that have a state to keep, in their order."""
    import keras

    # The first has no state, and the second continues its file if it is set to append.
    others = (keras.callbacks.ProgbarLogger, keras.callbacks.CSVLogger)
    own = tuple(
        kind
        for kind in vars(keras.callbacks).values()
        if isinstance(kind, type) and kind not in (keras.callbacks.Callback, *others)
    )
    return [
        callback
        for callback in callbacks
        if _has_own_state(callback)
        or (isinstance(callback, own) and not isinstance(callback, others))
    ]


def state_of(callback: Any, at_begin: Mapping[str, Any]) -> Any:
    """Return the state of a callback.

    Args:
        callback: One of those `with_state`.
        at_begin: Its `plain_attributes` when the training began.
    """
    if _has_own_state(callback):
        return callback.get_state()
    now = plain_attributes(callback)
    return {
        name: value
        for name, value in now.items()
        if name not in at_begin or not _same(value, at_begin[name])
    }


def result_of(callback: Any, at_begin: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a callback has of a `fit` that is over, for code that reads it afterwards.

    This is its state without arrays: what they are for, such as the weights of the best epoch, is
    done. A callback with `get_state` has none.

    Args:
        callback: One of those `with_state`.
        at_begin: Its `plain_attributes` when that `fit` began.
    """
    if _has_own_state(callback):
        return {}
    state = state_of(callback, at_begin)
    return {name: value for name, value in state.items() if not _has_arrays(value)}


def restore(callback: Any, state: Any) -> None:
    """Give the callback a state that `state_of` returned."""
    if _has_own_state(callback):
        callback.set_state(state)
    else:
        vars(callback).update(state)


def plain_attributes(callback: Any) -> dict[str, Any]:
    """Return copies of the attributes that are plain values, arrays, or lists and dicts of them."""
    found = {}
    for name, value in vars(callback).items():
        if name not in _NEVER and _is_plain(value):
            found[name] = _copied(value)
    return found


def _has_own_state(callback: Any) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("get_state", "set_state"))


def _has_arrays(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_has_arrays, value))
    return isinstance(value, np.ndarray)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return isinstance(value, (*_PLAIN, np.ndarray))


def _copied(value: Any) -> Any:
    # Lists and dicts grow; arrays are replaced, never written to.
    if isinstance(value, list | tuple):
        return [_copied(each) for each in value]
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return value


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, np.ndarray):
        return one is other
    return bool(one == other) or one is other

"""What the callbacks of a Keras training have in mind, to be written down and given back.

Keras's own callbacks keep what they know in plain attributes (`EarlyStopping.wait`, say). Those
that have changed since the training began are the state; the others are what the user configured,
and stay as the user has them now. A callback of the user's takes part by two methods,
`get_state()`, which returns something that can be pickled, and `set_state(state)`.
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


def taking_part(callbacks: Iterable[Any]) -> list[Any]:
    """The callbacks that have a state worth keeping, in their order."""
    import keras

    # The one shows, and the other continues a file, which it does if it is told to append.
    aside = (keras.callbacks.ProgbarLogger, keras.callbacks.CSVLogger)
    own = tuple(
        kind
        for kind in vars(keras.callbacks).values()
        if isinstance(kind, type) and kind not in (keras.callbacks.Callback, *aside)
    )
    return [
        each
        for each in callbacks
        if _speaks(each) or (isinstance(each, own) and not isinstance(each, aside))
    ]


def state_of(callback: Any, at_begin: Mapping[str, Any]) -> Any:
    """What the callback has in mind.

    Args:
        callback: One of those taking part.
        at_begin: Its `plain_attributes` when the training began.
    """
    if _speaks(callback):
        return callback.get_state()
    now = plain_attributes(callback)
    return {
        name: value
        for name, value in now.items()
        if name not in at_begin or not _same(value, at_begin[name])
    }


def give_back(callback: Any, state: Any) -> None:
    """Give the callback what `state_of` told."""
    if _speaks(callback):
        callback.set_state(state)
    else:
        vars(callback).update(state)


def plain_attributes(callback: Any) -> dict[str, Any]:
    """The attributes that are plain values, arrays, or lists and dicts of them; copied."""
    found = {}
    for name, value in vars(callback).items():
        if name not in _NEVER and _is_plain(value):
            found[name] = _copied(value)
    return found


def _speaks(callback: Any) -> bool:
    return all(callable(getattr(callback, name, None)) for name in ("get_state", "set_state"))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    return isinstance(value, (*_PLAIN, np.ndarray))


def _copied(value: Any) -> Any:
    """Lists and dicts grow; arrays are replaced and never written into."""
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

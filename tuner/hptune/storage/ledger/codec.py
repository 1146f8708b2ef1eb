"""Encoding of events, and of the values in them, as strict JSON without loss.

`1`, `1.0` and `True` stay different. JSON has no NaN, no infinities and no tuples,
so a payload with such values is escaped as a whole::

    {"at": 3.5, "reason": "Ctrl-C"}                     the usual case
    {"$escaped": {"at": {"$float": "nan"}, …}}          the unusual one

In an escaped payload, `{"$float": "nan"}` is a float, `{"$tuple": […]}` a tuple, and an object with
a key that begins with `$` is `{"$dict": [[key, value], …]}`.

A ledger may be damaged, edited, or somebody else's. So what is read has the types that its class
declares, or is refused here.
"""

from __future__ import annotations

import functools
import json
import math
import operator
import typing
from collections.abc import Callable, Mapping
from typing import Any

import cattrs

from ...core.attempt import AttemptId
from ...core.clock import TIMES_END
from ...core.messages import Event
from ...core.trial import ParamValue
from ...errors import StudyError

_EVENT_TYPES: Mapping[str, type[Event]] = {kind.__name__: kind for kind in typing.get_args(Event)}
_ESCAPED = "$escaped"


def encode_event(event: Event) -> tuple[str, str]:
    """Return an event's kind and its payload.

    Raises:
        TypeError: It holds a value that is no plain data, such as a numpy scalar.
    """
    return type(event).__name__, dumps(_converter().unstructure(event))


def decode_event(kind: str, payload: str) -> Event:
    """Return the event that `encode_event` was given.

    Raises:
        StudyError: This version of hptune has no such event, or the event has other contents.
    """
    if kind not in _EVENT_TYPES:
        raise StudyError(
            f"the study holds an event of the kind {kind!r}, which this version of hptune does "
            "not have. Use the version that ran the study"
        )
    try:
        event: Event = structured(loads(payload), _EVENT_TYPES[kind])
        return event
    except Exception as err:  # wrong types, missing keys, brackets without end, …
        raise StudyError(
            f"the study holds an event of the kind {kind!r} that cannot be read: "
            f"{payload[:200]!r}. "
            "Use the version of hptune that ran the study; if it is this one, study.db is damaged"
        ) from err


def structured(value: Any, kind: Any) -> Any:
    """Return plain data as a value of a class, or of a type such as `Mapping[str, float]`.

    Raises:
        Exception: The data lack a field, or a value has another type than its field declares.
    """
    return _converter().structure(value, kind)


def plain(value: object) -> Any:
    """Return the plain data of a value, of which `structured` makes it again."""
    return _converter().unstructure(value)


def checked_time(at: float) -> float:
    """Return a time, in seconds since the epoch, that has a date.

    Raises:
        ValueError: It has none.
    """
    if not 0.0 <= at < TIMES_END:
        raise ValueError(f"{at} is no time")
    return at


def dumps(value: object) -> str:
    """Return plain data as strict JSON.

    Plain data is None, bool, int, float, str, and lists, tuples and mappings by str of these.

    >>> dumps({"units": 1, "rate": 1.0, "bias": True})
    '{"units":1,"rate":1.0,"bias":true}'
    >>> dumps([float("nan")])
    '{"$escaped":[{"$float":"nan"}]}'

    Raises:
        TypeError: The value is no plain data.
    """
    if _needs_escape(value):
        value = {_ESCAPED: _escape(value)}
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def loads(text: str) -> Any:
    """Return the value that `dumps` was given."""
    value = json.loads(text)
    if isinstance(value, dict) and _ESCAPED in value:
        return _unescape(value[_ESCAPED])
    return value


def _needs_escape(value: object) -> bool:
    match value:
        case str() | int() | None:
            return False
        case float():
            return not math.isfinite(value)
        case list():
            return any(_needs_escape(item) for item in value)
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"the key {key!r} cannot be stored: allowed are str")
            return any(key.startswith("$") for key in value) or _needs_escape([*value.values()])
    return isinstance(value, tuple)


def _escape(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, tuple):
        return {"$tuple": [_escape(item) for item in value]}
    if isinstance(value, list):
        return [_escape(item) for item in value]
    if isinstance(value, dict):
        if any(key.startswith("$") for key in value):
            return {"$dict": [[key, _escape(item)] for key, item in value.items()]}
        return {key: _escape(item) for key, item in value.items()}
    return value


def _unescape(value: Any) -> Any:
    match value:
        case list():
            return [_unescape(item) for item in value]
        case {"$float": str(text)}:
            return float(text)
        case {"$tuple": list(items)}:
            return tuple(_unescape(item) for item in items)
        case {"$dict": list(pairs)}:
            return {key: _unescape(item) for key, item in pairs}
        case dict():
            return {key: _unescape(item) for key, item in value.items()}
    return value


@functools.cache
def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(detailed_validation=False)
    # Fields declared as tuples become tuples again without an escape. Tuples inside free-form
    # values need one, which `dumps` adds.
    converter.register_unstructure_hook_factory(_is_tuple_field, _tuple_field_encoder)
    converter.register_unstructure_hook(AttemptId, lambda name: [name.trial, name.number])
    converter.register_structure_hook(
        AttemptId, lambda value, _: AttemptId(*converter.structure(value, tuple[int, ...]))
    )
    for kind in _PRIMITIVES:
        converter.register_structure_hook(kind, functools.partial(_primitive, kind))
    for free_form, hook in ((ParamValue, _param), (object, lambda value, _: value)):
        same = functools.partial(operator.eq, free_form)
        converter.register_structure_hook_func(same, hook)
        converter.register_unstructure_hook_func(same, lambda value: value)
    # The keys of JSON's objects are texts.
    by_step = functools.partial(operator.eq, Mapping[int, tuple[float, ...]])
    converter.register_unstructure_hook_func(by_step, lambda of: [[s, [*of[s]]] for s in of])
    converter.register_structure_hook_func(
        by_step, lambda pairs, _: dict(structured(pairs, list[tuple[int, tuple[float, ...]]]))
    )
    return converter


_PRIMITIVES: Mapping[type, Any] = {
    bool: (bool,),
    int: (int,),
    float: (float, int),
    str: (str,),
}
"""What a field of these types, or of an enum of theirs, may be in JSON."""


def _primitive(kind: type, value: Any, declared: Any) -> Any:
    if not isinstance(value, _PRIMITIVES[kind]) or isinstance(value, bool) is not (kind is bool):
        raise TypeError(f"{value!r:.100} is no {kind.__name__}")
    if kind is int:
        float(value)  # raises an error if it has too many digits
    return declared(value)


def _param(value: Any, _: Any) -> Any:
    if isinstance(value, int | float):
        float(value)  # raises an error if it has too many digits
    elif not isinstance(value, str | None):
        raise TypeError(f"{value!r:.100} is no hyperparameter's value")
    return value


def _is_tuple_field(declared: Any) -> bool:
    return typing.get_origin(declared) is tuple


def _tuple_field_encoder(declared: Any, converter: cattrs.Converter) -> Callable[[Any], list[Any]]:
    encode = converter.get_unstructure_hook(typing.get_args(declared)[0])
    return lambda items: [encode(item) for item in items]

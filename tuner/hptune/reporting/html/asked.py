"""Checks of what a browser sends: a value of the wrong type is a `UsageError`, as are bad options.

What is missing is empty; a number that is missing or null is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ... import text
from ...core.user_requests import UserAction
from ...errors import UsageError

_MOST_TRIALS = 2**31
_SHOWN_CHARACTERS = 60
_PLAIN = (str, int, float, bool, type(None))

Asked = Mapping[str, Any]
"""The JSON object of a request."""


def names_in(asked: Asked, key: str) -> set[str]:
    """Return a list of names as a set."""
    found = asked.get(key, ())
    is_right = isinstance(found, list | tuple) and _are_all(str, found)
    _check(asked, key, is_right=is_right, allowed="a list of texts")
    return set(found)


def texts_in(asked: Asked, key: str) -> dict[str, str]:
    """Return an object of texts."""
    found = asked.get(key, {})
    is_right = isinstance(found, dict) and _are_all(str, found.values())
    _check(asked, key, is_right=is_right, allowed="an object of texts")
    return dict(found)


def values_in(asked: Asked, key: str) -> dict[str, str | float | bool | None]:
    """Return an object of plain values."""
    found = asked.get(key, {})
    is_right = isinstance(found, dict) and _are_all(_PLAIN, found.values())
    _check(asked, key, is_right=is_right, allowed="an object of texts, numbers and booleans")
    return dict(found)


def whole_in(asked: Asked, key: str, *, most: float = math.inf) -> int | None:
    """Return a whole number from 0 on."""
    found = asked.get(key)
    is_whole = isinstance(found, int) and not isinstance(found, bool) and 0 <= found <= most
    _check(asked, key, is_right=found is None or is_whole, allowed="a whole number from 0 on")
    return found


def trial_in(asked: Asked) -> int | None:
    """Return the number of a trial."""
    return whole_in(asked, "trial", most=_MOST_TRIALS)


def action_in(asked: Asked) -> UserAction:
    """Return what the user asks for, which must be there."""
    found: Any = asked.get("action")
    _check(asked, "action", is_right=found in [*UserAction], allowed=", ".join(UserAction))
    return UserAction(found)


def _are_all(kinds: type | tuple[type, ...], values: Iterable[object]) -> bool:
    return all(isinstance(each, kinds) for each in values)


def _check(asked: Asked, key: str, *, is_right: bool, allowed: str) -> None:
    if not is_right:
        given = text.shorten(repr(asked.get(key)), _SHOWN_CHARACTERS)
        raise UsageError(f"{key} is {given} in the request; allowed is {allowed}")

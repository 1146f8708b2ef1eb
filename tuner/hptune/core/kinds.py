"""Kinds of values that settings and options take: how each is read, from text or from Python."""

from __future__ import annotations

import contextlib
import json
import math
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ..errors import UsageError

_Value = TypeVar("_Value")


def _shown(value: Any) -> str:
    return "" if value is None else str(value)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of value.

    Attributes:
        metavar: Placeholder of the value in a command's help.
        allowed: The allowed values, as words that follow "allowed are".
        read: Returns the value that a text means, or checks one given in Python. It accepts what
            it returned before. Raises ValueError for anything else; if the error has no message,
            `allowed` says what is wrong.
        show: Returns a value as a user would write it; empty for "nothing".
        is_repeated: Whether the option may be given several times; in Python it takes a list.
        is_flag: Whether the option has no value; in Python it takes True or False.
    """

    metavar: str
    allowed: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str] = _shown
    is_repeated: bool = False
    is_flag: bool = False


def flag() -> Kind:
    """Return the kind of options without a value."""

    def read(value: object) -> bool:
        if isinstance(value, bool):
            return value
        raise ValueError

    return Kind("", "True and False", read, lambda _: "", is_flag=True)


def whole_number(least: int, most: float = math.inf) -> Kind:
    """Return the kind of whole numbers from `least` to `most`."""

    def read(value: object) -> int:
        number = as_number(value)
        if isinstance(number, int) and number >= least:
            if number > most:
                raise ValueError(f"{number} is given, and the largest is {most}")
            return number
        raise ValueError

    return Kind("N", f"whole numbers from {least} on", read)


def as_number(value: object) -> object:
    """Return the number that a value is or means; a truth value is none, although Python counts.

    A whole one is an int, however it is written, such as 4e9; also one of NumPy's.
    """
    if isinstance(value, bool):
        return None
    kinds: list[Callable[[Any], object]] = [operator.index, int, float]
    for kind in kinds[1:] if isinstance(value, str) else kinds[:1]:
        with contextlib.suppress(TypeError, ValueError):
            value = kind(value)
            break
    return int(value) if isinstance(value, float) and value.is_integer() else value


def choice(*words: str, make: Callable[[str], Any] = str) -> Kind:
    """Return the kind of some words, made into values by `make`."""

    def read(value: object) -> Any:
        if isinstance(value, str) and value in words:
            return make(value)
        raise ValueError

    return Kind(f"[{'|'.join(words)}]", enumerated(*words), read)


def plain() -> Kind:
    """Return the kind of texts, numbers, truth values, None, and lists and dicts of these."""

    def read(value: object) -> Any:
        try:
            return json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError):
            raise ValueError from None  # without a message: `allowed` says what is wrong

    return Kind("VALUE", "texts, numbers, True, False, None, and lists and dicts of these", read)


def named_once(pairs: Iterable[tuple[str, _Value]], given_to: str) -> dict[str, _Value]:
    """Return pairs of names and values as a mapping.

    Raises:
        UsageError: A name is given twice to the option or command `given_to`.
    """
    found: dict[str, _Value] = {}
    for name, value in pairs:
        if name in found:
            raise UsageError(f"{given_to} gives {name} twice; give it once")
        found[name] = value
    return found


def enumerated(*words: str) -> str:
    """Return words with commas and a last "and" between them.

    >>> enumerated("asha", "hyperband", "median")
    'asha, hyperband and median'
    """
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))

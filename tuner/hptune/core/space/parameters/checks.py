"""Checks of declarations. Every error says the parameter, the value found, and what to do."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any, TypeGuard

from ....errors import SpaceError
from ...trial import ParamValue
from .scales import Scale

LARGEST_INTEGER = 2**53
"""Limit for integers: beyond it, floats and many JSON readers cannot distinguish them."""

MOST_MULTIPLIED_STEPS = 1_000_000
"""Limit for the steps of a log scale, which are stored in a tuple."""

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def set_fields(parameter: object, **fields: object) -> None:
    """Set fields of a frozen parameter; for its `__post_init__` only."""
    for name, value in fields.items():
        object.__setattr__(parameter, name, value)


def set_default(parameter: Any, default: ParamValue) -> None:
    """Set the default of a parameter, and whether the user gave it."""
    if parameter.has_default is None:
        set_fields(parameter, has_default=parameter.default is not None)
    set_fields(parameter, default=default)


def plain(value: object) -> object:
    """Return a NumPy scalar, or a member of an enum of texts or numbers, as Python's own value.

    Any other value is returned itself.
    """
    kind = getattr(sys.modules.get("numpy"), "generic", ())  # without NumPy, there are none
    match value.item() if isinstance(value, kind) else value:
        case bool() as truth:
            return truth
        case str() as text:
            return str.__str__(text)  # `str(text)` may be its name
        case int() as whole:
            return int.__int__(whole)
        case float() as number:
            return float.__float__(number)
        case other:
            return other


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite int or float; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -sys.float_info.max <= value <= sys.float_info.max


def finite_float(name: str, what: str, value: object) -> float:
    """Return a bound, step or default as a float.

    Raises:
        SpaceError: The value is not a finite number.
    """
    number = plain(value)
    if not is_number(number):
        raise SpaceError(f"{name}: {what} is {number!r}; give a finite number")
    return float(number)


def whole_number(name: str, what: str, value: object) -> int:
    """Return a bound, step or default as an int; 3.0 becomes 3.

    Raises:
        SpaceError: The value is not a whole number, or is beyond `LARGEST_INTEGER`.
    """
    number = plain(value)
    if not is_number(number) or number != int(number):
        raise SpaceError(f"{name}: {what} is {value!r}; give a whole number")
    whole = int(number)
    if abs(whole) > LARGEST_INTEGER:
        raise SpaceError(
            f"{name}: {what} is {whole}; allowed are whole numbers from -2**53 to 2**53. "
            "Narrow the range, or declare the number as Fixed"
        )
    return int(whole)


def check_range(name: str, low: float, high: float, *, step: float | None, scale: Scale) -> None:
    """Check that bounds, step and scale of a numerical parameter fit together.

    Raises:
        SpaceError: They do not.
    """
    if low > high:
        raise SpaceError(
            f"{name}: the lower bound {low} is above the upper bound {high}; swap them "
            "(the order is: name, min_value, max_value, step)"
        )
    if scale is not Scale.LINEAR and low <= 0:
        raise SpaceError(
            f"{name}: the lower bound is {low} on a {scale} scale; it must be above 0. "
            "Raise it, or use a linear scale"
        )
    width = high - low if scale is Scale.LINEAR else high / low
    if not math.isfinite(width):
        raise SpaceError(
            f"{name}: the range {low}..{high} is too wide for floating point; narrow it"
        )
    if step is None:
        return
    least = 0 if scale is Scale.LINEAR else 1
    if step <= least:
        raise SpaceError(f"{name}: the step is {step}; on a {scale} scale it must be above {least}")
    if scale is Scale.LINEAR:
        too_fine = low + step == low or high - step == high or width / step > LARGEST_INTEGER * 2
    else:
        too_fine = math.log(width) / math.log(step) > MOST_MULTIPLIED_STEPS
    if too_fine:
        raise SpaceError(
            f"{name}: the step {step} is too fine for the range {low}..{high}; "
            "take a larger step, or none"
        )


def set_range(
    parameter: Any, *, low: float, high: float, step: float | None, default: float, values: object
) -> None:
    """Set the range of a number and its default.

    Raises:
        SpaceError: The default does not lie within the bounds.
    """
    set_fields(parameter, low=low, high=high, step=step, values=values)
    set_default(parameter, default)
    if not low <= default <= high:
        raise SpaceError(
            f"{parameter.name}: the default {default} lies outside the bounds {low}..{high}; "
            "move the default or widen the bounds"
        )


def check_text(name: str, text: str) -> None:
    """Check that a name or a value can be written to a file.

    Raises:
        SpaceError: It holds a half of a character (a lone surrogate).
    """
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise SpaceError(f"{name!a}: {text!a} is not valid text; give another one")


def scalar(name: str, value: object, *, may_be_none: bool = False) -> ParamValue:
    """Return a value if a hyperparameter can have it: a finite number, a text or a boolean.

    Args:
        name: The hyperparameter.
        value: The value.
        may_be_none: Whether it may be None, as among choices.

    Raises:
        SpaceError: A hyperparameter cannot have this value.
    """
    value = plain(value)
    if isinstance(value, str):
        check_text(name, value)
    if (value is None and may_be_none) or isinstance(value, bool | str) or is_number(value):
        return value
    way = f"give a finite number, a text, True{', False or None' if may_be_none else ' or False'}"
    if not isinstance(value, float | int):  # a tuple or a function, which Python finds by a text
        way += f', and look up what it stands for: {{"a": …}}[hp.Choice({name!r}, ["a", "b"])]'
    raise SpaceError(f"{name}: {value!r:.100} is not allowed as a value; {way}")


def position(value: ParamValue, values: Sequence[ParamValue]) -> int | None:
    """Return the index of a value, by its type too; None if absent. An int matches the float.

    >>> position(1, (0.5, 1.0)), position(True, (0, 1))
    (1, None)
    """
    if type(value) is int and is_number(value) and any(type(each) is float for each in values):
        value = float(value)
    alike = (i for i, each in enumerate(values) if type(each) is type(value) and each == value)
    return next(alike, None)


def number_in(text: str) -> int | float | str:
    """Return the number that a text stands for, an int if written as one; else the text.

    >>> number_in("64"), number_in("1e-3"), number_in("many")
    (64, 0.001, 'many')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def value_in(text: str, values: Sequence[ParamValue]) -> ParamValue:
    """Return the value that a text stands for: itself, a number, a boolean or None; else the text.

    >>> value_in("0.50", (0.5, 1.0)), value_in("1", ("0", "1")), value_in("2", (0.5, 1.0))
    (0.5, '1', '2')
    >>> value_in("16.0", (16, 32)), value_in("True", (0, 1)), value_in("no", (False, True))
    (16, 1, False)

    A text that was read from a table has lost the spaces around it.
    """
    readings: list[ParamValue] = [text, number_in(text), _BOOLEANS.get(text.lower(), text)]
    readings += [each for each in values if str(each).strip() == text.strip() != ""]
    return next((values[values.index(each)] for each in readings if each in values), text)

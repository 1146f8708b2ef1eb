"""Kinds of values that settings take: how each is read, from text or from Python."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from ..core.failure_policy import read_failure_rule
from ..core.goals import objective_texts
from ..core.kinds import Kind, as_number, named_once, plain
from ..files.access import whole_path
from .start_points import Point, read_points

if TYPE_CHECKING:  # it imports NumPy, which a command's help does not need
    from ..core.space.user_priors import PriorSpec

AUTO = "auto"
"""Value of a number that hptune chooses by measuring."""
_LEAST_BYTES = 1_000_000
"""Smallest amount of memory, in bytes, that is believed: a smaller one lacks its unit."""
_MOST_SECONDS = 9e9
"""Longest time, in seconds: Python cannot wait much longer, some 290 years."""
_SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def or_auto(numbers: Kind) -> Kind:
    """Return the kind of the same numbers and `AUTO`."""

    def read(value: object) -> Any:
        return AUTO if value == AUTO else numbers.read(value)

    metavar, allowed = f"{numbers.metavar}|{AUTO}", f"{numbers.allowed}, or {AUTO}"
    return replace(numbers, metavar=metavar, allowed=allowed, read=read)


def devices(device: str, *, fewest: int) -> Kind:
    """Return the kind of numbers of devices: `fewest` or more whole ones, or a part of one."""

    def read(value: object) -> float:
        number = as_number(value)
        if isinstance(number, int | float) and (
            0 < number < 1 or (fewest <= number < math.inf and number == int(number))
        ):
            return number
        raise ValueError

    parts = f"parts of one {device}, such as 0.5"
    return Kind("N", f"whole numbers from {fewest} on, and {parts}", read)


def duration(*, may_be_zero: bool = False, may_be_none: bool = False) -> Kind:
    """Return the kind of times: seconds, or a text such as "90s", "30m", "2h", "1d", "1h30m".

    Args:
        may_be_zero: Whether 0 is a time.
        may_be_none: Whether "none" is allowed; it is 0.0, so that it differs from what is not
            given. A user's 0 is refused: it may mean at once, or never.
    """

    def read(value: object) -> float:
        if may_be_none and (value == "none" or (isinstance(value, float) and value == 0.0)):
            return 0.0
        seconds = _seconds(value) if isinstance(value, str) else as_number(value)
        if isinstance(seconds, int | float) and (
            0 < seconds <= _MOST_SECONDS or (may_be_zero and seconds == 0)
        ):
            return float(seconds)
        raise ValueError

    least = "from 0 on" if may_be_zero else "above 0"
    others = ", and none" if may_be_none else ""
    allowed = f"times {least}, such as 90s, 30m or 1h30m{others}"
    words = "none" if may_be_none else ""
    return Kind("TIME", allowed, read, lambda found: (not found and words) or show_seconds(found))


def _seconds(text: str) -> float:
    text = text.strip().lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    has_units = all(unit for _, unit in parts[1:])  # the 30 of 1h30 would be seconds
    if not (parts and has_units) or "".join(number + unit for number, unit in parts) != text:
        raise ValueError
    return sum(float(number) * _SECONDS[unit or "s"] for number, unit in parts)


def show_seconds(seconds: float | None) -> str:
    """Return a time in the largest unit of which it is a whole number.

    >>> show_seconds(600), show_seconds(90), show_seconds(0)
    ('10m', '90s', '0s')
    """
    if seconds is None:
        return ""
    unit = next((u for u, s in _SECONDS.items() if seconds >= s and not seconds % s), "s")
    return f"{seconds / _SECONDS[unit]:.15g}{unit}"


def size() -> Kind:
    """Return the kind of amounts of memory: bytes, or a text such as "4GB" or "512MiB"."""
    return Kind("SIZE", "amounts such as 4GB or 512MiB", _bytes)


def switch_or_size() -> Kind:
    """Return the kind of True ("on"), False ("off") and amounts of memory that limit something."""

    def read(value: object) -> bool | int:
        if isinstance(value, bool):
            return value
        word = value.lower() if isinstance(value, str) else value
        return word == "on" if word in ("on", "off") else _bytes(value)

    def show(value: object) -> str:
        words: dict[object, str] = {None: "", True: "on", False: "off"}
        return words.get(value, str(value))

    return Kind("on|off|SIZE", "on, off and amounts such as 4GB or 512MiB", read, show)


def _bytes(value: object) -> int:
    if not isinstance(value, str) and not isinstance(value := as_number(value), int):
        raise ValueError
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", str(value).lower())
    if found is None:
        raise ValueError
    number, prefix, binary = found.groups()
    power = ["", "k", "m", "g", "t"].index(prefix)
    given = float(number) * (1024 if binary else 1000) ** power
    if math.isinf(given):
        raise ValueError
    amount = value if isinstance(value, int) else int(given)
    if 0 < amount < _LEAST_BYTES:
        unit = "GB" if amount < 1000 else "MB"
        raise ValueError(f"{value!r} is {amount} bytes; did you mean {number}{unit}?")
    return amount


def text(
    metavar: str,
    allowed: str,
    *,
    check: Callable[[str], object] | None = None,
    is_path: bool = False,
    may_be_none: bool = False,
) -> Kind:
    """Return the kind of texts.

    Args:
        metavar: As in `Kind`.
        allowed: As in `Kind`.
        check: Raises ValueError if the text cannot be read.
        is_path: Whether it is a URL or the path of a file, which is made absolute.
        may_be_none: Whether "none" and "" are allowed, and mean "".
    """

    def read(value: object) -> str:
        if not isinstance(value, str | os.PathLike):
            raise ValueError
        given = os.fspath(value)
        if may_be_none and given in ("", "none"):
            return ""
        if check is not None:
            check(given)
        return str(whole_path(given)) if is_path and "://" not in given else given

    return Kind(metavar, allowed, read, lambda found: found or ("none" if may_be_none else ""))


def texts(metavar: str, allowed: str, *, check: Callable[[str], object] | None = None) -> Kind:
    """Return the kind of lists of texts; a text alone is a list of one."""

    def read(value: object) -> tuple[str, ...]:
        given = [value] if isinstance(value, str | os.PathLike) else value
        if not _is_list(given):
            raise ValueError
        found = tuple(map(str, given))
        for each in found:
            if check is not None:
                check(each)
        return found

    return Kind(metavar, allowed, read, ", ".join, is_repeated=True)


def failure_rules() -> Kind:
    """Return the kind of rules on failures, one for each cause."""
    kind = texts("CAUSE=ACTION", "texts such as memory=retry:3")

    def read(value: object) -> Any:
        found: tuple[str, ...] = kind.read(value)
        rules = ((rule.partition("=")[0].strip(), read_failure_rule(rule)) for rule in found)
        named_once(rules, "--on-failure")
        return found

    return replace(kind, read=read)


def objectives() -> Kind:
    """Return the kind of objectives: texts, or objects of KerasTuner's class Objective."""
    kind = texts("METRIC[:min|:max]", "metrics such as val_loss or auc:max")
    return replace(kind, read=lambda value: kind.read(objective_texts(value)))


def _is_list(value: object) -> TypeGuard[Iterable[object]]:
    return isinstance(value, Iterable) and not isinstance(value, Mapping | str | bytes)


def start_points() -> Kind:
    """Return the kind of configurations, each with values for some hyperparameters."""

    def read(value: object) -> tuple[Point, ...]:
        given = [value] if isinstance(value, str | Mapping) else value
        if not _is_list(given):
            raise ValueError
        return tuple(point for each in given for point in _points(each))

    allowed = '"lr=0.001,units=64", mappings such as {"lr": 0.001}, and @FILE.json or @FILE.csv'
    return Kind("POINT", allowed, read, _shown_points, is_repeated=True)


def _shown_points(points: Iterable[Point]) -> str:
    return ", ".join(json.dumps(dict(point), ensure_ascii=False) for point in points)


def _points(given: object) -> list[Point]:
    if isinstance(given, str):
        return read_points(given)
    if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
        from ..core.space.parameters.checks import plain

        return [{name: plain(value) for name, value in given.items()}]
    raise ValueError


def priors() -> Kind:
    """Return the kind of priors on hyperparameters, by name."""

    def read(value: object) -> dict[str, PriorSpec]:
        given = [value] if isinstance(value, str) else value
        if isinstance(given, Mapping) and all(isinstance(name, str) for name in given):
            return {
                name: {str(word): weight for word, weight in prior.items()}
                if isinstance(prior, Mapping)
                else str(prior)
                for name, prior in given.items()
            }
        if _is_list(given):
            from ..core.space.user_priors import read_prior

            return dict(named_once((read_prior(str(each)) for each in given), "--prior"))
        raise ValueError

    allowed = '"lr~lognormal(0.001,0.5)" and, in Python, {"lr": "lognormal(0.001, 0.5)"}'
    return Kind("NAME~PRIOR", allowed, read, _shown_priors, is_repeated=True)


def _shown_priors(priors: Mapping[str, PriorSpec]) -> str:
    return ", ".join(f"{name}~{_shown_prior(prior)}" for name, prior in priors.items())


def _shown_prior(prior: PriorSpec) -> str:
    if isinstance(prior, str):
        return prior
    return f"{{{','.join(f'{choice}:{weight}' for choice, weight in prior.items())}}}"


def plug_in_options() -> Kind:
    """Return the kind of options of plug-ins, each by its group and name."""
    value_kind = plain()

    def read(value: object) -> dict[str, Any]:
        if isinstance(value, Mapping):
            found = dict(value)
        elif _is_list(given := [value] if isinstance(value, str) else value):
            texts = (str(each).partition("=") for each in given)
            pairs = (
                (name.replace("-", "_") if equals else "", _meant(each))
                for name, equals, each in texts
            )
            found = named_once(pairs, "--option")
        else:
            raise ValueError
        if all(_OPTION.fullmatch(str(name)) for name in found):
            return {name: value_kind.read(each) for name, each in found.items()}
        raise ValueError

    allowed = 'texts such as search.population=8 and, in Python, {"search.population": 8}, of the '
    allowed += f"groups {', '.join(GROUPS)}"
    return Kind("GROUP.NAME=VALUE", allowed, read, _shown_options, is_repeated=True)


GROUPS = ("search", "pruner", "cluster", "executor")
"""Settings that name something which may have options of its own."""
_OPTION = re.compile(rf"({'|'.join(GROUPS)})\.\w+")


def _meant(text: str) -> Any:
    """Return the value of a text that is JSON, as a shell gives all values; else the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _shown_options(options: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name}={each if isinstance(each, str) and _meant(each) == each else json.dumps(each)}"
        for name, each in options.items()
    )


def scheduler_address() -> Kind:
    """Return the kind of addresses of a scheduler; empty for none."""

    def check(given: str) -> None:
        if not is_scheduler_address(given):
            raise ValueError

    allowed = "an address such as tls://node1:8786, the path of a scheduler file, and none"
    return text("ADDRESS", allowed, check=check, is_path=True, may_be_none=True)


_ADDRESS = re.compile(r"[a-z]+://(?:\[[^\]/]+\]|[^:/]+):([0-9]{1,5})")


def is_scheduler_address(text: str) -> bool:
    """Return whether a text can be a scheduler's address or the path of its scheduler file."""
    if "://" not in text:
        return Path(text).suffix == ".json"
    found = _ADDRESS.fullmatch(text)
    return found is not None and 0 < int(found[1]) < 65_536

"""What a user may ask for: each check of a setting, and what settings are called in messages."""

from __future__ import annotations

import contextlib
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..core.space.parameters.checks import plain
from ..core.space.user_priors import Belief
from ..errors import UsageError

_OPTIONS = {
    "grid_resolution": "--grid-points",
    "memory_per_trial_bytes": "--memory-per-trial",
    "same_failure_limit": "--same-failures",
    "timeout_seconds": "--timeout",
    "trial_timeout_seconds": "--trial-timeout",
    "start_points": "--try",
    "priors": "--prior",
    "objective": "--objective",
    "constraints": "--constraint",
}
"""The settings whose options on the command line are called otherwise."""


def option(setting: str) -> str:
    """What a setting is called on the command line, and so in every message.

    >>> option("min_epochs"), option("timeout_seconds")
    ('--min-epochs', '--timeout')
    """
    return _OPTIONS.get(setting) or f"--{setting.replace('_', '-')}"


def in_python(message: str) -> str:
    """The same message for those who called from Python; commands in backticks stay.

    >>> in_python("--min-epochs is 0; or `hptune resume DIR --trials 9`")
    'min_epochs is 0; or `hptune resume DIR --trials 9`'
    """
    names = {said: setting for setting, said in _OPTIONS.items()}

    def named(found: re.Match[str]) -> str:
        said = found[0]
        if said.startswith("`"):
            return said
        return names.get(said) or said.removeprefix("--").replace("-", "_")

    return re.sub(r"`[^`]*`|--[a-z][a-z-]*[a-z]", named, message)


def whole_number(setting: str, value: object, *, least: int) -> None:
    """See that a number is whole and not too small; None is nothing said.

    Raises:
        UsageError: It is not, as in all of these.
    """
    if value is not None and not (isinstance(value, int) and value >= least):
        raise UsageError(
            f"{option(setting)} is {value!r}; allowed are whole numbers from {least} on"
        )


def seconds(setting: str, value: object, *, may_be_zero: bool) -> None:
    """See that a time is one."""
    if not isinstance(value, int | float):
        raise UsageError(f"{option(setting)} is {value!r}; give a number, in seconds")
    if value > 0 or (may_be_zero and value == 0):
        return
    allowed = "from 0 on" if may_be_zero else "above 0"
    raise UsageError(f"{option(setting)} is {value:g}; allowed are times {allowed}")


def one_of(setting: str, value: object, allowed: Sequence[str]) -> None:
    """See that a word is one of those that are allowed."""
    if value not in allowed:
        raise UsageError(f"{option(setting)} is {value!r}; allowed are {' and '.join(allowed)}")


def devices(setting: str, amount: object, *, device: str, fewest: int) -> None:
    """See that so many devices can be given to a trial: whole ones, or a part of one."""
    if amount is None:
        return
    if isinstance(amount, int | float) and (
        0 < amount < 1 or (fewest <= amount < math.inf and amount == int(amount))
    ):
        return
    raise UsageError(
        f"{option(setting)} is {amount!r}; allowed are whole numbers from {fewest} on, and parts "
        f"of one {device}, such as 0.5"
    )


def switch_or_bytes(setting: str, value: object) -> None:
    """Check that a value is True, False or a number of bytes."""
    if isinstance(value, int) and value >= 0:
        return
    raise UsageError(
        f"{option(setting)} is {value!r}; allowed are True, False and a number of bytes"
    )


def several(setting: str, values: object) -> list[str]:
    """What was given as a list: a single one would be taken apart into letters."""
    if isinstance(values, str | os.PathLike) or not isinstance(values, Sequence):
        raise UsageError(f"{option(setting)} is {str(values)!r}; give a list, even of one")
    return [str(each) for each in values]


def points(setting: str, given: object) -> list[Mapping[str, object]]:
    """Configurations given in part, in plain values."""
    if not isinstance(given, Sequence):
        raise UsageError(f"{option(setting)} is {given!r}; give a list, even of one")
    found: list[Mapping[str, object]] = []
    for point in given:
        if not isinstance(point, Mapping) or not all(isinstance(name, str) for name in point):
            raise UsageError(
                f"{option(setting)} holds {point!r}; give mappings such as "
                '{"lr": 0.001, "units": 64}'
            )
        found.append({name: plain(value) for name, value in point.items()})
    return found


def beliefs(setting: str, given: object) -> dict[str, Belief]:
    """What is believed of hyperparameters, in plain values."""
    if not isinstance(given, Mapping):
        raise UsageError(
            f"{option(setting)} is {given!r}; give a mapping of names to beliefs, such as "
            '{"lr": "lognormal(0.001, 0.5)"}'
        )
    return {
        name: {str(choice): weight for choice, weight in said.items()}
        if isinstance(said, Mapping)
        else str(said)
        for name, said in given.items()
    }


@contextlib.contextmanager
def reading(setting: str) -> Iterator[None]:
    """Say of what cannot be read which setting it is."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{option(setting)}: {error}") from error


def check_scheduler_address(what: str, meeting: str) -> None:
    """Find what can be neither an address nor a scheduler file.

    Raises:
        UsageError: It is.
    """
    if "://" not in meeting and Path(meeting).suffix != ".json":
        raise UsageError(
            f"{what} is {meeting!r}; allowed are an address such as tcp://node1:8786, "
            "as `hptune scheduler` prints it, or its scheduler file (.json)"
        )

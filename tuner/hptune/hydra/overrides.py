"""Hydra's overrides as a search space."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    ChoiceSweep,
    IntervalSweep,
    Override,
    QuotedString,
    RangeSweep,
)
from omegaconf import DictConfig, OmegaConf

from ..core.space.parameters.checks import is_number
from ..errors import SpaceError
from ..training.hyperparameters import HyperParameters


def split(lines: Iterable[str], loader: ConfigLoader) -> tuple[list[str], list[Override]]:
    """Return the overrides that all trials have, and those that are searched.

    Of several overrides of a key, the last one counts, with or without a `+`.
    """
    parser = OverridesParser.create(config_loader=loader)
    parsed = parser.parse_overrides(list(lines))
    of_keys = {each.get_key_element().lstrip("+"): each for each in parsed}
    fixed = [str(each.input_line) for each in of_keys.values() if not each.is_sweep_override()]
    return fixed, [each for each in of_keys.values() if each.is_sweep_override()]


def value_in(config: DictConfig, override: Override) -> Any:
    """Return what a configuration has without an override; None for nothing."""
    chosen = config.hydra.runtime.choices
    group = override.get_key_element().lstrip("+")
    if group in chosen:
        return chosen[group]
    return OmegaConf.select(config, override.key_or_group, throw_on_resolution_failure=False)


def declare(hp: HyperParameters, override: Override, own: Any) -> None:
    """Declare what is searched.

    Args:
        hp: Gets the declaration, by the override's key.
        override: An override that sweeps.
        own: The value in the configuration: the default if it is one that is searched.

    Raises:
        SpaceError: It has no values, or its bounds, steps and scale do not fit together.
    """
    sweep = override.value()
    low: Any
    high: Any
    if isinstance(sweep, IntervalSweep):
        low, high, step = sweep.start, sweep.end, None
    elif isinstance(sweep, RangeSweep) and isinstance(values := sweep.range(), range):
        low, high, step = _bounds(values, override, is_log="log" in sweep.tags)
    else:
        _declare_choice(hp, override, own)
        return
    is_whole = isinstance(low, int) and isinstance(high, int)
    fits = isinstance(own, int if is_whole else int | float) and not isinstance(own, bool)
    (hp.Int if is_whole else hp.Float)(
        override.get_key_element(),
        low,
        high,
        step=step,
        sampling="log" if "log" in sweep.tags else "linear",
        default=own if fits and low <= own <= high else None,
    )


def _bounds(values: range, override: Override, *, is_log: bool) -> tuple[int, int, int | None]:
    """Return the least and the greatest value of a range, and its step; None for any."""
    if not values:
        raise SpaceError(f"{override.input_line} has no values; the stop is not among them")
    step = abs(values.step)
    if is_log and step > 1:
        raise SpaceError(
            f"{override.input_line} has steps of {step}; with the tag log, steps of 1 are allowed. "
            "Leave the tag out, or list the values with choice(…)"
        )
    return min(values), max(values), None if is_log else step


def _declare_choice(hp: HyperParameters, override: Override, own: Any) -> None:
    """Declare values that are listed: numbers of one type as such, others as overrides."""
    sweep = override.value()
    if isinstance(sweep, ChoiceSweep | RangeSweep):
        sweep.shuffle = False  # a study that is resumed has the same space
    listed: list[Any] = list(override.sweep_iterator())
    is_numeric = len({*map(type, listed)}) == 1 and all(map(is_number, listed))
    choices = listed if is_numeric else list(override.sweep_string_iterator())
    plain = [each.text if isinstance(each, QuotedString) else each for each in listed]
    own = own.name if isinstance(own, Enum) else own  # by which Hydra chooses a member
    default = choices[plain.index(own)] if own in plain else None
    hp.Choice(override.get_key_element(), choices, default=default)

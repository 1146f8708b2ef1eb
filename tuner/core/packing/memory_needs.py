"""How much memory trials are given, of a host's or of a GPU's: what others held, and a margin."""

from __future__ import annotations

import math
from collections.abc import Hashable

from ..trial import Params
from .forecast import Forecast

WATCHED = 2
"""So many trials are watched before others are placed by what they use."""

_STEPS = 32
"""Sizes are rounded up to this many steps between a power of two and the next."""

_CAUTION = 1.25
_MOST_CAUTION = 4.0
_TRUST = 0.98


def rounded_up(size: float) -> int:
    """A size in bytes, rounded up so that there are not too many different ones.

    >>> rounded_up(1000.0), rounded_up(1024.0), rounded_up(1025.0)
    (1003, 1024, 1047)
    """
    return math.ceil(2 ** (math.ceil(_STEPS * math.log2(size) - 1e-9) / _STEPS))


class MemoryNeeds:
    """Reckons what trials need of one kind of memory, each by its hyperparameters.

    The more is reckoned for all, the more of them ran out of late.

    Args:
        extra: So many times what is foretold is to fit in.

    Attributes:
        caution: So many times as much is reckoned because trials ran out.
    """

    def __init__(self, *, extra: float = 1.0) -> None:
        self._extra = extra
        self._forecast = Forecast()
        self.caution = 1.0

    @property
    def are_known(self) -> bool:
        """Whether enough trials were watched."""
        return len(self._forecast) >= WATCHED

    def of(self, params: Params) -> int:
        """What a trial of these hyperparameters is given, in bytes; only where they are known."""
        return rounded_up(self._extra * self.caution * self._forecast.upper(params))

    @property
    def usual(self) -> int:
        """What a trial is given that nothing is known of yet, in bytes; only where others are."""
        return rounded_up(self._extra * self.caution * self._forecast.middle)

    def learn(self, trial: int, params: Params, held: int, *, is_least: bool = False) -> None:
        """Take note of what a trial held, in bytes.

        Args:
            trial: Its number.
            params: Its hyperparameters.
            held: At its peak so far.
            is_least: Whether it would have come to hold more.
        """
        self._forecast.learn(trial, params, held, is_least=is_least)

    @property
    def standing(self) -> Hashable:
        """Changes whenever something else is reckoned."""
        return self.are_known, self._forecast.version, self.caution

    def ran_out(self) -> None:
        """A trial ran out of it."""
        self.caution = min(_MOST_CAUTION, _CAUTION * self.caution)

    def went_well(self) -> None:
        """A trial came to its end."""
        self.caution = max(1.0, _TRUST * self.caution)

    def __str__(self) -> str:
        return f"{self._forecast.middle / 1e9:.2g} GB"

    @property
    def depend_on(self) -> tuple[str, ...]:
        """The hyperparameters that they are foretold from."""
        return self._forecast.depends_on

"""How many trials share a device: cores by the processor time that they use, GPUs by memory.

A device is shared by more in steps, each only after trials were seen to train at the step before,
and only as long as it does more in all that way.
"""

from __future__ import annotations

import statistics
import sys
from collections import deque
from collections.abc import Hashable

from ..resources import Amount
from ..trial import Params
from .forecast import Forecast
from .memory_needs import WATCHED

MOST_ON_A_CORE = 8
_FULL = 1.2
"""A core is full when its trials, each alone, would keep it busy for so much of the time.

They do not all wait at the same time: with as much as there is time, a quarter of it stays unused.
"""

_STEPS_UP = {Amount.CPUS: 4, Amount.GPUS: 2}
"""So many times more may share a device at the next step; of a core it is known how busy it is."""

_LATEST = 16
_WORTHWHILE = 1.05
"""Fewer share a device where more of them do not do more by this factor: each takes longer."""

_RESIDENTS = "(trials on one device)"


def that_fill_a_core(busy: float) -> int:
    """How many trials fill a core that each keep it busy for so much of the time.

    >>> that_fill_a_core(0.95), that_fill_a_core(0.5), that_fill_a_core(0.01)
    (1, 2, 8)
    """
    return max(1, min(MOST_ON_A_CORE, int(_FULL / busy))) if busy else 1


class Sharing:
    """How many trials share a device of one kind, as far as their pace tells.

    Args:
        device: The kind: CPUS or GPUS. It is that of the device that a trial keeps to itself as
            far as it can, so a trial that holds a GPU counts there, and its core does not.

    Attributes:
        most: So many share a device at most, at present.
        limit: So many may share one, whatever they use.
        is_held_back: Whether more would share one, but for the limit.
        is_used: Whether trials were placed on such devices.
    """

    def __init__(self, device: Amount) -> None:
        self.device = device
        self.most = 1
        self.limit = sys.maxsize
        self.is_held_back = False
        self.is_used = False
        self._busy = Forecast()
        self._lately_busy = deque[float](maxlen=_LATEST)
        self._pace = Forecast()
        self._tried = 1
        self._settled = 0
        self._were_too_many = False

    def limit_to(self, limit: int) -> bool:
        """Let no more share a device than so many; returns whether that makes them fewer."""
        self.limit = limit
        if self.most <= limit:
            return False
        self.most = limit
        self.is_held_back = True
        self._settled = 0
        return True

    @property
    def standing(self) -> Hashable:
        """Changes whenever trials are given another part of a device."""
        usually = self.that_fill_a_core_usually if self.is_known else 0
        return self.most, self.limit, self.is_used, self._busy.version, usually

    # --- cores ------------------------------------------------------------------------------

    @property
    def is_known(self) -> bool:
        """Whether it was seen how busy trials keep a core."""
        return bool(self._lately_busy)

    @property
    def lately_busy(self) -> tuple[float, float]:
        """For what share of the time the last trials kept a core busy: the idlest, the busiest."""
        return min(self._lately_busy), max(self._lately_busy)

    def that_fill_a_core(self, params: Params) -> int:
        """How many trials of these hyperparameters fill a core."""
        return that_fill_a_core(self._busy.typical({**params, _RESIDENTS: 1.0}))

    @property
    def that_fill_a_core_usually(self) -> int:
        """How many trials fill a core that nothing is known of yet."""
        return that_fill_a_core(statistics.median(self._lately_busy))

    # --- what is learned --------------------------------------------------------------------

    def learn(
        self,
        trial: int,
        params: Params,
        *,
        residents: float,
        busy: float,
        seconds_per_step: float | None,
    ) -> None:
        """Take note of how a trial trained.

        Args:
            trial: Its number.
            params: Its hyperparameters.
            residents: With how many it shared its device, itself included.
            busy: For what share of the time it kept a core busy.
            seconds_per_step: How long a step took; None where nobody knows.
        """
        params = {**params, _RESIDENTS: residents}
        self._busy.learn(trial, params, max(0.01, busy))
        if seconds_per_step:
            self._pace.learn(trial, params, seconds_per_step)

    def settled(self, params: Params, level: int) -> None:
        """A trial was seen to train that began while so many at most shared a device."""
        self._lately_busy.append(self._busy.typical({**params, _RESIDENTS: 1.0}))
        self._settled += level == self.most

    def review(self, carries: int) -> bool:
        """Let more trials share a device, or fewer; returns whether there is something to tell.

        Args:
            carries: So many a device carries, by all but their pace.
        """
        if self._settled < WATCHED:
            return False
        best, before, was_held_back = self._best, self.most, self.is_held_back
        more = min(_STEPS_UP[self.device] * before, carries)
        wanted = before
        if best < before:
            wanted = best
            self._were_too_many = True
        elif more > max(before, self._tried):
            wanted = more
        elif more > before and best > before and self._may_try_again:
            wanted = min(more, best)
        self.is_held_back = wanted > self.limit
        self.most = min(wanted, self.limit)
        if self.most == before:
            return self.is_held_back and not was_held_back
        self._tried = max(self._tried, self.most)
        self._settled = 0
        return True

    @property
    def _may_try_again(self) -> bool:
        # What more of them did is forgotten in time, and is not to be tried again for that.
        return not self._were_too_many or _RESIDENTS in self._pace.depends_on

    @property
    def _best(self) -> int:
        """With how few trials a device does about as much as with any number that was tried."""
        done = {
            level: level / (self._pace.typical({_RESIDENTS: float(level)}) or 1.0)
            for level in range(1, self._tried + 1)
        }
        most = max(done.values())
        return next(level for level in done if _WORTHWHILE * done[level] >= most)

"""The number of suggestions that a study still needs, and the open request to the sampler."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from ..messages import Ask, Suggested

MAX_WAITING = 4
"""While this many trials wait, too large for the free resources, no others are requested to use
them: each passes over those that wait."""


class SuggestionRequests:
    """Requests suggestions, one request at a time, as many as there is room for.

    Args:
        trials: Total number of trials to suggest; None until the space is exhausted.
        ask_ahead: How many suggestions are kept ready, as a share of the running attempts.
        searched: Number of trials suggested so far.
        first: How many trials there may be until none of them runs or waits; None for all.

    Attributes:
        searched: The number of trials that the sampler or the user suggested; the others confirm.
        first: As the argument, and None as soon as the first trials are over.
    """

    def __init__(
        self,
        trials: int | None = None,
        *,
        ask_ahead: float = 0.0,
        searched: int = 0,
        first: int | None = None,
    ) -> None:
        self._trials = trials
        self._ask_ahead = ask_ahead
        self.searched = searched
        self.first = first
        self._asked = 0
        self._exhausted = False
        self._grown = False

    @property
    def is_open(self) -> bool:
        """Whether a request waits for its answer, which has the next numbers."""
        return bool(self._asked)

    @property
    def is_over(self) -> bool:
        """Whether no suggestion will come any more."""
        return not self._asked and not self._left(1)

    @property
    def is_exhausted(self) -> bool:
        """Whether the space has fewer configurations than trials were asked for."""
        return self._exhausted and (self._trials is None or self.searched < self._trials)

    def answered(self, event: Suggested) -> None:
        """Take in the answer to the open request."""
        self._asked = 0
        # The answer to a request from before the space grew does not know the new part.
        self._exhausted = self._exhausted or (event.exhausted and not self._grown)
        self._grown = False
        self.searched += len(event.suggestions)

    def added(self, count: int) -> None:
        """Count trials that the user added; they may exceed the total."""
        self.searched += count

    def space_grew(self) -> None:
        """Record that the search space has grown."""
        self._exhausted = False
        self._grown = bool(self._asked)

    def next(
        self, first: int, *, waiting: int, running: int, free_slots: Callable[[int], int]
    ) -> Ask | None:
        """Return the next request; None if nothing is needed now.

        Args:
            first: The number of the next trial.
            waiting: Number of trials that wait for a placement.
            running: Number of running attempts.
            free_slots: Returns how many more attempts fit now, counted up to a number.
        """
        ready = math.ceil(self._ask_ahead * running) if running > 1 else 0
        spare = max(0, ready - waiting)
        if not waiting and not running and self.searched >= (self.first or 0):
            self.first = None
        most = sys.maxsize if self.first is None else max(0, self.first - self.searched)
        left = 0 if self._asked else self._left(most)
        if not left:
            return None
        # There may be room for others while a large trial waits.
        wanted = spare + free_slots(left) if waiting < MAX_WAITING else spare
        self._asked = max(0, min(wanted, left))
        return Ask(tuple(range(first, first + self._asked))) if self._asked else None

    def _left(self, at_most: int) -> int:
        if self._exhausted:
            return 0
        if self._trials is None:
            return at_most
        return min(at_most, max(0, self._trials - self.searched))

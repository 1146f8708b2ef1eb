"""How many suggestions a study still wants, and which question is open."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable

from ..messages import Ask, Suggested

MOST_PASSED_OVER = 4
"""While so many trials wait, too large for what is free, no others are asked for to fill it."""


class SuggestionRequests:
    """Asks the sampler one question at a time: no more than there is room for and than is left.

    Args:
        trials: The total number of trials to suggest; None until the space is exhausted.
        ask_ahead: How many suggestions are kept ready, as a share of the attempts that run.
        searched: How many trials there are already.
    """

    def __init__(
        self, trials: int | None = None, *, ask_ahead: float = 0.0, searched: int = 0
    ) -> None:
        self._trials = trials
        self._ask_ahead = ask_ahead
        self._searched = self._searched_before = searched
        self._asked = 0
        self._exhausted = False
        self._grown = False

    @property
    def searched(self) -> int:
        """How many trials were suggested, by the sampler or the user; the others confirm."""
        return self._searched

    @property
    def is_over(self) -> bool:
        """Whether no suggestion is to come any more."""
        return not self._asked and not self._left(1)

    @property
    def is_exhausted(self) -> bool:
        """Whether the space had fewer configurations than are wanted."""
        return self._exhausted and (self._trials is None or self._searched < self._trials)

    def answered(self, event: Suggested) -> None:
        """The open question has its answer."""
        self._asked = 0
        # An answer to a question from before the space grew knows nothing of what is new.
        self._exhausted = self._exhausted or (event.exhausted and not self._grown)
        self._grown = False
        self._searched += len(event.suggestions)

    def space_grew(self) -> None:
        """There are more configurations than was thought."""
        self._exhausted = False
        self._grown = bool(self._asked)

    def next(
        self, first: int, *, waiting: int, running: int, rooms: Callable[[int], int]
    ) -> Ask | None:
        """The next question, if there is one to be asked.

        Args:
            first: The number of the next trial.
            waiting: How many trials wait for a place.
            running: How many attempts run.
            rooms: How many more attempts fit now, counted up to a number.
        """
        ready = math.ceil(self._ask_ahead * running) if running > 1 else 0
        spare = max(0, ready - waiting)
        left = 0 if self._asked else self._left(sys.maxsize)
        if not left:
            return None
        # There may be room for others while a large trial waits for its place.
        wanted = spare + rooms(left) if waiting < MOST_PASSED_OVER else spare
        self._asked = max(0, min(wanted, left))
        return Ask(tuple(range(first, first + self._asked))) if self._asked else None

    def _left(self, at_most: int) -> int:
        if self._exhausted:
            return 0
        if self._trials is None:
            return at_most
        return min(at_most, max(0, self._trials - self._searched))

    def validate(self) -> None:
        """Check that no more was asked for than was wanted.

        Raises:
            AssertionError: There was.
        """
        allowed = None if self._trials is None else max(self._trials, self._searched_before)
        if allowed is not None and self._searched > allowed:
            raise AssertionError(f"{self._searched} trials of {self._trials}")

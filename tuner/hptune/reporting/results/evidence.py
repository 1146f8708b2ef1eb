"""The gate for answers: one is given only if it is hardly ever given where it is not true.

Some say what to change, so a wrong one costs a study. Each comes with the chance that
results as clear as these, or clearer ones, come about although it is not true. It follows from the
number of trials and from how much they differ, so few trials say nothing by themselves.

The trials must be like all trials where the answer is on all trials. Those that early stopping let
pass are not: they are the best at a rung, and hardly differ there. The exempt ones are
(`core.pruner.is_exempt`), as they were chosen by their numbers.
`docs/decisions/advice-from-results.md` has how often advice is wrong in simulated studies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ... import text

MOST_WRONG = 0.025
"""Chance of a wrong answer up to which it is given: that of two standard errors."""

ERRORS = 1.96
"""Standard errors that a normal variable is off by with that chance, to one side."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a study's results say, in a sentence.

    Attributes:
        words: The sentence, without a capital and a full stop; empty for none.
        figure: The section of the page that shows it.
        chance: The chance that the results look so although the sentence is not true. 0 for one
            that something is not known, or that states what was counted.
    """

    words: str
    figure: str
    chance: float = 0.0

    @property
    def sentence(self) -> str:
        """The words as a whole sentence."""
        return text.sentence(self.words[:1].upper() + self.words[1:])


NONE = Answer("", "")
"""Too little is known for an answer."""


def evident(answers: Iterable[Answer]) -> list[Answer]:
    """Return the answers that the results show clearly enough."""
    return [each for each in answers if each.words and each.chance <= MOST_WRONG]


def tail(errors: float) -> float:
    """Return the chance that a normal variable is this many standard errors or more above its mean.

    >>> round(tail(0.0), 3), round(tail(ERRORS), 3)
    (0.5, 0.025)
    """
    return 0.5 * math.erfc(errors / math.sqrt(2.0))

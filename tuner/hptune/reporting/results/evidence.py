"""The gate for advice: a remark is made only if it is hardly ever made where it is not true.

Advice says what to change, so a wrong one costs a study. Each remark comes with the chance that
results as clear as these, or clearer ones, come about although it is not true. It follows from the
number of trials and from how much they differ, so few trials say nothing by themselves.

The trials must be like all trials where the remark is on all trials. Those that early stopping let
pass are not: they are the best at a rung, and hardly differ there. The exempt ones are
(`core.pruner.is_exempt`), as they were chosen by their numbers.
`docs/decisions/advice-from-results.md` has how often each remark is wrong in simulated studies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

MOST_WRONG = 0.025
"""Chance of a wrong remark up to which it is made: that of two standard errors."""

ERRORS = 1.96
"""Standard errors that a normal variable is off by with that chance, to one side."""


@dataclass(frozen=True, slots=True)
class Remark:
    """What may be said of a study's results.

    Attributes:
        words: The remark, in one line; empty for none.
        chance: The chance that the results look so although the remark is not true. 0 for a remark
            that something is not known, or that states what was counted.
    """

    words: str
    chance: float = 0.0


def evident(remarks: Iterable[Remark]) -> list[str]:
    """Return the words of the remarks that the results show clearly enough."""
    return [each.words for each in remarks if each.words and each.chance <= MOST_WRONG]


def tail(errors: float) -> float:
    """Return the chance that a normal variable is this many standard errors or more above its mean.

    >>> round(tail(0.0), 3), round(tail(ERRORS), 3)
    (0.5, 0.025)
    """
    return 0.5 * math.erfc(errors / math.sqrt(2.0))

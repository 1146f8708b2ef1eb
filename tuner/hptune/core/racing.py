"""Racing: which configurations are trained again, with other seeds, as they could be the best.

The leader has the best mean of its trainings. Its challenger is the configuration whose mean is
the fewest standard errors of the difference away. Of both, the one with fewer trainings is trained
again. This is the allocation of the top-two methods for finding the best of several noisy
alternatives (Russo 2020, "Simple Bayesian algorithms for best-arm identification"), with the
transport cost of normal values (Shang et al. 2020, "Fixed-confidence guarantees for Bayesian
best-arm identification", T3C). Constants are measured (benchmarks/noisy_choice.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

MARGIN = 1.5
"""Standard errors of the difference within which a challenger could be the best."""
KNOWN_FROM = 4
"""Degrees of freedom from which the noise counts as known."""
SHARE = 1 / 4
"""Largest number of repeats, as a share of the configurations."""
LEAST = 6
"""Number of repeats that are allowed for few configurations too."""


_LARGEST = 1e100
"""Losses beyond this are equal, so that their squares are finite."""


def to_repeat(
    losses: Mapping[int, Sequence[float]], *, most: int, room: int, made: int | None = None
) -> list[int]:
    """Return the configurations to train once more, at the same time.

    One configuration may be in the list several times. While the noise is unknown, no more are
    returned than it takes to know it.

    Args:
        losses: For each configuration the results of its trainings; lower is better.
        most: Largest number of trainings of a configuration.
        room: How many can be trained at the same time.
        made: Number of repeats that were made in this race, also of configurations that have left
            it; None for all repeats in `losses`.

    Returns:
        Keys of `losses`; empty once the race is over.

    Example, with little noise and a clear leader::

        >>> to_repeat({0: [0.1], 1: [0.5], 2: [0.9]}, most=5, room=1)
        [0]
        >>> to_repeat({0: [0.1, 0.11, 0.1], 1: [0.5, 0.49, 0.5], 2: [0.9]}, most=5, room=1)
        []
    """
    bounded = {
        each: [min(max(loss, -_LARGEST), _LARGEST) for loss in results]
        for each, results in losses.items()
    }
    counts = {each: len(results) for each, results in bounded.items()}
    means = {each: statistics.fmean(results) for each, results in bounded.items()}
    done = sum(counts.values()) - len(counts) if made is None else made
    freedom, noise = _noise(bounded.values())
    room = min(room, max(LEAST, math.ceil(SHARE * len(counts))) - done)
    limit = MARGIN * noise
    if freedom < KNOWN_FROM:
        room, limit = min(room, KNOWN_FROM - freedom), math.inf
    chosen: list[int] = []
    while len(chosen) < room:
        found = _next(means, counts, most=most, limit=limit)
        if found is None:
            break
        counts[found] += 1
        chosen.append(found)
    return chosen


def _next(
    means: Mapping[int, float], counts: Mapping[int, int], *, most: int, limit: float
) -> int | None:
    if len(means) < 2:
        return None
    leader = min(means, key=lambda each: means[each])

    def distance(each: int) -> float:
        return (means[each] - means[leader]) / math.sqrt(1 / counts[each] + 1 / counts[leader])

    is_open = counts[leader] < most
    # A challenger that cannot be trained again can still be a reason to train the leader.
    others = [each for each in means if each != leader and (is_open or counts[each] < most)]
    challenger = min(others, key=distance, default=None)
    if challenger is None or not distance(challenger) < limit:
        return leader if counts[leader] == 1 < most else None
    if is_open and (counts[leader] <= counts[challenger] or counts[challenger] >= most):
        return leader
    return challenger


def _noise(every: Iterable[Sequence[float]]) -> tuple[int, float]:
    """Return the degrees of freedom and the standard deviation of trainings with other seeds."""
    repeated = [results for results in every if len(results) > 1]
    freedom = sum(len(results) - 1 for results in repeated)
    squares = math.fsum((len(each) - 1) * statistics.variance(each) for each in repeated)
    return freedom, math.sqrt(squares / freedom) if freedom else math.inf

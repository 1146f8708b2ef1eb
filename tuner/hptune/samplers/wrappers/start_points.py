"""Start points: configurations that are tried first."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import ADDED, Suggestion, Trial, TrialState


class StartPoints(Sampler):
    """Suggests start points for the first trial numbers, then asks another sampler.

    Number n gets the n-th point, where numbers of trials that the user added, or that confirm
    others, do not count. If another trial already has that point, the wrapped sampler is asked.
    The wrapped sampler is told every trial, and the points that are suggested together with its
    own suggestions, so that it does not repeat them.

    With two points a and b::

        s.ask([0, 1, 2])     -> [a, b, c]       # the wrapped sampler was told a and b, asked for 2
        s.ask([0])           -> [a]             # on resume, if 0 was never created
        s.ask([3])           -> [d]             # from the wrapped sampler, like all that follow

    Args:
        inner: The wrapped sampler.
        space: The search space.
        points: The start points. Those outside the space are skipped.
    """

    def __init__(self, inner: Sampler, space: SearchSpace, points: Sequence[Suggestion]) -> None:
        self._inner = inner
        self._space = space
        distinct: dict[Hashable, Suggestion] = {}
        for point in points:
            if space.contains(point.params):
                distinct.setdefault(space.key(point.params), point)
        self._points = tuple(distinct.items())
        self._keys: dict[int, Hashable] = {}
        self._others: set[int] = set()

    def tell(self, trial: Trial) -> None:
        """Record the configuration as tried, and tell the wrapped sampler."""
        if trial.number >= 0:
            self._keys[trial.number] = self._space.key(trial.params)
            if trial.origin == ADDED or trial.confirms is not None:
                self._others.add(trial.number)
        self._inner.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return the points of these numbers, and the wrapped sampler's suggestions for others."""
        points = self._unused(numbers)
        for number, point in points.items():
            self._inner.tell(Trial(number, point.params, point.origin, TrialState.WAITING))
        others = iter(self._inner.ask([number for number in numbers if number not in points]))
        answers = (points.get(number) or next(others, None) for number in numbers)
        return [answer for answer in answers if answer is not None]

    def _unused(self, numbers: Sequence[int]) -> dict[int, Suggestion]:
        """Return the points of these numbers that no other trial has."""
        places = {n: n - sum(other < n for other in self._others) for n in numbers}
        mine = {n: self._points[at] for n, at in places.items() if at < len(self._points)}
        if not mine:
            return {}
        tried = {key for number, key in self._keys.items() if number not in mine}
        return {n: point for n, (key, point) in mine.items() if key not in tried}

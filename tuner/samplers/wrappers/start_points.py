"""Start points: what is tried first, before the search itself is asked."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import ADDED, Suggestion, Trial, TrialState


class StartPoints(Sampler):
    """Answers the first trial numbers from a list, and all others by another sampler.

    Number n is answered by the n-th point; numbers that went to configurations which the user
    added later do not count. Where that point is another trial's already, the other sampler
    answers. It is told of every trial, and of the points that are suggested together with its own
    answers, so that it does not repeat them.

    With two points a and b::

        s.ask([0, 1, 2])     -> [a, b, c]       # the wrapped sampler was told a and b, asked for 2
        s.ask([0])           -> [a]             # on resume, if 0 was never created
        s.ask([3])           -> [d]             # the wrapped sampler's, as are all from here on

    Args:
        inner: Who goes on after the points, and is told everything.
        space: What to search.
        points: What to try first; one that lies outside the space is passed over.
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
        self._added: set[int] = set()

    def tell(self, trial: Trial) -> None:
        """Remember what is tried, and tell the wrapped sampler."""
        if trial.number >= 0:
            self._keys[trial.number] = self._space.key(trial.params)
            if trial.origin == ADDED:
                self._added.add(trial.number)
        self._inner.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """The points that belong to these numbers, and the wrapped sampler's answers."""
        points = self._unused(numbers)
        for number, point in points.items():
            self._inner.tell(Trial(number, point.params, point.origin, TrialState.WAITING))
        others = iter(self._inner.ask([number for number in numbers if number not in points]))
        answers = (points.get(number) or next(others, None) for number in numbers)
        return [answer for answer in answers if answer is not None]

    def _unused(self, numbers: Sequence[int]) -> dict[int, Suggestion]:
        """Those of the numbers that have a point which is no other trial's."""
        places = {n: n - sum(other < n for other in self._added) for n in numbers}
        mine = {n: self._points[at] for n, at in places.items() if at < len(self._points)}
        if not mine:
            return {}
        tried = {key for number, key in self._keys.items() if number not in mine}
        return {n: point for n, (key, point) in mine.items() if key not in tried}

"""The order of trials at a rung, and the trials that lead over all steps.

All values here are losses: lower is better, and a trial without a value has infinite ones.
"""

from __future__ import annotations

import abc
import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from ..core.trial import Direction
from ..errors import UsageError

REDUCTION_FACTOR = 3
_DEFAULT_MIN_PART = 20
_UNLIMITED = 2**40
"""Steps; more than any training has."""

Losses = tuple[float, ...]
"""One loss for each objective."""

_RECENT_PART = 4
_MAX_RECENT = 100
"""Trials; the recent ones are the newest quarter at a rung, at most this many."""


def first_rung(
    epochs: int | None, min_epochs: int | None, reduction_factor: int = REDUCTION_FACTOR
) -> int:
    """Return the first step at which trials are judged.

    By default it is a twentieth of the training, and at least 2 if `rung_levels` allows one there.
    On recorded learning curves, the ranking after the first epoch hardly predicts the final one
    (`docs/decisions/first-rung-at-two.md`).

    Raises:
        UsageError: No trial could be stopped before its last epoch.
    """
    known = epochs or 0
    has_second = bool(rung_levels(2, reduction_factor, epochs=known))
    first = min_epochs or (max(2, -(-known // _DEFAULT_MIN_PART)) if has_second else 1)
    if epochs is not None and first >= epochs > 1:
        raise UsageError(
            f"--min-epochs is {first}, but a trial trains at most {epochs} epochs, "
            "so no trial could be pruned; use a smaller --min-epochs"
        )
    return first


def rung_levels(
    first: int, reduction_factor: int = REDUCTION_FACTOR, *, epochs: int | None
) -> tuple[int, ...]:
    """Return the steps at which trials are compared, each `reduction_factor` times the previous.

    The end of the training is not a rung. Neither is a step closer to the end than half a rung
    (as a factor), where stopping would save little.

    >>> rung_levels(1, epochs=81)
    (1, 3, 9, 27)
    >>> rung_levels(1, epochs=100)
    (1, 3, 9, 27)
    >>> rung_levels(5, 4, epochs=52)
    (5, 20)
    """
    last = _UNLIMITED if epochs is None else epochs
    levels = []
    level = first
    while level * level * reduction_factor <= last * last and level < last:
        levels.append(level)
        level *= reduction_factor
    return tuple(levels)


def as_losses(values: Sequence[float], directions: Sequence[Direction]) -> Losses:
    """Return values as losses.

    >>> as_losses((0.9, 3.0), (Direction.MAX, Direction.MIN))
    (-0.9, 3.0)
    """
    return tuple(
        direction.sign * value for value, direction in zip(values, directions, strict=True)
    )


def dominates(one: Losses, other: Losses) -> bool:
    """Return whether a result is as good as another in every objective, and better in one.

    >>> dominates((1.0, 2.0), (1.0, 3.0)), dominates((1.0, 2.0), (0.0, 3.0))
    (True, False)
    """
    return one != other and all(mine <= theirs for mine, theirs in zip(one, other, strict=True))


class Leaders:
    """The latest losses of all trials, and which of them no other trial dominates.

    Of trials with equal losses, the one with the lowest number leads. With one objective, the
    best trial leads; with several, the trials of the Pareto front do.
    """

    def __init__(self) -> None:
        self._latest: dict[int, tuple[int, Losses]] = {}

    def report(self, trial: int, step: int, losses: Losses) -> None:
        """Record a trial's losses by a step; steps may come in any order."""
        before = self._latest.get(trial)
        if before is None or (-step, losses) < (-before[0], before[1]):
            self._latest[trial] = step, losses

    def drop(self, trial: int) -> None:
        """Take a trial out that has failed or was pruned: its result will not be the study's."""
        self._latest.pop(trial, None)

    def leads(self, trial: int) -> bool:
        """Return whether no trial dominates this one; False if it has reported nothing."""
        if trial not in self._latest:
            return False
        _, mine = self._latest[trial]
        return not any(
            dominates(losses, mine) or (losses == mine and number < trial)
            for number, (_, losses) in self._latest.items()
        )


def lot(trial: int) -> int:
    """Return a trial's place among equal ones: of any trials in a row, it is spread evenly.

    By number, the first of equal trials would be the best, and nearly all later ones would stop.
    """
    return trial * 2654435769 % 2**32  # Knuth's multiplicative hash, by the golden ratio


class Rung(abc.ABC):
    """The trials at a rung, in an order that depends on their losses and numbers alone.

    A trial that equals the best is as good as it: all of them continue. Other equal trials are in
    the order of their lots, so the share that continues is the same as of trials that differ
    (`docs/decisions/ties-at-a-rung.md`).
    """

    def __init__(self) -> None:
        self._losses: dict[int, Losses] = {}
        self._by_age: list[int] = []

    def add(self, trial: int, losses: Losses) -> None:
        """Add a trial that has reached this rung."""
        insort(self._by_age, trial)
        self._insert(trial, losses)

    def amend(self, trial: int, losses: Losses) -> None:
        """Change a trial's losses."""
        self._delete(trial)
        self._insert(trial, losses)

    def is_in_share(self, trial: int, *, factor: int, least: int) -> bool:
        """Return whether a trial is among the best of all trials that have reached this rung.

        Args:
            trial: Its number.
            factor: One in `factor` trials is, rounded down.
            least: Minimum number of trials that are.
        """
        return self._place(trial) < max(least, len(self._by_age) // factor)

    def is_among_best(self, trial: int, *, factor: int, least: int) -> bool:
        """Return whether a trial at this rung is good enough to continue.

        Args:
            trial: Its number.
            factor: One in `factor` trials continues, rounded down, of all trials at the rung and
                also of the recent ones.
            least: Minimum number of all trials that continue.
        """
        if not self.is_in_share(trial, factor=factor, least=least):
            return False
        count, place = len(self._by_age), self._place(trial)
        recent = self._by_age[-min(max(count // _RECENT_PART, factor), _MAX_RECENT) :]
        better = sum(self._place(other) < place for other in recent)
        return better < max(1, len(recent) // factor)

    @abc.abstractmethod
    def pause(self, trial: int) -> None:
        """Record that a trial is paused here. To be repeated if its losses change."""

    @abc.abstractmethod
    def best_paused(self, is_paused: Callable[[int], bool]) -> int | None:
        """Return the best trial that is paused here; None if there is none.

        Args:
            is_paused: Returns whether a trial that was paused here still is.
        """

    @abc.abstractmethod
    def _insert(self, trial: int, losses: Losses) -> None:
        """Put a trial in its place."""

    @abc.abstractmethod
    def _delete(self, trial: int) -> None:
        """Take a trial out."""

    @abc.abstractmethod
    def _place(self, trial: int) -> int:
        """Return how many trials are better; those without a value share the last place."""


class LossRung(Rung):
    """Trials in the order of one loss."""

    def __init__(self) -> None:
        super().__init__()
        self._ordered: list[tuple[Losses, int]] = []
        self._paused: list[tuple[Losses, int, int]] = []

    def pause(self, trial: int) -> None:
        """Record that a trial is paused here."""
        heapq.heappush(self._paused, (self._losses[trial], lot(trial), trial))

    def best_paused(self, is_paused: Callable[[int], bool]) -> int | None:
        """Return the best trial that is paused here; None if there is none."""
        while self._paused:
            losses, _, trial = self._paused[0]
            if is_paused(trial) and self._losses[trial] == losses:
                return trial
            heapq.heappop(self._paused)
        return None

    def _insert(self, trial: int, losses: Losses) -> None:
        self._losses[trial] = losses
        insort(self._ordered, (losses, lot(trial)))

    def _delete(self, trial: int) -> None:
        del self._ordered[bisect_left(self._ordered, (self._losses[trial], lot(trial)))]

    def _place(self, trial: int) -> int:
        losses = self._losses[trial]
        is_shared = losses == self._ordered[0][0] or losses[0] == math.inf
        return bisect_left(self._ordered, (losses, -1 if is_shared else lot(trial)))


class FrontRung(Rung):
    """Trials in the order of how many others dominate each.

    This is the rank of MOGA (Fonseca and Fleming 1993, "Genetic algorithms for multiobjective
    optimization"); with one objective it is the order by loss. Of trials with the same rank, those
    in less crowded regions are better (the crowding distance of NSGA-II, Deb et al. 2002, section
    III-B), and then those with lower lots. Equal results that none dominates share a place.

    Schmucker et al. 2021 ("Multi-objective asynchronous successive halving", arXiv:2106.12639)
    order by fronts, and a front so that its first trials are spread over it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dominators: dict[int, int] = {}
        self._places: dict[int, int] | None = None
        self._paused: set[int] = set()

    def pause(self, trial: int) -> None:
        """Record that a trial is paused here."""
        self._paused.add(trial)

    def best_paused(self, is_paused: Callable[[int], bool]) -> int | None:
        """Return the best trial that is paused here; None if there is none."""
        self._paused = {trial for trial in self._paused if is_paused(trial)}
        return min(self._paused, key=lambda trial: (self._place(trial), lot(trial)), default=None)

    def _insert(self, trial: int, losses: Losses) -> None:
        dominators = 0
        for other, others in self._losses.items():
            if dominates(others, losses):
                dominators += 1
            elif dominates(losses, others):
                self._dominators[other] += 1
        self._losses[trial], self._dominators[trial] = losses, dominators
        self._places = None

    def _delete(self, trial: int) -> None:
        losses = self._losses.pop(trial)
        del self._dominators[trial]
        for other, others in self._losses.items():
            self._dominators[other] -= dominates(losses, others)
        self._places = None

    def _place(self, trial: int) -> int:
        if self._places is None:
            self._places = self._ordered()
        return self._places[trial]

    def _ordered(self) -> dict[int, int]:
        """Return the place of each trial."""
        groups: dict[int, list[int]] = {}
        for trial, count in self._dominators.items():
            groups.setdefault(count, []).append(trial)
        places: dict[int, int] = {}
        for count, group in sorted(groups.items()):
            if all(math.isinf(loss) for trial in group for loss in self._losses[trial]):
                return places | dict.fromkeys(group, len(places))
            distances = crowding_distances({self._losses[trial] for trial in group})
            group.sort(key=lambda trial: (-distances[self._losses[trial]], lot(trial)))
            if not count:
                shared = dict.fromkeys(self._losses[trial] for trial in group)
                place_of = {losses: place for place, losses in enumerate(shared)}
                places = {trial: place_of[self._losses[trial]] for trial in group}
                continue
            for trial in group:
                places[trial] = len(places)
        return places


def crowding_distances(results: Iterable[Losses]) -> dict[Losses, float]:
    """Return how far each result's neighbours are apart, in sum over the objectives.

    The distance in an objective is relative to the range of its losses, and infinite for the best
    and the worst. Equal losses are in the order of the results.

    >>> crowding_distances([(0.0, 3.0), (1.0, 1.0), (3.0, 0.0)])
    {(0.0, 3.0): inf, (1.0, 1.0): 2.0, (3.0, 0.0): inf}
    """
    ordered = sorted(results)
    distances = dict.fromkeys(ordered, 0.0)
    for column in range(len(ordered[0])):
        ordered.sort(key=itemgetter(column))
        least, most = ordered[0], ordered[-1]
        distances[least] = distances[most] = math.inf
        if (width := most[column] - least[column]) > 0.0:
            for before, result, after in zip(ordered, ordered[1:], ordered[2:], strict=False):
                distances[result] += (after[column] - before[column]) / width
    return distances

"""Asynchronous successive halving: at each rung, about one trial in so many goes on.

ASHA is one bracket of it, Hyperband several, each of which begins to judge a rung later.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.pruner import Decision, HalvingMode, Pruner
from ..core.trial import Direction, TrialState

_UNLIMITED = 2**40
"""As many steps as no training has."""

_YOUNG_PART = 4
_MOST_YOUNG = 100


def rung_levels(
    *, min_epochs: int, reduction_factor: int, epochs: int | None = None
) -> tuple[int, ...]:
    """The steps at which trials are compared: whole numbers, each a factor above the last.

    The end of the training is no rung. Nor is a step so near to it that less is saved by judging
    than a step down (nearer, as a factor, than half a rung).

    >>> rung_levels(min_epochs=1, reduction_factor=3, epochs=81)
    (1, 3, 9, 27)
    >>> rung_levels(min_epochs=1, reduction_factor=3, epochs=100)
    (1, 3, 9, 27)
    >>> rung_levels(min_epochs=5, reduction_factor=4, epochs=52)
    (5, 20)
    """
    last = _UNLIMITED if epochs is None else epochs
    levels = []
    level = min_epochs
    while level * level * reduction_factor <= last * last and level < last:
        levels.append(level)
        level *= reduction_factor
    return tuple(levels)


def bracket_cycle(brackets: int, *, rungs: int, reduction_factor: int) -> tuple[int, ...]:
    """Which bracket each trial of a round belongs to, so that brackets grow evenly.

    Hyperband gives bracket s, which leaves out the first s rungs, n_s = ceil((S + 1) / (S - s + 1)
    * eta^(S - s)) trials with S rungs in all (Li et al. 2018, algorithm 1; their s counts from the
    other end). A round has that many of each, spread as evenly as can be.

    >>> bracket_cycle(3, rungs=2, reduction_factor=3)
    (0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 1, 0, 2, 0, 1, 0)
    """
    sizes = []
    for skipped in range(brackets):
        left = rungs - skipped
        sizes.append(-(-(rungs + 1) * reduction_factor**left // (left + 1)))
    total = sum(sizes)
    given = [0] * brackets
    cycle = []
    for turn in range(1, total + 1):
        lag = [size * turn - total * had for size, had in zip(sizes, given, strict=True)]
        bracket = lag.index(max(lag))
        given[bracket] += 1
        cycle.append(bracket)
    return tuple(cycle)


@dataclass(slots=True)
class _Rung:
    """Who came to a step, in order of loss and of age; and who of them rests there, best first."""

    losses: list[tuple[float, int]] = field(default_factory=list)
    by_age: list[tuple[int, float]] = field(default_factory=list)
    resting: list[tuple[float, int]] = field(default_factory=list)

    def add(self, loss: float, trial: int) -> None:
        insort(self.losses, _entry(loss, trial))
        insort(self.by_age, (trial, loss))

    def remove(self, loss: float, trial: int) -> None:
        del self.losses[self._rank(loss, trial)]
        del self.by_age[bisect_left(self.by_age, (trial, loss))]

    def _rank(self, loss: float, trial: int) -> int:
        return bisect_left(self.losses, _entry(loss, trial))

    def is_among_best(self, loss: float, trial: int, *, factor: int, least: int) -> bool:
        """Whether a trial that came here is one of those that go on.

        Args:
            loss: What it had here.
            trial: Its number.
            factor: One in so many goes on, rounded down, of all that came and of the youngest,
            least: but of all that came, so many may at least.
        """
        came = len(self.losses)
        if self._rank(loss, trial) >= max(least, came // factor):
            return False
        young = self.by_age[-min(max(came // _YOUNG_PART, factor), _MOST_YOUNG) :]
        mine = _entry(loss, trial)
        better = sum(_entry(other, number) < mine for number, other in young)
        return better < max(1, len(young) // factor)


def _entry(loss: float, trial: int) -> tuple[float, int]:
    """Of equal losses the first trial's is the best; but no value is no better than no value."""
    return loss, trial if loss < math.inf else -1


@dataclass(slots=True)
class _Racer:
    """What is known of a trial.

    `arrivals` holds, for each rung that it has reached, the first step at or beyond that rung
    and the loss there. It was let through the first `passed` of these.
    """

    bracket: int
    arrivals: list[tuple[int, float]] = field(default_factory=list)
    passed: int = 0
    state: TrialState = TrialState.RUNNING


class HalvingPruner(Pruner):
    """Asynchronous successive halving (ASHA) in one bracket or more.

    Follows Li et al. 2020, "A system for massively parallel hyperparameter tuning" (MLSys):
    algorithm 2 where it promotes; its stopping variant, in which a trial that is not among the
    best third (say) of those that came to the rung so far is stopped at once, elsewhere. With
    more brackets it is the asynchronous Hyperband of the same paper (section 3.2, after Li et al.
    2018, JMLR 18), and with a model-based sampler, in essence BOHB (Falkner et al. 2018).

    It departs from them where that can be shown to help:

    - A trial is compared by the best value it had by the rung, as the study values it in the end.
      So no trial that has the best value of all is ever stopped.
    - Trials without a value (see `Pruner.report`) share the place behind all others: they go on
      until there are as many with a value as go on.
    - A trial must be among the best third of all that came to the rung, and also good enough for
      the best third of the youngest quarter of them. A search that learns proposes better and
      better ones, of which nearly all are among the best third of all; without the second
      condition most of them are trained in full, and half as many are tried. (Hyperband and BOHB
      compare the trials of one round only, to the same end.) Both thirds are rounded down, and so
      fewer than a third go on, in practice: of trials in no order, about a quarter of the first
      hundred, and three in ten later.
    - Where it promotes, a trial that is among the best when it comes to a rung goes on at once,
      without a pause. When nothing is left to compare with, the best one of every rung is promoted.
      So a study that ends by itself has trained its best trial in full.

    Args:
        direction: Which values are better.
        rungs: The steps at which trials are compared, ascending.
        reduction_factor: One in so many goes on at most, or nearly so.
        mode: What becomes of the others.
        brackets: How many brackets; bracket s leaves out the first s rungs. From 1 to one more
            than there are rungs.
    """

    def __init__(
        self,
        *,
        direction: Direction,
        rungs: Sequence[int],
        reduction_factor: int,
        mode: HalvingMode = HalvingMode.STOP,
        brackets: int = 1,
    ) -> None:
        self._sign = 1.0 if direction is Direction.MIN else -1.0
        self._levels = tuple(rungs)
        self._factor = reduction_factor
        self._mode = mode
        self._cycle = (
            bracket_cycle(brackets, rungs=len(rungs), reduction_factor=reduction_factor)
            if brackets > 1
            else (0,)
        )
        self._brackets = [[_Rung() for _ in self._levels[s:]] for s in range(brackets)]
        self._racers: dict[int, _Racer] = {}
        self._best: tuple[float, int] | None = None

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials are compared."""
        return self._levels

    def report(self, trial: int, step: int, value: float) -> None:
        """Take note of a trial's value."""
        racer = self._racer(trial)
        if racer.state.is_final:
            return
        loss = self._sign * value
        if self._best is None or (loss, trial) < self._best:
            self._best = (loss, trial)
        arrivals = racer.arrivals
        rungs = self._brackets[racer.bracket]
        for k, level in enumerate(self._levels[racer.bracket :]):
            if level > step:
                break
            if k == len(arrivals):
                arrivals.append((step, loss))
                rungs[k].add(loss, trial)
            elif (step, loss) < arrivals[k]:
                # A message that was overtaken by a later one.
                self._amend(racer, k, trial, (step, loss))

    def _amend(self, racer: _Racer, k: int, trial: int, arrival: tuple[int, float]) -> None:
        rung = self._brackets[racer.bracket][k]
        rung.remove(racer.arrivals[k][1], trial)
        racer.arrivals[k] = arrival
        rung.add(arrival[1], trial)
        if racer.state is TrialState.PAUSED and k == len(racer.arrivals) - 1:
            heapq.heappush(rung.resting, (arrival[1], trial))

    def moved(self, trial: int, state: TrialState) -> None:
        """Take note of where a trial stands."""
        racer = self._racer(trial)
        racer.state = state
        if state in (TrialState.RUNNING, TrialState.WAITING):
            racer.passed = len(racer.arrivals)
        elif state is TrialState.PAUSED and racer.arrivals:
            k = len(racer.arrivals) - 1
            rung = self._brackets[racer.bracket][k]
            heapq.heappush(rung.resting, (racer.arrivals[k][1], trial))

    def _racer(self, trial: int) -> _Racer:
        racer = self._racers.get(trial)
        if racer is None:
            racer = self._racers[trial] = _Racer(self._cycle[trial % len(self._cycle)])
        return racer

    def decide(self, trial: int) -> Decision:
        """Judge a trial at the highest rung that it has come to and was not let through."""
        racer = self._racers.get(trial)
        if racer is None or racer.passed == len(racer.arrivals):
            return Decision.CONTINUE
        k = len(racer.arrivals) - 1
        rung, loss = self._brackets[racer.bracket][k], racer.arrivals[k][1]
        if self._mode is HalvingMode.PROMOTE:
            goes_on = rung.is_among_best(loss, trial, factor=self._factor, least=0)
            return Decision.CONTINUE if goes_on else Decision.PAUSE
        if self._best is not None and self._best[1] == trial:
            return Decision.CONTINUE
        goes_on = rung.is_among_best(loss, trial, factor=self._factor, least=1)
        return Decision.CONTINUE if goes_on else Decision.STOP

    def promotion(self, *, is_last: bool) -> int | None:
        """The best paused trial of the highest rung where one is among those that go on."""
        if self._mode is HalvingMode.STOP:
            return None
        for depth in range(len(self._levels) - 1, -1, -1):
            for skipped, rungs in enumerate(self._brackets):
                if depth < skipped:
                    continue
                rung = rungs[depth - skipped]
                best = self._best_resting(rung, depth - skipped)
                if best is not None and rung.is_among_best(
                    *best, factor=self._factor, least=int(is_last)
                ):
                    return best[1]
        return None

    def _best_resting(self, rung: _Rung, k: int) -> tuple[float, int] | None:
        """The best trial that rests here, with its loss; forgets entries that are out of date."""
        while rung.resting:
            loss, trial = rung.resting[0]
            racer = self._racers[trial]
            rests_here = racer.state is TrialState.PAUSED and k == len(racer.arrivals) - 1
            if rests_here and racer.arrivals[k][1] == loss:
                return loss, trial
            heapq.heappop(rung.resting)
        return None

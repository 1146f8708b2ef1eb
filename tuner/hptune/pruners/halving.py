"""Asynchronous successive halving: at each rung, one trial in `reduction_factor` continues.

ASHA has one bracket. Hyperband has several, each of which starts to judge one rung later.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..core.pruner import Decision, HalvingMode, Pruner, is_exempt
from ..core.trial import Direction, TrialState
from ..errors import UsageError
from .rungs import (
    REDUCTION_FACTOR,
    FrontRung,
    Leaders,
    Losses,
    LossRung,
    Rung,
    as_losses,
    first_rung,
    rung_levels,
)


def bracket_cycle(brackets: int, *, rungs: int, reduction_factor: int) -> tuple[int, ...]:
    """Return the bracket of each trial in a cycle, so that brackets grow evenly.

    Hyperband gives bracket s, which skips the first s rungs, n_s = ceil((S + 1) / (S - s + 1) *
    eta^(S - s)) trials with S rungs in all (Li et al. 2018, algorithm 1; their s counts from the
    other end). A cycle has n_s trials of each bracket, distributed as evenly as possible.

    >>> bracket_cycle(3, rungs=2, reduction_factor=3)
    (0, 1, 0, 2, 0, 1, 0, 2, 0, 1, 0, 1, 0, 2, 0, 1, 0)
    """
    rungs_left = range(rungs, rungs - brackets, -1)
    sizes = [-(-(rungs + 1) * reduction_factor**left // (left + 1)) for left in rungs_left]
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
class _TrialProgress:
    """Progress of a trial.

    Attributes:
        bracket: Its bracket.
        arrivals: For each rung that it has reached, the first reported step at or beyond that
            rung and the losses there.
        passed: Number of rungs at which it was allowed to continue.
        state: Its state.
    """

    bracket: int
    arrivals: list[tuple[int, Losses]] = field(default_factory=list)
    passed: int = 0
    state: TrialState = TrialState.RUNNING


class HalvingPruner(Pruner):
    """Asynchronous successive halving (ASHA) in one or more brackets.

    Follows Li et al. 2020, "A system for massively parallel hyperparameter tuning" (MLSys). With
    mode PROMOTE it is their algorithm 2. With mode STOP it is their stopping variant: a trial that
    is not among the best 1 / `reduction_factor` at a rung so far stops there. Several brackets
    are the asynchronous Hyperband of the same paper (section 3.2, after Li et al. 2018, JMLR 18);
    with a model-based sampler this is in essence BOHB (Falkner et al. 2018).

    With several objectives, trials at a rung are in the order of `FrontRung`, after Schmucker et
    al. 2021, "Multi-objective asynchronous successive halving" (arXiv:2106.12639).

    Differences, written for a reduction factor of 3:

    - A trial is compared by its best value by the rung, because the study scores trials by their
      best value. So the trial with the best value is never stopped. With several objectives, no
      trial of the Pareto front is.
    - Trials that equal the best one at a rung all continue, as the rung says nothing of them.
      Of others that are equal, the same share continues as of trials that differ.
    - Trials without a value (see `Pruner.report`) share the last rank. They continue until as
      many trials have values as may continue.
    - A trial must be in the best third of all trials at the rung and in the best third of the
      newest quarter of them. A search that learns suggests ever better trials, nearly all of
      which are in the best third of all. Without the second condition most of them are trained in
      full, and only half as many are tried. (Hyperband and BOHB compare only trials of one
      round, with the same effect.) Both thirds are rounded down, so fewer than a third continue:
      of trials in random order, a quarter of the first hundred and three in ten later.
    - A trial that stops for good is judged by the lower rungs, too, at each rung: it must still be
      in the best third of all trials there. The first trials at a rung pass it for want of others
      (`docs/decisions/less-spent-on-poor-trials.md`).
    - A few trials are exempt (`is_exempt`): they continue at every rung, and count there.
    - With PROMOTE, a trial that is among the best when it reaches a rung continues without a
      pause. When no other trials remain to compare with, the best one of each rung is promoted,
      and all trials of the Pareto front. So a study that is not interrupted trains its best trials
      in full.

    Args:
        directions: Direction of each objective.
        epochs: The full training of a trial, in steps; None if it is unknown.
        min_epochs: The first rung; None for the default of `first_rung`.
        reduction_factor: About one in `reduction_factor` trials continues at each rung.
        pruner_mode: What happens to the other trials.
        brackets: Number of brackets, at most one more than rungs; None for that many. Bracket s
            skips the first s rungs.

    Raises:
        UsageError: There are too few epochs for a rung or for the brackets.
    """

    def __init__(
        self,
        directions: Sequence[Direction],
        *,
        epochs: int | None,
        min_epochs: int | None = None,
        reduction_factor: int = REDUCTION_FACTOR,
        pruner_mode: HalvingMode = HalvingMode.STOP,
        brackets: int | None = 1,
    ) -> None:
        self._directions = tuple(directions)
        first = first_rung(epochs, min_epochs, reduction_factor)
        self._levels = rung_levels(first, reduction_factor, epochs=epochs)
        latest = 0 if epochs is None else math.isqrt(epochs**2 // reduction_factor)
        if min_epochs and latest and not self._levels:
            raise UsageError(
                f"--min-epochs is {min_epochs}, and a trial trains at most {epochs} epochs; so "
                f"close to the end no trial is stopped. Use {latest} at most, or --pruner none"
            )
        self._factor = reduction_factor
        self._mode = pruner_mode
        if brackets != 1 and epochs is None:
            raise UsageError("hyperband needs the length of a full training; add --epochs")
        most = len(self._levels) + 1
        brackets = brackets or most
        if brackets > most:
            raise UsageError(
                f"--brackets is {brackets}; with {epochs} epochs, rungs at "
                f"{', '.join(map(str, self._levels))} allow {most} at most"
            )
        make_rung = LossRung if len(self._directions) == 1 else FrontRung
        self._brackets: list[list[Rung]] = [
            [make_rung() for _ in self._levels[skipped:]] for skipped in range(brackets)
        ]
        self._progress: dict[int, _TrialProgress] = {}
        self._leaders = Leaders()

    @functools.cached_property
    def _cycle(self) -> tuple[int, ...]:
        # Made for the first trial: a check of the options makes a pruner, for any number of epochs.
        if (count := len(self._brackets)) == 1:
            return (0,)
        return bracket_cycle(count, rungs=len(self._levels), reduction_factor=self._factor)

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps at which trials are compared, ascending."""
        return self._levels

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        """Record a trial's best values by this step."""
        progress = self._progress_of(trial)
        if progress.state.is_final:
            return
        losses = as_losses(values, self._directions)
        self._leaders.report(trial, step, losses)
        arrivals = progress.arrivals
        rungs = self._brackets[progress.bracket]
        for k, level in enumerate(self._levels[progress.bracket :]):
            if level > step:
                break
            if k == len(arrivals):
                arrivals.append((step, losses))
                rungs[k].add(trial, losses)
            elif (step, losses) < arrivals[k]:
                # This report was overtaken by a later one.
                arrivals[k] = (step, losses)
                rungs[k].amend(trial, losses)
            if progress.state is TrialState.PAUSED:
                rungs[k].pause(trial)

    def moved(self, trial: int, state: TrialState) -> None:
        """Record a trial's state."""
        progress = self._progress_of(trial)
        progress.state = state
        if state in (TrialState.RUNNING, TrialState.WAITING):
            progress.passed = len(progress.arrivals)
        elif state in (TrialState.FAILED, TrialState.PRUNED):
            self._leaders.drop(trial)
        elif state is TrialState.PAUSED and progress.arrivals:
            self._brackets[progress.bracket][len(progress.arrivals) - 1].pause(trial)

    def _progress_of(self, trial: int) -> _TrialProgress:
        progress = self._progress.get(trial)
        if progress is None:
            progress = self._progress[trial] = _TrialProgress(self._cycle[trial % len(self._cycle)])
        return progress

    def decide(self, trial: int) -> Decision:
        """Return the decision at the highest rung of the trial that has none yet."""
        progress = self._progress.get(trial)
        if progress is None or progress.passed == len(progress.arrivals) or is_exempt(trial):
            return Decision.CONTINUE
        *lower, rung = self._brackets[progress.bracket][: len(progress.arrivals)]
        if self._mode is HalvingMode.PROMOTE:
            continues = rung.is_among_best(trial, factor=self._factor, least=0)
            return Decision.CONTINUE if continues else Decision.PAUSE
        continues = rung.is_among_best(trial, factor=self._factor, least=1) and all(
            each.is_in_share(trial, factor=self._factor, least=1) for each in lower
        )
        return Decision.CONTINUE if continues or self._leaders.leads(trial) else Decision.STOP

    def promotion(self, *, is_last: bool) -> int | None:
        """Return the best paused trial of the highest rung where one may continue."""
        if self._mode is HalvingMode.STOP:
            return None
        for depth in range(len(self._levels) - 1, -1, -1):
            for skipped, rungs in enumerate(self._brackets[: depth + 1]):
                rung = rungs[depth - skipped]
                best = self._best_paused(rung, depth - skipped)
                if best is not None and rung.is_among_best(
                    best, factor=self._factor, least=int(is_last)
                ):
                    return best
        paused = (n for n, each in self._progress.items() if each.state is TrialState.PAUSED)
        return min(filter(self._leaders.leads, paused), default=None) if is_last else None

    def _best_paused(self, rung: Rung, k: int) -> int | None:
        """Return the best trial that is paused at a rung, its bracket's number `k`."""

        def is_paused(trial: int) -> bool:
            progress = self._progress[trial]
            return progress.state is TrialState.PAUSED and k == len(progress.arrivals) - 1

        return rung.best_paused(is_paused)


hyperband = functools.partial(HalvingPruner, brackets=None)
"""Makes successive halving in as many brackets as the epochs allow, unless `brackets` is given."""

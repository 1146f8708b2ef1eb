"""What a model-based sampler learns from: the trials it was told, as scored observations.

One row for each configuration. The same configuration measured several times (a start point that
was drawn again, the best ones confirmed at the end) is one observation: the mean of its
measurements, so that noise is averaged and nothing counts twice.

Where trials are stopped early, all of them are compared at one rung (`fidelities`). Several
objectives become one loss (`pareto`). Complete trials that break a constraint have losses above
those of all that keep them, and the higher the more they break it.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ...core.trial import Direction, Trial, TrialState
from .encoding import Encoding, Floats, Integers
from .fidelities import Fidelities
from .pareto import pareto_losses

_INITIAL_CAPACITY = 64
_Number = TypeVar("_Number", bound=np.generic)


class Tier(enum.IntEnum):
    """How observations rank before their losses are looked at; the least is the best."""

    COMPLETE = 0
    """Its loss can be compared: that of a complete trial, or at the rung where all are compared."""
    PRUNED = 1
    """Stopped early, at a step where it cannot be compared with others."""
    FAILED = 2
    UNFINISHED = 3
    """Waits, runs or is paused."""


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """All configurations that were told, ordered by the number of their first trial.

    Attributes:
        rows: Their rows (n x columns), as `Encoding.encode` gives them.
        tiers: Their `Tier`s (n).
        losses: Their scores (n): lower is better, to be compared within a tier; infinite in the
            tiers FAILED and UNFINISHED.
        counts: Of how many trials each is the mean (n); 1 or more.
    """

    rows: Floats
    tiers: Integers
    losses: Floats
    counts: Integers

    @property
    def finished(self) -> int:
        """How many are over, whichever way."""
        return int((self.tiers != Tier.UNFINISHED).sum())

    @property
    def valued(self) -> int:
        """How many have a finite loss."""
        return int((self.tiers < Tier.FAILED).sum())

    def __len__(self) -> int:
        return len(self.tiers)


class History:
    """Collects what a sampler is told. The order of the tells leaves no trace.

    Args:
        encoding: The space's columns.
        directions: Which values are better, for each objective.
    """

    def __init__(self, encoding: Encoding, *, directions: Sequence[Direction]) -> None:
        self._encoding = encoding
        self._signs = np.array([1.0 if each is Direction.MIN else -1.0 for each in directions])
        self._slots: dict[int, int] = {}
        self._groups: dict[bytes, int] = {}
        self._numbers = np.zeros(_INITIAL_CAPACITY, dtype=np.intp)
        self._group = np.zeros(_INITIAL_CAPACITY, dtype=np.intp)
        self._rows = np.zeros((_INITIAL_CAPACITY, len(encoding)))
        self._tiers = np.zeros(_INITIAL_CAPACITY, dtype=np.intp)
        self._costs = np.zeros((_INITIAL_CAPACITY, len(self._signs)))
        self._violations = np.zeros(_INITIAL_CAPACITY)
        self._resting = np.zeros(_INITIAL_CAPACITY, dtype=np.bool_)
        self._fidelities = Fidelities()

    def tell(self, trial: Trial) -> None:
        """Take note of a trial, in place of what was known of it.

        Configurations outside the space are ignored.
        """
        row = self._encoding.encode(trial.params)
        if row is None:
            return
        slot = self._slots.setdefault(trial.number, len(self._slots))
        if slot == len(self._numbers):
            self._numbers = _doubled(self._numbers)
            self._group = _doubled(self._group)
            self._rows = _doubled(self._rows)
            self._tiers = _doubled(self._tiers)
            self._costs = _doubled(self._costs)
            self._violations = _doubled(self._violations)
            self._resting = _doubled(self._resting)
        self._numbers[slot] = trial.number
        self._group[slot] = self._groups.setdefault(row.tobytes(), len(self._groups))
        self._rows[slot] = row
        self._tiers[slot], self._costs[slot] = self._judge(trial)
        self._violations[slot] = trial.violation
        self._resting[slot] = trial.state in (TrialState.PRUNED, TrialState.PAUSED)
        sign = float(self._signs[0])
        self._fidelities.record(slot, {step: sign * value for step, value in trial.rungs.items()})

    @property
    def has_rungs(self) -> bool:
        """Whether trials are compared at rungs, so that poor ones are stopped early."""
        return bool(self._fidelities)

    def observations(self) -> Observations:
        """What is known now, in arrays of the caller's own."""
        order = np.argsort(self._numbers[: len(self._slots)])
        tiers, costs, group = self._tiers[order], self._costs[order], self._group[order]
        violations = self._violations[order]
        if self._fidelities and len(self._signs) == 1:
            tiers, costs[:, 0] = self._at_common_rung(order, tiers, costs[:, 0])
        _, first, which = np.unique(group, return_index=True, return_inverse=True)
        if len(first) == len(order):
            losses = _losses(tiers, costs, violations)
            return Observations(self._rows[order], tiers, losses, np.ones_like(tiers))
        # A configuration stands as its best measurements do: one that failed once and was
        # measured once is measured.
        standing = np.full(len(first), max(Tier), dtype=np.intp)
        np.minimum.at(standing, which, tiers)
        counted = tiers == standing[which]
        counts = np.bincount(which[counted], minlength=len(first))
        by_number = np.argsort(first)

        def means(values: Floats) -> Floats:
            sums = np.bincount(which[counted], values[counted], minlength=len(first))
            found: Floats = (sums / counts)[by_number]
            return found

        standing = standing[by_number]
        mean_costs = np.column_stack([means(column) for column in costs.T])
        return Observations(
            self._rows[order[first[by_number]]],
            standing,
            _losses(standing, mean_costs, means(violations)),
            counts[by_number],
        )

    def _at_common_rung(
        self, slots: Integers, tiers: Integers, losses: Floats
    ) -> tuple[Integers, Floats]:
        """Tiers and losses with early stopping: what has a loss at the rung is as good as over."""
        found = self._fidelities.at_common_rung(
            slots,
            np.where(tiers == Tier.COMPLETE, losses, np.nan),
            is_resting=self._resting[slots],
            enough=len(self._encoding) + 1,
        )
        compared = ~np.isnan(found) & (tiers != Tier.FAILED)
        return np.where(compared, Tier.COMPLETE, tiers), np.where(compared, found, losses)

    def _judge(self, trial: Trial) -> tuple[Tier, Floats]:
        nothing = np.full(len(self._signs), math.inf)
        if not trial.state.is_final:
            return Tier.UNFINISHED, nothing
        if trial.state is TrialState.FAILED or not np.isfinite(trial.values or math.nan).all():
            return Tier.FAILED, nothing
        if trial.state is TrialState.PRUNED:
            # Its last report may lack some of the objectives.
            return Tier.PRUNED, np.full(len(self._signs), self._signs[0] * trial.values[0])
        if len(trial.values) != len(self._signs):
            return Tier.FAILED, nothing
        return Tier.COMPLETE, self._signs * np.array(trial.values)


def _losses(tiers: Integers, costs: Floats, violations: Floats) -> Floats:
    """One loss for each observation, to be compared within its tier."""
    losses = costs[:, 0].copy()
    complete = tiers == Tier.COMPLETE
    kept, broken = complete & (violations == 0.0), complete & (violations > 0.0)
    if costs.shape[1] > 1:
        losses[kept] = pareto_losses(costs[kept])
    if broken.any():
        worst, best = (losses[kept].max(), losses[kept].min()) if kept.any() else (0.0, 0.0)
        # What breaks a constraint by as much as the bound is worse than the worst by the spread.
        losses[broken] = worst + ((worst - best) or 1.0) * violations[broken]
    return losses


def _doubled(array: NDArray[_Number]) -> NDArray[_Number]:
    return np.concatenate([array, np.zeros_like(array)])

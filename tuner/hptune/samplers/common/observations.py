"""Trials as scored observations, from which model-based samplers learn.

There is one observation for each configuration. A configuration that was measured several times
(a repeated start point, a confirmed best trial) is one observation with the mean of its
measurements, so that noise is averaged and nothing counts twice.

With early stopping, all trials are compared at one rung (`Fidelities`). Several objectives become
one loss (`pareto`, if the sampler has no other way). Complete trials that violate a constraint have
higher losses than all feasible ones, increasing with the violation.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from ...core.trial import Direction, Trial, TrialState
from .encoding import Booleans, Encoding, Floats, Integers
from .pareto import pareto_losses

LARGEST = 1e300
"""Losses and violations beyond this are equal, so that their sums are finite."""

_INITIAL_CAPACITY = 64
"""Trials; arrays double when they are full."""


@overload
def bounded(losses: float) -> float: ...
@overload
def bounded(losses: Floats) -> Floats: ...
def bounded(losses: float | Floats) -> float | Floats:
    """Return losses within plus or minus `LARGEST`."""
    if isinstance(losses, np.ndarray):
        return np.clip(losses, -LARGEST, LARGEST)
    return min(max(losses, -LARGEST), LARGEST)


class Tier(enum.IntEnum):
    """Rank of observations, compared before their losses; the lowest is the best."""

    COMPLETE = 0
    """Its loss is comparable: of a complete trial, or at the common rung."""
    PRUNED = 1
    """Stopped early without a loss at the common rung."""
    FAILED = 2
    UNFINISHED = 3
    """Waiting, running or paused."""


@dataclass(frozen=True, slots=True, eq=False)
class Observations:
    """All observed configurations, ordered by the number of their first trial.

    Attributes:
        rows: Their rows (n x columns), from `Encoding.encode`.
        tiers: Their `Tier`s (n).
        losses: Their losses (n), comparable within a tier; lower is better. Infinite in the tiers
            FAILED and UNFINISHED.
        counts: Number of trials that each is the mean of (n), 1 or more.
    """

    rows: Floats
    tiers: Integers
    losses: Floats
    counts: Integers

    @property
    def finished(self) -> int:
        """Number of observations that are not UNFINISHED."""
        return int((self.tiers != Tier.UNFINISHED).sum())

    @property
    def valued(self) -> int:
        """Number of observations with a finite loss."""
        return int((self.tiers < Tier.FAILED).sum())

    @property
    def failed(self) -> int:
        """Number of observations that are FAILED."""
        return int((self.tiers == Tier.FAILED).sum())

    def __len__(self) -> int:
        return len(self.tiers)


class History:
    """The trials that a sampler was told. Their order does not matter."""

    def __init__(self, encoding: Encoding, *, directions: Sequence[Direction]) -> None:
        self._encoding = encoding
        self._signs = np.array([direction.sign for direction in directions])
        self._slots: dict[int, int] = {}
        self._groups: dict[bytes, int] = {}
        self._trials = np.zeros(
            _INITIAL_CAPACITY,
            dtype=[
                ("number", np.intp),
                ("group", np.intp),
                ("row", np.float64, (len(encoding),)),
                ("tier", np.intp),
                ("costs", np.float64, (len(directions),)),
                ("violation", np.float64),
                ("is_stopped", np.bool_),
            ],
        )
        self._fidelities = [Fidelities() for _ in directions]

    def tell(self, trial: Trial) -> None:
        """Add a trial, or update it. A configuration outside the space is ignored."""
        row = self._encoding.encode(trial.params)
        if row is None:
            return
        slot = self._slots.setdefault(trial.number, len(self._slots))
        if slot == len(self._trials):
            self._trials = np.concatenate([self._trials, np.zeros_like(self._trials)])
        tier, costs = self._scored(trial)
        self._trials[slot] = (
            trial.number,
            self._groups.setdefault(row.tobytes(), len(self._groups)),
            row,
            tier,
            costs,
            bounded(trial.violation),
            trial.state in (TrialState.PRUNED, TrialState.PAUSED),
        )
        for j, fidelities in enumerate(self._fidelities):
            sign = float(self._signs[j])
            losses = {step: bounded(sign * at[j]) for step, at in trial.rungs.items()}
            fidelities.record(slot, losses)

    @property
    def has_rungs(self) -> bool:
        """Whether trials are compared at rungs, as with early stopping."""
        return bool(self._fidelities[0])

    def observations(self) -> Observations:
        """Return the observations in new arrays."""
        return self._observed(slice(None))

    def of_objective(self, objective: int) -> Observations:
        """Return the observations of one of the objectives in new arrays."""
        return self._observed(slice(objective, objective + 1))

    def _observed(self, objectives: slice) -> Observations:
        order = np.argsort(self._trials["number"][: len(self._slots)])
        trials = self._trials[order]
        rows, tiers, costs = trials["row"], trials["tier"], trials["costs"]
        violations = trials["violation"]
        if self.has_rungs:
            # At a rung, only epochs that break no constraint have values (`Trial.rungs`).
            violations = np.where(tiers == Tier.COMPLETE, violations, 0.0)
            tiers, costs = self._at_common_rung(order, tiers, costs)
        costs = costs[:, objectives]
        _, first, which = np.unique(trials["group"], return_index=True, return_inverse=True)
        if len(first) == len(order):
            losses = _losses(tiers, costs, violations)
            return Observations(rows, tiers, losses, np.ones_like(tiers))
        # A configuration has the best tier of its trials: after a failure and a measurement it
        # counts as measured.
        best_tiers = np.full(len(first), max(Tier), dtype=np.intp)
        np.minimum.at(best_tiers, which, tiers)
        counted = tiers == best_tiers[which]
        counts = np.bincount(which[counted], minlength=len(first))
        by_number = np.argsort(first)

        def means(values: Floats) -> Floats:
            sums = np.bincount(which[counted], values[counted], minlength=len(first))
            found: Floats = (sums / counts)[by_number]
            return found

        best_tiers = best_tiers[by_number]
        mean_costs = np.column_stack([means(column) for column in costs.T])
        return Observations(
            rows[first[by_number]],
            best_tiers,
            _losses(best_tiers, mean_costs, means(violations)),
            counts[by_number],
        )

    def _at_common_rung(
        self, slots: Integers, tiers: Integers, costs: Floats
    ) -> tuple[Integers, Floats]:
        """Return tiers and costs with early stopping; costs at the common rung are COMPLETE."""
        found = np.column_stack(
            [
                fidelities.at_common_rung(
                    slots,
                    np.where(tiers == Tier.COMPLETE, column, np.nan),
                    is_stopped=self._trials["is_stopped"][slots],
                    enough=len(self._encoding) + 1,
                )
                for fidelities, column in zip(self._fidelities, costs.T, strict=True)
            ]
        )
        compared = ~np.isnan(found).any(axis=1) & (tiers != Tier.FAILED)
        return (
            np.where(compared, Tier.COMPLETE, tiers),
            np.where(compared[:, np.newaxis], found, costs),
        )

    def _scored(self, trial: Trial) -> tuple[Tier, Floats]:
        nothing = np.full(len(self._signs), math.inf)
        if not trial.state.is_final:
            return Tier.UNFINISHED, nothing
        if trial.state is TrialState.FAILED or not np.isfinite(trial.values or math.nan).all():
            return Tier.FAILED, nothing
        if trial.state is TrialState.PRUNED:
            # Its last report may lack some objectives: they count as what is usual (`comparable`).
            costs = np.full(len(self._signs), -LARGEST)
            known = len(trial.values)
            costs[:known] = bounded(self._signs[:known] * np.array(trial.values))
            return Tier.PRUNED, costs
        if len(trial.values) != len(self._signs):
            return Tier.FAILED, nothing
        return Tier.COMPLETE, bounded(self._signs * np.array(trial.values))


def _losses(tiers: Integers, costs: Floats, violations: Floats) -> Floats:
    """Return one loss for each observation, comparable within its tier."""
    losses = costs[:, 0].copy()
    complete = tiers == Tier.COMPLETE
    feasible, violating = complete & (violations == 0.0), complete & (violations > 0.0)
    if costs.shape[1] > 1:
        losses[feasible] = pareto_losses(costs[feasible])
    if violating.any():
        worst, best = (
            (losses[feasible].max(), losses[feasible].min()) if feasible.any() else (0.0, 0.0)
        )
        # A violation of 1 (by as much as the bound) adds the spread of the feasible losses.
        with np.errstate(over="ignore"):
            added = ((worst - best) or 1.0) * violations[violating]
        losses[violating] = bounded(worst + added)
    return losses


class Fidelities:
    """Losses of all trials at all rungs, and their comparison at one rung.

    With early stopping, most trials have values at the lower rungs only. Ranking trials first by
    their last rung favours early trials, which had no competitors that could stop them. Comparing
    values regardless of the epoch favours long trainings. Therefore all are compared at one rung.

    The common rung is the highest that enough trials have reached; the end of the training is
    the last rung. This follows BOHB (Falkner et al. 2018, "BOHB: robust and efficient
    hyperparameter optimization at scale", algorithm 2, where one more than the number of
    parameters is enough). Trials that reached it count with their loss there.

    BOHB ignores the other trials. Here, a trial that stopped earlier counts with a predicted
    loss: that of the trials with the same loss at the rung where it stopped, which went on
    (interpolated by a non-decreasing function). So stopped trials show the model which regions
    are poor from the first rung on.

    The caller identifies trials by slot numbers.
    """

    def __init__(self) -> None:
        self._losses: dict[int, dict[int, float]] = {}  # by rung and slot

    def __bool__(self) -> bool:
        return bool(self._losses)

    def record(self, slot: int, losses: Mapping[int, float]) -> None:
        """Record a trial's losses, by rung, in place of those of before."""
        for step in [each for each in self._losses if each not in losses]:
            self._losses[step].pop(slot, None)
            if not self._losses[step]:
                del self._losses[step]
        for step, loss in losses.items():
            self._losses.setdefault(step, {})[slot] = loss

    def at_common_rung(
        self, slots: Integers, finals: Floats, *, is_stopped: Booleans, enough: int
    ) -> Floats:
        """Return the losses of these trials at the common rung.

        Args:
            slots: The trials (n).
            finals: Their losses at the end of the training (n); NaN if not reached.
            is_stopped: Whether they were stopped or paused (n). Only the losses of these are
                predicted.
            enough: Number of trials that a rung needs to be the common one.

        Returns:
            Their losses (n), NaN if unknown.
        """
        rungs = [losses for _, losses in sorted(self._losses.items())]
        columns = ([losses.get(slot, np.nan) for slot in slots.tolist()] for losses in rungs)
        known = np.vstack([*columns, finals])
        counts = (~np.isnan(known)).sum(axis=1)
        chosen = max((k for k in range(len(known)) if counts[k] >= enough), default=0)
        found: Floats = known[chosen].copy()
        reached = ~np.isnan(found)
        for k in range(chosen - 1, -1, -1):
            stopped = np.isnan(found) & ~np.isnan(known[k]) & is_stopped
            went_on = reached & ~np.isnan(known[k])
            if stopped.any() and went_on.any():
                found[stopped] = _projected(
                    known[k, stopped], known[k, went_on], known[chosen, went_on]
                )
        return found


def _projected(losses: Floats, before: Floats, after: Floats) -> Floats:
    """Predict losses at a higher rung from the trials that were measured at both rungs.

    A loss above the worst of these keeps its distance to the worst.
    """
    order = np.argsort(before, kind="stable")
    before, after = before[order], np.maximum.accumulate(after[order])
    excess = np.maximum(0.0, losses - before[-1])
    found: Floats = np.interp(losses, before, after) + excess
    return found

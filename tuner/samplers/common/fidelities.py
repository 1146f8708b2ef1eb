"""Losses that were measured after different numbers of epochs, on one scale.

With early stopping, most trials have a value at the lower rungs only, and few at the end. To
order trials by how far they came, and only then by their values, makes early trials look good that
nobody had been there to stop; and to compare values whatever their epoch makes long trainings look
good. Instead all are compared at one rung.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .encoding import Booleans, Floats, Integers

_INITIAL_CAPACITY = 64


class Fidelities:
    """What every trial had at each rung, and what follows from that at one of them.

    The rung is the highest that enough trials have reached, the end of the training included
    (BOHB: Falkner et al. 2018, "BOHB: robust and efficient hyperparameter optimization at scale",
    algorithm 2, where enough is one more than there are parameters). Trials that reached it count
    with what they had there, also those that went on.

    BOHB's models know nothing of the others. Here, what was stopped before counts, too, with the
    loss that it would probably have had: as much as the trials that had as much at the rung where
    it stopped and did go on (interpolated, and never less for having had more). So stopped trials
    tell the model which regions are poor, from the first rung on.

    Trials have slots, as their caller numbers them.
    """

    def __init__(self) -> None:
        self._columns: dict[int, Floats] = {}

    def __bool__(self) -> bool:
        return bool(self._columns)

    def record(self, slot: int, losses: Mapping[int, float]) -> None:
        """Take note of a trial's losses, by rung."""
        for step, loss in losses.items():
            column = self._columns.setdefault(step, np.full(_INITIAL_CAPACITY, np.nan))
            while slot >= len(column):
                column = np.concatenate([column, np.full(len(column), np.nan)])
            self._columns[step] = column
            column[slot] = loss

    def at_common_rung(
        self, slots: Integers, finals: Floats, *, is_resting: Booleans, enough: int
    ) -> Floats:
        """The losses of these trials where most is known of them.

        Args:
            slots: The trials (n).
            finals: Their losses at the end of the training (n); NaN for those not trained so far.
            is_resting: Which of them were stopped or paused, so that more may never be known (n).
            enough: With so many trials a rung can be learned from.

        Returns:
            Their losses (n), NaN where nothing can be said.
        """
        steps = sorted(self._columns)
        known = np.vstack([*(self._at(step, slots) for step in steps), finals])
        counts = (~np.isnan(known)).sum(axis=1)
        chosen = max((k for k in range(len(known)) if counts[k] >= enough), default=0)
        found: Floats = known[chosen].copy()
        reached = ~np.isnan(found)
        for k in range(chosen - 1, -1, -1):
            stopped = np.isnan(found) & ~np.isnan(known[k]) & is_resting
            went_on = reached & ~np.isnan(known[k])
            if stopped.any() and went_on.any():
                found[stopped] = _projected(
                    known[k, stopped], known[k, went_on], known[chosen, went_on]
                )
        return found

    def _at(self, step: int, slots: Integers) -> Floats:
        column = self._columns[step]
        found: Floats = np.where(
            slots < len(column), column[np.minimum(slots, len(column) - 1)], np.nan
        )
        return found


def _projected(losses: Floats, before: Floats, after: Floats) -> Floats:
    """What losses at a lower rung would become, from the trials that were measured at both.

    Beyond the worst of these, a loss stays as much worse as it was.
    """
    order = np.argsort(before, kind="stable")
    before, after = before[order], np.maximum.accumulate(after[order])
    excess = np.maximum(0.0, losses - before[-1])
    found: Floats = np.interp(losses, before, after) + excess
    return found

"""Comparison of losses that were measured after different numbers of epochs.

With early stopping, most trials have values at the lower rungs only. Ranking trials first by
their last rung favours early trials, which had no competitors that could stop them. Comparing
values regardless of the epoch favours long trainings. Therefore all are compared at one rung.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .encoding import Booleans, Floats, Integers


class Fidelities:
    """Losses of all trials at all rungs, and their comparison at one rung.

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

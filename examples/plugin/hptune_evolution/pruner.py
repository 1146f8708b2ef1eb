"""Stops the worse half of the trials at one epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hptune import UsageError
from hptune.core.pruner import Decision, Pruner
from hptune.core.trial import Direction, TrialState


def check(*, directions: Sequence[Direction], epochs: int | None, at_epoch: int = 3) -> None:
    """Check the options, before anything is made."""
    if len(directions) > 1:
        raise UsageError(f"better-half compares by one objective, and there are {len(directions)}")
    if epochs is not None and at_epoch >= epochs > 1:
        raise UsageError(f"at_epoch is {at_epoch}, but a trial trains {epochs} epochs; name fewer")


class BetterHalfPruner(Pruner):
    """A trial goes on if at `at_epoch` it is in the better half of those that came so far."""

    def __init__(
        self, *, directions: Sequence[Direction], epochs: int | None, at_epoch: int = 3
    ) -> None:
        check(directions=directions, epochs=epochs, at_epoch=at_epoch)
        self._sign = directions[0].sign
        self._at = at_epoch
        self._losses: dict[int, dict[int, float]] = {}
        self._passed: set[int] = set()
        self._ended: set[int] = set()

    @property
    def rungs(self) -> tuple[int, ...]:
        return (self._at,)

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        if trial not in self._ended:
            losses = self._losses.setdefault(trial, {})
            losses[step] = min(self._sign * values[0], losses.get(step, math.inf))

    def moved(self, trial: int, state: TrialState) -> None:
        if state is TrialState.RUNNING and self._loss(trial) is not None:
            self._passed.add(trial)
        elif state.is_final:
            self._ended.add(trial)

    def decide(self, trial: int) -> Decision:
        loss = self._loss(trial)
        if loss is None or trial in self._passed or self._is_best(trial):
            return Decision.CONTINUE
        others = [each for each in map(self._loss, self._losses) if each is not None]
        better = sum(other < loss for other in others)
        return Decision.STOP if better >= len(others) / 2 else Decision.CONTINUE

    def promotion(self, *, is_last: bool) -> int | None:  # noqa: ARG002 - it pauses no trial
        return None

    def _loss(self, trial: int) -> float | None:
        """Return the trial's loss at the epoch; None if it has not come there."""
        losses = self._losses.get(trial, {})
        come = [step for step in losses if step >= self._at]
        return min(losses[step] for step in losses if step <= min(come)) if come else None

    def _is_best(self, trial: int) -> bool:
        best = {each: min(losses.values()) for each, losses in self._losses.items()}
        return best[trial] <= min(best.values())

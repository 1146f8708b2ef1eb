"""The median rule: stop a trial that is worse than half of those that went before it."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Sequence

from ..core.pruner import Decision, Pruner
from ..core.trial import Direction, TrialState

WARM_UP_TRIALS = 5


class MedianPruner(Pruner):
    """Stops a trial whose best value by a step is worse than the median of the complete trials'.

    After the median stopping rule of Google Vizier (Golovin et al. 2017, section 3.2.2), which
    compares the trial's best value with the others' running averages; here both sides are the
    best values by the same step, as the study values a trial in the end. Trials that were stopped
    themselves are no measure for others, or each step would halve what the last one left.

    Args:
        direction: Which values are better.
        min_epochs: No trial is judged before this step.
        warm_up_trials: Nor at a step that fewer complete trials than this have reported; at
            least 1.
        rungs: The steps whose values samplers learn from.
    """

    def __init__(
        self,
        *,
        direction: Direction,
        min_epochs: int,
        rungs: Sequence[int],
        warm_up_trials: int = WARM_UP_TRIALS,
    ) -> None:
        self._sign = 1.0 if direction is Direction.MIN else -1.0
        self._min_epochs = min_epochs
        self._warm_up_trials = warm_up_trials
        self._rungs = tuple(rungs)
        self._reported: dict[int, dict[int, float]] = {}
        self._complete: dict[int, array[float]] = {}
        self._passed: dict[int, int] = {}
        self._over: set[int] = set()
        self._best: tuple[float, int] | None = None

    @property
    def rungs(self) -> tuple[int, ...]:
        """The steps whose values samplers learn from."""
        return self._rungs

    def report(self, trial: int, step: int, value: float) -> None:
        """Take note of a trial's value."""
        if trial in self._over:
            return
        loss = self._sign * value
        if self._best is None or (loss, trial) < self._best:
            self._best = (loss, trial)
        reported = self._reported.setdefault(trial, {})
        reported[step] = min(loss, reported.get(step, loss))

    def moved(self, trial: int, state: TrialState) -> None:
        """Take note of where a trial stands."""
        if state in (TrialState.RUNNING, TrialState.WAITING):
            self._passed[trial] = max(self._reported.get(trial, ()), default=0)
        elif state.is_final and trial not in self._over:
            self._over.add(trial)
            reported = self._reported.pop(trial, {})
            self._passed.pop(trial, None)
            if state is TrialState.COMPLETE:
                for step, loss in reported.items():
                    insort(self._complete.setdefault(step, array("d")), loss)

    def decide(self, trial: int) -> Decision:
        """Judge a trial at the last step that it has reported."""
        reported = self._reported.get(trial)
        if not reported or (self._best is not None and self._best[1] == trial):
            return Decision.CONTINUE
        step = max(reported)
        if step < self._min_epochs or step <= self._passed.get(trial, 0):
            return Decision.CONTINUE
        others = self._complete.get(step, ())
        if len(others) < self._warm_up_trials:
            return Decision.CONTINUE
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
        return Decision.STOP if reported[step] > middle else Decision.CONTINUE

    def promotion(self, *, is_last: bool) -> int | None:  # noqa: ARG002 - nobody is paused
        """Nobody is paused."""
        return None

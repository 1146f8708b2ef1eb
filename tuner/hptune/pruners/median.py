"""The median stopping rule."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Sequence

from ..core.pruner import Decision, Pruner
from ..core.trial import Direction, TrialState

WARM_UP_TRIALS = 5
"""Complete trials with a report at a step before trials are judged at that step."""


class MedianPruner(Pruner):
    """Stops a trial whose best value by a step is worse than the complete trials' median there.

    Follows the median stopping rule of Google Vizier (Golovin et al. 2017, section 3.2.2), which
    compares the trial's best value with the others' running averages. Here both sides are the
    best values by the same step, because the study scores trials by their best value. Stopped
    trials do not count in the median; otherwise each step would halve the remaining trials.

    Args:
        direction: Direction of the only objective.
        min_epochs: First step at which trials are judged.
        warm_up_trials: Number of complete trials with a report at a step, 1 or more, before
            trials are judged there.
        rungs: Steps whose values samplers learn from.
    """

    def __init__(
        self,
        *,
        direction: Direction,
        min_epochs: int,
        rungs: Sequence[int],
        warm_up_trials: int = WARM_UP_TRIALS,
    ) -> None:
        self._sign = direction.sign
        self._min_epochs = min_epochs
        self._warm_up_trials = warm_up_trials
        self._rungs = tuple(rungs)
        self._reported: dict[int, dict[int, float]] = {}
        self._complete: dict[int, array[float]] = {}
        self._passed: dict[int, int] = {}
        self._ended: set[int] = set()
        self._best: tuple[float, int] | None = None

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps whose values samplers learn from."""
        return self._rungs

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        """Record a trial's best value by this step."""
        if trial in self._ended:
            return
        loss = self._sign * values[0]
        if self._best is None or (loss, trial) < self._best:
            self._best = (loss, trial)
        reported = self._reported.setdefault(trial, {})
        reported[step] = min(loss, reported.get(step, loss))

    def moved(self, trial: int, state: TrialState) -> None:
        """Record a trial's state."""
        if state in (TrialState.RUNNING, TrialState.WAITING):
            self._passed[trial] = max(self._reported.get(trial, ()), default=0)
        elif state.is_final and trial not in self._ended:
            self._ended.add(trial)
            reported = self._reported.pop(trial, {})
            self._passed.pop(trial, None)
            if state is TrialState.COMPLETE:
                for step, loss in reported.items():
                    insort(self._complete.setdefault(step, array("d")), loss)

    def decide(self, trial: int) -> Decision:
        """Return the decision at the trial's last reported step."""
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

    def promotion(self, *, is_last: bool) -> int | None:  # noqa: ARG002 - no trial is paused
        """Return None: this pruner pauses no trials."""
        return None

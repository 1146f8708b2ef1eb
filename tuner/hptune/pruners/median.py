"""The median stopping rule."""

from __future__ import annotations

from array import array
from bisect import insort
from collections.abc import Sequence

from ..core.pruner import Decision, Pruner, is_exempt
from ..core.trial import Direction, TrialState
from ..errors import UsageError
from .rungs import first_rung, rung_levels

_WARM_UP_TRIALS = 5
"""Complete trials with a report at a step before trials are judged at that step."""


class MedianPruner(Pruner):
    """Stops a trial whose best value by a step is worse than the complete trials' median there.

    Follows the median stopping rule of Google Vizier (Golovin et al. 2017, section 3.2.2), which
    compares the trial's best value with the others' running averages. Here both sides are the
    best values by the same step, because the study scores trials by their best value. Stopped
    trials do not count in the median; otherwise each step would halve the remaining trials. A few
    trials are exempt (`is_exempt`), and count in the median as other complete ones.

    Args:
        directions: Direction of the only objective.
        epochs: The full training of a trial, in steps; None if it is unknown.
        min_epochs: First step at which trials are judged; None for the default
            of `first_rung`.

    Raises:
        UsageError: There are several objectives, or no trial could be stopped.
    """

    def __init__(
        self, directions: Sequence[Direction], *, epochs: int | None, min_epochs: int | None = None
    ) -> None:
        self._min_epochs = first_rung(epochs, min_epochs)
        if len(directions) > 1:
            raise UsageError(
                f"median compares trials by one objective, and there are {len(directions)}; use "
                "--pruner asha or hyperband, or name one objective (and --constraint for the "
                "others)"
            )
        self._sign = directions[0].sign
        self._rungs = rung_levels(self._min_epochs, epochs=epochs)
        self._reported: dict[int, dict[int, float]] = {}
        self._complete: dict[int, array[float]] = {}
        self._passed: dict[int, int] = {}
        self._ended: set[int] = set()

    @property
    def rungs(self) -> tuple[int, ...]:
        """Steps whose values samplers learn from."""
        return self._rungs

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        """Record a trial's best value by this step."""
        if trial in self._ended:
            return
        loss = self._sign * values[0]
        reported = self._reported.setdefault(trial, {})
        reported[step] = min(loss, reported.get(step, loss))

    def moved(self, trial: int, state: TrialState) -> None:
        """Record a trial's state."""
        if state in (TrialState.RUNNING, TrialState.WAITING):
            self._ended.discard(trial)  # a complete one trains on
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
        if not reported or is_exempt(trial):
            return Decision.CONTINUE
        step = max(reported)
        others = self._complete.get(step, ())
        judged = max(self._min_epochs - 1, self._passed.get(trial, 0))
        if step <= judged or len(others) < _WARM_UP_TRIALS:
            return Decision.CONTINUE
        # Worse than this, it is not the best one: half of the others are better.
        middle = (others[(len(others) - 1) // 2] + others[len(others) // 2]) / 2
        return Decision.STOP if reported[step] > middle else Decision.CONTINUE

    def promotion(self, *, is_last: bool) -> int | None:  # noqa: ARG002 - no trial is paused
        """Return None: this pruner pauses no trials."""
        return None

"""A pruner whose faults are told in its name: a plug-in may raise or return anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..core.pruner import Decision, Pruner
from ..core.trial import TrialState
from ..errors import StudyError, faults_of_others


class CheckedPruner(Pruner):
    """Asks a pruner, and refuses what the contract does not allow.

    Args:
        name: What messages call the pruner.
        make: Makes the pruner.

    Raises:
        StudyError: It cannot be made, or it is no pruner.
    """

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name = name
        self._states: dict[int, TrialState] = {}
        with faults_of_others(self._fault):
            made = make()
            if not isinstance(made, Pruner):
                raise self._fault(f"its factory returned {made!r}; it must be a Pruner")
        self._pruner = made

    @property
    def rungs(self) -> tuple[int, ...]:
        """The pruner's rungs."""
        with faults_of_others(self._fault):
            rungs = self._pruner.rungs
            if not isinstance(rungs, tuple) or not all(
                type(each) is int and each > before
                for before, each in zip((0, *rungs), rungs, strict=False)
            ):
                raise self._fault(f"rungs is {rungs!r}; it must be a tuple of ascending steps")
        return rungs

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        """Tell the pruner."""
        with faults_of_others(self._fault):
            self._pruner.report(trial, step, values)

    def moved(self, trial: int, state: TrialState) -> None:
        """Tell the pruner."""
        self._states[trial] = state
        with faults_of_others(self._fault):
            self._pruner.moved(trial, state)

    def decide(self, trial: int) -> Decision:
        """Return the pruner's decision."""
        with faults_of_others(self._fault):
            decision = self._pruner.decide(trial)
            if not isinstance(decision, Decision):
                raise self._fault(f"decide returned {decision!r}; it must be a Decision")
        return decision

    def promotion(self, *, is_last: bool) -> int | None:
        """Return the pruner's choice of a paused trial."""
        with faults_of_others(self._fault):
            trial = self._pruner.promotion(is_last=is_last)
            if trial is not None and (
                type(trial) is not int or self._states.get(trial) is not TrialState.PAUSED
            ):
                raise self._fault(f"promotion returned {trial!r}, which is no paused trial")
        return trial

    def _fault(self, words: str, detail: str = "") -> StudyError:
        return StudyError(
            f"the pruner {self._name} failed: {words}. Finished trials are kept: correct it and "
            "use `hptune resume`",
            detail,
        )

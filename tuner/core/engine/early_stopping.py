"""What the study's pruner is told of its trials, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..pruner import Decision, NeverPrune, Pruner, PrunerMaker, PrunerSettings, never_prune
from ..trial import Direction, Goal, Trial, TrialState
from .records import TrialRecord


class EarlyStopping:
    """Stands between a study and its pruner, which may be another one in the midst of the study.

    Trials that confirm are none of its business: they are to be measured, however poor they are.

    Args:
        make_pruner: Makes the pruner that a study's settings name.
    """

    def __init__(self, make_pruner: PrunerMaker = never_prune) -> None:
        self._make_pruner = make_pruner
        self._pruner: Pruner = NeverPrune()
        self._goal = Goal("", Direction.MAX)
        self._settings: PrunerSettings | None = None

    def renew(
        self, settings: PrunerSettings, goal: Goal, records: Iterable[TrialRecord]
    ) -> Iterator[tuple[TrialRecord, Decision]]:
        """Prune by these settings from now on; all that is known is told to another pruner.

        Yields:
            A paused trial, and what becomes of it by the new settings: it is to be carried out
            (and `moved` told of it) before the next is decided on.
        """
        if (self._settings, self._goal) == (settings, goal):
            return
        self._settings, self._goal = settings, goal
        self._pruner = self._make_pruner(settings, goal)
        records = list(records)
        for record in records:
            if record.trial.confirms is not None:
                continue
            for step, value in record.trial.rungs.items():
                self._pruner.report(record.trial.number, step, value)
            if record.last_step:
                self._pruner.report(record.trial.number, record.last_step, self._value(record))
            if record.trial.state is not TrialState.PAUSED:
                self._pruner.moved(record.trial.number, record.trial.state)
        for record in records:
            if record.trial.state is TrialState.PAUSED:
                decision = self._pruner.decide(record.trial.number)
                if decision is Decision.PAUSE:
                    self._pruner.moved(record.trial.number, TrialState.PAUSED)
                else:
                    yield record, decision

    def report(self, record: TrialRecord, *, since: int) -> Mapping[int, float]:
        """A trial came further.

        Args:
            record: The trial, with its last step and its best value.
            since: The step at which it was before.

        Returns:
            The rungs that it reached by this, with the value that it has there, if it has one.
        """
        step, best = record.last_step, record.best_value
        self._pruner.report(record.trial.number, step, self._value(record))
        if best is None:
            return {}
        return {rung: best for rung in self._pruner.rungs if since < rung <= step}

    def _value(self, record: TrialRecord) -> float:
        return self._goal.direction.worst if record.best_value is None else record.best_value

    def decide(self, trial: Trial) -> Decision:
        """What a running trial is to do; one that may go on is let through for good."""
        decision = self._pruner.decide(trial.number)
        if decision is Decision.CONTINUE:
            self._pruner.moved(trial.number, TrialState.RUNNING)
        return decision

    def moved(self, trial: Trial) -> None:
        """A trial stands elsewhere: it rests, is over, or is to go on although it rested."""
        if trial.confirms is None:
            self._pruner.moved(trial.number, trial.state)

    def promotion(self, *, is_last: bool) -> int | None:
        """The paused trial that deserves a free place most, if one does."""
        return self._pruner.promotion(is_last=is_last)

"""The link between a study and its pruner."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from ..pruner import Decision, NeverPrune, Pruner, PrunerMaker, PrunerSettings
from ..trial import Goal, Trial, TrialState
from .records import TrialRecord


class EarlyStopping:
    """Reports trials to the pruner, and asks it for decisions. A new master may change the pruner.

    Repeats that confirm a configuration are never pruned: they measure it, however poor it is.
    """

    def __init__(self, make_pruner: PrunerMaker) -> None:
        self._make_pruner = make_pruner
        self._pruner: Pruner = NeverPrune()
        self._objectives: Sequence[Goal] = ()
        self._settings: PrunerSettings | None = None

    def forget(self) -> None:
        """Let the next `renew` make a new pruner, as records no longer hold all that was reported.

        A pruner cannot take back what it was told of a trial.
        """
        self._settings = None

    def renew(
        self,
        settings: PrunerSettings,
        objectives: Sequence[Goal],
        records: Iterable[TrialRecord],
    ) -> Iterator[tuple[TrialRecord, Decision]]:
        """Change the pruner's settings; a new pruner receives all that is known.

        Yields:
            A paused trial that does not stay paused, and the decision on it. The caller carries
            it out and calls `moved` before it asks for the next.
        """
        if (self._settings, self._objectives) == (settings, objectives):
            return
        self._settings, self._objectives = settings, objectives
        self._pruner = self._make_pruner(settings, objectives)
        records = [record for record in records if record.trial.confirms is None]
        for record in records:
            for step in itertools.chain(*record.compared_steps):
                self._pruner.report(record.trial.number, step, record.best_by(step))
            if record.trial.state is not TrialState.PAUSED:
                self._pruner.moved(record.trial.number, record.trial.state)
        for record in records:
            if record.trial.state is TrialState.PAUSED:
                decision = self._pruner.decide(record.trial.number)
                if decision is Decision.PAUSE:
                    self._pruner.moved(record.trial.number, TrialState.PAUSED)
                else:
                    yield record, decision

    @property
    def rungs(self) -> tuple[int, ...]:
        """The pruner's rungs."""
        return self._pruner.rungs

    def report(self, record: TrialRecord, *, since: int) -> list[int]:
        """Report a trial's progress.

        Args:
            record: The trial, after a report that it is compared by.
            since: The step of the last such report before.

        Returns:
            The rungs that the trial has reached by this.
        """
        step = record.compared_step
        self._pruner.report(record.trial.number, step, record.best_by(step))
        return [rung for rung in self._pruner.rungs if since < rung <= step]

    def decide(self, trial: Trial) -> Decision:
        """Return the decision on a running trial; it has passed its rung if it continues."""
        decision = self._pruner.decide(trial.number)
        if decision is Decision.CONTINUE:
            self._pruner.moved(trial.number, TrialState.RUNNING)
        return decision

    def moved(self, trial: Trial) -> None:
        """Report that a trial's state has changed."""
        if trial.confirms is None:
            self._pruner.moved(trial.number, trial.state)

    def promotion(self, *, is_last: bool) -> int | None:
        """Return the paused trial to promote next; None if there is none."""
        return self._pruner.promotion(is_last=is_last)

"""Retention: the models and checkpoints to keep, and those to discard."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from ..goals import Goals
from ..messages import Command, Discard, KeepBest
from ..ranking import Ranking
from ..trial import Trial, TrialState


class Retention:
    """Keeps the models of the best trials, and the last checkpoints of a few good ones.

    A complete trial may train on from its checkpoint, unless it ended by itself before its last
    epoch: it would do so again. Its checkpoint is kept for its model alone, and takes no place of
    another one's. A trial that trains on keeps its old result until it has a better one, and its
    files are not touched meanwhile.

    Attributes:
        ranking: Which trials are the best, and whose models are kept.
        limit: How many of the best complete trials keep their last checkpoint, and how many of
            those that can train on.
        ended_early: The complete trials that ended by themselves before their last epoch.
    """

    def __init__(self, goals: Goals) -> None:
        self.ranking = Ranking(goals)
        self.limit = 0
        self.ended_early: set[int] = set()
        self._goals = goals
        # The best complete trials, best first, whose last checkpoints are kept.
        self._checkpoints: list[tuple[float, float, int]] = []
        self._training_on: set[int] = set()

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The complete trials whose last checkpoint is kept and not in use, the best first."""
        return tuple(n for *_, n in self._checkpoints if n not in self._training_on)

    @property
    def able_to_go_on(self) -> tuple[int, ...]:
        """Those of them that can train on."""
        return tuple(n for n in self.checkpoints if n not in self.ended_early)

    def set_limit(self, checkpoints: int, training_on: Iterable[int]) -> list[Command]:
        """Change how many last checkpoints are kept."""
        self.limit = checkpoints
        self._training_on.update(training_on)
        return [Discard(number) for number in sorted(self._drop_checkpoints())]

    def ended(self, trial: Trial, *, ended_early: bool) -> list[Command]:
        """Keep the model of an ended trial if it is one of the best; discard what is not needed."""
        ranking = self.ranking
        best, kept = ranking.best, ranking.kept
        self._training_on.discard(trial.number)
        ranking.ended(trial)
        commands: list[Command] = [KeepBest(ranking.best)] if ranking.best != best else []
        if trial.state is TrialState.COMPLETE and trial.confirms is None:
            self._checkpoints = [
                checkpoint for checkpoint in self._checkpoints if checkpoint[-1] != trial.number
            ]
            if ended_early:
                self.ended_early.add(trial.number)
            key = self._goals.first_goal_key(trial.score)
            insort(self._checkpoints, (trial.violation, key, trial.number))
        unneeded = {*kept, trial.number} - ranking.kept
        unneeded |= self._drop_checkpoints()
        commands.extend(map(self._discard, sorted(unneeded - self._training_on)))
        return commands

    def no_better(self, trial: Trial) -> list[Command]:
        """Discard what a trial left that trained on without a better result.

        If it is one of the best, `KeepBest` has put its model away.
        """
        self._training_on.discard(trial.number)
        return [self._discard(trial.number)]

    def _discard(self, number: int) -> Discard:
        return Discard(number, any(n == number for *_, n in self._checkpoints))

    def _drop_checkpoints(self) -> set[int]:
        """Drop the checkpoints beyond the limit; return the trials whose files can be discarded.

        Some may be of the best trials: `KeepBest` has put their models away.
        """
        able = [each for each in self._checkpoints if each[-1] not in self.ended_early]
        kept = {*self._checkpoints[: self.limit], *able[: self.limit]}
        dropped = {number for *_, number in set(self._checkpoints) - kept}
        self._checkpoints = [each for each in self._checkpoints if each in kept]
        # If none are kept, `KeepBest` leaves none behind.
        untouched = self._training_on if self.limit else self._training_on | self.ranking.kept
        return dropped - untouched

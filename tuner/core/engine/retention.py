"""Which trials' models and checkpoints are kept, and which are thrown away."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from ..goals import Goals
from ..messages import Command, Discard, KeepBest
from ..ranking import Ranking
from ..trial import Score, Trial, TrialState


class Retention:
    """Keeps the models of the best trials, and the last checkpoints of a few good ones.

    A complete trial may train on from its checkpoint, unless it ended by itself before it had all
    its epochs: it would do so again. Until it is better for that, it stands by the result that it
    had, and what it left is not touched.

    Args:
        goals: What is better.
    """

    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        self._ranking = Ranking(goals)
        self._limit = 0
        # The best complete trials, best first, whose last checkpoints are kept.
        self._checkpoints: list[tuple[float, float, int]] = []
        self._training_on: set[int] = set()
        self._ended_early: set[int] = set()

    # --- what counts ------------------------------------------------------------------------

    @property
    def front(self) -> tuple[Trial, ...]:
        """The best trials so far, the first goal's best first; one at most for one goal."""
        return self._ranking.best

    @property
    def scores(self) -> tuple[Score, ...]:
        """What counts of each of them."""
        return self._ranking.scores

    @property
    def models(self) -> frozenset[int]:
        """The trials whose models are needed, or may be."""
        return self._ranking.kept

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """The complete trials whose last checkpoint is kept, the best first."""
        return tuple(n for *_, n in self._checkpoints if n not in self._training_on)

    @property
    def ended_early(self) -> frozenset[int]:
        """The complete trials that ended by themselves before they had all their epochs."""
        return frozenset(self._ended_early)

    @property
    def limit(self) -> int:
        """Of how many complete trials the last checkpoint is kept."""
        return self._limit

    def wanting(self, count: int, repeats: int) -> list[Trial]:
        """The trials to be confirmed, each as often as it still needs, the best first."""
        return self._ranking.wanting(count, repeats)

    # --- what happens -----------------------------------------------------------------------

    def set_limit(self, checkpoints: int, training_on: Iterable[int]) -> list[Command]:
        """Keep so many last checkpoints from now on; and these trials train on from theirs."""
        self._limit = checkpoints
        self._training_on.update(training_on)
        return [Discard(number) for number in sorted(self._drop_checkpoints())]

    def expect(self, trial: Trial) -> None:
        """There is this trial."""
        self._ranking.expect(trial)

    def over(self, trial: Trial, *, ended_early: bool) -> list[Command]:
        """A trial is over: keep its model if it is one of the best, and no other's.

        Args:
            trial: The trial.
            ended_early: Whether it has trained fewer epochs than it might have.
        """
        best, kept = self.front, self.models
        self._training_on.discard(trial.number)
        self._ranking.over(trial)
        commands: list[Command] = [KeepBest(self.front)] if self.front != best else []
        if trial.state is TrialState.COMPLETE and trial.confirms is None:
            self._checkpoints = [each for each in self._checkpoints if each[-1] != trial.number]
            if ended_early:
                self._ended_early.add(trial.number)
            else:
                insort(self._checkpoints, self._standing(trial))
        needless = {*kept, trial.number} - self.models
        needless |= self._drop_checkpoints()
        commands.extend(map(self._discard, sorted(needless - self._training_on)))
        return commands

    def no_better(self, trial: Trial) -> list[Command]:
        """A trial trained on and is what it was before; what the attempt left is worthless.

        If it is one of the best, its model is in a safer place.
        """
        self._training_on.discard(trial.number)
        return [self._discard(trial.number)]

    def _discard(self, number: int) -> Discard:
        return Discard(number, any(n == number for *_, n in self._checkpoints))

    def _standing(self, trial: Trial) -> tuple[float, float, int]:
        return trial.violation, self._goals.first_goal_key(trial.score), trial.number

    def _drop_checkpoints(self) -> set[int]:
        """Keep no more checkpoints of complete trials than are wanted; returns whose are not.

        One of the best may be among them: its model is in a safer place.
        """
        dropped = {number for *_, number in self._checkpoints[self._limit :]}
        del self._checkpoints[self._limit :]
        # Where none are kept, `KeepBest` leaves none behind.
        untouched = self._training_on if self._limit else self._training_on | self.models
        return dropped - untouched

    # --- for the doubtful -------------------------------------------------------------------

    def validate(self, trials: Iterable[Trial]) -> None:
        """Check that the best of these trials, with the results that they have, are the best.

        Raises:
            AssertionError: They are not.
        """
        complete = [trial for trial in trials if trial.state is TrialState.COMPLETE]
        scores = {(trial.number, trial.score) for trial in complete}
        for trial in self.front:
            if (trial.number, trial.score) not in scores or trial.number not in self.models:
                raise AssertionError(f"trial {trial.number} is one of the best, and not complete")
        if self._ranking.confirmed:
            return
        best = [trial.score for trial in self.front]
        for trial in complete:
            if trial.confirms is None and self._goals.is_nondominated(trial.score, best):
                raise AssertionError(f"trial {trial.number} is better than the best, {self.front}")

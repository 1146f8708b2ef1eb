"""The ranking of trials: which are the best, and whose models are kept.

The engine and the readers of a ledger use the same class, so they never disagree.
"""

from __future__ import annotations

import heapq
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .attempt import Attempt
from .goals import Goals
from .trial import Score, Trial, TrialState


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A configuration that was trained again, with other seeds.

    Attributes:
        trials: All complete trials of it, the first one first.
        failed: Number of repeats that failed.
        mean: The mean of the repeats' scores; the first trial's score if no repeat is complete. The
            first score is left out otherwise: it was chosen for being high among many, so it is
            partly luck (the winner's curse).
        deviations: The standard deviation of the repeats' values for each objective (n - 1 in the
            denominator); 0 if there is one repeat.
    """

    trials: tuple[Trial, ...]
    failed: int
    mean: Score
    deviations: tuple[float, ...]

    @property
    def counted(self) -> tuple[Trial, ...]:
        """The trials that `mean` is taken over."""
        return self.trials[1:] or self.trials


class Ranking:
    """The best trials of a study, kept up to date.

    They are ranked by their values at first: with one objective the best trial, of equally good
    ones the first to end; with several the Pareto front. Once configurations are confirmed
    (trained again, see `to_confirm`), they are ranked by the means of the repeats, as the value
    that they were chosen by may be luck. Configurations with failed repeats come last.

    Attributes:
        confirmed: All confirmed configurations, by the number of their first trial.
    """

    def __init__(self, goals: Goals) -> None:
        self._goals = goals
        self._complete: dict[int, Trial] = {}
        self._expected: dict[int, set[int]] = {}
        self._repeats: dict[int, list[Trial]] = {}
        self.confirmed: dict[int, Confirmation] = {}
        self._best: list[tuple[Score, Trial]] = []
        self._pending: set[int] = set()

    @classmethod
    def of(cls, goals: Goals, trials: Iterable[Trial], attempts: Iterable[Attempt]) -> Ranking:
        """Return the ranking of a ledger's trials, taken in the order of their results.

        A trial that trains on counts with the result that it has.
        """
        ended_at: dict[int, float] = {}
        finished: set[int] = set()
        for attempt in sorted(attempts, key=lambda attempt: attempt.id):
            if attempt.has_result or attempt.id.trial not in finished:
                ended_at[attempt.id.trial] = attempt.ended_at or math.inf
            if attempt.has_result:
                finished.add(attempt.id.trial)
        ranking = cls(goals)
        # A repeat that was stopped before it began has no attempt; its configuration came before.
        ordered = sorted(
            (_with_its_result(trial) if trial.number in finished else trial for trial in trials),
            key=lambda t: (
                ended_at.get(t.number, 0.0 if t.confirms is None else math.inf),
                t.number,
            ),
        )
        for trial in ordered:
            ranking.expect(trial)
        for trial in ordered:
            ranking.ended(trial)
        return ranking

    # --- in -----------------------------------------------------------------------------------

    def expect(self, trial: Trial) -> None:
        """Record a new trial; the configuration that it confirms waits for its end."""
        if trial.confirms is not None:
            self._expected.setdefault(trial.confirms, set()).add(trial.number)

    def ended(self, trial: Trial) -> None:
        """Take in a trial that is over; others are ignored."""
        if not trial.state.is_final:
            return
        of = trial.confirms
        if of is not None and of in self._complete:
            self._repeat(of, trial)
        elif trial.state is TrialState.COMPLETE:
            self._complete[trial.number] = trial
            if not self._is_by_means:
                self._best = self._joined(self._best, trial.score, trial)

    def _repeat(self, of: int, trial: Trial) -> None:
        repeats = self._repeats.setdefault(of, [])
        repeats.append(trial)
        if trial.state is TrialState.COMPLETE:
            self._pending.add(trial.number)
        if len(repeats) < len(self._expected.get(of, ())):
            return
        measured = [repeat for repeat in repeats if repeat.state is TrialState.COMPLETE]
        self.confirmed[of] = _confirmation(
            self._complete[of], measured, failed=len(repeats) - len(measured)
        )
        kept = self.kept
        self._pending.difference_update(repeat.number for repeat in repeats)
        if not self._is_by_means:
            return  # no repeat is complete yet
        means = [each for each in self.confirmed.values() if len(each.trials) > 1]
        fewest = min(each.failed for each in means)
        self._best, before = [], {trial.number: trial for _, trial in self._best}
        for confirmation in means:
            if confirmation.failed == fewest:
                # Prefer a trial whose model is still kept.
                there = [each for each in confirmation.trials if each.number in kept]
                chosen = next((each for each in there if each.number in before), None)
                chosen = chosen or self._first_of(there or confirmation.trials[:1])
                self._best = self._joined(self._best, confirmation.mean, chosen)

    @property
    def _is_by_means(self) -> bool:
        return any(len(each.trials) > 1 for each in self.confirmed.values())

    def _first_of(self, trials: Iterable[Trial]) -> Trial:
        best: list[tuple[Score, Trial]] = []
        for trial in trials:
            best = self._joined(best, trial.score, trial)
        return best[0][1]

    def _joined(
        self, best: list[tuple[Score, Trial]], score: Score, trial: Trial
    ) -> list[tuple[Score, Trial]]:
        goals = self._goals
        if not goals.is_nondominated(score, (each for each, _ in best)):
            return best
        stay = [each for each in best if not goals.weakly_dominates(score, each[0])]
        return sorted([*stay, (score, trial)], key=lambda each: goals.first_goal_key(each[0]))

    # --- out ----------------------------------------------------------------------------------

    @property
    def best(self) -> tuple[Trial, ...]:
        """The best trials, sorted by the first objective; at most one for one objective."""
        return tuple(trial for _, trial in self._best)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores of the best trials: means if they were confirmed."""
        return tuple(score for score, _ in self._best)

    @property
    def kept(self) -> frozenset[int]:
        """The trials whose models are or may be needed."""
        return frozenset({*(trial.number for _, trial in self._best), *self._pending})

    def confirmation(self, trial: Trial) -> Confirmation | None:
        """Return the confirmation of a trial's configuration; None if there is none."""
        return self.confirmed.get(trial.number if trial.confirms is None else trial.confirms)

    def to_confirm(self, count: int, repeats: int) -> list[Trial]:
        """Return the trials to confirm, each once for every missing repeat, the best first.

        These are the `count` best by their own values, or the first `count` of the front with
        several objectives. Those that break a constraint are confirmed only if all do.
        """
        if not count:
            return []
        front: list[tuple[Score, Trial]] = []
        if len(self._goals.objectives) > 1:
            for trial in self._complete.values():
                front = self._joined(front, trial.score, trial)
            best = [trial for _, trial in front[:count]]
        else:
            best = heapq.nsmallest(
                count,
                self._complete.values(),
                key=lambda t: (t.violation, self._goals.first_goal_key(t.score)),
            )
        if any(not trial.violation for trial in best):
            best = [trial for trial in best if not trial.violation]
        missing = {t.number: repeats - len(self._expected.get(t.number, ())) for t in best}
        return [trial for trial in best for _ in range(missing[trial.number])]


def _with_its_result(trial: Trial) -> Trial:
    """Return the trial as complete, if it was and trains on."""
    return trial if trial.state.is_final else replace(trial, state=TrialState.COMPLETE)


def _confirmation(first: Trial, measured: list[Trial], *, failed: int) -> Confirmation:
    again = measured or [first]
    columns = list(zip(*(trial.values for trial in again), strict=True))
    return Confirmation(
        trials=(first, *measured),
        failed=failed,
        mean=Score(
            # `fmean` fails if the sum is too large.
            tuple(statistics.mean(column) for column in columns),
            statistics.mean(trial.violation for trial in again),
        ),
        deviations=tuple(map(_deviation, columns)),
    )


def _deviation(values: Sequence[float]) -> float:
    try:
        return statistics.stdev(values) if len(values) > 1 else 0.0
    except OverflowError:
        return sys.float_info.max

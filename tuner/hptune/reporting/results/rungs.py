"""Whether the rungs of early stopping rank trials as their ends do, and what helps if not."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ... import text
from ...core.attempt import ReportedValue
from ...core.pruner import is_exempt
from ...core.trial import TrialState
from .evidence import ERRORS, NONE, Answer, tail
from .view import StudyView, usual

LEAST_TRIALS = 8
"""Exempt trials that a rank correlation needs: with fewer, hardly any is evident."""

_LOW = 0.5
"""Rank correlation below which a rung stops many trials that would have been among the best."""

_LARGEST = 0.99
"""Correlation that a larger one counts as: few trials in the same order do not show more."""

_LEAST_TIED, _TIED_PART, _TOLD_PART = 20, 0.9, 0.5
"""Trials at a rung, the part of them with the same value from which on the rung tells nothing, and
the part below which a later rung tells more."""


@dataclass(frozen=True, slots=True)
class RungAgreement:
    """How exempt trials at a rung and at their ends are ranked alike.

    Attributes:
        rung: The rung's step.
        pairs: The numbers of the complete exempt trials that are compared, with their values at
            the rung and at the end.
        correlation: Spearman's rank correlation of their values at the rung and at the end; None
            with fewer than `LEAST_TRIALS`, or if all have equal values.
    """

    rung: int
    pairs: Sequence[tuple[int, float, float]]
    correlation: float | None

    @property
    def trials(self) -> int:
        """Number of trials that are compared."""
        return len(self.pairs)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the correlation.

        By Fisher's transformation, with the variance of Bonett and Wright 2000 ("Sample size
        requirements for estimating Pearson, Kendall and Spearman correlations").
        """
        middle, error = self._transformed
        return math.tanh(middle - ERRORS * error), math.tanh(middle + ERRORS * error)

    @property
    def chance_if_high(self) -> float:
        """The chance of a correlation as low as this if the true one is not low."""
        middle, error = self._transformed
        return tail((math.atanh(_LOW) - middle) / error)

    @property
    def chance_if_low(self) -> float:
        """The chance of a correlation as high as this if the true one is low."""
        return 1.0 - self.chance_if_high

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"correlation {self.correlation:.2f}, 95 % interval {low:.2f} to {high:.2f}, of "
            f"{self.trials} trials that are never stopped"
        )

    @property
    def is_high(self) -> bool:
        """Whether the correlation is high enough to stop trials by the rung, and not by chance."""
        return self.correlation is not None and self.correlation >= _LOW and self.interval[0] > 0

    @property
    def _transformed(self) -> tuple[float, float]:
        r = max(-_LARGEST, min(_LARGEST, self.correlation or 0.0))
        return math.atanh(r), math.sqrt((1.0 + r * r / 2.0) / (self.trials - 3))


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None if there are no two different values in each.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    try:
        return statistics.correlation(_ranks(one), _ranks(other))
    except statistics.StatisticsError:
        return None


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value; equal values share the mean of theirs.

    >>> _ranks([0.5, 0.1, 0.5])
    [1.5, 0.0, 1.5]
    """
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [statistics.fmean(places[value]) for value in values]


def stopped_at(view: StudyView) -> Counter[int]:
    """Return how many trials were stopped or paused at each rung, by its step.

    A trial may train on before it learns of the decision, so that of its last report does not
    count, unless the rungs are unknown or it has not reached one.
    """
    states = (TrialState.PRUNED, TrialState.PAUSED)
    ends = [trial.step for trial in view.trials if trial.state in states and trial.step]
    return Counter(max((rung for rung in view.rungs if rung <= end), default=end) for end in ends)


def why_stopped(view: StudyView, reports: Sequence[ReportedValue]) -> dict[int, str]:
    """Return how trials that were stopped early compared with others at their rung, by number.

    The others are those that had reached the rung before; a trial that was better than all of them,
    and later ones kept from going on, is left out. The order to stop may come some epochs after the
    rung, and then also for a trial that is better by then. Empty with several objectives and with
    constraints, which order trials in other ways, and where the rungs are unknown.

    Args:
        view: The study.
        reports: The reports of all trials.
    """
    if len(view.goals.objectives) > 1 or view.goals.constraints:
        return {}
    stopped: dict[int, set[int]] = {}
    for trial in view.trials:
        if trial.state is TrialState.PRUNED and trial.step:
            for rung in view.rungs:
                if rung <= trial.step:
                    stopped.setdefault(rung, set()).add(trial.number)
    steps = {trial.number: trial.step or 0 for trial in view.trials}
    word, found = text.step_word(view.epochs), dict[int, str]()
    for rung, numbers in sorted(stopped.items()):  # the last rung at which it was worse counts
        before: list[float] = []
        for number, loss in _arrivals(view, reports, rung):
            better = bisect_left(before, loss)
            if number in numbers and better:
                others = (
                    "the one trial" if len(before) == 1 else f"{better} of the {len(before)} trials"
                )
                found[number] = f"stopped at {word} {rung}, where {others} before it did better"
                if steps[number] > rung:
                    found[number] += f"; the order reached it at {word} {steps[number]}"
            insort(before, loss)
    return found


def _arrivals(
    view: StudyView, reports: Sequence[ReportedValue], rung: int
) -> list[tuple[int, float]]:
    """Return the trials that reached a rung, the first one first, with their best losses by it."""
    losses: dict[int, float] = {}
    at: dict[int, float] = {}
    for row in reports:
        if row.metric != view.goal.metric:
            continue
        if row.step <= rung and not math.isnan(row.value):
            loss = view.goal.direction.sign * row.value
            losses[row.trial] = min(loss, losses.get(row.trial, math.inf))
        if row.step >= rung:
            at[row.trial] = min(row.time, at.get(row.trial, math.inf))
    return [
        (number, losses.get(number, math.inf)) for number in sorted(at, key=lambda n: (at[n], n))
    ]


def rung_agreements(view: StudyView) -> list[RungAgreement]:
    """Return the agreement of each rung with the end, for those that exempt trials reached.

    Other complete trials passed the rungs. They are the best there and differ less than all trials
    do, so their ranks hardly agree with those at the end, however good the rungs are.
    """
    exempt = [trial for trial in usual(view.trials) if is_exempt(trial.number)]
    found = []
    for rung in sorted({rung for trial in exempt for rung in trial.rungs}):
        pairs = [
            (trial.number, trial.rungs[rung][0], trial.value or 0.0)
            for trial in exempt
            if rung in trial.rungs
        ]
        correlation = None
        if len(pairs) >= LEAST_TRIALS:
            _, *sides = zip(*pairs, strict=True)
            correlation = rank_correlation(*sides)
        found.append(RungAgreement(rung, pairs, correlation))
    return found


def misleading_answer(view: StudyView) -> Answer:
    """Return how early stopping may mislead and what helps."""
    known = _known_agreements(view)
    if not known:
        return NONE
    first, better, word = known[0], None, text.step_word(view.epochs)
    for each in reversed(known):
        if not each.is_high:
            break
        better = each
    remedy = "use --pruner none"
    if better is not None:
        remedy = f"use --min-epochs {better.rung} ({better.correlation:.2f}) or --pruner none"
    words = f"early stopping may mislead: ranks at {word} {first.rung} hardly predict those at"
    return Answer(f"{words} the end ({first}); {remedy}", "stopping", first.chance_if_high)


def trusted_answer(view: StudyView) -> Answer:
    """Return that early stopping does not mislead."""
    known = _known_agreements(view)
    if not known:
        return NONE
    first, word = known[0], text.step_word(view.epochs)
    words = f"early stopping does not mislead: ranks at {word} {first.rung} predict those at the"
    return Answer(f"{words} end ({first})", "stopping", first.chance_if_low)


def _known_agreements(view: StudyView) -> list[RungAgreement]:
    """Return those with a correlation.

    Only for one objective: with several, trials are ordered by their fronts.
    """
    return [agreement for agreement in rung_agreements(view) if agreement.correlation is not None]


def tie_answer(view: StudyView) -> Answer:
    """Return that trials are equal at the first rungs, which therefore tell nothing.

    Not if they stay equal, as trials do that never learn: then no rung tells more.
    """
    ties = []
    for rung in view.rungs:
        values = [t.rungs[rung] for t in view.trials if t.confirms is None and rung in t.rungs]
        value, count = Counter(values).most_common(1)[0] if values else ((), 0)
        if len(values) < _LEAST_TIED or count < _TIED_PART * len(values):
            break
        ties.append((rung, count, len(values), value))
    if not ties:
        return NONE
    rung, count, trials, value = ties[-1]
    later = [t for t in view.trials if t.rungs.get(rung) == value and (t.step or 0) > rung]
    following = next((each for each in view.rungs if each > rung), None)
    further = [t.rungs[following] for t in later if following in t.rungs] if following else []
    ends = [(t.value,) for t in later if t.state is TrialState.COMPLETE]
    if not _differ(further) and not _differ(ends):
        return NONE
    remedy = f"`--min-epochs {following}`" if _differ(further) else "use a larger --min-epochs"
    who = f"all {trials}" if count == trials else f"{count} of {trials}"
    where = f"{text.step_word(view.epochs)} {rung}"
    words = f"{who} trials are equal at {where}, so it tells nothing: {remedy}"
    return Answer(words, "stopping")


def _differ(values: Sequence[tuple[float | None, ...]]) -> bool:
    """Return whether most of some values are not the same."""
    return bool(values) and max(Counter(values).values()) < _TOLD_PART * len(values)

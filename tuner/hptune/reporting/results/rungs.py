"""Whether the rungs of early stopping rank trials as their ends do, and what helps if not."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ... import text
from ...core.attempt import ReportedValue
from ...core.pruner import is_exempt
from ...core.trial import TrialState
from .view import StudyView

MIN_TRIALS = 5
"""Trials that a rank correlation needs."""

ENOUGH_TRIALS = 8
"""Trials with which it is known well."""

_LOW = 0.5
"""Rank correlation below which a rung stops many trials that would have been among the best."""

_LOW_OF_PASSED = 0.25
"""The same for trials of which most passed the rungs, because their correlation is lower."""

_FEW_COMPLETE = 0.1
"""Share of complete trials below which little is known of the ends."""

_MIN_ENDED = 20
"""Ended trials from which on a small share of complete ones is told."""


@dataclass(frozen=True, slots=True)
class RungAgreement:
    """How trials at a rung and at their ends are ranked alike.

    Attributes:
        rung: The rung's step.
        trials: Number of complete trials that are compared.
        correlation: Spearman's rank correlation of their values at the rung and at the end; None
            with fewer than `MIN_TRIALS`, or if all have equal values.
        are_exempt: Whether all of these trials are exempt; else most of them passed the rungs.
    """

    rung: int
    trials: int
    correlation: float | None
    are_exempt: bool = False

    @property
    def is_low(self) -> bool:
        """Whether the correlation is known and low."""
        limit = _LOW if self.are_exempt else _LOW_OF_PASSED
        return self.correlation is not None and self.correlation < limit

    @property
    def is_high(self) -> bool:
        """Whether the correlation is known and high enough to stop trials by the rung."""
        return self.correlation is not None and self.correlation >= _LOW


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
    and later ones kept from going on, is left out. Empty with several objectives and with
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
            rung = max((rung for rung in view.rungs if rung <= trial.step), default=None)
            if rung is not None:
                stopped.setdefault(rung, set()).add(trial.number)
    found = {}
    for rung, numbers in stopped.items():
        before: list[float] = []
        for number, loss in _arrivals(view, reports, rung):
            better = bisect_left(before, loss)
            if number in numbers and better:
                others = (
                    "the one trial" if len(before) == 1 else f"{better} of the {len(before)} trials"
                )
                where = text.at_step(rung, view.epochs)
                found[number] = f"stopped at {where}, where {others} before it did better"
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
    """Return the agreement of each rung with the end, for those that complete trials reached.

    Most complete trials are those that passed the rungs, so they differ less there than all trials
    do, and their correlation is lower. Exempt trials (`core.pruner.is_exempt`) are like all
    trials: they alone are compared if there are enough, and else all complete ones.
    """
    ends = _ends(view)
    exempt = {number: value for number, value in ends.items() if is_exempt(number)}
    are_exempt = len(exempt) >= ENOUGH_TRIALS
    if are_exempt:
        ends = exempt
    found = []
    for rung, values in sorted(view.at_rungs.items()):
        both = [number for number in ends if number in values]
        correlation = None
        if len(both) >= MIN_TRIALS:
            correlation = rank_correlation([values[n] for n in both], [ends[n] for n in both])
        if both:
            found.append(RungAgreement(rung, len(both), correlation, are_exempt))
    return found


def _ends(view: StudyView) -> Mapping[int, float]:
    """Return the values of the complete trials, without confirmations and infeasible ones."""
    return {
        trial.number: trial.value
        for trial in view.trials
        if trial.state is TrialState.COMPLETE and trial.value is not None
        if trial.confirms is None and not trial.violation
    }


def stopping_warning(view: StudyView) -> str:
    """Return in one line how early stopping may mislead and what helps; empty if nothing is known.

    Only for one objective: with several, trials are ordered by their fronts.
    """
    known = [agreement for agreement in rung_agreements(view) if agreement.correlation is not None]
    if known and known[0].is_low:
        return _low_text(view, known)
    complete = view.counts[TrialState.COMPLETE]
    is_known = any(each.trials >= ENOUGH_TRIALS for each in known)
    if not view.at_rungs or is_known or view.ended < _MIN_ENDED:
        return ""
    if complete < _FEW_COMPLETE * view.ended:
        return (
            f"{complete} of {text.plural(view.ended, 'trial')} trained to the end, too few to know "
            "whether early stopping keeps the best; more trials, a larger --min-epochs or --pruner "
            "none would show it"
        )
    return ""


def _low_text(view: StudyView, known: Sequence[RungAgreement]) -> str:
    first, word = known[0], text.step_word(view.epochs)
    better = None
    for each in reversed(known):
        if not each.is_high:
            break
        better = each
    remedy = "use --pruner none"
    if better is not None:
        remedy = f"use --min-epochs {better.rung} ({better.correlation:.2f}) or --pruner none"
    return (
        f"early stopping may mislead: ranks at {word} {first.rung} hardly predict those at the end "
        f"(correlation {first.correlation:.2f}, {first.trials} trials); {remedy}"
    )

"""What a colleague would say of a study's results: what matters, what helps, and what was wasted.

Each answer is a sentence made from the study, and names the section of the page that shows it.
None is given without enough data. The page, status, Markdown and JSON have the same list.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ... import text
from ...core.ranking import Ranking
from ...core.trial import Direction, Trial, TrialState
from .costs import waste_answer
from .edges import edge_answers
from .evidence import NONE, Answer, evident
from .failures import in_common
from .importance import Importance, estimated, leaders, results_of
from .rungs import misleading_answer, tie_answer, trusted_answer
from .view import StudyView, usual

_LEAST_COMPLETE = 20
"""Complete trials from which on it is told whether noise chose the best."""

COMPARED, LAST_VALUES = 8, 6
"""Best trials whose differences are compared with the noise, and their last values that show it."""

_LEAST_NEAR, _LEAST_BENDS = 3, 12
"""Trials that are alike, and second differences of values, from which on that is told."""

_LEAST_OF_SIGN = 0.25
"""Share of the second differences that each sign must have; of a curve, nearly all have one."""

_LEAST_WITHOUT, _WITHOUT_PART = 30, 0.75
"""Trials, and share of all that ended, without a better one, from which on that is told."""


_LEAST_ENDED = 10
"""Trials that ended, from which on it is told when the best one did."""

_ORDER = ("importance", "history", "stopping", "failures", "costs", "slices", "curves")
"""The sections of the answers, those that a reader asks for first."""


def answers(view: StudyView, importance: Sequence[Importance], *, now: float) -> list[Answer]:
    """Return all answers, in the order of their sections.

    Args:
        view: The study.
        importance: The importance of its hyperparameters, as `importance.estimated` returns it.
        now: The time in seconds since the epoch.
    """
    facts = [
        _importance(view, importance),
        _last_better(view, now),
        trusted_answer(view),
        in_common(view),
        waste_answer(view, now),
    ]
    found = [*evident(facts), *advice(view)]
    return sorted(found, key=lambda each: _ORDER.index(each.figure))


def importance_of(view: StudyView) -> list[Importance]:
    """Return the importance of the hyperparameters, of all trials with a value."""
    if view.space is None:
        return []
    return estimated(view.space, results_of(view.trials), view.goal.direction)


def advice(view: StudyView) -> list[Answer]:
    """Return the answers that ask for something, the gravest first; few of several objectives."""
    found = [tie_answer(view), misleading_answer(view)]
    if len(view.goals.objectives) == 1:
        complete = leading(view.trials, view.goal.direction)
        found += [*edge_answers(view), Answer(_noise(view, complete), "curves")]
        found.append(Answer(stagnation(view), "history"))
    return [replace(each, words=view.worded(each.words)) for each in evident(found)]


def _importance(view: StudyView, importance: Sequence[Importance]) -> Answer:
    """Return what matters; of one hyperparameter alone, that says nothing."""
    if len(importance) < 2:
        return NONE
    several = len(view.goals.objectives) > 1
    words = f"for {text.clean(view.goal.metric)}, " if several else ""
    return Answer(words + leaders(importance), "importance", importance[0].chance)


def _last_better(view: StudyView, now: float) -> Answer:
    """Return which trial was the last to be better, and when.

    Repeats change the order by their means, so the values of the trials that were searched count.
    """
    searched = [trial for trial in view.trials if trial.confirms is None]
    ended = [trial for trial in searched if trial.state.is_final]
    several = len(view.goals.objectives) > 1
    front = view.front
    if view.confirmations:
        front = Ranking.of(view.goals, searched, view.attempts).best
    is_infeasible = any(trial.violation for trial in front)
    if len(ended) < _LEAST_ENDED or not front or is_infeasible:
        return NONE
    if not several and stagnation(view):
        return NONE
    ends = {each.id.trial: each.ended_at or 0.0 for each in view.attempts if each.has_result}
    number = max((ends.get(trial.number, 0.0), trial.number) for trial in front)[1]
    words = "the Pareto front last changed" if several else "the last better value came"
    words += f" with trial {number}"
    if number in ends:
        last = max(each.ended_at or 0.0 for each in view.attempts)
        until, after = (now, "ago") if view.is_run else (last, "before the end")
        words += f", {text.duration(max(0.0, until - ends[number]))} {after}"
    if later := sum(trial.number > number for trial in ended):
        without = "joining it" if several else "one"
        words += f"; {text.plural(later, 'later trial')} ended without {without}"
    return Answer(words, "history")


def leading(trials: Iterable[Trial], direction: Direction) -> list[Trial]:
    """Return the trials that tell something of the space, the best by the first objective first."""
    return sorted(usual(trials), key=lambda trial: direction.sign * (trial.value or 0.0))


def _noise(view: StudyView, complete: Sequence[Trial]) -> str:
    """Return that the best trials differ less than one does from epoch to epoch; empty if not.

    A linear trend has no second differences; those of independent noise have six times its
    variance, and either sign alike, where those of a smooth curve have the same one. Half of the
    normal distribution lies within 0.6745 of its standard deviation.
    """
    if len(complete) < _LEAST_COMPLETE or view.confirmations:
        return ""
    bends = [
        bend
        for values in view.last_values.values()
        for one, middle, other in zip(values, values[1:], values[2:], strict=False)
        if math.isfinite(bend := one - 2.0 * middle + other)
    ]
    rises = sum(bend > 0.0 for bend in bends)
    if len(bends) < _LEAST_BENDS or not _LEAST_OF_SIGN <= rises / len(bends) <= 1 - _LEAST_OF_SIGN:
        return ""
    noise = statistics.median(map(abs, bends)) / 0.6745 / math.sqrt(6.0)
    top = complete[0].value or 0.0
    near = [each for each in complete[:COMPARED] if abs((each.value or 0.0) - top) <= noise]
    if len(near) < _LEAST_NEAR or not noise:
        return ""
    return (
        f"the best {len(near)} trials differ by less than a trial at its end does from one "
        f"{text.step_word(view.epochs)} to the next ({noise:.2g}), so chance may have "
        f"chosen the best; `hptune resume {text.path(view.directory)} --confirm {len(near)}` "
        "trains them again"
    )


def stagnation(view: StudyView) -> str:
    """Return that the search has found nothing better for long; empty if it has.

    It says no more: of trials in random order, the best one is among the first quarter in one of
    four studies, and the next quarter is as likely to have a better one as in others.
    """
    best = view.best
    ended = [trial for trial in view.trials if trial.state.is_final and trial.confirms is None]
    if best is None or best.violation:
        return ""
    number = best.number if best.confirms is None else best.confirms
    later = [trial for trial in ended if trial.number > number]
    if len(later) < max(_LEAST_WITHOUT, _WITHOUT_PART * len(ended)):
        return ""
    whole = sum(trial.state is TrialState.COMPLETE for trial in later)
    trained = f" ({whole} of them trained to the end)" if whole < len(later) else ""
    return f"none of the {len(later)} trials after trial {number} is better{trained}"

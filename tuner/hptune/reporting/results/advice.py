"""What a colleague would say of a study's results: one line for each remark, with what helps."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from ... import text
from ...core.trial import Direction, Trial, TrialState
from .edges import edge_remarks
from .evidence import Remark, evident
from .rungs import stopping_remark, tie_remark
from .view import StudyView

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


def advice(view: StudyView) -> list[str]:
    """Return remarks on the results, the gravest first; none on those of several objectives."""
    remarks = [tie_remark(view), stopping_remark(view)]
    if len(view.goals.objectives) == 1:
        complete = leading(view.trials, view.goal.direction)
        remarks += [*edge_remarks(view), Remark(_noise(view, complete)), Remark(stagnation(view))]
    return list(map(view.worded, evident(remarks)))


def leading(trials: Iterable[Trial], direction: Direction) -> list[Trial]:
    """Return the trials that tell something of the space, the best by the first objective first."""
    complete = [
        trial
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.value is not None
        if trial.confirms is None and not trial.violation and math.isfinite(trial.value)
    ]
    return sorted(complete, key=lambda trial: direction.sign * (trial.value or 0.0))


def _noise(view: StudyView, complete: Sequence[Trial]) -> str:
    """Return that the best trials differ less than one does from epoch to epoch; empty if not.

    A linear trend has no second differences; those of independent noise have six times its
    variance, and either sign alike, where those of a smooth curve have the same one. Half of the
    normal distribution lies within 0.6745 of its standard deviation.
    """
    if len(complete) < _LEAST_COMPLETE or view.confirmations:
        return ""
    bends = [
        one - 2.0 * middle + other
        for values in view.last_values.values()
        for one, middle, other in zip(values, values[1:], values[2:], strict=False)
        if all(map(math.isfinite, (one, middle, other)))
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

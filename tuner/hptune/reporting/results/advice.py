"""What a colleague would say of a study's results: one line for each remark, with what helps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ... import text
from ...core.space.parameters import FloatParameter, IntParameter, Scale
from ...core.trial import Trial, TrialState
from .rungs import stopping_warning
from .view import StudyView

_LEAST_COMPLETE = 20
"""Complete trials from which on their best ones tell something of the space."""

_BEST_PART = 10
_LEAST_BEST = 5
"""The best tenth of the complete trials is looked at, and at least five."""

_EDGE = 0.1
"""Part of a range, on its scale, that counts as its edge."""

_LEAST_VALUES = 5
"""Values of a range from which on it has edges: of fewer, chance often takes the same one."""

_LEAST_WITHOUT = 30
_WITHOUT_PART = 0.75
"""Trials, and share of all that ended, without a better one: chance alone needs as many in one of
four studies."""

_Number = FloatParameter | IntParameter


def advice(view: StudyView) -> list[str]:
    """Return remarks on the results, the gravest first; none on those of several objectives."""
    remarks = [stopping_warning(view)]
    if len(view.goals.objectives) == 1:
        remarks += [*_edges(view), _stagnation(view)]
    return [remark for remark in remarks if remark]


def _edges(view: StudyView) -> list[str]:
    """Return a line for each range at whose edge all of the best trials lie."""
    sign = view.goal.direction.sign
    complete = [
        (sign * trial.value, trial)
        for trial in view.trials
        if trial.state is TrialState.COMPLETE and trial.value is not None
        if trial.confirms is None and not trial.violation
    ]
    if len(complete) < _LEAST_COMPLETE:
        return []
    complete.sort(key=lambda each: each[0])
    best = [trial for _, trial in complete[: max(_LEAST_BEST, len(complete) // _BEST_PART)]]
    numbers = (each for each in view.space or () if isinstance(each, FloatParameter | IntParameter))
    return [line for number in numbers if (line := _edge_line(number, best))]


def _edge_line(parameter: _Number, best: Sequence[Trial]) -> str:
    name, values = parameter.name, parameter.values
    if (values is not None and len(values) < _LEAST_VALUES) or parameter.scale is Scale.REVERSE_LOG:
        return ""
    if not all(name in trial.params for trial in best):
        return ""
    places = [parameter.to_unit(trial.params[name]) for trial in best]
    is_low = max(places) <= _EDGE
    if not is_low and min(places) < 1 - _EDGE:
        return ""
    low, high = parameter.low, parameter.high
    if (low if is_low else high) in (0, 1):
        return ""  # the end of what makes sense: a share, or a number of something
    wider = _widened(parameter, is_low=is_low)
    bounds = (wider, high) if is_low else (low, wider)
    is_int = isinstance(parameter, IntParameter)
    has_step = parameter.step is not None and not (is_int and parameter.step == 1)
    more = f", step={text.param(parameter.step)}" if has_step else ""
    more += ', sampling="log"' if parameter.scale is Scale.LOG else ""
    shown = ", ".join(map(text.param, bounds))
    return (
        f"the best {len(best)} trials have {name} at the {'lower' if is_low else 'upper'} end of "
        f'its range; a wider one: hp.{"Int" if is_int else "Float"}("{name}", {shown}{more})'
    )


def _widened(parameter: _Number, *, is_low: bool) -> float:
    """Return a bound further out: by a factor of ten on a log scale, else by half of the range."""
    low, high, step = parameter.low, parameter.high, parameter.step
    if parameter.scale is Scale.LOG:
        further = low / 10 if is_low else high * 10
    elif is_low and low > 0:
        further = low / 2
    else:
        by = (high - low) / 2 if step is None else math.ceil((high - low) / 2 / step) * step
        further = low - by if is_low else high + by
    if isinstance(parameter, IntParameter):
        return max(1, int(further)) if low > 0 else int(further)
    return further


def _stagnation(view: StudyView) -> str:
    """Return that the search has found nothing better for long; empty if it has."""
    best = view.best
    ended = [
        trial.number for trial in view.trials if trial.state.is_final and trial.confirms is None
    ]
    if best is None or best.violation:
        return ""
    number = best.number if best.confirms is None else best.confirms
    without = sum(each > number for each in ended)
    if without < max(_LEAST_WITHOUT, _WITHOUT_PART * len(ended)):
        return ""
    return (
        f"none of the {without} trials after trial {number} is better; another space, more epochs "
        "or a --confirm may tell more than further trials"
    )

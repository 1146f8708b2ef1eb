"""Ranges that are too narrow: the best trials lie at their ends, and values get better there.

That the best trials lie at an end does not suffice. A search that has found good values of what
matters repeats them, with the same value of what does not matter, which is often an end.
`docs/decisions/advice-from-results.md` has what was measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ... import text
from ...core.space.parameters import (
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Scale,
)
from ...core.trial import ParamValue, Trial, TrialState
from .evidence import Answer, tail
from .view import StudyView

_LEAST_ENDED = 20
"""Trials, complete and stopped early, from which on the best ones tell something of the space."""

_BEST_PART = 10
_LEAST_BEST = 5
"""The best tenth of the trials is looked at, and at least five."""

_AT_EDGE = 0.8
"""Part of the best trials that must lie at the edge; the very best one must."""

_EDGE = 0.1
"""Part of a range, on its scale, that counts as its edge."""

_LEAST_VALUES = 5
"""Values of a range from which on it has edges: of fewer, chance often takes the same one."""

_TOWARDS = 0.3
"""Part of a range, next to its edge, over which the value must get better."""

_USUAL, _FAR = 0.8, 10.0
"""Trials further from the best one than ten times what four of five trials are, are left out."""

_LARGEST = 1e300
"""Largest value that is told from others: sums of larger ones would overflow."""

_MOST_TRIALS = 1000
"""Trials that are regressed, evenly chosen: the live page asks often."""

_MOST_LEVELS = 20
"""Values of a hyperparameter without an order that are told apart: each is a column."""

_RIDGE = 0.1
"""Keeps the regression stable with many hyperparameters; values are standardised."""

_Number = FloatParameter | IntParameter
_Place = Callable[[ParamValue], float]
"""Where a value lies in its range, from 0 to 1; NaN if it is not of this space."""


@dataclass(frozen=True, slots=True)
class _Range:
    """A hyperparameter with an order, and where its values lie."""

    parameter: _Number | ChoiceParameter
    place: _Place


def edge_answers(view: StudyView) -> list[Answer]:
    """Return an answer for each range that should be wider; for one objective."""
    ended = [
        trial
        for trial in view.trials
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED) and trial.value is not None
        if trial.confirms is None and not trial.violation and math.isfinite(trial.value)
    ]
    if len(ended) < _LEAST_ENDED:
        return []
    sign = view.goal.direction.sign
    ended.sort(key=lambda trial: (-_reach(trial), sign * _value_there(trial)))
    best = ended[: max(_LEAST_BEST, len(ended) // _BEST_PART)]
    answers = []
    for found in _ranges(view):
        is_low, count = _at_edge(found, best)
        if count and (line := _line(found.parameter, count, len(best), is_low=is_low)):
            chance = _chance_if_not_better(view, found, ended, is_low=is_low)
            answers.append(Answer(line, "slices", chance))
    return answers


def _reach(trial: Trial) -> float:
    """Return how far a trial got: to the end, or to its last rung."""
    if trial.state is TrialState.COMPLETE:
        return math.inf
    return max(trial.rungs, default=0)


def _value_there(trial: Trial) -> float:
    is_stopped = trial.state is not TrialState.COMPLETE
    found = trial.rungs[max(trial.rungs)][0] if is_stopped and trial.rungs else trial.value
    return found or 0.0


def _ranges(view: StudyView) -> list[_Range]:
    """Return the hyperparameters with enough values in an order, each declared once."""
    names = Counter(parameter.name for parameter in view.space or ())
    found = []
    for parameter in view.space or ():
        values = parameter.values
        is_small = values is not None and len(values) < _LEAST_VALUES
        if names[parameter.name] > 1 or is_small:
            continue
        if isinstance(parameter, FloatParameter | IntParameter):
            found.append(_Range(parameter, partial(_number_place, parameter)))
        elif isinstance(parameter, ChoiceParameter) and (numbers := _ordered(parameter)):
            places = {each: at / (len(numbers) - 1) for at, each in enumerate(numbers)}
            found.append(_Range(parameter, partial(_listed_place, places)))
    return found


def _number_place(parameter: _Number, value: ParamValue) -> float:
    return math.nan if parameter.explain(value) else parameter.to_unit(value)


def _listed_place(places: Mapping[ParamValue, float], value: ParamValue) -> float:
    return places.get(value, math.nan)


def _ordered(parameter: ChoiceParameter) -> list[ParamValue]:
    """Return the values of a choice of numbers, the least first; empty if they have no order."""
    numbers = [each for each in parameter.values if isinstance(each, int | float)]
    is_mixed = len(numbers) < len(parameter.values) or any(type(n) is bool for n in numbers)
    rising = sorted(numbers)
    return [] if is_mixed or numbers not in (rising, rising[::-1]) else [*rising]


def _at_edge(of: _Range, best: Sequence[Trial]) -> tuple[bool, int]:
    """Return at which end most of the best trials lie, and how many; none if they do not."""
    if not all(of.parameter.name in trial.used for trial in best):
        return False, 0
    places = [of.place(trial.used[of.parameter.name]) for trial in best]
    for is_low in (True, False):
        distances = [place if is_low else 1.0 - place for place in places]
        # The centre of the last of ten values is within the last tenth, but for rounding.
        near = [distance <= _EDGE + 1e-9 for distance in distances]
        if near[0] and sum(near) >= _AT_EDGE * len(near):
            return is_low, sum(near)
    return False, 0


def _chance_if_not_better(
    view: StudyView, of: _Range, ended: Sequence[Trial], *, is_low: bool
) -> float:
    """Return the chance of these values if they do not get better towards the edge.

    All else is equal; 1 if too little is known.

    A ridge regression of the values on the hyperparameters and the squares of those with an order.
    Trials that were stopped early are compared with all others at their first rung.
    """
    import numpy as np  # takes a tenth of a second, and most studies have no range to ask for

    name, steps = of.parameter.name, [min(each.rungs) for each in ended if each.rungs]
    first = min(steps, default=0)
    known = [t for t in ended if name in t.used and math.isfinite(of.place(t.used[name]))]
    known = known[:: math.ceil(len(known) / _MOST_TRIALS)]
    if any(trial.state is TrialState.PRUNED for trial in known) and steps:
        known = [trial for trial in known if first in trial.rungs]
        measured = [trial.rungs[first][0] for trial in known]
    else:
        known = [trial for trial in known if trial.state is TrialState.COMPLETE]
        measured = [trial.value or 0.0 for trial in known]
    if len(known) < _LEAST_ENDED // 2:
        return 1.0
    losses = np.clip(view.goal.direction.sign * np.array(measured), -_LARGEST, _LARGEST)
    # A loss may be far larger where a training fails, which says nothing of the others.
    losses = losses - losses.min()
    kept = losses <= _FAR * np.quantile(losses, _USUAL)
    known, losses = [trial for trial, keep in zip(known, kept, strict=True) if keep], losses[kept]
    if not (largest := losses.max()):
        return 1.0
    losses = losses / largest
    values = (losses.mean() - losses) / losses.std()
    far, end = (_TOWARDS, 0.0) if is_low else (1.0 - _TOWARDS, 1.0)
    columns, contrast = _columns(view, known, {name: (end - far, end * end - far * far)})
    features, sums = np.array(columns).T, np.array(contrast)
    features = features - features.mean(axis=0)
    inverse = np.linalg.inv(features.T @ features + _RIDGE * np.eye(len(contrast)))
    weights = inverse @ features.T @ values
    used = float(np.trace(inverse @ features.T @ features))
    freedom = max(1.0, len(known) - 1.0 - used)
    variance = float(np.sum((values - features @ weights) ** 2)) / freedom
    error = math.sqrt(variance * float(sums @ inverse @ sums))
    return tail(float(sums @ weights) / error) if error else float(sums @ weights <= 0.0)


def _columns(
    view: StudyView, trials: Sequence[Trial], wanted: Mapping[str, tuple[float, float]]
) -> tuple[list[list[float]], list[float]]:
    """Return the features of the regression, and the weights of the sum that is asked for.

    A hyperparameter that only some of the trials have is left out, and one of many values without
    an order.
    """
    columns: list[list[float]] = []
    contrast: list[float] = []
    ranges = {each.parameter.name: each for each in _ranges(view)}
    for name in dict.fromkeys(parameter.name for parameter in view.space or ()):
        if not all(name in trial.used for trial in trials):
            continue
        values = [trial.used[name] for trial in trials]
        if name in ranges:
            places = [ranges[name].place(value) for value in values]
            if not all(map(math.isfinite, places)):
                continue
            columns += [places, [place * place for place in places]]
            contrast += wanted.get(name, (0.0, 0.0))
        else:
            levels = sorted(set(values), key=repr)[: _MOST_LEVELS + 1]
            for each in levels[1:] if len(levels) <= _MOST_LEVELS else ():
                columns.append([float(value == each) for value in values])
                contrast.append(0.0)
    return columns, contrast


def _line(parameter: _Number | ChoiceParameter, count: int, of: int, *, is_low: bool) -> str:
    """Return what to say of a range; empty if its end is that of what makes sense."""
    if isinstance(parameter, ChoiceParameter):
        numbers = _ordered(parameter)
        last = numbers[0] if is_low else numbers[-1]
    else:
        last = parameter.low if is_low else parameter.high
    is_near_one = isinstance(parameter, FloatParameter) and parameter.scale is Scale.REVERSE_LOG
    if last in (0, 1) or is_near_one:
        return ""  # a share, or a number of something
    best = f"the best {of} trials have" if count == of else f"{count} of the best {of} trials have"
    return (
        f"{best} {parameter.name} at the {'lower' if is_low else 'upper'} end of its range; "
        f"a wider one: {_declared(parameter, is_low=is_low)}"
    )


def _declared(parameter: _Number | ChoiceParameter, *, is_low: bool) -> str:
    if isinstance(parameter, ChoiceParameter):
        numbers = [each for each in _ordered(parameter) if isinstance(each, int | float)]
        further = _next_number(numbers[::-1] if is_low else numbers)
        values = ", ".join(map(text.param, [further, *numbers] if is_low else [*numbers, further]))
        return f'hp.Choice("{parameter.name}", [{values}])'
    wider = _widened(parameter, is_low=is_low)
    bounds = (wider, parameter.high) if is_low else (parameter.low, wider)
    is_int = isinstance(parameter, IntParameter)
    has_step = parameter.step is not None and not (is_int and parameter.step == 1)
    more = f", step={text.param(parameter.step)}" if has_step else ""
    more += ', sampling="log"' if parameter.scale is Scale.LOG else ""
    shown = ", ".join(map(text.param, bounds))
    return f'hp.{"Int" if is_int else "Float"}("{parameter.name}", {shown}{more})'


def _next_number(numbers: Sequence[float]) -> float:
    """Return what follows some numbers, in equal steps as before, or else in equal ratios.

    >>> _next_number([16, 32, 64]), _next_number([0.5, 0.4, 0.3]), _next_number([100, 30, 10])
    (128, 0.2, 3)
    """
    first, before, last = numbers[-3:]
    is_even = math.isclose(last - before, before - first)
    is_ratio = min(numbers) > 0 and not (is_even and 2 * last > before)
    further = last * last / before if is_ratio else 2 * last - before
    if isinstance(last, int):
        return max(1, round(further)) if is_ratio else round(further)
    return float(f"{further:.2g}")


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

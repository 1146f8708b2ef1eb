"""What failed trials have in common, and no other trials do."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import text
from ...core.kinds import enumerated
from ...core.trial import Trial, TrialState
from .evidence import MOST_WRONG, NONE, Answer
from .view import StudyView

_LEAST_FAILED, _MOST_CONDITIONS = 3, 3

_MOST_COMPARED = 1000
"""Other trials by which conditions are chosen, evenly chosen: the live page asks often."""

_NUMBERS = {int, float}
_SIGNS = {"=": operator.eq, " ≥ ": operator.ge, " ≤ ": operator.le}


@dataclass(frozen=True, slots=True)
class _Condition:
    """What all failed trials have in common in one hyperparameter: how its value compares.

    Attributes:
        name: The hyperparameter.
        sign: How the values compare, a key of `_SIGNS`.
        value: The value that they compare with.
        ways: How many conditions on the hyperparameter chance might have brought about.
    """

    name: str
    sign: str
    value: Any
    ways: int

    def of(self, trial: Trial) -> bool:
        """Return whether a trial meets it; one without such a value does not."""
        value: Any = trial.used.get(self.name)
        is_alike = type(value) is type(self.value) or {type(value), type(self.value)} == _NUMBERS
        return self.name in trial.used and is_alike and _SIGNS[self.sign](value, self.value)

    def __str__(self) -> str:
        return f"{text.clean(self.name)}{self.sign}{text.param(self.value)}"


def in_common(view: StudyView) -> Answer:
    """Return what the trials with the most frequent failure have in common.

    A condition is named if it is unlikely that all of them meet it by chance (hypergeometric), also
    when another hyperparameter or value might have been named in its place. Repeats do not count:
    they have the configuration of another trial.
    """
    groups = view.failures
    failed = [trial for trial in groups[0].trials if trial.confirms is None] if groups else []
    if len(failed) < _LEAST_FAILED:
        return NONE
    pruned = {attempt.id.trial for attempt in view.pruned_by_failure}
    others = [
        trial
        for trial in view.trials
        if trial.state in (TrialState.COMPLETE, TrialState.PRUNED)
        if trial.confirms is None and trial.number not in pruned
    ]
    conditions = _chosen(failed, others[:: math.ceil(len(others) / _MOST_COMPARED) or 1])
    if not conditions:
        return NONE
    also = sum(all(each.of(trial) for each in conditions) for trial in others)
    which = "failed trials" if len(groups) == 1 else f'trials that failed with "{groups[0].reason}"'
    shared = enumerated(*map(str, conditions))
    words = f"all {len(failed)} {which} have {shared}, and {also or 'none'} of the {len(others)}"
    return Answer(f"{words} that did not fail", "failures")


def _chosen(failed: Sequence[Trial], others: Sequence[Trial]) -> list[_Condition]:
    """Return the conditions that leave the fewest others, one after the other."""
    candidates, chosen = _conditions(failed, others), list[_Condition]()
    while others and candidates and len(chosen) < _MOST_CONDITIONS:
        left, best = min(
            ((list(filter(each.of, others)), each) for each in candidates),
            key=lambda found: len(found[0]),
        )
        ways = math.comb(len(failed) + len(left), len(failed))
        chance = ways / math.comb(len(failed) + len(others), len(failed))
        if chance * best.ways * len(failed[0].used) > MOST_WRONG:
            break
        chosen.append(best)
        others = left
    return chosen


def _conditions(failed: Sequence[Trial], others: Sequence[Trial]) -> list[_Condition]:
    found = []
    for name in failed[0].used:
        values = [trial.used[name] for trial in failed if name in trial.used]
        numbers: list[Any] = [value for value in values if type(value) in _NUMBERS]
        if len(values) == len(failed) and len(set(map(repr, values))) == 1:
            ways = len({repr(each.used.get(name)) for each in (*failed, *others)})
            found.append(_Condition(name, "=", values[0], ways))
        elif len(numbers) == len(failed):
            ends = (" ≥ ", min(numbers)), (" ≤ ", max(numbers))
            found += [_Condition(name, sign, end, len(ends)) for sign, end in ends]
    return found

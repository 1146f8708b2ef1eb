"""Guidance decay: prior knowledge counts less the more trials are complete."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core.sampler import Sampler
from ...core.trial import Suggestion, Trial, TrialState

_GOLDEN_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
"""The fractional parts of its multiples are evenly distributed for any number of trials."""
_HALF_WEIGHT_TRIALS = 5.0
"""Complete trials after which half of the suggestions are guided."""


class GuidanceDecay(Sampler):
    """Alternates between a guided sampler (with priors or earlier studies) and an unguided one.

    Both are told every trial. The guided sampler makes the first suggestions, and with n complete
    trials one suggestion in 1 + n / 5. So misleading guidance is overcome, as in πBO, where the
    prior's exponent falls with 1 / n (Hvarfner et al. 2022, "πBO: Augmenting acquisition
    functions with user beliefs"). The effect of good guidance remains, because the unguided
    sampler learns from the guided trials.
    """

    def __init__(self, guided: Sampler, plain: Sampler) -> None:
        self._guided = guided
        self._plain = plain
        self._complete: set[int] = set()
        self._answers: dict[tuple[int, ...], list[Suggestion]] = {}

    def tell(self, trial: Trial) -> None:
        """Tell both samplers."""
        self._answers.clear()
        if trial.state is TrialState.COMPLETE and trial.number >= 0:
            self._complete.add(trial.number)
        self._guided.tell(trial)
        self._plain.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return one sampler's suggestion for each number, and tell it to the other sampler."""
        asked = tuple(numbers)
        if asked not in self._answers:
            # A repeated question must not be answered again: the samplers were told since.
            self._answers[asked] = self._suggest_all(asked)
        return list(self._answers[asked])

    def _suggest_all(self, numbers: Sequence[int]) -> list[Suggestion]:
        weight = _HALF_WEIGHT_TRIALS / (_HALF_WEIGHT_TRIALS + len(self._complete))
        guided_ones = [number for number in numbers if number * _GOLDEN_RATIO % 1.0 < weight]
        found = self._suggest(self._guided, self._plain, guided_ones)
        rest = [number for number in numbers if number not in found]
        found |= self._suggest(self._plain, self._guided, rest)
        return [found[number] for number in numbers if number in found]

    @staticmethod
    def _suggest(sampler: Sampler, other: Sampler, numbers: Sequence[int]) -> dict[int, Suggestion]:
        found = dict(zip(numbers, sampler.ask(numbers), strict=False))
        for number, answer in found.items():
            other.tell(Trial(number, answer.params, answer.origin, TrialState.WAITING))
        return found

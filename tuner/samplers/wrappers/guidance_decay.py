"""Guidance that fades: what was known beforehand counts less, the more is measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...core.sampler import Sampler
from ...core.trial import Suggestion, Trial, TrialState

_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0
_TRUSTED = 5.0
"""After so many complete trials, what they say is believed as much as the guidance."""


class GuidanceDecay(Sampler):
    """Asks a sampler that is guided (by a prior, by earlier studies) or its twin that is not.

    Both are told every trial. The guided one answers first; with n complete trials, one question
    in 1 + n / 5. So guidance that misleads is overcome, as a wrong prior is in πBO, where its
    exponent falls with 1 / n (Hvarfner et al. 2022, "πBO: Augmenting acquisition functions with
    user priors"), and guidance that does not has shown by then where to search: the twin has
    learned from what the guided one found.

    Args:
        guided: Who has the guidance.
        plain: Its twin.
    """

    def __init__(self, guided: Sampler, plain: Sampler) -> None:
        self._guided = guided
        self._plain = plain
        self._complete: set[int] = set()
        self._latest: tuple[tuple[int, ...], list[Suggestion]] = ((), [])

    def tell(self, trial: Trial) -> None:
        """Tell both."""
        self._latest = ((), [])
        if trial.state is TrialState.COMPLETE and trial.number >= 0:
            self._complete.add(trial.number)
        self._guided.tell(trial)
        self._plain.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """For each number the answer of one of them; each knows what the other one answered."""
        asked = tuple(numbers)
        if asked != self._latest[0]:
            # Asked again, the first would know what the second one answered.
            self._latest = (asked, self._answered(asked))
        return list(self._latest[1])

    def _answered(self, numbers: Sequence[int]) -> list[Suggestion]:
        trust = _TRUSTED / (_TRUSTED + len(self._complete))
        # Multiples of the golden ratio are spread evenly, wherever one stops.
        guided_ones = [number for number in numbers if number * _GOLDEN % 1.0 < trust]
        found = self._answers(self._guided, self._plain, guided_ones)
        rest = [number for number in numbers if number not in found]
        found |= self._answers(self._plain, self._guided, rest)
        return [found[number] for number in numbers if number in found]

    @staticmethod
    def _answers(who: Sampler, other: Sampler, numbers: Sequence[int]) -> dict[int, Suggestion]:
        found = dict(zip(numbers, who.ask(numbers), strict=False))
        for number, answer in found.items():
            other.tell(Trial(number, answer.params, answer.origin, TrialState.WAITING))
        return found

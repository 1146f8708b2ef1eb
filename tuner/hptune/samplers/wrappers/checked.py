"""A sampler whose faults are told in its name: a plug-in may raise or return anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import Suggestion, Trial
from ...errors import StudyError, faults_of_others

_PLAIN = (bool, int, float, str, type(None))


class CheckedSampler(Sampler):
    """Asks a sampler, and refuses what the contract does not allow.

    Args:
        name: What messages call the sampler.
        space: The search space.
        make: Makes the sampler.

    Raises:
        StudyError: It cannot be made, or it is no sampler.
    """

    def __init__(self, name: str, space: SearchSpace, make: Callable[[], Any]) -> None:
        self._name = name
        self._space = space
        with faults_of_others(self._fault):
            made = make()
            if not isinstance(made, Sampler):
                raise self._fault(f"its factory returned {made!r}; it must be a Sampler")
        self._sampler = made

    def tell(self, trial: Trial) -> None:
        """Tell the sampler."""
        with faults_of_others(self._fault):
            self._sampler.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return the sampler's suggestions.

        Raises:
            StudyError: It failed, or its answer is no list of configurations of the space.
        """
        if not numbers:
            return []
        with faults_of_others(self._fault):
            answer = self._sampler.ask(numbers)
            if not isinstance(answer, list | tuple):
                raise self._fault(f"ask returned {answer!r}; it must be a list of Suggestion")
            if len(answer) > len(numbers):
                raise self._fault(f"ask returned {len(answer)} suggestions for {len(numbers)}")
            for each in answer:
                self._check(each)
        return [*answer]

    def _check(self, suggestion: object) -> None:
        if not isinstance(suggestion, Suggestion):
            raise self._fault(f"ask returned {suggestion!r}; it must be a Suggestion")
        for name, value in suggestion.params.items():
            if type(value) not in _PLAIN:
                kind = f"{type(value).__module__}.{type(value).__qualname__}"
                raise self._fault(
                    f"{name} is {value!r} of type {kind}; allowed are Python's own bool, int, "
                    "float, str and None"
                )
        if fault := self._space.explain(suggestion.params):
            raise self._fault(f"{dict(suggestion.params)} lies outside the space: {fault}")

    def _fault(self, words: str, detail: str = "") -> StudyError:
        return StudyError(
            f"the search {self._name} failed: {words}. Finished trials are kept: correct it and "
            "use `hptune resume`; another --search needs a new study (--warm-start uses these "
            "trials)",
            detail,
        )

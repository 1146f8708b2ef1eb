"""The conformance suite can fail: each broken sampler is caught by the test that is meant for it.

Every broken sampler here is a sound one with one fault.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import FixedParameter, SearchSpace
from hptune.core.trial import ParamValue, Suggestion, Trial, TrialState
from hptune.samplers.random_search import RandomSampler
from hptune.testing.sampler_cases import Phase
from hptune.testing.samplers import SamplerSuite


class Sound(Sampler):
    """Random search, to be broken by subclasses."""

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self.space, self.seed = space, seed
        self.inner = RandomSampler(space, seed)
        self.told: list[Trial] = []

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return self.inner.ask(numbers)

    def tell(self, trial: Trial) -> None:
        self.told.append(trial)
        self.inner.tell(trial)

    def restarted(self, seed: int) -> RandomSampler:
        """Another random search that knows the same trials."""
        other = RandomSampler(self.space, seed)
        for trial in self.told:
            other.tell(trial)
        return other


class IgnoresConditions(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        everything = {parameter.name: parameter.default for parameter in self.space}
        return [Suggestion({**everything, **s.params}, s.origin) for s in super().ask(numbers)]


class GoesAstrayOnceItHasAModel(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        if len(self.told) < 20:
            return super().ask(numbers)
        return [Suggestion({"best": 1.0}, "model") for _ in numbers]


class AnswersWithNumpy(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        def spoil(value: ParamValue) -> ParamValue:
            return np.float64(value) if isinstance(value, float) else value

        return [
            Suggestion({name: spoil(value) for name, value in s.params.items()}, s.origin)
            for s in super().ask(numbers)
        ]


class AnswersOneAtATime(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return super().ask(numbers[:1])


class ForgetsWhatRuns(Sound):
    def tell(self, trial: Trial) -> None:
        if trial.state.is_final:
            super().tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        # The numbers are not looked at, as by a model that has learned nothing new.
        return self.inner.ask(range(len(numbers)))


class RoundsNumbers(Sound):
    def __init__(self, space: SearchSpace, seed: int) -> None:
        super().__init__(space, seed)
        self.seen: set[str] = set()

    @staticmethod
    def rounded(params: object) -> str:
        items = params.items() if isinstance(params, dict) else ()
        return str([f"{v:.3g}" if isinstance(v, float) else v for _, v in items])

    def tell(self, trial: Trial) -> None:
        self.seen.add(self.rounded(trial.params))
        super().tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return [s for s in super().ask(numbers) if self.rounded(s.params) not in self.seen]


class NeverEnds(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        answers = super().ask(numbers)
        spare = Suggestion(self.space.defaults(), "spare")
        return answers + [spare] * (len(numbers) - len(answers))


class ChangesItsMind(Sound):
    asked = 0

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        self.asked += 1
        return self.restarted(self.seed + self.asked).ask(numbers)


class FollowsTheLastTold(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        last = self.told[-1].number if self.told else 0
        return self.restarted(self.seed + last).ask(numbers)


class CountsTells(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return self.restarted(self.seed + len(self.told)).ask(numbers)


class HashesStrings(Sound):
    def __init__(self, space: SearchSpace, seed: int) -> None:
        super().__init__(space, (hash("seed") + seed) % 2**32)


class IgnoresTheSeed(Sound):
    def __init__(self, space: SearchSpace, seed: int) -> None:
        super().__init__(space, 0)


class TrustsStrangers(Sound):
    def tell(self, trial: Trial) -> None:
        for parameter in self.space.active(trial.params):
            parameter.to_unit(trial.params[parameter.name])
        super().tell(trial)


class TakesEarlierStudiesForThisOne(Sound):
    def tell(self, trial: Trial) -> None:
        super().tell(replace(trial, number=abs(trial.number)))


class NeedsAValue(Sound):
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        over = [trial for trial in self.told if trial.state is not TrialState.WAITING]
        values = [trial.value for trial in over if trial.value is not None]
        if over and min(values) < 0:
            return []
        return super().ask(numbers)


class KeepsToALine(Sound):
    def __init__(self, space: SearchSpace, seed: int) -> None:
        if {"x", "y"} <= {parameter.name for parameter in space}:
            space = SearchSpace((FixedParameter("x", 5.0), space.parameters[1]))
        super().__init__(space, seed)


def suite_of(sampler: Callable[[SearchSpace, int], Sampler]) -> type[SamplerSuite]:
    class Suite(SamplerSuite):
        def make(self, space: SearchSpace, seed: int) -> Sampler:
            return sampler(space, seed)

    return Suite


class HashingSuite(SamplerSuite):
    """Another process must be able to import this one by its name."""

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        return HashesStrings(space, seed)


CAUGHT_BY: list[tuple[type[SamplerSuite], str]] = [
    (suite_of(IgnoresConditions), "test_suggestions_lie_in_the_space"),
    (suite_of(GoesAstrayOnceItHasAModel), "test_suggestions_lie_in_the_space"),
    (suite_of(AnswersWithNumpy), "test_values_are_plain_python"),
    (suite_of(AnswersOneAtATime), "test_it_answers_for_every_number_while_it_can"),
    (suite_of(ForgetsWhatRuns), "test_many_pending_and_none_repeated"),
    (suite_of(RoundsNumbers), "test_a_finite_space_is_exhausted_exactly_once"),
    (suite_of(NeverEnds), "test_a_finite_space_is_exhausted_exactly_once"),
    (suite_of(ChangesItsMind), "test_asking_twice_gives_the_same_answer"),
    (suite_of(FollowsTheLastTold), "test_the_order_of_tells_does_not_matter"),
    (suite_of(CountsTells), "test_telling_twice_changes_nothing"),
    (suite_of(CountsTells), "test_a_fresh_sampler_told_the_same_goes_on_the_same"),
    (HashingSuite, "test_the_same_seed_in_another_process_answers_the_same"),
    (suite_of(IgnoresTheSeed), "test_other_seeds_give_other_suggestions"),
    (suite_of(TrustsStrangers), "test_trials_from_elsewhere_do_no_harm"),
    (suite_of(TakesEarlierStudiesForThisOne), "test_what_earlier_studies_tried_is_new_in_this_one"),
    (suite_of(NeedsAValue), "test_only_failures_do_no_harm"),
    (suite_of(KeepsToALine), "test_no_worse_than_random_on_branin"),
]
TESTS = [name for name in vars(SamplerSuite) if name.startswith("test_")]


def cases_of(test: str) -> list[tuple[object, ...]]:
    """The arguments that pytest would call an inherited test with."""
    names = inspect.signature(getattr(SamplerSuite, test)).parameters
    if not names.keys() & {"case", "finite_case"}:
        return [()]
    return [(case,) for case in suite_of(Sound)().cases(finite="finite_case" in names)]


def run(suite: type[SamplerSuite], test: str) -> None:
    for arguments in cases_of(test):
        getattr(suite(), test)(*arguments)


@pytest.mark.parametrize(("suite", "test"), CAUGHT_BY)
def test_a_broken_sampler_is_rejected(suite: type[SamplerSuite], test: str) -> None:
    # The harm that strangers and failures do is mostly a crash, of whatever kind.
    caught = Exception if test.endswith("do_no_harm") else AssertionError
    with pytest.raises(caught):
        run(suite, test)


@pytest.mark.parametrize("test", TESTS)
def test_every_test_of_the_suite_rejects_something(test: str) -> None:
    assert test in {name for _, name in CAUGHT_BY}


@pytest.mark.parametrize("test", [t for t in TESTS if "another_process" not in t])
def test_the_sound_sampler_passes(test: str) -> None:
    run(suite_of(Sound), test)


def test_a_fault_that_comes_with_a_model_shows_in_a_later_phase_only() -> None:
    suite = suite_of(GoesAstrayOnceItHasAModel)()
    phases = set()
    case: Any
    for (case,) in cases_of("test_suggestions_lie_in_the_space"):
        try:
            suite.test_suggestions_lie_in_the_space(case)
        except AssertionError:
            phases.add(case.phase)
    assert phases == {Phase.TOLD, Phase.RACED, Phase.NEARLY_EXHAUSTED}

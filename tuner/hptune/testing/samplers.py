# ruff: noqa: D102  (a test's name says what it asks for)
"""The contract of a sampler as tests.

A plug-in's author writes::

    class TestMySampler(SamplerSuite):
        def make(self, space: SearchSpace, seed: int) -> Sampler:
            return MySampler(space, seed, direction=Direction.MIN)

and inherits the tests. Each runs once per *phase*: no trials, thirty trials, thirty trials with
early stopping, nearly all configurations tried. A sampler may fulfil the contract with random
draws and violate it with a model or in a nearly exhausted space.
"""

from __future__ import annotations

import abc
import functools
import importlib
import itertools
import json
import math
import os
import random
import statistics
import subprocess
import sys
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion, Trial, TrialState
from .sampler_cases import CASES, EXHAUSTIBLE_CASES, Case, ended
from .shared import shared
from .spaces import BRANIN, BRANIN_LEAST, SPACES, branin

COUNT = 5
"""Suggestions that most tests ask for."""
TRANSCRIBED = ("nested", "all types", "conditional continuum")
"""Spaces whose answers another process must give: the names and words in them have hashes."""


class SamplerSuite(abc.ABC):
    """The contract of a sampler. Subclass it as Test…, and supply `make`.

    Attributes:
        spaces: Names of the spaces in `hptune.testing.spaces.SPACES` to test.
        slow_spaces: Those of them whose tests are marked `slow`.
        is_random: Whether different seeds give different suggestions; False for a grid.
        branin_trials: Number of trials on Branin's function.
        branin_tolerance: How much worse than random search the sampler may be there, in powers of
            ten of the regret, averaged over `branin_seeds` seeds. Two random searches differ by
            about 0.2.
        branin_seeds: Number of seeds to average over.
    """

    spaces: Collection[str] = tuple(SPACES)
    slow_spaces: Collection[str] = ()
    is_random = True
    branin_trials = 60
    branin_tolerance = 0.4
    branin_seeds = 8

    @abc.abstractmethod
    def make(self, space: SearchSpace, seed: int) -> Sampler:
        """Return a new sampler without trials, for which lower values are better."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run tests with a case once for each case."""
        for name in ("case", "finite_case"):
            if name in metafunc.fixturenames:
                cases = [
                    pytest.param(
                        case,
                        id=str(case),
                        marks=[pytest.mark.slow] if case.space_name in self.slow_spaces else [],
                    )
                    for case in self.cases(finite=name == "finite_case")
                ]
                metafunc.parametrize(name, cases)

    def cases(self, *, finite: bool = False) -> list[Case]:
        """Return the cases to test; with `finite`, those of spaces that can be exhausted."""
        cases = EXHAUSTIBLE_CASES if finite else CASES
        return [case for case in cases if case.space_name in self.spaces]

    def start(self, case: Case, seed: int = 1) -> tuple[Sampler, list[Trial]]:
        """Return a sampler in the case's phase, and the trials that it was told."""
        sampler, history = self.make(case.space, seed), case.history()
        tell_all(sampler, history)
        return sampler, history

    def answered(self, case: Case) -> tuple[Sampler, list[Suggestion]]:
        """Return a sampler in the case's phase and its first answer, which tests share."""
        return _answered(shared(self), case)

    # --- what a suggestion is -----------------------------------------------------------------

    def test_suggestions_lie_in_the_space(self, case: Case) -> None:
        _, answers = self.answered(case)
        for suggestion in answers:
            fault = case.space.explain(suggestion.params)
            assert not fault, f"{dict(suggestion.params)} lies outside the space: {fault}"

    def test_values_are_plain_python(self, case: Case) -> None:
        _, answers = self.answered(case)
        for suggestion in answers:
            assert suggestion.origin, "a suggestion must say where it comes from"
            for name, value in suggestion.params.items():
                assert type(name) is str, f"the name {name!r} is a {type(name)}"
                assert type(value) in (bool, int, float, str, type(None)), (
                    f"{name} is a {type(value)}"
                )

    def test_it_answers_for_every_number_while_it_can(self, case: Case) -> None:
        sampler, answers = self.answered(case)
        size = case.space.size()
        assert len(answers) == (COUNT if size is None else min(COUNT, size - len(case.history())))
        assert sampler.ask([]) == []

    # --- never twice --------------------------------------------------------------------------

    def test_many_pending_and_none_repeated(self, case: Case) -> None:
        sampler, history = self.start(case)
        seen = {case.space.key(trial.params) for trial in history}
        number = len(history)
        for count in (1, 5, 2, 6):
            answers = sampler.ask(range(number, number + count))
            for suggestion in answers:
                key = case.space.key(suggestion.params)
                assert key not in seen, f"{dict(suggestion.params)} came twice"
                seen.add(key)
            for suggestion in answers:  # created, perhaps started, never ended
                trial = Trial(number, suggestion.params, suggestion.origin, TrialState.WAITING)
                sampler.tell(trial)
                if number % 2:
                    sampler.tell(
                        Trial(number, trial.params, trial.origin, TrialState.RUNNING, attempts=1)
                    )
                number += 1

    def test_a_finite_space_is_exhausted_exactly_once(self, finite_case: Case) -> None:
        sampler, history = self.start(finite_case)
        space = finite_case.space
        every = space.configurations()
        assert every is not None
        expected = {space.key(params) for params in every}
        seen = [space.key(trial.params) for trial in history]
        number = len(history)
        for batch in itertools.cycle((3, 1, 8)):
            answers = sampler.ask(range(number, number + batch))
            seen += [space.key(suggestion.params) for suggestion in answers]
            for suggestion in answers:
                sampler.tell(waiting(number, suggestion))
                sampler.tell(ended(space, number, suggestion.params))
                number += 1
            if len(answers) < batch:
                break
            assert len(seen) <= len(expected), "more suggestions than the space has configurations"
        assert len(seen) == len(set(seen)), "a configuration came twice"
        assert set(seen) == expected, f"{len(expected) - len(set(seen))} configurations never came"
        assert sampler.ask([number]) == [], "the space is exhausted, and yet there is an answer"

    # --- the same again -----------------------------------------------------------------------

    def test_asking_twice_gives_the_same_answer(self, case: Case) -> None:
        sampler, answers = self.answered(case)
        assert_same(answers, sampler.ask(after(case.history(), COUNT)), case.space)

    def test_the_order_of_tells_does_not_matter(self, case: Case) -> None:
        _, in_order = self.answered(case)
        sampler, history = self.make(case.space, 1), case.history()
        random.Random(3).shuffle(history)
        for trial in history:  # all of them run at once, and end in another order
            sampler.tell(Trial(trial.number, trial.params, "test", TrialState.RUNNING))
        for trial in reversed(history):
            sampler.tell(trial)
        assert_same(in_order, sampler.ask(after(history, COUNT)), case.space)

    def test_telling_twice_changes_nothing(self, case: Case) -> None:
        _, once = self.answered(case)
        twice, history = self.start(case)
        tell_all(twice, history)
        assert_same(once, twice.ask(after(history, COUNT)), case.space)

    def test_a_fresh_sampler_told_the_same_goes_on_the_same(self, case: Case) -> None:
        old, trials = self.start(case)
        trials += live(old, case.space, first=len(trials), count=6)
        fresh = self.make(case.space, 1)
        for trial in trials:  # as a study does on resume: where each trial stands, and no more
            fresh.tell(trial)
        numbers = after(trials, 3)
        assert_same(old.ask(numbers), fresh.ask(numbers), case.space)

    def test_the_same_seed_in_another_process_answers_the_same(self) -> None:
        here = transcript(self)
        there = transcript_in_another_process(type(self))
        assert there["hash"] != here["hash"], "both processes hash strings alike: nothing is shown"
        assert there["answers"] == here["answers"]

    def test_other_seeds_give_other_suggestions(self) -> None:
        space = SPACES["all types"]
        answers = {
            json.dumps([dict(s.params) for s in self.make(space, seed).ask(range(4))])
            for seed in range(5)
        }
        assert len(answers) == (5 if self.is_random else 1)

    # --- what others do -----------------------------------------------------------------------

    def test_trials_from_elsewhere_do_no_harm(self, case: Case) -> None:
        sampler, history = self.start(case)
        number = len(history)
        strangers: list[Params] = [{"never heard of": 1}, {"layers": "many", "units": -1}, {}]
        for params in strangers:
            for state, value in ((TrialState.WAITING, None), (TrialState.COMPLETE, -1.0)):
                sampler.tell(Trial(number, params, "user", state, value=value))
            number += 1
        size = case.space.size()
        left = None if size is None else size - len(history) - (case.space_name == "empty")
        answers = sampler.ask(range(number, number + 2))
        assert len(answers) == (2 if left is None else min(2, left))
        assert all(case.space.contains(suggestion.params) for suggestion in answers)

    def test_what_earlier_studies_tried_is_new_in_this_one(self, case: Case) -> None:
        sampler = self.make(case.space, 1)
        history = case.history()
        for trial in history:  # numbers below 0: a warm start
            sampler.tell(replace(trial, number=-1 - trial.number))
        size = case.space.size()
        expected = COUNT if size is None else min(COUNT, size)
        answers = sampler.ask(range(COUNT))
        assert len(answers) == expected
        assert all(case.space.contains(suggestion.params) for suggestion in answers)

    def test_only_failures_do_no_harm(self, case: Case) -> None:
        sampler, history = self.make(case.space, 1), case.history()
        for trial in history:
            sampler.tell(Trial(trial.number, trial.params, "test", TrialState.FAILED))
        answers = sampler.ask(after(history, 3))
        size = case.space.size()
        assert len(answers) == (3 if size is None else min(3, size - len(history)))
        assert all(case.space.contains(suggestion.params) for suggestion in answers)

    def test_no_worse_than_random_on_branin(self) -> None:
        mine, random_search = [], []
        for seed in range(self.branin_seeds):
            rng = np.random.default_rng(1_000 + seed)
            drawn = (branin(BRANIN.sample(rng)) for _ in range(self.branin_trials))
            random_search.append(_log_regret(min(drawn)))
            mine.append(_log_regret(self._best_on_branin(seed)))
        allowed = statistics.mean(random_search) + self.branin_tolerance
        assert statistics.mean(mine) <= allowed, (
            f"log10 of the regret is {statistics.mean(mine):.2f} on average, allowed is "
            f"{allowed:.2f}: random search's with a tolerance of {self.branin_tolerance}"
        )

    def _best_on_branin(self, seed: int) -> float:
        sampler = self.make(BRANIN, seed)
        best = math.inf
        for number in range(self.branin_trials):
            for suggestion in sampler.ask([number]):
                value = branin(suggestion.params)
                best = min(best, value)
                sampler.tell(waiting(number, suggestion))
                sampler.tell(
                    Trial(number, suggestion.params, "test", TrialState.COMPLETE, value=value)
                )
        return best


@functools.cache
def _answered(suite: SamplerSuite, case: Case) -> tuple[Sampler, list[Suggestion]]:
    sampler, history = suite.start(case)
    return sampler, sampler.ask(after(history, COUNT))


# --- helpers ----------------------------------------------------------------------------------


def after(history: Sequence[Trial], count: int) -> range:
    """Return the next `count` trial numbers."""
    return range(len(history), len(history) + count)


def waiting(number: int, suggestion: Suggestion) -> Trial:
    """Return the WAITING trial of a suggestion."""
    return Trial(number, suggestion.params, suggestion.origin, TrialState.WAITING)


def tell_all(sampler: Sampler, trials: Iterable[Trial]) -> None:
    """Tell each trial as a study does: when it is created and when it ends."""
    for trial in trials:
        sampler.tell(Trial(trial.number, trial.params, trial.origin, TrialState.WAITING))
        sampler.tell(trial)


def live(sampler: Sampler, space: SearchSpace, *, first: int, count: int) -> list[Trial]:
    """Run a study with three parallel trials, and return its trials in their last states."""
    trials: dict[int, Trial] = {}
    running: list[int] = []
    number = first
    while number < first + count:
        answers = sampler.ask(range(number, number + 3))
        for suggestion in answers:
            trials[number] = waiting(number, suggestion)
            sampler.tell(trials[number])
            running.append(number)
            number += 1
        # The last one started ends first, and one goes on running.
        while len(running) > 1:
            done = running.pop()
            trials[done] = ended(space, done, trials[done].params)
            sampler.tell(trials[done])
        if len(answers) < 3:
            break
    return list(trials.values())


def assert_same(
    left: Sequence[Suggestion], right: Sequence[Suggestion], space: SearchSpace
) -> None:
    """Check that two answers have the same configurations in the same order."""
    keys: list[list[Hashable]] = [[space.key(s.params) for s in side] for side in (left, right)]
    assert keys[0] == keys[1], f"{keys[0]} is not {keys[1]}"


def transcript(suite: SamplerSuite) -> dict[str, object]:
    """Return a sampler's answers, and this process's hash of a string."""
    answers = {}
    names = set(TRANSCRIBED) & set(suite.spaces) or suite.spaces
    for case in suite.cases():
        if case.space_name not in names:
            continue
        sampler, history = suite.start(case, seed=11)
        trials = history + live(sampler, case.space, first=len(history), count=6)
        configurations = [trial.params for trial in trials]
        configurations += [suggestion.params for suggestion in sampler.ask(after(trials, 2))]
        answers[str(case)] = [repr(case.space.key(params)) for params in configurations]
    return {"hash": hash("hptune"), "answers": answers}


def transcript_in_another_process(suite: type[SamplerSuite]) -> dict[str, object]:
    """Return the same from a new process with another hash seed."""
    program = (
        "import json, sys; job = json.load(sys.stdin); sys.path[:] = job['path']; "
        "from hptune.testing.samplers import transcript_by_name; "
        "json.dump(transcript_by_name(job['module'], job['name']), sys.stdout)"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    job = {"path": sys.path, "module": suite.__module__, "name": suite.__qualname__}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONHASHSEED": other},
    )
    assert done.returncode == 0, f"the other process failed:\n{done.stderr}"
    found: dict[str, object] = json.loads(done.stdout)
    return found


def transcript_by_name(module: str, name: str) -> dict[str, object]:
    """Return the transcript of the suite with this module and name."""
    suite: object = importlib.import_module(module)
    for part in name.split("."):
        suite = getattr(suite, part)
    if not isinstance(suite, type) or not issubclass(suite, SamplerSuite):
        raise TypeError(f"{module}.{name} is no SamplerSuite")
    return transcript(suite())


def _log_regret(best: float) -> float:
    return math.log10(max(best - BRANIN_LEAST, 1e-9))

# ruff: noqa: D102  (a test's name says what it asks for)
"""The contract of a pruner as tests.

A plug-in's author writes::

    class TestMyPruner(PrunerSuite):
        def make(self, directions: tuple[Direction, ...]) -> Pruner:
            return MyPruner(directions=directions)

and inherits the tests. In each, a race runs trials in a few slots as the engine does, and records
all facts and decisions. With several objectives, "the best trial" means every trial that no other
one beats (the Pareto front).
"""

from __future__ import annotations

import abc
import functools
import math
import random
from collections.abc import Sequence

import pytest

from ..core.pruner import Decision, Pruner
from ..core.trial import Direction, TrialState
from .pruner_races import (
    EPOCHS,
    TRIALS,
    Curve,
    MoveFact,
    Race,
    ReportFact,
    Values,
    curves,
    shuffled,
)
from .shared import shared

SEEDS = range(3)
SEEDS_OF_SUMS = range(4)
TURNS = 200
"""Turns of a race that is interrupted: some of its trials run, and some are over."""
LEAST_PART = 0.9
"""Part of the epochs of trials that all differ that trials with few different values train."""

each_seed = pytest.mark.parametrize("seed", SEEDS)
each_direction = pytest.mark.parametrize("direction", Direction)
each_count = pytest.mark.parametrize("objectives", [1, 2])
# A race by several objectives takes several times as long.
each_race = pytest.mark.parametrize(
    ("seed", "objectives"), [*((seed, 1) for seed in SEEDS), *((seed, 2) for seed in SEEDS[:2])]
)


class PrunerSuite(abc.ABC):
    """The contract of a pruner. Subclass it as Test…, and supply `make`.

    Attributes:
        prunes: Whether poor trials are stopped or paused.
        judges_at_rungs_only: Whether trials are stopped or paused only at rungs.
        compares_several: Whether trials are compared by several objectives; if not, tests with
            several are skipped.
    """

    prunes = True
    judges_at_rungs_only = True
    compares_several = True

    @abc.abstractmethod
    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        """Return a new pruner for trainings of `EPOCHS` epochs; a direction for each objective."""

    def race(
        self,
        seed: int,
        objectives: int = 1,
        direction: Direction = Direction.MAX,
        most_steps: int = 1,
    ) -> Race:
        """Return a race that has not started; all objectives have the same direction."""
        curve = curves(seed, objectives)
        return self.race_of(curve, (direction,) * objectives, seed=seed, most_steps=most_steps)

    def race_of(
        self, curve: Curve, directions: tuple[Direction, ...], seed: int = 0, most_steps: int = 1
    ) -> Race:
        """Return a race with these curves that has not started."""
        if len(directions) > 1 and not self.compares_several:
            pytest.skip("it compares trials by one objective")
        return Race(self.make(directions), curve, directions, seed, most_steps=most_steps)

    def finished(self, seed: int, objectives: int = 1) -> Race:
        """Return a race that has ended, to be read only: tests share it."""
        return _finished(shared(self), seed, objectives)

    # --- what it is for -----------------------------------------------------------------------

    @each_race
    def test_every_race_ends_and_the_best_trial_is_trained_in_full(
        self, seed: int, objectives: int
    ) -> None:
        short = self.race(seed, objectives)
        short.trials = 5
        for race in (self.finished(seed, objectives), short.run()):
            assert len(race.states) == race.trials
            assert {race.states[leader] for leader in race.leaders} == {TrialState.COMPLETE}

    @each_race
    def test_poor_trials_are_spared_their_epochs(self, seed: int, objectives: int) -> None:
        race = self.finished(seed, objectives)
        assert (sum(race.steps.values()) < TRIALS * EPOCHS) == self.prunes

    @each_seed
    def test_the_best_trial_seen_so_far_is_never_stopped(self, seed: int) -> None:
        direction = Direction.MAX  # that MIN is the same has a test of its own
        # `Race` checks it at each decision; here the lead changes with almost every trial.
        race = self.race_of(lambda trial, step: (trial + step / 100,), (direction,), seed).run()
        assert {race.states[leader] for leader in race.leaders} == {TrialState.COMPLETE}
        # The leader of a race in which late steps turn everything over.
        turning = self.race_of(_late_bloomers, (direction,), seed, most_steps=3).run()
        assert {turning.states[leader] for leader in turning.leaders} == {TrialState.COMPLETE}
        # The second objective becomes worse with the steps, so trials leave the front again.
        self.race_of(_trade_off(seed), (direction, Direction.MIN), seed, most_steps=3).run()

    def test_equal_trials_leave_one_that_is_trained_in_full(self) -> None:
        for directions in ((Direction.MAX,), (Direction.MAX, Direction.MIN)):
            race = self.race_of(_always(0.5, directions), directions).run()
            assert race.standing(TrialState.COMPLETE)

    @pytest.mark.parametrize("leader", [None, 0])
    def test_equal_trials_are_spared_no_more_epochs_than_different_ones(
        self, leader: int | None
    ) -> None:
        def epochs(values: int) -> int:
            """Return how many all trials train whose values are so few."""
            total = 0
            for seed in SEEDS_OF_SUMS:
                race = self.race_of(_of_few_values(values, seed, leader), (Direction.MAX,), seed)
                total += sum(race.run().steps.values())
            return total

        apart = epochs(2**30)
        for values in (1, 2, 5):
            tied = epochs(values)
            assert tied > LEAST_PART * apart, "equal trials are in the order of their numbers"

    @each_count
    @each_direction
    def test_while_no_trial_has_a_value_none_is_stopped(
        self, direction: Direction, objectives: int
    ) -> None:
        directions = (direction,) * objectives
        race = self.race_of(_always(-math.inf, directions), directions).run()
        assert race.standing(TrialState.COMPLETE) == [*range(TRIALS)]

    @each_count
    def test_trials_without_a_value_are_spared_most(self, objectives: int) -> None:
        half, without, with_one = TRIALS // 2, 0, 0
        for seed in SEEDS_OF_SUMS:
            for odd in (0, 1):  # a trial's number may say how early it is judged
                race, curve = self.race(seed, objectives), curves(seed, objectives)
                race.curve = _every_other_one_has_none(curve, after=half, odd=odd)
                race.run()
                without += sum(race.steps[number] for number in range(half + odd, TRIALS, 2))
                with_one += sum(race.steps[number] for number in range(half + 1 - odd, TRIALS, 2))
        assert (without < with_one) == self.prunes

    # --- several objectives -------------------------------------------------------------------

    @each_seed
    def test_an_objective_in_which_all_are_equal_makes_no_difference(self, seed: int) -> None:
        curve = curves(seed)
        both = (Direction.MAX, Direction.MIN)
        alone = self.finished(seed)
        first = self.race_of(lambda trial, step: (*curve(trial, step), 1.0), both, seed).run()
        assert first.answers == alone.answers

    @each_seed
    def test_an_objective_that_is_named_twice_counts_once(self, seed: int) -> None:
        curve = curves(seed)
        alone = self.finished(seed)
        twice = self.race_of(
            lambda trial, step: curve(trial, step) * 2, (Direction.MAX, Direction.MIN), seed
        ).run()
        assert twice.answers == alone.answers

    # --- facts and questions ------------------------------------------------------------------

    @each_race
    def test_asking_changes_nothing(self, seed: int, objectives: int) -> None:
        asked_often = self.race(seed, objectives)
        asked_often.times_asked = 3
        asked_often.run(turns=TURNS)
        asked_once, expected = _interrupted(shared(self), seed, objectives)
        assert asked_often.answers == asked_once.answers
        without_questions = self.make(asked_once.directions)
        for fact in asked_once.facts:
            fact.tell(without_questions)
        assert asked_once.knowledge(without_questions) == expected

    @each_race
    def test_facts_that_are_reported_twice_count_once(self, seed: int, objectives: int) -> None:
        race, expected = _interrupted(shared(self), seed, objectives)
        again = self.make(race.directions)
        for fact in race.facts:
            fact.tell(again)
            fact.tell(again)
        assert race.knowledge(again) == expected

    @each_race
    def test_reports_may_come_late_and_in_another_order(self, seed: int, objectives: int) -> None:
        race = self.race(seed, objectives, most_steps=5).run(turns=120)
        expected = race.knowledge(race.pruner)
        for shuffle in range(4):
            other = self.make(race.directions)
            for fact in shuffled(race.facts, seed=shuffle):
                fact.tell(other)
            assert race.knowledge(other) == expected

    @each_race
    def test_what_comes_after_a_trial_is_over_is_ignored(self, seed: int, objectives: int) -> None:
        race, expected = _interrupted(shared(self), seed, objectives)
        again = self.make(race.directions)
        for fact in race.facts:
            fact.tell(again)
        for trial, state in race.states.items():
            if state.is_final:
                for step in range(1, EPOCHS):
                    again.report(trial, step, (2.0,) * objectives)
                again.moved(trial, state)
        assert race.knowledge(again) == expected

    @each_race
    def test_the_direction_makes_no_difference(self, seed: int, objectives: int) -> None:
        more = self.finished(seed, objectives)
        less = self.race(seed, objectives, Direction.MIN).run()
        assert more.answers == less.answers
        assert more.states == less.states

    @each_count
    def test_trials_that_reported_nothing_go_on(self, objectives: int) -> None:
        pruner = self.race(0, objectives).pruner
        pruner.moved(7, TrialState.RUNNING)
        assert pruner.decide(7) is Decision.CONTINUE
        assert pruner.decide(8) is Decision.CONTINUE
        pruner.moved(7, TrialState.FAILED)
        assert pruner.promotion(is_last=True) is None

    # --- rungs --------------------------------------------------------------------------------

    def test_rungs_are_whole_numbers_that_ascend(self) -> None:
        rungs = self.make((Direction.MAX,)).rungs
        assert all(type(rung) is int for rung in rungs)
        assert list(rungs) == sorted(set(rungs))
        assert not rungs or rungs[0] >= 1
        assert not rungs or rungs[-1] < EPOCHS
        assert bool(rungs) == self.prunes

    @each_race
    def test_trials_are_judged_at_rungs_and_nowhere_else(self, seed: int, objectives: int) -> None:
        if not self.judges_at_rungs_only:
            return
        race = self.finished(seed, objectives)
        places = {step for fact in race.facts if (step := _stopped_at(fact, race))}
        assert places <= set(race.pruner.rungs)

    @each_race
    def test_steps_may_be_left_out(self, seed: int, objectives: int) -> None:
        thinned = self.race(seed, objectives, most_steps=7).run()
        assert {thinned.states[leader] for leader in thinned.leaders} == {TrialState.COMPLETE}


@functools.cache
def _finished(suite: PrunerSuite, seed: int, objectives: int) -> Race:
    return suite.race(seed, objectives).run()


@functools.cache
def _interrupted(suite: PrunerSuite, seed: int, objectives: int) -> tuple[Race, list[object]]:
    """Return a race after some turns, and what its pruner knows."""
    race = suite.race(seed, objectives).run(turns=TURNS)
    return race, race.knowledge(race.pruner)


def _always(value: float, directions: Sequence[Direction]) -> Curve:
    return lambda _trial, _step: tuple(value for _ in directions)


def _every_other_one_has_none(curve: Curve, *, after: int, odd: int) -> Curve:
    def values(trial: int, step: int) -> Values:
        found = curve(trial, step)
        is_without = trial >= after and trial % 2 == odd
        return tuple(-math.inf for _ in found) if is_without else found

    return values


def _of_few_values(count: int, seed: int, leader: int | None) -> Curve:
    """Return curves that do not change with the steps, of so few values; one may be better."""

    @functools.cache
    def of_trial(trial: int) -> Values:
        value = random.Random(f"{seed} {trial}").random() + (trial == leader)
        return (math.floor(value * count) / count,)

    return lambda trial, _step: of_trial(trial)


def _late_bloomers(trial: int, step: int) -> Values:
    return (1.0 / (trial + 1) if step < EPOCHS // 2 else float(trial),)


def _trade_off(seed: int) -> Curve:
    curve = curves(seed, 2)

    def values(trial: int, step: int) -> Values:
        first, second = curve(trial, step)
        return first, second - step / EPOCHS

    return values


def _stopped_at(fact: ReportFact | MoveFact, race: Race) -> int | None:
    if isinstance(fact, MoveFact) and fact.state is TrialState.PRUNED:
        return race.steps[fact.trial]
    return None

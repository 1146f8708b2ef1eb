"""The suite for pruners turns away what breaks the contract: each test can fail."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence

import pytest

from hptune.core.pruner import Decision, HalvingMode, NeverPrune, Pruner
from hptune.core.trial import Direction, TrialState
from hptune.pruners.halving import HalvingPruner
from hptune.testing.pruner_races import EPOCHS
from hptune.testing.pruners import PrunerSuite

Directions = tuple[Direction, ...]


class Sound(HalvingPruner):
    """To be broken by subclasses."""

    mode = HalvingMode.STOP
    levels: tuple[int, ...] = (1, 3, 9)

    def __init__(self, directions: Directions) -> None:
        # More epochs than the suite has, so that the rungs are these.
        super().__init__(directions, epochs=40, min_epochs=1, pruner_mode=self.mode)
        assert self._levels == Sound.levels
        self._levels = self.levels


class SoundPromoter(Sound):
    mode = HalvingMode.PROMOTE


class NeverPromotes(SoundPromoter):
    def promotion(self, *, is_last: bool) -> int | None:
        return None


class PromotesBeforeTheEndOnly(SoundPromoter):
    def promotion(self, *, is_last: bool) -> int | None:
        return super().promotion(is_last=False)


class PromotesWhoRuns(SoundPromoter):
    def promotion(self, *, is_last: bool) -> int | None:
        return super().promotion(is_last=is_last) if is_last else 0


class StopsAnybody(Sound):
    def decide(self, trial: int) -> Decision:
        return Decision.STOP if trial % 2 else Decision.CONTINUE


class StopsTheFirst(Sound):
    def decide(self, trial: int) -> Decision:
        decision = super().decide(trial)
        return Decision.STOP if trial == 0 else decision


class TakesTheLastValue(Sound):
    """Judges by what is told of the trial alone, so a leader may be among the worst."""

    def decide(self, trial: int) -> Decision:
        progress = self._progress.get(trial)
        if (
            progress is not None
            and progress.arrivals
            and trial == len(self._progress) - 1
            and trial > 5
        ):
            return Decision.STOP
        return super().decide(trial)


class NeverStops(NeverPrune):
    """Has rungs and ignores them."""

    def __init__(self, directions: Directions) -> None:
        pass

    @property
    def rungs(self) -> tuple[int, ...]:
        return (1, 3, 9)


class StopsAllEquals(Sound):
    def decide(self, trial: int) -> Decision:
        decision = super().decide(trial)
        losses = {arrival for each in self._progress.values() for _, arrival in each.arrivals}
        return Decision.STOP if len(losses) == 1 else decision


class OrdersEqualsByNumber(Sound):
    """Of equal trials, the first is the best."""

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        less = 1e-9 * trial
        signs = [each.sign for each in self._directions]
        super().report(trial, step, [v + s * less for v, s in zip(values, signs, strict=True)])


class LetsAllPassThatEqualTheBest(OrdersEqualsByNumber):
    """It orders other equal trials by number."""

    def decide(self, trial: int) -> Decision:
        arrivals = [each.arrivals[0][1][0] for each in self._progress.values() if each.arrivals]
        mine = self._progress[trial].arrivals if trial in self._progress else []
        if mine and mine[0][1][0] - min(arrivals) < 1e-6:
            return Decision.CONTINUE
        return super().decide(trial)


class TakesNoneForAValue(Sound):
    """Of those without a value it lets the first go on."""

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        least = -1e9 - trial
        super().report(trial, step, [max(least, min(-least, value)) for value in values])


class SparesWhatHasNone(Sound):
    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        if math.isfinite(values[0]):
            super().report(trial, step, values)


class ChangesItsMind(Sound):
    asked = 0

    def decide(self, trial: int) -> Decision:
        self.asked += 1
        decision = super().decide(trial)
        if decision is Decision.STOP and self.asked % 3 == 0:
            return Decision.CONTINUE
        return decision


class LetsThroughWhenAsked(Sound):
    def decide(self, trial: int) -> Decision:
        decision = super().decide(trial)
        if decision is Decision.CONTINUE:
            self.moved(trial, TrialState.RUNNING)
        else:
            self.report(10_000 + trial, 1, [0.0] * len(self._directions))
        return decision


class CountsReports(Sound):
    """A report that is told again counts again."""

    reports = 0

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        self.reports += 1
        super().report(trial, step, values)
        # More and more must be there before anybody is stopped.
        self._factor = 2 + self.reports // 40


class KeepsTheFirstToCome(Sound):
    """A message that was overtaken is lost."""

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        progress = self._progress.get(trial)
        if progress is None or not progress.arrivals or step > progress.arrivals[-1][0]:
            super().report(trial, step, values)


class CountsEndedTrials(Sound):
    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        progress = self._progress.get(trial)
        if progress is not None and progress.passed == -1:
            self._factor += 1
        super().report(trial, step, values)

    def moved(self, trial: int, state: TrialState) -> None:
        super().moved(trial, state)
        if state.is_final and trial in self._progress:
            self._progress[trial].passed = -1


class LikesMore(Sound):
    def __init__(self, directions: Directions) -> None:
        super().__init__((Direction.MAX,) * len(directions))


class KnowsEveryTrial(Sound):
    def decide(self, trial: int) -> Decision:
        assert trial in self._progress
        return super().decide(trial)


class RoundsLogarithms(Sound):
    levels = (1, 2.9999999999999996, 9)  # type: ignore[assignment]  # that is the fault


class JudgesAtOddSteps(Sound):
    def decide(self, trial: int) -> Decision:
        progress = self._progress.get(trial)
        is_leader = self._leaders.leads(trial)
        if progress is not None and progress.passed and not is_leader and trial % 5 == 4:
            return Decision.STOP
        return super().decide(trial)


class WantsEveryStep(Sound):
    """Stops the leader, too, if it finds a step left out."""

    def __init__(self, directions: Directions) -> None:
        super().__init__(directions)
        self.asked_at: dict[int, int] = {}
        self.at: dict[int, int] = {}

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        super().report(trial, step, values)
        self.at[trial] = step

    def decide(self, trial: int) -> Decision:
        left_out = self.at.get(trial, 0) - self.asked_at.get(trial, 0) > 5
        self.asked_at[trial] = self.at.get(trial, 0)
        return Decision.STOP if left_out else super().decide(trial)


class LooksAtTheFirstObjective(Sound):
    """Stops what is poor in it, whatever it is in the others."""

    def __init__(self, directions: Directions) -> None:
        super().__init__(directions[:1])

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        super().report(trial, step, values[:1])


class AddsUp(Sound):
    """Compares the sum of the objectives."""

    def __init__(self, directions: Directions) -> None:
        super().__init__((Direction.MIN,))
        self.signs = [1 if each is Direction.MIN else -1 for each in directions]

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        loss = sum(sign * value for sign, value in zip(self.signs, values, strict=True))
        super().report(trial, step, [loss])


class CountsObjectives(Sound):
    """One in as many more continues."""

    def __init__(self, directions: Directions) -> None:
        super().__init__(directions)
        self._factor += len(directions) - 1


_EQUAL = "test_equal_trials_are_spared_no_more_epochs_than_different_ones"
CAUGHT_BY: list[tuple[type[Pruner], str]] = [
    (NeverPromotes, "test_every_race_ends_and_the_best_trial_is_trained_in_full"),
    (PromotesBeforeTheEndOnly, "test_every_race_ends_and_the_best_trial_is_trained_in_full"),
    (PromotesWhoRuns, "test_every_race_ends_and_the_best_trial_is_trained_in_full"),
    (NeverStops, "test_poor_trials_are_spared_their_epochs"),
    (StopsAnybody, "test_the_best_trial_seen_so_far_is_never_stopped"),
    (StopsTheFirst, "test_the_best_trial_seen_so_far_is_never_stopped"),
    (TakesTheLastValue, "test_the_best_trial_seen_so_far_is_never_stopped"),
    (StopsAllEquals, "test_equal_trials_leave_one_that_is_trained_in_full"),
    (OrdersEqualsByNumber, _EQUAL),
    (LetsAllPassThatEqualTheBest, _EQUAL),
    (TakesNoneForAValue, "test_while_no_trial_has_a_value_none_is_stopped"),
    (SparesWhatHasNone, "test_trials_without_a_value_are_spared_most"),
    (CountsObjectives, "test_an_objective_in_which_all_are_equal_makes_no_difference"),
    (CountsObjectives, "test_an_objective_that_is_named_twice_counts_once"),
    (LooksAtTheFirstObjective, "test_every_race_ends_and_the_best_trial_is_trained_in_full"),
    (AddsUp, "test_every_race_ends_and_the_best_trial_is_trained_in_full"),
    (LooksAtTheFirstObjective, "test_the_best_trial_seen_so_far_is_never_stopped"),
    (ChangesItsMind, "test_asking_changes_nothing"),
    (LetsThroughWhenAsked, "test_asking_changes_nothing"),
    (CountsReports, "test_facts_that_are_reported_twice_count_once"),
    (KeepsTheFirstToCome, "test_reports_may_come_late_and_in_another_order"),
    (CountsEndedTrials, "test_what_comes_after_a_trial_is_over_is_ignored"),
    (LikesMore, "test_the_direction_makes_no_difference"),
    (KnowsEveryTrial, "test_trials_that_reported_nothing_go_on"),
    (RoundsLogarithms, "test_rungs_are_whole_numbers_that_ascend"),
    (JudgesAtOddSteps, "test_trials_are_judged_at_rungs_and_nowhere_else"),
    (WantsEveryStep, "test_steps_may_be_left_out"),
]
TESTS = [name for name in vars(PrunerSuite) if name.startswith("test_")]


def run(pruner: Callable[[Directions], Pruner], test: str) -> None:
    """Run an inherited test as pytest would, with each of its arguments."""

    class Suite(PrunerSuite):
        def make(self, directions: Directions) -> Pruner:
            return pruner(directions)

    method = getattr(Suite(), test)
    given: list[dict[str, object]] = [{}]
    for mark in getattr(method, "pytestmark", []):
        names, values = mark.args
        if isinstance(names, str):
            names, values = (names,), [(value,) for value in values]
        cases = [dict(zip(names, value, strict=True)) for value in values]
        given = [{**each, **case} for each in given for case in cases]
    assert set(inspect.signature(method).parameters) == set(given[0])
    for arguments in given:
        method(**arguments)


@pytest.mark.parametrize(("broken", "test"), CAUGHT_BY)
def test_a_broken_pruner_is_rejected(broken: Callable[[Directions], Pruner], test: str) -> None:
    with pytest.raises(AssertionError):
        run(broken, test)


@pytest.mark.parametrize("test", TESTS)
def test_every_test_of_the_suite_rejects_something(test: str) -> None:
    assert test in {name for _, name in CAUGHT_BY}


@pytest.mark.parametrize(
    ("sound", "test"),
    [(Sound, test) for test in TESTS]
    + [(SoundPromoter, "test_every_race_ends_and_the_best_trial_is_trained_in_full")],
)
def test_sound_pruners_pass(sound: type[Pruner], test: str) -> None:
    run(sound, test)


def test_a_suite_may_make_what_a_fixture_says() -> None:
    """Its tests share no race then."""

    class Suite(PrunerSuite):
        made: Callable[[Directions], Pruner]

        def make(self, directions: Directions) -> Pruner:
            return self.made(directions)

    for made in (Sound, SoundPromoter):
        suite = Suite()
        suite.made = made
        assert type(suite.finished(0).pruner) is made


def test_the_epochs_of_the_suite_leave_room_for_rungs() -> None:
    assert max(Sound.levels) < EPOCHS

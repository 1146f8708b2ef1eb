"""Our own pruners keep the contract; and each does what its source says."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hptune.core.pruner import (
    EXEMPT_EVERY,
    EXEMPT_FROM,
    Decision,
    HalvingMode,
    NeverPrune,
    Pruner,
    PrunerSettings,
    is_exempt,
)
from hptune.core.trial import Direction, Goal, TrialState
from hptune.errors import UsageError
from hptune.pruners.halving import bracket_cycle
from hptune.pruners.registry import PRUNERS, make_pruner
from hptune.pruners.rungs import rung_levels
from hptune.testing.pruner_races import EPOCHS, Race
from hptune.testing.pruners import PrunerSuite

MAX = (Direction.MAX,)


def made(
    name: str,
    directions: tuple[Direction, ...] = MAX,
    *,
    epochs: int | None = EPOCHS,
    min_epochs: int | None = 1,
    **options: Any,
) -> Pruner:
    if min_epochs is not None:
        options["min_epochs"] = min_epochs
    asked = PrunerSettings(name=name, epochs=epochs, options=options)
    objectives = [Goal("score", direction) for direction in directions]
    PRUNERS.find(name).check(asked.options, directions=directions, epochs=asked.epochs)
    return make_pruner(asked, objectives)


class TestNever(PrunerSuite):
    prunes = False

    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return NeverPrune()


class TestAshaThatStops(PrunerSuite):
    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return made("asha", directions)


class TestAshaThatPromotes(PrunerSuite):
    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return made("asha", directions, pruner_mode=HalvingMode.PROMOTE)


class TestAshaWithOtherSettings(PrunerSuite):
    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return made("asha", directions, reduction_factor=2, min_epochs=3)


class TestHyperbandThatStops(PrunerSuite):
    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return made("hyperband", directions)


class TestHyperbandThatPromotes(PrunerSuite):
    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return made("hyperband", directions, pruner_mode=HalvingMode.PROMOTE)


class TestMedian(PrunerSuite):
    judges_at_rungs_only = False
    compares_several = False

    def make(self, directions: tuple[Direction, ...]) -> Pruner:
        return made("median", directions)


# --- rungs and brackets ---------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [1, 2, 3, 10, 27, 52, 81, 100, 243, 1_000, 3**20, 10**15])
@pytest.mark.parametrize("factor", [2, 3, 4, 10])
@pytest.mark.parametrize("least", [1, 2, 5])
def test_rungs_are_exact_powers(epochs: int, factor: int, least: int) -> None:
    rungs = rung_levels(least, factor, epochs=epochs)
    assert rungs == tuple(least * factor**k for k in range(len(rungs)))
    assert all(rung < epochs for rung in rungs)
    # A rung more would be too near to the end, or beyond it.
    following = least * factor ** len(rungs)
    assert following**2 * factor > epochs**2 or following >= epochs


@pytest.mark.parametrize(
    ("epochs", "rungs"),
    [(2, (1,)), (3, (1,)), (4, (2,)), (10, (2,)), (20, (2, 6)), (41, (3, 9)), (100, (5, 15, 45))],
)
def test_the_first_rung_is_a_twentieth_of_the_training_and_2_at_least(
    epochs: int, rungs: tuple[int, ...]
) -> None:
    assert made("asha", epochs=epochs, min_epochs=None).rungs == rungs
    assert made("asha", epochs=epochs, min_epochs=1).rungs[0] == 1


def test_a_large_reduction_factor_has_a_rung_in_a_short_training() -> None:
    assert made("asha", epochs=4, min_epochs=None, reduction_factor=5).rungs == (1,)


def test_the_first_rung_of_a_training_without_a_known_end_is_1() -> None:
    assert made("asha", epochs=None, min_epochs=None).rungs[0] == 1


def test_without_a_known_end_there_are_rungs_as_far_as_anybody_goes() -> None:
    assert rung_levels(1, epochs=None)[:4] == (1, 3, 9, 27)


def test_brackets_have_the_sizes_of_hyperband() -> None:
    # Li et al. 2018, table 1: R = 81, eta = 3 begin with 81, 34, 15, 8 and 5 configurations.
    cycle = bracket_cycle(5, rungs=4, reduction_factor=3)
    assert [cycle.count(bracket) for bracket in range(5)] == [81, 34, 15, 8, 5]
    for bracket in range(5):
        turns = [turn for turn, each in enumerate(cycle) if each == bracket]
        gaps = [b - a for a, b in itertools.pairwise(turns)]
        assert max(gaps) <= 2 * len(cycle) / len(turns) + 1, "spread evenly"


def test_a_bracket_races_for_itself() -> None:
    pruner = made("hyperband", epochs=9)
    assert pruner.rungs == (1, 3)
    cycle = bracket_cycle(3, rungs=2, reduction_factor=3)
    first, second = (cycle.index(bracket) for bracket in (0, 1))
    last = cycle.index(2)
    best = cycle.index(0, first + 1)
    pruner.report(best, 1, [1.0])
    for trial in (first, second, last):
        pruner.report(trial, 1, [0.1])
    assert pruner.decide(first) is Decision.STOP
    assert pruner.decide(second) is Decision.CONTINUE, "its first rung is at step 3"
    pruner.report(second, 3, [0.1])
    assert pruner.decide(second) is Decision.CONTINUE, "the first of its bracket"
    pruner.report(last, 8, [0.1])
    assert pruner.decide(last) is Decision.CONTINUE, "the last bracket is never judged"


# --- the traces that the contract tells -----------------------------------------------------


def test_the_trace_of_halving_that_stops() -> None:
    p = made("asha", epochs=9)
    p.report(0, 1, [0.5])
    assert p.decide(0) is Decision.CONTINUE
    p.moved(0, TrialState.RUNNING)
    p.report(1, 1, [0.4])
    assert p.decide(1) is Decision.STOP
    p.moved(1, TrialState.PRUNED)
    p.report(0, 2, [0.5])
    assert p.decide(0) is Decision.CONTINUE
    p.report(2, 1, [0.6])
    assert p.decide(2) is Decision.CONTINUE
    assert p.decide(0) is Decision.CONTINUE


def test_a_trial_that_passed_a_rung_for_want_of_others_stops_at_the_next() -> None:
    p = made("asha", epochs=9)
    p.report(0, 1, [0.1])
    assert p.decide(0) is Decision.CONTINUE, "the first one"
    p.moved(0, TrialState.RUNNING)
    for trial in (1, 2, 3):
        p.report(trial, 1, [0.5 + trial / 10])
    p.report(0, 2, [0.2])
    assert p.decide(0) is Decision.CONTINUE, "step 2 is no rung"
    p.report(0, 3, [0.3])
    assert p.decide(0) is Decision.STOP, "alone at step 3, and the last of four at step 1"


def test_the_trace_of_halving_that_promotes() -> None:
    p = made("asha", epochs=9, pruner_mode=HalvingMode.PROMOTE)
    promoted = []
    for trial, value in enumerate((0.5, 0.4, 0.3)):
        p.report(trial, 1, [value])
        assert p.decide(trial) is Decision.PAUSE
        p.moved(trial, TrialState.PAUSED)
        promoted.append(p.promotion(is_last=False))
    assert promoted == [None, None, 0]
    p.moved(0, TrialState.RUNNING)
    assert p.promotion(is_last=False) is None
    p.report(0, 3, [0.7])
    assert p.decide(0) is Decision.PAUSE
    p.moved(0, TrialState.PAUSED)
    assert p.promotion(is_last=False) is None
    assert p.promotion(is_last=True) == 0


@pytest.mark.parametrize("directions", [MAX, MAX * 2])
def test_a_report_that_comes_after_the_pause_counts_as_one_before(
    directions: tuple[Direction, ...],
) -> None:
    def paused(*facts: str) -> Pruner:
        p = made("asha", directions, min_epochs=1, pruner_mode=HalvingMode.PROMOTE)
        for trial in range(3):
            p.report(trial, 1, [0.1 * trial] * len(directions))
        for fact in facts:
            if fact == "report":
                p.report(2, 3, [0.2] * len(directions))
            else:
                p.moved(2, TrialState.PAUSED)
        return p

    for p in (paused("report", "pause"), paused("pause", "report")):
        assert p.promotion(is_last=False) is None, "a third of the one at step 3 is none"
        for trial in (3, 4):
            p.report(trial, 3, [0.1] * len(directions))
        assert p.promotion(is_last=False) == 2


def test_higher_rungs_are_promoted_first() -> None:
    directions, mode = (Direction.MIN,), HalvingMode.PROMOTE
    p = made("asha", directions, epochs=5, reduction_factor=2, pruner_mode=mode)
    assert p.rungs == (1, 2)
    for trial in range(8):
        p.report(trial, 1, [trial / 10])
        p.moved(trial, TrialState.PAUSED)
    for trial in (0, 1):
        assert p.promotion(is_last=False) == trial
        p.moved(trial, TrialState.RUNNING)
        p.report(trial, 2, [trial / 10])
        p.moved(trial, TrialState.PAUSED)
    assert p.promotion(is_last=False) == 0, "two at step 2 before two more at step 1"
    p.moved(0, TrialState.RUNNING)
    assert p.promotion(is_last=False) == 2


@pytest.mark.parametrize("mode", HalvingMode)
def test_of_a_search_that_has_learned_no_more_than_a_third_go_on(mode: HalvingMode) -> None:
    p = made("asha", MAX, epochs=3, pruner_mode=mode)
    assert p.rungs == (1,)
    scatter = np.random.default_rng(1).normal(size=400)
    values = [9.0 * (trial >= 300) + float(each) for trial, each in enumerate(scatter)]
    assert sorted(values)[-100:] == sorted(values[300:]), "all of them are in the best third of all"
    went_on = []
    for trial, value in enumerate(values):
        p.report(trial, 1, [value])
        if p.decide(trial) is Decision.CONTINUE:
            if not is_exempt(trial):
                went_on.append(trial)
            p.moved(trial, TrialState.RUNNING)
        elif mode is HalvingMode.PROMOTE:
            p.moved(trial, TrialState.PAUSED)
    assert 10 <= sum(trial >= 350 for trial in went_on) <= 25, "of 48"


@pytest.mark.parametrize(
    ("epochs_of_trial", "went_on"),
    [
        pytest.param(lambda _: 2, 60, id="all leave the plateau after the first rung"),
        pytest.param(lambda n: 0 if n in (1, 5) else 2, 18, id="two leave it before"),
        pytest.param(lambda n: 0 if n % 4 else 9, 18, id="a quarter never leaves it"),
        pytest.param(lambda n: 9 if n % 4 else 0, 18, id="three quarters never leave it"),
    ],
)
@pytest.mark.parametrize("objectives", [1, 2])
def test_a_plateau_lets_all_or_the_usual_share_pass(
    epochs_of_trial: Callable[[int], int], went_on: int, objectives: int
) -> None:
    def curve(trial: int, step: int) -> tuple[float, ...]:
        value = 0.5 + (trial * 0.618 % 1) * max(0, step - epochs_of_trial(trial)) / 20
        return (value,) * objectives

    p = made("asha", MAX * objectives, epochs=9)
    race = Race(p, curve, MAX * objectives, trials=60).run()
    passed = sum(step > 1 for step in race.steps.values())
    assert passed == pytest.approx(went_on, abs=6)


@pytest.mark.parametrize("state", [TrialState.FAILED, TrialState.PRUNED])
@pytest.mark.parametrize("name", ["asha", "hyperband"])
def test_the_best_trial_that_may_have_a_result_is_not_stopped(name: str, state: TrialState) -> None:
    """A trial that diverges, and counts as pruned for it, may have had the best value before."""
    p = made(name, epochs=9)
    cycle = bracket_cycle(3, rungs=2, reduction_factor=3) if name == "hyperband" else (0,) * 9
    over, best, worse = [trial for trial, bracket in enumerate(cycle) if bracket == 0][:3]
    p.report(over, 1, [0.9])
    p.moved(over, TrialState.RUNNING)
    p.moved(over, state)
    p.report(best, 1, [0.5])
    assert p.decide(best) is Decision.CONTINUE
    p.report(worse, 1, [0.4])
    assert p.decide(worse) is Decision.STOP


HALVING = [
    {"name": name, "pruner_mode": mode} for name in ("asha", "hyperband") for mode in HalvingMode
]


@pytest.mark.parametrize("settings", [*HALVING, {"name": "median"}])
def test_a_few_trials_are_exempt_and_no_others(settings: dict[str, Any]) -> None:
    p = made(**settings, epochs=9)
    went_on = []
    for trial in range(EXEMPT_FROM + 2 * EXEMPT_EVERY):
        # Each is worse than all before.
        for step in range(1, 9):
            p.report(trial, step, [-float(trial)])
            if p.decide(trial) is not Decision.CONTINUE:
                p.moved(trial, TrialState.PRUNED)
                break
            p.moved(trial, TrialState.RUNNING)
        else:
            p.moved(trial, TrialState.COMPLETE)
            went_on.append(trial)
    late = {trial for trial in went_on if trial > 10}
    if settings["name"] == "hyperband":  # the trials of its last bracket are never compared
        cycle = bracket_cycle(3, rungs=2, reduction_factor=3)
        late -= {n for n in late if cycle[n % len(cycle)] == 2 and not is_exempt(n)}
    assert late == {EXEMPT_FROM, EXEMPT_FROM + EXEMPT_EVERY}


def test_exempt_trials_count_at_the_rungs() -> None:
    p = made("asha", epochs=9)
    for trial, value in ((0, 0.1), (1, 0.2), (2, 0.6)):
        p.report(trial, 1, [value])
    p.report(1, 2, [0.9])  # leads, so trial 2 does not
    assert p.decide(2) is Decision.CONTINUE, "the best of three"
    p.report(EXEMPT_FROM, 1, [0.7])
    assert p.decide(2) is Decision.STOP, "the second of four"


def test_the_median_of_the_complete_trials_counts() -> None:
    p = made("median", (Direction.MIN,), epochs=20, min_epochs=2)
    for trial, loss in enumerate((1.0, 2.0, 3.0, 0.5, 3.5), start=10):
        for step in (1, 2, 3):
            p.report(trial, step, [loss])
        if trial == 14:
            p.report(9, 3, [9.0])
            assert p.decide(9) is Decision.CONTINUE, "four complete trials are too few"
        p.moved(trial, TrialState.COMPLETE)
    assert p.decide(9) is Decision.STOP
    p.report(8, 1, [9.0])
    assert p.decide(8) is Decision.CONTINUE, "before the first epoch that counts"
    p.report(7, 2, [2.0])
    assert p.decide(7) is Decision.CONTINUE, "as good as the median"
    p.report(6, 2, [2.1])
    assert p.decide(6) is Decision.STOP
    p.moved(6, TrialState.PRUNED)
    p.report(5, 2, [2.05])
    assert p.decide(5) is Decision.STOP, "what was stopped is no measure"
    p.report(4, 17, [99.0])
    assert p.decide(4) is Decision.CONTINUE, "nobody was there"


# --- the registry ---------------------------------------------------------------------------


def test_every_name_makes_a_pruner() -> None:
    assert list(PRUNERS.built_in) == ["none", "asha", "hyperband", "median"]
    assert all(isinstance(made(name, min_epochs=None), Pruner) for name in PRUNERS.built_in)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"name": "ahsa"}, "Did you mean 'asha'"),
        ({"name": "asha", "reduction_factor": 1}, "whole numbers from 2 on"),
        ({"name": "asha", "min_epochs": 0}, "whole numbers from 1 on"),
        ({"name": "asha", "min_epochs": 30}, "use a smaller --min-epochs"),
        ({"name": "asha", "epochs": 27, "min_epochs": 16}, "Use 15 at most, or --pruner none"),
        ({"name": "asha", "brackets": 2}, "--pruner is asha; its options are min_epochs, "),
        ({"name": "median", "directions": MAX * 2}, "by one objective, and there are 2; use --pr"),
        ({"name": "hyperband", "brackets": 9}, "4 at most"),
        ({"name": "hyperband", "epochs": None}, "add --epochs"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        made(**settings)


def test_options_are_checked_at_once_also_for_a_million_epochs() -> None:
    """As they are before the model file has said how many epochs there are."""
    began = time.process_time()
    PRUNERS.find("hyperband").check({"min_epochs": 1}, directions=(Direction.MIN,), epochs=10**6)
    assert time.process_time() - began < 1.0

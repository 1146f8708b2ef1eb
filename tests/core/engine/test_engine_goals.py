"""The engine with several goals, with constraints, and with confirmation of the best trials."""

from __future__ import annotations

import random

import pytest

from engine_driver import GOAL, EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending, Usage
from hptune.core.goals import (
    ENERGY,
    JOULES_PER_KWH,
    NO_ENERGY,
    Comparison,
    Constraint,
    Goals,
)
from hptune.core.messages import Ask, Command, Discard, Finish, FinishReason, KeepBest, Start, Tell
from hptune.core.pruner import PrunerSettings
from hptune.core.ranking import Ranking
from hptune.core.trial import Direction, Goal, Score, TrialState
from hptune.core.user_requests import UserAction

TWO = Goals((GOAL, Goal("size", Direction.MIN)))
SMALL = Goals((GOAL,), (Constraint("size", Comparison.LESS, 10.0),))


def first(trial: int, attempt: int = 0) -> AttemptId:
    return AttemptId(trial, attempt)


def go(driver: EngineDriver, trials: int, goals: Goals, *, confirm: int = 0) -> None:
    driver.open(trials, goals=goals, confirm=confirm)
    driver.join(cores=trials)
    driver.suggest()


def files(commands: list[Command]) -> list[object]:
    """Return the commands about models: the numbers of kept ones, or of one to discard."""
    return [
        [trial.number for trial in each.trials] if isinstance(each, KeepBest) else each.trial
        for each in commands
        if isinstance(each, KeepBest | Discard)
    ]


def test_the_front_is_kept_and_what_falls_behind_it_is_thrown_away(driver: EngineDriver) -> None:
    go(driver, 6, TWO)
    assert files(driver.end(first(0), returned(0.5, size=5.0))) == [[0]]
    assert files(driver.end(first(1), returned(0.9, size=9.0))) == [[1, 0]]
    assert files(driver.end(first(2), returned(0.4, size=6.0))) == [2]
    assert files(driver.end(first(3), returned(0.9, size=9.0))) == [3]
    assert files(driver.end(first(4), returned(0.1, size=1.0))) == [[1, 0, 4]]
    assert files(driver.end(first(5), returned(0.95, size=4.0))) == [[5, 4], 0, 1]
    assert [trial.values for trial in driver.engine.front] == [(0.95, 4.0), (0.1, 1.0)]
    assert driver.finish is not None
    driver.check_replay()


def test_a_trial_is_told_the_front_that_it_has_to_get_past(driver: EngineDriver) -> None:
    driver.open(3, goals=TWO)
    driver.join()
    driver.suggest()
    driver.end(first(0), returned(0.5, size=5.0))
    driver.suggest()
    driver.end(first(1), returned(0.9, size=9.0))
    (*_, start) = driver.suggest()
    assert isinstance(start, Start)
    assert start.incumbents == (Score((0.9, 9.0)), Score((0.5, 5.0)))


def test_an_infeasible_trial_is_complete_and_never_before_a_feasible_one(
    driver: EngineDriver,
) -> None:
    go(driver, 4, SMALL)
    assert files(driver.end(first(0), returned(0.9, size=15.0))) == [[0]]
    assert files(driver.end(first(1), returned(0.5, size=12.0))) == [[1], 0]
    assert files(driver.end(first(2), returned(0.1, size=9.0))) == [[2], 1]
    assert files(driver.end(first(3), returned(0.99, size=11.0))) == [3]
    assert driver.trial(0).state is TrialState.COMPLETE
    assert driver.trial(0).violation == 0.5
    assert driver.trial(2).violation == 0.0


@pytest.mark.parametrize("goals", [TWO, SMALL])
def test_every_goal_and_every_constraint_needs_its_metric(
    driver: EngineDriver, goals: Goals
) -> None:
    go(driver, 1, goals)
    finish = driver.end(first(0), returned(0.5))[-1]
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.UNKNOWN_METRIC
    assert finish.reason == "the study needs the metric 'size'; the trial reports: score"


def test_a_trial_that_lacks_a_metric_which_others_had_fails_alone(driver: EngineDriver) -> None:
    go(driver, 2, TWO)
    driver.end(first(0), returned(0.5, size=1.0))
    driver.end(first(1), returned(0.5))
    assert driver.trial(1).state is TrialState.FAILED
    assert driver.finish == Finish(FinishReason.DONE, "2 trials are over")


def test_a_constraint_that_is_no_number_fails_the_trial(driver: EngineDriver) -> None:
    go(driver, 1, SMALL)
    driver.end(first(0), returned(0.5, size=float("nan")))
    assert driver.trial(0).state is TrialState.FAILED
    assert driver.trial(0).reason == "size is nan, and a result is a finite number"


# --- energy, which workers measure ------------------------------------------------------------

FRUGAL = Goals((GOAL,), (Constraint(ENERGY, Comparison.LESS, 2.0),))
GREEN = Goals((GOAL, Goal(ENERGY, Direction.MIN)))


def used(kwh: float | None, gpu_kwh: float | None = None) -> Usage:
    joules = [None if each is None else each * JOULES_PER_KWH for each in (kwh, gpu_kwh)]
    return Usage(
        peak_memory_bytes=1,
        cpu_seconds=1.0,
        seconds=1.0,
        processor_joules=joules[0],
        gpu_joules=joules[1],
    )


@pytest.mark.parametrize("goals", [FRUGAL, GREEN])
def test_the_energy_of_all_attempts_of_a_trial_is_a_metric(
    driver: EngineDriver, goals: Goals
) -> None:
    go(driver, 2, goals)
    driver.measure(first(0), used(0.5, 0.25))
    driver.measure(first(0), used(1.0, 0.5))  # the last one counts
    driver.end(first(0), Ending(Cause.KILLED))
    driver.started(first(0, 1))
    driver.measure(first(0, 1), used(None, 1.0))
    driver.end(first(0, 1), returned(0.5, energy_kwh=77.0))  # its own number has another meaning
    driver.measure(first(1), used(1.0))
    driver.end(first(1), returned(0.4))
    assert [driver.trial(number).metrics[ENERGY] for number in (0, 1)] == [2.5, 1.0]
    if goals is GREEN:
        assert driver.trial(0).values == (0.5, 2.5)
        assert len(driver.engine.front) == 2
    else:
        assert driver.trial(0).violation == 0.25
        assert [trial.number for trial in driver.engine.front] == [1]
    driver.check_replay()


def test_a_trial_that_is_pruned_has_the_energy_so_far(driver: EngineDriver) -> None:
    go(driver, 1, FRUGAL)
    driver.report(first(0), 1, score=0.5)
    driver.measure(first(0), used(3.0))
    driver.user(UserAction.STOP_TRIAL, trial=0)
    driver.end(first(0), Ending(Cause.PRUNED))
    assert driver.trial(0).metrics == {"score": 0.5, ENERGY: 3.0}
    assert driver.trial(0).violation == 0.5


@pytest.mark.parametrize("measured", [None, used(None)])
def test_a_trial_whose_energy_is_unknown_fails(
    driver: EngineDriver, measured: Usage | None
) -> None:
    go(driver, 1, FRUGAL)
    if measured is not None:
        driver.measure(first(0), measured)
    finish = driver.end(first(0), returned(0.5, energy_kwh=1.0))[-1]
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.UNKNOWN_METRIC
    assert finish.reason == NO_ENERGY


def test_energy_that_no_goal_names_is_no_metric(driver: EngineDriver) -> None:
    go(driver, 1, Goals((GOAL,)))
    driver.measure(first(0), used(1.0))
    driver.end(first(0), returned(0.5, energy_kwh=77.0))
    assert driver.trial(0).metrics == {"score": 0.5, ENERGY: 77.0}


# --- confirming -------------------------------------------------------------------------------


def searched(driver: EngineDriver, *scores: float, confirm: int) -> list[Command]:
    go(driver, len(scores), Goals((GOAL,)), confirm=confirm)
    commands: list[Command] = []
    for number, score in enumerate(scores):
        commands = driver.end(first(number), returned(score))
    return commands


def test_the_best_are_trained_again_with_other_seeds(driver: EngineDriver) -> None:
    commands = searched(driver, 0.5, 0.9, 0.8, confirm=2)
    reported = [each.trial for each in commands if isinstance(each, Tell)]
    assert [(t.number, t.origin, t.params) for t in reported[1:]] == [
        (3, "confirm of 1", {"x": 1}),
        (4, "confirm of 1", {"x": 1}),
        (5, "confirm of 2", {"x": 2}),
        (6, "confirm of 2", {"x": 2}),
    ]
    starts = [each for each in commands if isinstance(each, Start)]
    assert len(starts) == 3, "there are three cores"
    assert len({start.seed for start in starts} | {driver.starts[1].seed}) == 4
    assert {start.incumbents for start in starts} == {()}, "its model may be the winner's"
    assert driver.engine.snapshot.budget_trials == 7
    assert driver.finish is None


def test_the_winner_is_chosen_by_the_mean(driver: EngineDriver) -> None:
    searched(driver, 0.5, 0.9, 0.8, confirm=2)
    assert files(driver.end(first(3), returned(0.2))) == []
    assert files(driver.end(first(4), returned(0.3))) == [3, 4]
    assert driver.engine.snapshot.best == driver.trial(1)
    assert files(driver.end(first(5), returned(0.8))) == []
    assert files(driver.end(first(6), returned(0.7))) == [[5], 1, 6]
    assert driver.engine.snapshot.best == driver.trial(5)
    assert driver.finish == Finish(FinishReason.DONE, "7 trials are over")
    driver.check_replay()


def test_values_at_the_edge_of_floats_are_confirmed(driver: EngineDriver) -> None:
    searched(driver, 0.5, 1.7e308, confirm=2)
    driver.end(first(2), returned(1.7e308))
    driver.end(first(3), returned(-1.7e308))
    for number in (4, 5):
        driver.end(first(number), returned(0.4))
    assert driver.finish is not None
    assert driver.engine.snapshot.best == driver.trial(4)
    assert driver.trial(4).origin == "confirm of 0"
    driver.check_replay()


def test_the_model_of_the_best_stays_where_its_configuration_wins(driver: EngineDriver) -> None:
    searched(driver, 0.5, 0.9, confirm=1)
    assert files(driver.end(first(2), returned(0.95))) == []
    assert files(driver.end(first(3), returned(0.85))) == [2, 3]
    assert driver.engine.snapshot.best == driver.trial(1)


def test_another_master_goes_on_confirming(driver: EngineDriver) -> None:
    searched(driver, 0.5, 0.9, 0.8, confirm=2)
    driver.end(first(3), returned(0.2))
    driver.open(3, confirm=2)
    commands = driver.join(cores=9)
    assert [each.attempt for each in commands if isinstance(each, Start)] == [
        first(4, 1),
        first(5, 1),
        first(6, 1),
    ]
    for name in [*driver.running]:
        driver.end(name, returned(0.8))
    assert driver.finish is not None
    assert len([*driver.engine.trials]) == 7
    driver.check_replay()


def test_more_trials_follow_the_confirmation_and_are_confirmed_too(driver: EngineDriver) -> None:
    searched(driver, 0.5, 0.9, confirm=1)
    for number in (2, 3):
        driver.end(first(number), returned(0.9))
    assert driver.finish is not None
    driver.open(3, confirm=1)
    assert driver.join() == [Ask((4,))]
    driver.suggest()
    # It is better by its one value, which does not count any more.
    assert files(driver.end(first(4), returned(0.95))) == [4]
    assert driver.trial(5).origin == "confirm of 4"
    driver.end(first(5), returned(0.94))
    assert files(driver.end(first(6), returned(0.95))) == [[6], 1, 5]
    assert driver.finish is not None
    driver.check_replay()


def test_a_study_that_lets_go_confirms_nothing(driver: EngineDriver) -> None:
    go(driver, 2, Goals((GOAL,)), confirm=1)
    driver.end(first(0), returned(0.5))
    driver.stop()
    driver.end(first(1), returned(0.7))
    assert driver.finish is not None
    assert len([*driver.engine.trials]) == 2
    driver.open(2, confirm=1)
    assert [type(each) for each in driver.join()][-1] is Start


def test_nothing_is_confirmed_where_nothing_is_complete(driver: EngineDriver) -> None:
    go(driver, 1, Goals((GOAL,)), confirm=3)
    driver.end(first(0), Ending(Cause.EXCEPTION, reason="ValueError"))
    assert driver.finish == Finish(FinishReason.DONE, "1 trial is over")


def test_no_pruner_stops_what_is_to_be_measured(driver: EngineDriver) -> None:
    pruner = PrunerSettings(name="asha", epochs=9, options={"reduction_factor": 3})
    driver.open(1, pruner=pruner, confirm=1)
    driver.join()
    driver.suggest()
    driver.report(first(0), 1, score=0.9)
    driver.end(first(0), returned(0.9))
    for number in (1, 2):
        assert driver.report(first(number), 1, score=0.0) == []
        driver.end(first(number), returned(0.0))
    assert [trial.state for trial in driver.engine.trials] == [TrialState.COMPLETE] * 3
    assert driver.finish is not None


def readers_front(driver: EngineDriver) -> list[int]:
    goals = driver.engine.snapshot.goals
    return [best.number for best in Ranking.of(goals, driver.engine.trials, driver.attempts).best]


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("seed", range(5))
def test_a_reader_of_the_ledger_finds_the_same_best_while_it_confirms(
    driver: EngineDriver, cores: int, seed: int
) -> None:
    rng = random.Random(seed)
    driver.open(8, confirm=3)
    driver.join(cores=cores)
    while driver.finish is None:
        if driver.ask is not None:
            driver.suggest()
            continue
        driver.end(rng.choice([*driver.running]), returned(rng.random()))
        assert readers_front(driver) == [best.number for best in driver.engine.front]


def test_a_repeat_that_is_stopped_before_it_began_is_failed_for_readers_too(
    driver: EngineDriver,
) -> None:
    driver.open(2, confirm=2, confirm_repeats=1)
    driver.join()
    for number, score in enumerate([0.9, 0.8]):
        driver.suggest()
        driver.end(first(number), returned(score))
    driver.user(UserAction.STOP_TRIAL, trial=3)
    driver.end(first(2), returned(0.7))
    of = Ranking.of(driver.engine.snapshot.goals, driver.engine.trials, driver.attempts)
    assert [of.confirmed[number].failed for number in (0, 1)] == [0, 1]

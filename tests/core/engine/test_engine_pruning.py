"""Consequences of a pruner's decisions, in short traces."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine_driver import GOAL, GOALS, EngineDriver, returned, states
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Outcome
from hptune.core.failure_policy import Action, FailureRule
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import (
    Ask,
    Command,
    Continue,
    Discard,
    Finish,
    FinishReason,
    KeepBest,
    ParametersUsed,
    Start,
    Stop,
    Tell,
)
from hptune.core.pruner import PrunerSettings
from hptune.core.trial import Direction, Goal, TrialState
from hptune.core.user_requests import UserAction

STOPS = PrunerSettings(name="asha", epochs=9, options={"min_epochs": 1})
PROMOTES = PrunerSettings(
    name="asha", epochs=9, options={"pruner_mode": "promote", "min_epochs": 1}
)
PRUNED, PAUSED = Ending(Cause.PRUNED), Ending(Cause.PAUSED)


def name(trial: int, attempt: int = 0) -> AttemptId:
    return AttemptId(trial, attempt)


def kinds(commands: list[Command]) -> list[type[Command]]:
    return [type(command) for command in commands]


def pause(driver: EngineDriver, trial: int, *, step: int, score: float, attempt: int = 0) -> None:
    assert Stop(name(trial, attempt), Halt.PAUSE) in driver.report(
        name(trial, attempt), step, score=score
    )
    driver.end(name(trial, attempt), PAUSED)


def test_a_poor_trial_is_stopped_and_another_one_asked_for(driver: EngineDriver) -> None:
    driver.go(3, cores=2, pruner=STOPS)
    tell, on = driver.report(name(0), 1, score=0.5)
    assert isinstance(tell, Tell)
    assert on == Continue(name(0), 1), "the attempt waits for this"
    assert (tell.trial.state, tell.trial.rungs) == (TrialState.RUNNING, {1: (0.5,)})
    tell, stop = driver.report(name(1), 1, score=0.4, other=7.0)
    assert stop == Stop(name(1), Halt.PRUNE)
    tell, discarded, ask = driver.end(name(1), PRUNED)
    assert isinstance(tell, Tell)
    assert tell.trial.state is TrialState.PRUNED
    assert (tell.trial.value, tell.trial.step, tell.trial.rungs) == (0.4, 1, {1: (0.4,)})
    assert tell.trial.metrics == {"score": 0.4, "other": 7.0}
    assert (discarded, ask) == (Discard(1), Ask((2,)))
    pruned = driver.attempt(name(1))
    assert (pruned.outcome, pruned.reason) == (Outcome.PRUNED, str(Cause.PRUNED))


def test_a_trial_that_fails_as_it_is_stopped_counts_by_its_last_report(
    driver: EngineDriver,
) -> None:
    again = FailureRule(Cause.EXCEPTION, Action.RETRY, 2)
    driver.go(2, cores=2, pruner=STOPS, failure_rules=(again,))
    driver.report(name(0), 1, score=0.5)
    driver.report(name(1), 1, score=0.4)
    driver.report(name(1), 2, score=0.3)
    driver.end(name(1), Ending(Cause.EXCEPTION, reason="its peer is gone"))
    trial = driver.trial(1)
    assert (trial.state, trial.value, trial.step) == (TrialState.PRUNED, 0.3, 2)


def test_reports_between_rungs_and_of_other_metrics_cost_nothing(driver: EngineDriver) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    assert driver.report(name(0), 2, score=0.1) == []
    assert driver.report(name(1), 1, other=0.1) == []
    assert driver.report(name(1), 1, score=math.nan) == []
    tell, on = driver.report(name(0), 4, score=0.4)
    assert isinstance(tell, Tell)
    assert on == Continue(name(0), 4)
    assert tell.trial.rungs == {1: (0.5,), 3: (0.5,)}, "the best value so far counts"


def test_the_value_of_a_stopped_trial_is_that_of_its_last_report(driver: EngineDriver) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 3, score=0.9)
    driver.report(name(1), 2, score=0.95)
    tell, _ = driver.report(name(1), 3, score=0.1)
    assert isinstance(tell, Tell), "its best value is the best of all, so it continues"
    driver.end(name(1), PRUNED)
    trial = driver.trial(1)
    assert (trial.value, trial.step) == (0.1, 3)
    assert trial.rungs == {1: (0.95,), 3: (0.95,)}


def test_a_result_that_comes_in_spite_of_the_order_counts(driver: EngineDriver) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    driver.report(name(1), 1, score=0.4)
    commands = driver.end(name(1), returned(0.9))
    assert KeepBest in kinds(commands)
    assert driver.trial(1).state is TrialState.COMPLETE


def test_an_order_is_taken_back_if_reports_that_came_before_it_left_change_it(
    driver: EngineDriver,
) -> None:
    driver.go(3, cores=3, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    assert Stop(name(1), Halt.PRUNE) in driver.report(name(1), 1, score=0.4)
    assert driver.report(name(1), 2, score=0.45) == [], "still worse: the order holds"
    assert driver.report(name(1), 2, score=0.6) == [], "of a step that was reported before"
    on = driver.report(name(1), 4, score=0.6)[-1]
    assert on == Continue(name(1), 4)
    driver.report(name(0), 3, score=0.7)
    assert Stop(name(1), Halt.PRUNE) not in driver.report(name(1), 5, score=0.8)
    driver.check_replay()
    # The order may have left nevertheless, and what it did counts.
    driver.end(name(1), PRUNED)
    assert states(driver)[1] is TrialState.PRUNED
    # What a user asked for is not taken back.
    driver.user(UserAction.STOP_TRIAL, trial=2)
    assert driver.report(name(2), 1, score=0.9)[1:] == []
    driver.end(name(2), PRUNED)
    assert states(driver)[2] is TrialState.PRUNED


def test_a_study_that_stops_meanwhile_stops_a_trial_whose_order_is_taken_back(
    driver: EngineDriver,
) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    assert Stop(name(1), Halt.PRUNE) in driver.report(name(1), 1, score=0.4)
    assert driver.stop() == [Stop(name(0), Halt.STOP)]
    assert driver.report(name(1), 2, score=0.6) == [Stop(name(1), Halt.STOP)]
    driver.end(name(0), Ending(Cause.STOPPED))
    driver.end(name(1), Ending(Cause.STOPPED))
    assert states(driver) == [TrialState.WAITING, TrialState.WAITING]
    driver.check_replay()


def test_a_trial_whose_order_was_taken_back_is_stopped_with_the_study(driver: EngineDriver) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    driver.report(name(1), 1, score=0.4)
    assert Continue(name(1), 2) in driver.report(name(1), 2, score=0.6)
    assert driver.stop() == [Stop(name(0), Halt.STOP), Stop(name(1), Halt.STOP)]


def test_what_an_attempt_never_asked_for_may_be_asked_for_by_the_next(
    driver: EngineDriver,
) -> None:
    driver.go(1, cores=1)
    driver.feed(ParametersUsed(driver.at, name(0), (), {"x": 0}, ("x",)))
    assert driver.trial(0).unused == ("x",)
    driver.end(name(0), Ending(Cause.RELEASED))
    driver.end(name(0, 1), returned(0.5))
    assert (driver.trial(0).state, driver.trial(0).unused) == (TrialState.COMPLETE, ())


@pytest.mark.parametrize(
    "ending",
    [PRUNED, Ending(Cause.KILLED), Ending(Cause.WORKER_LOST), Ending(Cause.STOPPED)],
    ids=lambda ending: str(ending.cause),
)
def test_a_trial_that_was_to_be_pruned_is_pruned_however_it_ends(
    driver: EngineDriver, ending: Ending
) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    driver.report(name(1), 1, score=0.4)
    driver.end(name(1), ending)
    assert states(driver) == [TrialState.RUNNING, TrialState.PRUNED]


def test_a_lost_worker_and_a_lost_master_undo_no_decision(driver: EngineDriver) -> None:
    driver.open(3, pruner=PROMOTES)
    driver.join(cores=3)
    driver.suggest()
    driver.report(name(0), 1, score=0.5)
    driver.leave()
    assert states(driver) == [TrialState.PAUSED, TrialState.WAITING, TrialState.WAITING]
    driver.join("other", cores=2)
    driver.report(name(1, 1), 1, score=0.4)
    driver.open(3, pruner=PROMOTES)
    assert states(driver) == [TrialState.PAUSED, TrialState.PAUSED, TrialState.WAITING]
    driver.check_replay()


def test_a_trial_that_begins_again_is_not_judged_again(driver: EngineDriver) -> None:
    driver.go(2, cores=2, pruner=STOPS)
    driver.report(name(0), 1, score=0.5)
    driver.report(name(0), 2, score=0.6)
    driver.end(name(0), Ending(Cause.KILLED))
    assert driver.starts[0].resume_from == 2
    driver.report(name(1), 1, score=0.9)
    assert driver.report(name(0, 1), 1, score=0.5) == []
    assert driver.trial(0).rungs == {1: (0.5,)}


SMALL = replace(GOALS, constraints=(Constraint("size", Comparison.LESS, 10.0),))


def test_what_breaks_a_constraint_stops_nobody(driver: EngineDriver) -> None:
    driver.open(4, pruner=STOPS, goals=SMALL)
    driver.join(cores=4)
    driver.suggest()
    for number in range(3):
        told = driver.report(name(number), 1, score=0.9, size=99.0)
        assert told == [Continue(name(number), 1)]
    tell, _ = driver.report(name(3), 1, score=0.5, size=5.0)
    assert isinstance(tell, Tell), "of those that keep the constraint it is the best"
    assert tell.trial.rungs == {1: (0.5,)}


def test_what_breaks_a_constraint_is_worse_than_what_keeps_it(driver: EngineDriver) -> None:
    driver.open(3, pruner=STOPS, goals=SMALL)
    driver.join(cores=3)
    driver.suggest()
    driver.report(name(0), 1, score=0.5, size=5.0)
    assert driver.report(name(1), 1, score=0.9, size=99.0) == [Stop(name(1), Halt.PRUNE)]
    driver.end(name(1), PRUNED)
    assert driver.trial(1).violation > 0


def test_one_that_keeps_the_constraint_late_is_judged_by_what_it_has_then(
    driver: EngineDriver,
) -> None:
    driver.open(3, pruner=STOPS, goals=SMALL)
    driver.join(cores=3)
    driver.suggest()
    assert driver.report(name(0), 1, score=0.9, size=99.0) == [Continue(name(0), 1)]
    driver.report(name(1), 1, score=0.2, size=5.0)
    driver.report(name(1), 3, score=0.2, size=5.0)
    tell, _ = driver.report(name(0), 3, score=0.4, size=9.0)
    assert isinstance(tell, Tell)
    assert tell.trial.rungs == {3: (0.4,)}, "the 0.9 broke the constraint"


def test_rungs_follow_from_the_steps_whatever_the_pruner_was_before(driver: EngineDriver) -> None:
    thirds = PrunerSettings(
        name="asha", epochs=27, options={"reduction_factor": 3, "min_epochs": 1}
    )
    driver.go(1, pruner=thirds)
    driver.report(name(0), 3, score=0.5)
    assert driver.trial(0).rungs == {1: (0.5,), 3: (0.5,)}
    driver.open(1, pruner=replace(thirds, options={"min_epochs": 4}))
    driver.join()
    driver.report(name(0, 1), 4, score=0.7)
    assert driver.trial(0).rungs == {1: (0.5,), 3: (0.5,), 4: (0.7,)}


# --- several objectives ---------------------------------------------------------------------

TWO = replace(GOALS, objectives=(GOAL, Goal("size", Direction.MIN)))


def race_of_two(driver: EngineDriver, goals: Goals = TWO) -> None:
    driver.open(3, pruner=STOPS, goals=goals)
    driver.join(cores=3)
    driver.suggest()


def test_a_trial_is_stopped_if_others_are_better_in_every_objective(driver: EngineDriver) -> None:
    race_of_two(driver)
    driver.report(name(0), 1, score=0.9, size=5.0)
    tell, _ = driver.report(name(1), 1, score=0.1, size=1.0)
    assert isinstance(tell, Tell), "it is the smallest"
    assert tell.trial.rungs == {1: (0.1, 1.0)}
    _, stop = driver.report(name(2), 1, score=0.8, size=6.0)
    assert stop == Stop(name(2), Halt.PRUNE)
    driver.end(name(2), PRUNED)
    assert driver.trial(2).values == (0.8, 6.0)
    driver.check_replay()


def test_a_report_that_lacks_an_objective_stops_nobody(driver: EngineDriver) -> None:
    race_of_two(driver)
    driver.report(name(0), 1, score=0.9, size=5.0)
    assert driver.report(name(1), 1, score=0.1) == []
    _, stop = driver.report(name(1), 2, score=0.2, size=6.0)
    assert stop == Stop(name(1), Halt.PRUNE)
    assert driver.trial(1).rungs == {1: (0.2, 6.0)}
    assert driver.report(name(2), 1, score=0.1, size=math.inf) == []
    assert driver.report(name(2), 2, score=0.1) == []
    driver.end(name(2), Ending(Cause.KILLED))
    assert driver.starts[2].resume_from == 2, "its steps still count"
    driver.check_replay()


def test_a_trial_is_compared_by_its_best_epoch(driver: EngineDriver) -> None:
    race_of_two(driver)
    driver.report(name(0), 1, score=0.5, size=2.0)
    driver.report(name(0), 2, score=0.4, size=1.0)
    driver.report(name(0), 3, score=0.6, size=3.0)
    assert driver.trial(0).rungs == {1: (0.5, 2.0), 3: (0.6, 3.0)}


def test_an_objective_that_no_epoch_changes_does_not_choose_the_best_one(
    driver: EngineDriver,
) -> None:
    race_of_two(driver, replace(GOALS, objectives=(Goal("params", Direction.MIN), GOAL)))
    for step, score in ((1, 0.2), (2, 0.5), (3, 0.4)):
        driver.report(name(0), step, params=7.0, score=score)
    assert driver.trial(0).rungs == {1: (7.0, 0.2), 3: (7.0, 0.5)}


def test_what_breaks_a_constraint_is_not_on_the_front(driver: EngineDriver) -> None:
    race_of_two(driver, replace(SMALL, objectives=TWO.objectives))
    driver.report(name(0), 1, score=0.5, size=5.0)
    assert driver.report(name(1), 1, score=0.9, size=99.0) == [Stop(name(1), Halt.PRUNE)]


def test_a_new_pruner_is_told_all_objectives(driver: EngineDriver) -> None:
    race_of_two(driver)
    driver.report(name(0), 1, score=0.5, size=5.0)
    driver.report(name(1), 2, score=0.1, size=1.0)
    driver.open(3, pruner=replace(STOPS, options={"reduction_factor": 2}), goals=TWO)
    driver.join(cores=3)
    _, stop = driver.report(name(2, 1), 2, score=0.1, size=5.0)
    assert stop == Stop(name(2, 1), Halt.PRUNE)
    driver.check_replay()


# --- paused and promoted --------------------------------------------------------------------


def test_a_paused_trial_gives_up_its_place_and_is_promoted_before_new_ones(
    driver: EngineDriver,
) -> None:
    driver.go(9, pruner=PROMOTES)
    pause(driver, 0, step=1, score=0.3)
    assert driver.trial(0).state is TrialState.PAUSED
    assert (driver.trial(0).value, driver.trial(0).step) == (0.3, 1)
    assert driver.attempt(name(0)).outcome is Outcome.RELEASED
    assert [driver.ask] == [Ask((1,))], "its place is free"
    driver.suggest()
    pause(driver, 1, step=1, score=0.9)
    driver.suggest()
    # The third to come makes the second the best of three.
    driver.report(name(2), 1, score=0.1)
    tell, promoted, start = driver.end(name(2), PAUSED)
    assert isinstance(tell, Tell)
    assert isinstance(promoted, Tell)
    assert isinstance(start, Start)
    assert (promoted.trial.number, promoted.trial.state) == (1, TrialState.WAITING)
    assert promoted.trial.value is None
    assert (start.attempt, start.resume_from) == (name(1, 1), 1)
    assert [driver.ask] == [None]
    driver.check_replay()


def test_a_paused_trial_that_a_user_stops_is_never_promoted(driver: EngineDriver) -> None:
    driver.go(9, pruner=PROMOTES)
    for trial, score in enumerate((0.3, 0.9)):
        pause(driver, trial, step=1, score=score)
        driver.suggest()
    tell, discarded = driver.user(UserAction.STOP_TRIAL, trial=1)
    assert isinstance(tell, Tell)
    assert (tell.trial.state, tell.trial.value) == (TrialState.PRUNED, 0.9)
    assert discarded == Discard(1)
    driver.report(name(2), 1, score=0.1)
    # It was the best of three, which would go on.
    assert kinds(driver.end(name(2), PAUSED)) == [Tell, Ask]
    assert driver.trial(1).state is TrialState.PRUNED
    driver.check_replay()


def test_a_trial_among_the_best_goes_on_without_a_pause(driver: EngineDriver) -> None:
    driver.go(9, pruner=PROMOTES)
    for trial in range(2):
        pause(driver, trial, step=1, score=0.5)
        driver.suggest()
    assert kinds(driver.report(name(2), 1, score=0.9)) == [Tell, Continue]
    assert driver.running.keys() == {name(2)}


def test_a_study_of_paused_trials_trains_the_best_in_full_and_prunes_the_rest(
    driver: EngineDriver,
) -> None:
    driver.go(4, pruner=PROMOTES)
    for trial in range(3):
        pause(driver, trial, step=1, score=0.5 - trial / 10)
        if driver.ask:
            driver.suggest()
    assert driver.running.keys() == {name(0, 1)}, "the best of three"
    pause(driver, 0, step=3, score=0.6, attempt=1)
    driver.suggest()
    pause(driver, 3, step=1, score=0.1)
    assert driver.running.keys() == {name(0, 2)}, "no other trial will come to step 3"
    commands = driver.end(name(0, 2), returned(0.5))
    assert states(driver) == [
        TrialState.COMPLETE,
        TrialState.PRUNED,
        TrialState.PRUNED,
        TrialState.PRUNED,
    ]
    assert commands[-1] == Finish(FinishReason.DONE, "4 trials are over")
    assert {Discard(1), Discard(2), Discard(3)} <= {c for c in commands if isinstance(c, Discard)}
    driver.check_replay()


def test_a_study_that_is_let_go_keeps_its_paused_trials(driver: EngineDriver) -> None:
    driver.go(5, cores=2, pruner=PROMOTES)
    pause(driver, 0, step=1, score=0.9)
    driver.suggest()
    assert driver.stop() == [Stop(name(1), Halt.STOP), Stop(name(2), Halt.STOP)]
    driver.end(name(1), Ending(Cause.STOPPED))
    commands = driver.end(name(2), Ending(Cause.STOPPED))
    assert kinds(commands) == [Finish]
    assert driver.trial(0).state is TrialState.PAUSED
    driver.open(5, pruner=PROMOTES)
    driver.join(cores=2)
    pause(driver, 1, step=1, score=0.1, attempt=1)
    driver.suggest()
    driver.report(name(2, 1), 1, score=0.2)
    driver.end(name(2, 1), PAUSED)
    assert name(0, 1) in driver.running, "the best of three continues under the next master"
    driver.check_replay()


def test_a_trial_that_a_user_stops_while_it_pauses_does_not_run_again(
    driver: EngineDriver,
) -> None:
    driver.go(2, cores=2, pruner=PROMOTES)
    assert Stop(name(0), Halt.PAUSE) in driver.report(name(0), 1, score=0.9)
    assert driver.user(UserAction.STOP_TRIAL, trial=0) == []
    driver.end(name(0), PAUSED)
    assert driver.trial(0).state is TrialState.PRUNED


def test_an_order_to_pause_is_not_followed_by_another_order(driver: EngineDriver) -> None:
    driver.go(5, pruner=PROMOTES)
    driver.report(name(0), 1, score=0.9)
    assert kinds(driver.report(name(0), 3, score=0.9)) == [Tell]
    assert driver.stop() == []
    driver.end(name(0), PAUSED)
    assert driver.trial(0).state is TrialState.PAUSED
    assert driver.trial(0).step == 3


# --- other settings under the next master ---------------------------------------------------


def test_paused_trials_run_on_when_the_next_master_prunes_none(driver: EngineDriver) -> None:
    driver.go(2, pruner=PROMOTES)
    pause(driver, 0, step=1, score=0.5)
    driver.suggest()
    driver.open(2)
    assert states(driver) == [TrialState.WAITING, TrialState.WAITING]
    driver.join(cores=2)
    assert driver.starts[0].resume_from == 1


def test_paused_trials_are_judged_when_the_next_master_stops_poor_ones(
    driver: EngineDriver,
) -> None:
    driver.go(3, pruner=PROMOTES)
    pause(driver, 0, step=1, score=0.5)
    driver.suggest()
    pause(driver, 1, step=1, score=0.4)
    commands = driver.open(3, pruner=STOPS)
    assert states(driver)[:2] == [TrialState.WAITING, TrialState.PRUNED]
    assert Discard(1) in commands
    driver.check_replay()


def test_more_epochs_make_more_rungs_and_keep_what_is_known(driver: EngineDriver) -> None:
    driver.go(4, cores=2, pruner=replace(STOPS, epochs=4))
    for step in (1, 2, 4):
        driver.report(name(0), step, score=step / 10)
    driver.end(name(0), returned(0.4))
    driver.open(4, pruner=STOPS)
    driver.join("more", cores=1)
    driver.report(name(1, 1), 1, score=0.19)
    assert Stop(name(1, 1), Halt.PRUNE) in driver.report(name(1, 1), 3, score=0.19)


@pytest.mark.parametrize("pruner", [STOPS, replace(STOPS, name="median")])
def test_a_pruner_that_begins_late_compares_trials_of_as_many_epochs(
    driver: EngineDriver, pruner: PrunerSettings
) -> None:
    driver.go(8, cores=6)
    for trial in range(6):
        for step in (1, 2, 3, 6, 9):
            driver.report(name(trial), step, score=step / 10)
        driver.end(name(trial), returned(0.9))
    driver.open(8, pruner=pruner)
    driver.join("more", cores=2)
    driver.suggest()
    tell, _ = driver.report(name(6), 1, score=0.2)
    assert isinstance(tell, Tell), "the others had 0.1 by then"
    assert Stop(name(7), Halt.PRUNE) in driver.report(name(7), 1, score=0.05)
    tell, _ = driver.report(name(6), 3, score=0.4)
    assert isinstance(tell, Tell)
    driver.check_replay()


@pytest.mark.parametrize("resumed", [0, 1])
def test_a_new_pruner_compares_no_epochs_before_a_trial_kept_its_constraints(
    driver: EngineDriver, resumed: int
) -> None:
    driver.go(3, cores=3, pruner=STOPS, goals=SMALL)
    for step, size in ((1, 99.0), (4, 5.0)):
        driver.report(name(0), step, score=0.9, size=size)
    driver.end(name(0), returned(0.9, size=5.0))
    if resumed:
        driver.open(
            3, pruner=replace(STOPS, options={"min_epochs": 1, "reduction_factor": 3}), goals=SMALL
        )
        driver.join(cores=2)
    driver.report(name(1, resumed), 1, score=0.5, size=5.0)
    on = driver.report(name(2, resumed), 1, score=0.6, size=5.0)[-1]
    assert on == Continue(name(2, resumed), 1), "the first had no value by then"
    driver.check_replay()


@pytest.mark.parametrize(
    "pruner", [STOPS, PrunerSettings(name="median", epochs=9, options={"min_epochs": 1})]
)
def test_a_retried_trial_is_judged_as_if_it_never_ran(
    driver: EngineDriver, pruner: PrunerSettings
) -> None:
    driver.go(6, pruner=pruner)
    driver.report(name(0), 3, score=9.0)  # its code was wrong
    driver.end(name(0), Ending(Cause.EXCEPTION, reason="ValueError: 3"))
    for trial in range(1, 6):
        driver.suggest()
        driver.report(name(trial), 3, score=0.5 + trial / 10)
        driver.end(name(trial), returned(0.9))
    driver.open(6, pruner=pruner, retried=(0,))
    driver.join()
    assert Stop(name(0, 1), Halt.PRUNE) in driver.report(name(0, 1), 3, score=0.1)
    driver.check_replay()


@pytest.mark.parametrize("pruner", ["asha", "median"])
def test_a_new_pruner_is_told_the_steps_that_were_reported_and_no_others(
    driver: EngineDriver, pruner: str
) -> None:
    settings = PrunerSettings(name=pruner, epochs=9, options={"min_epochs": 1})
    driver.go(9, cores=8, pruner=settings)
    for trial in range(6):
        for step in (2, 4, 6, 8):
            driver.report(name(trial), step, score=step / 10)
        driver.end(name(trial), returned(0.8))
    driver.report(name(6), 2, score=9.0)
    driver.end(name(6), Ending(Cause.EXCEPTION, reason="ValueError: 6"))
    driver.open(9, pruner=settings, retried=(6,))
    driver.join("more", cores=3)
    driver.report(name(7, 1), 2, score=0.3)
    stopped = driver.report(name(7, 1), 4, score=0.3)
    assert stopped[-1] == Stop(name(7, 1), Halt.PRUNE), "the others had 0.4 at step 4, not 0.2"
    driver.check_replay()


def test_a_trial_that_trains_on_counts_and_is_judged_as_others(driver: EngineDriver) -> None:
    def median(epochs: int) -> PrunerSettings:
        return PrunerSettings(name="median", epochs=epochs, options={"min_epochs": 1})

    driver.go(5, cores=5, pruner=median(2), keep_checkpoints=5)
    for trial in range(5):
        for step in (1, 2):
            driver.report(name(trial), step, score=trial / 10)
        driver.end(name(trial), returned(trial / 10))
    driver.open(7, pruner=median(9), keep_checkpoints=5, go_on=(0, 1, 2, 3, 4))
    driver.join("more", cores=7)
    driver.suggest()
    for trial in range(5):
        driver.report(name(trial, 1), 4, score=1.0 + trial / 10)
        driver.end(name(trial, 1), returned(1.0 + trial / 10))
    assert Stop(name(5), Halt.PRUNE) in driver.report(name(5), 4, score=0.9), "1.2 is the median"
    driver.check_replay()

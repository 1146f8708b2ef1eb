"""Retention of models and checkpoints, and trials that train on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_driver import FIRST, EngineDriver, returned, states
from hptune.core.attempt import NO_BETTER, AttemptId, Cause, Ending, Report
from hptune.core.goals import Goals
from hptune.core.messages import (
    Command,
    Discard,
    Finish,
    FinishReason,
    KeepBest,
    Reported,
    Start,
    Tell,
)
from hptune.core.pruner import PrunerSettings
from hptune.core.ranking import Ranking
from hptune.core.trial import Direction, Goal, Score, TrialState


@pytest.mark.parametrize(
    ("direction", "scores", "best"),
    [
        (Direction.MAX, [0.1, 0.3, 0.2, 0.3], [0, 1]),
        (Direction.MIN, [0.1, 0.3, 0.2, 0.05], [0, 3]),
    ],
)
def test_only_the_best_model_is_kept(
    driver: EngineDriver, direction: Direction, scores: list[float], best: list[int]
) -> None:
    driver.open(trials=4, goals=Goals((Goal("score", direction),)))
    driver.join(cores=4)
    driver.suggest()
    kept: list[int] = []
    discarded = []
    for number, score in enumerate(scores):
        for command in driver.end(AttemptId(number, 0), returned(score)):
            if isinstance(command, KeepBest):
                kept.extend(trial.number for trial in command.trials)
            elif isinstance(command, Discard):
                discarded.append(command.trial)
    assert kept == best
    assert sorted(discarded) == sorted({0, 1, 2, 3} - {best[-1]})
    assert driver.engine.snapshot.best == driver.trial(best[-1])


def test_the_value_to_beat_is_passed_on(driver: EngineDriver) -> None:
    driver.go(3)
    driver.end(FIRST, returned(0.5))
    *_, start = driver.suggest()
    assert isinstance(start, Start)
    assert start.incumbents == (Score((0.5,)),)
    driver.end(start.attempt, returned(0.4))
    *_, start = driver.suggest()
    assert isinstance(start, Start)
    assert start.incumbents == (Score((0.5,)),)


def test_a_new_master_is_told_the_best_again(driver: EngineDriver) -> None:
    driver.go(1)
    driver.end(FIRST, returned(0.5))
    commands = driver.open(trials=2)
    assert commands == [KeepBest((driver.trial(0),))]


# --- more epochs ----------------------------------------------------------------------------


def complete_four(driver: EngineDriver, *, keep: int) -> list[Discard]:
    """Complete four trials with the values 0.1, 0.4, 0.3 and 0.2; the greatest is the best."""
    driver.open(4, keep_checkpoints=keep)
    driver.join()
    discarded = []
    for number, value in enumerate((0.1, 0.4, 0.3, 0.2)):
        driver.suggest()
        commands = driver.end(AttemptId(number, 0), returned(value))
        discarded += [each for each in commands if isinstance(each, Discard)]
    return discarded


def test_the_best_ones_keep_their_last_checkpoint(driver: EngineDriver) -> None:
    assert complete_four(driver, keep=2) == [
        Discard(0, keep_checkpoint=True),
        Discard(0),
        Discard(2, keep_checkpoint=True),
        Discard(3),
    ]
    assert driver.engine.able_to_go_on == (1, 2)
    assert driver.starts[0].keep_last


def test_the_best_ones_train_on(driver: EngineDriver) -> None:
    complete_four(driver, keep=2)
    driver.open(4, keep_checkpoints=2, go_on=(1, 2))
    assert driver.engine.able_to_go_on == ()
    assert [(best.number, best.value) for best in driver.engine.front] == [(1, 0.4)]
    (first,) = driver.join()
    assert isinstance(first, Start)
    assert first.attempt == AttemptId(1, 1)
    driver.end(AttemptId(1, 1), returned(0.4))
    assert states(driver)[:3] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.RUNNING]
    commands = driver.end(AttemptId(2, 1), returned(0.6))
    assert [each for each in commands if isinstance(each, KeepBest | Discard)] == [
        KeepBest((driver.trial(2),)),
        Discard(1, keep_checkpoint=True),
    ]
    assert [best.number for best in driver.engine.front] == [2]
    assert isinstance(commands[-1], Finish)


def test_samplers_know_the_results_of_trials_that_train_on(driver: EngineDriver) -> None:
    complete_four(driver, keep=2)
    commands = driver.open(4, keep_checkpoints=2, go_on=(1, 2))
    commands += driver.join()
    assert states(driver)[1:3] == [TrialState.RUNNING, TrialState.WAITING]
    told = [each.trial for each in commands if isinstance(each, Tell)]
    known = [each for each in driver.engine.results if each.number in (1, 2)]
    for trials in (told, known):  # by this master, and by the next one
        assert [(each.state, each.value) for each in trials] == [
            (TrialState.COMPLETE, 0.4),
            (TrialState.COMPLETE, 0.3),
        ]


def test_what_ended_by_itself_does_not_train_on(driver: EngineDriver) -> None:
    driver.open(3, keep_checkpoints=1, pruner=PrunerSettings(epochs=3))
    driver.join()
    discarded = []
    for number, steps in enumerate((3, 2, 3)):
        driver.suggest()
        for step in range(1, steps + 1):
            driver.report(AttemptId(number, 0), step, score=number / 10)
        commands = driver.end(AttemptId(number, 0), returned((0.1, 0.9, 0.2)[number]))
        discarded += [each for each in commands if isinstance(each, Discard)]
    assert driver.engine.able_to_go_on == (2,), "the best one of those that had all their epochs"
    assert driver.engine.ended_early == {1}
    assert [best.number for best in driver.engine.front] == [1]
    assert discarded == [Discard(0, keep_checkpoint=True), Discard(0), Discard(2, True)]


@pytest.mark.parametrize(
    ("last", "said", "able"),
    [(3, None, (0,)), (2, None, ()), (2, False, (0,)), (3, True, ())],
)
def test_what_an_attempt_says_of_its_end_counts_before_its_last_report(
    driver: EngineDriver, last: int, said: bool | None, able: tuple[int, ...]
) -> None:
    driver.open(2, keep_checkpoints=1, pruner=PrunerSettings(epochs=3))
    driver.join()
    driver.suggest()
    driver.report(AttemptId(0, 0), last, score=0.5)
    driver.end(AttemptId(0, 0), replace(returned(0.5), ended_early=said))
    assert driver.engine.able_to_go_on == able
    assert driver.engine.ended_early == (frozenset() if able else {0})


def seen_by_a_reader(driver: EngineDriver) -> list[tuple[int, float | None]]:
    ranking = Ranking.of(driver.engine.snapshot.goals, driver.engine.trials, driver.attempts)
    return [(best.number, best.value) for best in ranking.best]


def test_what_trains_on_is_no_less_the_best_for_that(driver: EngineDriver) -> None:
    complete_four(driver, keep=2)
    driver.open(4, keep_checkpoints=2, go_on=(1, 2))
    assert seen_by_a_reader(driver) == [(1, 0.4)]
    driver.join()
    assert seen_by_a_reader(driver) == [(1, 0.4)]
    driver.leave()
    assert seen_by_a_reader(driver) == [(1, 0.4)]


def test_what_was_paused_while_it_trained_on_is_no_less_the_best_either(
    driver: EngineDriver,
) -> None:
    pruner = PrunerSettings(
        name="asha", epochs=9, options={"min_epochs": 1, "pruner_mode": "promote"}
    )
    complete_four(driver, keep=2)
    driver.open(4, keep_checkpoints=2, go_on=(1, 2), pruner=pruner)
    driver.join(cores=2)
    driver.feed(Reported(driver.at, AttemptId(2, 1), Report(3, {"score": 0.9})))
    driver.feed(Reported(driver.at, AttemptId(1, 1), Report(3, {"score": 0.1})))
    driver.end(AttemptId(1, 1), Ending(Cause.PAUSED))
    assert driver.trial(1).state is TrialState.PAUSED
    assert driver.trial(1).value == 0.4
    assert [(best.number, best.value) for best in driver.engine.front] == [(1, 0.4)]
    assert seen_by_a_reader(driver) == [(1, 0.4)]


def test_the_front_beyond_the_limit_keeps_no_checkpoints(driver: EngineDriver) -> None:
    goals = Goals((Goal("score", Direction.MAX), Goal("size", Direction.MIN)))
    driver.open(3, goals=goals, keep_checkpoints=1)
    driver.join()
    commands: list[Command] = []
    for number in range(3):
        driver.suggest()
        metrics = {"score": float(number), "size": float(number)}
        commands += driver.end(AttemptId(number, 0), Ending(Cause.RETURNED, metrics))
    assert len(driver.engine.front) == 3
    assert driver.engine.able_to_go_on == (2,)
    assert [each for each in commands if isinstance(each, Discard)] == [Discard(0), Discard(1)]
    # The models are where they are safe before anything is thrown away.
    for number in range(2):
        thrown_away = commands.index(Discard(number))
        kept = [each for each in commands[:thrown_away] if isinstance(each, KeepBest)]
        assert number in {trial.number for each in kept for trial in each.trials}


def test_of_equals_the_first_stays_the_best_though_it_trained_on(driver: EngineDriver) -> None:
    driver.open(2, keep_checkpoints=2)
    driver.join()
    for number in range(2):
        driver.suggest()
        driver.end(AttemptId(number, 0), returned(0.4))
    driver.open(2, keep_checkpoints=2, go_on=(0, 1))
    driver.join(cores=2)
    driver.end(AttemptId(1, 1), returned(0.3))
    driver.end(AttemptId(0, 1), returned(0.3))
    assert [best.number for best in driver.engine.front] == [0]
    assert seen_by_a_reader(driver) == [(0, 0.4)]


def test_of_equals_the_first_stays_the_best_though_it_is_to_train_on_later(
    driver: EngineDriver,
) -> None:
    driver.open(2, keep_checkpoints=2)
    driver.join()
    for number in range(2):
        driver.suggest()
        driver.end(AttemptId(number, 0), returned(0.4))
    driver.open(2, keep_checkpoints=2, go_on=(0,))
    driver.join()
    driver.stop()
    driver.end(AttemptId(0, 1), Ending(Cause.STOPPED))
    assert [best.number for best in driver.engine.front] == [0]
    assert seen_by_a_reader(driver) == [(0, 0.4)]


@pytest.mark.parametrize(
    ("ending", "why"),
    [
        (Ending(Cause.EXCEPTION, reason="broken"), f"{NO_BETTER}: broken"),
        (Ending(Cause.NON_FINITE), f"{NO_BETTER}: non-finite metric"),
        (returned(0.1), NO_BETTER),
    ],
)
def test_a_trial_is_no_worse_for_training_on(
    driver: EngineDriver, ending: Ending, why: str
) -> None:
    complete_four(driver, keep=1)
    before = driver.trial(1)
    driver.open(4, keep_checkpoints=1, go_on=(1,), same_failure_limit=1)
    driver.join()
    commands = driver.end(AttemptId(1, 1), ending)
    thrown_away = [each for each in commands if isinstance(each, Discard)]
    assert thrown_away == [Discard(1, keep_checkpoint=True)], "what the attempt left"
    assert driver.trial(1) == replace(before, attempts=2)
    assert driver.attempt(AttemptId(1, 1)).reason == why
    assert [best.number for best in driver.engine.front] == [1]
    assert driver.finish == Finish(FinishReason.DONE, "4 trials are over")

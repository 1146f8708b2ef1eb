"""Configurations that the user adds when a study is resumed."""

from __future__ import annotations

from engine_driver import EngineDriver, returned, states
from hptune.core.attempt import AttemptId
from hptune.core.messages import Ask, Finish, FinishReason, Start, Tell
from hptune.core.trial import ADDED, TrialState


def test_it_is_the_next_that_runs_and_the_sampler_hears_of_it(driver: EngineDriver) -> None:
    driver.go(3)
    driver.end(AttemptId(0, 0), returned(0.5))
    commands = driver.open(3, added=[{"x": 7}])
    assert [(c.trial.number, c.trial.origin) for c in commands if isinstance(c, Tell)] == [
        (1, ADDED)
    ]
    [start] = [c for c in driver.join(cores=1) if isinstance(c, Start)]
    assert (start.attempt, start.params) == (AttemptId(1, 0), {"x": 7})
    assert driver.end(start.attempt, returned(0.7))[-1] == Ask((2,))


def test_it_comes_after_trials_that_wait_already(driver: EngineDriver) -> None:
    driver.go(3)
    driver.open(3, added=[{"x": 7}])
    [start] = [c for c in driver.join(cores=1) if isinstance(c, Start)]
    assert start.attempt == AttemptId(0, 1)


def test_it_counts_as_one_of_all_trials(driver: EngineDriver) -> None:
    driver.go(3)
    driver.end(AttemptId(0, 0), returned(0.5))
    driver.open(3, added=[{"x": 7}, {"x": 8}])
    driver.join(cores=1)
    driver.end(AttemptId(1, 0), returned(0.7))
    finish = driver.end(AttemptId(2, 0), returned(0.8))[-1]
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.DONE
    assert states(driver) == [TrialState.COMPLETE] * 3


def test_a_master_that_dies_adds_nothing_twice(driver: EngineDriver) -> None:
    driver.go(4)
    driver.end(AttemptId(0, 0), returned(0.5))
    driver.open(4, added=[{"x": 7}])
    driver.join(cores=1)
    driver.open(4)
    [start] = [c for c in driver.join(cores=1) if isinstance(c, Start)]
    assert (start.attempt, start.params) == (AttemptId(1, 1), {"x": 7})
    assert len(list(driver.engine.trials)) == 2


def test_its_story_begins_with_the_study(driver: EngineDriver) -> None:
    driver.open(1, added=[{"x": 7}])
    driver.join()
    assert driver.engine.story(0)[1].startswith("1.0 s: ")

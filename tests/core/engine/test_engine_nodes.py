"""Nodes on which attempts are lost: nothing starts there, and trials are not charged for them."""

from __future__ import annotations

from typing import Any

from engine_driver import EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending, Halt
from hptune.core.failure_policy import Action, FailureRule
from hptune.core.messages import DecideSplit, ExcludeNode, Start
from hptune.core.resources import Capacity, Resources
from hptune.core.trial import TrialState

LOST = Ending(Cause.WORKER_LOST, reason="its disk failed")
ONCE = FailureRule(Cause.WORKER_LOST, Action.RETRY, 1)


def on(driver: EngineDriver, worker: str) -> AttemptId:
    """Return the attempt that runs on a worker."""
    return next(name for name, held in driver.running.items() if held.worker == worker)


def begun(driver: EngineDriver, **options: Any) -> None:
    """Open a study with a worker on each of two nodes."""
    driver.open(9, **options)
    driver.join("bad")
    driver.join("good")
    answer(driver)


def answer(driver: EngineDriver) -> None:
    while driver.ask is not None:
        driver.suggest()


def lose(driver: EngineDriver, worker: str) -> AttemptId:
    """Lose what runs on a worker, which stays; returns the attempt."""
    name = on(driver, worker)
    driver.end(name, LOST)
    answer(driver)
    return name


def test_nothing_starts_on_a_node_from_its_third_failure_on(driver: EngineDriver) -> None:
    begun(driver)
    assert len(driver.running) == 2
    for _ in range(2):
        lose(driver, "bad")
    commands = driver.end(on(driver, "bad"), LOST)
    assert ExcludeNode("node of bad") in commands
    assert not any(isinstance(each, Start) for each in commands)
    assert [held.worker for held in driver.running.values()] == ["good"]
    assert driver.engine.snapshot.unfit_nodes.keys() == {"node of bad"}
    driver.leave("good")
    assert driver.engine.snapshot.stall_reason == "waiting for a worker"
    driver.join("third")
    assert [held.worker for held in driver.running.values()] == ["third"]
    driver.check_replay()


def test_a_trial_that_was_lost_goes_to_another_node_if_one_could_hold_it(
    driver: EngineDriver,
) -> None:
    begun(driver)
    lost = lose(driver, "bad")
    assert on(driver, "bad").trial != lost.trial, "it waits for the other one"
    driver.end(on(driver, "good"), returned(0.5))
    assert on(driver, "good") == AttemptId(lost.trial, 1)
    driver.end(on(driver, "bad"), LOST)
    driver.about_to_leave("good")
    assert on(driver, "bad").number == 1, "there is no other any more"
    driver.check_replay()


def test_few_trials_wait_for_another_node_and_none_while_its_place_would_be_idle(
    driver: EngineDriver,
) -> None:
    begun(driver)
    lose(driver, "good")
    numbers = [lose(driver, "bad").trial for _ in range(6)]
    assert len(set(numbers)) < len(numbers), "of four, one begins again where it was lost"
    driver = EngineDriver()
    driver.open(2)
    driver.join("bad")
    driver.join("good")
    answer(driver)
    lost = on(driver, "bad")
    driver.end(lost, LOST)
    assert on(driver, "bad") == AttemptId(lost.trial, 1), "no other trial is left"


def test_a_trial_whose_worker_left_may_return_to_its_node(driver: EngineDriver) -> None:
    begun(driver)
    lost = on(driver, "bad")
    driver.leave("bad")
    driver.join_with("restarted", Capacity((0,)), node="node of bad")
    assert on(driver, "restarted") == AttemptId(lost.trial, 1)


def test_a_large_trial_that_was_lost_has_its_turn_on_another_node(driver: EngineDriver) -> None:
    large = Resources(cpus=2)
    driver.open(40)
    driver.join("bad", cores=2)
    driver.suggest(resources=lambda _: large)
    driver.join("good", cores=2)
    answer(driver)
    lost = lose(driver, "bad")
    assert lost.trial == 0
    for _ in range(12):
        if AttemptId(0, 1) in driver.running:
            break
        driver.end(on(driver, "good"), returned(0.5))
        answer(driver)
    assert driver.running[AttemptId(0, 1)].worker == "good", "others passed it all the time"


def test_a_node_is_not_to_blame_if_the_same_happens_on_all(driver: EngineDriver) -> None:
    begun(driver)
    lose(driver, "good")
    for _ in range(5):
        lose(driver, "bad")
    assert not driver.excluded
    assert driver.engine.snapshot.unfit_nodes.keys() == {"node of bad"}, "but jobs go elsewhere"


def test_attempts_that_are_killed_with_their_study_blame_no_node(driver: EngineDriver) -> None:
    begun(driver)
    for _ in range(2):
        lose(driver, "bad")
    driver.stop()
    driver.end(on(driver, "bad"), LOST)
    assert not driver.engine.snapshot.unfit_nodes


def test_losses_on_a_node_that_is_excluded_are_not_charged() -> None:
    for failures in (2, 3):
        driver = EngineDriver()
        begun(driver, failure_rules=(ONCE,))
        first = lose(driver, "bad")
        for _ in range(failures - 1):
            lose(driver, "bad")
        assert bool(driver.excluded) == (failures == 3)
        driver.end(on(driver, "good"), returned(0.5))
        assert on(driver, "good") == AttemptId(first.trial, 1)
        driver.end(AttemptId(first.trial, 1), LOST)
        is_charged_twice = driver.trial(first.trial).state is TrialState.FAILED
        assert is_charged_twice == (failures == 2)


def test_an_attempt_of_several_nodes_may_end_unless_one_of_its_workers_is_to_leave(
    driver: EngineDriver,
) -> None:
    driver.open(9)
    driver.join("bad", cores=2)
    driver.join("good")
    sizes = {0: Resources(processes=2, nodes=2)}
    while driver.ask is not None:
        driver.suggest(resources=sizes.get)
    large = AttemptId(0, 0)
    assert driver.running[large].workers == ("bad", "good")
    while not driver.excluded:
        single = next(name for name in driver.running if name != large)
        driver.end(single, LOST)
        answer(driver)
    assert not driver.told_to_stop
    driver.about_to_leave("bad")
    assert driver.told_to_stop == {large: Halt.RELEASE}


def test_nothing_starts_before_the_split_is_chosen(driver: EngineDriver) -> None:
    sizes = {1: Resources(), 2: Resources(processes=2)}
    driver.split = lambda question: sizes[len(question.workers)]
    driver.open(9, splits=True)
    driver.join("a", cores=2)
    driver.suggest()
    assert {held.peers for held in driver.running.values()} == {()}
    commands = driver.join("b", cores=4)
    asked, *others = commands
    assert isinstance(asked, DecideSplit)
    assert [len(each.cpus) for each in asked.workers] == [2, 4]
    assert asked.trials_left == 9
    assert all(each.placement.peers for each in others if isinstance(each, Start))
    driver.check_replay()

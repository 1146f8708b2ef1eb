"""Nodes on which attempts are lost: nothing starts there, and trials are not charged for them."""

from __future__ import annotations

from engine_driver import EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending
from hptune.core.failure_policy import Action, FailureRule
from hptune.core.messages import DecideSplit, ExcludeNode, Start
from hptune.core.resources import Resources
from hptune.core.trial import TrialState

LOST = Ending(Cause.WORKER_LOST, reason="its disk failed")
ONCE = FailureRule(Cause.WORKER_LOST, Action.RETRY, 1)


def on(driver: EngineDriver, worker: str) -> AttemptId:
    """Return the attempt that runs on a worker."""
    return next(name for name, held in driver.running.items() if held.worker == worker)


def begun(driver: EngineDriver, **options: object) -> None:
    """Open a study with a worker on each of two nodes."""
    driver.open(9, **options)
    driver.join("bad")
    driver.join("good")
    while driver.ask is not None:
        driver.suggest()


def test_nothing_starts_on_a_node_from_its_third_failure_on(driver: EngineDriver) -> None:
    begun(driver)
    assert len(driver.running) == 2
    for _ in range(2):
        driver.end(on(driver, "bad"), LOST)
    commands = driver.end(on(driver, "bad"), LOST)
    assert ExcludeNode("node of bad") in commands
    assert not any(isinstance(each, Start) for each in commands)
    assert [held.worker for held in driver.running.values()] == ["good"]
    assert driver.engine.snapshot.failing_nodes == ("node of bad",)
    driver.leave("good")
    assert driver.engine.snapshot.stall_reason == "waiting for a worker"
    driver.join("third")
    assert [held.worker for held in driver.running.values()] == ["third"]
    driver.check_replay()


def test_a_node_is_not_to_blame_if_the_same_happens_on_all(driver: EngineDriver) -> None:
    begun(driver)
    driver.end(on(driver, "good"), LOST)
    for _ in range(5):
        driver.end(on(driver, "bad"), LOST)
    assert not driver.excluded
    assert driver.engine.snapshot.failing_nodes == ("node of bad",), "but jobs go elsewhere"


def test_attempts_that_are_killed_with_their_study_blame_no_node(driver: EngineDriver) -> None:
    begun(driver)
    for _ in range(2):
        driver.end(on(driver, "bad"), LOST)
    driver.stop()
    driver.end(on(driver, "bad"), LOST)
    assert not driver.engine.snapshot.failing_nodes


def test_losses_on_a_node_that_is_excluded_are_not_charged(driver: EngineDriver) -> None:
    begun(driver, failure_rules=(ONCE,))
    first = on(driver, "bad")
    driver.end(first, LOST)
    second = on(driver, "bad")
    assert second.trial == first.trial, "a trial that has begun goes first"
    driver.end(on(driver, "good"), returned(0.5))
    while driver.ask is not None:
        driver.suggest()
    driver.end(second, LOST)
    assert driver.trial(first.trial).state is TrialState.FAILED, "it was charged twice"
    while driver.ask is not None:
        driver.suggest()
    last = on(driver, "bad")
    driver.end(last, LOST)
    assert driver.excluded
    driver.end(on(driver, "good"), returned(0.5))
    again = on(driver, "good")
    assert again.trial == last.trial
    driver.end(again, LOST)
    assert driver.trial(last.trial).state is not TrialState.FAILED, "once on a good node"
    driver.end(on(driver, "good"), LOST)
    assert driver.trial(last.trial).state is TrialState.FAILED


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

"""Trials are given the memory that others were seen to hold, and never more than a worker has."""

from __future__ import annotations

import random
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from engine_driver import EngineDriver
from hptune.core.attempt import Cause, Ending, Usage
from hptune.core.resources import Amount, Resources
from hptune.core.trial import Params, TrialState
from packing_site import ALL, GB, Site, cores


def test_the_memory_that_was_said_of_one_trial_is_kept_too() -> None:
    driver = EngineDriver()
    driver.open(4, measured=(Amount.MEMORY,))
    driver.join_with("w", cores(4))
    while driver.ask is not None:
        driver.suggest(
            resources=lambda number: None if number % 2 else Resources(memory_bytes=10 * GB)
        )
    for seconds in (10.0, 20.0, 30.0):
        for name in [*driver.running]:
            usage = Usage(
                peak_memory_bytes=GB, cpu_seconds=seconds, seconds=seconds, seconds_per_step=1.0
            )
            driver.measure(name, usage)
    held = {name.trial: driver.attempt(name).placement.memory_bytes for name in driver.running}
    assert held[0] == held[2] == 10 * GB
    assert max(held[1], held[3]) < 2 * GB


def test_where_memory_is_too_small_for_one_on_each_core_fewer_are_placed() -> None:
    site = Site(cores(8, 40 * GB), memory=lambda params: 8 * GB)
    first = [*site.driver.running]
    assert len(first) == 8  # nothing is measured yet
    for name in first:
        site.measure(name)
    for name in first:
        site.end(name)
    assert len(site.driver.running) == 4
    site.run()


def test_what_others_hold_counts_as_long_as_they_hold_it() -> None:
    site = Site(cores(8, 40 * GB), memory=lambda params: 3 * GB, trials=60)
    site.watch()
    site.driver.open(60, measured=ALL)
    site.driver.join_with("w", replace(site.capacity, memory_taken_bytes=33 * GB))
    assert len(site.driver.running) == 1, "there may be room for one"
    site.free_share = 4 / 40
    site.watch()
    assert len(site.driver.running) == 1
    site.end(next(iter(site.driver.running)))
    assert len(site.driver.running) == 1
    site.free_share = 37 / 40
    site.watch()
    assert len(site.driver.running) == 8, "the neighbour is gone"
    site.free_share = 1.0
    site.run()


def test_a_trial_does_not_wait_forever_for_memory_that_others_held() -> None:
    driver = EngineDriver()
    driver.open(2, measured=ALL, resources=Resources(memory_bytes=9 * GB))
    driver.join_with("w", replace(cores(2, 20 * GB), memory_taken_bytes=19 * GB))
    driver.suggest()
    assert len(driver.running) == 1


def test_memory_is_estimated_for_each_trial_from_its_hyperparameters() -> None:
    def memory(params: Params) -> float:
        return 0.1 * GB * float(params["units"] or 0)

    site = Site(cores(2, 40 * GB), busy=lambda params: 0.1, memory=memory, trials=60)
    site.run()
    assert site.most_held < 36 * GB
    largest = max(memory(trial.params) for trial in site.driver.engine.trials)
    assert site.most_running > 1.3 * (36 * GB // largest)
    late = site.driver.attempts[-20:]
    for each in late:
        needs = memory(site.driver.trial(each.id.trial).params)
        assert needs <= each.placement.memory_bytes < 1.4 * needs
    assert "depending on units" in site.driver.engine.snapshot.packing


@pytest.mark.parametrize(
    ("share", "noise", "said"),
    [(0.2, 0.0, "; about "), (0.2, 0.05, "; about "), (0.002, 0.5, "")],
)
def test_memory_that_is_small_or_hardly_varies_is_not_said_to_depend(
    share: float, noise: float, said: str
) -> None:
    def memory(params: Params) -> float:
        return 40 * GB * share * (1 + noise * float(params["units"] or 0) / 256)

    site = Site(cores(4, 40 * GB), busy=lambda params: 0.1, memory=memory, trials=40)
    site.run()
    packing = site.driver.engine.snapshot.packing
    assert packing.startswith("up to ")
    assert said in packing
    assert ("of memory" in packing, "depending on" in packing) == (bool(said), False)


def test_what_a_running_trial_comes_to_hold_is_counted() -> None:
    site = Site(cores(2, 20 * GB), busy=lambda params: 0.2)
    site.watch()
    name = next(iter(site.driver.running))
    site.memory = lambda params: 15 * GB
    site.measure(name)
    assert site.driver.attempt(name).placement.memory_bytes >= 15 * GB
    running = len(site.driver.running)
    site.measure(name)
    assert len(site.driver.running) == running


def test_after_an_out_of_memory_all_are_given_more() -> None:
    site = Site(cores(2, 20 * GB), busy=lambda params: 0.2, trials=80)
    for _ in range(3):
        site.watch()
    before = [*site.driver.attempts][-1].placement.memory_bytes
    name = next(iter(site.driver.running))
    site.end(name, Ending(Cause.OUT_OF_MEMORY, reason="killed"))
    assert site.driver.engine.snapshot.packing.startswith(
        "1.25 times the expected memory for each trial"
    )
    again = site.driver.trial(name.trial)
    for other in [*site.driver.running][:3]:
        site.end(other)
    new = site.driver.attempts[-1]
    assert new.placement.memory_bytes > before
    assert again.state in (TrialState.WAITING, TrialState.RUNNING)
    site.run()


@given(
    needs=st.lists(st.sampled_from([1, 2, 5, 9, 14]), min_size=1, max_size=6),
    busy=st.lists(st.sampled_from([0.02, 0.3, 0.55, 1.0]), min_size=1, max_size=4),
    count=st.integers(1, 6),
    memory=st.integers(15, 60),
    seed=st.integers(0, 1_000),
    ran_out=st.sets(st.integers(0, 30), max_size=3),
)
@settings(deadline=None, max_examples=20)
def test_memory_is_never_given_twice_and_every_trial_completes(
    *,
    needs: list[int],
    busy: list[float],
    count: int,
    memory: int,
    seed: int,
    ran_out: set[int],
) -> None:
    """The driver checks at each start that what is held there fits, and at the end the replay."""
    site = Site(
        cores(count, memory * GB),
        memory=lambda params: GB * needs[int(params["units"] or 0) % len(needs)],
        busy=lambda params: busy[int(params["units"] or 0) % len(busy)],
        trials=25,
    )
    order = random.Random(seed)
    for step in range(400):
        if not site.driver.running:
            break
        name = order.choice([*site.driver.running])
        if site.seconds.get(name, 0.0) < 40.0 and order.random() < 0.6:
            site.measure(name)
        elif step in ran_out and site.driver.attempt(name).id.number == 0:
            site.end(name, Ending(Cause.OUT_OF_MEMORY, reason="killed"))
        else:
            site.end(name)
    assert site.driver.finish is not None
    assert all(trial.state is TrialState.COMPLETE for trial in site.driver.engine.trials)
    site.driver.check_replay()

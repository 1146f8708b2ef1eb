"""A search that learns runs few trials at once, so that it can learn from the others."""

from __future__ import annotations

import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hptune.core.resources import Amount, Capacity
from hptune.core.trial import Params
from packing_site import ALL, GB, Site, cores

IDLE = 0.1


def test_a_short_study_does_not_run_blind() -> None:
    site = Site(cores(2), busy=lambda params: IDLE, trials=6, learns=True)
    site.run()
    assert site.most_running == 2
    snapshot = site.driver.engine.snapshot
    assert snapshot.packing == "1 trial per core (each uses 0.1 of it)"
    assert site.driver.attempts[-1].why == snapshot.packing
    assert snapshot.packing_advice == (
        "more trials would fit on a core, but the search learns from earlier trials; "
        "--cpus-per-trial 0.25 runs more at once"
    )


def test_the_advice_is_what_the_measured_trials_allow() -> None:
    site = Site(cores(2), busy=lambda params: 0.5, trials=6, learns=True)
    site.run()
    assert "--cpus-per-trial 0.5 runs more" in site.driver.engine.snapshot.packing_advice


def _idle_if_small(params: Params) -> float:
    return 0.28 if int(str(params["units"])) < 20 else 0.82


def test_no_advice_if_one_trial_is_idle_and_most_are_not() -> None:
    site = Site(cores(2), busy=_idle_if_small, trials=12, learns=True)
    site.run()
    assert site.driver.engine.snapshot.packing.startswith("1 trial per core (each uses ")
    assert site.driver.engine.snapshot.packing_advice == ""


@pytest.mark.parametrize(("trials", "learns"), [(40, False), (None, True), (None, False)])
def test_others_are_packed_freely(trials: int | None, learns: bool) -> None:
    site = Site(cores(2), busy=lambda params: IDLE, trials=trials, learns=learns)
    for _ in range(2):
        site.watch()
    assert len(site.driver.running) == 16
    assert site.driver.engine.snapshot.packing_advice == ""


def test_a_long_study_is_packed_as_far_as_a_tenth_of_its_trials() -> None:
    site = Site(cores(2), busy=lambda params: IDLE, trials=70, learns=True)
    site.run()
    assert site.most_running == 6
    assert site.driver.engine.snapshot.packing.startswith("up to 3 trials share a core (each")


def test_gpus_too() -> None:
    gpus = Capacity(tuple(range(8)), ("A", "B"), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(gpus, busy=lambda p: IDLE, gpu_memory=lambda p: 5 * GB, trials=50, learns=True)
    site.run()
    assert site.most_running == 4
    assert "up to 2 trials share a GPU (each holds about " in site.driver.engine.snapshot.packing


def test_more_workers_leave_less_to_be_shared() -> None:
    site = Site(cores(2), busy=lambda params: IDLE, trials=80, learns=True)
    for _ in range(2):
        site.watch()
    assert len(site.driver.running) == 8
    site.driver.join_with("w2", cores(6))
    site.answer()
    assert len(site.driver.running) == 8 + 6, "a core for each has to be had in any case"
    while len(site.driver.running) > 8:
        assert not site.driver.finish
        site.watch()
        site.end(next(iter(site.driver.running)))
        site.answer()
        if len(site.driver.over) > 30:
            break
    assert len(site.driver.running) == 8
    site.driver.leave("w2")
    site.run()


def test_a_study_that_is_given_more_trials_is_packed_more() -> None:
    site = Site(cores(2), busy=lambda params: IDLE, trials=20, learns=True)
    site.run()
    assert site.most_running == 2
    site.driver.open(70, measured=ALL, learns=True)
    site.driver.join_with("again", cores(2))
    site.answer()
    site.run()
    assert site.most_running == 6


@given(
    count=st.integers(1, 6),
    gpus=st.integers(0, 3),
    trials=st.integers(1, 60),
    busy=st.sampled_from([0.05, 0.3, 0.6, 1.0]),
    seed=st.integers(0, 1_000),
    measured=st.sampled_from([ALL, (Amount.CPUS,), (Amount.GPUS, Amount.MEMORY)]),
)
@settings(deadline=None, max_examples=12)
def test_never_more_at_once_than_a_tenth_nor_fewer_than_without_packing(
    *,
    count: int,
    gpus: int,
    trials: int,
    busy: float,
    seed: int,
    measured: tuple[Amount, ...],
) -> None:
    capacity = Capacity(
        tuple(range(count)), tuple("ABC"[:gpus]), 99 * GB, gpu_memory_bytes=80 * GB * bool(gpus)
    )
    unpacked = min(count, gpus or count)
    site = Site(
        capacity,
        busy=lambda params: busy,
        gpu_memory=lambda params: 5 * GB,
        memory=lambda params: GB / 10,
        trials=trials,
        learns=True,
        measured=measured,
    )
    order = random.Random(seed)
    while site.driver.running:
        running, over = len(site.driver.running), len(site.driver.over)
        assert running <= max(unpacked, trials // 10)
        assert running >= min(unpacked, trials - over)
        name = order.choice([*site.driver.running])
        if order.random() < 0.6:
            site.measure(name)
        else:
            site.end(name)
    assert site.driver.finish is not None
    site.driver.check_replay()

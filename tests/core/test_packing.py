"""Trials are given what others were seen to use, and never more memory than a worker has."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from engine_driver import EngineDriver, returned
from hypothesis import given, settings

from tuner.core.device_hours import Device, DeviceBudget, hours_of
from tuner.core.messages import Verdict
from tuner.core.resources import Amount, Capacity, Resources
from tuner.core.trial import AttemptId, Cause, Ending, Params, TrialState, Usage

GB = 1_000_000_000
ALL = tuple(Amount)
Need = Callable[[Params], float]


class Site:
    """An engine, and trials that use what their configurations need.

    Args:
        memory: What a trial holds at its peak.
        busy: What share of the time it keeps a core busy while it is alone there.
        starved: For what share of the time it waits for a core.
        slowdown: By what factor its steps take longer with so many beside it on a core.
    """

    def __init__(
        self,
        capacity: Capacity,
        *,
        memory: Need = lambda params: GB,
        busy: Need = lambda params: 1.0,
        starved: float = 0.0,
        slowdown: Callable[[float], float] = lambda residents: 1.0,
        gpu_memory: Need | None = None,
        trials: int = 40,
        measured: tuple[Amount, ...] = ALL,
        resources: Resources | None = None,
    ) -> None:
        self.driver = EngineDriver()
        self.capacity = capacity
        self.memory, self.busy, self.slowdown = memory, busy, slowdown
        self.gpu_memory = gpu_memory
        self.starved = starved
        self.seconds = dict[AttemptId, float]()
        self.steps = dict[AttemptId, float]()
        self.most_held = 0.0
        self.most_running = 0
        self.free_share: float | None = None
        self.driver.open(trials, measured=measured, resources=resources)
        self.driver.join_with("w", capacity)
        self.answer()

    def answer(self) -> None:
        while self.driver.ask is not None:
            self.driver.suggest([{"units": 16 + n * 7 % 33} for n in self.driver.ask.numbers])

    def measure(self, name: AttemptId, seconds: float = 10.0) -> None:
        params = self.driver.trial(name.trial).params
        if name not in self.seconds:
            self.driver.report(name, 1, score=0.5)
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        slowdown = self.slowdown(len(self.driver.running) / len(self.capacity.cpus))
        self.steps[name] = self.steps.get(name, 0.0) + seconds / slowdown
        gpu = None if self.gpu_memory is None else int(self.gpu_memory(params))
        usage = Usage(
            peak_memory_bytes=int(self.memory(params)),
            peak_gpu_memory_bytes=gpu,
            cpu_seconds=self.seconds[name] * self.busy(params) / slowdown,
            seconds=self.seconds[name],
            seconds_per_step=self.seconds[name] / self.steps[name],
            starved_seconds=self.starved * self.seconds[name],
        )
        self.driver.measure(name, usage, free_share=self.free_share)
        self.answer()
        held = sum(self.memory(self.driver.trial(n.trial).params) for n in self.driver.running)
        self.most_held = max(self.most_held, held)
        self.most_running = max(self.most_running, len(self.driver.running))

    def watch(self) -> None:
        """Everything that runs is measured twice."""
        for _ in range(2):
            for name in [*self.driver.running]:
                self.measure(name)

    def end(self, name: AttemptId, ending: Ending | None = None) -> None:
        self.driver.end(name, ending or returned(0.5))
        self.answer()

    def run(self) -> None:
        """To the end, trial by trial."""
        for _ in range(500):
            if not self.driver.running:
                break
            self.watch()
            self.end(next(iter(self.driver.running)))
        assert self.driver.finish is not None
        self.driver.check_replay()


def cores(count: int, memory_bytes: int = 64 * GB) -> Capacity:
    return Capacity(tuple(range(count)), memory_bytes=memory_bytes)


def test_trials_that_keep_a_core_busy_have_one_each() -> None:
    site = Site(cores(2), busy=lambda params: 0.97)
    site.run()
    assert site.most_running == 2
    assert site.driver.engine.picture.packing == ""
    assert all(each.placement.cpu_share == 1.0 for each in site.driver.attempts)


def crashed(driver: EngineDriver, name: AttemptId, gpu_memory_bytes: int | None = None) -> None:
    usage = Usage(
        peak_memory_bytes=GB // 100,
        peak_gpu_memory_bytes=gpu_memory_bytes,
        cpu_seconds=0.05,
        seconds=0.5,
    )
    driver.measure(name, usage)
    driver.end(name, Ending(Cause.EXCEPTION, reason="NameError: ...", detail=str(name)))


def test_of_attempts_that_fail_at_once_nothing_is_learned() -> None:
    site = Site(cores(2), busy=lambda params: 0.97)
    for _ in range(6):
        crashed(site.driver, next(iter(site.driver.running)))
        site.answer()
    assert len(site.driver.running) == 2
    assert site.driver.engine.picture.packing == ""
    assert {each.placement.memory_bytes for each in site.driver.starts.values()} == {0}
    site.run()
    assert site.most_running == 2


def test_one_that_reports_nothing_counts_when_it_has_ended_well() -> None:
    driver = EngineDriver()
    driver.open(40, measured=ALL)
    driver.join_with("w", cores(2))
    waiting = Usage(peak_memory_bytes=GB, cpu_seconds=1.0, seconds=10.0)
    for count in (2, 2, 8):
        while driver.ask is not None:
            driver.suggest([{"units": 16 + n} for n in driver.ask.numbers])
        assert len(driver.running) == count
        name = next(iter(driver.running))
        driver.measure(name, waiting)
        driver.end(name, returned(0.5))
    driver.check_replay()


@pytest.mark.parametrize("seen", [None, 0])
def test_a_gpu_is_not_shared_where_nobody_sees_what_trials_hold_there(seen: int | None) -> None:
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    need = None if seen is None else (lambda params: seen)
    site = Site(gpu, gpu_memory=need, busy=lambda params: 0.1, trials=20)
    site.run()
    assert site.most_running == 1
    assert "GPU" not in site.driver.engine.picture.packing


def test_those_that_share_a_core_may_run_on_any_of_their_workers() -> None:
    site = Site(cores(3), busy=lambda params: 0.3)
    site.run()
    for each in site.driver.attempts:
        was_shared = site.driver.starts[each.id.trial].placement.cpu_share < 1
        assert each.placement.floats_on == ((0, 1, 2) if was_shared else ())


def test_a_budget_counts_what_was_held_as_the_books_do() -> None:
    driver, seconds = EngineDriver(), dict[AttemptId, float]()
    driver.open(measured=ALL, budget=DeviceBudget(Device.CORE, 0.2))
    driver.join_with("w", cores(4))
    while driver.finish is None:
        while driver.ask is not None and driver.finish is None:
            driver.suggest()
        for name in [*driver.running]:
            if name in driver.told_to_stop:
                driver.end(name, Ending(driver.told_to_stop[name].cause))
                continue
            if name not in seconds:
                driver.started(name)
            seconds[name] = seconds.get(name, 0.0) + 5.0
            usage = Usage(
                peak_memory_bytes=GB,
                cpu_seconds=0.2 * seconds[name],
                seconds=seconds[name],
                seconds_per_step=1.0,
            )
            if seconds[name] > 60.0:
                driver.end(name, returned(0.5))
            else:
                driver.measure(name, usage)
    assert driver.finish.verdict is Verdict.BUDGET_SPENT
    assert any(each.before is not None for each in driver.attempts)
    late = 3600.0 * (hours_of(driver.attempts, Device.CORE, now=driver.at) - 0.2)
    assert 0.0 <= late < 100.0, "but for the time in which they were told to stop"
    driver.check_replay()


def test_trials_that_wait_for_a_core_which_others_take_have_one_each() -> None:
    site = Site(cores(2), busy=lambda params: 0.27, starved=0.73)
    site.run()
    assert site.most_running == 2
    assert site.driver.engine.picture.packing == ""


def test_trials_that_mostly_wait_share_a_core_and_say_why() -> None:
    site = Site(cores(2), busy=lambda params: 0.3)
    assert len(site.driver.running) == 2
    site.watch()
    assert len(site.driver.running) == 8
    site.run()
    assert site.most_running == 8
    told = site.driver.engine.picture.packing
    assert told.startswith("up to 4 trials per core now: they keep 0.3 of one busy; 2")
    assert site.driver.attempts[-1].why == told


def test_nothing_is_said_of_packing_once_it_is_left_out() -> None:
    site = Site(cores(2), busy=lambda params: 0.3, trials=20)
    site.watch()
    picture = site.driver.engine.picture
    assert picture.packing
    assert picture.may_begin_more
    site.driver.open(20, measured=())
    site.driver.join_with("w2", cores(2))
    site.answer()
    assert site.driver.engine.picture.packing == ""
    assert site.driver.attempts[-1].why == ""


def test_so_many_that_less_is_done_in_all_are_not_packed_again() -> None:
    # One disk serves them all: the steps of eight take eight times as long, and some more.
    site = Site(cores(2), busy=lambda p: 0.1, slowdown=lambda n: max(1.0, n / 2) ** 1.6, trials=99)
    site.run()
    assert 4 <= site.most_running <= 16
    at_the_end = [each.placement.cpu_share for each in site.driver.attempts[-6:]]
    assert min(at_the_end) >= 0.25  # two would be best
    assert any("no more was done in all" in each.why for each in site.driver.attempts)


def test_a_gpu_that_does_no_more_for_two_is_not_shared() -> None:
    gpu = Capacity((0,), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(
        gpu, gpu_memory=lambda p: 5 * GB, busy=lambda p: 0.1, slowdown=lambda n: n, trials=60
    )
    site.run()
    assert 2 <= site.most_running <= 8
    # One would do; the time of two or three is no worse, so far as a few trials tell.
    assert all(each.placement.gpu_share >= 1 / 3 for each in site.driver.attempts[-20:])


@pytest.mark.parametrize("measured", [(), (Amount.MEMORY,), (Amount.GPUS,)])
def test_what_was_said_is_kept(measured: tuple[Amount, ...]) -> None:
    site = Site(cores(2), busy=lambda params: 0.1, measured=measured)
    site.run()
    assert site.most_running == 2
    said = Site(cores(4, 8 * GB), measured=measured, resources=Resources(2, memory_bytes=3 * GB))
    said.run()
    assert {each.placement.memory_bytes for each in said.driver.attempts} == {3 * GB}
    assert said.most_running == 2


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
    assert len(first) == 8  # nobody knows anything yet
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


def test_a_trial_does_not_wait_for_ever_for_what_others_held_once() -> None:
    driver = EngineDriver()
    driver.open(2, measured=ALL, resources=Resources(memory_bytes=9 * GB))
    driver.join_with("w", replace(cores(2, 20 * GB), memory_taken_bytes=19 * GB))
    driver.suggest()
    assert len(driver.running) == 1


def test_memory_is_reckoned_for_each_by_its_hyperparameters() -> None:
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
    assert "by units" in site.driver.engine.picture.packing


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
    assert site.driver.engine.picture.packing.startswith("1.25 times the memory is reckoned")
    again = site.driver.trial(name.trial)
    for other in [*site.driver.running][:3]:
        site.end(other)
    new = site.driver.attempts[-1]
    assert new.placement.memory_bytes > before
    assert again.state in (TrialState.WAITING, TrialState.RUNNING)
    site.run()


def test_a_gpu_is_shared_by_the_memory_that_trials_hold_there() -> None:
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(gpu, gpu_memory=lambda params: 15 * GB, trials=60)
    assert len(site.driver.running) == 1
    for _ in range(12):
        site.watch()
        site.end(next(iter(site.driver.running)))
    assert len(site.driver.running) == 4
    held = [site.driver.attempt(name).placement for name in site.driver.running]
    assert all(15 * GB <= each.gpu_memory_bytes <= 20 * GB for each in held)
    assert "of its memory each" in site.driver.engine.picture.packing


def test_the_trials_of_a_study_taken_up_again_spread_over_all_gpus() -> None:
    gpus = Capacity(tuple(range(8)), tuple("ABCDEFGH"), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(gpus, gpu_memory=lambda params: 5 * GB, busy=lambda params: 0.1, trials=60)
    while len(site.driver.over) < 44:
        site.watch()
        site.end(next(iter(site.driver.running)))
    site.driver.open(52, measured=ALL)
    site.driver.join_with("again", gpus)
    held = [site.driver.attempt(name).placement for name in site.driver.running]
    assert all(each.gpu_share <= 0.5 for each in held)
    on = [each.gpus for each in held]
    counts = [on.count((gpu,)) for gpu in gpus.gpus]
    assert max(counts) - min(counts) <= 1, counts


def test_cores_that_are_shared_are_shared_evenly() -> None:
    site = Site(cores(4), busy=lambda params: 0.1, trials=6)
    site.watch()
    site.driver.open(6, measured=ALL)
    site.driver.join_with("a", cores(2))
    assert len(site.driver.running) == 6
    held = [site.driver.attempt(name).placement for name in site.driver.running]
    assert all(each.cpu_share < 1 for each in held)
    on = [each.cpus for each in held]
    assert on.count((0,)) == on.count((1,)) == 3


@pytest.mark.parametrize("gpus", [("A",), ("A", "B")])
def test_a_trial_that_may_need_more_than_a_gpu_has_one_for_itself(gpus: tuple[str, ...]) -> None:
    capacity = Capacity(tuple(range(8)), gpus, 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(capacity, gpu_memory=lambda params: 76 * GB, trials=9)
    site.run()
    assert site.most_running == len(gpus)
    assert {len(each.placement.gpus) for each in site.driver.attempts} == {1}
    assert {each.placement.gpu_share for each in site.driver.attempts} == {1.0}


def test_after_a_lack_of_gpu_memory_trials_are_given_a_gpu_at_most() -> None:
    gpu = Capacity(tuple(range(8)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(gpu, gpu_memory=lambda params: 60 * GB, trials=9)
    for _ in range(3):
        site.watch()
        ran_out = Ending(Cause.DEVICE_OUT_OF_MEMORY, reason="CUDA out of memory")
        site.end(next(iter(site.driver.running)), ran_out)
    site.run()
    assert {len(each.placement.gpus) for each in site.driver.attempts} == {1}


def test_a_gpu_of_which_nobody_knows_the_memory_is_not_shared() -> None:
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB)
    site = Site(gpu, gpu_memory=lambda params: 1 * GB, busy=lambda params: 0.1, trials=20)
    site.run()
    assert site.most_running == 1


def test_how_many_share_a_core_says_nothing_of_gpus() -> None:
    site = Site(cores(2), busy=lambda params: 0.1, trials=90)
    site.watch()
    assert len(site.driver.running) == 8
    site.driver.join_with("gpu", Capacity((0, 1), ("A",), 64 * GB, gpu_memory_bytes=80 * GB))
    site.answer()
    for _ in range(3):
        for name in [*site.driver.running]:
            placement = site.driver.attempt(name).placement
            site.gpu_memory = (lambda params: GB) if placement.gpus else None
            site.measure(name)
        on_gpu = [n for n in site.driver.running if site.driver.attempt(n).placement.gpus]
        site.end(on_gpu[0])
    on_gpu = [n for n in site.driver.running if site.driver.attempt(n).placement.gpus]
    assert len(on_gpu) <= 2


@given(
    needs=st.lists(st.sampled_from([1, 2, 5, 9, 14]), min_size=1, max_size=6),
    busy=st.lists(st.sampled_from([0.02, 0.3, 0.55, 1.0]), min_size=1, max_size=4),
    count=st.integers(1, 6),
    memory=st.integers(15, 60),
    order=st.randoms(use_true_random=False),
    ran_out=st.sets(st.integers(0, 30), max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_whatever_they_need_memory_is_never_given_twice_and_all_have_their_turn(
    *,
    needs: list[int],
    busy: list[float],
    count: int,
    memory: int,
    order: random.Random,
    ran_out: set[int],
) -> None:
    """The driver checks at each start that what is held there fits, and at the end the replay."""
    site = Site(
        cores(count, memory * GB),
        memory=lambda params: GB * needs[int(params["units"] or 0) % len(needs)],
        busy=lambda params: busy[int(params["units"] or 0) % len(busy)],
        trials=25,
    )
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

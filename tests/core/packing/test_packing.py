"""Trials share cores by how busy they keep them; what the user asks for is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine_driver import EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending, Usage
from hptune.core.budget import Device, DeviceBudget, hours_of
from hptune.core.engine.engine import Engine
from hptune.core.messages import (
    DecidePacking,
    Event,
    FinishReason,
    Measured,
    PackingDecided,
    Start,
    StudyOpened,
)
from hptune.core.packing.decision import decide
from hptune.core.resources import Amount, Resources
from packing_site import ALL, GB, Site, cores


def test_trials_that_keep_a_core_busy_have_one_each() -> None:
    site = Site(cores(2), busy=lambda params: 0.97)
    site.run()
    assert site.most_running == 2
    assert site.driver.engine.snapshot.packing == ""
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
    assert site.driver.engine.snapshot.packing == ""
    assert {each.placement.memory_bytes for each in site.driver.starts.values()} == {0}
    site.run()
    assert site.most_running == 2


def test_a_trial_without_reports_counts_once_it_has_ended_well() -> None:
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


def test_trials_that_share_a_core_may_run_on_any_core_of_the_worker() -> None:
    site = Site(cores(3), busy=lambda params: 0.3)
    site.run()
    for each in site.driver.attempts:
        was_shared = site.driver.starts[each.id.trial].placement.cpu_share < 1
        assert each.placement.floats_on == ((0, 1, 2) if was_shared else ())


def test_a_budget_counts_the_parts_of_cores_that_were_held() -> None:
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
    assert driver.finish.finish_reason is FinishReason.BUDGET_SPENT
    assert any(each.before is not None for each in driver.attempts)
    late = 3600.0 * (hours_of(driver.attempts, Device.CORE, now=driver.at) - 0.2)
    assert 0.0 <= late < 100.0, "except the time from the order to stop to the end"
    driver.check_replay()


def test_waiting_for_a_core_that_others_use_does_not_count_as_idle() -> None:
    site = Site(cores(2), busy=lambda params: 0.27, starved=0.73)
    site.run()
    assert site.most_running == 2
    assert site.driver.engine.snapshot.packing == ""


def test_trials_that_mostly_wait_share_a_core_and_say_why() -> None:
    site = Site(cores(2), busy=lambda params: 0.3)
    assert len(site.driver.running) == 2
    site.watch()
    assert len(site.driver.running) == 8
    site.run()
    assert site.most_running == 8
    shown = site.driver.engine.snapshot.packing
    assert shown.startswith("up to 4 trials share a core (each uses 0.3 of it); about 2")
    assert site.driver.attempts[-1].why == shown


def test_packing_is_not_mentioned_once_it_is_off() -> None:
    site = Site(cores(2), busy=lambda params: 0.3, trials=20)
    site.watch()
    snapshot = site.driver.engine.snapshot
    assert snapshot.packing
    assert snapshot.may_begin_more
    site.driver.open(20, measured=())
    site.driver.join_with("w2", cores(2))
    site.answer()
    assert site.driver.engine.snapshot.packing == ""
    assert site.driver.attempts[-1].why == ""


def test_fewer_share_a_core_if_more_do_no_more_work() -> None:
    # One disk serves them all: the steps of eight take eight times as long, and some more.
    site = Site(cores(2), busy=lambda p: 0.1, slowdown=lambda n: max(1.0, n / 2) ** 1.6, trials=99)
    site.run()
    assert 4 <= site.most_running <= 16
    at_the_end = [each.placement.cpu_share for each in site.driver.attempts[-6:]]
    assert min(at_the_end) >= 0.25  # two would be best
    assert any("did no more work in total" in each.why for each in site.driver.attempts)


@pytest.mark.parametrize("measured", [(), (Amount.MEMORY,), (Amount.GPUS,)])
def test_what_the_user_asked_for_is_kept(measured: tuple[Amount, ...]) -> None:
    site = Site(cores(2), busy=lambda params: 0.1, measured=measured)
    site.run()
    assert site.most_running == 2
    said = Site(cores(4, 8 * GB), measured=measured, resources=Resources(2, memory_bytes=3 * GB))
    said.run()
    assert {each.placement.memory_bytes for each in said.driver.attempts} == {3 * GB}
    assert said.most_running == 2


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


def test_a_replay_follows_the_plans_in_the_ledger() -> None:
    site = Site(cores(2), busy=lambda params: 0.3)
    site.run()
    shares = {each.placement.cpu_share for each in site.driver.attempts}
    assert min(shares) == 0.25
    replayed, placed = Engine(), set[float]()
    for event, _ in site.driver.story:
        written: Event = event
        if isinstance(event, PackingDecided):  # as if another decision had been made
            two = replace(event.plan.cores, most=min(2, event.plan.cores.most))
            written = replace(event, plan=replace(event.plan, cores=two))
        for command in replayed.handle(written):
            if isinstance(command, Start):
                placed.add(command.placement.cpu_share)
    assert min(placed) == 0.5


def test_a_question_without_an_answer_is_asked_again_by_the_next_master() -> None:
    site = Site(cores(2), busy=lambda params: 0.3)
    site.watch()
    unanswered = Engine()
    for event, _ in site.driver.story:
        if not isinstance(event, PackingDecided):
            unanswered.handle(event)
    opened = site.driver.story[0][0]
    assert isinstance(opened, StudyOpened)
    commands = unanswered.handle(replace(opened, at=site.driver.at))
    (question,) = [each for each in commands if isinstance(each, DecidePacking)]
    assert decide(question.evidence).cores.most == 4


@pytest.mark.parametrize("count_of_cores", [2, 120], ids=["few", "more than are remembered"])
def test_a_measurement_that_says_nothing_new_leads_to_no_decision(count_of_cores: int) -> None:
    site = Site(
        cores(count_of_cores), busy=lambda params: 0.97, memory=lambda params: 1e6, trials=None
    )
    site.watch()
    count = len(site.driver.story)
    for _ in range(3):
        site.watch()
    later = [event for event, _ in site.driver.story[count:]]
    assert any(isinstance(event, Measured) for event in later)
    assert not any(isinstance(event, PackingDecided) for event in later)


def test_a_trial_that_ends_soon_after_its_first_report_counts_as_alone() -> None:
    site = Site(cores(2), busy=lambda params: 0.97)
    name = next(iter(site.driver.running))
    site.measure(name, 20.0)
    site.measure(name, 0.5)
    count = len(site.driver.story)
    site.end(name)
    asked = [c for _, commands in site.driver.story[count:] for c in commands]
    (question,) = [each for each in asked if isinstance(each, DecidePacking)]
    (observation,) = question.evidence.observations
    assert observation.training is not None
    assert observation.training.co_located == 1.0

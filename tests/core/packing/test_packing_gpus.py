"""Trials share GPUs by the memory that they hold there, while that gets more work done."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from engine_driver import EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending
from hptune.core.resources import Amount, Capacity, Resources
from packing_site import ALL, GB, Site, cores


@pytest.mark.parametrize("seen", [None, 0])
def test_a_gpu_is_not_shared_if_its_use_cannot_be_measured(seen: int | None) -> None:
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    need = None if seen is None else (lambda params: seen)
    site = Site(gpu, gpu_memory=need, busy=lambda params: 0.1, trials=20)
    site.run()
    assert site.most_running == 1
    assert "GPU" not in site.driver.engine.snapshot.packing


def test_a_gpu_that_does_no_more_for_two_is_not_shared() -> None:
    gpu = Capacity((0,), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(
        gpu, gpu_memory=lambda p: 5 * GB, busy=lambda p: 0.1, slowdown=lambda n: n, trials=60
    )
    site.run()
    assert 2 <= site.most_running <= 8
    assert set(shares(site, of_gpus=True)[-20:]) == {1.0}
    assert "did no more work in total" in site.driver.engine.snapshot.packing


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
    assert "of its memory)" in site.driver.engine.snapshot.packing


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


@pytest.mark.parametrize("gpus", [("A",), ("A", "B")])
def test_a_trial_that_may_need_more_than_a_gpu_has_one_for_itself(gpus: tuple[str, ...]) -> None:
    capacity = Capacity(tuple(range(8)), gpus, 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(capacity, gpu_memory=lambda params: 76 * GB, trials=9)
    site.run()
    assert site.most_running == len(gpus)
    assert {len(each.placement.gpus) for each in site.driver.attempts} == {1}
    assert {each.placement.gpu_share for each in site.driver.attempts} == {1.0}


def test_after_trials_ran_out_of_gpu_memory_they_get_one_gpu_at_most() -> None:
    gpu = Capacity(tuple(range(8)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site = Site(gpu, gpu_memory=lambda params: 60 * GB, trials=9)
    for _ in range(3):
        site.watch()
        ran_out = Ending(Cause.DEVICE_OUT_OF_MEMORY, reason="CUDA out of memory")
        site.end(next(iter(site.driver.running)), ran_out)
    site.run()
    assert {len(each.placement.gpus) for each in site.driver.attempts} == {1}


def test_a_gpu_of_unknown_memory_is_not_shared() -> None:
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB)
    site = Site(gpu, gpu_memory=lambda params: 1 * GB, busy=lambda params: 0.1, trials=20)
    site.run()
    assert site.most_running == 1


def shares(site: Site, *, of_gpus: bool) -> list[float]:
    """Return what part of a core, or of a GPU, each of the latest attempts was given."""
    late = [each.placement for each in site.driver.attempts[-60:]]
    if of_gpus:
        return [each.gpu_share for each in late if each.gpus]
    return [each.cpu_share for each in late if not each.gpus]


def test_how_many_share_a_core_says_nothing_of_gpus() -> None:
    site = Site(cores(2), busy=lambda params: 0.1, gpu_memory=lambda params: GB, trials=90)
    site.watch()
    assert len(site.driver.running) == 8
    site.driver.join_with("gpu", Capacity((0, 1), ("A",), 64 * GB, gpu_memory_bytes=80 * GB))
    site.answer()
    for _ in range(3):
        for name in [*site.driver.running]:
            site.measure(name)
        site.end(on_gpu(site)[0])
    assert len(on_gpu(site)) <= 2


def on_gpu(site: Site) -> list[AttemptId]:
    return [name for name, held in site.driver.running.items() if held.gpus]


def run_beside_a_gpu(slowdown: Callable[[float], float]) -> Site:
    """Run a whole study on two cores, and on a GPU with sixteen."""
    site = Site(
        cores(2),
        busy=lambda params: 0.1,
        slowdown=slowdown,
        gpu_memory=lambda params: 5 * GB,
        trials=120,
    )
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site.driver.join_with("gpu", gpu)
    site.answer()
    site.run()
    return site


def test_cores_next_to_gpus_are_shared_while_that_gets_more_done() -> None:
    site = run_beside_a_gpu(lambda residents: max(1.0, residents) ** 1.6)  # of the other cores
    assert max(shares(site, of_gpus=True)) <= 0.25
    assert min(shares(site, of_gpus=False)) >= 0.5


def test_cores_are_shared_next_to_crowded_gpus() -> None:
    site = run_beside_a_gpu(
        lambda residents: 16 * residents if residents < 1 else 1.0
    )  # of the GPU
    assert min(shares(site, of_gpus=True)) >= 1 / 3
    assert max(shares(site, of_gpus=False)) <= 0.25


def test_workers_without_gpus_leave_the_cores_of_gpus_to_their_trials() -> None:
    site = Site(cores(2), trials=9)
    gpu = Capacity(tuple(range(16)), ("A",), 99 * GB, gpu_memory_bytes=80 * GB)
    site.driver.join_with("gpu", gpu)
    site.answer()
    site.end(on_gpu(site)[0])
    (name,) = on_gpu(site)
    assert len(site.driver.running[name].cpus) == 16


def test_after_a_resume_on_gpus_their_trials_have_all_cores_again() -> None:
    driver, capacity = EngineDriver(), Capacity(tuple(range(8)), ("A",))
    driver.open(1, resources=Resources(gpus=0))
    driver.join_with("w", capacity)
    driver.suggest()
    driver.end(AttemptId(0, 0), returned(0.5))
    driver.open(2, resources=Resources(gpus=1))
    driver.join_with("w", capacity)
    driver.suggest()
    (held,) = driver.running.values()
    assert len(held.cpus) == 8


def test_how_many_shared_a_core_says_nothing_of_gpus_after_a_resume() -> None:
    site = Site(cores(2), busy=lambda params: 0.1, gpu_memory=lambda params: 5 * GB, trials=90)
    site.slowdown = lambda residents: max(1.0, residents) ** 1.6
    for _ in range(12):
        site.watch()
        site.end(next(iter(site.driver.running)))
    site.slowdown = lambda residents: 1.0
    site.driver.open(90, measured=ALL)
    site.driver.join_with("gpu", Capacity((0, 1), ("A",), 99 * GB, gpu_memory_bytes=80 * GB))
    site.answer()
    for _ in range(30):
        site.watch()
        site.end(next(iter(site.driver.running)))
    assert len(site.driver.running) == 8


@pytest.mark.parametrize("measured", [(), (Amount.MEMORY,)])
@pytest.mark.parametrize("usual", [Resources(), Resources(gpus=0)])
def test_trials_without_gpus_run_beside_those_with_one(
    measured: tuple[Amount, ...], usual: Resources
) -> None:
    driver = EngineDriver()
    driver.open(9, measured=measured, resources=usual)
    driver.join_with("w", Capacity(tuple(range(8)), ("A", "B")))
    driver.suggest(resources=lambda number: Resources(gpus=0 if number else 1))
    while driver.ask is not None:
        driver.suggest(resources=lambda _: Resources(gpus=0))
    assert len(driver.running) == 8
    assert {len(held.cpus) for held in driver.running.values()} == {1}
    driver.check_replay()

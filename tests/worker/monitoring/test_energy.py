"""The energy of attempts, by counters that the test serves."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import nvml
from attempt_orders import order_of
from attempts import Attempts, Result
from energy_counters import RANGE_UJ, EnergyCounters
from hptune.core.attempt import AttemptId, Cause, Usage
from hptune.core.messages import AttemptEnded, Event, Measured
from hptune.core.resources import Placement
from hptune.worker import runner
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.gpus import vendor
from hptune.worker.gpus.machine import Gpus
from hptune.worker.monitoring import usage
from hptune.worker.monitoring.energy import EnergyMeter, Processors, can_be_read
from hptune.worker.monitoring.watchdog import MemoryWatchdog, Watchdog
from hptune.worker.runner import AttemptRunner
from nvml import Card, Driver, h100_with_slices
from real_runs import wait_for


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EnergyCounters:
    made = EnergyCounters(tmp_path / "node")
    monkeypatch.setattr(vendor, "ROOT", made.root)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    return made


def meter(processors: Processors, *gpus: str, part: float = 1.0) -> EnergyMeter:
    return EnergyMeter(processors, gpus, Gpus(), lambda: part)


# --- processors and memory ------------------------------------------------------------------------


def test_an_attempt_has_its_share_of_the_processor_time(counters: EnergyCounters) -> None:
    processors = Processors()
    one, other = meter(processors), meter(processors)
    for each in (one, other):
        each.take_processors(7.0)
        assert each.processor_joules == 0.0
    counters.use(joules=60.0, dram_joules=40.0, busy_seconds=10.0)
    one.take_processors(12.0)  # 5 of 10 s
    other.take_processors(9.0)  # 2 of 10 s
    assert one.processor_joules == pytest.approx(50.0)
    assert other.processor_joules == pytest.approx(20.0)
    counters.use(joules=10.0)  # nobody computed: the next one that computes has it
    one.take_processors(12.0)
    assert one.processor_joules == pytest.approx(50.0)
    counters.use(joules=10.0, busy_seconds=1.0)
    one.take_processors(13.0)
    assert one.processor_joules == pytest.approx(70.0)


def test_processor_time_of_a_whole_process_that_ended_meanwhile_counts_once(
    counters: EnergyCounters,
) -> None:
    one = meter(Processors())
    one.take_processors(0.0)
    counters.use(joules=60.0, busy_seconds=1.0)
    one.take_processors(9.0)  # its child ended, and had computed for long before
    assert one.processor_joules == pytest.approx(60.0)
    counters.use(joules=60.0, busy_seconds=1.0)
    one.take_processors(8.0)  # of a thread that came late
    assert one.processor_joules == pytest.approx(60.0)


@pytest.mark.parametrize("before", [0.0, 0.5, 0.999])
def test_a_counter_begins_again_at_0(counters: EnergyCounters, before: float) -> None:
    counters.use(joules=before * RANGE_UJ / 1e6)
    one = meter(Processors())
    one.take_processors(0.0)
    for cpu_seconds in (1.0, 2.0, 3.0):
        counters.use(joules=700.0, busy_seconds=1.0)
        one.take_processors(cpu_seconds)
    assert one.processor_joules == pytest.approx(2100.0)


@pytest.mark.parametrize("broken", ["forbidden", "no range", "no zones", "no stat", "LXC"])
def test_what_cannot_be_read_is_absent(counters: EnergyCounters, broken: str) -> None:
    match broken:
        case "forbidden":
            counters.forbid()
        case "no range":
            (counters.package.parent / "max_energy_range_uj").unlink()
        case "no zones":
            counters.root.rename(counters.root.with_name("elsewhere"))
            counters.root.joinpath("proc").mkdir(parents=True)
        case "no stat":
            counters.stat.write_text("")
        case "LXC":  # its file is of another file system
            counters.stat.unlink()
            counters.stat.symlink_to("/proc/stat")
    one = meter(Processors())
    for cpu_seconds in (0.0, 1.0):
        one.take_processors(cpu_seconds)
        one.take_gpus()
    assert (one.processor_joules, one.gpu_joules) == (None, None)
    assert not can_be_read(())


def test_a_counter_that_is_forbidden_meanwhile_keeps_what_was_measured(
    counters: EnergyCounters,
) -> None:
    one = meter(Processors())
    one.take_processors(0.0)
    counters.use(joules=60.0, busy_seconds=1.0)
    one.take_processors(1.0)
    counters.forbid()
    one.take_processors(2.0)
    assert one.processor_joules == pytest.approx(60.0)


# --- GPUs -----------------------------------------------------------------------------------------


def cards(*millijoules: int | None) -> Driver:
    return Driver(
        *(Card(f"GPU-{n}", bus=n, millijoules=each) for n, each in enumerate(millijoules))
    )


def test_gpus_count_each_with_the_attempts_part(
    counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters.forbid()
    driver = cards(5_000, 70_000)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    both, half = meter(Processors(), "0", "1"), meter(Processors(), "1", part=0.5)
    for each in (both, half):
        each.take_gpus()
        assert each.gpu_joules == 0.0
    driver.cards = cards(8_000, 80_000).cards
    for each in (both, half):
        each.take_gpus()
    assert (both.gpu_joules, half.gpu_joules) == (13.0, 5.0)
    driver.cards = cards(1_000, 2_000).cards  # the driver was loaded again
    both.take_gpus()
    driver.cards = cards(2_000, 2_500).cards
    both.take_gpus()
    assert both.gpu_joules == 14.5
    assert can_be_read(("0",))


@pytest.mark.parametrize("driver", [cards(None, None), cards(1_000, None), h100_with_slices()])
def test_gpus_without_a_counter_are_absent(
    counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch, driver: Driver
) -> None:
    counters.forbid()
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    names = Gpus().names if driver.cards[1].slices else ("0", "1")
    one = meter(Processors(), *names)
    for _ in range(2):
        one.take_gpus()
    assert one.gpu_joules is None
    assert not can_be_read(names)


def test_an_old_package_of_nvml_tells_no_energy(
    counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as nvidia-ml-py3 of 2017, which some other package may have installed."""
    counters.forbid()
    for name in ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetMaxMigDeviceCount"):
        monkeypatch.delitem(nvml._CALLS, name)
    monkeypatch.setitem(sys.modules, "pynvml", cards(1_000, 2_000))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert Gpus().names == ("0", "1")
    assert not can_be_read(("0", "1"))


# --- attempts -------------------------------------------------------------------------------------

BURNS = """
    import os, pathlib, signal, time

    NODE = pathlib.Path({root!r})

    def wait(name):
        end = time.monotonic() + 10
        while not (NODE / name).exists() and time.monotonic() < end:
            time.sleep(0.01)

    def use(joules):
        # A reader in between sees the energy before the time that it is divided by.
        file = NODE / "sys/class/powercap/intel-rapl:0/energy_uj"
        file.write_text(str((int(file.read_text()) + int(joules * 1e6)) % {range}))
        stat = NODE / "proc/stat"
        name, user, *others = stat.read_text().split()
        stat.write_text(" ".join([name, str(int(user) + 1), *others]))

    def objective(hp, trial):
        hp.Float("x", 0, 1)
        trial.report(1, value=0.5)
        wait("begun")
        end = time.process_time() + 0.1
        while time.process_time() < end:
            pass
        use(36.0)
        {then}
        return 1.0
    """


def burning(counters: EnergyCounters, then: str = "") -> str:
    return BURNS.format(root=str(counters.root), range=RANGE_UJ + 1, then=then)


@pytest.fixture
def signs(counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch) -> None:
    """Say by a file when an attempt's first measurement was made, and when it has a value."""
    take = EnergyMeter.take_processors

    def taken(self: EnergyMeter, cpu_seconds: float) -> None:
        take(self, cpu_seconds)
        (counters.root / "begun").touch()
        if self.processor_joules:
            (counters.root / "measured").touch()

    monkeypatch.setattr(EnergyMeter, "take_processors", taken)


@pytest.mark.usefixtures("signs")
@pytest.mark.parametrize(
    ("then", "cause"),
    [
        ("", Cause.RETURNED),
        ("wait('measured'); os.kill(os.getpid(), signal.SIGKILL)", Cause.KILLED),
    ],
)
def test_an_attempts_energy_is_measured_to_its_end(
    attempts: Attempts, counters: EnergyCounters, then: str, cause: Cause
) -> None:
    result = attempts.run(burning(counters, then))
    assert result.ending.cause is cause
    assert result.usages[-1].processor_joules == pytest.approx(36.0)
    assert result.usages[-1].gpu_joules is None


@pytest.mark.usefixtures("signs")
def test_the_end_is_measured_where_the_thread_that_measures_is_held_up(
    attempts: Attempts, counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    look, close = MemoryWatchdog.look, AttemptRunner.close

    def held_up(self: MemoryWatchdog) -> None:
        look(self)
        if (counters.root / "begun").exists():
            released.wait(60.0)

    def closed(self: AttemptRunner) -> None:
        released.set()
        close(self)

    monkeypatch.setattr(MemoryWatchdog, "look", held_up)
    monkeypatch.setattr(AttemptRunner, "close", closed)
    result = attempts.run(burning(counters))
    assert result.usages[-1].processor_joules == pytest.approx(36.0)


WRAPS = """for _ in range(3):
            use(700.0)
            for _ in range(2):  # the first may have been read before
                (NODE / "seen").unlink(missing_ok=True)
                wait("seen")
    """


def test_a_counter_may_begin_again_several_times_between_two_looks_at_an_attempt(
    attempts: Attempts, counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more a look at an attempt costs, the later is the next one: minutes, for much memory."""
    look, take = Watchdog.look, Processors.take

    def look_once(self: Watchdog, attempts: int = 1) -> bool:
        if (counters.root / "begun").exists():
            return False
        was_measured = look(self, attempts)
        (counters.root / "begun").touch()
        return was_measured

    def taken(self: Processors) -> tuple[float, float] | None:
        found = take(self)
        (counters.root / "seen").touch()
        return found

    monkeypatch.setattr(runner, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(Watchdog, "look", look_once)
    monkeypatch.setattr(Processors, "take", taken)
    result = attempts.run(burning(counters, WRAPS))
    assert result.usages[-1].processor_joules == pytest.approx(2136.0)


def test_where_nothing_can_be_read_nothing_is_measured(
    attempts: Attempts, counters: EnergyCounters
) -> None:
    counters.forbid()
    result: Result = attempts.run(
        'def objective(hp, trial):\n    hp.Float("x", 0, 1)\n    return 1.0\n'
    )
    assert result.usages[-1].joules is None


def test_attempts_divide_the_gpu_that_they_share(
    warm: ForkServer, counters: EnergyCounters, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    counters.forbid()
    driver = cards(1_000, 0)
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    seen = dict[EnergyMeter, int]()
    take = EnergyMeter.take_gpus

    def taken(self: EnergyMeter) -> None:
        take(self)
        seen[self] = driver.cards[0].millijoules or 0

    monkeypatch.setattr(EnergyMeter, "take_gpus", taken)
    file, done = tmp_path / "model.py", tmp_path / "done"
    file.write_text(
        "import pathlib, time\n\ndef objective(hp, trial):\n"
        f"    while not pathlib.Path({str(done)!r}).exists():\n        time.sleep(0.02)\n"
        "    return 1.0\n"
    )
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    order = order_of(file)
    worker = AttemptRunner(order.brief.source, events.put, fork_server_address=warm.address)
    try:
        for trial, share in ((0, 0.5), (1, 0.25)):
            placement = Placement("worker", (0,), gpus=("0",), gpu_share=share)
            worker.start(
                replace(
                    order,
                    start=replace(order.start, attempt=AttemptId(trial, 0), placement=placement),
                )
            )
        wait_for(lambda: [*seen.values()] == [1_000, 1_000], "the first measurements")
        driver.cards = cards(31_000, 0).cards
        wait_for(lambda: [*seen.values()] == [31_000, 31_000], "the next ones")
        done.touch()
        found = dict(last_usages(events, attempts=2))
    finally:
        worker.close()
    assert (found[0].gpu_joules, found[1].gpu_joules) == (20.0, 10.0)


def last_usages(events: queue.SimpleQueue[Event], *, attempts: int) -> Iterator[tuple[int, Usage]]:
    """Yield the last use of each trial's attempt, until that number has ended."""
    while attempts:
        match events.get(timeout=60.0):
            case Measured(attempt=name, usage=used):
                yield name.trial, used
            case AttemptEnded():
                attempts -= 1


def test_energy_that_has_grown_by_half_is_reported(counters: EnergyCounters) -> None:
    found = usage.Meter(os.getpid(), energy=meter(Processors()))

    def used(joules: float) -> Usage | None:
        end = found.cpu_seconds + 0.02
        while found.cpu_seconds < end:
            sum(range(100_000))
            found.take()
        counters.use(joules=joules, busy_seconds=0.01)
        found.take()
        return found.new_usage()

    found.take()
    found.reported(1)
    assert used(0.0) is not None
    first = used(100.0)
    assert first is not None
    assert first.processor_joules == pytest.approx(100.0)
    assert used(40.0) is None
    again = used(20.0)
    assert again is not None
    assert again.processor_joules == pytest.approx(160.0)


def test_a_machine_without_counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor, "ROOT", tmp_path)
    assert not Processors().can_be_read
    assert not can_be_read(())

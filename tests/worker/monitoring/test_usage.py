"""Measured usage of attempts, and the messages about it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts
from commands import Commands
from hptune.core.attempt import Cause, Ending, Usage
from hptune.core.resources import Capacity, Placement
from hptune.worker import devices
from hptune.worker.dask.offer import WorkerOptions, offered
from hptune.worker.gpus import nvidia
from hptune.worker.gpus.machine import Gpus
from hptune.worker.monitoring import memory, usage, watchdog

MB = 2**20


def python(text: str) -> subprocess.Popen[str]:
    """Start a Python process that prints a line when it is ready, and then waits."""
    code = f"import os, sys, time, mmap\n{text}\nprint('ready', flush=True)\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def measured(process: subprocess.Popen[str]) -> usage.Sample:
    found = usage.sample(process.pid)
    assert found is not None
    return found


def test_what_a_process_has_written_is_its_own(processes: list[subprocess.Popen[str]]) -> None:
    nothing, held, mapped = (
        python(text)
        for text in (
            "",
            f"held = bytearray({200 * MB})",
            "file = mmap.mmap(os.open(sys.executable, 0), 0, prot=1); sum(file[::512])",
        )
    )
    processes += [nothing, held, mapped]
    base = measured(nothing).memory_bytes
    assert 190 * MB < measured(held).memory_bytes - base < 210 * MB
    assert measured(mapped).memory_bytes - base < 2 * MB  # the kernel takes file pages back


def test_a_peak_between_two_looks_is_seen(processes: list[subprocess.Popen[str]]) -> None:
    processes.append(python(f"held = bytearray({200 * MB}); del held"))
    found = measured(processes[0])
    assert found.memory_bytes < 100 * MB
    assert found.peak_memory_bytes > 190 * MB


def test_descendants_count_and_what_they_share_counts_once(
    processes: list[subprocess.Popen[str]],
) -> None:
    fork = "held = bytearray(200 << 20)\nfor _ in range(3):\n    if os.fork() == 0:\n        {}"
    processes.append(python(fork.format("time.sleep(60)")))
    processes.append(python(fork.format("more = bytearray(50 << 20); time.sleep(60)")))
    deadline = time.monotonic() + 50
    while time.monotonic() < deadline and measured(processes[1]).memory_bytes < 340 * MB:
        time.sleep(0.05)
    for process, wanted in zip(processes, (200, 350), strict=True):
        found = measured(process)
        assert len(found.pids) == 4
        assert wanted * MB < found.memory_bytes < (wanted + 50) * MB
        for child in found.pids[1:]:
            os.kill(child, 9)


def test_processor_time_of_all_of_them(processes: list[subprocess.Popen[str]]) -> None:
    burn = "import subprocess\nt = time.process_time()\nwhile time.process_time() < t + 0.3: pass\n"
    processes.append(python(burn + f"subprocess.run([sys.executable, '-c', {burn!r}"
                                   ".replace('import', 'import time;import')])"))  # fmt: skip
    assert 0.6 <= measured(processes[0]).cpu_seconds < 3.0


BURN = "import itertools\nfor _ in itertools.count(): pass"


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel does not tell")
def test_who_waits_for_a_core_that_others_have_is_not_idle() -> None:
    core = min(os.sched_getaffinity(0))

    def on_one_core(code: str) -> subprocess.Popen[str]:
        begun = f"import os, sys\nos.sched_setaffinity(0, {{{core}}})\nprint(flush=True)\n{code}"
        return subprocess.Popen([sys.executable, "-c", begun], stdout=subprocess.PIPE, text=True)

    idle = "import time\nwhile True: time.sleep(1)"
    processes = [on_one_core(code) for code in (BURN, idle, BURN, BURN)]
    try:
        for process in processes:  # a start is work, and waits for its core
            assert process.stdout is not None
            assert process.stdout.readline() == "\n"
        meters = [usage.Meter(process.pid) for process in processes[:2]]
        for meter in meters:
            meter.take()
        before = [found for meter in meters if (found := meter.usage) is not None]
        # The kernel counts in hundredths of a second.
        deadline = time.monotonic() + 120
        while meters[0].cpu_seconds < before[0].cpu_seconds + 0.8 and time.monotonic() < deadline:
            time.sleep(0.1)
            meters[0].take()
        meters[1].take()
        used = [
            now.since(then)
            for meter, then in zip(meters, before, strict=True)
            if (now := meter.usage) is not None
        ]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    computes, sleeps = used
    assert computes.cpu_seconds < 0.6 * computes.seconds, computes
    assert computes.busy > 0.9, computes
    assert sleeps.busy < 0.3, sleeps


def test_threads_that_end_leave_what_they_waited() -> None:
    starvation = usage.Starvation()
    second = 10**9
    assert starvation.seconds({}) == 0.0
    assert starvation.seconds({7: second, 8: second}) == 2.0
    assert starvation.seconds({7: 2 * second}) == 3.0
    assert starvation.seconds({7: second, 9: 0}) == 4.0  # another one by the number 7
    assert starvation.seconds({}) == 4.0


def test_a_process_that_is_gone() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert usage.sample(process.pid) is None
    meter = usage.Meter(process.pid)
    meter.take()
    assert meter.usage is None


def test_news_is_what_is_worth_telling() -> None:
    meter = usage.Meter(os.getpid())
    meter.take()
    assert meter.new_usage() is None  # not before the first report
    meter.reported(1)
    first = meter.new_usage()
    assert first is not None
    assert first.seconds_per_step is None
    meter.reported(3)
    assert meter.new_usage() is None  # nothing has grown
    grown = Usage(
        peak_memory_bytes=int(first.peak_memory_bytes * 1.2), cpu_seconds=0.0, seconds=0.0
    )
    meter.add(grown)
    again = meter.new_usage()
    assert again is not None
    assert again.peak_memory_bytes == grown.peak_memory_bytes
    assert again.cpu_seconds >= first.cpu_seconds
    assert again.seconds_per_step is not None


def test_a_step_takes_the_time_between_reports_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    meter = usage.Meter(os.getpid())
    meter.take()
    for step, at in ((1, 150.0), (2, 151.0), (5, 158.0)):
        now[0] = at
        meter.reported(step)
    now[0] = 200.0
    meter.take()
    assert meter.usage is not None
    assert meter.usage.seconds_per_step == 2.0


def test_attempts_are_measured(attempts: Attempts) -> None:
    result = attempts.run(
        """
        import time

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            trial.report(1, value=0.5)
            for step in (2, 3):
                time.sleep(0.1)
                trial.report(step, value=0.5)
            time.sleep(0.1)
            held = bytearray(300 << 20)
            del held
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
            return 1.0
        """,
    )
    assert result.ending.cause is Cause.RETURNED
    last = result.usages[-1]
    assert 300 * MB < last.peak_memory_bytes < 500 * MB
    assert 0.3 < last.cpu_seconds < 5
    assert last.seconds > 0.5
    # The worker may take the first report late, so only the longest time is sure.
    assert last.seconds_per_step is not None
    assert 0.0 < last.seconds_per_step < last.seconds
    assert last.peak_gpu_memory_bytes is None


# --- what follows from it ---------------------------------------------------------------------


def test_one_that_holds_more_than_granted_ends_where_memory_is_short(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    model = f"""
        import pathlib, time

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            held = bytearray(200 << 20)
            trial.report(1, value=0.5)
            while not pathlib.Path({str(seen)!r}).exists():
                time.sleep(0.02)
            return 1.0
        """
    broken_limit = watchdog.Watchdog.broken_limit

    def looked(watched: watchdog.Watchdog, worker: watchdog.MemoryWatchdog) -> Ending | None:
        ending = broken_limit(watched, worker)
        if ending is None and watched.meter.memory_bytes > 190 * MB:
            seen.touch()
        return ending

    monkeypatch.setattr(watchdog.Watchdog, "broken_limit", looked)
    granted = Placement("w", (0,), memory_bytes=100 * MB)
    assert attempts.run(model, placement=granted).ending.cause is Cause.RETURNED
    seen.unlink()
    monkeypatch.setattr(memory, "free_bytes", lambda: (5 * MB, 100 * MB))
    ending = attempts.run(model, placement=granted).ending
    assert ending.cause is Cause.OUT_OF_MEMORY, ending
    assert "was granted 105 MB" in ending.reason
    enough = Placement("w", (0,), memory_bytes=1000 * MB)
    assert attempts.run(model, placement=enough).ending.cause is Cause.RETURNED


def test_a_kill_by_the_kernel_has_its_evidence(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = """
        import os, signal

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            trial.report(1, value=0.5)
            os.kill(os.getpid(), signal.SIGKILL)
        """
    assert attempts.run(model).ending.cause is Cause.KILLED
    counts = iter(range(1000))
    monkeypatch.setattr(memory, "kills", lambda: {"memory.events": next(counts)})
    ending = attempts.run(model).ending
    assert ending.cause is Cause.OUT_OF_MEMORY
    assert "killed by SIGKILL: out of memory (oom_kill in memory.events: " in ending.reason
    monkeypatch.setattr(memory, "kills", dict)
    monkeypatch.setattr(memory, "free_bytes", lambda: (1, 100 * MB))
    ending = attempts.run(model).ending
    assert ending.cause is Cause.OUT_OF_MEMORY


def test_one_that_hangs_says_where(attempts: Attempts) -> None:
    result = attempts.run(
        """
        import threading

        def stuck_for_ever():
            threading.Event().wait()

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            trial.report(1, value=0.5)
            stuck_for_ever()
        """,
        hang_timeout_seconds=5.0,
    )
    assert result.ending.cause is Cause.HUNG
    assert "in stuck_for_ever" in result.log


def test_one_that_computes_in_silence_does_not_hang(attempts: Attempts) -> None:
    result = attempts.run(
        """
        import time

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            trial.should_stop()  # the model file is read until here
            end = time.monotonic() + 7
            while time.monotonic() < end:
                pass
            return 1.0
        """,
        hang_timeout_seconds=3.0,
    )
    assert result.ending.cause is Cause.RETURNED


def test_one_whose_time_is_up_leaves_a_checkpoint(attempts: Attempts) -> None:
    result = attempts.run(
        """
        import time

        def objective(hp, trial):
            hp.Float("x", 0, 1)
            while not trial.should_stop():
                time.sleep(0.02)
            (trial.checkpoint_dir / "state").write_text("here")
        """,
        timeout_seconds=1.0,
    )
    assert (result.ending.cause, result.ending.reason) == (
        Cause.TIMED_OUT,
        "ran longer than the 1 s allowed",
    )
    assert (result.directory / "checkpoint" / "state").exists()


@pytest.mark.parametrize(("free", "share"), [(19, 1.0), (16, 1.0), (8, 0.5), (0, 0.0)])
def test_others_use_first_the_memory_that_a_worker_was_not_given(
    monkeypatch: pytest.MonkeyPatch, free: int, share: float
) -> None:
    """At any time, as when the worker joins."""
    monkeypatch.setattr(memory, "free_bytes", lambda: (free, 64))
    monkeypatch.setattr(
        devices, "capacity", lambda: Capacity((0,), (), 64, memory_taken_bytes=64 - free)
    )
    has = offered(WorkerOptions("tls://x:1", memory_bytes=16)).capacity
    assert watchdog.MemoryWatchdog(has.memory_bytes).free_share == share
    assert 1 - has.memory_taken_bytes / has.memory_bytes == share


@pytest.fixture
def ending_after(
    processes: list[subprocess.Popen[str]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[float], Ending | None]:
    """Return what looks at an attempt that does nothing, some seconds after the last look."""
    processes.append(python(""))
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    meter, memory_of_worker = usage.Meter(processes[0].pid), watchdog.MemoryWatchdog()
    watched = watchdog.Watchdog(meter, Placement("w", (0,)), 600.0, Gpus())

    def look(seconds: float) -> Ending | None:
        now[0] += seconds
        watched.look()
        return watched.broken_limit(memory_of_worker)

    return look


def test_while_its_worker_is_held_up_an_attempt_does_not_hang(
    ending_after: Callable[[float], Ending | None],
) -> None:
    """As where Slurm suspends a job, or a machine has no time for anybody."""
    assert ending_after(1.0) is None
    assert ending_after(3600.0) is None
    assert [ending_after(1.0) for _ in range(590)] == [None] * 590
    endings = [ending_after(1.0) for _ in range(20)]
    (cause,) = {each.cause for each in endings if each is not None}
    assert cause is Cause.HUNG


def test_an_attempt_hangs_also_where_each_look_takes_long(
    ending_after: Callable[[float], Ending | None],
) -> None:
    """As where a file system or the tool that measures GPUs takes seconds to answer."""
    assert [ending_after(3.0) for _ in range(298)] == [None] * 298  # of each 3 s, 2 s count
    (cause,) = {each.cause for _ in range(5) if (each := ending_after(3.0)) is not None}
    assert cause is Cause.HUNG


def test_the_cost_of_looking_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = usage.Meter(os.getpid())
    watched = watchdog.Watchdog(meter, Placement("w", (0,)), None, Gpus())
    now, resident = [100.0], [100]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(time, "thread_time", iter([0.0, 0.02, 1.0, 1.02]).__next__)
    monkeypatch.setattr(watchdog, "_resident_bytes", lambda _: resident[0])
    assert watched.look()
    now[0] += 6.5  # 20 ms of 6.7 s are 0.3 % of a core
    assert not watched.look()
    resident[0] = 120  # but it grows
    assert watched.look()
    now[0] += 6.8
    resident[0] = 100
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    assert watched.look()


# --- GPUs, as nvidia-smi tells of them --------------------------------------------------------

SMI = """
case "$1" in
--query-gpu=*) printf '0, GPU-a, 3000, 0, 8192, V, 0\\n1, GPU-b, 500, 37, 4096, V, 0\\n' ;;
--query-compute-apps=*) printf 'GPU-a, 11, 1000\\nGPU-a, 12, 1500\\nGPU-b, 13, [N/A]\\n' ;;
esac
"""


class Gpu(Gpus):
    """A GPU: the memory of its processes, and those that the driver reports."""

    def __init__(self) -> None:
        super().__init__()
        self.held = dict[int, int]()
        self.tells = True

    def is_open(self, pids: Collection[int]) -> bool:
        return any(pid in self.held for pid in pids)

    def memory_bytes(self, gpus: Sequence[str], pids: Collection[int] | None) -> int | None:
        del gpus
        if pids is None:
            return sum(self.held.values())
        return (
            sum(self.held[pid] for pid in pids if pid in self.held) or None if self.tells else None
        )


@pytest.mark.parametrize("is_alone", [True, False])
def test_what_others_hold_on_its_gpu_is_not_an_attempts(is_alone: bool) -> None:
    gpu, other = Gpu(), 1
    meter = usage.Meter(os.getpid(), ("0",), is_alone=is_alone, gpu_usage=gpu)
    gpu.held = {other: 9 * MB}
    meter.take()  # it has not come to its GPU yet
    gpu.held = {other: 70 * MB, os.getpid(): 5 * MB}
    meter.take()
    assert meter.usage is not None
    assert meter.usage.peak_gpu_memory_bytes == 5 * MB


@pytest.mark.parametrize("is_alone", [True, False])
def test_who_never_opens_a_gpu_holds_none_of_its_memory(is_alone: bool) -> None:
    gpu, other = Gpu(), 1
    gpu.tells, gpu.held = False, {other: 9 * MB}
    meter = usage.Meter(os.getpid(), ("0",), is_alone=is_alone, gpu_usage=gpu)
    meter.take()
    assert meter.usage is not None
    assert meter.usage.peak_gpu_memory_bytes == 0


def test_of_who_ended_before_the_first_look_nobody_knows_what_it_held_of_a_gpu() -> None:
    meter = usage.Meter(os.getpid(), ("0",), is_alone=True, gpu_usage=Gpu())
    meter.add(Usage(peak_memory_bytes=MB, cpu_seconds=1.0, seconds=1.0))
    assert meter.usage is not None
    assert meter.usage.peak_gpu_memory_bytes is None


def test_a_gpu_is_open_where_its_device_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path / "nvidia0"
    device.touch()
    monkeypatch.setattr("hptune.worker.gpus.machine._DEVICE_FILES", (str(tmp_path),))
    gone = 2**22 + 1
    assert not Gpus().is_open((gone, os.getpid()))
    with device.open():
        assert Gpus().is_open((gone, os.getpid()))


@pytest.mark.parametrize(("is_alone", "expected"), [(True, 5 * MB), (False, None)])
def test_where_the_driver_names_no_process_only_who_is_alone_holds_all(
    is_alone: bool, expected: int | None
) -> None:
    gpu = Gpu()
    gpu.tells, gpu.held = False, {os.getpid(): 5 * MB}
    meter = usage.Meter(os.getpid(), ("0",), is_alone=is_alone, gpu_usage=gpu)
    meter.take()
    assert meter.usage is not None
    assert meter.usage.peak_gpu_memory_bytes == expected


def test_rows_of_nvidia_smi_that_say_nothing_are_skipped(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = "Unable to determine the device handle"
    of_gpus = f"{message}\\n0, GPU-a, 3000, [Unknown Error], 8192, V, 0\\n"
    of_apps = f"{message}\\nGPU-a, [Not Found], 7\\nGPU-a, 11, 1000\\n"
    commands.make(
        "nvidia-smi",
        f"""
case "$1" in
--query-gpu=*) printf '{of_gpus}' ;;
--query-compute-apps=*) printf '{of_apps}' ;;
esac
""",
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = Gpus()
    assert gpus.memory_bytes(["0"], None) == 3000 * MB
    assert gpus.memory_bytes(["0"], {11}) == 1000 * MB
    assert not gpus.is_busy(["0"])
    assert gpus.total_bytes(["GPU-a"]) == 8192 * MB


def test_gpus_by_nvidia_smi(commands: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    commands.make("nvidia-smi", SMI)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    gpus = Gpus()
    assert gpus.memory_bytes(["0"], None) == 3000 * MB
    assert gpus.memory_bytes(["GPU-a"], {11}) == 1000 * MB
    assert gpus.memory_bytes(["0"], {11, 12, 13}) == 2500 * MB
    assert gpus.memory_bytes(["0", "1"], None) == 3000 * MB
    assert gpus.memory_bytes(["1"], {13}) is None
    assert gpus.memory_bytes(["7"], None) is None
    assert (gpus.is_busy(["0"]), gpus.is_busy(["0", "GPU-b"])) == (False, True)
    commands.make("nvidia-smi", "exit 9")
    assert gpus.memory_bytes(["0"], None) == 3000 * MB  # it is not asked all the time
    assert Gpus().memory_bytes(["0"], None) is None


def test_nvidia_smi_that_hangs_is_not_asked_again_for_minutes(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, popen = list[list[str]](), subprocess.Popen

    def counted(command: list[str], **options: Any) -> subprocess.Popen[str]:
        calls.append(command)
        return popen(command, **options)

    monkeypatch.setattr(subprocess, "Popen", counted)
    commands.make("nvidia-smi", "exec sleep 600")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(nvidia, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(nvidia.Nvidia, "hung_at", -math.inf)
    for _ in range(3):
        assert Gpus().names == ()
    assert len(calls) == 1
    commands.make("nvidia-smi", SMI)
    monkeypatch.setattr(nvidia, "ANSWER_SECONDS", 200.0)
    monkeypatch.setattr(nvidia, "PAUSE_SECONDS", 0.0)
    assert Gpus().names == ("0", "1")

"""Runner: runs one variant once in a scratch directory of its own, and measures its processes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import shutil
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from .variants import Variant, environment

TIMEOUT_SECONDS = 1_800.0
SAMPLE_SECONDS = 0.5
LINGER_SECONDS = 10.0
PR_SET_CHILD_SUBREAPER = 36
_COUNTED = ("perf", "stat", "-x,", "-e", "instructions:u")


class RunFailed(Exception):
    """Error of a variant that did not finish its trials; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """Times of one run of a variant.

    Attributes:
        variant: The variant's name.
        round: From 1.
        trials: How many trials it ran.
        wall_seconds: From the start of its first process to that process's end.
        first_epoch_seconds: From there to the end of the first epoch of the first trial.
        cpu_seconds: User and system time of all its processes.
        instructions: Those in user mode of all its processes; None where `perf` counts none.
        accuracies: Best validation accuracy for each case.
    """

    variant: str
    round: int
    trials: int
    wall_seconds: float
    first_epoch_seconds: float
    cpu_seconds: float
    instructions: float | None
    accuracies: dict[int, float]


def adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans, so that their CPU time counts."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER) failed")


def run(variant: Variant, *, python: Path, trials: int, round_number: int) -> Measurement:
    """Run a variant once; call `adopt_orphans` before.

    Raises:
        RunFailed: It failed, took too long, or did not finish all trials.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as folder:
        scratch = Path(folder)
        wall, cpu, started_at = _run_process(variant, python, trials, scratch)
        instructions = _instructions(scratch / "perf") if counts_instructions() else None
        accuracies = variant.collect(scratch)
        if sorted(accuracies) != list(range(trials)):
            missing = sorted(set(range(trials)) - set(accuracies))
            raise RunFailed(
                f"{variant.name} finished {len(accuracies)} of {trials} trials; "
                f"missing: {missing}{_end_of_log(scratch)}"
            )
        marker = scratch / "first-epoch"
        if not marker.exists():
            raise RunFailed(f"{variant.name} did not mark its first epoch{_end_of_log(scratch)}")
        marked_at = float(marker.read_text(encoding="ascii"))
        return Measurement(
            variant=variant.name,
            round=round_number,
            trials=trials,
            wall_seconds=wall,
            first_epoch_seconds=marked_at - started_at,
            cpu_seconds=cpu,
            instructions=instructions,
            accuracies=dict(sorted(accuracies.items())),
        )


def _run_process(
    variant: Variant, python: Path, trials: int, scratch: Path
) -> tuple[float, float, float]:
    command = variant.command(python, trials, scratch)
    if counts_instructions():
        command = [*_COUNTED, "-o", str(scratch / "perf"), "--", *command]
    cpu_before = _waited_cpu_seconds()
    with _CpuSampler() as sampler, (scratch / "log").open("wb") as log:
        started_at = time.monotonic()
        try:
            process = subprocess.Popen(
                command,
                env=environment(variant, trials=trials, scratch=scratch),
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        except FileNotFoundError:
            raise RunFailed(
                f"{variant.name} needs {command[0]}, which is not there: install it, or leave "
                f"{variant.name} out with --only"
            ) from None
        try:
            code = process.wait(TIMEOUT_SECONDS)
            wall = time.monotonic() - started_at
        except subprocess.TimeoutExpired:
            raise RunFailed(
                f"{variant.name} was still running after {TIMEOUT_SECONDS:.0f} s"
                f"{_end_of_log(scratch)}"
            ) from None
        finally:
            _reap_the_rest()
    if code != 0:
        raise RunFailed(f"{variant.name} failed with exit code {code}{_end_of_log(scratch)}")
    # Ray's raylet lets the kernel reap its workers, whose time then counts nowhere: for it the
    # samples are the better lower bound.
    cpu = max(_waited_cpu_seconds() - cpu_before, sampler.seconds)
    return wall, cpu, started_at


@functools.cache
def counts_instructions() -> bool:
    """Return whether `perf` counts instructions here; many virtual machines have no counter."""
    if shutil.which(_COUNTED[0]) is None:
        return False
    tried = subprocess.run([*_COUNTED, "true"], check=False, capture_output=True, text=True)
    return tried.returncode == 0 and "not" not in tried.stderr


def _instructions(counted: Path) -> float:
    lines = counted.read_text(encoding="ascii").splitlines()
    return float(next(line.split(",")[0] for line in lines if "instructions" in line))


def _waited_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _reap_the_rest() -> None:
    """Wait for processes that a variant left, then kill them, so that they disturb no later run."""
    deadline = time.monotonic() + LINGER_SECONDS
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            if time.monotonic() > deadline:
                for process in psutil.Process().children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            time.sleep(0.05)


def _end_of_log(scratch: Path) -> str:
    lines = (scratch / "log").read_text(errors="replace").splitlines()
    return "\n--- the end of its log ---\n" + "\n".join(lines[-30:])


class _CpuSampler:
    """Adds up the CPU time of all descendants, each as it was last seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, float], float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    @property
    def seconds(self) -> float:
        return sum(self._seen.values())

    def __enter__(self) -> _CpuSampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        me = psutil.Process()
        while not self._done.wait(SAMPLE_SECONDS):
            for process in me.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    times = process.cpu_times()
                    key = (process.pid, process.create_time())
                    self._seen[key] = times.user + times.system

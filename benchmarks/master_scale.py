"""Cost of the master: CPU time per trial and per event, and memory, by the study's size.

    python benchmarks/master_scale.py                  # with the SQLite ledger, on disk
    python benchmarks/master_scale.py --no-ledger      # the decisions alone
    python benchmarks/master_scale.py --sizes 1000x10 10000x1000 --json

A simulated cluster runs the trials on a virtual clock. All else is as in a real study: the loop,
the engine, random search over a mixed space, the snapshots for a display, and the ledger.
Each trial has three epochs of one to two seconds; one attempt in a hundred is killed, and a
worker lives for some 17 minutes. Events within 20 ms of each other reach the master together. So
with many workers it writes many events at once, as in reality.

Each size runs in a process of its own. The CPU time (user and system) is that of the loop, from
the study's opening to its end, the simulation included; imports are left out. Waiting for the
disk takes no CPU time: the wall-clock time shows it. Memory is the process's peak with all
imports. Resuming is the CPU time of reading the whole ledger into a fresh engine.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # simulated workers

from hptune.core.attempt import Attempt
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import Event
from hptune.core.resources import Amount
from hptune.core.snapshot import StudySnapshot
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, Params, Trial
from hptune.samplers.random_search import RandomSampler
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from simulated import SimulatedExecutor
from simulated_parts import Curve, Faults, Needs, SimulatedWorker
from simulated_studies import Memory, play

SIZES = ("100x10", "1000x10", "10000x10", "1000x100", "10000x100", "10000x1000", "100000x1000",
         "100000x10000")  # fmt: skip
SMALL_TRIALS = 1_000
SMALL_ROUNDS = 3

MOST_GROWTH = 1.5
MOST_MILLISECONDS_PER_EVENT = 1.0
MOST_MEGABYTES = 250.0
MOST_MEGABYTES_UP_TO_TRIALS = 10_000

SPACE = SearchSpace(
    (
        FloatParameter("learning_rate", 1e-5, 1e-1, scale=Scale.LOG),
        FloatParameter("dropout", 0.0, 0.7),
        IntParameter("layers", 1, 8),
        IntParameter("units", 16, 1024, step=16),
        ChoiceParameter("optimizer", ("adam", "sgd", "rmsprop")),
        BooleanParameter("augment"),
        FloatParameter("strength", 0.0, 1.0, conditions=(Condition("augment", (True,)),)),
    )
)
GOALS = Goals((Goal("val_accuracy", Direction.MAX),))


@dataclass(frozen=True, slots=True)
class Measured:
    """Cost of one study."""

    trials: int
    workers: int
    events: int
    writes: int
    cpu_seconds: float
    wall_seconds: float
    megabytes: float
    resume_seconds: float | None

    @property
    def microseconds_per_trial(self) -> float:
        return 1e6 * self.cpu_seconds / self.trials

    @property
    def milliseconds_per_event(self) -> float:
        return 1e3 * self.cpu_seconds / self.events


class Counting(Memory):
    """Counts events and writes, keeps nothing, and passes all to the ledger if there is one."""

    def __init__(self, ledger: Ledger | None) -> None:
        super().__init__()
        self.written = self.writes = 0
        self._ledger = ledger

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        self.written += len(events)
        self.writes += 1
        if self._ledger is not None:
            self._ledger.append(events, trials=trials, attempts=attempts)


class IdleObserver:
    """Observer that does nothing; the loop still makes the snapshots."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        pass

    def note(self, line: str) -> None:
        pass


def curve(params: Params, seed: int) -> Curve:
    """Return three epochs that approach an accuracy which depends on the configuration."""
    rate = float(params["learning_rate"] or 1.0)
    aim = 1.0 - abs(math.log10(rate) + 3.0) / 10 - (seed % 1_000) / 1e5
    return [{"val_accuracy": aim * (1 - 0.5**epoch), "loss": 0.5**epoch} for epoch in (1, 2, 3)]


def epoch_seconds(params: Params, worker: SimulatedWorker) -> float:
    """Return one to two seconds, by the configuration and the worker."""
    return 1.0 + float(params["units"] or 0) / 2_048 + zlib.crc32(worker.name.encode()) / 2**33


def needs(params: Params) -> Needs:
    """Return the needs of a trial: nearly a whole core, and memory by the size of the network."""
    return Needs(memory_bytes=int(2e8 + 1e6 * float(params["units"] or 0)), busy=0.95)


def measure(trials: int, workers: int, folder: Path | None, *, packs: bool = True) -> Measured:
    """Run one study in this process; its ledger goes into the folder."""
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=epoch_seconds,
        workers=[
            SimulatedWorker(name=f"w{n}", memory_bytes=4 * 10**9, joins_seconds=n / 1_000)
            for n in range(workers)
        ],
        faults=Faults(
            killed_attempts=0.01, worker_life_seconds=1_000.0, replaced_after_seconds=30.0
        ),
        seed=1,
        needs=needs if packs else None,
        batch_seconds=0.02,
    )
    with ExitStack() as stack:
        ledger = None
        if folder is not None:
            directory = StudyDirectory(folder / "study").create()
            stack.enter_context(directory.acquire())
            ledger = stack.enter_context(Ledger.create(directory, {}))
        counting = Counting(ledger)
        gc.collect()
        cpu, wall = time.process_time(), time.perf_counter()
        engine = play(
            executor,
            space=SPACE,
            goals=GOALS,
            trials=trials,
            make_sampler=lambda space: RandomSampler(space, 1),
            memory=counting,
            observer=IdleObserver(),
            measured=tuple(Amount) if packs else (),
        ).engine
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_024
        resume = None if ledger is None else _seconds_to_resume(ledger, engine)
    if sum(trial.state.is_final for trial in engine.trials) != trials:
        raise SystemExit("error: the study did not end with all its trials; nothing is measured")
    return Measured(
        trials=trials,
        workers=workers,
        events=counting.written,
        writes=counting.writes,
        cpu_seconds=cpu,
        wall_seconds=wall,
        megabytes=megabytes,
        resume_seconds=resume,
    )


def _seconds_to_resume(ledger: Ledger, before: Engine) -> float:
    begun = time.process_time()
    engine = Engine()
    for event in ledger.events():
        engine.handle(event)
    seconds = time.process_time() - begun
    if engine.snapshot.best != before.snapshot.best:
        raise SystemExit(
            "error: replay of the ledger gives another best trial; nothing is measured"
        )
    return seconds


# --- all sizes ------------------------------------------------------------------------------


def measure_in_subprocess(size: str, *, ledger: bool, folder: Path, packs: bool) -> Measured:
    """Measure one size in a process of its own; return the round with the least CPU time."""
    rounds = SMALL_ROUNDS if int(size.partition("x")[0]) <= SMALL_TRIALS else 1
    measured = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as own:
            command = [sys.executable, __file__, "--one", size]
            command += ["--folder", own] if ledger else []
            command += [] if packs else ["--no-pack"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        measured.append(Measured(**json.loads(done.stdout)))
    return min(measured, key=lambda each: each.cpu_seconds)


def table(found: Sequence[Measured]) -> str:
    heads = ("trials", "workers", "events", "events per write", "CPU per trial",
             "CPU per event", "wall clock", "memory, peak", "resume")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|" + "---:|" * len(heads)]
    for each in found:
        resume = "" if each.resume_seconds is None else f"{each.resume_seconds:.1f} s"
        lines.append(
            f"| {each.trials:,} | {each.workers:,} | {each.events:,} "
            f"| {each.events / each.writes:.1f} "
            f"| {each.microseconds_per_trial / 1e3:.2f} ms | {each.milliseconds_per_event:.3f} ms "
            f"| {each.wall_seconds:.1f} s | {each.megabytes:.0f} MB | {resume} |"
        )
    return "\n".join(lines)


def goal_lines(found: Sequence[Measured]) -> list[str]:
    """Return a line for each goal: met or missed."""
    lines = []
    for workers in sorted({each.workers for each in found}):
        # Studies with equally many trials at once, as these share the cost of a write.
        same = [e for e in found if e.workers == workers and e.trials >= 10 * workers]
        same.sort(key=lambda each: each.trials)
        if len(same) > 1:
            first, last = same[0], same[-1]
            growth = last.microseconds_per_trial / first.microseconds_per_trial
            said = f"from {first.trials:,} to {last.trials:,} trials on {workers:,} workers"
            lines.append(_goal_line("times the CPU per trial " + said, growth, MOST_GROWTH))
    slowest = max(each.milliseconds_per_event for each in found)
    lines.append(_goal_line("ms of CPU per event at most", slowest, MOST_MILLISECONDS_PER_EVENT))
    counted = [each.megabytes for each in found if each.trials <= MOST_MEGABYTES_UP_TO_TRIALS]
    if counted:
        said = f"MB of memory at most, up to {MOST_MEGABYTES_UP_TO_TRIALS:,} trials"
        lines.append(_goal_line(said, max(counted), MOST_MEGABYTES))
    return lines


def _goal_line(said: str, value: float, goal: float) -> str:
    return f"- {'met' if value <= goal else 'MISSED'}: {value:.3g} {said} (goal: {goal:g})"


def machine() -> str:
    version = sys.version.split()[0]
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{platform.machine()}, {psutil.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {version}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="What does the master cost?")
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="TRIALSxWORKERS")
    parser.add_argument("--no-ledger", action="store_true", help="measure without a ledger")
    parser.add_argument("--no-pack", action="store_true", help="neither measure nor pack trials")
    parser.add_argument("--folder", type=Path, help="directory for the temporary ledgers")
    parser.add_argument("--json", action="store_true", help="print figures, not a table")
    parser.add_argument("--one", metavar="TRIALSxWORKERS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        trials, workers = map(int, options.one.split("x"))
        measured = measure(trials, workers, options.folder, packs=not options.no_pack)
        print(json.dumps(asdict(measured)))
        return
    found = []
    for size in options.sizes:
        folder = options.folder or Path(tempfile.gettempdir())
        ways = {"ledger": not options.no_ledger, "packs": not options.no_pack}
        found.append(measure_in_subprocess(size, folder=folder, **ways))
        print(f"{size}: {found[-1].microseconds_per_trial:.0f} µs per trial", file=sys.stderr)
    if options.json:
        print(json.dumps([asdict(each) for each in found], indent=2))
        return
    print(table(found))
    print()
    print("\n".join(goal_lines(found)))
    ledger = "without a ledger" if options.no_ledger else "with the SQLite ledger on disk"
    print(f"\nMeasured {ledger}, on {machine()}, by `python {shlex.join(sys.argv)}`.")


if __name__ == "__main__":
    main()

"""Gain of packing by measurement: 32 small trials of unequal size in one worker's memory.

    python benchmarks/packing.py                    # all settings, two rounds in turn
    python benchmarks/packing.py --rounds 5 --trials 32 --memory 6GB

Each trial trains a small network on blocks of data from a slow store, such as an object store: most
of the time it waits. Its memory and work depend on its hyperparameters and vary threefold. The
same trials run packed (without any settings), one to a core, and with several fixed shares of a
core: with the memory of the largest trial given for all (which the user would have to know), and
without.

A memory control group limits the run, including its master, to `--memory`; the kernel really kills
in it. Making such a group usually needs root.

The time is that from the placement of the first trial to the end of the last one. A round runs each
setting once, and ratios are taken within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import shlex
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

LARGEST = "900MB"
"""Memory of the largest trial, rounded up."""

MODEL = """
import time
import numpy as np

OBJECTIVE = "loss:min"

def objective(hp, trial):
    window = hp.Float("window", 1.0, 3.0, sampling="log")
    rate = hp.Float("rate", 1e-4, 1e-2, sampling="log")
    width = hp.Int("width", 32, 128)
    rng = np.random.default_rng(trial.seed)
    seasons = rng.normal(size=(365, 4_096))
    history = np.resize(seasons, (int(8_800 * window), 4_096))  # 288 MB and more
    weights = rng.normal(size=(4_096, width)) / 64
    target = history[:, 0]
    for epoch in range(1, 33):
        time.sleep(0.45)  # the store's answer
        begin = epoch * 300 % (len(history) - 400)
        x, y = history[begin : begin + 400], target[begin : begin + 400]
        error = (x @ weights).mean(axis=1) - y
        weights -= rate * (x.T @ error)[:, None] / len(x)
        trial.report(epoch, loss=float(np.mean(error**2)))
    return {"loss": float(np.mean(error**2))}
"""

SETTINGS: Mapping[str, Sequence[str]] = {
    "packed by measurement": (),
    "one to a core": ("--pack", "off"),
    "1/2 core, memory of the largest": ("--cpus-per-trial", "0.5", "--memory-per-trial", LARGEST),
    "1/4 core, memory of the largest": ("--cpus-per-trial", "0.25", "--memory-per-trial", LARGEST),
    "1/8 core, memory of the largest": ("--cpus-per-trial", "0.125", "--memory-per-trial", LARGEST),
    "1/8 core, memory not counted": ("--cpus-per-trial", "0.125", "--pack", "off"),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one run of one setting."""

    seconds: float
    complete: int
    out_of_memory: int
    kills: int
    peak_gb: float
    at_once: int


@contextlib.contextmanager
def limited(limit_bytes: int) -> Iterator[Path]:
    """Make a memory control group below this process's own."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    groups = {line.split(":", 2)[1]: line.split(":", 2)[2].strip("/") for line in lines}
    is_old = "memory" in groups
    root = Path("/sys/fs/cgroup/memory" if is_old else "/sys/fs/cgroup")
    made = root / groups["memory" if is_old else ""] / f"hptune-packing-{os.getpid()}"
    try:
        made.mkdir()
        name = "memory.limit_in_bytes" if is_old else "memory.max"
        (made / name).write_text(str(limit_bytes))
    except OSError as error:
        sys.exit(f"error: no memory control group can be made here: {error}")
    try:
        yield made
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                made.rmdir()
                break
            time.sleep(0.2)


def run(options: Sequence[str], *, trials: int, limit_bytes: int, home: Path) -> Outcome:
    """Run the study with these options."""
    study = home / "study"
    with limited(limit_bytes) as group:
        words = [sys.executable, "-m", "hptune", "run", str(home / "model.py"), "--seed", "1"]
        words += ["--search", "random", "--trials", str(trials), "--study", str(study), *options]
        enter = f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))}; exec {shlex.join(words)}"
        done = subprocess.run(["sh", "-c", enter], capture_output=True, text=True, check=False)
        peaks = [group / "memory.max_usage_in_bytes", group / "memory.peak"]
        peak = next((int(each.read_text()) for each in peaks if each.exists()), 0)
        kills = 0
        for each in (group / "memory.oom_control", group / "memory.events"):
            if each.exists():
                fields = dict(line.split() for line in each.read_text().splitlines())
                kills = int(fields.get("oom_kill", 0))
    if not (study / "study.db").exists():
        sys.exit(done.stderr)
    with contextlib.closing(sqlite3.connect(study / "study.db")) as database:
        attempts = database.execute("SELECT placed, ended, reason FROM attempts").fetchall()
        query = "SELECT count(*) FROM trials WHERE state = 'COMPLETE'"
        complete = int(database.execute(query).fetchone()[0])
    changes = sorted([(a, 1) for a, _, _ in attempts] + [(b, -1) for _, b, _ in attempts if b])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    shutil.rmtree(study)
    return Outcome(
        seconds=changes[-1][0] - changes[0][0],
        complete=complete,
        out_of_memory=sum("out of memory" in (reason or "") for _, _, reason in attempts),
        kills=kills,
        peak_gb=peak / 1e9,
        at_once=most,
    )


def bytes_of(text: str) -> int:
    return int(float(text.upper().removesuffix("GB")) * 1e9)


def table(found: Mapping[str, Sequence[Outcome]]) -> str:
    heads = ("setting", "seconds", "trials at once", "peak memory", "out of memory", "complete",
             "packed is faster by")  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|:---" + "|---:" * (len(heads) - 1) + "|"]
    packed = [each.seconds for each in next(iter(found.values()))]
    for name, runs in found.items():
        ratios = [each.seconds / p for each, p in zip(runs, packed, strict=False)]
        lines.append(
            f"| {name} | {_spread([r.seconds for r in runs], 0)} | {max(r.at_once for r in runs)} "
            f"| {max(r.peak_gb for r in runs):.1f} GB "
            f"| {sum(r.out_of_memory for r in runs)} ({sum(r.kills for r in runs)} kills) "
            f"| {min(r.complete for r in runs)} | {_spread(ratios, 2)} |"
        )
    return "\n".join(lines)


def _spread(values: Sequence[float], digits: int) -> str:
    middle = statistics.median(values)
    return f"{middle:.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--memory", type=bytes_of, default=bytes_of("6GB"))
    parser.add_argument("--only", nargs="+", help="settings that begin like this")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    chosen = {
        name: options
        for name, options in SETTINGS.items()
        if not arguments.only or name.startswith(tuple(arguments.only))
    }
    found: dict[str, list[Outcome]] = {name: [] for name in chosen}
    with tempfile.TemporaryDirectory(prefix="hp", dir="/tmp") as home:
        (Path(home) / "model.py").write_text(MODEL)
        for number in range(arguments.rounds):
            for name, options in chosen.items():
                done = run(
                    options, trials=arguments.trials, limit_bytes=arguments.memory, home=Path(home)
                )
                found[name].append(done)
                print(f"round {number + 1}, {name}: {done}", file=sys.stderr, flush=True)
    if arguments.json:
        print(json.dumps({name: [str(each) for each in runs] for name, runs in found.items()}))
        return
    print(table(found))
    print(f"\n{arguments.trials} trials in {arguments.memory / 1e9:g} GB, "
          f"{arguments.rounds} rounds; {platform.machine()}, {os.cpu_count()} cores, "
          f"Python {platform.python_version()}, load {os.getloadavg()[2]:.1f}, "
          f"by `python {shlex.join(sys.argv)}`.")  # fmt: skip


if __name__ == "__main__":
    main()

"""Chaos: kill or stop workers, trials, fork servers and masters at random; compare the results.

    python benchmarks/chaos.py --minutes 10 --seed 1

A study of many short trials with checkpoints runs on four workers of this machine. Every few
seconds one of its processes is killed, or stopped for a moment, chosen by a seeded generator. A
master that was killed is started again with `hptune resume`. When the time is over, the study runs
to its end undisturbed. The same study then runs once more without kills: every trial must end with
the same configuration, state, value and step, and no process or file may be left.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil

HPTUNE = [str(Path(sys.executable).with_name("hptune"))]
MARK = "HPTUNE_CHAOS"
KILLED = (signal.SIGKILL,)
SIGNALS = {
    "trial": (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP),
    "worker": (signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP),
    "fork server": KILLED,
    "master": KILLED,
}
STOPPED_SECONDS = 3.0
"""Longest time until a process that was stopped goes on."""

MODEL = """
import json, time

def objective(hp, trial):
    x, y = hp.Float("x", -1, 1), hp.Float("y", -1, 1)
    state = trial.checkpoint_dir / "state.json"
    saved = json.loads(state.read_text()) if state.exists() else 0
    step = min(saved, trial.resumed_from or 0)  # reports that a killed master missed are repeated
    while step < 8:
        time.sleep(0.1)
        step += 1
        fresh = state.with_suffix(".new")
        fresh.write_text(json.dumps(step))
        fresh.replace(state)
        trial.report(step, loss=x * x + y * y + 1 / step)
        if trial.should_stop():
            return None
    return {"loss": x * x + y * y}
"""


class Run:
    """A study that is run, killed and resumed."""

    def __init__(self, home: Path, *, trials: int) -> None:
        self.study = home / "study"
        self._home = home
        self._trials = trials
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the study's first or next master."""
        exists = (self.study / "study.db").exists()
        command = [*HPTUNE, "resume", str(self.study)] if exists else [
            *HPTUNE, "run", "model.py", "--search", "random", "--seed", "7",
            "--trials", str(self._trials), "--objective", "loss:min", "--workers", "4",
            "--study", str(self.study), "--on-failure", "killed=retry:1000",
            "--on-failure", "worker=retry:1000",
        ]  # fmt: skip
        with (self._home / "log.txt").open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=self._home, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, MARK: str(self._home), "TMPDIR": str(self._home / "tmp")},
                start_new_session=True,
            )  # fmt: skip

    def victims(self) -> dict[str, list[psutil.Process]]:
        """Return the processes that can be killed, by kind."""
        found: dict[str, list[psutil.Process]] = {}
        if self.process is None or self.process.poll() is not None:
            return found
        master = psutil.Process(self.process.pid)
        found["master"] = [master]
        for each in master.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                words, parent = " ".join(each.cmdline()), each.parent()
                if "forkserver.server" in words and parent == master:
                    found.setdefault("fork server", []).append(each)
                elif "forkserver.server" in words:
                    found.setdefault("trial", []).append(each)
                elif each.name() == "hptune-worker":
                    found.setdefault("worker", []).append(each)
        return found

    def results(self) -> dict[int, tuple[Any, ...]]:
        """Return configuration, state and result of every trial, by number."""
        query = "SELECT number, params, state, value, step FROM trials ORDER BY number"
        with contextlib.closing(sqlite3.connect(self.study / "study.db")) as database:
            return {row[0]: row[1:] for row in database.execute(query)}

    def outcomes(self) -> Counter[str]:
        """Count the attempts by outcome."""
        query = "SELECT outcome, count(*) FROM attempts GROUP BY outcome"
        with contextlib.closing(sqlite3.connect(self.study / "study.db")) as database:
            return Counter(dict(database.execute(query).fetchall()))

    def left(self) -> list[str]:
        """Return the processes and temporary folders of this run that are left."""
        wanted = f"{MARK}={self._home}".encode()
        found = [path.name for path in (self._home / "tmp").glob("hptune-*")]
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        return found


def disturbed(run: Run, *, minutes: float, seed: int) -> Counter[str]:
    """Run a study and kill its processes; return how many of each kind."""
    chance = random.Random(seed)
    killed: Counter[str] = Counter()
    until = time.monotonic() + 60 * minutes
    run.start()
    while time.monotonic() < until:
        time.sleep(chance.uniform(3.0, 9.0))
        if run.process is not None and run.process.poll() is not None:
            if run.process.returncode == 0:
                return killed
            run.start()
            continue
        kind = chance.choices(["trial", "worker", "fork server", "master"], [6, 3, 1, 1])[0]
        there = run.victims().get(kind)
        if not there:
            continue
        with contextlib.suppress(psutil.Error):
            victim, number = chance.choice(there), chance.choice(SIGNALS[kind])
            victim.send_signal(number)
            killed[f"{kind} {number.name}"] += 1
            if number is signal.SIGSTOP:
                threading.Timer(chance.uniform(0.1, STOPPED_SECONDS), go_on, [victim]).start()
        if kind == "master" and run.process is not None:
            run.process.wait()
            run.start()
    return killed


def go_on(victim: psutil.Process) -> None:
    """Let a process that was stopped go on, if it is still there."""
    with contextlib.suppress(psutil.Error):
        victim.send_signal(signal.SIGCONT)


def finish(run: Run) -> None:
    """Let the study run to its end."""
    for _ in range(5):
        if run.process is None or run.process.poll() not in (None, 0):
            run.start()
        if run.process is not None and run.process.wait() == 0:
            return
    raise SystemExit("the study does not end; see " + str(run.study.parent / "log.txt"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=int, default=None, help="[default: 150 a minute]")
    said = parser.parse_args()
    trials = said.trials or int(150 * said.minutes)
    home = Path(tempfile.mkdtemp(prefix="hc", dir="/tmp"))
    try:
        runs = {}
        for name in ("disturbed", "undisturbed"):
            (home / name / "tmp").mkdir(parents=True)
            (home / name / "model.py").write_text(MODEL)
            runs[name] = Run(home / name, trials=trials)
        killed = disturbed(runs["disturbed"], minutes=said.minutes, seed=said.seed)
        finish(runs["disturbed"])
        runs["undisturbed"].start()
        finish(runs["undisturbed"])
        one, other = (runs[name].results() for name in ("disturbed", "undisturbed"))
        time.sleep(3)
        left = runs["disturbed"].left() + runs["undisturbed"].left()
        different = [number for number in other if one.get(number) != other[number]]
        print(json.dumps({
            "minutes": said.minutes, "seed": said.seed, "trials": len(one),
            "killed": dict(killed), "attempts": dict(runs["disturbed"].outcomes()),
            "missing or different": len(different) + abs(len(one) - len(other)), "left": left,
        }, indent=2))  # fmt: skip
        for number in different[:5]:
            print(number, one.get(number), other[number], file=sys.stderr)
        if different or left or len(one) != len(other):
            raise SystemExit(f"the results differ, or something is left; see {home}")
    except BaseException:
        print(f"kept: {home}", file=sys.stderr)
        raise
    shutil.rmtree(home)


if __name__ == "__main__":
    main()

"""Time from a checkpoint on a worker to the study's directory, with and without sharing it.

    .venv/bin/python benchmarks/file_transport.py [--megabytes 1 100] [--rounds 5]

A scheduler with certificates, a run and a worker, all on this machine; a trial writes checkpoints,
one after the other. Either the worker sees the study's directory, or it is hidden from it (by a
mount in a namespace of its own), and the checkpoints go over the connection. `local` is the time
in which the trial writes a file to disk, with `fsync`. `arrives` is the time from then until the
study has all of it, which includes a wait of one to two seconds for files to settle.

Linux only; the kernel must allow user namespaces.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HPTUNE = Path(sys.executable).with_name("hptune")
MODEL = """
import os, time

OBJECTIVE = "score:max"

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    for step in range(1, {rounds} + 1):
        contents = os.urandom({size})
        path = trial.checkpoint_dir / "state"
        fresh = path.with_name("new")
        began = time.monotonic()
        with fresh.open("wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
        now = time.monotonic()
        trial.report(step, score=x, local=now - began, written=now)
        time.sleep({pause})
    return x
"""


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of each round."""

    local: list[float]
    arrives: list[float]


@contextlib.contextmanager
def started(command: list[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process, and end it."""
    process = subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def measure(size_bytes: int, *, rounds: int, pause_seconds: float, is_hidden: bool) -> Times:
    """Run a trial that writes checkpoints, and time them."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp")))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hptune-bench-")))
        environment = {**os.environ, "XDG_CONFIG_HOME": str(home)}
        scheduler = stack.enter_context(
            started([str(HPTUNE), "scheduler", "--port", "0"], environment)
        )
        assert scheduler.stdout is not None
        found = re.search(r"tls://\S+", scheduler.stdout.readline())
        assert found
        certificates = home / "worker.pem"
        shutil.copy(home / "hptune" / "certs" / "worker.pem", certificates)
        worker = [str(HPTUNE), "worker", found[0], "--certs", str(certificates), "--cpus", "1"]
        if is_hidden:
            hide = f"mount -t tmpfs none {folder} && cd / && exec {shlex.join(worker)}"
            worker = ["unshare", "--map-root-user", "--mount", "sh", "-c", hide]
        model, study = folder / "model.py", folder / "study"
        model.write_text(MODEL.format(rounds=rounds, size=size_bytes, pause=pause_seconds))
        stack.enter_context(started(worker, environment))
        run = subprocess.Popen(
            [
                str(HPTUNE), "run", str(model), "--connect", found[0], "--study", str(study),
                "--trials", "1", "--quiet",
            ],
            env=environment,
        )  # fmt: skip
        arrived = watch(study / "trials" / "0" / "checkpoint" / "state", size_bytes, run)
        assert run.returncode == 0
        written = reported(study)
        if len(arrived) != len(written):
            raise SystemExit(
                f"{len(written)} checkpoints, but {len(arrived)} arrived: a longer --pause"
            )
        return Times(
            [each["local"] for each in written],
            [max(0.0, at - each["written"]) for at, each in zip(arrived, written, strict=True)],
        )


def watch(path: Path, size_bytes: int, run: subprocess.Popen[bytes]) -> list[float]:
    """Return when each new version of a file was there, until the run is over."""
    times, last = [], 0
    while run.poll() is None:
        with contextlib.suppress(FileNotFoundError):
            found = path.stat()
            if found.st_size == size_bytes and found.st_ino != last:
                last = found.st_ino
                times.append(time.monotonic())
        time.sleep(0.005)
    return times


def reported(study: Path) -> list[dict[str, float]]:
    """Return the metrics of the trial's reports."""
    found: dict[int, dict[str, float]] = {}
    with contextlib.closing(sqlite3.connect(study / "study.db")) as ledger:
        for step, metric, value in ledger.execute("SELECT step, metric, value FROM reports"):
            found.setdefault(step, {})[metric] = value
    return [found[step] for step in sorted(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[0.001, 100])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between checkpoints")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} at the start, on {os.cpu_count()} cores")
    print("       MB  worker          local s   arrives s (smallest to largest)")
    for megabytes in options.megabytes:
        for is_hidden in (False, True):
            times = measure(
                int(megabytes * 1e6),
                rounds=options.rounds,
                pause_seconds=options.pause,
                is_hidden=is_hidden,
            )
            name = "over the connection" if is_hidden else "shared directory"
            print(
                f"{megabytes:9g}  {name:19} {statistics.median(times.local):7.2f}"
                f" {statistics.median(times.arrives):9.2f} "
                f"({min(times.arrives):.2f} to {max(times.arrives):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main()

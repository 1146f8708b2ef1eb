"""Savings by sharing the data: trials of 1 GB each, with `--cache-data on` and `--cache-data off`.

    .venv/bin/python benchmarks/data_cache.py [--backend jax] [--gigabytes 1] [--trials 4]

`load_data` makes one gigabyte of float32 numbers, which takes seconds. Four trials (two at a
time) train a tiny model on it for one epoch. The table has the seconds of the whole run, the
number of calls of `load_data`, and the peak memory of the run's processes, in which each shared
page counts once (the sum of their PSS, read four times a second).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
import time
import uuid
from pathlib import Path

HPTUNE = Path(sys.executable).with_name("hptune")
MARK = "HPTUNE_BENCHMARK_MARK"
MODEL = """
import keras
import numpy as np

ROWS = {rows}

def build_model(hp):
    model = keras.Sequential([keras.Input((1000,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(hp.Float("rate", 1e-6, 1e-4)), "mse")
    return model

def load_data():
    with open("calls", "a") as calls:
        calls.write(".")
    x = np.random.default_rng(0).standard_normal((ROWS, 1000), dtype="float32")
    x = np.tanh(np.log1p(x * x))  # stands for the preparation of data
    y = x[:, :1].copy()
    split = ROWS // 10
    return (x[split:], y[split:]), (x[:split], y[:split])

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    return model.fit(x, y, validation_data=validation, epochs=epochs, callbacks=callbacks,
                     batch_size=1024, steps_per_epoch=20, validation_steps=2)
"""


def processes(mark: str) -> list[Path]:
    """Return the run's processes, by their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(entry)
    return found


def held_bytes(mark: str) -> int:
    """Return the memory of the run's processes; each shared page counts once."""
    total = 0
    for entry in processes(mark):
        with contextlib.suppress(OSError):
            for line in (entry / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
    return total


def run(cache: str, options: argparse.Namespace) -> tuple[float, int, int]:
    """Return the seconds, the calls of load_data, and the peak memory in bytes."""
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        model = Path(folder, "model.py")
        rows = int(options.gigabytes * 250_000)
        model.write_text(textwrap.dedent(MODEL.format(rows=rows)))
        mark = uuid.uuid4().hex
        environment = {**os.environ, MARK: mark, "KERAS_BACKEND": options.backend}
        command = [str(HPTUNE), "run", "model.py", "--trials", str(options.trials), "--epochs", "1"]
        command += ["--search", "random", "--seed", "1", "--study", "study", "-q"]
        command += ["--cache-data", cache]
        began, most = time.monotonic(), 0
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            most = max(most, held_bytes(mark))
            time.sleep(0.25)
        if process.returncode:
            raise SystemExit(f"hptune ended with {process.returncode}")
        return time.monotonic() - began, len(Path(folder, "calls").read_text()), most


def main() -> None:
    """Run both settings, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--backend", default="tensorflow")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--trials", type=int, default=4)
    parser.add_argument("--directory", default=None, help="directory for the runs")
    options = parser.parse_args()
    print(f"{options.backend}, {options.gigabytes:g} GB, {options.trials} trials; load average "
          f"{os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'--cache-data':12} {'seconds':>8} {'calls':>6} {'GB held':>8}")
    for cache in ("off", "on"):
        seconds, calls, most = run(cache, options)
        print(f"{cache:12} {seconds:8.1f} {calls:6} {most / 1e9:8.2f}")


if __name__ == "__main__":
    main()

"""Memory growth of a long study: its processes after 20 and after 200 short trials.

python benchmarks/memory_growth.py
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

MODEL = """
import keras
import numpy as np

OBJECTIVE, EPOCHS = "val_loss", 2

def build_model(hp):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(hp.Int("units", 4, 32)),
                              keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(hp.Float("rate", 1e-4, 1e-1, sampling="log")), "mse")
    return model

def load_data():
    x = np.random.default_rng(1).normal(size=(128, 8))
    return (x, x[:, :1]), (x, x[:, :1])
"""


def parts(master: psutil.Process) -> dict[str, int]:
    """Return the resident bytes of each part of the run; trial processes are left out."""
    found = {"master": master.memory_info().rss}
    for each in master.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            words, parent = " ".join(each.cmdline()), each.parent()
            if "forkserver.server" in words and parent == master:
                found["fork server"] = each.memory_info().rss
            elif "multiprocessing.spawn" in words:
                found["Dask worker"] = each.memory_info().rss
    return found


def over(study: Path) -> int:
    """Return how many trials are over."""
    try:
        with contextlib.closing(sqlite3.connect(study / "study.db")) as database:
            query = "SELECT count(*) FROM trials WHERE state IN ('COMPLETE', 'FAILED')"
            return int(database.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--search", default="tpe")
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="hm", dir="/tmp"))
    (home / "model.py").write_text(MODEL)
    command = [str(Path(sys.executable).with_name("hptune")), "run", "model.py", "--trials",
               str(options.trials), "--search", options.search, "--study", "study"]  # fmt: skip
    began = time.monotonic()
    process = subprocess.Popen(
        command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(home)},
    )  # fmt: skip
    master = psutil.Process(process.pid)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    while process.poll() is None:
        with contextlib.suppress(psutil.Error):
            now = parts(master)
            if over(home / "study") >= 20:
                first = first or now
                last = now if len(now) >= len(last) else last
        time.sleep(0.2)
    print(f"{over(home / 'study')} trials in {time.monotonic() - began:.0f} s")
    print("| part | MB at trial 20 | MB at the end | growth |\n| --- | --- | --- | --- |")
    for name, before in first.items():
        after = last.get(name, 0)
        growth = after / before - 1
        print(f"| {name} | {before / 1e6:.1f} | {after / 1e6:.1f} | {growth:+.1%} |")
    shutil.rmtree(home)


if __name__ == "__main__":
    main()

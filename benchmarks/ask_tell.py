"""Time of ask and tell in one process, by the number of trials that the study has.

    python benchmarks/ask_tell.py [FOLDER]

For each search: milliseconds of processor time, and of time, for one `ask` and one `tell`. A
call waits for the disk of FOLDER (default: that of temporary files); /dev/shm has none. On a
virtual machine with 2 cores that 10 processes share (Python 3.11, /dev/shm): 7.3 ms of processor
time with `tpe` at 1,000 trials, 2.6 ms with `random`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import hptune
from hptune.ask_tell.study import AskedStudy

_SEARCHES = ("random", "tpe")
_COUNTS = (100, 1000)
_MEASURED = 100


def main() -> None:
    """Measure and print."""
    folder = sys.argv[1] if len(sys.argv) > 1 else None
    print("search   trials   processor   time")
    for search in _SEARCHES:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            for count, cpu_ms, ms in _measured(Path(place) / "study", search):
                print(f"{search:<8} {count:>6} {cpu_ms:>8.1f} ms {ms:>6.1f} ms")


def _measured(path: Path, search: str) -> list[tuple[int, float, float]]:
    space = {
        "lr": hptune.Float(1e-4, 0.1, sampling="log"),
        "units": hptune.Int(16, 256),
        "activation": ["relu", "tanh"],
    }
    study = hptune.open_study(path, space, "loss:min", search=search, trials=10**6, seed=1)
    rows, told = [], 0
    for count in _COUNTS:
        while told < count:
            told += _one(study)
        cpu, began = time.process_time(), time.perf_counter()
        for _ in range(_MEASURED):
            told += _one(study)
        per_trial = 1e3 / _MEASURED
        cpu_ms = (time.process_time() - cpu) * per_trial
        rows.append((count, cpu_ms, (time.perf_counter() - began) * per_trial))
    return rows


def _one(study: AskedStudy) -> int:
    trial = study.ask()
    trial.tell(loss=(trial["lr"] - 0.01) ** 2)
    return 1


if __name__ == "__main__":
    main()

"""Time of ask and tell in one process, by the number of trials that the study has.

    python benchmarks/ask_tell.py [FOLDER]
    python benchmarks/ask_tell.py --beside [FOLDER]
    python benchmarks/ask_tell.py --commands [FOLDER]

For each search: milliseconds of processor time, and of time, for one `ask` and one `tell`. A
call waits for the disk of FOLDER (default: that of temporary files); /dev/shm has none. On a
virtual machine with 2 cores (Python 3.11), 29 November 2026: 6.4 ms of processor time with `tpe`
at 1,000 trials, 3.9 ms with `random`.

With `--beside`, a master runs the study with a worker of its own, and answers the calls: the median
and the longest time of each kind of call, while no program has another trial and while one has. On
that machine, on its disk: 1.1 s for an `ask` before others, then 130 ms, 80 ms for a report and
90 ms for a `tell`.

With `--commands`: the median processor time of `hptune ask`, `report-step` and `tell` in a study
with 60 trials, and that of a Python that only imports NumPy. On that machine,
which also did other work: 370, 260 and 250 ms, NumPy 130 ms (before the calls loaded what they
use alone, in turn with them: 410, 410 and 430 ms).
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import hptune
from hptune.ask_tell.study import AskedStudy

T = TypeVar("T")

_SEARCHES = ("random", "tpe")
_COUNTS = (100, 1000)
_MEASURED = 100
_OF_COMMANDS = 60
_CALLS = 9


def main() -> None:
    """Measure and print."""
    arguments = sys.argv[1:]
    if "--beside" in arguments:
        arguments.remove("--beside")
        with tempfile.TemporaryDirectory(dir=arguments[0] if arguments else None) as place:
            _beside(Path(place))
        return
    if "--commands" in arguments:
        arguments.remove("--commands")
        with tempfile.TemporaryDirectory(dir=arguments[0] if arguments else None) as place:
            _commands(Path(place) / "study")
        return
    folder = arguments[0] if arguments else None
    print("search   trials   processor   time")
    for search in _SEARCHES:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            for count, cpu_ms, ms in _measured(Path(place) / "study", search):
                print(f"{search:<8} {count:>6} {cpu_ms:>8.1f} ms {ms:>6.1f} ms")


def _opened(path: Path, search: str) -> AskedStudy:
    space = {
        "lr": hptune.Float(1e-4, 0.1, sampling="log"),
        "units": hptune.Int(16, 256),
        "activation": ["relu", "tanh"],
    }
    return hptune.open_study(path, space, "loss:min", search=search, trials=10**6, seed=1)


def _measured(path: Path, search: str) -> list[tuple[int, float, float]]:
    study = _opened(path, search)
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


def _commands(path: Path) -> None:
    """Measure the commands, and print them."""
    study = _opened(path, "random")
    for _ in range(_OF_COMMANDS):
        _one(study)
    times = defaultdict[str, list[float]](list)
    for number in range(_OF_COMMANDS, _OF_COMMANDS + _CALLS):
        for name, words in (
            ("ask", ()),
            ("report-step", (str(number), "--step", "1", "loss=1")),
            ("tell", (str(number), "loss=1")),
        ):
            times[name].append(_cpu_ms("-m", "hptune", name, str(path), *words))
        times["import numpy"].append(_cpu_ms("-c", "import numpy"))
    for name, taken in times.items():
        print(f"{name:<12} {statistics.median(taken):>5.0f} ms")


def _cpu_ms(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


_MODEL = """
import time
OBJECTIVE = "loss:min"
def objective(hp, trial):
    hp.Float("lr", 1e-4, 0.1, sampling="log")
    while not trial.should_stop():
        time.sleep(0.1)
    return 0.0
"""


def _beside(place: Path) -> None:
    """Measure the calls beside a master, and print them."""
    (place / "model.py").write_text(_MODEL)
    path, hptune_command = place / "study", [sys.executable, "-m", "hptune"]
    run = ["run", "model.py", "--study", str(path), "--trials", "100000", "--workers", "1", "-q"]
    with subprocess.Popen([*hptune_command, *run], cwd=place) as master:
        try:
            while not ((path / "study.db").exists() and hptune.Study(path).trials):
                time.sleep(0.1)
            study = hptune.open_study(path)
            print("                     median   longest")
            _print_calls("no trial before", study, 10)
            study.ask()
            _print_calls("beside a trial", study, _MEASURED)
        finally:
            subprocess.run([*hptune_command, "stop", str(path)], check=False, capture_output=True)
            master.wait()


def _print_calls(when: str, study: AskedStudy, count: int) -> None:
    times = defaultdict[str, list[float]](list)

    def timed(name: str, call: Callable[[], T]) -> T:
        began = time.perf_counter()
        answer = call()
        times[name].append(1e3 * (time.perf_counter() - began))
        return answer

    for _ in range(count):
        trial = timed("ask", study.ask)
        timed("report", partial(trial.report, 1, loss=1.0))
        timed("tell", partial(trial.tell, loss=1.0))
    print(when)
    for name, taken in times.items():
        print(f"  {name:<18} {statistics.median(taken):>5.0f} ms {max(taken):>6.0f} ms")


if __name__ == "__main__":
    main()

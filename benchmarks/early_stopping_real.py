"""Training until a model is as good as a full search's best: a real study with early stopping.

    .venv/bin/python benchmarks/early_stopping_real.py [--seeds 3] [--epochs 27] [--further …]

Runs the study of `make demo` (`examples/digits_cnn.py`, 12 trials by tpe) and then the same with
`--pruner asha` and more trials, and compares the seconds of training (all attempts added up) and
the epochs until the second is as good as the first was in the end. The trainings are real, not
simulated.

Building and compiling the model takes some seconds, even if an epoch is short, and no pruner can
save them: `start` is this cost in epochs.

    .venv/bin/python benchmarks/early_stopping_real.py --beyond-rungs

counts instead the epochs that stopped trials train beyond their rung, in studies of an objective
that reports and at once asks `trial.should_stop()`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from hptune.core.attempt import AttemptId
from hptune.core.trial import TrialState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger.reader import LedgerReader

MODEL = ROOT / "examples/digits_cnn.py"
METRIC = "val_accuracy"
FULL_TRIALS = 12
STOPPED_TRIALS = 36
MOST = 0.4
SLEEPER = """
import time

OBJECTIVE = "score:max"


def objective(hp, trial):
    score = hp.Float("x", 0.0, 1.0)
    for epoch in range(1, trial.epochs + 1):
        time.sleep({seconds})
        trial.report(epoch, score=score)
        if trial.should_stop():
            break
    return score
"""
RUNGS = (2, 6)
SLEEPER_TRIALS = 48
AT_ONCE = {
    1: ["--workers", "1"],
    16: ["--cpus-per-trial", "0.125"],
}


@dataclass(frozen=True, slots=True)
class Recorded:
    """Reports and attempts of a study, from its ledger.

    Attributes:
        reports: Time, accuracy and attempt of each report.
        spans: Start and end of each attempt.
    """

    reports: list[tuple[float, float, AttemptId]]
    spans: dict[AttemptId, tuple[float, float]]

    @property
    def best(self) -> float:
        """The best accuracy of any epoch."""
        return max(value for _, value, _ in self.reports)

    @property
    def start_epochs(self) -> float:
        """Median time of an attempt before it trains, in epochs."""
        times: dict[AttemptId, list[float]] = {}
        for time, _, attempt in self.reports:
            times.setdefault(attempt, []).append(time)
        epoch = {
            attempt: (ends[-1] - ends[0]) / (len(ends) - 1)
            for attempt, ends in times.items()
            if len(ends) > 1
        }
        return statistics.median(
            (times[attempt][0] - self.spans[attempt][0]) / seconds - 1.0
            for attempt, seconds in epoch.items()
        )

    def trained(self, until: float = math.inf) -> float:
        """Return the seconds of training up to a time."""
        return sum(max(0.0, min(end, until) - begin) for begin, end in self.spans.values())

    def epochs(self, until: float = math.inf) -> int:
        """Return the number of epochs that were trained up to a time."""
        return sum(time <= until for time, *_ in self.reports)

    def when(self, accuracy: float) -> float:
        """Return when an epoch first reached an accuracy; infinity if none did."""
        return min((time for time, value, _ in self.reports if value >= accuracy), default=math.inf)


def study(directory: Path, *, seed: int, further: list[str]) -> Recorded:
    """Run a study, and return what its ledger recorded."""
    command = [sys.executable, "-m", "hptune", "run", str(MODEL), "--search", "tpe"]
    command += ["--study", str(directory), "--seed", str(seed), "--quiet", *further]
    subprocess.run(command, check=True, cwd=ROOT)
    reader = LedgerReader(StudyDirectory(directory))
    reports = [
        (row.time, row.value, AttemptId(row.trial, row.attempt))
        for row in reader.reports()
        if row.metric == METRIC
    ]
    spans = {
        attempt.id: (attempt.started_at, attempt.ended_at)
        for attempt in reader.attempts()
        if attempt.started_at is not None and attempt.ended_at is not None
    }
    return Recorded(reports, spans)


def beyond_rungs(folder: Path, *, at_once: int, seconds: float) -> list[int]:
    """Return how many epochs each stopped trial has trained beyond its rung."""
    model = folder / "sleeper.py"
    model.write_text(SLEEPER.format(seconds=seconds))
    directory = folder / f"study-{at_once}-{seconds}"
    command = [sys.executable, "-m", "hptune", "run", str(model), "--study", str(directory)]
    command += ["--search", "random", "--pruner", "asha", "--min-epochs", str(RUNGS[0])]
    command += ["--epochs", "12", "--trials", str(SLEEPER_TRIALS), "--quiet", *AT_ONCE[at_once]]
    subprocess.run(command, check=True)
    trials = LedgerReader(StudyDirectory(directory)).trials()
    ends = [each.step or 0 for each in trials if each.state is TrialState.PRUNED]
    return [end - max(rung for rung in RUNGS if rung <= end) for end in ends]


def print_beyond_rungs() -> None:
    """Measure, and print the table of epochs beyond rungs."""
    print("| trials at once | seconds of an epoch | stopped | at the rung | epochs beyond, mean |")
    print("|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for at_once in AT_ONCE:
            for seconds in (0.1, 0.3, 1.0):
                beyond = beyond_rungs(Path(folder), at_once=at_once, seconds=seconds)
                print(
                    f"| {at_once} | {seconds} | {len(beyond)} | {beyond.count(0)} "
                    f"| {statistics.mean(beyond):.2f} |",
                    flush=True,
                )


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="How much training until as good a model?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8, help="the full training of both")
    parser.add_argument("--further", nargs=argparse.REMAINDER, default=[], help="for the second")
    parser.add_argument("--beyond-rungs", action="store_true")
    options = parser.parse_args()
    if options.beyond_rungs:
        print_beyond_rungs()
        return
    print(
        "| seed | full search: best | trained | with asha: as good after | share | of the epochs "
        "| best | start, epochs |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|")
    shares, of_epochs = [], []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, options.seeds + 1):
            epochs = ["--epochs", str(options.epochs)]
            every = ["--trials", str(FULL_TRIALS), *epochs]
            full = study(Path(folder, f"full-{seed}"), seed=seed, further=every)
            asha = ["--trials", str(STOPPED_TRIALS), *epochs, "--pruner", "asha", *options.further]
            stopped = study(Path(folder, f"asha-{seed}"), seed=seed, further=asha)
            # A study that never gets there counts with all its training.
            at = stopped.when(full.best)
            shares.append(stopped.trained(at) / full.trained())
            of_epochs.append(stopped.epochs(at) / full.epochs())
            after = "never" if math.isinf(at) else f"{stopped.trained(at):.1f} s"
            print(
                f"| {seed} | {full.best:.4f} | {full.trained():.1f} s | {after} | {shares[-1]:.0%} "
                f"| {of_epochs[-1]:.0%} | {stopped.best:.4f} | {full.start_epochs:.1f} |",
                flush=True,
            )
    share = statistics.mean(shares)
    word = "met" if share <= MOST else "MISSED"
    print(
        f"\n{word}: as good after {share:.0%} of the training on average (goal: {MOST:.0%}), and "
        f"{statistics.mean(of_epochs):.0%} of the epochs"
    )


if __name__ == "__main__":
    main()

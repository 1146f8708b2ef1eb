"""Training until a model is as good as a full search's best: a real study with early stopping.

    .venv/bin/python benchmarks/early_stopping_real.py [--seeds 3] [--epochs 27] [--further …]

Runs the study of `make demo` (`examples/digits_cnn.py`, 12 trials by tpe) and then the same with
`--pruner asha` and more trials, and compares the seconds of training (all attempts added up) and
the epochs until the second is as good as the first was in the end. The trainings are real, not
simulated.

Building and compiling the model takes some seconds, even if an epoch is short, and no pruner can
save them: `start` is this cost in epochs.
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
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger.reader import LedgerReader

MODEL = ROOT / "examples/digits_cnn.py"
METRIC = "val_accuracy"
FULL_TRIALS = 12
STOPPED_TRIALS = 36
MOST = 0.4


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


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="How much training until as good a model?")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=8, help="the full training of both")
    parser.add_argument("--further", nargs=argparse.REMAINDER, default=[], help="for the second")
    options = parser.parse_args()
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

"""How much training until as good a model as a full search finds? A real study with early stopping.

    .venv/bin/python benchmarks/early_stopping_real.py [--seeds 3]

Runs the study of `make demo` (`examples/digits_cnn.py`, 12 trials by tpe) and then the same with
`--pruner asha` and more trials, and compares the seconds of training (all attempts added up) until
the second is as good as the first was in the end. Real trainings, nothing simulated.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tuner.ledger.reader import LedgerReader
from tuner.study_directory import StudyDirectory

MODEL = ROOT / "examples/digits_cnn.py"
METRIC = "val_accuracy"
FULL_TRIALS = 12
STOPPED_TRIALS = 36
MOST = 0.4


@dataclass(frozen=True, slots=True)
class Told:
    """What a study's ledger says: its reports in time, and when attempts ran."""

    reports: list[tuple[float, float]]
    spans: list[tuple[float, float]]

    @property
    def best(self) -> float:
        """The best accuracy of all epochs."""
        return max(value for _, value in self.reports)

    def trained(self, until: float) -> float:
        """The seconds of training up to a time."""
        return sum(max(0.0, min(end, until) - begin) for begin, end in self.spans)

    @property
    def seconds(self) -> float:
        """The seconds of training in all."""
        return self.trained(max(end for _, end in self.spans))

    def until(self, accuracy: float) -> float | None:
        """The seconds of training until an epoch was so good; None if none was."""
        times = [time for time, value in self.reports if value >= accuracy]
        return self.trained(min(times)) if times else None


def study(directory: Path, *, seed: int, further: list[str]) -> Told:
    """Run a study, and read what came of it."""
    command = [sys.executable, "-m", "tuner", "run", str(MODEL), "--search", "tpe"]
    command += ["--study", str(directory), "--seed", str(seed), "--quiet", *further]
    subprocess.run(command, check=True, cwd=ROOT)
    reader = LedgerReader(StudyDirectory(directory))
    reports = [(r.time, r.value) for r in reader.reports() if r.metric == METRIC]
    spans = [
        (attempt.started_at, attempt.ended_at)
        for attempt in reader.attempts()
        if attempt.started_at is not None and attempt.ended_at is not None
    ]
    return Told(reports, spans)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description="How much training until as good a model?")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| seed | full search: best | trained | with asha: as good after | share | best |")
    print("|---:|---:|---:|---:|---:|---:|")
    shares = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(1, options.seeds + 1):
            full = study(
                Path(folder, f"full-{seed}"), seed=seed, further=["--trials", str(FULL_TRIALS)]
            )
            asha = ["--trials", str(STOPPED_TRIALS), "--pruner", "asha"]
            stopped = study(Path(folder, f"asha-{seed}"), seed=seed, further=asha)
            until = stopped.until(full.best)
            # One that never gets there counts with all that it trained.
            share = (stopped.seconds if until is None else until) / full.seconds
            shares.append(share)
            after = "never" if until is None else f"{until:.1f} s"
            print(
                f"| {seed} | {full.best:.4f} | {full.seconds:.1f} s | {after} | {share:.0%} "
                f"| {stopped.best:.4f} |",
                flush=True,
            )
    share = statistics.mean(shares)
    word = "met" if share <= MOST else "MISSED"
    print(f"\n{word}: as good after {share:.0%} of the training on average (goal: {MOST:.0%})")


if __name__ == "__main__":
    main()

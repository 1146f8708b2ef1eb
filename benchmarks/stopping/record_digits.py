"""Script that makes the table of learning curves from a study of examples/digits_cnn.py.

    hptune run examples/digits_cnn.py --search random --trials 160 --epochs 27 --seed 11 --study DIR
    python benchmarks/stopping/record_digits.py DIR

The study trains each configuration in full, and takes half an hour on two cores.
"""

from __future__ import annotations

import csv
import itertools
import json
import statistics
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))


from hptune.core.trial import TrialState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger.reader import LedgerReader

METRIC = "val_accuracy"


def main() -> None:
    reader = LedgerReader(StudyDirectory(Path(sys.argv[1])))
    space = reader.facts()["space"]
    (HERE / "digits_cnn_space.json").write_text(json.dumps(space, indent=1) + "\n")
    curves: dict[int, dict[int, tuple[float, float]]] = {}
    for report in reader.reports():
        if report.metric == METRIC and report.value is not None:
            steps = curves.setdefault(report.trial, {})
            steps[report.step] = (report.value, report.time)
    with (HERE / "digits_cnn_curves.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["params", "seconds_per_epoch", METRIC])
        for trial in reader.trials():
            if trial.state is TrialState.COMPLETE:
                curve = [curves[trial.number][step] for step in sorted(curves[trial.number])]
                times = [at for _, at in curve]
                seconds = statistics.median(b - a for a, b in itertools.pairwise(times))
                values = " ".join(f"{value:.4f}" for value, _ in curve)
                writer.writerow([json.dumps(dict(trial.params)), f"{seconds:.3f}", values])


if __name__ == "__main__":
    main()

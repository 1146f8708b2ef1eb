"""Epochs until a model within 1 % of the best one known: a comparison of early stopping.

    .venv/bin/python benchmarks/early_stopping.py                     # on recorded digits trainings
    .venv-peers/bin/python benchmarks/early_stopping.py --data DIR    # and on given problems

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent / "tuner")
)  # the peers' environment does not have the project installed

from stopping import tasks, ways

FIRST_SEED = 500
BUDGET_TRAININGS = 40
MOST_OF_THE_BEST_PEER = 0.9
MOST_IDLE = 0.02

OWN = (
    "random+none", "random+median", "random+asha", "random+asha-promote", "random+hyperband",
    "tpe+none", "tpe+median", "tpe+asha", "tpe+asha-promote", "tpe+hyperband",
    "bayesian+median", "bayesian+asha", "bayesian+asha-promote", "bayesian+hyperband",
)  # fmt: skip
PEERS = (
    "optuna:random+none", "optuna:random+median", "optuna:random+halving",
    "optuna:random+halving-3", "optuna:random+hyperband",
    "optuna:tpe+none", "optuna:tpe+median", "optuna:tpe+halving", "optuna:tpe+hyperband",
    "syne:random+none", "syne:random+asha", "syne:bore+asha", "syne:cqr+asha", "syne:bohb+asha",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Result of one way of searching on one task with one number of workers, over all seeds."""

    task: str
    workers: int
    way: str
    epochs: float
    seconds: float
    found: float
    trials: float
    idle: float


def measured(task: tasks.Task, way: str, *, workers: int, seeds: int) -> Row:
    """Run all seeds; a study that misses the goal counts with all its epochs."""
    tracks = [
        ways.run(
            task,
            way,
            workers=workers,
            seed=FIRST_SEED + seed,
            budget_epochs=BUDGET_TRAININGS * task.epochs,
            aim=task.aim,
        )
        for seed in range(seeds)
    ]
    until = [track.until(task.aim) for track in tracks]
    return Row(
        task=task.name,
        workers=workers,
        way=way,
        epochs=statistics.mean(
            min(epochs, track.epochs) for (epochs, _), track in zip(until, tracks, strict=True)
        ),
        seconds=statistics.mean(
            min(seconds, track.seconds) for (_, seconds), track in zip(until, tracks, strict=True)
        ),
        found=statistics.mean(math.isfinite(epochs) for epochs, _ in until),
        trials=statistics.mean(track.trials for track in tracks),
        idle=max(track.idle for track in tracks),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| task | workers | way | epochs | virtual time | found | trials | idle |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        idle = "" if ":" in row.way else f"{row.idle:.1%}"
        lines.append(
            f"| {row.task} | {row.workers} | {row.way} | {row.epochs:.0f} | {row.seconds:.1f} s "
            f"| {row.found:.0%} | {row.trials:.0f} | {idle} |"
        )
    return "\n".join(lines)


def goal_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each goal: met or missed."""
    lines = []
    for task, workers in dict.fromkeys((row.task, row.workers) for row in rows):
        same = [row for row in rows if (row.task, row.workers) == (task, workers)]
        ours = min((row for row in same if ":" not in row.way), key=lambda row: row.epochs)
        theirs = min((r for r in same if ":" in r.way), key=lambda r: r.epochs, default=None)
        if theirs is not None:
            ratio = ours.epochs / theirs.epochs
            word = "met" if ratio <= MOST_OF_THE_BEST_PEER else "MISSED"
            lines.append(
                f"- {word}: {task}, {workers} workers: {ours.way} needs {ratio:.0%} of the epochs "
                f"of {theirs.way} (goal: {MOST_OF_THE_BEST_PEER:.0%})"
            )
    idle = max((row.idle for row in rows if ":" not in row.way), default=0.0)
    word = "met" if idle <= MOST_IDLE else "MISSED"
    lines.append(f"- {word}: workers of hptune idle {idle:.2%} of the time at most")
    return lines


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description="How many epochs until a good model?")
    parser.add_argument("--data", type=Path, help="folder of further problems with curves")
    parser.add_argument("--tasks", nargs="+", default=[], help="only these")
    parser.add_argument("--ways", nargs="+", default=[*OWN, *PEERS], metavar="SEARCH+PRUNER")
    parser.add_argument("--workers", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    options = parser.parse_args()
    rows = []
    chosen = tasks.load(options.data, options.tasks)
    for task in chosen.values():
        for workers in options.workers:
            for way in options.ways:
                rows.append(measured(task, way, workers=workers, seeds=options.seeds))
                print(f"{task.name} {workers} {way}: {rows[-1].epochs:.0f}", file=sys.stderr)
    print(table(rows))
    print()
    for task in chosen.values():
        if soonest := task.soonest_seconds:
            print(f"- {task.name}: no configuration gets there in less than {soonest:.1f} s")
    print("\n".join(goal_lines(rows)))
    if options.json is not None:
        figures = [{name: getattr(row, name) for name in Row.__slots__} for row in rows]
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Epochs, device hours and time until a good model: a comparison of early stopping.

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
import sys
from collections.abc import Sequence
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path[:0] = [  # the peers' environment does not have the project installed
    str(HERE.parent / "tuner"),
    str(HERE.parent / "tests" / "support"),
]

import numpy as np
from stopping import cluster, rules, tasks, ways

FIRST_SEED = 500
BUDGET_TRAININGS = 40
MOST_OF_THE_BEST_PEER = 0.9
MOST_IDLE = 0.02
REFERENCE = "random+asha"
PEER_OWNERS = ("optuna", "syne")
RESAMPLES = 2000

OWN = (
    "random+none", "random+median", "random+asha", "random+asha-promote", "random+hyperband",
    "tpe+none", "tpe+median", "tpe+asha", "tpe+asha-promote", "tpe+hyperband",
    "bayesian+median", "bayesian+asha", "bayesian+asha-promote", "bayesian+hyperband",
)  # fmt: skip
BASELINES = ("one-epoch:4-of-32", "one-epoch:8-of-128")
PEERS = (
    "optuna:random+none", "optuna:random+median", "optuna:random+halving",
    "optuna:random+halving-3", "optuna:random+hyperband",
    "optuna:tpe+none", "optuna:tpe+median", "optuna:tpe+halving", "optuna:tpe+hyperband",
    "syne:random+none", "syne:random+asha", "syne:bore+asha", "syne:cqr+asha", "syne:bohb+asha",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Results of one way of searching on one task with one number of workers.

    Attributes:
        task: The name of the task.
        workers: How many trials ran at once.
        way: The search and the pruner.
        epochs: The epochs of all trials until the goal, of each seed.
        seconds: The time until the goal, of each seed.
        held: The time of all workers together until the goal, of each seed.
        found: The share of seeds that reached the goal.
        trials: The mean number of trials.
        idle: The largest share of the workers' time in which they had nothing to do.
    """

    task: str
    workers: int
    way: str
    epochs: tuple[int, ...]
    seconds: tuple[float, ...]
    held: tuple[float, ...]
    found: float
    trials: float
    idle: float

    @property
    def device_seconds(self) -> float:
        """Mean time of all workers together until the goal."""
        return float(np.mean(self.held))

    def resampled(self, rng: np.random.Generator) -> np.ndarray:
        """Return the same with the seeds drawn again."""
        drawn = rng.integers(len(self.held), size=(RESAMPLES, len(self.held)))
        means: np.ndarray = np.asarray(self.held)[drawn].mean(axis=1)
        return means


def measured(task: tasks.Task, way: str, *, workers: int, seeds: int, world: cluster.World) -> Row:
    """Run all seeds; a study that misses the goal counts with all its epochs."""
    tracks = [
        ways.run(
            task,
            way,
            workers=workers,
            seed=FIRST_SEED + seed,
            # With as many workers as trainings, hardly a study would reach the last epoch.
            budget_epochs=(BUDGET_TRAININGS + workers) * task.epochs,
            aim=task.aim,
            world=world,
        )
        for seed in range(seeds)
    ]
    return Row(
        task=task.name,
        workers=workers,
        way=way,
        epochs=tuple(track.epochs for track in tracks),
        seconds=tuple(track.seconds for track in tracks),
        held=tuple(track.held for track in tracks),
        found=float(np.mean([track.has_found(task.aim) for track in tracks])),
        trials=float(np.mean([track.trials for track in tracks])),
        idle=max(track.idle for track in tracks),
    )


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown, with means over the seeds."""
    lines = [
        "| task | workers | way | epochs | time | device time | found | trials | idle |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        idle = "" if ways.owner(row.way) else f"{row.idle:.1%}"
        lines.append(
            f"| {row.task} | {row.workers} | {row.way} | {np.mean(row.epochs):.0f} "
            f"| {np.mean(row.seconds):.1f} s | {row.device_seconds:.0f} s | {row.found:.0%} "
            f"| {row.trials:.0f} | {idle} |"
        )
    return "\n".join(lines)


class Comparison:
    """Device time of some ways in relation to that of others, task by task.

    Args:
        rows: The results.
        workers: The number of workers.
    """

    def __init__(self, rows: Sequence[Row], *, workers: int) -> None:
        self._rows = {(row.task, row.way): row for row in rows if row.workers == workers}
        self.tasks = tuple(dict.fromkeys(task for task, _ in self._rows))

    def ways(self, *owners: str) -> list[str]:
        """Return the ways of these owners."""
        found = dict.fromkeys(way for _, way in self._rows)
        return [way for way in found if ways.owner(way) in owners]

    def best(self, task: str, among: Sequence[str]) -> str:
        """Return the way with the least device time."""
        return min(among, key=lambda way: self._rows[task, way].device_seconds)

    def ratio(self, task: str, way: str, among: Sequence[str]) -> tuple[float, np.ndarray]:
        """Return a way's device time divided by the least of some; the same with drawn seeds."""
        ours = self._rows[task, way]
        theirs = self._rows[task, self.best(task, among)]
        # The best one of some is chosen once, on all seeds. Seeds are drawn in pairs.
        drawn = ours.resampled(np.random.default_rng(1)) / theirs.resampled(
            np.random.default_rng(1)
        )
        return ours.device_seconds / theirs.device_seconds, drawn

    def mean_ratio(self, way: str, among: Sequence[str]) -> tuple[float, float, float]:
        """Return the geometric mean over the tasks, and its interval (95 %, seeds drawn again)."""
        found = [self.ratio(task, way, among) for task in self.tasks]
        mean = math.exp(float(np.mean([math.log(ratio) for ratio, _ in found])))
        drawn = np.exp(np.mean([np.log(each) for _, each in found], axis=0))
        return (mean, *interval(drawn))


def interval(drawn: np.ndarray) -> tuple[float, float]:
    """Return the middle 95 %."""
    low, high = np.quantile(drawn, (0.025, 0.975))
    return float(low), float(high)


def comparison_table(rows: Sequence[Row]) -> str:
    """Return how hptune's ways compare with peers, baselines and random search, as Markdown."""
    heads = [
        "way", "workers", "of the best peer", "of the best baseline", f"of {REFERENCE}",
        f"slower than {REFERENCE} on",
    ]  # fmt: skip
    lines = [f"| {' | '.join(heads)} |", "|---|---:|---:|---:|---:|---|"]
    for workers in dict.fromkeys(row.workers for row in rows):
        compared = Comparison(rows, workers=workers)
        ours = compared.ways("")
        others = (
            compared.ways(*PEER_OWNERS),
            compared.ways(rules.BASELINE),
            [way for way in ours if way == REFERENCE],
        )
        for way in ours:
            cells = [
                _percent(*compared.mean_ratio(way, among)) if among and way not in among else ""
                for among in others
            ]
            slower = ", ".join(_slower(compared, way, others[2]))
            lines.append(f"| {way} | {workers} | {' | '.join(cells)} | {slower} |")
    return "\n".join(lines)


def _slower(compared: Comparison, way: str, reference: Sequence[str]) -> list[str]:
    """Return the tasks on which the way's mean device time is larger than the reference's."""
    found = []
    for task in compared.tasks if reference and way not in reference else ():
        ratio, drawn = compared.ratio(task, way, reference)
        low, high = interval(drawn)
        if ratio > 1.0:
            found.append(f"{task} {_percent(ratio, low, high)}")
    return found


def _percent(ratio: float, low: float, high: float) -> str:
    return f"{ratio:.0%} ({low:.0%} to {high:.0%})"


def goal_lines(rows: Sequence[Row]) -> list[str]:
    """Return a line for each goal: met or missed."""
    lines = []
    for workers in dict.fromkeys(row.workers for row in rows):
        compared = Comparison(rows, workers=workers)
        ours, peers = compared.ways(""), compared.ways(*PEER_OWNERS)
        for task in compared.tasks if ours and peers else ():
            way = compared.best(task, ours)
            ratio, drawn = compared.ratio(task, way, peers)
            low, high = interval(drawn)
            word = "met" if ratio <= MOST_OF_THE_BEST_PEER else "MISSED"
            lines.append(
                f"- {word}: {task}, {workers} workers: {way} needs {_percent(ratio, low, high)} "
                f"of the device time of {compared.best(task, peers)} "
                f"(goal: {MOST_OF_THE_BEST_PEER:.0%})"
            )
    idle = max((row.idle for row in rows if not ways.owner(row.way)), default=0.0)
    word = "met" if idle <= MOST_IDLE else "MISSED"
    lines.append(f"- {word}: workers of hptune idle {idle:.2%} of the time at most")
    return lines


def main() -> None:
    """Measure, and print the tables."""
    options = _options()
    rows = []
    chosen = tasks.load(options.data, options.tasks)
    for task in chosen.values():
        for workers in options.workers:
            for way in options.ways:
                row = measured(
                    task,
                    way,
                    workers=workers,
                    seeds=options.seeds,
                    world=cluster.world_of(options),
                )
                rows.append(row)
                print(f"{task.name} {workers} {way}: {row.device_seconds:.0f} s", file=sys.stderr)
        if options.json is not None:
            # After each task, so that an interrupted run leaves what it has.
            figures = [dataclasses.asdict(row) for row in rows]
            options.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(rows))
    print()
    for task in chosen.values():
        if soonest := task.soonest_seconds:
            print(f"- {task.name}: no configuration gets there in less than {soonest:.1f} s")
    print("\n".join(goal_lines(rows)))
    print(f"\nDevice time, geometric mean over the tasks:\n\n{comparison_table(rows)}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How long until a good model?")
    parser.add_argument("--data", type=Path, help="folder of further problems with curves")
    parser.add_argument("--tasks", nargs="+", default=[], help="only these")
    parser.add_argument(
        "--ways", nargs="+", default=[*OWN, *BASELINES, *PEERS], metavar="SEARCH+PRUNER"
    )
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 4, 16, 64])
    parser.add_argument("--seeds", type=int, default=20)
    cluster.add_options(parser)
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()

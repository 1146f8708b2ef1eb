"""Device time until a good model, by rules of early stopping on the same random configurations.

    .venv/bin/python benchmarks/stopping_rules.py --data DIR [--tasks A B] [--workers 4 16 64]
    .venv/bin/python benchmarks/stopping_rules.py --json before.json      # then, after a change,
    .venv/bin/python benchmarks/stopping_rules.py --against before.json

`early_stopping.py` compares whole tools. This script asks which part of a difference early stopping
has: search, engine and chance are the same for all rules. `--against` compares with the figures of
another version; docs/decisions/less-spent-on-poor-trials.md has the gate for a change.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tuner"), str(HERE.parent / "tests" / "support")]

import numpy as np
from stopping import rules, tasks

RULES = (
    "asha", "asha-promote", "hyperband",
    "optuna:halving", "optuna:halving-3", "optuna:hyperband",
)  # fmt: skip
BUDGET_TRAININGS = 40
RESAMPLES = 2000

Figures = dict[str, list[float]]
"""Device seconds of each seed, by task, workers and rule."""


def key(task: str, workers: int, rule: str) -> str:
    """Return what figures are stored under."""
    return f"{task} {workers} {rule}"


def measure(options: argparse.Namespace, chosen: dict[str, tasks.Task]) -> Figures:
    """Run all studies."""
    figures: Figures = {}
    for task in chosen.values():
        curves = rules.Curves.of(
            task, count=options.configurations, epochs=options.epochs, share_good=tasks.SHARE_GOOD
        )
        for workers in options.workers:
            for rule in options.rules:
                figures[key(task.name, workers, rule)] = [
                    rules.device_seconds(
                        curves,
                        rule,
                        workers=workers,
                        seed=seed,
                        budget_trainings=BUDGET_TRAININGS,
                        startup_seconds=options.startup_seconds,
                    )
                    for seed in range(options.seeds)
                ]
            print(f"{task.name} {workers}", file=sys.stderr)
    return figures


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, np.ndarray]:
    """Return the ratio of the means; the same with the seeds drawn again, in pairs."""
    pairs = np.array([ours, theirs])[:, : min(len(ours), len(theirs))]
    drawn = np.random.default_rng(1).integers(pairs.shape[1], size=(RESAMPLES, pairs.shape[1]))
    one, other = pairs[:, drawn].mean(axis=2)
    return float(pairs[0].mean() / pairs[1].mean()), one / other


def words(mean: float, drawn: np.ndarray) -> str:
    """Return a ratio with its interval of 95 %."""
    low, high = np.quantile(drawn, (0.025, 0.975))
    return f"{mean:.2f} ({low:.2f} to {high:.2f})"


def mean_words(ratios: Sequence[tuple[float, np.ndarray]]) -> str:
    """Return the geometric mean over tasks; its second interval draws the tasks again, too."""
    logs = np.log([drawn for _, drawn in ratios])
    rng = np.random.default_rng(3)
    tasks_too = np.array(
        [logs[rng.integers(len(logs), size=len(logs)), each].mean() for each in range(RESAMPLES)]
    )
    mean = math.exp(float(np.mean([math.log(each) for each, _ in ratios])))
    return f"{words(mean, np.exp(logs.mean(axis=0)))}, tasks too {words(mean, np.exp(tasks_too))}"


def table(
    names: Sequence[str], workers: int, one: tuple[Figures, str], other: tuple[Figures, str]
) -> str:
    """Return how one rule compares with another, task by task."""
    ratios = [
        ratio(*(figures[key(name, workers, rule)] for figures, rule in (one, other)))
        for name in names
    ]
    cells = [f"{name} {words(*each)}" for name, each in zip(names, ratios, strict=True)]
    head = f"- {one[1]} / {other[1]}, {workers} workers: {mean_words(ratios)}"
    return f"{head}\n  {'; '.join(cells)}"


def best_of(names: Sequence[str], workers: int, figures: Figures, among: Sequence[str]) -> None:
    """Add the rule that is the best one on each task, which no user knows before."""
    for name in names:
        rows = [figures[key(name, workers, rule)] for rule in among]
        figures[key(name, workers, "best of Optuna's")] = min(rows, key=np.mean)


def main() -> None:
    """Measure, and print the comparisons."""
    options = _options()
    chosen = tasks.load(options.data, options.tasks)
    figures = measure(options, chosen)
    if options.json is not None:
        options.json.write_text(json.dumps(figures) + "\n")
    names = [*chosen]
    ours = [rule for rule in options.rules if ":" not in rule]
    peers = [rule for rule in options.rules if ":" in rule]
    before = json.loads(options.against.read_text()) if options.against else {}
    for workers in options.workers:
        for rule in ours if before else ():
            print(table(names, workers, (figures, rule), (before, rule)))
        if peers:
            best_of(names, workers, figures, peers)
            for rule in ours:
                for peer in (*peers, "best of Optuna's"):
                    print(table(names, workers, (figures, rule), (figures, peer)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How good is early stopping alone?")
    parser.add_argument("--data", type=Path, help="folder of further problems with curves")
    parser.add_argument("--tasks", nargs="+", default=[], help="only these")
    parser.add_argument("--rules", nargs="+", default=RULES)
    parser.add_argument("--workers", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--configurations", type=int, default=4000)
    parser.add_argument("--epochs", type=int, help="only the first epochs, as the full training")
    parser.add_argument("--startup-seconds", type=float, default=0.0, help="time of each start")
    parser.add_argument("--json", type=Path, help="write the figures here, too")
    parser.add_argument("--against", type=Path, help="figures of another version")
    return parser.parse_args()


if __name__ == "__main__":
    main()

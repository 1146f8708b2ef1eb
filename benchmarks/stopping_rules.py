"""Device time until a good model, by rules of early stopping on the same random configurations.

    .venv/bin/python benchmarks/stopping_rules.py --data DIR [--tasks A B] [--workers 4 16 64]
    .venv/bin/python benchmarks/stopping_rules.py --out before.jsonl      # then, after a change,
    .venv/bin/python benchmarks/stopping_rules.py --out after.jsonl --against before.jsonl

`early_stopping.py` compares whole tools. This script asks which part of a difference early stopping
has: search, engine and chance are the same for all rules. See benchmarks/README.md;
docs/decisions/less-spent-on-poor-trials.md has the gate for a change.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tuner"), str(HERE.parent / "tests" / "support")]

import numpy as np
from stopping import cluster, rules, tasks

OWN = ("asha", "asha-promote", "hyperband", "median")
OTHERS = (
    "one-epoch:4-of-32", "one-epoch:8-of-128",
    "optuna:halving", "optuna:halving-3", "optuna:hyperband", "optuna:median",
    "ray:asha", "ray:asha-3", "ray:asha-brackets", "ray:hyperband",
    "syne:asha", "syne:asha-brackets", "syne:median",
)  # fmt: skip
BUDGET_TRAININGS = 40
RESAMPLES = 2000

Key = tuple[str, int, str]
"""A task, a number of workers, and a rule."""

Figures = dict[Key, list[float]]
"""Device seconds of each seed."""


def measure(options: argparse.Namespace, chosen: Mapping[str, tasks.Task]) -> Figures:
    """Run all studies that the file lacks, and add them to it."""
    world = _world(options)
    found = dict(_read(options.out, options))
    for task in chosen.values():
        curves = rules.Curves.of(
            task, count=options.configurations, epochs=options.epochs, share_good=tasks.SHARE_GOOD
        )
        for workers in options.workers:
            for rule in options.rules:
                key = (task.name, workers, rule)
                held = found.setdefault(key, [])
                if len(held) >= options.seeds:
                    continue
                held += [
                    rules.study(
                        curves,
                        rule,
                        workers=workers,
                        seed=seed,
                        budget_trainings=BUDGET_TRAININGS,
                        world=world,
                    ).held
                    for seed in range(len(held), options.seeds)
                ]
                if options.out is not None:
                    with options.out.open("a") as file:
                        file.write(json.dumps([_settings(options), *key, held]) + "\n")
            print(f"{task.name} {workers}", file=sys.stderr)
    return found


def _read(path: Path | None, options: argparse.Namespace) -> Iterator[tuple[Key, list[float]]]:
    for line in path.read_text().splitlines() if path is not None and path.exists() else ():
        settings, task, workers, rule, held = json.loads(line)
        if settings == _settings(options):
            yield (task, workers, rule), held


def _settings(options: argparse.Namespace) -> list[object]:
    return [options.epochs, *dataclasses.astuple(_world(options))]


def _world(options: argparse.Namespace) -> cluster.World:
    return dataclasses.replace(cluster.world_of(options), checkpoints=options.checkpoints)


class Ratios:
    """Device time of a rule divided by that of another one.

    Args:
        pairs: Of each task, the figures of both; seeds are paired.
    """

    def __init__(self, pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
        self._pairs = [np.array(list(zip(*pair, strict=False))).T for pair in pairs]

    def __str__(self) -> str:
        """The geometric mean over the tasks; its interval draws tasks and seeds again."""
        logs = np.log([self._drawn(pair) for pair in self._pairs])
        rng = np.random.default_rng(3)
        tasks_too = [
            logs[rng.integers(len(logs), size=len(logs)), each].mean() for each in range(RESAMPLES)
        ]
        mean = np.mean([math.log(one.mean() / other.mean()) for one, other in self._pairs])
        low, high = np.quantile(tasks_too, (0.025, 0.975))
        return f"{math.exp(mean):.2f} ({math.exp(low):.2f} to {math.exp(high):.2f})"

    @staticmethod
    def _drawn(pair: np.ndarray) -> np.ndarray:
        seeds = pair.shape[1]
        drawn = np.random.default_rng(1).integers(seeds, size=(RESAMPLES, seeds))
        one, other = pair[:, drawn].mean(axis=2)
        ratio: np.ndarray = one / other
        return ratio


def table(
    names: Sequence[str],
    workers: Sequence[int],
    ours: tuple[Figures, str],
    others: Sequence[tuple[Figures, str]],
) -> str:
    """Return how a rule compares with others, over all tasks."""
    lines = [_line(f"{ours[1]}, divided by", (f"{each} workers" for each in workers))]
    lines.append("|---|" + "---:|" * len(workers))
    for theirs in others:
        cells = (Ratios([_pair(name, each, ours, theirs) for name in names]) for each in workers)
        lines.append(_line(theirs[1], cells))
    return "\n".join(lines)


def by_task(
    names: Sequence[str],
    workers: Sequence[int],
    ours: tuple[Figures, str],
    theirs: tuple[Figures, str],
) -> str:
    """Return how a rule compares with another one on each task."""
    head = f"{ours[1]}, divided by {theirs[1]}"
    lines = [_line(head, (f"{each} workers" for each in workers))]
    lines.append("|---|" + "---:|" * len(workers))
    for name in names:
        cells = (Ratios([_pair(name, each, ours, theirs)]) for each in workers)
        lines.append(_line(name, cells))
    return "\n".join(lines)


def _line(head: str, cells: Iterator[object]) -> str:
    return f"| {head} | {' | '.join(map(str, cells))} |"


def _pair(
    name: str, workers: int, *of: tuple[Figures, str]
) -> tuple[Sequence[float], Sequence[float]]:
    one, other = (figures[name, workers, rule] for figures, rule in of)
    return one, other


def add_best(figures: Figures, owner: str, rules_of_it: Sequence[str]) -> str:
    """Add the rule that is the best one of an owner's on each task, which no user knows before."""
    best = f"best of {owner}'s"
    for name, workers in {(name, workers) for name, workers, _ in figures}:
        rows = [figures[name, workers, rule] for rule in rules_of_it]
        figures[name, workers, best] = min(rows, key=np.mean)
    return best


def main() -> None:
    """Measure, and print the comparisons."""
    options = _options()
    chosen = tasks.load(options.data, options.tasks)
    figures = measure(options, chosen)
    names = [*chosen]
    ours = [rule for rule in options.rules if ":" not in rule]
    if options.against is not None:
        before = dict(_read(options.against, options))
        for rule in ours:
            print(table(names, options.workers, (figures, rule), [(before, rule)]), end="\n\n")
            print(by_task(names, options.workers, (figures, rule), (before, rule)), end="\n\n")
        return
    owners: dict[str, list[str]] = {}
    for rule in options.rules:
        owners.setdefault(rule.rpartition(":")[0], []).append(rule)
    best = [add_best(figures, owner, of_it) for owner, of_it in owners.items() if owner]
    for rule in ours:
        others = [(figures, other) for other in (*options.rules, *best) if other != rule]
        print(table(names, options.workers, (figures, rule), others), end="\n\n")
    for theirs in best:
        print(by_task(names, options.workers, (figures, ours[0]), (figures, theirs)), end="\n\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How good is early stopping alone?")
    parser.add_argument("--data", type=Path, help="folder of further problems with curves")
    parser.add_argument("--tasks", nargs="+", default=[], help="only these")
    parser.add_argument("--rules", nargs="+", default=[*OWN, *OTHERS])
    parser.add_argument("--workers", nargs="+", type=int, default=[4, 16, 64])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--configurations", type=int, default=4000)
    parser.add_argument("--epochs", type=int, help="only the first epochs, as the full training")
    cluster.add_options(parser)
    parser.add_argument(
        "--no-checkpoints",
        dest="checkpoints",
        action="store_false",
        help="a trial whose worker has ended begins again",
    )
    parser.add_argument("--out", type=Path, help="add figures here, and run what it lacks")
    parser.add_argument("--against", type=Path, help="figures of another version")
    return parser.parse_args()


if __name__ == "__main__":
    main()

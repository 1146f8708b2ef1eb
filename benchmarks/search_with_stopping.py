"""Search and early stopping together: a comparison at equal numbers of epochs.

    .venv-peers/bin/python benchmarks/search_with_stopping.py --data DIR [--ways tpe+asha …]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import importlib.metadata
import itertools
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path[:0] = [  # the peers' environment does not have the project installed
    str(HERE.parent / "tuner"),
    str(HERE.parent / "tests" / "support"),
]

import numpy as np
from stopping import cluster, tasks, ways

FIRST_SEED = 500
BUDGET_TRAININGS = 20
CHECKPOINTS = (5, 10, 20)
LEAST_SCORE = -4.0
SHARE_OF_TASKS = 0.8

OWN = (
    "random+asha", "tpe+none", "tpe+asha", "tpe+hyperband", "tpe+asha-promote",
    "bayesian+none", "bayesian+asha", "bayesian+hyperband", "bayesian+asha-promote",
)  # fmt: skip
PEERS = tuple(
    f"optuna:{search}+{pruner}"
    for search in ("random", "tpe")
    for pruner in ("none", "median", "halving", "hyperband")
)


@dataclasses.dataclass(frozen=True, slots=True)
class Run:
    """Result of one study.

    Attributes:
        way: The search and the pruner.
        version: The version of the code that the result is valid for.
        task: The name of the task.
        workers: How many trials ran at once.
        seed: The seed.
        trials: The number of trials.
        improvements: Each time a better loss was seen: the epochs spent until then, and the loss.
    """

    way: str
    version: str
    task: str
    workers: int
    seed: int
    trials: int
    improvements: tuple[tuple[int, float], ...]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """Identity of the run: a second one with the same key is not needed."""
        return (self.way, self.version, self.task, self.workers, self.seed)

    def score(self, task: tasks.Task, epochs: int) -> float:
        """Return log10 of the regret divided by a median configuration's; lower is better."""
        loss = min((loss for at, loss in self.improvements if at <= epochs), default=task.median)
        regret = (loss - task.best) / (task.median - task.best)
        return max(math.log10(max(regret, 1e-300)), LEAST_SCORE)

    def until(self, task: tasks.Task) -> int:
        """Return the epochs until the loss that counts as found; all epochs if there was none."""
        return min(
            (at for at, loss in self.improvements if loss <= task.aim),
            default=BUDGET_TRAININGS * task.epochs,
        )


def main() -> None:
    """Measure what is missing, and print the tables."""
    options = _options()
    chosen = tasks.load(options.data, options.tasks)
    versions = {way: version(way) for way in options.ways}
    wanted = [
        (way, versions[way], task, options.workers, FIRST_SEED + seed)
        # Seed by seed, so that an interrupted run has compared everything with everything.
        for seed, task, way in itertools.product(range(options.seeds), chosen, options.ways)
    ]
    found = results(wanted, chosen, options.out)
    print(f"\n{options.workers} workers, {options.seeds} seeds, {BUDGET_TRAININGS} trainings\n")
    for task in chosen.values():
        print(table([run for run in found if run.task == task.name], task, options.ways))
        print()
    print("\n".join(goal_lines(found, chosen, options.ways)))


def results(
    wanted: Sequence[tuple[str, str, str, int, int]], chosen: Mapping[str, tasks.Task], path: Path
) -> list[Run]:
    """Return all wanted runs; those that the file lacks are run and added to it."""
    keys = set(wanted)
    known = {run.key: run for run in _read(path) if run.key in keys}
    print(f"{len(known)} of {len(keys)} runs are in {path}", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for key in wanted:
            if key in known:
                continue
            run = _run(key, chosen[key[2]])
            file.write(json.dumps(dataclasses.asdict(run)) + "\n")
            file.flush()
            known[key] = run
    return [known[key] for key in wanted]


def _run(key: tuple[str, str, str, int, int], task: tasks.Task) -> Run:
    way, version_of_it, _, workers, seed = key
    track: cluster.Track = ways.run(
        task,
        way,
        workers=workers,
        seed=seed,
        budget_epochs=BUDGET_TRAININGS * task.epochs,
        aim=-math.inf,
        world=cluster.World(),
    )
    improvements = tuple((epochs, loss) for epochs, _, loss in track.improvements)
    return Run(way, version_of_it, task.name, workers, seed, track.trials, improvements)


def _read(path: Path) -> Iterator[Run]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off when a run was interrupted
        improvements = tuple((epochs, loss) for epochs, loss in fields["improvements"])
        yield Run(**{**fields, "improvements": improvements})


def version(way: str) -> str:
    """Return the peer's version, or the fingerprint of our code, that a result is valid for."""
    whose, _, _ = way.rpartition(":")
    if whose:
        package = {"optuna": "optuna", "syne": "syne-tune"}[whose]
        return f"{package} {importlib.metadata.version(package)}"
    code = hashlib.sha256()
    for room in ("core", "samplers", "pruners"):
        for file in sorted((HERE.parent / "tuner" / "hptune" / room).glob("**/*.py")):
            code.update(file.read_bytes())
    return f"hptune {code.hexdigest()[:12]}"


def table(found: Sequence[Run], task: tasks.Task, chosen: Sequence[str]) -> str:
    """Return one task's scores as Markdown, with their standard errors."""
    lines = [
        f"| {task.name} | "
        + " | ".join(f"score @{mark}" for mark in CHECKPOINTS)
        + " | epochs until found | trials |",
        "|---" * (len(CHECKPOINTS) + 3) + "|",
    ]
    for way in chosen:
        of_way = [run for run in found if run.way == way]
        cells = [
            f"{mean(scores):.2f} ± {error(scores):.2f}"
            for mark in CHECKPOINTS
            if (scores := [run.score(task, mark * task.epochs) for run in of_way])
        ]
        until = [run.until(task) for run in of_way]
        cells += [
            f"{mean(until):.0f} ± {error(until):.0f}",
            f"{mean([run.trials for run in of_way]):.0f}",
        ]
        lines.append(f"| {way} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def goal_lines(
    found: Sequence[Run], chosen: Mapping[str, tasks.Task], asked: Sequence[str]
) -> list[str]:
    """Return on what share of the given tasks each of our ways beats the best of the peers'."""
    given = [task for task in chosen.values() if task.name not in tasks.OWN]
    ours = [way for way in asked if ":" not in way]
    peers = [way for way in asked if way.startswith("optuna:")]
    if not (given and peers):
        return []
    lines = []
    for way in ours:
        better = []
        for task in given:
            scores = {
                each: mean(
                    [
                        run.score(task, BUDGET_TRAININGS * task.epochs)
                        for run in found
                        if (run.way, run.task) == (each, task.name)
                    ]
                )
                for each in (way, *peers)
            }
            if scores[way] < min(scores[each] for each in peers):
                better.append(task.name)
        share = len(better) / len(given)
        word = "met" if share >= SHARE_OF_TASKS else "MISSED"
        lines.append(
            f"- {word}: {way} is better than Optuna's best on {share:.0%} of {len(given)} tasks "
            f"(goal: {SHARE_OF_TASKS:.0%})"
        )
    return lines


def mean(values: Sequence[float]) -> float:
    """Return the mean."""
    return statistics.fmean(values)


def error(values: Sequence[float]) -> float:
    """Return the standard error of the mean."""
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, help="folder of further problems with curves")
    parser.add_argument("--tasks", nargs="+", default=[], help="only these")
    parser.add_argument("--ways", nargs="+", default=[*OWN, *PEERS], metavar="SEARCH+PRUNER")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=HERE / "results/search_with_stopping.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""Quality of searches: a comparison by the number of trials, on given problems.

    .venv-peers/bin/python benchmarks/search_quality.py --data DIR [--samplers tpe,optuna-tpe]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent / "tuner")
)  # the peers' environment does not have the project installed

from quality import figures, opponents, problems, workers

from hptune.core.trial import Params

FIRST_SEED = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One search on one problem, to be run."""

    folder: Path
    sampler: str
    version: str
    problem: str
    workers: int
    seed: int
    trials: int


def main() -> None:
    options = _options()
    folder = problems.load(options.data)
    names = options.problems or list(folder.SEARCH)
    # Once, at the start: what runs is the code as it was then, even if its files change.
    versions = {sampler: opponents.version(sampler) for sampler in options.samplers}
    wanted = [
        Task(
            options.data,
            sampler,
            versions[sampler],
            problem,
            count,
            FIRST_SEED + seed,
            options.trials,
        )
        # Seed by seed, so that an interrupted run has compared everything with everything.
        for seed, count, problem, sampler in itertools.product(
            range(options.seeds), options.workers, names, options.samplers
        )
    ]
    runs = _results(wanted, options.out, options.jobs)
    floors = {name: problems.floor(folder.get(name)) for name in names}
    panels = {}
    for count in options.workers:
        of_count = [run for run in runs if run.workers == count]
        by_sampler = figures.cubes(of_count, floors)
        by_sampler = {name: by_sampler[name] for name in options.samplers}
        panels[count] = by_sampler
        cpu = {
            name: sum(run.cpu_seconds for run in of_count if run.sampler == name)
            / sum(len(run.scores) for run in of_count if run.sampler == name)
            for name in options.samplers
        }
        failed = {
            name: [len(run.failures) for run in of_count if run.sampler == name]
            for name in options.samplers
        }
        how = "One after the other" if count == 1 else f"{count} workers"
        print(f"\n**{how}**, {len(names)} problems, {options.seeds} seeds\n")
        print(figures.table(by_sampler, cpu, failed))
        print()
        if len(by_sampler) > 1:
            print(figures.difference_table(by_sampler))
            print()
        print(figures.problem_table(by_sampler, floors))
    if options.plot:
        figures.plot(panels, options.plot)
        print(f"\nPlot: {options.plot}")


def _results(wanted: Sequence[Task], path: Path, jobs: int) -> list[figures.Run]:
    """Return all wanted runs; those that the file lacks are run and added to it."""
    keys = {(t.sampler, t.version, t.problem, t.workers, t.seed): t for t in wanted}
    known = {run.key: run for run in _read(path) if run.key in keys}
    missing = [task for key, task in keys.items() if key not in known]
    print(f"{len(known)} of {len(keys)} runs are in {path}; {len(missing)} to do", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for run in _done(missing, jobs):
            file.write(json.dumps(dataclasses.asdict(run)) + "\n")
            file.flush()
            known[run.key] = run
    return [known[key] for key in keys]


def _done(tasks: Sequence[Task], jobs: int) -> Iterator[figures.Run]:
    if jobs == 1:
        yield from map(_run, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(_run, tasks)


def _read(path: Path) -> Iterator[figures.Run]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        try:
            fields = json.loads(line)
        except json.JSONDecodeError:
            continue  # cut off when a run was interrupted
        if "workers" not in fields:
            continue  # of an earlier version, which had batches
        yield figures.Run(
            **{
                **fields,
                "scores": tuple(fields["scores"]),
                "failures": tuple(fields.get("failures", ())),
            }
        )


def _run(task: Task) -> figures.Run:
    problem = problems.load(task.folder).get(task.problem)
    space = problems.space_of(problem)
    best = math.inf
    scores: list[float] = []
    failures: list[int] = []
    search = _Timed(opponents.opponent(task.sampler, problem, space, seed=task.seed))
    for number, params in workers.ended_trials(
        search.ask,
        lambda params: problems.seconds(task.problem, problem, params),
        trials=task.trials,
        workers=task.workers,
    ):
        value = float(problem(dict(params)))
        search.tell(number, value)
        if math.isnan(value):
            failures.append(len(scores))
        else:
            best = min(best, value)
        scores.append(round(problems.score(problem, best), 4))
    return figures.Run(
        sampler=task.sampler,
        version=task.version,
        problem=task.problem,
        workers=task.workers,
        seed=task.seed,
        scores=tuple(scores),
        failures=tuple(failures),
        cpu_seconds=round(search.cpu_seconds, 5),
    )


class _Timed:
    """A search whose CPU time is counted."""

    def __init__(self, search: opponents.Opponent) -> None:
        self._search = search
        self.cpu_seconds = 0.0

    def ask(self, number: int) -> Params:
        begin = time.process_time()
        params = self._search.ask(number)
        self.cpu_seconds += time.process_time() - begin
        return params

    def tell(self, number: int, value: float) -> None:
        begin = time.process_time()
        self._search.tell(number, value)
        self.cpu_seconds += time.process_time() - begin


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the problems")
    parser.add_argument(
        "--samplers",
        type=lambda text: text.split(","),
        default=["tpe", "random", "optuna-tpe"],
        help=f"of {', '.join(opponents.NAMES)}; the first one is compared with the others",
    )
    parser.add_argument(
        "--problems", type=lambda text: text.split(","), help="default: SEARCH of the folder"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--trials", type=int, default=100, help="in each run")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8], help="trials at once")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", type=Path, default=HERE / "results/search_quality.jsonl")
    parser.add_argument("--plot", type=Path, help="where to draw; needs matplotlib")
    options = parser.parse_args()
    if unknown := [name for name in options.samplers if not opponents.is_known(name)]:
        parser.error(f"unknown: {', '.join(unknown)}; known are {', '.join(opponents.NAMES)}")
    return options


if __name__ == "__main__":
    main()

"""Runs of searches: their options, their file, and the tables of their scores."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from hptune.core.trial import Params

from . import figures, opponents, workers

FIRST_SEED = 1000


@dataclasses.dataclass(frozen=True, slots=True)
class Task:
    """One search on one problem, to be run."""

    folder: Path | None
    sampler: str
    version: str
    problem: str
    workers: int
    seed: int
    trials: int


def wanted(options: argparse.Namespace, problems: Sequence[str]) -> list[Task]:
    """Return the runs that the options ask for.

    They are in the order of the seeds, so that an interrupted run has compared everything with
    everything.
    """
    # Once, at the start: what runs is the code as it was then, even if its files change.
    versions = {sampler: opponents.version(sampler) for sampler in options.samplers}
    return [
        Task(
            options.data,
            sampler,
            versions[sampler],
            problem,
            count,
            FIRST_SEED + seed,
            options.trials,
        )
        for seed, count, problem, sampler in itertools.product(
            range(options.seeds), options.workers, problems, options.samplers
        )
    ]


def results(
    tasks: Sequence[Task], path: Path, jobs: int, run: Callable[[Task], figures.Run]
) -> list[figures.Run]:
    """Return all runs; those that the file lacks are run and added to it."""
    keys = {(t.sampler, t.version, t.problem, t.workers, t.seed): t for t in tasks}
    known = {each.key: each for each in _read(path) if each.key in keys}
    missing = [task for key, task in keys.items() if key not in known]
    print(f"{len(known)} of {len(keys)} runs are in {path}; {len(missing)} to do", flush=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        for each in _done(missing, jobs, run):
            file.write(json.dumps(dataclasses.asdict(each)) + "\n")
            file.flush()
            known[each.key] = each
    return [known[key] for key in keys]


def _done(
    tasks: Sequence[Task], jobs: int, run: Callable[[Task], figures.Run]
) -> Iterator[figures.Run]:
    if jobs == 1:
        yield from map(run, tasks)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run, tasks)


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
        several = ("scores", "failures", "costs")
        yield figures.Run(**{**fields, **{name: tuple(fields.get(name, ())) for name in several}})


def run(
    task: Task,
    search: opponents.Opponent,
    values: Callable[[Params], tuple[float, ...]],
    seconds: Callable[[Params], float],
) -> tuple[list[tuple[float, ...]], float]:
    """Return the values of each trial, in the order of their ends, and the search's CPU time."""
    found = []
    timed = _Timed(search)
    for number, params in workers.ended_trials(
        timed.ask, seconds, trials=task.trials, workers=task.workers
    ):
        found.append(values(params))
        timed.tell(number, *found[-1])
    return found, round(timed.cpu_seconds, 5)


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

    def tell(self, number: int, *values: float) -> None:
        begin = time.process_time()
        self._search.tell(number, *values)
        self.cpu_seconds += time.process_time() - begin


def print_tables(
    runs: Sequence[figures.Run],
    options: argparse.Namespace,
    floors: Mapping[str, float],
    what: str = "",
) -> dict[int, dict[str, figures.Cube]]:
    """Print the figures for each number of workers, and return the scores.

    Args:
        runs: The runs of the problems.
        options: Those of the command.
        floors: The floor of each problem.
        what: What the title says beyond numbers of workers, problems and seeds.
    """
    panels = {}
    for count in options.workers:
        of_count = [run for run in runs if run.workers == count]
        cubes = figures.cubes(of_count, floors)
        panels[count] = by_sampler = {name: cubes[name] for name in options.samplers}
        cpu, failed = {}, {}
        for name in options.samplers:
            mine = [run for run in of_count if run.sampler == name]
            cpu[name] = sum(run.cpu_seconds for run in mine) / sum(len(run.scores) for run in mine)
            failed[name] = [len(run.failures) for run in mine]
        how = "One after the other" if count == 1 else f"{count} workers"
        print(f"\n**{how}**{what}, {len(floors)} problems, {options.seeds} seeds\n")
        print(figures.table(by_sampler, cpu, failed))
        print()
        if len(by_sampler) > 1:
            print(figures.difference_table(by_sampler))
            print()
        print(figures.problem_table(by_sampler, floors))
    return panels


def parser(description: str, *, out: Path, data_is_needed: bool = True) -> argparse.ArgumentParser:
    """Return the parser of the options that the comparisons share."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument(
        "--data", type=Path, required=data_is_needed, help="the folder of the problems"
    )
    found.add_argument(
        "--samplers",
        type=lambda text: text.split(","),
        default=["tpe", "random", "optuna-tpe"],
        help=f"of {', '.join(opponents.NAMES)}; the first one is compared with the others",
    )
    found.add_argument("--problems", type=lambda text: text.split(","), help="default: all")
    found.add_argument("--seeds", type=int, default=20)
    found.add_argument("--trials", type=int, default=100, help="in each run")
    found.add_argument("--workers", type=int, nargs="+", default=[1, 8], help="trials at once")
    found.add_argument("--jobs", type=int, default=1, help="runs at a time")
    found.add_argument("--out", type=Path, default=out)
    return found


def parsed(found: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the options; the searches are known."""
    options = found.parse_args()
    if unknown := [name for name in options.samplers if not opponents.is_known(name)]:
        found.error(f"unknown: {', '.join(unknown)}; known are {', '.join(opponents.NAMES)}")
    return options

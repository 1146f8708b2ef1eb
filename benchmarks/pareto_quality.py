"""Several objectives: a comparison of how fast searches cover the Pareto front.

    .venv-peers/bin/python benchmarks/pareto_quality.py [--data DIR] [--samplers tpe,optuna-tpe]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent / "tuner")
)  # the peers' environment does not have the project installed

from quality import functions, opponents, problems, runs, several, trainings
from quality.figures import Run

_FRONT = "front"
"""Instead of a search's name: the known front."""


def main() -> None:
    """Measure, and print the tables."""
    parser = runs.parser(
        "Who covers the Pareto front in fewer trials?",
        out=HERE / "results/pareto_quality.jsonl",
        data_is_needed=False,
    )
    options = runs.parsed(parser)
    every = (*functions.functions(), *trainings.TRAININGS)
    names = options.problems or [*every, *(several.OF_FOLDER if options.data else ())]
    measured = _measured(options, names)
    found = [
        replace(run, costs=run.costs[: options.trials])
        for run in runs.results(runs.wanted(options, names), options.out, options.jobs, _run)
    ]
    for objectives in (2, 3):
        group = {n: p for n, p in measured.items() if len(p.front[0]) == objectives}
        title = f", {objectives} objectives"
        _print(found, options, group, title)
        by_ratio = {
            name: replace(problem, front=tuple(map(problem.by_ratio, problem.front)))
            for name, problem in group.items()
            if problem.ratios
        }
        of_ratios = [
            replace(run, costs=tuple(map(by_ratio[run.problem].by_ratio, run.costs)))
            for run in found
            if run.problem in by_ratio
        ]
        _print(of_ratios, options, by_ratio, f"{title}, sizes and times by their ratios")


def _measured(options: argparse.Namespace, names: Sequence[str]) -> dict[str, several.Problem]:
    """Return the problems with their fronts, which are in the file of the runs."""
    known = {name: _problem(options.data, name) for name in names}
    tasks = []
    for name in [name for name, problem in known.items() if not problem.front]:
        trials = several.TRAININGS if name in trainings.TRAININGS else several.EVALUATIONS
        tasks.append(runs.Task(options.data, _FRONT, str(trials), name, 1, 0, trials))
    for run in runs.results(tasks, options.out, options.jobs, _front):
        known[run.problem] = replace(known[run.problem], front=run.costs)
    return known


def _print(
    found: Sequence[Run],
    options: argparse.Namespace,
    measured: Mapping[str, several.Problem],
    title: str,
) -> None:
    """Print the percentage of the fronts that is missing."""
    scored = [
        replace(run, scores=measured[run.problem].missing(run.costs))
        for run in found
        if run.problem in measured
    ]
    if scored:
        runs.print_tables(scored, options, dict.fromkeys(measured, 0.0), title)


def _problem(folder: Path | None, name: str) -> several.Problem:
    known = {**functions.functions(), **trainings.TRAININGS}
    if name in known:
        return known[name]
    if folder is None or name not in several.OF_FOLDER:
        every = ", ".join((*known, *several.OF_FOLDER))
        sys.exit(f"error: there is no problem {name} without --data; with it there are {every}")
    return several.of_folder(folder, name)


def _front(task: runs.Task) -> Run:
    front = several.known_front(_problem(task.folder, task.problem), task.trials)
    return _result(task, front, 0.0)


def _run(task: runs.Task) -> Run:
    problem = _problem(task.folder, task.problem)
    objectives = len(problem.costs(problem.space.defaults()))
    search = opponents.opponent(
        task.sampler, None, problem.space, seed=task.seed, objectives=objectives
    )
    found, cpu_seconds = runs.run(
        task,
        search,
        problem.costs,
        lambda params: problems.seconds(task.problem, problem.source, params),
    )
    return _result(task, found, cpu_seconds)


def _result(task: runs.Task, costs: Sequence[several.Costs], cpu_seconds: float) -> Run:
    return Run(
        sampler=task.sampler,
        version=task.version,
        problem=task.problem,
        workers=task.workers,
        seed=task.seed,
        scores=(),
        failures=(),
        cpu_seconds=cpu_seconds,
        costs=tuple(costs),
    )


if __name__ == "__main__":
    main()

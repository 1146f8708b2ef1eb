"""Quality of searches: a comparison by the number of trials, on given problems.

    .venv-peers/bin/python benchmarks/search_quality.py --data DIR [--samplers tpe,optuna-tpe]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent / "tuner")
)  # the peers' environment does not have the project installed

from quality import figures, opponents, problems, runs


def main() -> None:
    parser = runs.parser(
        "Who finds better configurations in fewer trials?",
        out=HERE / "results/search_quality.jsonl",
    )
    parser.add_argument("--plot", type=Path, help="where to draw; needs matplotlib")
    options = runs.parsed(parser)
    folder = problems.load(options.data)
    names = options.problems or list(folder.SEARCH)
    found = runs.results(runs.wanted(options, names), options.out, options.jobs, _run)
    floors = {name: problems.floor(folder.get(name)) for name in names}
    panels = runs.print_tables(found, options, floors)
    if options.plot:
        figures.plot(panels, options.plot)
        print(f"\nPlot: {options.plot}")


def _run(task: runs.Task) -> figures.Run:
    assert task.folder is not None
    problem = problems.load(task.folder).get(task.problem)
    search = opponents.opponent(task.sampler, problem, problems.space_of(problem), seed=task.seed)
    values, cpu_seconds = runs.run(
        task,
        search,
        lambda params: (float(problem(dict(params))),),
        lambda params: problems.seconds(task.problem, problem, params),
    )
    best = math.inf
    scores = []
    for (value,) in values:
        best = min(best, math.inf if math.isnan(value) else value)
        scores.append(round(problems.score(problem, best), 4))
    return figures.Run(
        sampler=task.sampler,
        version=task.version,
        problem=task.problem,
        workers=task.workers,
        seed=task.seed,
        scores=tuple(scores),
        failures=tuple(place for place, (value,) in enumerate(values) if math.isnan(value)),
        cpu_seconds=cpu_seconds,
    )


if __name__ == "__main__":
    main()

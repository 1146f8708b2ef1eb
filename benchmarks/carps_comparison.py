"""hptune's searches on the subsets of carps, beside optimisers that carps brings.

    .venv-carps/bin/python benchmarks/carps_comparison.py [--subset dev] [--seeds 20]

See benchmarks/README.md for what is measured and what has to be installed.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib.metadata
import io
import itertools
import json
import logging
import math
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tuner"))  # hptune is not installed beside carps

import carps
import numpy as np
from carps.utils.trials import TrialInfo
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from quality import figures, opponents
from quality.carps_bridge import HptuneOptimizer

OWN = "hptune/"
PACKAGES = {"optuna": "optuna", "scikit_optimize": "scikit-optimize", "smac20": "smac"}
SUBSETS = Path(carps.__file__).parent / "configs/task/subselection/blackbox"
LEAST_SCORE = -4.0


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One run of one optimiser on one task.

    Attributes:
        optimizer: The optimiser, as `--optimizers` names it.
        version: The version of the code that the result is valid for.
        task: The task's name.
        seed: The seed of the task and the optimiser.
        costs: The cost of each trial; NaN if it failed.
        cpu_seconds: CPU time of the run, with the evaluations.
    """

    optimizer: str
    version: str
    task: str
    seed: int
    costs: tuple[float, ...]
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, str, str, int]:
        return (self.optimizer, self.version, self.task, self.seed)


class Costs(list[float]):
    """The costs of a run's trials, as a logger of carps."""

    def log_trial(self, *, trial_value: Any, **_: object) -> None:
        self.append(float(trial_value.cost))

    def log_incumbent(self, *_: object) -> None:
        """Do nothing: the costs tell which trial is the best."""


def main() -> None:
    options = _options()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with initialize_config_module(config_module="carps.configs", version_base=None):
        names = options.tasks or sorted(path.stem for path in (SUBSETS / options.subset).iterdir())
        tasks = [name for name in names if _is_there(options.subset, name)]
        print(f"{len(tasks)} of {len(names)} tasks can be run here")
        results = _results(options, tasks)
    by_optimizer = figures.cubes(_runs(results), dict.fromkeys(tasks, LEAST_SCORE))
    if not by_optimizer:
        sys.exit("error: there is nothing to compare; install a benchmark of carps")
    by_optimizer = {name: by_optimizer[name] for name in options.optimizers}
    cpu, failed = {}, {}
    for name in options.optimizers:
        own = [result for result in results if result.optimizer == name]
        cpu[name] = sum(r.cpu_seconds for r in own) / sum(len(r.costs) for r in own)
        failed[name] = [sum(map(math.isnan, r.costs)) for r in own]
    print(
        f"\n**{options.subset}**, {len(tasks)} tasks, {options.seeds} seeds; @: % of the trials\n"
    )
    print(figures.table(by_optimizer, cpu, failed), end="\n\n")
    if len(by_optimizer) > 1:
        print(figures.difference_table(by_optimizer), end="\n\n")
    print(figures.problem_table(by_optimizer, dict.fromkeys(tasks, LEAST_SCORE)))


def _is_there(subset: str, name: str) -> bool:
    """Return whether a task can be evaluated; print the reason if it cannot."""
    try:
        task, _ = _task(subset, name, "randomsearch/config", seed=1, folder="")
        config = task.objective_function.configspace.get_default_configuration()
        task.objective_function.evaluate(TrialInfo(config=config))
    except Exception as error:  # whatever a benchmark raises without its package or data
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        print(f"left out: {name}: {cause}")
        return False
    return True


def _task(subset: str, name: str, optimizer: str, *, seed: int, folder: str) -> tuple[Any, Any]:
    """Return the task and the configuration, as `carps.run` makes them."""
    overrides = [
        f"+task/subselection/blackbox/{subset}={name}",
        f"+optimizer/{optimizer.replace('/', '=')}",
        f"seed={seed}",
        f"outdir={folder}",
    ]
    config = compose("base", overrides=overrides)
    with contextlib.redirect_stdout(io.StringIO()):  # requests to cite the benchmarks
        return instantiate(config.task), config


def _results(options: argparse.Namespace, tasks: Sequence[str]) -> list[Result]:
    """Return all wanted results; those that the file lacks are measured and added to it."""
    known = {result.key: result for result in _read(options.out)}
    versions = {name: _version(name) for name in options.optimizers}
    wanted = [
        (name, versions[name], task, seed)
        for seed, task, name in itertools.product(
            range(1, options.seeds + 1), tasks, options.optimizers
        )
    ]
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("a") as file:
        for key in wanted:
            if key not in known:
                known[key] = _run(options.subset, *key)
                file.write(json.dumps(dataclasses.asdict(known[key])) + "\n")
                file.flush()
    return [known[key] for key in wanted]


def _read(path: Path) -> Iterator[Result]:
    if not path.exists():
        return
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # cut off when a run was interrupted
            fields = json.loads(line)
            yield Result(**{**fields, "costs": tuple(fields["costs"])})


def _version(name: str) -> str:
    """Return what a result is valid for: our code's fingerprint, or the versions of the peer."""
    if name.startswith(OWN):
        return opponents.version(name.removeprefix(OWN))
    package = PACKAGES.get(name.partition("/")[0])
    named = ["carps", *([package] if package else [])]
    return " ".join(f"{each} {importlib.metadata.version(each)}" for each in named)


def _run(subset: str, name: str, version: str, task_name: str, seed: int) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        is_own = name.startswith(OWN)
        peer = "randomsearch/config" if is_own else name
        task, config = _task(subset, task_name, peer, seed=seed, folder=folder)
        costs = Costs()
        task.objective_function.loggers.append(costs)
        begin = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            if is_own:
                optimizer: Any = HptuneOptimizer(task, sampler=name.removeprefix(OWN), seed=seed)
            else:
                optimizer = instantiate(config.optimizer)(task=task, loggers=[])
            optimizer.run()
        spent = time.process_time() - begin
    return Result(name, version, task_name, seed, tuple(costs), round(spent, 3))


def _runs(results: Sequence[Result]) -> Iterator[figures.Run]:
    """Yield the results with a score for each per cent of the trials.

    The score is that of search_quality.py. The best known cost is the best one of this comparison,
    and the random draws are the first ten trials of all its runs, of which most are random.
    """
    best_costs: dict[str, float] = {}
    drawn: dict[str, list[float]] = {}
    for result in results:
        known = best_costs.get(result.task, math.inf)
        best_costs[result.task] = float(np.fmin(known, np.nanmin(result.costs)))
        drawn.setdefault(result.task, []).extend(result.costs[:10])
    for result in results:
        low, high = best_costs[result.task], np.nanmedian(drawn[result.task])
        best = np.fmin.accumulate(np.array(result.costs))
        places = np.ceil(np.arange(1, 101) / 100 * len(best)).astype(int) - 1
        regrets = (best[places] - low) / (high - low)
        scores = np.log10(np.fmax(regrets, 10.0**LEAST_SCORE))
        yield figures.Run(
            sampler=result.optimizer,
            version=result.version,
            problem=result.task,
            workers=1,
            seed=result.seed,
            scores=tuple(scores.tolist()),
            failures=(),
            cpu_seconds=result.cpu_seconds,
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--subset", choices=("dev", "test"), default="dev", help="of blackbox")
    parser.add_argument(
        "--optimizers",
        type=lambda text: text.split(","),
        default=["hptune/bayesian", "hptune/tpe", "optuna/SO_TPE", "smac20/blackbox"],
        help="hptune/SAMPLER or a configuration of carps; the first is compared with the others",
    )
    parser.add_argument("--tasks", type=lambda text: text.split(","), help="default: all")
    parser.add_argument("--seeds", type=int, default=20, help="from 1 on, as in carps")
    parser.add_argument("--out", type=Path, default=HERE / "results/carps_comparison.jsonl")
    return parser.parse_args()


if __name__ == "__main__":
    main()

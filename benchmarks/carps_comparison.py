"""hptune's searches on the subsets of carps, beside optimisers that carps brings.

    .venv-carps/bin/python benchmarks/carps_comparison.py [--subset blackbox/dev] [--seeds 20]

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
from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "tuner"))  # hptune is not installed beside carps

import carps
import numpy as np
from carps.utils.pareto_front import pareto
from carps.utils.trials import TrialInfo
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from pymoo.indicators.hv import HV
from quality import figures, opponents
from quality.carps_bridge import HptuneOptimizer

OWN = "hptune/"
PACKAGES = {"optuna": "optuna", "scikit_optimize": "scikit-optimize", "smac20": "smac"}
SUBSELECTION = Path(carps.__file__).parent / "configs/task/subselection"
LEAST_SCORE = -4.0

Costs = tuple[float, ...]
"""The costs of a trial, one for each objective."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """One run of one optimiser on one task.

    Attributes:
        optimizer: The optimiser, as `--optimizers` names it.
        version: The version of the code that the result is valid for.
        task: The task's name.
        seed: The seed of the task and the optimiser.
        costs: The costs of each trial; NaN if it failed.
        cpu_seconds: CPU time of the run, with the evaluations.
    """

    optimizer: str
    version: str
    task: str
    seed: int
    costs: tuple[Costs, ...]
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, str, str, int]:
        return (self.optimizer, self.version, self.task, self.seed)


class Log(list[Costs]):
    """The costs of a run's trials, as a logger of carps."""

    def log_trial(self, *, trial_value: Any, **_: object) -> None:
        self.append(tuple(map(float, np.ravel(trial_value.cost))))

    def log_incumbent(self, *_: object) -> None:
        """Do nothing: the costs tell which trial is the best."""


def main() -> None:
    options = _options()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    with initialize_config_module(config_module="carps.configs", version_base=None):
        folder = SUBSELECTION / options.subset
        names = options.tasks or sorted(path.stem for path in folder.iterdir())
        optima = _optima(options.subset, names)
        print(f"{len(optima)} of {len(names)} tasks can be run here")
        if not optima:
            sys.exit("error: there is nothing to compare; install a benchmark of carps")
        results = _results(options, list(optima))
    families = sorted({_family(name) for name in optima})
    for family in [None, *families] if len(families) > 1 else [None]:
        chosen = [each for each in results if family in (None, _family(each.task))]
        print(
            f"\n## {options.subset}, {family or 'all'}, {options.seeds} seeds; @: % of the trials\n"
        )
        _report(chosen, options.optimizers, optima)


def _family(task: str) -> str:
    return task.split("_")[1]


def _report(
    results: Sequence[Result], optimizers: Sequence[str], optima: dict[str, float | None]
) -> None:
    floors = {result.task: LEAST_SCORE for result in results}
    unordered = figures.cubes(_runs(results, optima), floors)
    by_optimizer = {name: unordered[name] for name in optimizers}
    cpu, failed = {}, {}
    for name in optimizers:
        own = [result for result in results if result.optimizer == name]
        cpu[name] = sum(r.cpu_seconds for r in own) / sum(len(r.costs) for r in own)
        failed[name] = [sum(math.isnan(max(costs)) for costs in r.costs) for r in own]
    print(figures.table(by_optimizer, cpu, failed), end="\n\n")
    if len(by_optimizer) > 1:
        print(figures.difference_table(by_optimizer), end="\n\n")
        print(figures.tally_table(by_optimizer), end="\n\n")
    print(figures.problem_table(by_optimizer, floors))


def _optima(subset: str, names: Sequence[str]) -> dict[str, float | None]:
    """Return the least cost, if it is known, of each task that can be evaluated.

    The reasons why others cannot are printed.
    """
    found: dict[str, float | None] = {}
    for name in names:
        try:
            task, _ = _task(subset, name, "randomsearch/config", seed=1, folder="")
            function = task.objective_function
            config = function.configspace.get_default_configuration()
            function.evaluate(TrialInfo(config=config))
            found[name] = function.f_min
        except Exception as error:  # whatever a benchmark raises without its package or data
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            print(f"left out: {name}: {cause}")
    return found


def _task(subset: str, name: str, optimizer: str, *, seed: int, folder: str) -> tuple[Any, Any]:
    """Return the task and the configuration, as `carps.run` makes them."""
    overrides = [
        f"+task/subselection/{subset}={name}",
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
            yield Result(**{**fields, "costs": tuple(map(tuple, fields["costs"]))})


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
        log = Log()
        task.objective_function.loggers.append(log)
        begin = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()):
            if is_own:
                optimizer: Any = HptuneOptimizer(task, sampler=name.removeprefix(OWN), seed=seed)
            else:
                optimizer = instantiate(config.optimizer)(task=task, loggers=[])
            optimizer.run()
        spent = time.process_time() - begin
    return Result(name, version, task_name, seed, tuple(log), round(spent, 3))


def _runs(results: Sequence[Result], optima: dict[str, float | None]) -> Iterator[figures.Run]:
    """Yield the results with a score for each per cent of the trials.

    The score is the logarithm of what is missing to the best that is known.
    """
    by_task: dict[str, list[Result]] = {}
    for result in results:
        by_task.setdefault(result.task, []).append(result)
    for task, own in by_task.items():
        several = len(own[0].costs[0]) > 1
        missing = _missing_volumes(own) if several else _regrets(own, optima[task])
        for result, each in zip(own, missing, strict=True):
            yield figures.Run(
                sampler=result.optimizer,
                version=result.version,
                problem=task,
                workers=1,
                seed=result.seed,
                scores=tuple(np.log10(np.fmax(each, 10.0**LEAST_SCORE)).tolist()),
                failures=(),
                cpu_seconds=result.cpu_seconds,
            )


def _regrets(results: Sequence[Result], optimum: float | None) -> list[list[float]]:
    """Return (best cost - best known) / (median of random draws - best known) of each run.

    If the optimum is not known, it is the least cost of these runs. The random draws are the first
    ten trials of all runs, of which most are random.
    """
    costs = [np.array(result.costs)[:, 0] for result in results]
    low = min(float(np.nanmin(each)) for each in costs) if optimum is None else optimum
    high = float(np.nanmedian(np.concatenate([each[:10] for each in costs])))
    bests = [np.fmin.accumulate(each) for each in costs]
    return [[(best[place] - low) / (high - low) for place in _places(best)] for best in bests]


def _missing_volumes(results: Sequence[Result]) -> list[list[float]]:
    """Return the share of the hypervolume that each run does not dominate.

    The whole is what all runs dominate together, and the reference the worst cost of all runs in
    each objective. The volumes are those of costs between 0 (the best of all) and 1.
    """
    costs = [np.array(result.costs) for result in results]
    every = np.concatenate(costs)
    low, high = np.nanmin(every, axis=0), np.nanmax(every, axis=0)
    volume = HV(ref_point=np.ones(len(low)))
    scaled = [np.nan_to_num((each - low) / (high - low), nan=1.0) for each in costs]
    fronts = [each[pareto(each)] for each in scaled]
    whole = volume(np.concatenate(fronts))
    missing = []
    for each in scaled:
        places = _places(each)
        volumes = {place: volume(each[: place + 1]) for place in {*places}}
        missing.append([1 - volumes[place] / whole for place in places])
    return missing


def _places(trials: Sized) -> list[int]:
    """Return the place of the last trial of each per cent of the trials."""
    return [math.ceil(percent / 100 * len(trials)) - 1 for percent in range(1, 101)]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    subsets = [
        f"{kind}/{half}" for kind in ("blackbox", "multiobjective") for half in ("dev", "test")
    ]
    parser.add_argument("--subset", choices=subsets, default=subsets[0])
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

"""Two objectives: a comparison of how fast searches cover the Pareto front.

    .venv-peers/bin/python benchmarks/pareto_quality.py [--samplers tpe,optuna-tpe] [--seeds 10]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import os
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
HERE = Path(__file__).parent
sys.path.insert(
    0, str(HERE.parent / "tuner")
)  # the peers' environment does not have the project installed

from hptune.core.space.space import ChoiceParameter, FloatParameter, Parameter, Scale, SearchSpace
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.samplers.registry import SamplerOptions, make_sampler

TRIALS = 100
SHOWN = (25, 50, 100)
FIRST_SEED = 3000
OWN = ("tpe", "bayesian", "random", "sobol")
OPTUNA = ("optuna-tpe", "optuna-nsga2", "optuna-gp")

Costs = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with two costs, both to be minimised.

    Attributes:
        space: The search space.
        costs: Returns the two costs of a configuration.
        reference: The reference point of the hypervolume; costs beyond it do not count.
        most: The hypervolume of a perfect front.
    """

    space: SearchSpace
    costs: Callable[[Params], Costs]
    reference: Costs
    most: float


def _zdt(front: Callable[[float, float], float]) -> Callable[[Params], Costs]:
    """Return a problem of Zitzler, Deb and Thiele 2000, section 3, with fewer variables."""

    def costs(params: Params) -> Costs:
        first, *rest = (float(params[name] or 0) for name in _NAMES)
        g = 1 + 9 * sum(rest) / len(rest)
        return first, g * front(first, g)

    return costs


def _network(params: Params) -> Costs:
    """Imitate a network's error and its size: mixed kinds, on very different scales."""
    width, depth = float(params["width"] or 0), float(params["depth"] or 0)
    rate = math.log10(float(params["rate"] or 0))
    size = width * depth + (width**2 if params["kind"] == "dense" else 4 * width)
    best = -2.5 - 0.5 * depth / 8
    error = 0.05 + 0.6 / (1 + size / 500) + 0.1 * (rate - best) ** 2
    return (error if params["kind"] == "dense" else 0.9 * error + 0.03), size


_NAMES = tuple(f"x{i}" for i in range(5))
_CUBE = SearchSpace(tuple(FloatParameter(name, 0.0, 1.0) for name in _NAMES))
_NETWORK = SearchSpace(
    (
        FloatParameter("width", 1.0, 128.0),
        FloatParameter("depth", 1.0, 8.0),
        FloatParameter("rate", 1e-5, 1e-1, scale=Scale.LOG),
        ChoiceParameter("kind", ("dense", "sparse")),
    )
)


def covered(costs: Sequence[Costs], reference: Costs) -> float:
    """Return the hypervolume: the area that these costs dominate, up to the reference."""
    area, height = 0.0, reference[1]
    for first, second in sorted(costs):
        if first < reference[0] and second < height:
            area += (reference[0] - first) * (height - second)
            height = second
    return area


@functools.cache
def problems() -> dict[str, Problem]:
    """Return the problems by name."""
    shapes: dict[str, Callable[[float, float], float]] = {
        "zdt1": lambda first, g: 1 - math.sqrt(first / g),
        "zdt2": lambda first, g: 1 - (first / g) ** 2,
        "zdt3": lambda first, g: (
            1 - math.sqrt(first / g) - first / g * math.sin(10 * math.pi * first)
        ),
    }
    found = {}
    for name, shape in shapes.items():
        reference = (1.1, 2.0)
        front = [(i / 20_000, shape(i / 20_000, 1.0)) for i in range(20_001)]
        found[name] = Problem(_CUBE, _zdt(shape), reference, covered(front, reference))
    reference = (0.65, 5000.0)
    ends = itertools.product(range(1, 129), (1, 8), ("dense", "sparse"))
    front = [_network(_at_its_best(*end)) for end in ends]
    found["network"] = Problem(_NETWORK, _network, reference, covered(front, reference))
    return found


def _at_its_best(width: int, depth: int, kind: str) -> Params:
    return {"width": width, "depth": depth, "rate": 10 ** (-2.5 - 0.5 * depth / 8), "kind": kind}


# --- the searches -----------------------------------------------------------------------------


def _own(name: str, problem: Problem, seed: int, batch: int) -> list[Costs]:
    sampler = make_sampler(
        name,
        SamplerOptions(
            space=problem.space,
            seed=seed,
            directions=(Direction.MIN, Direction.MIN),
        ),
    )
    found: list[Costs] = []
    while len(found) < TRIALS:
        begin = len(found)
        asked = sampler.ask(range(begin, min(begin + batch, TRIALS)))
        for number, each in enumerate(asked, start=begin):
            sampler.tell(Trial(number, each.params, each.origin, TrialState.WAITING))
        for number, each in enumerate(asked, start=begin):
            first, second = problem.costs(each.params)
            state = TrialState.COMPLETE
            ended = Trial(number, each.params, each.origin, state, first, extra_values=(second,))
            sampler.tell(ended)
            found.append((first, second))
    return found


def _optuna(name: str, problem: Problem, seed: int, batch: int) -> list[Costs]:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers: Mapping[str, Callable[[], Any]] = {
        "optuna-tpe": lambda: optuna.samplers.TPESampler(seed=seed),
        "optuna-nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=20),
        "optuna-gp": lambda: optuna.samplers.GPSampler(seed=seed),
    }
    study = optuna.create_study(sampler=samplers[name](), directions=["minimize", "minimize"])
    found: list[Costs] = []
    while len(found) < TRIALS:
        trials = [study.ask() for _ in range(min(batch, TRIALS - len(found)))]
        params = [{p.name: _suggested(trial, p) for p in problem.space} for trial in trials]
        for trial, each in zip(trials, params, strict=True):
            found.append(problem.costs(each))
            study.tell(trial, found[-1])
    return found


def _suggested(trial: Any, p: Parameter) -> Any:
    if isinstance(p, FloatParameter):
        return trial.suggest_float(p.name, p.low, p.high, log=p.scale is Scale.LOG)
    return trial.suggest_categorical(p.name, list(p.values or ()))


def run(task: tuple[str, str, int, int]) -> list[float]:
    """Return the share of the front that is covered after each number of trials in `SHOWN`."""
    sampler, name, batch, seed = task
    problem = problems()[name]
    search = _optuna if sampler in OPTUNA else _own
    found = search(sampler, problem, FIRST_SEED + seed, batch)
    return [covered(found[:trials], problem.reference) / problem.most for trials in SHOWN]


def row(runs: Iterable[Iterable[Sequence[float]]]) -> list[str]:
    """Return the cells of a search: its mean shares on each problem, and their mean.

    Args:
        runs: For each problem, the shares of its runs after each budget.
    """
    means = [[statistics.mean(each) for each in zip(*shares, strict=True)] for shares in runs]
    overall = [statistics.mean(each) for each in zip(*means, strict=True)]
    cells = [" / ".join(f"{share:.0%}" for share in shares) for shares in means]
    return [*cells, " / ".join(f"{share:.1%}" for share in overall)]


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description="Who covers the Pareto front in fewer trials?")
    parser.add_argument(
        "--samplers",
        type=lambda text: text.split(","),
        default=["tpe", "bayesian", "random", "optuna-tpe", "optuna-nsga2"],
        help=f"of {', '.join((*OWN, *OPTUNA))}",
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], help="trials at once")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    options = parser.parse_args()
    if unknown := set(options.samplers) - {*OWN, *OPTUNA}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known are {', '.join(OWN + OPTUNA)}")
    names = list(problems())
    print("| trials at once | search | " + " | ".join(names) + " | mean |")
    print("|---:|---|" + "---|" * (len(names) + 1))
    with ProcessPoolExecutor(options.jobs) as pool:
        for batch, sampler in itertools.product(options.batch, options.samplers):
            cells = row(
                pool.map(run, [(sampler, name, batch, seed) for seed in range(options.seeds)])
                for name in names
            )
            print(f"| {batch} | {sampler} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Which configuration is chosen where results are noisy: confirmations and a race, compared.

    .venv/bin/python benchmarks/noisy_choice.py --data DIR [--search tpe] [--seeds 50]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import math
import os
import statistics
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from quality import figures, problems

from hptune.core.racing import to_repeat
from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.samplers.registry import SamplerOptions, make_sampler

FIRST_SEED = 1000
RECORDED = "recorded"
PROBLEMS = (
    *("branin", "hartmann6", "lcbench-189906", "lcbench-3945", "hpolib-protein_structure"),
    *("hpobench-vehicle", "rbv2_xgboost-16", "rbv2_xgboost-11"),
)
WITH_REPEATS = (
    *("hpolib-protein_structure", "hpolib-slice_localization"),
    *("nasbench201-imagenet", "hpobench-australian"),
)
CONFIRM, CONFIRM_REPEATS = 3, 2
_DRAWS = 1000
_GOOD = _DRAWS // 10


class NoisyProblem:
    """A problem whose results have noise, and a search of it without repeats.

    Args:
        problem: The problem, without noise.
        space: Its space.
        noise: Standard deviation of the noise, as a part of the spread among good configurations;
            None for one of the recorded trainings of a configuration, drawn at random.
        spread: That spread: the standard deviation of the best tenth of random configurations.
        search: The sampler's name.
        seed: The seed of search and noise.
    """

    def __init__(
        self,
        problem: Any,
        space: SearchSpace,
        *,
        noise: float | None,
        spread: float,
        search: str,
        seed: int,
    ) -> None:
        self._problem, self._noise, self.spread, self._seed = problem, noise, spread, seed
        options = SamplerOptions(space=space, seed=seed, directions=(Direction.MIN,))
        self._sampler: Sampler = make_sampler(search, options)
        self._asked: list[Params] = []
        self._trained: dict[tuple[int, int], float] = {}

    def training(self, number: int, repeat: int) -> float:
        """Return the result of a training of the n-th configuration; it is the same each time."""
        while number >= len(self._asked):
            new = len(self._asked)
            (suggestion,) = self._sampler.ask([new])
            self._asked.append(suggestion.params)
            value = self.training(new, 0)
            told = Trial(new, suggestion.params, suggestion.origin, TrialState.COMPLETE, value)
            self._sampler.tell(told)
        key = (number, repeat)
        if key not in self._trained:
            self._trained[key] = self._draw(self._asked[number], repeat)
        return self._trained[key]

    def _draw(self, params: Params, repeat: int) -> float:
        name = zlib.crc32(json.dumps(params, sort_keys=True).encode())
        rng = np.random.default_rng([self._seed, name, repeat])
        if self._noise is not None:
            normal = float(rng.standard_normal())
            return float(self._problem(dict(params))) + self._noise * self.spread * normal
        recorded = self._recorded(params)
        return recorded[rng.integers(len(recorded))]

    def _recorded(self, params: Params) -> list[float]:
        found = self._problem.rep[self._problem.key(params)]
        values = [float(value) for value in found if not math.isnan(value)]
        if self._problem.fam == "hpolib":
            return [math.log10(min(value, 1e6)) for value in values]
        return values

    @functools.cache  # noqa: B019 - one object for each run
    def truth(self, number: int) -> float:
        """Return the n-th configuration's value without noise."""
        params = self._asked[number]
        if self._noise is None:
            return statistics.fmean(self._recorded(params))
        return float(self._problem(dict(params)))


@dataclasses.dataclass(frozen=True, slots=True)
class Choice:
    """What a way chose.

    Attributes:
        number: The chosen configuration.
        tried: Number of configurations that were tried.
        trainings: Number of all trainings.
    """

    number: int
    tried: int
    trainings: int


def single(problem: NoisyProblem, trainings: int) -> Choice:
    """Train each configuration once; the best value wins."""
    values = [problem.training(number, 0) for number in range(trainings)]
    return Choice(int(np.argmin(values)), trainings, trainings)


def confirm(problem: NoisyProblem, trainings: int) -> Choice:
    """Train the best again at the end; the best mean of the repeats wins (`--confirm 3`)."""
    tried = trainings - CONFIRM * CONFIRM_REPEATS
    best = np.argsort([problem.training(n, 0) for n in range(tried)], kind="stable")[:CONFIRM]
    chosen = _best_mean(problem, {int(n): 1 + CONFIRM_REPEATS for n in best})
    return Choice(chosen, tried, trainings)


def race(problem: NoisyProblem, tried: int, *, most: int, room: int) -> Choice:
    """Train those again that could be the best (`--repeats`), a number of them at a time."""
    results = {number: [problem.training(number, 0)] for number in range(tried)}
    while chosen := to_repeat(results, most=most, room=room):
        for number in chosen:
            results[number].append(problem.training(number, len(results[number])))
    counts = {number: len(each) for number, each in results.items()}
    return Choice(_best_mean(problem, counts), tried, sum(counts.values()))


def _best_mean(problem: NoisyProblem, counts: dict[int, int]) -> int:
    """Return the configuration with the best mean of its repeats, without the first training."""
    means = {
        number: statistics.fmean(problem.training(number, k) for k in range(1, count))
        for number, count in counts.items()
        if count > 1
    }
    return min(means, key=lambda number: means[number])


Row = tuple[float, float, float]


def measured(problem: NoisyProblem, choice: Choice) -> Row:
    """Return whether the choice is the best that was tried, its true value, and the trainings."""
    true = [problem.truth(number) for number in range(choice.tried)]
    value = true[choice.number]
    return float(value <= min(true) + 1e-12), value / problem.spread, choice.trainings


def rows(problem: NoisyProblem, tried: int, most: int, at_once: Sequence[int]) -> list[list[Row]]:
    """Return for each number of trainings at once: the race, and both others at equal trainings."""
    found = []
    for room in at_once:
        raced = race(problem, tried, most=most, room=room)
        others: list[Callable[[NoisyProblem, int], Choice]] = [confirm, single]
        choices = [raced, *(way(problem, raced.trainings) for way in others)]
        found.append([measured(problem, choice) for choice in choices])
    return found


def main() -> None:
    options = _options()
    folder = problems.load(options.data)
    print(
        "| search | noise | at once | repeats | P race | P confirm | P single "
        "| P - confirm | P - single | value - confirm | value - single |"
    )
    for search in options.search:
        for noise in options.noise:
            names = options.problems or (WITH_REPEATS if noise == RECORDED else PROBLEMS)
            # problems x seeds x at once x way x figure
            cube = np.array([[*_runs(folder, name, search, noise, options)] for name in names])
            for place, room in enumerate(options.at_once):
                print(_line(search, noise, room, cube[:, :, place], options.trials), flush=True)


def _runs(
    folder: Any, name: str, search: str, noise: str, options: argparse.Namespace
) -> list[list[list[Row]]]:
    problem = folder.get(name)
    rng = np.random.default_rng(0)
    drawn = sorted(float(problem(folder.sample(problem.space, rng))) for _ in range(_DRAWS))
    space, spread = problems.space_of(problem), statistics.pstdev(drawn[:_GOOD])
    return [
        rows(
            NoisyProblem(
                problem,
                space,
                noise=None if noise == RECORDED else float(noise),
                spread=spread,
                search=search,
                seed=FIRST_SEED + seed,
            ),
            options.trials,
            options.repeats,
            options.at_once,
        )
        for seed in range(options.seeds)
    ]


def _line(search: str, noise: str, room: int, cube: Any, tried: int) -> str:
    hits, values = cube[..., 0], cube[..., 1]
    cells = [search, noise, str(room), f"{cube[:, :, 0, 2].mean() - tried:.1f}"]
    cells += [f"{hits[:, :, way].mean():.3f}" for way in range(3)]
    for found in (hits, values):
        for other in (1, 2):
            difference = found[:, :, 0] - found[:, :, other]
            low, high = figures.interval(difference)
            cells.append(f"{difference.mean():+.3f} ({low:+.3f} to {high:+.3f})")
    return f"| {' | '.join(cells)} |"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the problems")
    parser.add_argument("--search", nargs="+", default=["random", "tpe", "bayesian"])
    parser.add_argument(
        "--noise",
        nargs="+",
        default=["0.1", "0.3", "1", RECORDED],
        help=f"parts of the spread among good configurations; {RECORDED}: of recorded trainings",
    )
    parser.add_argument("--problems", nargs="+", help="default: some with a fast evaluation")
    parser.add_argument("--trials", type=int, default=54, help="configurations that race")
    parser.add_argument("--repeats", type=int, default=5, help="most trainings of a configuration")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8], help="trainings")
    parser.add_argument("--seeds", type=int, default=50)
    return parser.parse_args()


if __name__ == "__main__":
    main()

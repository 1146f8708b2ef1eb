"""Two objectives and early stopping: how much of the Pareto front a number of epochs covers.

    .venv/bin/python benchmarks/pareto_stopping.py [--pruners none asha] [--seeds 10]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import random
import statistics
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # simulated workers

from quality.functions import functions
from quality.several import Costs, Problem, covered

from hptune.core.attempt import Attempt
from hptune.core.goals import Goals
from hptune.core.messages import Event, FinishReason, Reported, StopRequested
from hptune.core.pruner import PrunerSettings
from hptune.core.trial import Direction, Goal, Params, Trial, TrialState
from hptune.samplers.registry import SamplerOptions, make_sampler
from simulated import SimulatedExecutor
from simulated_parts import SimulatedWorker
from simulated_studies import Memory, play

EPOCHS = 27
BUDGETS = tuple(EPOCHS * trials for trials in (10, 20, 40))
"""Epochs; those of 10, 20 and 40 full trainings."""
WORKERS = 4
FIRST_SEED = 5000
SPEEDS = 0.15, 0.3
"""With these, costs after epochs 2 and 6, the first rungs, rank configurations as the final ones do
with a correlation of 0.7 and 0.9, about as on recorded trainings of a network."""
PLENTY = 100_000
GOALS = Goals((Goal("first", Direction.MIN), Goal("second", Direction.MIN)))
PRUNERS = {
    "none": PrunerSettings(),
    "asha": PrunerSettings(name="asha", epochs=EPOCHS),
    "asha, promote": PrunerSettings(name="asha", epochs=EPOCHS, options={"pruner_mode": "promote"}),
    "hyperband": PrunerSettings(name="hyperband", epochs=EPOCHS),
}


def curve(name: str, problem: Problem, params: Params) -> list[dict[str, float]]:
    """Return a training that ends at the configuration's costs, with noise on the way.

    Costs begin at twice the reference point of the hypervolume. How fast they fall depends on the
    configuration, so trainings cross. A network's size is the same at every epoch.
    """
    rng = random.Random(repr(sorted(params.items())))
    ends = problem.costs(params)
    speed = rng.uniform(*SPEEDS)
    steps = []
    for epoch in range(1, EPOCHS + 1):
        left = (math.exp(-speed * epoch) - math.exp(-speed * EPOCHS)) * rng.uniform(0.9, 1.1)
        at = [
            end if name == "network" and j else end + left * max(0.0, 2.0 * start - end)
            for j, (end, start) in enumerate(zip(ends, problem.reference, strict=True))
        ]
        steps.append({"first": at[0], "second": at[1]})
    return steps


class _Covered(Memory):
    """Records the share of the front that the complete trials cover at each budget."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.shares: list[float] = []
        self.epochs = 0
        self._problem = problem
        self._complete: dict[int, Costs] = {}

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        trials = [*trials]
        super().append((), trials=trials, attempts=attempts)
        for trial in trials:
            if trial.state is TrialState.COMPLETE:
                self._complete[trial.number] = (trial.values[0], trial.values[1])
        self.epochs += sum(isinstance(event, Reported) for event in events)
        while len(self.shares) < len(BUDGETS) and self.epochs >= BUDGETS[len(self.shares)]:
            area = covered([*self._complete.values()], self._problem.reference)
            self.shares.append(area / self._problem.most)

    @property
    def is_over(self) -> bool:
        return len(self.shares) == len(BUDGETS)


def run(task: tuple[str, str, str, int]) -> list[float]:
    """Return the share of the front that is covered at each budget."""
    search, pruner, name, seed = task
    problem = functions()[name]
    executor = SimulatedExecutor(
        curve=lambda params, _: curve(name, problem, params),
        seconds_per_epoch=lambda _params, _worker: 1.0,
        workers=[SimulatedWorker(name=f"w{n}") for n in range(WORKERS)],
        seed=FIRST_SEED + seed,
        stop_seconds=0.0,
    )
    memory = _Covered(problem)
    directions = tuple(goal.direction for goal in GOALS.objectives)

    def requests() -> Sequence[Event]:
        if memory.is_over:
            return [
                StopRequested(executor.clock.now(), FinishReason.TIME_UP, "the epochs are spent")
            ]
        return ()

    play(
        executor,
        space=problem.space,
        goals=GOALS,
        trials=PLENTY,
        seed=FIRST_SEED + seed,
        make_sampler=lambda space: make_sampler(
            search, SamplerOptions(space=space, seed=FIRST_SEED + seed, directions=directions)
        ),
        memory=memory,
        epochs=EPOCHS,
        pruner=PRUNERS[pruner],
        requests=requests,
    )
    return memory.shares


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
    parser = argparse.ArgumentParser(description="Who covers the Pareto front in fewer epochs?")
    parser.add_argument("--search", nargs="+", default=["random", "tpe"])
    parser.add_argument("--pruners", nargs="+", default=[*PRUNERS], choices=PRUNERS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    options = parser.parse_args()
    names = ["zdt1", "zdt2", "zdt3", "network"]
    print("| search | pruner | " + " | ".join(names) + " | mean |")
    print("|---|---|" + "---|" * (len(names) + 1))
    with ProcessPoolExecutor(options.jobs) as pool:
        for search, pruner in itertools.product(options.search, options.pruners):
            cells = row(
                pool.map(run, [(search, pruner, name, seed) for seed in range(options.seeds)])
                for name in names
            )
            print(f"| {search} | {pruner} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Latency of a suggestion: CPU time of ask + tell on one thread, by the number of earlier trials.

    python benchmarks/suggestion_latency.py [--search tpe] [--trials 10000]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from dataclasses import replace

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded

import psutil

from hptune.core.sampler import Sampler
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Trial, TrialState
from hptune.samplers.registry import SAMPLERS, SamplerOptions, make_sampler

SPACE = SearchSpace(
    (
        FloatParameter("rate", 1e-5, 1e-1, scale=Scale.LOG),
        FloatParameter("dropout", 0.0, 0.9),
        FloatParameter("momentum", 0.5, 0.99),
        IntParameter("units", 16, 1024, scale=Scale.LOG),
        IntParameter("layers", 1, 8),
        ChoiceParameter("activation", ("relu", "tanh", "gelu")),
        BooleanParameter("augment"),
    )
)
"""Seven parameters, as in the published figures of the peers."""

CONDITIONAL = SearchSpace(
    (
        *SPACE,
        ChoiceParameter("optimizer", ("sgd", "adam")),
        BooleanParameter("nesterov", conditions=(Condition("optimizer", ("sgd",)),)),
        FloatParameter("beta", 0.8, 0.999, conditions=(Condition("optimizer", ("adam",)),)),
    )
)
"""Ten parameters, two of them conditional."""

MARKS = (50, 100, 500, 1_000, 2_000, 5_000, 10_000)
WINDOW = 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--search", default="tpe", help=f"{', '.join(SAMPLERS.summaries)}")
    parser.add_argument("--trials", type=int, default=10_000)
    options = parser.parse_args()
    print(f"Load average when started: {os.getloadavg()[0]:.2f}\n")
    print("| earlier trials | 7 parameters, ms | 10, two conditional, ms | memory, MB |")
    print("|---|---|---|---|")
    marks = [mark for mark in MARKS if mark <= options.trials]
    plain, conditional = (_measure(options.search, space, marks) for space in (SPACE, CONDITIONAL))
    for mark in marks:
        print(
            f"| {mark} | {1000 * plain[mark][0]:.2f} | {1000 * conditional[mark][0]:.2f} "
            f"| {conditional[mark][1]:.0f} |"
        )


def _measure(search: str, space: SearchSpace, marks: list[int]) -> dict[int, tuple[float, float]]:
    """Return for each mark the median of ask + tell (s) just before it, and memory (MB).

    Trials outside the measured windows are those of random search.
    """
    options = SamplerOptions(space=space, seed=0, directions=(Direction.MIN,))
    sampler = make_sampler(search, options)
    filler = make_sampler("random", replace(options, seed=1))
    found = {}
    number = 0
    for mark in marks:
        while number < mark - WINDOW:
            (suggestion,) = filler.ask([number])
            _tell(sampler, Trial(number, suggestion.params, "random", TrialState.WAITING), space)
            number += 1
        spent = []
        while number < mark:
            begin = time.process_time()
            (suggestion,) = sampler.ask([number])
            _tell(sampler, Trial(number, suggestion.params, search, TrialState.WAITING), space)
            spent.append(time.process_time() - begin)
            number += 1
        memory = psutil.Process().memory_info().rss / 2**20
        found[mark] = (statistics.median(spent), memory)
    return found


def _tell(sampler: Sampler, trial: Trial, space: SearchSpace) -> None:
    """Report a trial as a study does: when it is created, and when it ends."""
    units = [p.to_unit(trial.params[p.name]) for p in space.active(trial.params)]
    value = sum((unit - 0.3) ** 2 for unit in units)
    sampler.tell(trial)
    sampler.tell(Trial(trial.number, trial.params, trial.origin, TrialState.COMPLETE, value=value))


if __name__ == "__main__":
    main()

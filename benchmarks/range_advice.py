"""How often the advice to widen a range is given, rightly and wrongly, in simulated studies.

    .venv/bin/python benchmarks/range_advice.py [--search bayesian] [--pruner asha] [--seeds 20]

See benchmarks/README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Mapping
from pathlib import Path

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"  # before numpy is loaded
sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))  # simulated workers

from hptune.core.goals import Goals
from hptune.core.pruner import PrunerSettings
from hptune.core.space.space import (
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, Params, Trial
from hptune.reporting.results.edges import edge_answers
from hptune.reporting.results.evidence import evident
from hptune.reporting.results.view import StudyView
from hptune.samplers.registry import SamplerOptions, make_sampler
from simulated import SimulatedExecutor
from simulated_parts import Curve, SimulatedWorker
from simulated_studies import Memory, play

EPOCHS, TRIALS, NOISE = 9, 50, 0.004
GOALS = Goals((Goal("score", Direction.MAX),))
BATCHES = (16, 32, 64, 128, 256)
SPACE = SearchSpace(
    (
        IntParameter("units", 32, 512, step=32),
        FloatParameter("lr", 1e-4, 1e-1, scale=Scale.LOG),
        FloatParameter("drop", 0.1, 0.6),
        IntParameter("layers", 2, 9),
        ChoiceParameter("batch", BATCHES),
        ChoiceParameter("act", ("relu", "tanh")),
    )
)
STUDIES: tuple[Mapping[str, tuple[float, float]], ...] = (
    {"units": (1.3, 1.0), "lr": (0.5, 2.0), "layers": (0.8, 0.3)},
    {"units": (0.75, 0.6), "lr": (-0.3, 1.0), "drop": (0.95, 0.3), "batch": (1.3, 0.6)},
    {"units": (0.6, 0.6), "lr": (0.7, 1.5), "batch": (0.5, 0.3)},
    {"units": (0.85, 0.6), "lr": (0.6, 1.5), "drop": (1.2, 0.6), "layers": (1.3, 0.5)},
)
"""Where the best value of each hyperparameter lies in its range, from 0 to 1, and its weight. The
others do not matter."""

NEAR_END = 0.85
"""From here on, a best value within the range is so near to its end that a wider one does no harm.
"""


def place(name: str, params: Params) -> float:
    """Return where a value lies in its range, from 0 to 1."""
    value = params[name]
    if name == "batch":
        return BATCHES.index(int(value or 0)) / (len(BATCHES) - 1)
    return next(each for each in SPACE if each.name == name).to_unit(value)


def trials_of(study: int, seed: int, *, search: str, pruner: str | None) -> list[Trial]:
    """Return the trials of a simulated study, two at a time."""

    def curve(params: Params, _: int) -> Curve:
        noise = random.Random(f"{params} {seed}")
        top = 0.9 - 0.01 * (params["act"] == "tanh")
        for name, (best, weight) in STUDIES[study].items():
            top -= 0.1 * weight * (place(name, params) - best) ** 2
        return [
            {"score": top * (1.0 - math.exp(-epoch / 2.5)) + noise.gauss(0.0, NOISE)}
            for epoch in range(1, EPOCHS + 1)
        ]

    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda *_: 1.0,
        workers=[SimulatedWorker(name=f"worker-{number}") for number in range(2)],
    )
    made = PrunerSettings(epochs=EPOCHS)
    played = play(
        executor,
        space=SPACE,
        goals=GOALS,
        trials=TRIALS,
        make_sampler=lambda space: make_sampler(
            search, SamplerOptions(space=space, seed=seed, directions=[Direction.MAX])
        ),
        memory=Memory(),
        seed=seed,
        epochs=EPOCHS,
        pruner=made if pruner is None else PrunerSettings(name=pruner, epochs=EPOCHS),
    )
    return list(played.engine.trials)


def judged(study: int, trials: list[Trial]) -> tuple[int, int, bool]:
    """Return how many ranges are too narrow, how many are told, and whether another one is."""
    view = StudyView("study", "", GOALS, TRIALS, trials, space=SPACE)
    told = {}
    for each in evident(edge_answers(view)):
        name = each.words.partition(" have ")[2].partition(" at the ")[0]
        told[name] = 1 if "upper" in each.words else -1
    narrow = {
        name: 1 if best > 1.0 else -1
        for name, (best, _) in STUDIES[study].items()
        if not 0.0 <= best <= 1.0
    }
    harmless = {name for name, (best, _) in STUDIES[study].items() if best >= NEAR_END}
    found = sum(told.get(name) == side for name, side in narrow.items())
    is_wrong = any(
        narrow.get(name) != side and not (name in harmless and side > 0)
        for name, side in told.items()
    )
    return len(narrow), found, is_wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--search", default="bayesian")
    parser.add_argument("--pruner", default=None)
    parser.add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    counts = {after: [0, 0, 0, 0] for after in (20, 30, TRIALS)}
    for study in range(len(STUDIES)):
        for seed in range(given.seeds):
            trials = trials_of(study, seed, search=given.search, pruner=given.pruner)
            for after, row in counts.items():
                first = [trial for trial in trials if trial.number < after]
                for index, each in enumerate((*judged(study, first), True)):
                    row[index] += each
    print(f"{given.search}, {given.pruner or 'no pruner'}")
    for after, (narrow, found, wrong, studies) in counts.items():
        print(
            f"{after} trials: {found} of {narrow} narrow ranges told; "
            f"a wrong one in {wrong} of {studies} studies"
        )


if __name__ == "__main__":
    main()

"""Tasks whose learning curves are all known, so that a study takes moments."""

from __future__ import annotations

import csv
import functools
import json
import math
import statistics
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hptune.core.space.space import SearchSpace
from hptune.core.trial import Params

HERE = Path(__file__).parent
CURVES = HERE / "digits_cnn_curves.csv"
SPACE = HERE / "digits_cnn_space.json"
DIGITS = "digits-cnn"
BETWEEN = "digits-cnn-between"
OWN = (DIGITS, BETWEEN)
NEAREST = 4
DRAWS = 500
PROBLEM_DRAWS = 1000
SHARE_GOOD = 0.01
WITHIN = 0.01


class Task:
    """Task: a space, and a learning curve (losses) for each of its configurations.

    Attributes:
        name: What it is called.
        space: What is searched.
        epochs: How many epochs a full training has.
        best: The lowest loss that is known.
        median: What half of the configurations have after a full training.
        aim: The loss that counts as found.
    """

    def __init__(
        self,
        name: str,
        space: SearchSpace,
        *,
        epochs: int,
        best: float,
        median: float,
        aim: float,
    ) -> None:
        self.name = name
        self.space = space
        self.epochs = epochs
        self.best = best
        self.median = median
        self.aim = aim

    def curve(self, params: Params) -> Sequence[float]:
        """Return the loss after each epoch."""
        raise NotImplementedError

    @functools.cached_property
    def training_seconds(self) -> float:
        """Mean duration of the full training of a random configuration."""
        from hptune.samplers.random_search import RandomSampler

        drawn = RandomSampler(self.space, 0).ask(range(DRAWS))
        return self.epochs * statistics.fmean(self.seconds(each.params) for each in drawn)

    @property
    def soonest_seconds(self) -> float:
        """Least time in which a known configuration reaches the aim; 0 if unknown."""
        return 0.0

    def seconds(self, params: Params) -> float:
        """Return the time of an epoch: between a half and two seconds, by the configuration."""
        text = repr(sorted(params.items())).encode()
        return float(2.0 ** (zlib.crc32(text) / 2**31 - 1.0))


class Problem(Task):
    """A problem with curves from a folder outside the project (see quality/problems.py).

    Its aim is the loss that one random configuration in a hundred reaches. Hardly any random
    configuration is within 1 % of the best known loss (none of 1,500 on four of the nine problems,
    one on two), so with that aim nearly all studies would miss it, and all ways would seem alike.
    """

    def __init__(self, problem: Any, space: SearchSpace) -> None:
        self._problem = problem
        self._known: dict[str, Sequence[float]] = {}
        super().__init__(
            problem.name,
            space,
            epochs=problem.max_epochs,
            best=float(problem.fmin),
            median=float(problem.fmed),
            aim=self._reached_by(SHARE_GOOD, space),
        )

    def curve(self, params: Params) -> Sequence[float]:
        """Return the problem's curve."""
        key = json.dumps(params, sort_keys=True)
        if key not in self._known:
            self._known[key] = [float(loss) for loss in self._problem.curve(dict(params))]
        return self._known[key]

    def _reached_by(self, share: float, space: SearchSpace) -> float:
        from hptune.samplers.random_search import RandomSampler

        drawn = RandomSampler(space, 0).ask(range(PROBLEM_DRAWS))
        lowest = sorted(min(self.curve(each.params)) for each in drawn)
        return lowest[round(share * PROBLEM_DRAWS) - 1]


@dataclass(frozen=True, slots=True)
class _Recorded:
    row: tuple[float, ...]
    losses: tuple[float, ...]
    seconds: float


class Digits(Task):
    """Recorded trainings of examples/digits_cnn.py; a configuration has its nearest one's curve."""

    def __init__(self) -> None:
        from hptune.samplers.common.encoding import Encoding

        space = SearchSpace.from_json(json.loads(SPACE.read_text()))
        self._axes = Encoding(space)
        self._recorded = []
        with CURVES.open() as file:
            for line in csv.DictReader(file):
                params = json.loads(line["params"])
                losses = tuple(1 - float(each) for each in line["val_accuracy"].split())
                self._recorded.append(
                    _Recorded(self._row(params), losses, float(line["seconds_per_epoch"]))
                )
        best = min(min(each.losses) for each in self._recorded)
        epochs = len(self._recorded[0].losses)
        aim = best + WITHIN * (1 - best)
        median = statistics.median(each.losses[-1] for each in self._recorded)
        super().__init__(DIGITS, space, epochs=epochs, best=best, median=median, aim=aim)
        self._nearest = functools.lru_cache(maxsize=None)(self._find)

    def curve(self, params: Params) -> Sequence[float]:
        """Return the curve of the nearest recorded configuration."""
        return self._nearest(self._row(params)).losses

    def seconds(self, params: Params) -> float:
        """Return the time of an epoch of the nearest recorded configuration."""
        return self._nearest(self._row(params)).seconds

    @property
    def soonest_seconds(self) -> float:
        """Least time in which a recorded configuration reaches the aim."""
        return min(
            each.seconds * step
            for each in self._recorded
            for step, loss in enumerate(each.losses, start=1)
            if loss <= self.aim
        )

    @property
    def share_found(self) -> float:
        """Share of the recorded configurations that reach the aim."""
        return statistics.fmean(min(each.losses) <= self.aim for each in self._recorded)

    def _row(self, params: Params) -> tuple[float, ...]:
        row = self._axes.encode(params)
        if row is None:
            raise ValueError(f"{params} does not lie in the space of the recorded trainings")
        return tuple(-1.0 if math.isnan(each) else float(each) for each in row)

    def _find(self, row: tuple[float, ...]) -> _Recorded:
        return min(self._recorded, key=lambda each: math.dist(each.row, row))


class Between(Digits):
    """The same recordings; a configuration has the mean curve of its neighbours, by nearness.

    With the curve of the nearest recording, a search that continues near a good configuration often
    gets a curve that an earlier trial had: with 160 recordings, two in five suggestions of a model
    do, and no model can know that. Here no two configurations are alike. The aim is chosen so that
    the same share of configurations reaches it as in `Digits`.
    """

    def __init__(self) -> None:
        from hptune.samplers.random_search import RandomSampler

        super().__init__()
        self.name = BETWEEN
        self._mean = functools.lru_cache(maxsize=None)(self._mixed)
        drawn = RandomSampler(self.space, 0).ask(range(DRAWS))
        lowest = sorted(min(self.curve(each.params)) for each in drawn)
        self.aim = lowest[round(self.share_found * DRAWS)]

    def curve(self, params: Params) -> Sequence[float]:
        """Return the mean curve of the nearest recordings, weighted by 1 / distance squared."""
        return self._mean(self._row(params))

    def _mixed(self, row: tuple[float, ...]) -> tuple[float, ...]:
        near = sorted(self._recorded, key=lambda each: math.dist(each.row, row))[:NEAREST]
        weights = [1.0 / (math.dist(each.row, row) ** 2 + 1e-6) for each in near]
        total = sum(weights)
        return tuple(
            sum(w * loss for w, loss in zip(weights, losses, strict=True)) / total
            for losses in zip(*(each.losses for each in near), strict=True)
        )


def load(folder: Path | None, names: Sequence[str]) -> dict[str, Task]:
    """Return the tasks of these names; all tasks if no name is given."""
    tasks: dict[str, Task] = {}
    for name, kind in ((DIGITS, Digits), (BETWEEN, Between)):
        if CURVES.exists() and (not names or name in names):
            tasks[name] = kind()
    if folder is not None:
        from quality import problems

        module = problems.load(folder)
        for name in names or module.CURVES:
            if name not in OWN:
                problem = module.get(name)
                tasks[name] = Problem(problem, problems.space_of(problem))
    if not tasks:
        sys.exit("error: there is nothing to tune; give the folder of the problems by --data")
    return tasks

"""Past trials in a project directory of KerasTuner; KerasTuner need not be installed."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.trial import Direction, Goal
from ...errors import UsageError
from ...storage.directory import StudyDirectory
from ...text import plural
from .found import NOT_COMPLETE, FoundTrial, FoundTrials

_INTERNAL = "tuner/"
"""Start of the names of what its Hyperband keeps among the hyperparameters."""

_EPOCHS = "tuner/epochs"

_TRIALS = "trial_*/trial.json"


def is_project(directory: Path) -> bool:
    """Return whether a directory is a project of KerasTuner."""
    return (directory / "oracle.json").is_file() or any(directory.glob(_TRIALS))


def notes_on_project(directory: StudyDirectory) -> list[str]:
    """Return a line on the trials of KerasTuner in a new study's directory; empty if none."""
    count = sum(1 for _ in directory.path.glob(_TRIALS))
    if not count:
        return []
    there = f"{directory} has {plural(count, 'trial')} of KerasTuner"
    learn = f"`--warm-start {directory}` (in Python `warm_start=`) learns from them"
    return [f"{there}, which this study does not continue; a new study with {learn}"]


def read_project(directory: Path) -> FoundTrials:
    """Return the complete trials of a project.

    A metric's value is the best that the trial recorded. Trials that Hyperband trained for fewer
    epochs than others are left out.

    Raises:
        UsageError: A trial cannot be read.
    """
    skipped: Counter[str] = Counter()
    complete = list[tuple[Any, dict[str, Any], dict[str, Any], float | None]]()
    for path in sorted(directory.glob(_TRIALS)):
        try:
            tree = json.loads(path.read_text(encoding="utf-8"))
            values = dict(tree["hyperparameters"]["values"])
            metrics = {name: _best(each) for name, each in tree["metrics"]["metrics"].items()}
            score = tree.get("score")
            complete.append((tree, values, metrics, None if score is None else float(score)))
        except Exception as error:  # whatever another program wrote
            raise UsageError(f"{path} is no trial of KerasTuner: {error!r}") from error
    ended = [each for each in complete if each[0].get("status") == "COMPLETED"]
    skipped[NOT_COMPLETE] = len(complete) - len(ended)
    most = max((values.get(_EPOCHS, 0) for _, values, _, _ in ended), default=0)
    full = [each for each in ended if each[1].get(_EPOCHS, 0) == most]
    skipped["trained for fewer epochs"] = len(ended) - len(full)
    return FoundTrials(
        [
            FoundTrial(
                {n: v for n, v in values.items() if not n.startswith(_INTERNAL)},
                {name: value for name, (value, _) in metrics.items()},
                score,
            )
            for _, values, metrics, score in full
        ],
        _objective([(score, metrics) for _, _, metrics, score in full]),
        skipped,
    )


def _best(metric: Mapping[str, Any]) -> tuple[float, Direction | None]:
    """Return the best recorded value of a metric, and its direction.

    Each observation has the values of several executions. KerasTuner passes over NaN, too.
    """
    means = [statistics.fmean(each["value"]) for each in metric["observations"]]
    means = [each for each in means if not math.isnan(each)] or [math.nan]
    known = metric.get("direction")
    direction = Direction(known) if known in ("min", "max") else None
    return {None: means[-1], "min": min(means), "max": max(means)}[known or None], direction


def _objective(
    trials: list[tuple[float | None, Mapping[str, tuple[float, Direction | None]]]],
) -> Goal | None:
    """Return the objective: KerasTuner stores its value, `score`, but not its name."""
    for name in trials[0][1] if trials else ():
        found = [(score, metrics.get(name)) for score, metrics in trials]
        direction = trials[0][1][name][1]
        if direction and all(each is not None and each[0] == score for score, each in found):
            return Goal(name, direction)
    return None

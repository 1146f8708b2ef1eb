"""Past trials in a storage of Optuna."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ...core.trial import Direction, Goal
from ...errors import UsageError, check_installed
from ...reporting.sqlite_files import file_url, has_tables, open_storage
from ...samplers.adapters.optuna import OUTSIDE, quiet
from .found import NOT_COMPLETE, FoundTrial, FoundTrials

_METRIC = "metric."
"""Start of the names of attributes in which hptune's own export keeps further metrics."""


def is_storage(name: str) -> bool:
    """Return whether a name is that of a storage: a URL or a file, and `#` with a study's name."""
    place = _place_and_study(name)[0]
    path = Path(place)
    return "://" in place or (path.is_file() and has_tables(path, {"studies", "version_info"}))


def read_storage(name: str) -> FoundTrials:
    """Return the complete trials of a study in a storage.

    Args:
        name: The URL or file, and `#` with the study's name if the storage has several.

    Raises:
        MissingPackageError: Optuna is not installed.
        UsageError: The storage cannot be read, or it is not clear which study is meant.
    """
    check_installed("optuna", "reading an Optuna storage")
    import optuna

    place, wanted = _place_and_study(name)
    url = place if "://" in place else file_url(Path(place))
    with quiet(optuna), open_storage(optuna, url, place, is_read=True) as storage:
        names = optuna.get_all_study_names(storage)
        study = optuna.load_study(study_name=_chosen(names, wanted, place), storage=storage)
        return _found(optuna, study)


def _place_and_study(name: str) -> tuple[str, str]:
    if "#" not in name or Path(name).exists():
        return name, ""
    place, _, study = name.rpartition("#")
    return place, study


def _chosen(names: list[str], wanted: str, place: str) -> str:
    if wanted in names:
        return wanted
    if not wanted and len(names) == 1:
        return names[0]
    there = ", ".join(map(repr, names)) or "none"
    which = f"no study {wanted!r}" if wanted else f"{len(names)} studies"
    example = f"; name one of them: --warm-start '{place}#{names[0]}'" if names else ""
    raise UsageError(f"{place} has {which}; there are {there}{example}")


def _found(optuna: Any, study: Any) -> FoundTrials:
    trials = study.get_trials(deepcopy=False)
    complete = [trial for trial in trials if trial.state is optuna.trial.TrialState.COMPLETE]
    metrics = study.metric_names or [""] * len(study.directions)
    is_max = study.directions[0] is optuna.study.StudyDirection.MAXIMIZE
    return FoundTrials(
        [
            FoundTrial(
                {name.removesuffix(OUTSIDE): value for name, value in each.params.items()},
                {
                    **_measured(each.user_attrs),
                    **{n: v for n, v in zip(metrics, each.values, strict=True) if n},
                },
                each.values[0],
            )
            for each in complete
        ],
        Goal(metrics[0] or "value", Direction.MAX if is_max else Direction.MIN),
        {NOT_COMPLETE: len(trials) - len(complete)},
    )


def _measured(attributes: dict[str, Any]) -> dict[str, float]:
    return {
        name.removeprefix(_METRIC): float(value)
        for name, value in attributes.items()
        if name.startswith(_METRIC) and isinstance(value, int | float) and math.isfinite(value)
    }

"""Many trials written into an Optuna storage at once.

Optuna's `add_trials` writes one trial after the other, with a query for each of its parameters,
attributes and intermediate values: some 50 ms for a trial of 25 reports. The rows of all trials
together, through the same model classes, take a twentieth of that. These classes are not part of
Optuna's documented interface. So what was written is read back by Optuna and compared, and where
anything differs, Optuna writes the trials itself.
"""

from __future__ import annotations

import importlib
import itertools
import json
import logging
import math
from collections.abc import Iterable, Sequence
from typing import Any

log = logging.getLogger(__name__)

_MODELS = "optuna.storages._rdb.models"


def add_trials(study: Any, storage: Any, trials: Sequence[Any]) -> None:
    """Add trials to an Optuna study that has none.

    Args:
        study: The Optuna study.
        storage: Its `RDBStorage`.
        trials: Optuna's frozen trials, by number from 0.
    """
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    number = storage.get_study_id_from_name(study.study_name)
    try:
        _insert(storage, number, trials)
        is_same = _are_same(study.get_trials(deepcopy=False), trials)
    except (ImportError, AttributeError, TypeError, SQLAlchemyError, StorageInternalError) as error:
        log.debug("the trials are written one by one: %s", error)
        is_same = False
    if is_same:
        return
    _remove(storage, number)
    study.add_trials(trials)


def _insert(storage: Any, study: int, trials: Sequence[Any]) -> None:
    models = importlib.import_module(_MODELS)
    with storage.scoped_session() as session:
        rows = [
            models.TrialModel(
                study_id=study,
                number=each.number,
                state=each.state,
                datetime_start=each.datetime_start,
                datetime_complete=each.datetime_complete,
            )
            for each in trials
        ]
        session.add_all(rows)
        session.flush()
        numbered = [(row.trial_id, each) for row, each in zip(rows, trials, strict=True)]
        for model, found in (
            (models.TrialParamModel, _params(numbered)),
            (models.TrialValueModel, _values(models.TrialValueModel, numbered)),
            (models.TrialUserAttributeModel, _attributes(numbered, "user_attrs")),
            (models.TrialSystemAttributeModel, _attributes(numbered, "system_attrs")),
            (models.TrialIntermediateValueModel,
             _intermediate_values(models.TrialIntermediateValueModel, numbered)),
        ):  # fmt: skip
            session.bulk_insert_mappings(model, found)
        session.commit()


_Numbered = Sequence[tuple[int, Any]]
_Rows = list[dict[str, Any]]


def _params(numbered: _Numbered) -> _Rows:
    from optuna.distributions import distribution_to_json

    texts: dict[int, str] = {}
    rows = []
    for trial_id, trial in numbered:
        for name, value in trial.params.items():
            distribution = trial.distributions[name]
            if id(distribution) not in texts:
                texts[id(distribution)] = distribution_to_json(distribution)
            rows.append(
                {
                    "trial_id": trial_id,
                    "param_name": name,
                    "param_value": distribution.to_internal_repr(value),
                    "distribution_json": texts[id(distribution)],
                }
            )
    return rows


def _values(model: Any, numbered: _Numbered) -> _Rows:
    rows = []
    for trial_id, trial in numbered:
        for objective, value in enumerate(trial.values or ()):
            stored, kind = model.value_to_stored_repr(value)
            rows.append(
                {
                    "trial_id": trial_id,
                    "objective": objective,
                    "value": stored,
                    "value_type": kind,
                }
            )
    return rows


def _attributes(numbered: _Numbered, attributes: str) -> _Rows:
    return [
        {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
        for trial_id, trial in numbered
        for key, value in getattr(trial, attributes).items()
    ]


def _intermediate_values(model: Any, numbered: _Numbered) -> _Rows:
    rows = []
    for trial_id, trial in numbered:
        for step, value in trial.intermediate_values.items():
            stored, kind = model.intermediate_value_to_stored_repr(value)
            rows.append(
                {
                    "trial_id": trial_id,
                    "step": step,
                    "intermediate_value": stored,
                    "intermediate_value_type": kind,
                }
            )
    return rows


def _remove(storage: Any, study: int) -> None:
    """Remove what `_insert` wrote."""
    models = importlib.import_module(_MODELS)
    with storage.scoped_session() as session:
        for row in session.query(models.TrialModel).filter_by(study_id=study):
            session.delete(row)
        session.commit()


def _are_same(found: Iterable[Any], meant: Iterable[Any]) -> bool:
    pairs = list(itertools.zip_longest(found, meant))
    return all(None not in pair and _facts(pair[0]) == _facts(pair[1]) for pair in pairs) and all(
        _is_same_time(getattr(one, name), getattr(other, name))
        for one, other in pairs
        for name in ("datetime_start", "datetime_complete")
    )


def _is_same_time(one: Any, other: Any) -> bool:
    # Some databases round to seconds.
    if one is None or other is None:
        return one is other
    return bool(abs((one - other).total_seconds()) <= 1.0)


def _facts(trial: Any) -> tuple[object, ...]:
    """Return what Optuna stores of a trial; NaN is equal to itself here."""
    steps = {step: _number(value) for step, value in trial.intermediate_values.items()}
    values = None if trial.values is None else [*map(_number, trial.values)]
    attributes = json.dumps([trial.user_attrs, trial.system_attrs], sort_keys=True)
    return (
        trial.number, trial.state, values, trial.params, trial.distributions, steps, attributes
    )  # fmt: skip


def _number(value: float) -> float | str:
    return "nan" if math.isnan(value) else value

"""Many trials written into an Optuna storage at once.

Optuna's `add_trials` writes one trial after the other, with a query for each of its parameters,
attributes and intermediate values: some 50 ms for a trial of 25 reports. The rows of all trials
together, through the same model classes, take a twentieth of that. These classes are not part of
Optuna's documented interface. So what was written is read back by Optuna and compared, and where
anything differs, Optuna writes the trials itself.
"""

from __future__ import annotations

import importlib
import json
import logging
import math
from collections.abc import Iterator, Sequence
from typing import Any

log = logging.getLogger(__name__)

_MODELS = "optuna.storages._rdb.models"


def add_trials(study: Any, storage: Any, trials: Sequence[Any]) -> None:
    """Add Optuna's frozen trials, by number from 0, to an Optuna study that has none."""
    from optuna.exceptions import StorageInternalError
    from sqlalchemy.exc import SQLAlchemyError

    number = storage.get_study_id_from_name(study.study_name)
    try:
        _insert(storage, number, trials)
        is_same = [*map(_facts, study.get_trials(deepcopy=False))] == [*map(_facts, trials)]
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
        rows_of: dict[Any, list[dict[str, Any]]] = {}
        for row, each in zip(rows, trials, strict=True):
            for model, fields in _parts(models, each):
                rows_of.setdefault(model, []).append({"trial_id": row.trial_id, **fields})
        for model, found in rows_of.items():
            session.bulk_insert_mappings(model, found)
        session.commit()


def _parts(models: Any, trial: Any) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Yield the rows that belong to a trial, each with its model class."""
    from optuna.distributions import distribution_to_json

    for name, value in trial.params.items():
        distribution = trial.distributions[name]
        yield (
            models.TrialParamModel,
            {
                "param_name": name,
                "param_value": distribution.to_internal_repr(value),
                "distribution_json": distribution_to_json(distribution),
            },
        )
    model = models.TrialValueModel
    for objective, value in enumerate(trial.values or ()):
        stored, kind = model.value_to_stored_repr(value)
        yield model, {"objective": objective, "value": stored, "value_type": kind}
    model = models.TrialIntermediateValueModel
    for step, value in trial.intermediate_values.items():
        stored, kind = model.intermediate_value_to_stored_repr(value)
        fields = {"intermediate_value": stored, "intermediate_value_type": kind}
        yield model, {"step": step, **fields}
    for model, attributes in (
        (models.TrialUserAttributeModel, trial.user_attrs),
        (models.TrialSystemAttributeModel, trial.system_attrs),
    ):
        for key, value in attributes.items():
            yield model, {"key": key, "value_json": json.dumps(value)}


def _remove(storage: Any, study: int) -> None:
    """Remove what `_insert` wrote."""
    models = importlib.import_module(_MODELS)
    with storage.scoped_session() as session:
        for row in session.query(models.TrialModel).filter_by(study_id=study):
            session.delete(row)
        session.commit()


def _facts(trial: Any) -> tuple[object, ...]:
    """Return what Optuna stores of a trial; NaN is equal to itself here.

    Of times only whether they are known: some databases round them.
    """
    times = (trial.datetime_start is None, trial.datetime_complete is None)
    steps = {step: _number(value) for step, value in trial.intermediate_values.items()}
    values = None if trial.values is None else [*map(_number, trial.values)]
    attributes = json.dumps([trial.user_attrs, trial.system_attrs], sort_keys=True)
    return (
        *(trial.number, trial.state, values, trial.params, trial.distributions),
        *(steps, attributes, times),
    )


def _number(value: float) -> float | str:
    return "nan" if math.isnan(value) else value

"""Export to MLflow: an experiment with a run for each trial."""

from __future__ import annotations

import importlib.util
import math
import os
import posixpath
import re
import shlex
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import text
from ...core.trial import ParamValue, Trial, TrialState
from ...errors import UsageError
from ..results.view import StudyState
from ..sqlite_files import reason_of, sqlite_url
from .source import RESULT, ExportedStudy, Written

_IDENTITY = "hptune.study"
_TRIAL = "hptune.trial"
_DIGEST = "hptune.digest"
"""Tags by which an export is recognised, and what of it has changed since."""

_STUDY = "all"
"""The value of `_TRIAL` of the run of the study, in which those of its trials are nested."""

_METRICS_AT_ONCE = 1000
_PARAMS_AT_ONCE = 100
"""What MLflow takes in one request at most."""

_MOST_RUNS = 50_000
"""What MLflow returns in one answer at most."""

_NAME_CHARACTERS = 240
"""Less than MLflow's limit, as a number may follow."""

_VALUE_CHARACTERS = 500
"""The shortest limit that MLflow has had for the value of a parameter."""

_STATUS = {
    TrialState.COMPLETE: "FINISHED",
    TrialState.PRUNED: "KILLED",
    TrialState.FAILED: "FAILED",
    TrialState.RUNNING: "RUNNING",
    TrialState.WAITING: "SCHEDULED",
}

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""The beginning of a URI; MLflow takes some without slashes, such as file:mlruns."""


def write(study: ExportedStudy, place: str) -> Written:
    """Write the study as an experiment, or bring an earlier export up to date.

    A run for the study has those of its trials as nested runs. A run of a trial that has changed
    since is deleted (MLflow keeps it in its trash) and written again; others stay as they are. A
    run has every metric over the steps, and the metrics at the step of the trial's value as
    `result/<metric>`, because MLflow shows the last value of a metric and the last is not always
    the best. Pruned trials are KILLED.

    Args:
        study: The study.
        place: A tracking URI, a file for SQLite, or a folder.

    Raises:
        UsageError: The server or store cannot be used.
    """
    place = place or os.environ.get("MLFLOW_TRACKING_URI") or study.default_place("mlflow.db")
    uri = tracking_uri(place)
    # MLflow 3 refuses a folder without it; an earlier export may be in one.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        try:
            name = _write(MlflowClient(tracking_uri=uri), study)
        except (MlflowException, OSError, ImportError, _database_error()) as error:
            raise UsageError(f"MLflow's {uri} cannot be written: {reason_of(error)}") from error
    is_server = uri.startswith(("http", "databricks"))
    command = "" if is_server else f"mlflow ui --backend-store-uri {shlex.quote(uri)}"
    return Written(place, command, name)


def _database_error() -> type[Exception]:
    """Return the class of what a database raises; a server of MLflow's needs no SQLAlchemy."""
    if importlib.util.find_spec("sqlalchemy") is None:
        return OSError
    from sqlalchemy.exc import SQLAlchemyError

    return SQLAlchemyError


def tracking_uri(place: str) -> str:
    """Return the tracking URI of a place: a URI, a file for SQLite, or a folder.

    >>> tracking_uri("file:/home/ada/mlruns"), tracking_uri("databricks")
    ('file:/home/ada/mlruns', 'databricks')

    Raises:
        UsageError: It is a file that is no database of MLflow.
    """
    if place == "databricks" or _URI.match(place):
        return place
    path = Path(place).absolute()
    is_file = path.is_file() or (path.suffix and not path.is_dir())
    if not is_file:
        return path.as_uri()
    return sqlite_url(place, tool="MLflow", tables={"experiments", "runs"})


def _write(client: Any, study: ExportedStudy) -> str:
    name, experiment = _experiment(client, study)
    present: dict[str, Any] = {}
    for run in client.search_runs([experiment], max_results=_MOST_RUNS):
        if (trial_of := run.data.tags.get(_TRIAL)) in present:
            client.delete_run(run.info.run_id)  # two exports wrote it at once
        elif trial_of is not None:
            present[trial_of] = run
    parent = _parent(client, experiment, study, present.get(_STUDY))
    param_names, metric_names = _names(study)
    for trial in study.trials:
        metrics = _metrics(study, trial, metric_names)
        digest = study.digest(trial, parent, metrics)
        run = present.get(str(trial.number))
        if run is not None:
            if run.data.tags.get(_DIGEST) == digest:
                continue
            client.delete_run(run.info.run_id)
        params = {param_names[key]: value for key, value in trial.params.items()}
        number = _write_run(
            client, experiment, study, trial, parent=parent, params=params, metrics=metrics
        )
        # Last: a run that was cut short has no digest, and is written again by the next export.
        client.set_tag(number, _DIGEST, digest)
    return name


def _experiment(client: Any, study: ExportedStudy) -> tuple[str, str]:
    """Return the name and id of the study's experiment; a new one has a name that is free."""
    number = 1
    while True:
        name = study.name if number == 1 else f"{study.name} ({number})"
        found = client.get_experiment_by_name(name)
        if found is None:
            tags = {_IDENTITY: study.identity, **study.facts}
            return name, client.create_experiment(name, tags=tags)
        if found.lifecycle_stage == "active" and found.tags.get(_IDENTITY) == study.identity:
            return name, found.experiment_id
        number += 1


def _parent(client: Any, experiment: str, study: ExportedStudy, run: Any) -> str:
    """Return the id of the study's run, which is made if there is none."""
    if run is None:
        started = _milliseconds(study.view.created_at)
        tags = {_TRIAL: _STUDY}
        run = client.create_run(experiment, start_time=started, run_name=study.name, tags=tags)
    number: str = run.info.run_id
    ended = "KILLED" if study.view.state is StudyState.MASTER_GONE else "FINISHED"
    client.update_run(number, status=ended if study.view.has_ended else "RUNNING")
    return number


def _names(study: ExportedStudy) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the names in MLflow of hyperparameters and of metrics."""
    goals = {goal.metric for goal in study.view.goals.objectives}
    results = {name for trial in study.trials for name in trial.metrics} | goals
    metrics = {row.metric for row in study.reports} | {f"{RESULT}{name}" for name in results}
    params = {name for trial in study.trials for name in trial.params}
    return mlflow_names(params), mlflow_names(metrics)


def _metrics(
    study: ExportedStudy, trial: Trial, names: Mapping[str, str]
) -> list[tuple[str, float, float, int]]:
    """Return the metrics of a trial: name, value, time and step."""
    found = [
        (names[name], value, reported.time, step)
        for step, reported in study.steps(trial)
        for name, value in reported.metrics.items()
    ]
    _, ended = study.times(trial)
    found += [
        (names[f"{RESULT}{name}"], value, ended, trial.step or 0)
        for name, value in study.results(trial).items()
    ]
    # A store for people holds no NaN as a last value: some of MLflow's databases refuse it.
    return [each for each in found if math.isfinite(each[1])]


def _write_run(
    client: Any,
    experiment: str,
    study: ExportedStudy,
    trial: Trial,
    *,
    parent: str,
    params: Mapping[str, ParamValue],
    metrics: Sequence[tuple[str, float, float, int]],
) -> str:
    from mlflow.entities import Metric, Param

    started, ended = study.times(trial)
    run = client.create_run(
        experiment,
        start_time=_milliseconds(started),
        run_name=f"trial {trial.number}",
        tags={**_tags(study, trial), "mlflow.parentRunId": parent},
    )
    number: str = run.info.run_id
    values = [
        Param(name, text.shorten(str(value), _VALUE_CHARACTERS)) for name, value in params.items()
    ]
    for at in range(0, len(values), _PARAMS_AT_ONCE):
        client.log_batch(number, params=values[at : at + _PARAMS_AT_ONCE])
    points = [Metric(name, value, _milliseconds(time), step) for name, value, time, step in metrics]
    for at in range(0, len(points), _METRICS_AT_ONCE):
        client.log_batch(number, metrics=points[at : at + _METRICS_AT_ONCE])
    state = study.state(trial)
    if state.is_final:
        client.set_terminated(number, status=_STATUS[state], end_time=_milliseconds(ended))
    else:
        client.update_run(number, status=_STATUS[state])  # it has no end yet
    return number


def _tags(study: ExportedStudy, trial: Trial) -> Mapping[str, str]:
    tags = {
        _TRIAL: str(trial.number),
        "hptune.state": study.view.state_of(trial),
        "hptune.origin": trial.origin,
    }
    if trial.reason:
        tags["hptune.reason"] = text.shorten(trial.reason, _VALUE_CHARACTERS)
    broken = study.view.goals.broken(trial.metrics)
    return tags | ({"hptune.infeasible": "; ".join(broken)} if broken else {})


def mlflow_names(names: Iterable[str]) -> dict[str, str]:
    """Return a name that MLflow allows for each name; those of different names differ.

    >>> mlflow_names(["lr", "units[0]", "units(0)", "../x"])
    {'lr': 'lr', '../x': '.._x', 'units(0)': 'units_0_', 'units[0]': 'units_0__2'}
    """
    found: dict[str, str] = {}
    taken: set[str] = set()
    # First those that keep their names. Some databases do not tell small letters from capitals.
    for name in sorted(set(names), key=lambda each: (_allowed(each) != each, each)):
        shown, count = _allowed(name), 1
        while shown.lower() in taken:
            count += 1
            shown = f"{_allowed(name)}_{count}"
        taken.add(shown.lower())
        found[name] = shown
    return found


def _allowed(name: str) -> str:
    """Return a name with the characters that MLflow allows, which is no path to elsewhere."""
    shown = re.sub(r"[^\w\-. :/]", "_", text.clean(name))[:_NAME_CHARACTERS]
    if posixpath.normpath(shown) != shown or shown.startswith(("/", "..")):
        shown = shown.replace("/", "_")
    return "_" if shown in ("", ".", "..") else shown


def _milliseconds(seconds: float) -> int:
    return round(1000.0 * seconds)

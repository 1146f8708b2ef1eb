"""Export to an Optuna storage, which optuna-dashboard and Optuna's own functions read."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ... import text
from ...core.space.parameters import label
from ...core.space.space import Parameter, SearchSpace
from ...core.trial import ParamValue, Trial, TrialState
from ...samplers.adapters.optuna import (
    OUTSIDE,
    contains,
    distribution_of,
    distribution_of_values,
    quiet,
    without_missed_step,
)
from ..sqlite_files import open_storage, sqlite_url
from .source import ExportedStudy, Written

_IDENTITY = "hptune study"
_DIGEST = "hptune digest"
"""User attributes by which an export is recognised, and whether the study has changed since."""


def write(study: ExportedStudy, place: str) -> Written:
    """Write the study into an Optuna storage, in place of an earlier export of it.

    Optuna takes some 60 ms for a trial of 30 reports. A study that has not changed since its last
    export is not written again.

    A study of another origin that has the same name stays: this one gets a number.

    - A hyperparameter has the distribution that it was declared with. Optuna has no reversed
      logarithmic scale and no multiplying step: these are a plain and a logarithmic range.
    - If a name was declared with different ranges under different conditions, each declaration is
      a parameter of its own, named with its conditions.
    - Intermediate values are those of the first objective.
    - A paused trial is PRUNED, an interrupted one WAITING.

    Args:
        study: The study.
        place: A file for SQLite, or a URL that SQLAlchemy knows.

    Raises:
        UsageError: The storage cannot be used.
    """
    import optuna

    place = place or study.default_place("optuna.db")
    is_url = "://" in place
    tables = {"studies", "version_info"}
    url = place if is_url else sqlite_url(place, tool="Optuna", tables=tables)
    named = place if is_url else text.path(place)
    with quiet(optuna), open_storage(optuna, url, named, is_read=False) as storage:
        _write_fast(storage)
        name = _write(optuna, study, storage)
    return Written(place, f"optuna-dashboard {shlex.quote(url)}", name)


def _write_fast(storage: Any) -> None:
    from sqlalchemy import event

    if storage.engine.dialect.name == "sqlite":

        @event.listens_for(storage.engine, "connect")
        def _(connection: Any, _record: Any) -> None:
            # Optuna commits each trial; waiting for the disk each time would take most of the time.
            connection.execute("PRAGMA synchronous=OFF")

        storage.engine.dispose()


def _write(optuna: Any, study: ExportedStudy, storage: Any) -> str:
    columns = _Columns(optuna, study.space, study.trials)
    trials = [_frozen(optuna, study, trial, columns) for trial in study.trials]
    digest = hashlib.sha256(repr((trials, study.facts)).encode()).hexdigest()[:16]
    taken = set()
    for summary in optuna.get_all_study_summaries(storage, include_best_trial=False):
        if summary.user_attrs.get(_IDENTITY) != study.identity:
            taken.add(summary.study_name)
        elif summary.user_attrs.get(_DIGEST) == digest:
            return str(summary.study_name)
        else:
            # Optuna changes no finished trial and deletes none, so the whole study is replaced.
            optuna.delete_study(study_name=summary.study_name, storage=storage)
    numbered = (f"{study.name} ({number})" for number in itertools.count(2))
    name = next(each for each in itertools.chain([study.name], numbered) if each not in taken)
    goals = study.view.goals.objectives
    directions = [f"{goal.direction}imize" for goal in goals]
    written = optuna.create_study(study_name=name, storage=storage, directions=directions)
    # The identity first, the digest last: the next export replaces one that was cut short.
    written.set_user_attr(_IDENTITY, study.identity)
    written.set_metric_names([text.clean(goal.metric) for goal in goals])
    for key, value in study.facts.items():
        written.set_user_attr(key, value)
    written.add_trials(trials)
    written.set_user_attr(_DIGEST, digest)
    return name


def _frozen(optuna: Any, study: ExportedStudy, trial: Trial, columns: _Columns) -> Any:
    state, values = _state_and_values(study, trial)
    started, ended = map(datetime.datetime.fromtimestamp, study.times(trial))
    params = columns.params(trial)
    metric = study.view.goal.metric
    violations = study.violations(trial)
    return optuna.trial.FrozenTrial(
        number=trial.number,
        trial_id=-1,
        state=optuna.trial.TrialState[state],
        value=None,
        values=values,
        datetime_start=None if state == "WAITING" else started,
        datetime_complete=ended if state in ("COMPLETE", "PRUNED", "FAIL") else None,
        params=params,
        distributions={name: columns.distributions[name] for name in params},
        user_attrs=_attributes(trial),
        system_attrs={"constraints": [*violations.values()]} if violations else {},
        intermediate_values={
            step: reported.metrics[metric]
            for step, reported in study.steps(trial)
            if metric in reported.metrics
        },
    )


def _state_and_values(study: ExportedStudy, trial: Trial) -> tuple[str, list[float] | None]:
    """Return the name of Optuna's state, and the values if Optuna takes them."""
    is_usable = len(trial.values) == len(study.view.goals.objectives)
    values = [*trial.values] if is_usable and not any(map(math.isnan, trial.values)) else None
    match study.state(trial):
        case TrialState.COMPLETE if values is not None:
            return "COMPLETE", values
        case TrialState.COMPLETE | TrialState.FAILED:
            return "FAIL", None
        case TrialState.PRUNED:
            return "PRUNED", values
        case other:
            return str(other), None


def _attributes(trial: Trial) -> dict[str, Any]:
    found: dict[str, Any] = {"origin": trial.origin, "attempts": trial.attempts}
    if trial.step is not None:
        found["step"] = trial.step
    if trial.reason:
        found["reason"] = text.shorten(trial.reason, 500)
    found |= {f"metric.{name}": value for name, value in trial.metrics.items()}
    return found


class _Columns:
    """The parameters of the Optuna study.

    Args:
        optuna: The package.
        space: The search space.
        trials: All trials. Values that are not in the space, because it was changed, are
            parameters of their own.

    Attributes:
        distributions: The distribution of each parameter of the Optuna study.
    """

    def __init__(self, optuna: Any, space: SearchSpace, trials: Sequence[Trial]) -> None:
        self._space = space
        self.distributions: dict[str, Any] = {}
        self._names: dict[Parameter, str] = {}
        for parameter in space:
            found = distribution_of(optuna, parameter)
            alike = [distribution_of(optuna, each) for each in space if each.name == parameter.name]
            name = parameter.name if all(each == found for each in alike) else label(parameter)
            self._names[parameter] = name
            self.distributions[name] = found
        for trial in trials:
            self._drop_missed_steps(trial)
        outside: dict[str, list[ParamValue]] = {}
        for trial in trials:
            for name, value in self.params(trial).items():
                if name not in self.distributions:
                    outside.setdefault(name, []).append(value)
        for name, values in outside.items():
            self.distributions[name] = distribution_of_values(optuna, values)

    def params(self, trial: Trial) -> Mapping[str, ParamValue]:
        """Return the values of a trial, by the names in the Optuna study."""
        active = {parameter.name: parameter for parameter in self._space.active(trial.params)}
        found = {}
        for name, value in trial.used.items():
            known = self._names[active[name]] if name in active else ""
            fits = known and contains(self.distributions[known], value)
            found[known if fits else f"{name}{OUTSIDE}"] = value
        return found

    def _drop_missed_steps(self, trial: Trial) -> None:
        for parameter in self._space.active(trial.params):
            name, value = self._names[parameter], trial.params.get(parameter.name)
            self.distributions[name] = without_missed_step(self.distributions[name], value)

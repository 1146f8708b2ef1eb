"""The results of a study, as Optuna's own methods read them."""

from __future__ import annotations

import copy
import hashlib
import itertools
import pickle
from collections.abc import Container
from datetime import datetime
from pathlib import Path
from typing import Any

import cloudpickle
import optuna
from optuna.storages import BaseStorage, InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ..core.goals import Goals
from ..core.space.space import Parameter, SearchSpace
from ..core.trial import ParamValue, Trial
from ..core.trial import TrialState as State
from ..files.access import atomic_write
from ..files.ownership import check_loadable
from ..samplers.adapters.optuna import (
    contains,
    distribution_of,
    distribution_of_values,
    quiet,
    without_missed_step,
)
from ..storage.directory import StudyDirectory
from ..storage.ledger import LedgerReader
from .distributions import Declared

VALUE = "value"
"""The metric of a study with one objective."""

_STATES = {State.FAILED: TrialState.FAIL, State.PAUSED: TrialState.PRUNED}
_DISTRIBUTIONS = "distributions"


class Results(InMemoryStorage):
    """A storage with one study. Trials that are over are read from the ledger once.

    Args:
        directory: Where the study is.
        goals: What it optimises.

    Attributes:
        folder: Where attributes and distributions are.
        reported: The metric that trials report.
    """

    get_best_trial = BaseStorage.get_best_trial  # from `get_all_trials`

    def __init__(self, directory: StudyDirectory, goals: Goals) -> None:
        super().__init__()
        with quiet(optuna):
            directions = [f"{each.direction.name}IMIZE" for each in goals.objectives]
            self.create_new_study([StudyDirection[each] for each in directions])
        self.folder = directory.path.absolute() / "optuna"
        self.reported = VALUE if len(goals.objectives) > 1 else goals.goal.metric
        self._goals = goals
        self._reader = LedgerReader(directory)
        self._over: dict[int, FrozenTrial] = {}
        self._failed: Trial | None = None  # one of `_over`
        self._declared: dict[str, Declared] = {}

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        """Return the study's attributes."""
        return _read(self.folder)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> None:
        """Set an attribute to any value that can be pickled."""
        _write(self.folder, key, value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set an attribute of a trial to any value that can be pickled."""
        _write(self.folder / str(trial_id), key, value)
        self._over.pop(trial_id, None)  # it may have been over

    def declared(self, name: str) -> Declared | None:
        """Return what trials suggest of; None if none has suggested it."""
        if name not in self._declared:  # another process may have declared it
            self._declared = _read(self.folder / _DISTRIBUTIONS) | self._declared
        return self._declared.get(name)

    def declare(self, name: str, declared: Declared) -> None:
        """Keep what trials suggest of."""
        if self.declared(name) is None:
            self._declared[name] = declared
            _write(self.folder / _DISTRIBUTIONS, name, declared)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return the trial of a number; a copy, as callbacks get it."""
        return copy.deepcopy(self.get_all_trials(0, deepcopy=False)[trial_id])

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials by number, or those of some states."""
        trials = self._reader.snapshot(self._read)
        trials = [trial for trial in trials if states is None or trial.state in states]
        return copy.deepcopy(trials) if deepcopy else trials

    def _read(self, now: LedgerReader) -> list[FrozenTrial]:
        if self._failed is not None and now.trial(self._failed.number) != self._failed:
            self._failed = None  # all failed trials begin again together
            self._over.clear()
        trials = []
        for number in itertools.count():
            if (frozen := self._over.get(number)) is None:
                if (trial := now.trial(number)) is None:
                    break
                frozen = self._frozen(trial, now)
                if trial.state.is_final and all(map(self.declared, trial.used)):
                    self._over[number] = frozen
                    if trial.state is State.FAILED and trial.confirms is None:
                        self._failed = trial
            trials.append(frozen)
        return trials

    def _frozen(self, trial: Trial, now: LedgerReader) -> FrozenTrial:
        known = {name: each for name in trial.used if (each := self.declared(name))}
        params = {**trial.used} | {n: d.suggested(trial.params[n]) for n, d in known.items()}
        distributions = {name: each.distribution for name, each in known.items()}
        if others := [name for name in trial.used if name not in known]:
            space = SearchSpace.from_json(now.facts()["space"])
            active = {each.name: each for each in space.active(trial.params)}
            with quiet(optuna):
                distributions |= {n: _distribution(active.get(n), params[n]) for n in others}
        state = _STATES.get(trial.state) or TrialState[trial.state.name]
        attempts = now.attempts(trial.number)
        started = [each.started_at or each.placed_at for each in attempts]
        ended = [each.ended_at for each in attempts if each.ended_at and state.is_finished()]
        reports = [each for each in now.reports(trial.number) if each.metric == self.reported]
        return FrozenTrial(
            number=trial.number,
            trial_id=trial.number,
            state=state,
            value=None,
            values=[*self._goals.judged(trial).values] or None,
            datetime_start=datetime.fromtimestamp(started[0]) if started else None,
            datetime_complete=datetime.fromtimestamp(ended[-1]) if ended else None,
            params=params,
            distributions=distributions,
            user_attrs=_read(self.folder / str(trial.number)),
            system_attrs={},
            intermediate_values={each.step - 1: each.value for each in reports},
        )


def _distribution(parameter: Parameter | None, value: ParamValue) -> Any:
    """Return what no script of Optuna has declared; None for what is not in the space any more."""
    if parameter is not None:
        found = without_missed_step(distribution_of(optuna, parameter), value)
        if contains(found, value):
            return found
    return distribution_of_values(optuna, [value])


def _write(folder: Path, name: str, value: Any) -> None:
    """Write a value of any kind, in place of an earlier one of its name."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()}.pkl"
    atomic_write(path, cloudpickle.dumps((name, value)), has_others=True)


def _read(folder: Path) -> dict[str, Any]:
    """Return all values that were written, by name.

    Raises:
        UsageError: Another user may have written them.
    """
    values = {}
    for path in folder.glob("*.pkl"):
        with path.open("rb") as file:
            check_loadable(file)
            name, value = pickle.load(file)  # noqa: S301 - of this user
            values[name] = value
    return dict(sorted(values.items()))

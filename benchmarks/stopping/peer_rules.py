"""Rules of early stopping of Optuna, Ray Tune and Syne Tune; only the rules, as objects."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hptune.core.pruner import Decision

from .rules import Rule

RAY_PENDING = 200


@dataclass(slots=True)
class _OptunaTrial:
    number: int
    state: Any
    last_step: int = 0
    intermediate_values: dict[int, float] = field(default_factory=dict)
    system_attrs: dict[str, float] = field(default_factory=dict)

    @property
    def _trial_id(self) -> int:
        return self.number


class _OptunaStudy:
    """What Optuna's pruners use of a study and of its storage, without copies.

    A rung's value is stored when the pruner has decided, as its trials are copies of before.
    """

    def __init__(self, direction: Any, name: str) -> None:
        self.direction, self.study_name = direction, name
        self._storage = self
        self.trials: dict[int, _OptunaTrial] = {}
        self.unsaved: list[tuple[int, str, float]] = []

    def get_trials(self, deepcopy: bool = True, states: Any = None) -> list[_OptunaTrial]:  # noqa: ARG002, FBT001, FBT002
        """Return the trials."""
        return [each for each in self.trials.values() if states is None or each.state in states]

    def set_trial_system_attr(self, trial: int, key: str, value: float) -> None:
        """Store a rung's value."""
        self.unsaved.append((trial, key, value))


class OptunaRule:
    """A pruner of Optuna. It pauses no trials.

    Args:
        name: `halving` (its default), `halving-3` (one in three, from epoch 1), `halving-3-late`
            (from a twentieth of the epochs, as hptune), `hyperband` or `median`.
        epochs: The full training.
        seed: Chooses which trials are in which bracket.
    """

    def __init__(self, name: str, epochs: int, seed: int) -> None:
        import optuna

        class Hyperband(optuna.pruners.HyperbandPruner):
            def _create_bracket_study(self, study: Any, bracket_id: int) -> Any:
                of_bracket = _OptunaStudy(study.direction, study.study_name)
                of_bracket._storage = study  # noqa: SLF001 - the name is Optuna's
                of_bracket.trials = {
                    number: trial
                    for number, trial in study.trials.items()
                    if self._get_bracket_id(study, trial) == bracket_id
                }
                return of_bracket

        made: dict[str, Callable[[], Any]] = {
            "halving": optuna.pruners.SuccessiveHalvingPruner,
            "halving-3": lambda: optuna.pruners.SuccessiveHalvingPruner(
                min_resource=1, reduction_factor=3
            ),
            "halving-3-late": lambda: optuna.pruners.SuccessiveHalvingPruner(
                min_resource=-(-epochs // 20), reduction_factor=3
            ),
            "hyperband": lambda: Hyperband(1, epochs, 3),
            "median": optuna.pruners.MedianPruner,
        }
        self._states = optuna.trial.TrialState
        self._pruner = made[name]()
        self._study = _OptunaStudy(optuna.study.StudyDirection.MINIMIZE, f"study-{seed}")
        self._new = itertools.count()

    def next(self) -> int:
        """Return a new trial."""
        return next(self._new)

    def report(self, number: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report the present loss; the pruner compares by it."""
        trial = self._note(number, step, loss)
        is_pruned = self._pruner.prune(self._study, trial)
        for other, key, value in self._study.unsaved:
            self._study.trials[other].system_attrs[key] = value
        self._study.unsaved.clear()
        if is_pruned:
            trial.state = self._states.PRUNED
        return Decision.STOP if is_pruned else Decision.CONTINUE

    def complete(self, number: int, step: int, loss: float) -> None:
        """Report the last loss of a trial that was trained in full."""
        self._note(number, step, loss).state = self._states.COMPLETE

    def _note(self, number: int, step: int, loss: float) -> _OptunaTrial:
        trial = self._study.trials.setdefault(number, _OptunaTrial(number, self._states.RUNNING))
        trial.last_step, trial.intermediate_values[step] = step, loss
        return trial


class SyneRule:
    """A scheduler of Syne Tune with random search, whose suggestions are not used.

    Args:
        name: `asha` (its default: one in three, from epoch 1), `asha-brackets` (the same in three
            brackets) or `median`. Version 0.16 has no scheduler that promotes.
        epochs: The full training.
        seed: Chooses which trials are in which bracket.
    """

    def __init__(self, name: str, epochs: int, seed: int) -> None:
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        from syne_tune import config_space
        from syne_tune.backend.trial_status import Trial
        from syne_tune.optimizer import baselines
        from syne_tune.optimizer.schedulers.median_stopping_rule import MedianStoppingRule

        space = {"x": config_space.uniform(0.0, 1.0)}
        common = {"metric": "loss", "time_attr": "epoch", "max_t": epochs, "random_seed": seed}
        made: dict[str, Callable[[], Any]] = {
            "asha": lambda: baselines.ASHA(space, **common),
            "asha-brackets": lambda: baselines.ASHA(space, brackets=3, **common),
            "median": lambda: MedianStoppingRule(
                baselines.RandomSearch(space, metrics=["loss"], random_seed=seed),
                time_attr="epoch",
                metric="loss",
            ),
        }
        np.random.seed(seed)  # brackets are drawn by numpy's own generator
        self._scheduler = made[name]()
        self._trial = Trial
        self._new = itertools.count()

    def next(self) -> int:
        """Return a new trial."""
        trial = next(self._new)
        self._scheduler.on_trial_add(self._of(trial))
        return trial

    def report(self, trial: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report the present loss; the scheduler compares by it."""
        told = self._scheduler.on_trial_result(self._of(trial), {"loss": loss, "epoch": step})
        return Decision.CONTINUE if told == "CONTINUE" else Decision.STOP

    def complete(self, trial: int, step: int, loss: float) -> None:
        """Report the last loss of a trial that was trained in full."""
        self._scheduler.on_trial_complete(self._of(trial), {"loss": loss, "epoch": step})

    def _of(self, trial: int) -> Any:
        return self._trial(trial, {"x": 0.5}, None)


@dataclass(slots=True, eq=False)
class _RayTrial:
    """What Ray Tune's schedulers use of a trial."""

    number: int
    status: str = "PENDING"
    is_saving: bool = False

    @property
    def trial_id(self) -> str:
        return str(self.number)


class RayRule:
    """A scheduler of Ray Tune; this class is the controller that it is given.

    As Ray Tune does for random search, it keeps 200 trials pending, of which the scheduler chooses.

    Args:
        name: `asha` (its default: one in four, from epoch 1), `asha-3` (one in three),
            `asha-brackets` (the same in three brackets), `hyperband` (synchronous, with its pauses)
            or `median` (without its pauses while few trials are known, after which a trial waits
            until no new one is pending).
        epochs: The full training.
        seed: Chooses which trials are in which bracket.
    """

    def __init__(self, name: str, epochs: int, seed: int) -> None:
        logging.getLogger("ray").setLevel(logging.ERROR)
        from ray.tune import schedulers

        common = {"time_attr": "epoch", "metric": "loss", "mode": "min"}
        asha = schedulers.AsyncHyperBandScheduler
        made: dict[str, Callable[[], Any]] = {
            "asha": lambda: asha(max_t=epochs, **common),
            "asha-3": lambda: asha(max_t=epochs, reduction_factor=3, **common),
            "asha-brackets": lambda: asha(max_t=epochs, reduction_factor=3, brackets=3, **common),
            "hyperband": lambda: schedulers.HyperBandScheduler(max_t=epochs, **common),
            "median": lambda: schedulers.MedianStoppingRule(grace_period=1, **common),
        }
        np.random.seed(seed)  # brackets are drawn by numpy's own generator
        self._scheduler = made[name]()
        self._trials: list[_RayTrial] = []
        self._waiting: dict[int, _RayTrial] = {}

    def next(self) -> int:
        """Return the trial that the scheduler chooses."""
        while sum(each.status == "PENDING" for each in self._waiting.values()) < RAY_PENDING:
            added = _RayTrial(len(self._trials))
            self._trials.append(added)
            self._waiting[added.number] = added
            self._scheduler.on_trial_add(self, added)
        trial: _RayTrial = self._scheduler.choose_trial_to_run(self)
        self._set(trial, "RUNNING")
        return trial.number

    def report(self, number: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report the present loss; the scheduler compares by it."""
        trial = self._trials[number]
        told = self._scheduler.on_trial_result(self, trial, {"loss": loss, "epoch": step})
        if told == "STOP":
            self._scheduler.on_trial_complete(self, trial, {"loss": loss, "epoch": step})
            self._set(trial, "TERMINATED")
            return Decision.STOP
        if told == "PAUSE":
            self._set(trial, "PAUSED")
            return Decision.PAUSE
        return Decision.CONTINUE

    def complete(self, number: int, step: int, loss: float) -> None:
        """Report the last loss of a trial that was trained in full."""
        self.report(number, step, loss, loss)

    # --- what the scheduler calls -------------------------------------------------------------

    def get_trials(self) -> list[_RayTrial]:
        """Return the trials that wait."""
        return [*self._waiting.values()]

    def get_live_trials(self) -> list[_RayTrial]:
        """Return none, so that no trial is paused for another one."""
        return []

    def stop_trial(self, trial: _RayTrial) -> None:
        """End a paused trial."""
        self._scheduler.on_trial_remove(self, trial)
        self._set(trial, "TERMINATED")

    def _set(self, trial: _RayTrial, status: str) -> None:
        trial.status = status
        if status == "PAUSED":
            self._waiting[trial.number] = trial
        else:
            self._waiting.pop(trial.number, None)


def make(owner: str, name: str, *, epochs: int, seed: int) -> Rule:
    """Return a rule of Optuna (`optuna`), Ray Tune (`ray`) or Syne Tune (`syne`)."""
    kinds: dict[str, Callable[[str, int, int], Rule]] = {
        "optuna": OptunaRule,
        "ray": RayRule,
        "syne": SyneRule,
    }
    return kinds[owner](name, epochs, seed)

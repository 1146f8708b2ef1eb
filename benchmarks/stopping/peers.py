"""Peers with their searches, whose ask, report and tell are called as by several workers."""

from __future__ import annotations

import datetime
import itertools
import logging
from typing import Any

from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
)
from hptune.core.trial import Params
from hptune.samplers.random_search import RandomSampler

from .cluster import Training
from .tasks import Task


class Optuna:
    """Optuna's samplers and pruners; `random` tries the configurations of hptune's random search.

    Args:
        task: The task.
        way: A sampler and a pruner, such as `tpe+halving`.
        workers: How many trials run at once.
        seed: For the sampler.
    """

    def __init__(self, task: Task, way: str, *, workers: int, seed: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._task = task
        self._pruned = optuna.trial.TrialState.PRUNED
        sampler, _, pruner = way.partition("+")
        samplers: dict[str, Any] = {
            "random": lambda: optuna.samplers.RandomSampler(seed=seed),  # is asked for nothing
            "tpe": lambda: optuna.samplers.TPESampler(
                seed=seed, multivariate=True, constant_liar=workers > 1
            ),
            "tpe-default": lambda: optuna.samplers.TPESampler(seed=seed),
        }
        pruners: dict[str, Any] = {
            "none": optuna.pruners.NopPruner,
            "median": optuna.pruners.MedianPruner,
            "halving": optuna.pruners.SuccessiveHalvingPruner,
            "halving-3": lambda: optuna.pruners.SuccessiveHalvingPruner(
                min_resource=1, reduction_factor=3
            ),
            "hyperband": lambda: optuna.pruners.HyperbandPruner(
                min_resource=1, max_resource=task.epochs, reduction_factor=3
            ),
        }
        self._random = RandomSampler(task.space, seed) if sampler == "random" else None
        self._study = optuna.create_study(sampler=samplers[sampler](), pruner=pruners[pruner]())

    def next(self) -> Training:
        """Return a new trial."""
        trial = self._study.ask()
        if self._random is not None:
            [suggestion] = self._random.ask([trial.number])
            return training(self._task, trial, suggestion.params)
        chosen: dict[str, Any] = {}
        for p in self._task.space:
            if is_active(p, chosen):
                chosen[p.name] = _suggested(trial, p)
        return training(self._task, trial, chosen)

    def trains_on(self, training: Training, loss: float) -> bool:
        """Report the loss of an epoch; return whether the trial trains on."""
        trial = training.trial
        trial.report(loss, training.step)
        if training.is_complete:
            self._study.tell(trial, loss)
        elif trial.should_prune():
            self._study.tell(trial, state=self._pruned)
            return False
        return True


class SyneTune:
    """Syne Tune's schedulers, which minimise. They have no conditions, so none are passed.

    Args:
        task: The task.
        way: `random+asha`, `bore+asha`, `cqr+asha`, `bohb+asha`, or `random+none`.
        seed: For the scheduler.
    """

    def __init__(self, task: Task, way: str, *, seed: int) -> None:
        logging.getLogger("syne_tune").setLevel(logging.ERROR)
        from syne_tune import config_space
        from syne_tune.backend.trial_status import Trial
        from syne_tune.optimizer import baselines

        self._task, self._trial = task, Trial
        space = {p.name: _syne_domain(config_space, p) for p in task.space}
        named: dict[str, Any] = {
            "random+asha": baselines.ASHA,
            "bore+asha": baselines.ASHABORE,
            "cqr+asha": baselines.ASHACQR,
            "bohb+asha": baselines.BOHB,
        }
        self._numbers = itertools.count()
        self._scheduler = (
            baselines.RandomSearch(space, metrics=["loss"], random_seed=seed)
            if way == "random+none"
            else named[way](
                space, metric="loss", time_attr="epoch", max_t=task.epochs, random_seed=seed
            )
        )

    def next(self) -> Training:
        """Return a new trial."""
        suggestion = self._scheduler.suggest()
        trial = self._trial(next(self._numbers), suggestion.config, datetime.datetime.now())
        self._scheduler.on_trial_add(trial)
        chosen: dict[str, Any] = {}
        for p in self._task.space:
            if is_active(p, chosen):
                chosen[p.name] = suggestion.config[p.name]
        return training(self._task, trial, chosen)

    def trains_on(self, training: Training, loss: float) -> bool:
        """Report the loss of an epoch; return whether the trial trains on."""
        result = {"loss": loss, "epoch": training.step}
        if training.is_complete:
            self._scheduler.on_trial_complete(training.trial, result)
        elif self._scheduler.on_trial_result(training.trial, result) != "CONTINUE":
            self._scheduler.on_trial_remove(training.trial)
            return False
        return True


def training(task: Task, trial: Any, params: Params) -> Training:
    """Return the training of a trial with this configuration."""
    return Training(trial, task.curve(params), task.seconds(params))


def is_active(parameter: Parameter, chosen: Params) -> bool:
    """Return whether the parameter's conditions hold for the values chosen so far."""
    return all(chosen.get(each.name) in each.values for each in parameter.conditions)


def _suggested(trial: Any, p: Parameter) -> Any:
    match p:
        case FloatParameter():
            is_log = p.scale is Scale.LOG
            return trial.suggest_float(p.name, p.low, p.high, log=is_log, step=p.step)
        case IntParameter() if p.scale is Scale.LOG:
            return trial.suggest_int(p.name, p.low, p.high, log=True)
        case IntParameter():
            return trial.suggest_int(p.name, p.low, p.high, step=p.step or 1)
        case ChoiceParameter():
            return trial.suggest_categorical(p.name, list(p.values))
        case _:
            return trial.suggest_categorical(p.name, [False, True])


def _syne_domain(spaces: Any, p: Parameter) -> Any:
    match p:
        case BooleanParameter():
            return spaces.choice([False, True])
        case ChoiceParameter() if p.ordered:
            return spaces.ordinal(list(p.values), kind="equal")
        case ChoiceParameter():
            return spaces.choice(list(p.values))
        case IntParameter() if p.step and p.step > 1:
            return spaces.finrange(p.low, p.high, (p.high - p.low) // p.step + 1, cast_int=True)
        case FloatParameter() if p.step:
            return spaces.finrange(p.low, p.high, round((p.high - p.low) / p.step) + 1)
        case FloatParameter():
            is_log = p.scale is Scale.LOG
            return (spaces.loguniform if is_log else spaces.uniform)(p.low, p.high)
        case IntParameter():
            is_log = p.scale is Scale.LOG
            return (spaces.lograndint if is_log else spaces.randint)(p.low, p.high)
    raise ValueError(f"{p.name}: there is no such domain in Syne Tune")

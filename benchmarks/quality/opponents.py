"""One interface to all searches: `ask` for the configuration of a trial, `tell` its value."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import importlib.metadata
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hptune
from hptune.core.space.space import (
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Params, Trial, TrialState
from hptune.samplers.registry import SAMPLERS, SamplerOptions, make_sampler


class Opponent(abc.ABC):
    """Search that minimises one or several costs; one object for each run."""

    @abc.abstractmethod
    def ask(self, number: int) -> Params:
        """Return the configuration of the trial with this number, which runs from now on."""

    @abc.abstractmethod
    def tell(self, number: int, *values: float) -> None:
        """Report the values of a running trial; NaN if it failed."""


class Own(Opponent):
    """One of the project's samplers, with the calls that a study makes."""

    def __init__(self, name: str, space: SearchSpace, seed: int, *, objectives: int = 1) -> None:
        directions = (Direction.MIN,) * objectives
        options = SamplerOptions(space=space, seed=seed, directions=directions)
        self._sampler = make_sampler(name, options)
        self._running: dict[int, Trial] = {}

    def ask(self, number: int) -> Params:
        (suggestion,) = self._sampler.ask([number])
        trial = Trial(number, suggestion.params, suggestion.origin, TrialState.WAITING)
        self._running[number] = trial
        self._sampler.tell(trial)
        return trial.params

    def tell(self, number: int, *values: float) -> None:
        trial = self._running.pop(number)
        if any(map(math.isnan, values)):
            ended = dataclasses.replace(trial, state=TrialState.FAILED)
        else:
            first, *rest = values
            ended = dataclasses.replace(
                trial, state=TrialState.COMPLETE, value=first, extra_values=tuple(rest)
            )
        self._sampler.tell(ended)


class Optuna(Opponent):
    """One of Optuna's samplers on a study in memory, through its ask and tell."""

    def __init__(self, sampler: Any, space: SearchSpace, objectives: int) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._study = optuna.create_study(sampler=sampler, directions=["minimize"] * objectives)
        self._space = space
        self._running: dict[int, Any] = {}

    def ask(self, number: int) -> Params:
        trial = self._running[number] = self._study.ask()
        return self._space.configure(lambda parameter: _suggested(trial, parameter))

    def tell(self, number: int, *values: float) -> None:
        self._study.tell(self._running.pop(number), values)


def _suggested(trial: Any, p: Parameter) -> Any:
    match p:
        case FloatParameter():
            return trial.suggest_float(p.name, p.low, p.high, log=p.scale is Scale.LOG)
        case IntParameter():
            return trial.suggest_int(p.name, p.low, p.high, log=p.scale is Scale.LOG)
        case _:
            return trial.suggest_categorical(p.name, list(p.values or ()))


def _optuna_tpe(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(seed=seed)


def _optuna_gp(seed: int) -> Any:
    import optuna

    return optuna.samplers.GPSampler(seed=seed)


def _optuna_nsga2(seed: int) -> Any:
    import optuna

    return optuna.samplers.NSGAIISampler(seed=seed, population_size=20)


class Skopt(Opponent):
    """scikit-optimize's Optimizer with a Gaussian process; it knows no conditions.

    Running trials count as the best value, as in its own batches.
    """

    def __init__(self, problem: Any, seed: int) -> None:
        import skopt

        self._problem = problem
        self._optimizer = skopt.Optimizer(
            [_skopt_dimension(p) for p in problem.space], base_estimator="GP", random_state=seed
        )
        self._seed = seed
        self._running: dict[int, Any] = {}

    def ask(self, number: int) -> Params:
        optimizer, running = self._optimizer, [*self._running.values()]
        with _unwarned():
            if running:
                optimizer = optimizer.copy(random_state=self._seed + number)
                optimizer.tell(running, [min(optimizer.yi, default=0.0)] * len(running))
            point = self._running[number] = optimizer.ask()
        return self._active(point)

    def tell(self, number: int, *values: float) -> None:
        (value,) = values
        with _unwarned():
            self._optimizer.tell(self._running.pop(number), value)

    def _active(self, point: Sequence[Any]) -> Params:
        chosen: dict[str, Any] = {}
        for p, value in zip(self._problem.space, point, strict=True):
            if p.parent is None or chosen.get(p.parent) in p.values:
                chosen[p.name] = value.item() if hasattr(value, "item") else value
        return chosen


def _skopt_dimension(parameter: Any) -> Any:
    from skopt.space import Categorical, Integer, Real

    if parameter.kind == "cat":
        return Categorical(list(parameter.choices))
    prior = "log-uniform" if parameter.log else "uniform"
    if parameter.kind == "int":
        return Integer(int(parameter.low), int(parameter.high), prior=prior)
    return Real(parameter.low, parameter.high, prior=prior)


@contextlib.contextmanager
def _unwarned() -> Iterator[None]:
    """Ignore scikit-optimize's warnings of each point that it proposes again."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


_PACKAGES = {"optuna": "optuna", "skopt": "scikit-optimize"}
_OPTUNA: Mapping[str, Callable[[int], Any]] = {
    "optuna-tpe": _optuna_tpe,
    "optuna-gp": _optuna_gp,
    "optuna-nsga2": _optuna_nsga2,
}
_SKOPT_GP = "skopt-gp"

_FAMILY = "optuna:"
NAMES: tuple[str, ...] = (
    *(name for name in SAMPLERS.built_in if name not in ("auto", "grid")),
    f"{_FAMILY}NAME",
    *_OPTUNA,
    _SKOPT_GP,
)
"""Names of the searches that can be compared: ours, adapters, and peers called directly."""


def is_known(name: str) -> bool:
    """Return whether there is a search of this name."""
    return name in NAMES or name.startswith(_FAMILY)


def opponent(
    name: str, problem: Any, space: SearchSpace, *, seed: int, objectives: int = 1
) -> Opponent:
    """Return the search of this name; scikit-optimize has one objective."""
    if name in _OPTUNA:
        return Optuna(_OPTUNA[name](seed), space, objectives)
    if name == _SKOPT_GP:
        return Skopt(problem, seed)
    return Own(name, space, seed, objectives=objectives)


def version(name: str) -> str:
    """Return the peer's version, or our code's fingerprint, that a result is valid for."""
    peer = next((each for each in ("optuna", "skopt") if name.startswith(each)), None)
    theirs = f"{peer} {importlib.metadata.version(_PACKAGES[peer])}" if peer else ""
    if name in _OPTUNA or name == _SKOPT_GP:
        return theirs
    home = Path(hptune.__file__).parent
    code = hashlib.sha256()
    for file in sorted([*home.glob("core/**/*.py"), *home.glob("samplers/**/*.py")]):
        code.update(file.read_bytes())
    return f"{theirs} hptune {code.hexdigest()[:12]}".strip()

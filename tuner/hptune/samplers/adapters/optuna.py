"""Adapter of Optuna's samplers."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import inspect
import math
import sys
import warnings
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from ...core.sampler import Sampler
from ...core.seeds import generator
from ...core.space.enumeration import is_open
from ...core.space.parameters.checks import is_number
from ...core.space.space import FloatParameter, IntParameter, Parameter, Scale, SearchSpace
from ...core.trial import Direction, Params, ParamValue, Suggestion, Trial, TrialState
from ...errors import UsageError
from ..common.encoding import Column, Encoding
from ..common.untried import Keyed, Untried

OUTSIDE = " (outside the space)"
"""End of the name of a parameter, in an export, for values that the space does not allow."""

_TRIES = 4
"""Questions to Optuna's sampler before a configuration is drawn at random."""
_STATELESS = ("TPESampler", "GPSampler", "RandomSampler")
"""Samplers that depend only on the trials. The others keep state in the study's attributes."""
_REQUIRED_PACKAGES = {"GPSampler": "torch", "CmaEsSampler": "cmaes"}
UNSUPPORTED = ("BruteForceSampler", "GridSampler", "PartialFixedSampler")
_MULTI_OBJECTIVE = (
    *("TPESampler", "NSGAIISampler", "NSGAIIISampler", "GPSampler", "RandomSampler", "QMCSampler"),
)
"""Samplers that accept several objectives."""
_ROUNDING = 1e-8
"""Part of a step by which Optuna lets a value differ from a multiple of it."""
_CONSTRAINTS = "constraints"
"""Where Optuna keeps a trial's constraints, and here the violation for `_constraints_of`."""


class OptunaSampler(Sampler):
    """Asks a sampler of Optuna about an in-memory study.

    - Each declaration is a separate Optuna parameter: unordered choices and booleans are
      categorical, steps and ordered choices are integers, all others are floats in [0, 1].
      Values are suggested one by one, as conditions activate the parameters.
    - Running trials are RUNNING in the study, FAILED ones FAIL, PRUNED ones PRUNED with their last
      value (without a value if there are several objectives, for which Optuna has no reports).
    - Constraints are one of Optuna's: the violation. A sampler without constraints, such as CMA-ES,
      is told that trials that break one have failed, and so is a sampler given as an object.
    - If it repeats a configuration it is asked again; then one is drawn at random.
    - Samplers that keep state in the study, such as CMA-ES, replay the whole history in the order
      of trial numbers. The others only need the trials.
    - An object is copied in the state in which it was given, and its random numbers follow from
      the study's seed.

    Args:
        space: The search space.
        seed: The study's seed.
        directions: Directions of the objectives.
        adapted: A class of Optuna's samplers, or an object of one.

    Raises:
        UsageError: A package that it needs is not installed, or it accepts only one objective.
    """

    def __init__(
        self, space: SearchSpace, seed: int, *, directions: Sequence[Direction], adapted: Any
    ) -> None:
        check(directions=directions, adapted=adapted)
        import optuna

        self._optuna: Any = optuna
        self._adapted = adapted
        self._name = _class(adapted).__name__
        self._is_stateless = _is_optunas(adapted) and self._name in _STATELESS
        self._seed = seed
        self._directions = [
            "minimize" if direction is Direction.MIN else "maximize" for direction in directions
        ]
        self._encoding = Encoding(space)
        self._distributions = [self._distribution(column) for column in self._encoding.columns]
        self._untried = Untried(space)
        self._trials: dict[int, Trial] = {}
        self._takes_constraints = (
            inspect.isclass(adapted) and "constraints_func" in inspect.signature(adapted).parameters
        )
        self._has_violations = False
        self._replayed_trials: list[Trial] = []
        self._replayed_study: Any = None

    def tell(self, trial: Trial) -> None:
        """Add a trial, or update it."""
        self._untried.mark_tried(trial)
        if self._encoding.encode(trial.params) is not None:
            self._trials[trial.number] = trial

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return a configuration for each number; those before it count as running."""
        return self._untried.suggest(numbers, self._seed, f"optuna {self._name}", self._proposed)

    def _proposed(
        self, number: int, _: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        first = number - len(pending)
        running = [
            Trial(first + i, params, "", TrialState.RUNNING)
            for i, params in enumerate(pending.values())
        ]
        known = [self._trials[each] for each in sorted(self._trials)]
        has_violations = any(trial.violation for trial in known)
        if has_violations != self._has_violations:
            self._has_violations, self._replayed_study = has_violations, None
        with quiet(self._optuna):
            if self._is_stateless:
                study = self._new_study(number)
                for trial in (*known, *running):
                    study.add_trial(self._frozen(trial))
            else:
                study = self._replayed(known, running)
            return self._untried.first_untried((self._asked(study) for _ in range(_TRIES)), pending)

    def _asked(self, study: Any) -> Params:
        """Return a configuration, asking for one active parameter after the other."""
        trial = study.ask()
        chosen: dict[str, ParamValue] = {}
        for i, column in enumerate(self._encoding.columns):
            if is_open(column.parameter, chosen):
                chosen[column.parameter.name] = column.decode(self._suggested(trial, i))
        return chosen

    # --- conversion ---------------------------------------------------------------------------

    def _new_study(self, number: int) -> Any:
        sampler = self._sampler(generator(self._seed, number))
        return self._optuna.create_study(directions=self._directions, sampler=sampler)

    def _sampler(self, rng: np.random.Generator) -> Any:
        if not inspect.isclass(self._adapted):
            copied = copy.deepcopy(self._adapted)
            for state in _random_states(copied, set()):
                state.rng.seed(int(rng.integers(2**31)))
            return copied
        options: dict[str, Any] = {"seed": int(rng.integers(2**31))}
        if self._is_constrained:
            options["constraints_func"] = _constraints_of
        return self._adapted(**options)

    @property
    def _is_constrained(self) -> bool:
        # Only if need be: some samplers search otherwise with constraints that all trials keep.
        return self._has_violations and self._takes_constraints

    def _distribution(self, column: Column) -> Any:
        kinds = self._optuna.distributions
        if column.values is None:
            return kinds.FloatDistribution(0.0, 1.0)
        if column.ordered:
            return kinds.IntDistribution(0, column.count - 1)
        return kinds.CategoricalDistribution(range(column.count))

    def _suggested(self, trial: Any, index: int) -> float:
        name, column = str(index), self._encoding.columns[index]
        if column.values is None:
            return float(trial.suggest_float(name, 0.0, 1.0))
        if column.ordered:
            return float(trial.suggest_int(name, 0, column.count - 1))
        return float(trial.suggest_categorical(name, range(column.count)))

    def _params(self, trial: Trial) -> dict[str, float]:
        row = self._encoding.encode(trial.params)
        if row is None:
            return {}
        return {
            str(i): number if self._encoding.columns[i].values is None else int(number)
            for i, number in enumerate(row.tolist())
            if not math.isnan(number)
        }

    def _frozen(self, trial: Trial) -> Any:
        params = self._params(trial)
        state, values = self._state_and_values(trial)
        return self._optuna.trial.create_trial(
            state=state,
            values=values,
            params=params,
            distributions={name: self._distributions[int(name)] for name in params},
            intermediate_values=_reports(trial, values),
            system_attrs={_CONSTRAINTS: (_finite(trial.violation),)}
            if self._is_constrained
            else {},
        )

    def _state_and_values(self, trial: Trial) -> tuple[Any, Sequence[float] | None]:
        """Return the trial's state in Optuna, and its values if Optuna accepts them."""
        states = self._optuna.trial.TrialState
        usable = len(trial.values) == len(self._directions) and all(
            map(math.isfinite, trial.values)
        )
        values = trial.values if usable else None
        if trial.state is TrialState.COMPLETE and trial.violation and not self._takes_constraints:
            return states.FAIL, None
        match trial.state:
            case TrialState.COMPLETE if values is not None:
                return states.COMPLETE, values
            case TrialState.PRUNED:
                return states.PRUNED, values
            case TrialState.COMPLETE | TrialState.FAILED:
                return states.FAIL, None
            case _:
                return states.RUNNING, None

    # --- samplers with state ------------------------------------------------------------------

    def _replayed(self, known: Sequence[Trial], running: Sequence[Trial]) -> Any:
        """Return a new study in which the sampler was asked for each of these trials.

        Trials before the first unfinished one do not change any more and are replayed once.
        """
        unfinished = next((i for i, t in enumerate(known) if not t.state.is_final), len(known))
        if (
            self._replayed_trials != known[: len(self._replayed_trials)]
            or self._replayed_study is None
        ):
            self._replayed_trials, self._replayed_study = [], self._new_study(0)
        for trial in known[len(self._replayed_trials) : unfinished]:
            self._replay(self._replayed_study, trial)
            self._replayed_trials.append(trial)
        study = copy.deepcopy(self._replayed_study)
        for trial in (*known[unfinished:], *running):
            self._replay(study, trial)
        return study

    def _replay(self, study: Any, trial: Trial) -> None:
        params = self._params(trial)
        study.enqueue_trial(params)
        asked = study.ask()
        # Optuna does not call the sampler for enqueued values, but the sampler records the
        # trial's generation in this call.
        _ = asked.relative_params
        for name in params:
            self._suggested(asked, int(name))
        state, values = self._state_and_values(trial)
        states = self._optuna.trial.TrialState
        for step, reached in _reports(trial, values).items():
            asked.report(reached, step)
        if self._is_constrained:
            asked.set_user_attr(_CONSTRAINTS, _finite(trial.violation))
        if state is not states.RUNNING:
            study.tell(asked, values if state is states.COMPLETE else None, state=state)


def _reports(trial: Trial, values: Sequence[float] | None) -> dict[int, float]:
    return {} if values is None or len(values) > 1 else {trial.step or 1: values[0]}


def _finite(violation: float) -> float:
    return min(violation, sys.float_info.max)  # Optuna adds them up


def _constraints_of(trial: Any) -> tuple[float]:
    return (float(trial.user_attrs[_CONSTRAINTS]),)


def check(*, directions: Sequence[Direction], adapted: Any) -> None:
    """Check that a sampler can be used.

    Raises:
        UsageError: As for `OptunaSampler`.
    """
    name = _class(adapted).__name__
    if _is_optunas(adapted) and len(directions) > 1 and name not in _MULTI_OBJECTIVE:
        raise UsageError(
            f"Optuna's {name} takes one objective, and there are {len(directions)}; "
            f"for several there are {', '.join(_MULTI_OBJECTIVE)}"
        )
    if name in UNSUPPORTED:
        raise UsageError(
            f"Optuna's {name} takes a search space of its own, and cannot search that of the "
            "model; use another one of Optuna's samplers, or --search grid"
        )
    if getattr(adapted, "_constraints_func", None) is not None:
        raise UsageError(
            f"the {name} has a constraints_func, which reads Optuna's own trials; leave it out, "
            "and name the conditions by --constraint, such as 'params<2e6'"
        )
    if inspect.isclass(adapted) and "seed" not in inspect.signature(adapted).parameters:
        raise UsageError(f"{name} takes no seed, so it cannot be made here; give an object of it")
    needed = _REQUIRED_PACKAGES.get(name)
    if needed is not None and importlib.util.find_spec(needed) is None:
        raise UsageError(
            f"Optuna's {name} needs the package {needed}, which is not installed; "
            f"install it with: pip install {needed}"
        )


def _class(adapted: Any) -> type[Any]:
    return adapted if inspect.isclass(adapted) else type(adapted)


def _is_optunas(adapted: Any) -> bool:
    return _class(adapted).__module__.startswith("optuna.")


def _random_states(thing: Any, seen: set[int]) -> Iterator[Any]:
    """Return all random states of Optuna's in an object, in the order of its attributes."""
    if id(thing) in seen:
        return
    seen.add(id(thing))
    if type(thing).__name__ == "LazyRandomState":
        yield thing
    elif isinstance(thing, list | tuple):
        for each in thing:
            yield from _random_states(each, seen)
    elif not inspect.isclass(thing):
        for each in getattr(thing, "__dict__", {}).values():
            yield from _random_states(each, seen)


def distribution_of(optuna: Any, parameter: Parameter) -> Any:
    """Return a parameter as a distribution of Optuna, which has no multiplying step."""
    match parameter:
        case FloatParameter(low=low, high=high, scale=scale, step=step):
            step = step if scale is Scale.LINEAR else None
            return optuna.distributions.FloatDistribution(low, high, scale is Scale.LOG, step)
        case IntParameter(low=low, high=high, scale=scale, step=step):
            step = step if scale is Scale.LINEAR and step else 1
            return optuna.distributions.IntDistribution(low, high, scale is Scale.LOG, step)
        case _:
            return optuna.distributions.CategoricalDistribution(parameter.values)


def distribution_of_values(optuna: Any, values: Sequence[ParamValue]) -> Any:
    """Return a distribution that has these values."""
    kinds, numbers = optuna.distributions, [*filter(is_number, values)]
    if len(numbers) < len(values):
        return kinds.CategoricalDistribution([*dict.fromkeys(values)])
    if all(isinstance(number, int) for number in numbers):
        return kinds.IntDistribution(min(numbers), max(numbers))
    return kinds.FloatDistribution(min(numbers), max(numbers))


def without_missed_step(exact: Any, value: ParamValue) -> Any:
    """Return a distribution, without its step if the value lies between two, as a default may."""
    if contains(exact, value) or hasattr(exact, "choices"):
        return exact
    stepless = type(exact)(exact.low, exact.high, log=exact.log)
    return stepless if contains(stepless, value) else exact


def contains(distribution: Any, value: ParamValue) -> bool:
    """Return whether a distribution has a value."""
    choices = getattr(distribution, "choices", None)
    if choices is not None:
        return value in choices
    if not isinstance(value, int | float) or not distribution.low <= value <= distribution.high:
        return False
    steps = (value - distribution.low) / (distribution.step or 1.0)
    return distribution.step is None or abs(steps - round(steps)) < _ROUNDING


@contextlib.contextmanager
def quiet(optuna: ModuleType) -> Iterator[None]:
    """Silence Optuna, which logs every new study and warns of what hptune does on purpose."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        optuna.logging.set_verbosity(level)

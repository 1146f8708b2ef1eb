"""A trial that a script runs."""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution
from optuna.trial import FrozenTrial, Trial

from ..ask_tell.trial import AskedTrial
from ..core.space.parameters import ChoiceParameter, FloatParameter, IntParameter, Scale
from ..errors import HptuneError, UsageError
from .attributes import attributes, set_attribute
from .missing import refused

VALUE = "value"
"""The metric of a study with one objective."""

Parameter = FloatParameter | IntParameter | ChoiceParameter


class RunningTrial(Trial):
    """A trial of a study; the values that Optuna's methods suggest are those of hptune.

    Args:
        study: The `study.Study`.
        asked: The trial that it was asked for.
        fixed: Values of hyperparameters that the study does not search yet.
    """

    study: Any

    def __init__(self, study: Any, asked: AskedTrial, fixed: Mapping[str, Any]) -> None:
        self.study = study
        self.asked = asked
        self._fixed = fixed
        self._folder: Path = study.folder / str(asked.number)
        self._params: dict[str, Any] = {}
        self._distributions: dict[str, BaseDistribution] = {}
        self._steps: set[int] = set()
        self._is_judged = True

    @property
    def number(self) -> int:
        """The trial's number, from 0."""
        return self.asked.number

    @property
    def _cached_frozen_trial(self) -> FrozenTrial:  # type: ignore[override]  # Optuna only reads it
        frozen: FrozenTrial = self.study.get_trials(deepcopy=False)[self.number]
        return frozen

    @property
    def params(self) -> dict[str, Any]:
        """What was suggested so far."""
        return dict(self._params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The ranges and choices of that."""
        return dict(self._distributions)

    # --- hyperparameters ------------------------------------------------------------------------

    set_constraint: Any = refused("a trial of hptune.optuna", "set_constraint")

    def suggest(self, name: str, distribution: BaseDistribution) -> Any:
        """Return a value of the distribution; all of Optuna's methods call this."""
        value = self._declared(self._parameter(name, distribution))
        if isinstance(distribution, CategoricalDistribution):
            stored = self.study.choices(name, distribution.choices)
            value = distribution.choices[stored.index(value)]
        self._params[name], self._distributions[name] = value, distribution
        return value

    _suggest = suggest

    def _check_distribution(self, name: str, distribution: BaseDistribution) -> None:
        """Do nothing: `_declared` has checked it."""

    def _parameter(self, name: str, distribution: Any) -> Parameter:
        if isinstance(distribution, CategoricalDistribution):
            return ChoiceParameter(name, self.study.choices(name, distribution.choices))
        low, high, step = distribution.low, distribution.high, distribution.step
        scale = Scale.LOG if distribution.log else Scale.LINEAR
        if isinstance(distribution, FloatDistribution):
            return FloatParameter(name, low, high, step=step, scale=scale)
        return IntParameter(name, low, high, step=None if step == 1 else step, scale=scale)

    def _declared(self, parameter: Parameter) -> Any:
        """Return the value of a hyperparameter, which the study searches from now on."""
        name, hp = parameter.name, self.asked.hp
        if name not in hp.known_values:  # it was not searched when the trial was asked for
            drawn = parameter.from_unit(random.Random(f"{self.asked.seed} {name}").random())  # noqa: S311 - of the seed
            hp.known_values[name] = self.study.stored(name, self._fixed.get(name, drawn))
        if isinstance(parameter, ChoiceParameter):
            value = hp.Choice(name, list(parameter.values))
            is_allowed = value in parameter.values
        else:
            declare: Any = hp.Int if isinstance(parameter, IntParameter) else hp.Float
            low, high, scale = parameter.low, parameter.high, str(parameter.scale)
            value = declare(name, low, high, parameter.step, scale)
            is_allowed = low <= value <= high
        first = next(known for known in hp.space if known.name == name)
        is_changed = type(first) is type(parameter) and first.bounds != parameter.bounds
        if is_changed or not is_allowed:
            raise UsageError(
                f"{name} is {value!r} of {first.bounds}; this trial allows {parameter.bounds}. "
                "Declare it alike in all trials, or give it another name"
            )
        return value

    # --- results --------------------------------------------------------------------------------

    def report(self, value: float, step: int) -> None:
        """Report a value; steps may begin at 0. One that is not finite is not compared.

        The first report of a step counts, as in Optuna.
        """
        value, step = float(value), int(step)
        if step in self._steps:
            return
        self._steps.add(step)
        self._is_judged = math.isfinite(value)
        if self._is_judged:
            self.asked.report(step + 1, **{VALUE: value})  # those of hptune begin at 1

    def should_prune(self) -> bool:
        """Return whether the trial is poor, or the study is stopped from outside."""
        return self._is_judged and self.asked.should_stop()

    def set_user_attr(self, key: str, value: Any) -> None:
        """Set an attribute to any value that can be pickled."""
        set_attribute(self._folder, key, value)
        self.study.copied = None, None

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The attributes that were set."""
        return copy.deepcopy(attributes(self._folder))

    def give_back(self) -> None:
        """Let another program have the trial, unless it is over."""
        with contextlib.suppress(HptuneError):
            self.asked.release()

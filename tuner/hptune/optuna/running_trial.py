"""A trial that a script runs."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, Trial

from ..ask_tell.trial import AskedTrial
from ..core.attempt import Cause
from ..core.space.parameters import Parameter
from ..errors import HptuneError, UsageError
from .distributions import declared, enqueued
from .missing import refused


class RunningTrial(Trial):
    """A trial of a study; the values that Optuna's methods suggest are those of hptune.

    Args:
        study: The `study.Study`.
        asked: The trial that it was asked for.
        fixed: Values of hyperparameters that the study does not search yet.
    """

    study: Any
    number = 0  # of Optuna's trials, it is read from a storage

    def __init__(self, study: Any, asked: AskedTrial, fixed: Mapping[str, Any]) -> None:
        self.study = study
        self.asked = asked
        self.number = asked.number
        self.asked.has_asked_all = (Cause.RETURNED, Cause.PRUNED, Cause.EXCEPTION)
        self._hp = asked.hp
        self._fixed = fixed
        self._params: dict[str, Any] = {}
        self._distributions: dict[str, BaseDistribution] = {}
        self._steps: set[int] = set()
        self._is_judged = True

    @property
    def _cached_frozen_trial(self) -> FrozenTrial:  # type: ignore[override]  # Optuna only reads it
        frozen: FrozenTrial = self.study.results.get_trial(self.number)
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
        hp, own, results = self._hp, declared(distribution), self.study.results
        hp.first_value = lambda new: enqueued(new, own, self._fixed).get(name, self._drawn(new))
        value = getattr(hp, own.declaration.kind)(name, **own.declaration.options)
        first = results.declared(name) or own
        if first.declaration != own.declaration:
            raise UsageError(
                f"{name} is {value!r} of {first.distribution}; this trial allows {distribution}. "
                "Declare it alike in all trials, or give it another name"
            )
        results.declare(name, own)
        self._distributions[name] = distribution
        self._params[name] = own.suggested(value)
        return self._params[name]

    _suggest = suggest

    def _drawn(self, new: Parameter) -> Any:
        """Return the value of a hyperparameter that the study does not search yet."""
        return new.from_unit(random.Random(f"{self.asked.seed} {new.name}").random())  # noqa: S311 - of the seed

    def _check_distribution(self, name: str, distribution: BaseDistribution) -> None:
        """Do nothing: `suggest` has checked it."""

    # --- results --------------------------------------------------------------------------------

    def report(self, value: float, step: int) -> None:
        """Report a value; steps may begin at 0. One that is not finite is not compared.

        The first report of a step counts, as in Optuna.
        """
        value, step = float(value), int(step)
        if step < 0:
            raise ValueError(f"trial.report: the step is {step}; steps begin at 0")
        if step in self._steps:
            return
        self._steps.add(step)
        self._is_judged = math.isfinite(value)
        if self._is_judged:
            metric = self.study.results.reported
            self.asked.report(step + 1, **{metric: value})  # those of hptune begin at 1

    def should_prune(self) -> bool:
        """Return whether the trial is poor, or the study is stopped from outside."""
        return self._is_judged and self.asked.should_stop()

    def set_user_attr(self, key: str, value: Any) -> None:
        """Set an attribute to any value that can be pickled."""
        self.study.results.set_trial_user_attr(self.number, key, value)

    def give_back(self) -> None:
        """Let another program have the trial, unless it is over."""
        with contextlib.suppress(HptuneError):
            self.asked.release()

"""hptune's samplers as an optimiser of carps (https://github.com/automl/CARP-S)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from carps.optimizers.optimizer import Optimizer
from carps.utils.trials import StatusType, TrialInfo, TrialValue
from ConfigSpace import (
    AndConjunction,
    CategoricalHyperparameter,
    Configuration,
    ConfigurationSpace,
    Constant,
    EqualsCondition,
    InCondition,
    OrdinalHyperparameter,
    UniformFloatHyperparameter,
    UniformIntegerHyperparameter,
)

from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Params

from .opponents import Own


class HptuneOptimizer(Optimizer):
    """One of hptune's samplers, for tasks with one objective and without fidelities.

    Args:
        task: The task of carps.
        loggers: Loggers of carps.
        sampler: The sampler's name, such as `bayesian`.
        seed: The sampler's seed.
    """

    def __init__(
        self, task: Any, loggers: list[Any] | None = None, *, sampler: str, seed: int
    ) -> None:
        super().__init__(task, loggers)
        if task.output_space.n_objectives > 1 or task.input_space.fidelity_space.is_multifidelity:
            raise ValueError(f"{task.name} has several objectives or fidelities; take a blackbox")
        self._sampler = sampler
        self._seed = seed
        self._configspace: ConfigurationSpace = task.objective_function.configspace
        self._asked = 0
        self._best: tuple[TrialInfo, TrialValue] | None = None

    def _setup_optimizer(self) -> Own:
        return Own(self._sampler, self.convert_configspace(self._configspace), self._seed)

    def convert_configspace(self, configspace: ConfigurationSpace) -> SearchSpace:
        """Return the search space as ours."""
        return SearchSpace(tuple(_parameters(configspace)))

    def convert_to_trial(self, number: int, params: Params) -> TrialInfo:
        """Return carps' description of a trial; its name is its number."""
        return TrialInfo(config=Configuration(self._configspace, dict(params)), name=str(number))

    def ask(self) -> TrialInfo:
        """Return the next trial."""
        number, self._asked = self._asked, self._asked + 1
        return self.convert_to_trial(number, self.solver.ask(number))

    def tell(self, trial_info: TrialInfo, trial_value: TrialValue) -> None:
        """Report the value of a trial."""
        ended = trial_value.status == StatusType.SUCCESS
        cost = float(trial_value.cost) if ended else math.nan
        self.solver.tell(int(trial_info.name), cost)
        if self._best is None or cost < self._best[1].cost:
            self._best = (trial_info, trial_value)

    def get_current_incumbent(self) -> tuple[TrialInfo, TrialValue] | None:
        """Return the best trial so far."""
        return self._best


def _parameters(configspace: ConfigurationSpace) -> Iterator[Parameter]:
    """Yield the hyperparameters, parents before children."""
    if configspace.forbidden_clauses:
        raise ValueError("the space has forbidden clauses, which hptune's spaces have not")
    conditions: dict[str, list[Condition]] = {}
    for condition in configspace.conditions:
        conditions.setdefault(condition.child.name, []).extend(_conditions(condition))
    left = {hp.name: hp for hp in configspace.values()}
    while left:
        ready = [
            hp
            for name, hp in left.items()
            if not any(condition.name in left for condition in conditions.get(name, ()))
        ]
        for hp in ready:
            yield _parameter(hp, tuple(conditions.get(hp.name, ())))
            del left[hp.name]


def _conditions(condition: Any) -> list[Condition]:
    match condition:
        case AndConjunction():
            return [own for part in condition.components for own in _conditions(part)]
        case InCondition():
            return [Condition(condition.parent.name, _plain(condition.values))]
        case EqualsCondition():
            return [Condition(condition.parent.name, _plain([condition.value]))]
        case _:
            raise ValueError(f"unknown condition {condition}; known are ==, in and their and")


def _parameter(hp: Any, conditions: tuple[Condition, ...]) -> Parameter:
    match hp:
        case Constant():
            (value,) = _plain([hp.value])
            return FixedParameter(hp.name, value, conditions=conditions)
        case CategoricalHyperparameter():
            choices = _plain(hp.choices)
            return ChoiceParameter(hp.name, choices, ordered=False, conditions=conditions)
        case OrdinalHyperparameter():
            return ChoiceParameter(hp.name, _plain(hp.sequence), conditions=conditions)
        case UniformIntegerHyperparameter():
            low, high = int(hp.lower), int(hp.upper)
            return IntParameter(hp.name, low, high, scale=_scale(hp), conditions=conditions)
        case UniformFloatHyperparameter():
            bounds = float(hp.lower), float(hp.upper)
            return FloatParameter(hp.name, *bounds, scale=_scale(hp), conditions=conditions)
        case _:
            raise ValueError(f"{hp.name} is a {type(hp).__name__}, which hptune does not know")


def _scale(hp: Any) -> Scale:
    return Scale.LOG if hp.log else Scale.LINEAR


def _plain(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the values without NumPy's types."""
    return tuple(value.item() if hasattr(value, "item") else value for value in values)

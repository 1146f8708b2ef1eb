"""hptune's samplers as an optimiser of carps (https://github.com/automl/CARP-S)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from carps.optimizers.optimizer import Optimizer
from carps.utils.pareto_front import pareto
from carps.utils.trials import StatusType, TrialInfo, TrialValue
from ConfigSpace import Configuration, ConfigurationSpace

from hptune.core.space.space import SearchSpace
from hptune.core.trial import Params

from .configspaces import search_space
from .opponents import Own

Ended = tuple[TrialInfo, TrialValue]


class HptuneOptimizer(Optimizer):
    """One of hptune's samplers, for tasks without fidelities.

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
        if task.input_space.fidelity_space.is_multifidelity:
            raise ValueError(f"{task.name} has fidelities; take a task without them")
        self._sampler = sampler
        self._seed = seed
        self._configspace: ConfigurationSpace = task.objective_function.configspace
        self._objectives: int = task.output_space.n_objectives
        self._asked = 0
        self._front: list[Ended] = []

    def _setup_optimizer(self) -> Own:
        space = self.convert_configspace(self._configspace)
        return Own(self._sampler, space, self._seed, objectives=self._objectives)

    def convert_configspace(self, configspace: ConfigurationSpace) -> SearchSpace:
        """Return the search space as ours."""
        return search_space(configspace.to_serialized_dict())

    def convert_to_trial(self, number: int, params: Params) -> TrialInfo:
        """Return carps' description of a trial; its name is its number."""
        return TrialInfo(config=Configuration(self._configspace, dict(params)), name=str(number))

    def ask(self) -> TrialInfo:
        """Return the next trial."""
        number, self._asked = self._asked, self._asked + 1
        return self.convert_to_trial(number, self.solver.ask(number))

    def tell(self, trial_info: TrialInfo, trial_value: TrialValue) -> None:
        """Report the costs of a trial."""
        if trial_value.status != StatusType.SUCCESS:
            self.solver.tell(int(trial_info.name), math.nan)
            return
        self.solver.tell(int(trial_info.name), *_costs(trial_value))
        front = [*self._front, (trial_info, trial_value)]
        kept = pareto(np.array([_costs(value) for _, value in front]))
        self._front = [ended for ended, is_best in zip(front, kept, strict=True) if is_best]

    def get_current_incumbent(self) -> Ended | list[Ended] | None:
        """Return the best trial so far; all of the front if there are several objectives."""
        if self._objectives > 1:
            return self._front
        return self._front[0] if self._front else None


def _costs(value: TrialValue) -> tuple[float, ...]:
    return tuple(map(float, np.ravel(value.cost)))

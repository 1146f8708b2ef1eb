"""hptune's samplers as an optimiser of carps (https://github.com/automl/CARP-S)."""

from __future__ import annotations

import math
from typing import Any

from carps.optimizers.optimizer import Optimizer
from carps.utils.trials import StatusType, TrialInfo, TrialValue
from ConfigSpace import Configuration, ConfigurationSpace

from hptune.core.space.space import SearchSpace
from hptune.core.trial import Params

from .configspaces import search_space
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
        return search_space(configspace.to_serialized_dict())

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

"""The user's application in the processes of trials, which read it from a pickle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.singleton import Singleton
from hydra.core.utils import run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from ..training.context import TrialContext


def overrides(values: Mapping[str, Any]) -> list[str]:
    """Return a configuration as overrides."""
    return [f"{name}={value}" for name, value in values.items()]


@dataclass(frozen=True, slots=True)
class Application:
    """An application as an `objective(hp, trial)`.

    Attributes:
        context: The loader of configurations, and callbacks.
        function: The application.
        config: The configuration of the multirun.
        fixed: The overrides that all trials have.
        folder: The folder in which Hydra puts the outputs of each trial.
        state: What Hydra keeps in its process.
        environment: The variables of `env_copy` in the configuration, which workers elsewhere lack.
    """

    context: HydraContext
    function: TaskFunction
    config: DictConfig
    fixed: tuple[str, ...]
    folder: Path
    state: Any
    environment: Mapping[str, str]

    @property
    def hydra_callbacks(self) -> Mapping[str, Any]:
        """The callbacks, by the names that an error has for what cannot be pickled."""
        of_context = self.context.callbacks.callbacks
        return {f"{type(each).__qualname__} of hydra.callbacks": each for each in of_context}

    def __call__(self, hp: Any, trial: TrialContext) -> Any:
        """Run the application, as Hydra's own launcher does."""
        _ = trial.checkpoint_dir  # where the space is read, the call ends here
        os.environ.update(self.environment)
        Singleton.set_state(self.state)
        setup_globals()
        config = self.context.config_loader.load_sweep_config(
            self.config, [*self.fixed, *overrides(hp.values)]
        )
        with open_dict(config):
            config.hydra.job.num = trial.number
            config.hydra.job.id = str(trial.number)
            config.hydra.sweep.dir = str(self.folder)
            if trial.rank:  # rank 0 has written it
                config.hydra.output_subdir = None
        job = run_job(
            task_function=self.function,
            config=config,
            job_dir_key="hydra.sweep.dir",
            job_subdir_key="hydra.sweep.subdir",
            hydra_context=self.context,
        )
        result = job.return_value
        if result is None and trial.reported and (trial.halt is None or trial.has_reported_all):
            return {}  # so that what it has reported counts
        # A list would be the results of several trainings, whose mean counts.
        return tuple(result) if isinstance(result, list) else result

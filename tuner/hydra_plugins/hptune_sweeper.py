"""The plug-in `hydra/sweeper=hptune`. Hydra imports it whenever an application starts.

So it imports Hydra alone; a sweep loads hptune.
"""

from __future__ import annotations

from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

OWN = (
    "params", "objective", "direction", "directory", "accept_space", "retry_failed", "quiet",
)  # fmt: skip
"""Options of the sweeper besides the settings of a study."""

SETTINGS = (
    "constraints", "confirm", "confirm_repeats",
    "search", "options", "grid_points", "start_points", "priors", "warm_start", "seed",
    "trials", "first", "epochs", "timeout", "budget", "trial_timeout",
    "pruner", "min_epochs", "reduction_factor", "brackets", "pruner_mode",
    "workers", "cpus_per_trial", "gpus_per_trial", "processes_per_trial",
    "nodes_per_trial", "memory_per_trial", "pack", "strategy", "batch_rule", "warm_up_epochs",
    "cluster", "connect", "certs", "insecure", "slurm", "max_jobs", "min_workers", "executor",
    "cache_data", "file_limit", "checkpoint_every", "keep_checkpoints", "stop_at", "master_grace",
    "on_failure", "max_failures", "same_failures", "hang_timeout",
    "notify", "notify_wait", "mirror",
)  # fmt: skip
"""Settings of a study, by the names that `hptune.Tuner` gives them."""


class HptuneSweeper(Sweeper):
    """Runs the trials of a multirun as a study of hptune.

    Args:
        options: What the configuration of the sweeper has.
    """

    def __init__(self, **options: Any) -> None:
        del options  # `sweep` reads them from the configuration, without types of OmegaConf

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Take what Hydra knows of the application."""
        self._application = hydra_context, task_function, config

    def sweep(self, arguments: list[str]) -> None:
        """Run the study; `arguments` are the overrides of the command line."""
        from hptune.hydra.sweep import sweep

        sweep(*self._application, arguments)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="hptune",
    node=DictConfig(
        {
            "_target_": f"{HptuneSweeper.__module__}.{HptuneSweeper.__qualname__}",
            **dict.fromkeys((*OWN, *SETTINGS)),
        },
        flags={"struct": False},  # hptune says which option a wrong one may mean
    ),
    provider="hptune",
)

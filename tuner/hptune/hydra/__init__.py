"""The sweeper of Hydra: `python app.py --multirun hydra/sweeper=hptune lr='interval(0.001, 0.1)'`.

Each trial of the study runs the application in a process of its own, with Hydra's own folder
of outputs. Hydra finds the plug-in `hydra_plugins.hptune_sweeper`, which calls `sweep.sweep`.
Applications that report their epochs import `report` from here, which does not import Hydra.

Offers: `report`, `lightning_callback`, `sweep.sweep`.

May import: `errors`, `core`, `config`, `files`, `study`, `training`, `tuner`.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

from ..training import context

__all__ = ["lightning_callback", "report"]


@context.explains_its_call("hptune.hydra.report(epoch, loss=0.5)")
def report(step: int, **metrics: SupportsFloat) -> None:
    """Report metrics to the study, and end the trial here if it is to stop.

    Outside of a multirun with `hydra/sweeper=hptune` it does nothing.

    Args:
        step: Epochs done (or whatever you count), from 1.
        metrics: What was measured, by name; among them the objective.
    """
    trial = context.current()
    if trial is not None:
        trial.report(step, **metrics)
        if trial.should_stop() and not trial.has_reported_all:
            trial.stop_if_told()


def lightning_callback() -> Any:
    """Return `hptune.lightning_callback` for the trial of this process, for configurations.

    In a configuration: `_target_: hptune.hydra.lightning_callback`. Outside of a multirun with
    `hydra/sweeper=hptune` it does nothing.
    """
    from ..training import torch_callbacks

    return torch_callbacks.lightning_callback(context.current() or _NoTrial())


class _NoTrial:
    """Stands for the trial where an application runs by itself."""

    def report(self, step: int, **metrics: float) -> None:
        """Do nothing."""

    def should_stop(self) -> bool:
        """Return False."""
        return False

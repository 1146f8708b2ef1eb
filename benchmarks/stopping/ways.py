"""One study by a named way of searching and stopping, of hptune or of a peer.

`tpe+asha` are hptune's own; `optuna:tpe+halving` and `syne:bohb+asha` are peers'.
"""

from __future__ import annotations

import dataclasses

from . import peers, runs
from .tasks import Task


def run(
    task: Task, way: str, *, workers: int, seed: int, budget_epochs: int, aim: float
) -> runs.Track:
    """Run one study, which ends when its loss reaches the aim or when the epochs are spent."""
    whose, _, rest = way.rpartition(":")
    if whose:
        peer: peers.Peer = (
            peers.Optuna(task, rest, workers=workers, seed=seed)
            if whose == "optuna"
            else peers.SyneTune(task, rest, seed=seed)
        )
        return peers.study(peer, task, workers=workers, budget_epochs=budget_epochs, aim=aim)
    search, _, pruner = rest.partition("+")
    return runs.own(
        task,
        search=search,
        pruner=dataclasses.replace(runs.OWN[pruner], epochs=task.epochs),
        workers=workers,
        budget_epochs=budget_epochs,
        seed=seed,
        aim=aim,
    )

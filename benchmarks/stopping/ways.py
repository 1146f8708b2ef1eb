"""One study by a named way of searching and stopping, of hptune, of a peer, or by a baseline.

`tpe+asha` are hptune's own; `optuna:tpe+halving` and `syne:bohb+asha` are peers';
`one-epoch:4-of-32` trains 32 configurations for one epoch, then the best 4 of them in full.
"""

from __future__ import annotations

import dataclasses

from . import one_epoch, peers, runs
from .tasks import Task

BASELINE = "one-epoch"


def owner(way: str) -> str:
    """Return whose way it is: of a peer, of the baseline, or "" for hptune."""
    return way.rpartition(":")[0]


def run(
    task: Task,
    way: str,
    *,
    workers: int,
    seed: int,
    budget_epochs: int,
    aim: float,
    startup_seconds: float,
) -> runs.Track:
    """Run one study, which ends when its loss reaches the aim or when the epochs are spent.

    Each start of a trial, and each continuation of a paused one, takes `startup_seconds`.
    """
    whose, _, rest = way.rpartition(":")
    if whose == BASELINE:
        kept, _, of = rest.partition("-of-")
        return one_epoch.study(
            task,
            kept=int(kept),
            of=int(of),
            workers=workers,
            budget_epochs=budget_epochs,
            seed=seed,
            aim=aim,
            startup_seconds=startup_seconds,
        )
    if whose:
        peer: peers.Peer = (
            peers.Optuna(task, rest, workers=workers, seed=seed)
            if whose == "optuna"
            else peers.SyneTune(task, rest, seed=seed)
        )
        return peers.study(
            peer,
            task,
            workers=workers,
            budget_epochs=budget_epochs,
            aim=aim,
            startup_seconds=startup_seconds,
        )
    search, _, pruner = rest.partition("+")
    return runs.own(
        task,
        search=search,
        pruner=dataclasses.replace(runs.OWN[pruner], epochs=task.epochs),
        workers=workers,
        budget_epochs=budget_epochs,
        seed=seed,
        aim=aim,
        startup_seconds=startup_seconds,
    )

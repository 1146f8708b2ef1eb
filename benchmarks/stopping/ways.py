"""One study by a named way of searching and stopping, of hptune, of a peer, or by a baseline.

`tpe+asha` are hptune's own; `optuna:tpe+halving` and `syne:bohb+asha` are peers';
`one-epoch:4-of-32` trains 32 configurations for one epoch, then the best 4 of them in full.
"""

from __future__ import annotations

import dataclasses

from hptune.samplers.random_search import RandomSampler

from . import peers, rules, runs
from .cluster import Tool, Track, Training, World, play
from .tasks import Task


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
    world: World,
) -> Track:
    """Run one study, which ends when its loss reaches the aim or when the epochs are spent.

    Times of the world are in mean full trainings of the task.
    """
    whose, _, rest = way.rpartition(":")
    world = world.times(task.training_seconds)
    if whose:
        return play(
            _tool(task, whose, rest, workers=workers, seed=seed),
            workers=workers,
            budget_epochs=budget_epochs,
            aim=aim,
            world=world,
            seed=seed,
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
        world=world,
    )


def _tool(task: Task, whose: str, rest: str, *, workers: int, seed: int) -> Tool:
    match whose:
        case "optuna":
            return peers.Optuna(task, rest, workers=workers, seed=seed)
        case "syne":
            return peers.SyneTune(task, rest, seed=seed)
    sampler = RandomSampler(task.space, seed)

    def draw(trial: int) -> Training:
        [suggestion] = sampler.ask([trial])
        return peers.training(task, trial, suggestion.params)

    name = f"{whose}:{rest}"
    return rules.Ruled(rules.make_rule(name, epochs=task.epochs, seed=seed), draw)

"""Baseline without a pruner: train some configurations for one epoch, then the best ones in full.

Egele et al. 2023, "Is one epoch all you need for multi-fidelity hyperparameter optimization?".
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass

from hptune.core.trial import Params
from hptune.samplers.random_search import RandomSampler

from .runs import Track
from .tasks import Task


@dataclass(frozen=True, slots=True)
class _Epoch:
    params: Params
    round: int
    step: int = 1


def study(
    task: Task,
    *,
    kept: int,
    of: int,
    workers: int,
    budget_epochs: int,
    seed: int,
    aim: float,
    startup_seconds: float,
) -> Track:
    """Run rounds of random configurations until the aim or the end of the budget.

    In each round, `of` configurations train for one epoch, and the best `kept` of them continue to
    the end. No worker waits: while a round has nothing to start, the next one begins.
    """
    sampler, track, order = RandomSampler(task.space, seed), Track(), itertools.count()
    running: list[tuple[float, int, _Epoch]] = []
    firsts: dict[int, list[tuple[float, int, Params]]] = {}
    chosen: list[_Epoch] = []

    def begin(at: float) -> None:
        epoch = chosen.pop(0) if chosen else fresh()
        run(epoch, at + startup_seconds)

    def fresh() -> _Epoch:
        [suggestion] = sampler.ask([track.trials])
        track.trials += 1
        return _Epoch(suggestion.params, (track.trials - 1) // of)

    def run(epoch: _Epoch, at: float) -> None:
        heapq.heappush(running, (at + task.seconds(epoch.params), next(order), epoch))

    for _ in range(workers):
        begin(0.0)
    while not track.is_over(aim, budget_epochs):
        track.seconds, number, epoch = heapq.heappop(running)
        loss = task.curve(epoch.params)[epoch.step - 1]
        track.note(loss, track.seconds)
        if epoch.step == 1:
            of_round = firsts.setdefault(epoch.round, [])
            of_round.append((loss, number, epoch.params))
            if len(of_round) == of:
                chosen += [
                    _Epoch(params, epoch.round, 2) for _, _, params in sorted(of_round)[:kept]
                ]
            begin(track.seconds)
        elif epoch.step < task.epochs:
            run(_Epoch(epoch.params, epoch.round, epoch.step + 1), track.seconds)
        else:
            begin(track.seconds)
    return track

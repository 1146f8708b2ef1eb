"""One study of one task by hptune: losses by the number of epochs, and idle time of the workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from hptune.core.attempt import Attempt
from hptune.core.goals import Goals
from hptune.core.messages import (
    Event,
    FinishReason,
    Reported,
    StopRequested,
    WorkerJoined,
    WorkerLeft,
)
from hptune.core.pruner import PrunerSettings
from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction, Goal, Trial
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.random_search import RandomSampler
from hptune.samplers.tpe.sampler import TpeSampler
from simulated import SimulatedExecutor
from simulated_parts import Faults, SimulatedWorker
from simulated_studies import Memory, play

from .cluster import Track, World
from .tasks import Task

GOAL = Goal("loss", Direction.MIN)
PLENTY = 100_000

OWN = {
    "none": PrunerSettings(),
    "median": PrunerSettings(name="median"),
    "asha": PrunerSettings(name="asha"),
    "asha-promote": PrunerSettings(name="asha", options={"pruner_mode": "promote"}),
    "hyperband": PrunerSettings(name="hyperband"),
    "hyperband-promote": PrunerSettings(name="hyperband", options={"pruner_mode": "promote"}),
}


class _Tracked(Memory):
    """Records the track of a study."""

    def __init__(self, begun: float, budget_epochs: int, aim: float) -> None:
        super().__init__()
        self.track = Track()
        self._aim = aim
        self._begun = begun
        self._budget = budget_epochs
        self._joined: dict[str, float] = {}

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        super().append((), trials=trials, attempts=attempts)
        for event in events:
            if self.is_spent:
                break
            match event:
                case Reported():
                    self.track.note(event.report.metrics["loss"], event.at - self._begun)
                case WorkerJoined():
                    self._joined[event.worker] = event.at
                case WorkerLeft():
                    self.track.held += event.at - self._joined.pop(event.worker)

    @property
    def is_spent(self) -> bool:
        return self.track.is_over(self._aim, self._budget)

    def close(self, trials: int) -> Track:
        """Return the track of the whole study."""
        track, end = self.track, self._begun + self.track.seconds
        track.trials = trials
        track.held += sum(end - at for at in self._joined.values())
        busy = sum(
            min(attempt.ended_at or end, end) - min(attempt.placed_at, end)
            for attempt in self.attempts.values()
        )
        track.idle = 1.0 - busy / track.held
        return track


def own(
    task: Task,
    *,
    search: str,
    pruner: PrunerSettings,
    workers: int,
    budget_epochs: int,
    seed: int,
    aim: float,
    world: World,
) -> Track:
    """Run a study of hptune in its simulator, with the real engine, loop, sampler and pruner.

    It ends when its loss is as low as the aim, or when the epochs are spent. Trials have a
    checkpoint of each epoch.
    """
    walltime = None if math.isinf(world.walltime) else world.walltime
    executor = SimulatedExecutor(
        curve=lambda params, _: [{"loss": loss} for loss in task.curve(params)],
        seconds_per_epoch=lambda params, _: task.seconds(params),
        workers=[SimulatedWorker(name=f"w{n}", walltime_seconds=walltime) for n in range(workers)],
        faults=Faults(
            worker_life_seconds=None if math.isinf(world.life) else world.life,
            replaced_after_seconds=world.queue,
        ),
        seed=seed,
        startup_seconds=world.startup,
        stop_seconds=0.0,
    )
    begun = executor.clock.now()
    tracked = _Tracked(begun, budget_epochs, aim)

    def requests() -> Sequence[Event]:
        if tracked.is_spent:
            return [
                StopRequested(executor.clock.now(), FinishReason.TIME_UP, "the epochs are spent")
            ]
        return ()

    played = play(
        executor,
        space=task.space,
        goals=Goals((GOAL,)),
        trials=PLENTY,
        make_sampler=lambda space: _sampler(search, space, seed),
        memory=tracked,
        seed=seed,
        epochs=task.epochs,
        pruner=pruner,
        requests=requests,
    )
    return tracked.close(trials=sum(1 for _ in played.engine.trials))


def _sampler(search: str, space: SearchSpace, seed: int) -> Sampler:
    # Without the model's defaults, which a study would try first: they are good enough here.
    if search == "bayesian":
        return BayesianSampler(space, seed, directions=(GOAL.direction,))
    if search == "tpe":
        return TpeSampler(space, seed, directions=(GOAL.direction,))
    return RandomSampler(space, seed)

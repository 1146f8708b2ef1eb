"""One study of one task by hptune: losses by the number of epochs, and idle time of the workers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hptune.core.attempt import Attempt
from hptune.core.goals import Goals
from hptune.core.messages import Event, FinishReason, Reported, StopRequested
from hptune.core.pruner import PrunerSettings
from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction, Goal, Trial
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.random_search import RandomSampler
from hptune.samplers.tpe.sampler import TpeSampler
from simulated import SimulatedExecutor
from simulated_parts import SimulatedWorker
from simulated_studies import Memory, play

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


@dataclass(slots=True)
class Track:
    """Losses and costs of a study.

    Attributes:
        improvements: Each time a better loss was seen: epochs and seconds spent until then, loss.
        epochs: The number of trained epochs.
        seconds: The duration on the virtual clock.
        trials: The number of trials.
        idle: The share of the workers' time in which they had nothing to do.
    """

    improvements: list[tuple[int, float, float]] = field(default_factory=list)
    epochs: int = 0
    seconds: float = 0.0
    trials: int = 0
    idle: float = 0.0

    def note(self, loss: float, seconds: float) -> None:
        """Record the loss of an epoch."""
        self.epochs += 1
        if not self.improvements or loss < self.improvements[-1][2]:
            self.improvements.append((self.epochs, seconds, loss))

    def until(self, aim: float) -> tuple[float, float]:
        """Return the epochs and seconds until the loss was this low; infinite if it never was."""
        for epochs, seconds, loss in self.improvements:
            if loss <= aim:
                return float(epochs), seconds
        return math.inf, math.inf

    def is_over(self, aim: float, budget_epochs: int) -> bool:
        """Return whether the aim is reached or the budget is spent."""
        reached = bool(self.improvements) and self.improvements[-1][2] <= aim
        return reached or self.epochs >= budget_epochs


class _Tracked(Memory):
    """Records the track of a study."""

    def __init__(self, begun: float, budget_epochs: int, aim: float) -> None:
        super().__init__()
        self.track = Track()
        self._aim = aim
        self._begun = begun
        self._budget = budget_epochs

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        super().append((), trials=trials, attempts=attempts)
        for event in events:
            if isinstance(event, Reported) and not self.is_spent:
                self.track.note(event.report.metrics["loss"], event.at - self._begun)
                self.track.seconds = event.at - self._begun

    @property
    def is_spent(self) -> bool:
        return self.track.is_over(self._aim, self._budget)


def own(
    task: Task,
    *,
    search: str,
    pruner: PrunerSettings,
    workers: int,
    budget_epochs: int,
    seed: int,
    aim: float,
    startup_seconds: float,
) -> Track:
    """Run a study of hptune in its simulator, with the real engine, loop, sampler and pruner.

    It ends when its loss is as low as the aim, or when the epochs are spent.
    """
    executor = SimulatedExecutor(
        curve=lambda params, _: [{"loss": loss} for loss in task.curve(params)],
        seconds_per_epoch=lambda params, _: task.seconds(params),
        workers=[SimulatedWorker(name=f"w{n}") for n in range(workers)],
        seed=seed,
        startup_seconds=startup_seconds,
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
    track = tracked.track
    track.trials = sum(1 for _ in played.engine.trials)
    end = begun + track.seconds
    busy = sum(
        min(attempt.ended_at or end, end) - min(attempt.placed_at, end)
        for attempt in tracked.attempts.values()
    )
    track.idle = 1.0 - busy / (track.seconds * workers)
    return track


def _sampler(search: str, space: SearchSpace, seed: int) -> Sampler:
    # Without the model's defaults, which a study would try first: they are good enough here.
    if search == "bayesian":
        return BayesianSampler(space, seed, directions=(GOAL.direction,))
    if search == "tpe":
        return TpeSampler(space, seed, directions=(GOAL.direction,))
    return RandomSampler(space, seed)

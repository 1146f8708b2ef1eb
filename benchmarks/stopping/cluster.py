"""A cluster on a virtual clock: what workers train next, until a study has a good loss."""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class World:
    """What workers do besides training.

    Attributes:
        startup: Seconds of each start of a trial, and of each continuation.
        walltime: Seconds after which a worker ends.
        queue: Seconds until another worker comes after one has ended.
        life: Seconds that a worker lives on average, drawn for each one; then it dies.
        checkpoints: Whether a trial whose worker has ended continues after its last epoch; else it
            begins again.
    """

    startup: float = 0.0
    walltime: float = math.inf
    queue: float = 0.0
    life: float = math.inf
    checkpoints: bool = True

    def times(self, seconds: float) -> World:
        """Return the world with times in this unit."""
        each = {name: getattr(self, name) * seconds for name in TIMES}
        return dataclasses.replace(self, **each)

    def stay(self, *of: int) -> float:
        """Return how long a worker is there; it is the same for the same numbers."""
        if math.isinf(self.life):
            return self.walltime
        return min(self.walltime, float(np.random.default_rng(of).exponential(self.life)))


TIMES = ("startup", "walltime", "queue", "life")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a world, in mean full trainings of a task."""
    default = World()
    for name, what in (
        ("startup", "each start of a trial, and each continuation"),
        ("walltime", "the time after which a worker ends"),
        ("queue", "the time until another worker comes"),
        ("life", "the mean time until a worker dies"),
    ):
        parser.add_argument(
            f"--{name}",
            type=float,
            default=getattr(default, name),
            metavar="TRAININGS",
            help=f"{what}, in full trainings (%(default)s)",
        )


def world_of(options: argparse.Namespace) -> World:
    """Return the world that the options ask for."""
    return World(**{name: getattr(options, name) for name in TIMES})


@dataclass(slots=True)
class Track:
    """Losses and costs of a study.

    Attributes:
        improvements: Each time a better loss was seen: epochs and seconds spent until then, loss.
        epochs: The number of trained epochs.
        seconds: The duration on the virtual clock.
        held: The seconds for which workers were there, added over all workers.
        trials: The number of trials.
        idle: The share of the workers' time in which they had nothing to do.
    """

    improvements: list[tuple[int, float, float]] = field(default_factory=list)
    epochs: int = 0
    seconds: float = 0.0
    held: float = 0.0
    trials: int = 0
    idle: float = 0.0

    def note(self, loss: float, seconds: float) -> None:
        """Record the loss of an epoch."""
        self.epochs += 1
        self.seconds = seconds
        if not self.improvements or loss < self.improvements[-1][2]:
            self.improvements.append((self.epochs, seconds, loss))

    def has_found(self, aim: float) -> bool:
        """Return whether the loss was this low."""
        return bool(self.improvements) and self.improvements[-1][2] <= aim

    def is_over(self, aim: float, budget_epochs: int) -> bool:
        """Return whether the aim is reached or the budget is spent."""
        return self.has_found(aim) or self.epochs >= budget_epochs


@dataclass(slots=True, eq=False)
class Training:
    """A trial.

    Attributes:
        trial: The tool's own name of it.
        losses: The loss after each epoch.
        seconds: The duration of an epoch.
        step: The epochs that it has trained.
    """

    trial: Any
    losses: Sequence[float]
    seconds: float
    step: int = 0

    @property
    def is_complete(self) -> bool:
        """Whether it was trained in full."""
        return self.step == len(self.losses)


class Tool(Protocol):
    """Interface of what decides: a tool, or a rule of early stopping with given configurations."""

    def next(self) -> Training:
        """Return what a free worker trains: a new trial, or one that goes on."""
        ...

    def trains_on(self, training: Training, loss: float) -> bool:
        """Report the loss of an epoch; return whether the trial trains on if it is not complete."""
        ...


def play(
    tool: Tool, *, workers: int, budget_epochs: int, aim: float, world: World, seed: int
) -> Track:
    """Run a study until its loss is as low as the aim, or the epochs are spent.

    Workers never wait. A trial whose worker has ended is trained on by the next free one.
    """
    track, order = Track(), itertools.count()
    happenings: list[tuple[float, int, int, Training | None]] = []
    lost: deque[Training] = deque()
    begun = set[Training]()
    joined, ends, came = dict[int, float](), dict[int, float](), Counter[int]()

    def happens(at: float, worker: int, training: Training | None) -> None:
        heapq.heappush(happenings, (at, next(order), worker, training))

    def begin(worker: int, at: float) -> None:
        training = lost.popleft() if lost else tool.next()
        begun.add(training)
        train(worker, at + world.startup, training)

    def train(worker: int, at: float, training: Training) -> None:
        happens(min(at + training.seconds, ends[worker]), worker, training)

    for worker in range(workers):
        happens(0.0, worker, None)
    now = 0.0
    while not track.is_over(aim, budget_epochs):
        now, _, worker, training = heapq.heappop(happenings)
        if training is None:
            came[worker] += 1
            joined[worker] = now
            ends[worker] = now + world.stay(seed, worker, came[worker])
            begin(worker, now)
        elif now == ends[worker]:
            track.held += now - joined.pop(worker)
            training.step = training.step if world.checkpoints else 0
            lost.append(training)
            happens(now + world.queue, worker, None)
        else:
            training.step += 1
            loss = training.losses[training.step - 1]
            track.note(loss, now)
            if tool.trains_on(training, loss) and not training.is_complete:
                train(worker, now, training)
            else:
                begin(worker, now)
    track.trials = len(begun)
    track.held += sum(now - at for at in joined.values())
    return track

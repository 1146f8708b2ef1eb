"""Early stopping alone: rules on given learning curves, without engine, storage and search.

All rules get the same configurations in the same order, on the same cluster.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from hptune.core.pruner import Decision, Pruner, PrunerSettings
from hptune.core.trial import Direction, Goal, TrialState
from hptune.pruners.registry import make_pruner
from hptune.samplers.random_search import RandomSampler

from .cluster import Track, Training, World, play
from .tasks import Task

GOAL = Goal("loss", Direction.MIN)
ENDS = {Decision.STOP: TrialState.PRUNED, Decision.PAUSE: TrialState.PAUSED}
BASELINE = "one-epoch"


class Rule(Protocol):
    """Interface of a rule."""

    def next(self) -> int:
        """Return what a free worker trains: a paused trial, or the next new one, from 0 on."""
        ...

    def report(self, trial: int, step: int, loss: float, best: float) -> Decision:
        """Report a loss and the best one so far; return what the trial is to do."""
        ...

    def complete(self, trial: int, step: int, loss: float) -> None:
        """Report the last loss of a trial that was trained in full."""
        ...


class OwnRule:
    """A pruner of hptune."""

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner
        self._new = itertools.count()

    def next(self) -> int:
        """Return a trial that is promoted, or a new one."""
        trial = self._pruner.promotion(is_last=False)
        if trial is None:
            return next(self._new)
        self._pruner.moved(trial, TrialState.RUNNING)
        return trial

    def report(self, trial: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report the best loss; the pruner compares by it."""
        self._pruner.report(trial, step, (best,))
        decision = self._pruner.decide(trial)
        self._pruner.moved(trial, ENDS.get(decision, TrialState.RUNNING))
        return decision

    def complete(self, trial: int, step: int, loss: float) -> None:  # noqa: ARG002 - as all
        """Report that a trial was trained in full."""
        self._pruner.moved(trial, TrialState.COMPLETE)


class OneEpoch:
    """In each round, some trials train for one epoch, and the best of them are trained in full.

    Egele et al. 2023, "Is one epoch all you need for multi-fidelity hyperparameter optimization?".
    No worker waits: while a round has nothing to start, the next one begins.

    Args:
        kept: How many are trained in full.
        of: How many train for one epoch.
    """

    def __init__(self, kept: int, of: int) -> None:
        self._kept, self._of = kept, of
        self._new = itertools.count()
        self._rounds: dict[int, dict[int, float]] = {}
        self._chosen: list[int] = []

    def next(self) -> int:
        """Return a trial that was chosen, or a new one."""
        return self._chosen.pop(0) if self._chosen else next(self._new)

    def report(self, trial: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report a loss; the first one decides."""
        firsts = self._rounds.setdefault(trial // self._of, {})
        if trial in firsts:
            return Decision.CONTINUE
        firsts[trial] = loss
        if len(firsts) == self._of:
            self._chosen += sorted(firsts, key=lambda each: firsts[each])[: self._kept]
        return Decision.PAUSE

    def complete(self, trial: int, step: int, loss: float) -> None:
        """Ignore that a trial was trained in full."""


def make_rule(name: str, *, epochs: int, seed: int) -> Rule:
    """Return a rule by its name.

    Args:
        name: A pruner of hptune, such as `asha`, `asha-promote` or `asha-6`, whose first rung is at
            epoch 6; `one-epoch:4-of-32`; or a peer's, such as `optuna:halving` (`peer_rules`).
        epochs: The full training.
        seed: For what a peer draws.
    """
    owner, _, rest = name.rpartition(":")
    if owner == BASELINE:
        kept, _, of = rest.partition("-of-")
        return OneEpoch(int(kept), int(of))
    if owner:
        from . import peer_rules

        return peer_rules.make(owner, rest, epochs=epochs, seed=seed)
    pruner, _, more = rest.partition("-")
    options: dict[str, object] = {}
    if more:
        options = {"min_epochs": int(more)} if more.isdigit() else {"pruner_mode": more}
    return OwnRule(make_pruner(PrunerSettings(name=pruner, epochs=epochs, options=options), [GOAL]))


class Ruled:
    """A rule with given trainings.

    Args:
        rule: The rule.
        draw: Returns the training of a trial.
    """

    def __init__(self, rule: Rule, draw: Callable[[int], Training]) -> None:
        self._rule, self._draw = rule, draw
        self.trainings: dict[int, Training] = {}
        self._best: dict[int, float] = {}

    def next(self) -> Training:
        """Return what a free worker trains."""
        trial = self._rule.next()
        if trial not in self.trainings:
            self.trainings[trial] = self._draw(trial)
        return self.trainings[trial]

    def trains_on(self, training: Training, loss: float) -> bool:
        """Report the loss of an epoch; return whether the trial trains on."""
        trial, step = training.trial, training.step
        best = self._best[trial] = min(loss, self._best.get(trial, loss))
        if training.is_complete:
            self._rule.complete(trial, step, loss)
            return False
        return self._rule.report(trial, step, loss, best) is Decision.CONTINUE


@dataclass(frozen=True, slots=True)
class Curves:
    """Curves of random configurations of a task.

    Attributes:
        losses: The losses after each epoch, of each configuration.
        seconds: The duration of an epoch, of each configuration.
        aim: The loss that counts as found.
    """

    losses: Sequence[Sequence[float]]
    seconds: Sequence[float]
    aim: float

    @classmethod
    def of(cls, task: Task, *, count: int, epochs: int | None, share_good: float) -> Curves:
        """Return the curves of random configurations.

        Args:
            task: The task.
            count: How many configurations.
            epochs: Only the first epochs; the aim is then that of a share of the configurations.
            share_good: The share.
        """
        params = [each.params for each in RandomSampler(task.space, 0).ask(range(count))]
        losses = [list(task.curve(each))[:epochs] for each in params]
        lowest = sorted(map(min, losses))
        return cls(
            losses=losses,
            seconds=[task.seconds(each) for each in params],
            aim=task.aim if epochs is None else lowest[round(share_good * count) - 1],
        )

    @property
    def epochs(self) -> int:
        """The epochs of a full training."""
        return len(self.losses[0])

    @property
    def training_seconds(self) -> float:
        """The mean duration of a full training."""
        return self.epochs * float(np.mean(self.seconds))


def study(
    curves: Curves, name: str, *, workers: int, seed: int, budget_trainings: int, world: World
) -> Track:
    """Run a study of a rule until the aim, or until its budget of epochs is spent.

    A study has the epochs of one more training for each worker. Times of the world are in mean full
    trainings.
    """
    order = np.random.default_rng([seed, 7]).permutation(len(curves.seconds)).tolist()

    def draw(trial: int) -> Training:
        return Training(trial, curves.losses[order[trial]], curves.seconds[order[trial]])

    rule = make_rule(name, epochs=curves.epochs, seed=seed)
    return play(
        Ruled(rule, draw),
        workers=workers,
        budget_epochs=(budget_trainings + workers) * curves.epochs,
        aim=curves.aim,
        world=world.times(curves.training_seconds),
        seed=seed,
    )

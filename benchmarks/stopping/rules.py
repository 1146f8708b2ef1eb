"""Early stopping alone: hptune's and Optuna's pruners on given learning curves, on a virtual clock.

The engine, the loop and the storage are left out, so that a study takes some hundredths of a
second. All rules get the same configurations in the same order.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from hptune.core.pruner import Decision, Pruner, PrunerSettings
from hptune.core.trial import Direction, Goal, TrialState
from hptune.pruners.registry import make_pruner
from hptune.samplers.random_search import RandomSampler

from .tasks import Task

GOAL = Goal("loss", Direction.MIN)
ENDS = {Decision.STOP: TrialState.PRUNED, Decision.PAUSE: TrialState.PAUSED}


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


class Rule(Protocol):
    """Interface of a pruner."""

    def report(self, trial: int, step: int, loss: float, best: float) -> Decision:
        """Report a loss and the best one so far; return what the trial is to do."""
        ...

    def complete(self, trial: int) -> None:
        """Report that a trial was trained in full."""
        ...

    def promotion(self) -> int | None:
        """Return a paused trial that continues; None if there is none."""
        ...


class OwnRule:
    """A pruner of hptune."""

    def __init__(self, pruner: Pruner) -> None:
        self._pruner = pruner

    def report(self, trial: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report the best loss; the pruner compares by it."""
        self._pruner.report(trial, step, (best,))
        decision = self._pruner.decide(trial)
        self._pruner.moved(trial, ENDS.get(decision, TrialState.RUNNING))
        return decision

    def complete(self, trial: int) -> None:
        """Report that a trial was trained in full."""
        self._pruner.moved(trial, TrialState.COMPLETE)

    def promotion(self) -> int | None:
        """Return a paused trial that continues."""
        trial = self._pruner.promotion(is_last=False)
        if trial is not None:
            self._pruner.moved(trial, TrialState.RUNNING)
        return trial


@dataclass(slots=True)
class _OptunaTrial:
    number: int
    state: Any
    last_step: int = 0
    intermediate_values: dict[int, float] = field(default_factory=dict)
    system_attrs: dict[str, float] = field(default_factory=dict)

    @property
    def _trial_id(self) -> int:
        return self.number


class _OptunaStudy:
    """What Optuna's pruners use of a study and of its storage, without copies.

    A rung's value is stored when the pruner has decided, as its trials are copies of before.
    """

    def __init__(self, direction: Any, name: str) -> None:
        self.direction, self.study_name = direction, name
        self._storage = self
        self.trials: dict[int, _OptunaTrial] = {}
        self.unsaved: list[tuple[int, str, float]] = []

    def get_trials(self, deepcopy: bool = True, states: Any = None) -> list[_OptunaTrial]:  # noqa: ARG002, FBT001, FBT002
        """Return the trials."""
        return [each for each in self.trials.values() if states is None or each.state in states]

    def set_trial_system_attr(self, trial: int, key: str, value: float) -> None:
        """Store a rung's value."""
        self.unsaved.append((trial, key, value))


class OptunaRule:
    """A pruner of Optuna.

    Args:
        name: `halving` (its default), `halving-3` (one in three, from epoch 1) or `hyperband`.
        epochs: The full training.
        seed: Chooses which trials are in which bracket.
    """

    def __init__(self, name: str, epochs: int, seed: int) -> None:
        import optuna

        class Hyperband(optuna.pruners.HyperbandPruner):
            def _create_bracket_study(self, study: Any, bracket_id: int) -> Any:
                of_bracket = _OptunaStudy(study.direction, study.study_name)
                of_bracket._storage = study  # noqa: SLF001 - the name is Optuna's
                of_bracket.trials = {
                    number: trial
                    for number, trial in study.trials.items()
                    if self._get_bracket_id(study, trial) == bracket_id
                }
                return of_bracket

        made: dict[str, Callable[[], Any]] = {
            "halving": optuna.pruners.SuccessiveHalvingPruner,
            "halving-3": lambda: optuna.pruners.SuccessiveHalvingPruner(
                min_resource=1, reduction_factor=3
            ),
            "hyperband": lambda: Hyperband(1, epochs, 3),
        }
        self._states = optuna.trial.TrialState
        self._pruner = made[name]()
        self._study = _OptunaStudy(optuna.study.StudyDirection.MINIMIZE, f"study-{seed}")

    def report(self, number: int, step: int, loss: float, best: float) -> Decision:  # noqa: ARG002
        """Report the present loss; the pruner compares by it."""
        trial = self._study.trials.setdefault(number, _OptunaTrial(number, self._states.RUNNING))
        trial.last_step, trial.intermediate_values[step] = step, loss
        is_pruned = self._pruner.prune(self._study, trial)
        for other, key, value in self._study.unsaved:
            self._study.trials[other].system_attrs[key] = value
        self._study.unsaved.clear()
        if is_pruned:
            trial.state = self._states.PRUNED
        return Decision.STOP if is_pruned else Decision.CONTINUE

    def complete(self, trial: int) -> None:
        """Report that a trial was trained in full."""
        self._study.trials[trial].state = self._states.COMPLETE

    def promotion(self) -> int | None:
        """Return None: it pauses no trials."""
        return None


def make_rule(name: str, *, epochs: int, seed: int) -> Rule:
    """Return a rule by its name: `asha`, `asha-promote`, `hyperband`, `optuna:halving-3`."""
    owner, _, rest = name.rpartition(":")
    if owner:
        return OptunaRule(rest, epochs, seed)
    pruner, _, mode = rest.partition("-")
    options = {"pruner_mode": mode} if mode else {}
    return OwnRule(make_pruner(PrunerSettings(name=pruner, epochs=epochs, options=options), [GOAL]))


def device_seconds(
    curves: Curves,
    name: str,
    *,
    workers: int,
    seed: int,
    budget_trainings: int,
    startup_seconds: float,
) -> float:
    """Return the time of all workers until the aim, or until the epochs are spent."""
    order = np.random.default_rng([seed, 7]).permutation(len(curves.seconds)).tolist()
    rule = make_rule(name, epochs=curves.epochs, seed=seed)
    running: list[tuple[float, int, int, int]] = []
    number, trials, stopped_at = itertools.count(), itertools.count(), dict[int, int]()
    best: dict[int, float] = {}

    def begin(at: float) -> None:
        trial = rule.promotion()
        if trial is None:
            trial = next(trials)
        run(at + startup_seconds, trial, stopped_at.get(trial, 0) + 1)

    def run(at: float, trial: int, step: int) -> None:
        seconds = curves.seconds[order[trial]]
        heapq.heappush(running, (at + seconds, next(number), trial, step))

    for _ in range(workers):
        begin(0.0)
    now = 0.0
    for _ in range((budget_trainings + workers) * curves.epochs):
        now, _, trial, step = heapq.heappop(running)
        loss = curves.losses[order[trial]][step - 1]
        best[trial] = min(loss, best.get(trial, loss))
        if loss <= curves.aim:
            break
        if step == curves.epochs:
            rule.complete(trial)
            begin(now)
        elif rule.report(trial, step, loss, best[trial]) is Decision.CONTINUE:
            run(now, trial, step + 1)
        else:
            stopped_at[trial] = step
            begin(now)
    return workers * now

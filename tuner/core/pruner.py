"""The contract of a pruner: who says which trials are worth more epochs."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable
from dataclasses import dataclass

from .trial import Goal, TrialState


class Decision(enum.StrEnum):
    """What a trial that runs had better do."""

    CONTINUE = "continue"
    PAUSE = "pause"
    """Give up its place; it may be promoted, and then goes on from its checkpoint."""
    STOP = "stop"
    """Never run again."""


class HalvingMode(enum.StrEnum):
    """What becomes of a trial that is not among the best at a rung."""

    STOP = "stop"
    PROMOTE = "promote"
    """It is paused, and goes on once it is among the best after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunerSettings:
    """Which pruner, and how it is set; plain data, for the ledger.

    Attributes:
        name: One of `tuner.pruners.registry.PRUNER_NAMES`.
        epochs: The full training of a trial, in steps; None where nobody said.
        reduction_factor: One in so many trials goes on at each rung (eta).
        min_epochs: No trial is judged before this step; None for a twentieth of `epochs`.
        brackets: How many brackets there are at most; None for the pruner's own number.
        mode: What becomes of the others at a rung.
    """

    name: str = "none"
    epochs: int | None = None
    reduction_factor: int = 3
    min_epochs: int | None = None
    brackets: int | None = None
    mode: HalvingMode = HalvingMode.STOP


class Pruner(abc.ABC):
    """Compares trials while they run, and says which had better not go on.

    A pruner takes facts (`report`, `moved`) and answers questions (`decide`, `promotion`). A
    question changes nothing: asked again, the answer is the same until another fact is told. A
    fact may be told again, late, or in another order than it happened, and that leaves no trace:
    only the facts count. (What is told of a trial that is over is ignored.) A pruner rebuilt from
    the same facts answers the same; so resuming and replaying a study need nothing else. The
    engine is the only caller.

    Successive halving that stops, one in three goes on, at steps 1 and 3, more is better::

        p.report(0, 1, 0.5)    p.decide(0) -> CONTINUE    # the first one, and so the best
        p.moved(0, RUNNING)                               # it was let through
        p.report(1, 1, 0.4)    p.decide(1) -> STOP        # of two, one goes on
        p.moved(1, PRUNED)
        p.report(0, 2, 0.5)    p.decide(0) -> CONTINUE    # step 2 is no rung
        p.report(2, 1, 0.6)    p.decide(2) -> CONTINUE    # trial 0 was let through all the same

    The same that pauses and promotes::

        p.report(0, 1, 0.5)    p.decide(0) -> PAUSE       # a third of one is none
        p.moved(0, PAUSED)     p.promotion(is_last=False) -> None
        p.report(1, 1, 0.4)    p.decide(1) -> PAUSE
        p.moved(1, PAUSED)     p.promotion(is_last=False) -> None
        p.report(2, 1, 0.3)    p.decide(2) -> PAUSE
        p.moved(2, PAUSED)     p.promotion(is_last=False) -> 0     # a third of three is one
        p.moved(0, RUNNING)    p.promotion(is_last=False) -> None
        p.report(0, 3, 0.7)    p.decide(0) -> PAUSE       # the first one at step 3
        p.moved(0, PAUSED)     p.promotion(is_last=False) -> None
                               p.promotion(is_last=True) -> 0      # no other will come to step 3
    """

    @property
    @abc.abstractmethod
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials are compared, ascending; samplers learn what trials had there.

        Reaching a rung is having reported at its step or beyond.
        """

    @abc.abstractmethod
    def report(self, trial: int, step: int, value: float) -> None:
        """A trial has come to a step, and the best value that it had by then is this.

        Told a second time of the same step, the better value counts.

        Args:
            trial: The trial's number.
            step: From 1; steps may be left out.
            value: Of the metric that is pruned by, finite; or `Direction.worst` while the trial has
                none that counts, since it breaks a constraint. It is then worse than every
                other, but for those that have none either.
        """

    @abc.abstractmethod
    def moved(self, trial: int, state: TrialState) -> None:
        """A trial stands elsewhere now; the latest call for a trial counts.

        RUNNING (or WAITING) says that it may go on beyond all that it has reported so far: it
        was decided so, or it was promoted. PAUSED trials may be promoted; of the others nothing
        is asked any more.
        """

    @abc.abstractmethod
    def decide(self, trial: int) -> Decision:
        """What a running trial is to do, by all that is known now.

        Never STOP for the trial that has the best value of all.
        """

    @abc.abstractmethod
    def promotion(self, *, is_last: bool) -> int | None:
        """The PAUSED trial that deserves a free place most; None if none does.

        Args:
            is_last: Whether nothing runs or is to come but for paused trials, so that waiting for
                more to compare with is in vain.
        """


class NeverPrune(Pruner):
    """Every trial trains to its end."""

    @property
    def rungs(self) -> tuple[int, ...]:
        """There are none."""
        return ()

    def report(self, trial: int, step: int, value: float) -> None:
        """Take no note."""

    def moved(self, trial: int, state: TrialState) -> None:
        """Take no note."""

    def decide(self, trial: int) -> Decision:  # noqa: ARG002 - it is the same for all
        """Go on."""
        return Decision.CONTINUE

    def promotion(self, *, is_last: bool) -> int | None:  # noqa: ARG002 - nobody is paused
        """Nobody is paused."""
        return None


PrunerMaker = Callable[[PrunerSettings, Goal], Pruner]
"""Makes a fresh pruner that has been told nothing."""


def never_prune(settings: PrunerSettings, goal: Goal) -> Pruner:
    """The maker for studies without early stopping.

    Raises:
        ValueError: The settings ask for a pruner.
    """
    if settings.name != "none":
        raise ValueError(f"nobody can make the pruner {settings.name!r} of {goal}")
    return NeverPrune()

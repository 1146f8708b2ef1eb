"""The contract of a pruner, which decides what trials are worth more epochs."""

from __future__ import annotations

import abc
import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .trial import Goal, TrialState


class Decision(enum.StrEnum):
    """Decision on a running trial."""

    CONTINUE = "continue"
    PAUSE = "pause"
    """Give up its placement; it may be promoted, and then continues from its checkpoint."""
    STOP = "stop"
    """Never run again."""


class HalvingMode(enum.StrEnum):
    """Treatment of a trial that is not among the best at a rung."""

    STOP = "stop"
    PROMOTE = "promote"
    """It is paused, and continues if it is among the best later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunerSettings:
    """The pruner and its settings; plain data, for the ledger.

    Attributes:
        name: What the user calls the pruner.
        epochs: The full training of a trial, in steps; None if unknown.
        options: The pruner's own options, by name.
    """

    name: str = "none"
    epochs: int | None = None
    options: Mapping[str, object] = field(default_factory=dict)


class Pruner(abc.ABC):
    """Compares trials while they run, and decides which stop early.

    A pruner takes facts (`report`, `moved`) and answers questions (`decide`, `promotion`). A
    question changes nothing: the answer stays the same until the next fact. Facts may be repeated,
    late or out of order, with the same effect. Facts about a trial that is over are ignored. A
    pruner rebuilt from the same facts answers the same, so resuming and replaying a study need
    nothing else. The engine is the only caller.

    Successive halving that stops trials; one in three continues, at steps 1 and 3; more is better::

        p.report(0, 1, [0.5])  p.decide(0) -> CONTINUE    # the first one, and so the best
        p.moved(0, RUNNING)                               # it passed the rung
        p.report(1, 1, [0.4])  p.decide(1) -> STOP        # of two, one continues
        p.moved(1, PRUNED)
        p.report(0, 2, [0.5])  p.decide(0) -> CONTINUE    # step 2 is no rung
        p.report(2, 1, [0.6])  p.decide(2) -> CONTINUE    # trial 0 has passed already

    The same that pauses and promotes::

        p.report(0, 1, [0.5])  p.decide(0) -> PAUSE       # a third of one is none
        p.moved(0, PAUSED)     p.promotion(is_last=False) -> None
        p.report(1, 1, [0.4])  p.decide(1) -> PAUSE
        p.moved(1, PAUSED)     p.promotion(is_last=False) -> None
        p.report(2, 1, [0.3])  p.decide(2) -> PAUSE
        p.moved(2, PAUSED)     p.promotion(is_last=False) -> 0     # a third of three is one
        p.moved(0, RUNNING)    p.promotion(is_last=False) -> None
        p.report(0, 3, [0.7])  p.decide(0) -> PAUSE       # the first one at step 3
        p.moved(0, PAUSED)     p.promotion(is_last=False) -> None
                               p.promotion(is_last=True) -> 0      # no other will come to step 3
    """

    @property
    @abc.abstractmethod
    def rungs(self) -> tuple[int, ...]:
        """The steps at which trials are compared, ascending; samplers learn from the values there.

        A trial has reached a rung if it has reported at its step or beyond.
        """

    @abc.abstractmethod
    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        """Record the best result that a trial had by a step.

        Of repeated calls for a step, the better result counts. With several objectives, the best
        result is that of the best epoch, as at the end of the training, so another objective may
        become worse with the steps.

        Args:
            trial: The trial's number.
            step: From 1; steps may be left out.
            values: The objectives' values, finite; each is `Direction.worst` while all results of
                the trial break a constraint.
        """

    @abc.abstractmethod
    def moved(self, trial: int, state: TrialState) -> None:
        """Record a trial's state; the latest call for a trial counts.

        RUNNING or WAITING: it may train beyond all that it has reported, by a decision or a
        promotion. PAUSED: it may be promoted. Other states: no more questions about it, unless it
        is COMPLETE and then WAITING again, to train on for more epochs.
        """

    @abc.abstractmethod
    def decide(self, trial: int) -> Decision:
        """Return what a running trial is to do, by all that is known now.

        A trial that is to stop may report until the order reaches it. It is asked for again then,
        and CONTINUE takes the order back.

        Never STOP for the trial that has the best value of all; with several objectives, for a
        trial that no other one beats by the latest results of both. Of trials with equal values, no
        more are stopped than of trials that differ.
        """

    @abc.abstractmethod
    def promotion(self, *, is_last: bool) -> int | None:
        """Return the PAUSED trial to promote next; None if there is none.

        Args:
            is_last: Whether only paused trials are left, so that no more results will come to
                compare with.
        """


EXEMPT_EVERY = 20
"""One trial in this many is exempt; more would cost more epochs, fewer would say less."""

EXEMPT_FROM = 100
"""The first exempt trial. In a short study they would be too few to say anything."""


def is_exempt(trial: int) -> bool:
    """Return whether the built-in pruners train a trial to its end, however poor it is.

    The trials that pass all rungs cannot show that the rungs stop the wrong ones. So a few, chosen
    by their numbers alone, are never stopped or paused. They count at the rungs as all others do.

    >>> [trial for trial in range(150) if is_exempt(trial)]
    [100, 120, 140]
    """
    return trial >= EXEMPT_FROM and trial % EXEMPT_EVERY == 0


class NeverPrune(Pruner):
    """A pruner that lets every trial train to its end."""

    @property
    def rungs(self) -> tuple[int, ...]:
        """No rungs."""
        return ()

    def report(self, trial: int, step: int, values: Sequence[float]) -> None:
        """Ignore the fact."""

    def moved(self, trial: int, state: TrialState) -> None:
        """Ignore the fact."""

    def decide(self, trial: int) -> Decision:  # noqa: ARG002 - it is the same for all
        """Return CONTINUE."""
        return Decision.CONTINUE

    def promotion(self, *, is_last: bool) -> int | None:  # noqa: ARG002 - no trial is paused
        """Return None: no trial is paused."""
        return None


PrunerMaker = Callable[[PrunerSettings, Sequence[Goal]], Pruner]
"""Makes a new pruner that knows no facts, for the objectives of a study."""


def never_prune(settings: PrunerSettings, objectives: Sequence[Goal]) -> Pruner:
    """Return the pruner of a study without early stopping.

    Raises:
        ValueError: The settings ask for a pruner.
    """
    if settings.name != "none":
        raise ValueError(f"there is no pruner {settings.name!r} here (for {objectives})")
    return NeverPrune()

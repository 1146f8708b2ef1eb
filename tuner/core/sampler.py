"""The contract of a sampler: who proposes configurations."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from .trial import Suggestion, Trial


class Sampler(abc.ABC):
    """Proposes configurations, and learns from what became of them.

    The study's loop is the only caller, from one thread at a time. A sampler keeps no state that
    cannot be rebuilt: its randomness comes from the study's seed and the trial number
    (`core.seeds`), and what it knows comes from `tell`. So resuming a study, replaying it or
    growing its space is the same act: make a fresh sampler and tell it every trial there is.
    A fresh sampler told the same trials must answer exactly as the old one would have.

    How the two calls interleave, with two places to run trials::

        s.ask([0, 1])          -> [Suggestion(a), Suggestion(b)]
        s.tell(Trial(0, a, WAITING)); s.tell(Trial(1, b, WAITING))
        s.tell(Trial(1, b, COMPLETE, value=0.9))     # the second ended first
        s.ask([2])             -> [Suggestion(c)]     # 0 still runs: c differs from a and b
        s.tell(Trial(2, c, WAITING))
        s.tell(Trial(0, a, FAILED))
        s.ask([3])             -> []                  # the (finite) space is exhausted
    """

    @abc.abstractmethod
    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Propose a configuration for each of these trial numbers.

        May be called again with the same numbers, and must then answer the same unless it was
        told something in between. The answers differ from each other and from every trial told
        before (running ones included) while unseen configurations are left in a finite space.
        Values are plain Python: no numpy scalars.

        Returns:
            One suggestion for each number, in order; fewer only if the space is exhausted.
        """

    @abc.abstractmethod
    def tell(self, trial: Trial) -> None:
        """Take note of where a trial stands.

        Called when a trial is created (WAITING), and again whenever its standing changes. May be
        repeated; the latest call for a number counts. The trial need not come from this sampler:
        it may be a start point of the user's, or lie outside the space (a study whose space
        changed); what makes no sense to the sampler is ignored. FAILED trials have `value` None.
        Numbers below 0 are trials of earlier studies (a warm start): to learn from, with values
        that may change with a later call; in this study their configurations are new.
        """

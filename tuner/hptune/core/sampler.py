"""The contract of a sampler, which proposes configurations."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from .trial import Suggestion, Trial


class Sampler(abc.ABC):
    """Suggests configurations, and learns from the results.

    Callers and threads:
        Only the study's loop calls a sampler, from one thread at a time.

    Determinism and persistence:
        A sampler has no state that cannot be rebuilt. Its random numbers come from the study's
        seed and the trial number (`core.seeds`), its knowledge from `tell`. A new sampler that
        was told the same trials must answer the same. So resuming a study, replaying it and
        growing its space are one operation: make a new sampler and tell it all trials.

    Example, with two trials in parallel::

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

        A repeated call with the same numbers returns the same, unless `tell` was called in
        between. The answers differ from each other and from every trial told before (running ones
        included) while untried configurations are left in a finite space. Values are plain Python,
        no numpy scalars.

        Returns:
            One suggestion for each number, in order; fewer only if the space is exhausted.
        """

    @abc.abstractmethod
    def tell(self, trial: Trial) -> None:
        """Take in a trial's state.

        Called when a trial is created (WAITING), and again whenever it changes. Calls may be
        repeated; the latest for a number counts. The trial need not come from this sampler: it may
        be a start point of the user's, or lie outside the space (if the space changed). The sampler
        ignores what it cannot use. FAILED trials have the value None. Negative numbers are trials
        of earlier studies (a warm start), to learn from; their values may change with a later call,
        and their configurations count as untried in this study.
        """

"""Suggestions in a thread of their own, which calls the sampler in the engine's order.

A sampler's answer must follow from the ledger alone, however long it takes and whatever happens
meanwhile. So calls of `ask`, `tell` and `grow` go through one queue, in the order of the engine's
commands: the sampler sees a `tell` that came after an `ask` only once it has answered.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ..config.settings import StudySettings
from ..core.clock import Clock
from ..core.goals import Goals
from ..core.messages import Event, Suggested
from ..core.sampler import Sampler
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.trial import Suggestion, Trial
from ..errors import HptuneError, StudyError
from ..samplers.registry import SamplerOptions, SamplerRow, make_sampler

ASK_AHEAD = 0.125
"""Share of the running attempts for which a slow search keeps suggestions ready."""


def sampler_maker(
    row: SamplerRow,
    settings: StudySettings,
    *,
    goals: Goals,
    seed: int,
    studies: Sequence[EarlierStudy] = (),
) -> Callable[[SearchSpace], Sampler]:
    """Return what makes the study's sampler for a space; it is the same after each resume."""

    def make(space: SearchSpace) -> Sampler:
        options = SamplerOptions(
            space=space,
            seed=seed,
            directions=tuple(goal.direction for goal in goals.objectives),
            own=settings.own_options("search"),
            start_points=settings.start_points,
            studies=studies,
            priors=settings.priors,
        )
        return make_sampler(row, options)

    return make


Sized = Callable[[SearchSpace, Sequence[Suggestion]], Sequence[Suggestion]]
"""Returns suggestions with the resources that they ask for."""


def sized(
    make_sampler: Callable[[SearchSpace], Sampler], add_resources: Sized
) -> Callable[[SearchSpace], Sampler]:
    """Return what makes the same samplers, whose suggestions name their resources."""
    return lambda space: _SizedSampler(make_sampler(space), space, add_resources)


class _SizedSampler(Sampler):
    def __init__(self, sampler: Sampler, space: SearchSpace, add_resources: Sized) -> None:
        self._sampler = sampler
        self._space = space
        self._add_resources = add_resources

    def tell(self, trial: Trial) -> None:
        self._sampler.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return [*self._add_resources(self._space, self._sampler.ask(numbers))]


def ask_ahead(sampler: SamplerRow) -> float:
    """Return how many suggestions to keep ready, as a share of the running attempts."""
    return ASK_AHEAD if sampler.takes_seconds else 0.0


class InformedSampler:
    """A sampler, and the trials that it has seen: it is made when it is asked, for each space."""

    def __init__(
        self,
        make_sampler: Callable[[SearchSpace], Sampler],
        space: SearchSpace,
        trials: Iterable[Trial],
    ) -> None:
        self._make_sampler = make_sampler
        self._space = space
        self._trials = {trial.number: trial for trial in trials}
        self._sampler: Sampler | None = None

    def ask(self, numbers: Sequence[int]) -> tuple[Suggestion, ...]:
        """Return the sampler's suggestions for these trial numbers."""
        if self._sampler is None:
            self._sampler = self._make_sampler(self._space)
            for number in sorted(self._trials):
                self._sampler.tell(self._trials[number])
        return tuple(self._sampler.ask(numbers))

    def tell(self, trial: Trial) -> None:
        """Tell this sampler and all later ones of a trial's state."""
        self._trials[trial.number] = trial
        if self._sampler is not None:
            self._sampler.tell(trial)

    def grow(self, space: SearchSpace) -> None:
        """Let a fresh sampler take over for this space, which sees the same trials."""
        self._space, self._sampler = space, None


class Suggester(Protocol):
    """Carries the loop's requests to a sampler in their order, and its answers back as events."""

    def ask(self, numbers: Sequence[int]) -> None:
        """Ask for suggestions, after all earlier calls."""

    def tell(self, trial: Trial) -> None:
        """Tell the sampler of a trial, after all earlier calls."""

    def grow(self, space: SearchSpace) -> None:
        """Change the space, after all earlier calls."""

    def events(self) -> list[Event]:
        """Return the answers that came since the last call."""

    def close(self) -> None:
        """Let it end after its present call, without waiting for it."""


class SuggestingThread:
    """Runs a sampler in a thread of its own, which ends with `close` or with the process.

    Args:
        sampler: The sampler, which only the thread may use from now on.
        clock: Stamps the answers.
        wake: Called from the thread when there is an answer.
    """

    def __init__(self, sampler: InformedSampler, clock: Clock, wake: Callable[[], None]) -> None:
        self._sampler = sampler
        self._clock = clock
        self._wake = wake
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[
            tuple[Sequence[int], tuple[Suggestion, ...]] | BaseException
        ] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="hptune-suggesting", daemon=True).start()

    def ask(self, numbers: Sequence[int]) -> None:
        """Ask for suggestions, after all earlier calls."""
        self._orders.put(lambda: self._answer(numbers))

    def tell(self, trial: Trial) -> None:
        """Tell the sampler of a trial, after all earlier calls."""
        self._orders.put(lambda: self._sampler.tell(trial))

    def grow(self, space: SearchSpace) -> None:
        """Change the space, after all earlier calls."""
        self._orders.put(lambda: self._sampler.grow(space))

    def events(self) -> list[Event]:
        """Return the answers that came since the last call.

        Raises:
            StudyError: The sampler failed; there will be no more answers.
        """
        found: list[Event] = []
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, HptuneError):
                raise answer
            if isinstance(answer, BaseException):
                raise _failed(answer) from answer
            found.append(suggested(self._clock.now(), *answer))
        return found

    def close(self) -> None:
        """Let the thread end after its present call, without waiting for it."""
        self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order()
            except BaseException as error:  # whatever a sampler raises, the loop reports it
                self._answers.put(error)
                self._wake()
                return

    def _answer(self, numbers: Sequence[int]) -> None:
        self._answers.put((numbers, self._sampler.ask(numbers)))
        self._wake()


def suggested(at: float, numbers: Sequence[int], suggestions: tuple[Suggestion, ...]) -> Suggested:
    """Return a sampler's answer as an event."""
    return Suggested(at, numbers[0], suggestions, exhausted=len(suggestions) < len(numbers))


def _failed(error: BaseException) -> StudyError:
    kind = type(error).__name__
    return StudyError(
        f"the search failed: {kind}: {error}. Finished trials are kept: fix the cause and use "
        "`hptune resume`; another --search needs a new study (--warm-start uses these trials)",
        "".join(traceback.format_exception(error)),
    )

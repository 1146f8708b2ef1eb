"""Suggestions off the loop: a thread asks and tells the sampler, in the engine's order.

What a sampler answers must follow from the ledger alone, however long it takes and whatever
happens meanwhile. So asks, tells and growth of the space are one queue, in the order of the
engine's commands: a tell that comes after an ask is heard after it, though the answer was not
out yet.
"""

from __future__ import annotations

import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from ..config.settings import StudySettings
from ..core.clock import Clock
from ..core.goals import Goals
from ..core.messages import Event, Suggested
from ..core.resources import Resources
from ..core.sampler import Sampler
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion, Trial
from ..errors import HptuneError, StudyError
from ..samplers.registry import SamplerOptions, make_sampler

SLOW_SEARCHES = ("bayesian", "skopt", "optuna")
"""Searches that may think for longer than a moment. (What follows a colon does not count.)"""

ASK_AHEAD = 0.125
"""For a slow search: how many suggestions are kept ready, as a share of the attempts that run."""


def sampler_maker(
    settings: StudySettings, *, goals: Goals, seed: int, studies: Sequence[EarlierStudy] = ()
) -> Callable[[SearchSpace], Sampler]:
    """What makes the study's sampler for a space; the same one whenever the study is looked at."""

    def make(space: SearchSpace) -> Sampler:
        options = SamplerOptions(
            space=space,
            seed=seed,
            direction=goals.goal.direction,
            further=tuple(goal.direction for goal in goals.objectives[1:]),
            grid_resolution=settings.grid_resolution,
            surrogate=settings.surrogate,
            start_points=settings.start_points,
            studies=studies,
            priors=settings.priors,
        )
        return make_sampler(settings.search, options)

    return make


Sizes = Callable[[SearchSpace, Sequence[Params]], Sequence[Resources]]
"""What configurations ask for."""


def sized(
    make_sampler: Callable[[SearchSpace], Sampler], sizes: Sizes
) -> Callable[[SearchSpace], Sampler]:
    """What makes the same samplers, whose suggestions say what they ask for."""
    return lambda space: _SizedSampler(make_sampler(space), lambda asked: sizes(space, asked))


class _SizedSampler(Sampler):
    def __init__(
        self, sampler: Sampler, sizes: Callable[[Sequence[Params]], Sequence[Resources]]
    ) -> None:
        self._sampler = sampler
        self._sizes = sizes

    def tell(self, trial: Trial) -> None:
        self._sampler.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return with_sizes(self._sampler.ask(numbers), self._sizes)


def with_sizes(
    suggestions: Sequence[Suggestion], sizes: Callable[[Sequence[Params]], Sequence[Resources]]
) -> list[Suggestion]:
    """The same suggestions, which say what they ask for."""
    found = sizes([each.params for each in suggestions]) if suggestions else ()
    return [replace(each, resources=size) for each, size in zip(suggestions, found, strict=True)]


def ask_ahead(settings: StudySettings) -> float:
    """How many suggestions to keep ready, as `StudyOpened` says it."""
    return ASK_AHEAD if settings.search.partition(":")[0] in SLOW_SEARCHES else 0.0


class InformedSampler:
    """A sampler and all that it was told, so that it can be made anew when the space grows.

    Args:
        make_sampler: Makes a fresh sampler for a space.
        space: The space at first.
        trials: What was tried before.
    """

    def __init__(
        self,
        make_sampler: Callable[[SearchSpace], Sampler],
        space: SearchSpace,
        trials: Iterable[Trial],
    ) -> None:
        self._make_sampler = make_sampler
        self._told = {trial.number: trial for trial in trials}
        self._sampler = self._informed(space)

    def ask(self, numbers: Sequence[int]) -> tuple[Suggestion, ...]:
        """The sampler's answer."""
        return tuple(self._sampler.ask(numbers))

    def tell(self, trial: Trial) -> None:
        """Tell the sampler, and all that come after it."""
        self._told[trial.number] = trial
        self._sampler.tell(trial)

    def grow(self, space: SearchSpace) -> None:
        """Go on with a fresh sampler for this space, which was told the same."""
        self._sampler = self._informed(space)

    def _informed(self, space: SearchSpace) -> Sampler:
        sampler = self._make_sampler(space)
        for number in sorted(self._told):
            sampler.tell(self._told[number])
        return sampler


class Suggester(Protocol):
    """Carries the engine's questions to a sampler, and its answers back as events."""

    def ask(self, numbers: Sequence[int]) -> None:
        """Ask for suggestions; `events` gives them when they are there."""

    def tell(self, trial: Trial) -> None:
        """Tell the sampler where a trial stands, after all that was asked and told before."""

    def grow(self, space: SearchSpace) -> None:
        """Search this space from the next question on."""

    def events(self) -> list[Event]:
        """The answers that came since the last call.

        Raises:
            StudyError: The sampler failed; no answer will come any more.
        """

    def close(self) -> None:
        """Ask nothing any more."""


class SuggestingThread:
    """Runs a sampler in a thread of its own, which ends with `close` or with the process.

    Args:
        sampler: The sampler; from now on the thread's alone.
        clock: Stamps the answers.
        wake: Is called, from the thread, when there is an answer.
    """

    def __init__(self, sampler: InformedSampler, clock: Clock, wake: Callable[[], None]) -> None:
        self._sampler = sampler
        self._clock = clock
        self._wake = wake
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[
            tuple[Sequence[int], tuple[Suggestion, ...]] | Exception
        ] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="hptune-suggesting", daemon=True).start()

    def ask(self, numbers: Sequence[int]) -> None:
        """Ask when all before is done."""
        self._orders.put(lambda: self._answer(numbers))

    def tell(self, trial: Trial) -> None:
        """Tell when all before is done."""
        self._orders.put(lambda: self._sampler.tell(trial))

    def grow(self, space: SearchSpace) -> None:
        """Change the space when all before is done."""
        self._orders.put(lambda: self._sampler.grow(space))

    def events(self) -> list[Event]:
        """The answers that are there."""
        found: list[Event] = []
        while not self._answers.empty():
            answer = self._answers.get()
            if isinstance(answer, HptuneError):
                raise answer
            if isinstance(answer, Exception):
                raise _failed(answer) from answer
            found.append(suggested(self._clock.now(), *answer))
        return found

    def close(self) -> None:
        """Let the thread end after what it does now; nobody waits for it."""
        self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            try:
                order()
            except Exception as error:  # whatever a sampler may do wrong is shown by the loop
                self._answers.put(error)
                self._wake()
                return

    def _answer(self, numbers: Sequence[int]) -> None:
        self._answers.put((numbers, self._sampler.ask(numbers)))
        self._wake()


class SimulatedSuggester:
    """Suggests in the caller's thread; the answer comes out of a simulated executor.

    Args:
        sampler: The sampler.
        clock: The executor's clock.
        deliver: Lets the executor tell an event after so many (virtual) seconds.
        seconds: How long the sampler thinks about so many suggestions.
    """

    def __init__(
        self,
        sampler: InformedSampler,
        clock: Clock,
        deliver: Callable[[float, Event], None],
        seconds: Callable[[int], float] = lambda _: 0.0,
    ) -> None:
        self._clock = clock
        self._deliver = deliver
        self._seconds = seconds
        self._sampler = sampler
        self.tell = sampler.tell
        self.grow = sampler.grow

    def ask(self, numbers: Sequence[int]) -> None:
        """Answer at the virtual time at which the sampler has thought about it."""
        seconds = self._seconds(len(numbers))
        answer = suggested(self._clock.now() + seconds, numbers, self._sampler.ask(numbers))
        self._deliver(seconds, answer)

    def events(self) -> list[Event]:
        """Nothing: the executor tells."""
        return []

    def close(self) -> None:
        """Do nothing."""


def suggested(at: float, numbers: Sequence[int], suggestions: tuple[Suggestion, ...]) -> Suggested:
    """A sampler's answer as an event."""
    return Suggested(at, numbers[0], suggestions, exhausted=len(suggestions) < len(numbers))


def _failed(error: Exception) -> StudyError:
    kind = type(error).__name__
    return StudyError(
        f"the search failed: {kind}: {error}. What was finished is kept: `hptune resume` goes on "
        "once the cause is mended; another --search needs a new study (--warm-start takes over "
        "what this one found)",
        "".join(traceback.format_exception(error)),
    )

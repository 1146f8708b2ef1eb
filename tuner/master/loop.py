"""The loop that joins engine, ledger, sampler and executor. It makes no decisions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, assert_never

from ..core.clock import Clock
from ..core.engine.engine import Engine
from ..core.messages import (
    Ask,
    Command,
    Discard,
    Event,
    Finish,
    GrowSpace,
    KeepBest,
    Start,
    Stop,
    StudyOpened,
    Tell,
)
from ..core.sampler import Sampler
from ..core.snapshot import StudySnapshot
from ..core.space.space import SearchSpace
from ..core.trial import Attempt, Trial
from ..errors import SpaceError
from ..executors.base import Executor
from ..worker.orders import AttemptOrder, StudyBrief
from .suggester import InformedSampler, Suggester, SuggestingThread
from .wait_for_workers import WorkersAwaited

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""How often the display is redrawn and requests to stop are looked for, while nothing happens."""

_PAUSE_SECONDS_PER_RUNNING = 2e-5
"""Making a picture of a study takes time in proportion to what runs; so do the pauses between two
pictures, and thousands of workers do not keep the master busy with its display."""


class Recorder(Protocol):
    """What the loop writes into: the ledger."""

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        """Write down events and what they changed; safe when this returns."""

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Write down what is known of the study as a whole; all or nothing."""


class Files(Protocol):
    """What the loop keeps models with."""

    def keep_best(self, trials: Sequence[Trial]) -> None:
        """Make these trials' models the study's best, the first one above all."""

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        """Throw away a trial's model and checkpoints."""


class Observer(Protocol):
    """Whom the loop shows how it goes."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Take note of the present standing."""


class StudyLoop:
    """Runs a study until it is finished.

    Args:
        engine: The study's state; fed with the ledger's events before, if there are any.
        recorder: The ledger.
        make_sampler: Makes a fresh sampler for a space.
        space: The search space.
        executor: Open, and closed by whoever opened it.
        clock: Stamps the loop's own events.
        brief: What every attempt is told.
        files: Keeps the models.
        observer: Is shown the study after each batch of events; None for nobody.
        requests: Asked regularly for events from outside, such as requests to stop.
        required_workers: How many workers there must be for the first trial, as things stand.
        make_suggester: Who asks the sampler; None for a thread of its own.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        recorder: Recorder,
        make_sampler: Callable[[SearchSpace], Sampler],
        space: SearchSpace,
        executor: Executor,
        clock: Clock,
        brief: StudyBrief,
        files: Files,
        observer: Observer | None = None,
        requests: Callable[[], Sequence[Event]] = tuple,
        required_workers: Callable[[], int] = int,
        make_suggester: Callable[[InformedSampler], Suggester] | None = None,
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._space = space
        self._space_json = tuple(space.to_json())
        sampler = InformedSampler(make_sampler, space, engine.trials)
        if make_suggester is None:
            self._suggester: Suggester = SuggestingThread(sampler, clock, executor.wake)
        else:
            self._suggester = make_suggester(sampler)
        self._executor = executor
        self._clock = clock
        self._brief = brief
        self._files = files
        self._observer = observer
        self._requests = requests
        self._await_workers = WorkersAwaited(required_workers, clock)
        self._ended: list[Trial] = []
        self._show_from = 0.0
        self._finish: Finish | None = None

    def run(self, opened: StudyOpened) -> Finish:
        """Run to the end.

        Raises:
            StudyError: The ledger cannot be written, or the executor or the sampler broke. What
                the ledger holds is whole, and the study can be resumed.
        """
        try:
            # What came before, such as workers that were quicker than we, belongs to this run.
            self._take_in([opened, *self._await_workers(self._executor.events(0.0))])
            self._show()
            while self._finish is None:
                events = self._await_workers(self._executor.events(POLL_SECONDS))
                self._take_in([*events, *self._suggester.events(), *self._requests()])
                self._show()
            return self._finish
        finally:
            self._suggester.close()

    def _take_in(self, events: Sequence[Event]) -> None:
        """Let the engine decide, write it down, and only then carry it out."""
        if not events:
            return
        commands = [command for event in events for command in self._engine.handle(event)]
        trials, attempts = self._engine.take_changes()
        self._recorder.append(events, trials=trials, attempts=attempts)
        self._ended.extend(trial for trial in trials if trial.state.is_final)
        for command in commands:
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Ask(numbers=numbers):
                self._suggester.ask(numbers)
            case Tell(trial=trial):
                self._suggester.tell(trial)
            case GrowSpace(declared=declared):
                self._grow(declared)
            case Start():
                self._executor.start(self._order(command))
            case Stop(attempt=attempt, halt=halt):
                self._executor.stop(attempt, halt)
            case KeepBest(trials=trials):
                self._files.keep_best(trials)
            case Discard(trial=number, keep_checkpoint=keep):
                self._files.discard(number, keep_checkpoint=keep)
            case Finish():
                self._finish = command
            case _:
                assert_never(command)

    def _order(self, start: Start) -> AttemptOrder:
        return AttemptOrder(
            brief=self._brief,
            attempt=start.attempt,
            params=start.params,
            space=self._space_json,
            placement=start.placement,
            seed=start.seed,
            incumbents=start.incumbents,
            resume_from=start.resume_from,
            keep_last=start.keep_last,
        )

    def _grow(self, declared: Sequence[Mapping[str, object]]) -> None:
        try:
            grown = self._space.grown(declared)
        except SpaceError as error:
            # The trial that declared it had its value from KerasTuner; others do without.
            log.warning("A parameter that a trial declared cannot be searched: %s", error)
            return
        if grown == self._space:
            return
        self._space = grown
        self._space_json = tuple(grown.to_json())
        self._recorder.set_facts({"space": list(self._space_json)})
        self._suggester.grow(grown)

    def _show(self) -> None:
        now = self._clock.now()
        if self._finish is None and now < self._show_from:
            return
        if self._observer is not None:
            snapshot = self._engine.snapshot
            pause = _PAUSE_SECONDS_PER_RUNNING * len(snapshot.running)
            self._show_from = now + min(POLL_SECONDS, pause)
            self._observer.update(snapshot, self._ended, now)
        self._ended = []

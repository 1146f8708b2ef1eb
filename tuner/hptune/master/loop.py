"""The loop that connects engine, ledger, sampler and executor. It makes no decisions."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol, assert_never

from ..core.attempt import Attempt
from ..core.clock import Clock
from ..core.engine.engine import Engine
from ..core.messages import (
    Ask,
    Command,
    Continue,
    DecidePacking,
    DecideSplit,
    Discard,
    Event,
    ExcludeNode,
    Finish,
    GrowSpace,
    KeepBest,
    NodeExcluded,
    PackingDecided,
    SplitChosen,
    Start,
    Stop,
    StudyOpened,
    Tell,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from ..core.packing.decision import decide
from ..core.resources import Resources
from ..core.sampler import Sampler
from ..core.snapshot import StudySnapshot
from ..core.space.space import SearchSpace
from ..core.trial import Trial
from ..errors import SpaceError
from ..executors.base import Executor
from ..worker.orders import AttemptOrder, StudyBrief
from .programs import BESIDE_PROGRAMS_SECONDS, taken
from .suggester import InformedSampler, Suggester, SuggestingThread
from .wait_for_workers import WorkerGate

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25
"""How often the display and requests to stop are updated while nothing happens."""

_PAUSE_SECONDS_PER_RUNNING = 2e-5
"""Pause between two snapshots, per running trial. A snapshot takes time in proportion to the
running trials, so that the display of thousands of them would keep the master busy."""


_OF_POOL = (WorkerJoined, WorkerLeaving, WorkerLeft)

SplitChooser = Callable[[DecideSplit], tuple[Resources, str]]


def _without_withdrawn(commands: Sequence[Command]) -> list[Command]:
    """Return commands without the orders to stop that a later `Continue` takes back."""
    last = {each.attempt: each for each in commands if isinstance(each, Stop | Continue)}
    return [each for each in commands if not isinstance(each, Stop) or last[each.attempt] is each]


class EventRecorder(Protocol):
    """The part of the ledger that the loop writes."""

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        """Record events and what they changed; durable when this returns."""

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Record facts on the study as a whole, all or none of them."""


class Files(Protocol):
    """The store of the trials' models and checkpoints."""

    def keep_best(self, trials: Sequence[Trial]) -> None:
        """Keep these trials' models as the study's best; the first one is the best."""

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        """Delete a trial's model and checkpoints."""


class Observer(Protocol):
    """Observer of the study's progress."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Observe the study's present state, and the trials that ended since the last call."""


class StudyLoop:
    """Runs a study until it is finished.

    Args:
        engine: The study's state; the ledger's events, if any, were fed to it before.
        recorder: The ledger.
        make_sampler: Makes a fresh sampler for a space.
        space: The search space.
        executor: Open; the caller closes it.
        clock: Stamps the loop's own events.
        brief: What every attempt needs to know of the study.
        files: Keeps the models.
        observer: Called after each batch of events; None for no observer.
        requests: Called regularly for events from outside, such as what users ask for.
        required_workers: Returns how many workers there must be before the first trial.
        split: Chooses what each trial asks for, and says why; asked if `StudyConfig.splits`.
        make_suggester: Makes what calls the sampler; None for a thread of its own.
    """

    def __init__(
        self,
        *,
        engine: Engine,
        recorder: EventRecorder,
        make_sampler: Callable[[SearchSpace], Sampler],
        space: SearchSpace,
        executor: Executor,
        clock: Clock,
        brief: StudyBrief,
        files: Files,
        observer: Observer | None = None,
        requests: Callable[[], Sequence[Event]] = tuple,
        required_workers: Callable[[], int] = int,
        split: SplitChooser | None = None,
        make_suggester: Callable[[InformedSampler], Suggester] | None = None,
    ) -> None:
        self._engine = engine
        self._recorder = recorder
        self._space = space
        self._space_json = tuple(space.to_json())
        sampler = InformedSampler(make_sampler, space, engine.results)
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
        self._split = split
        self._gate = WorkerGate(required_workers, clock)
        self._ended: list[Trial] = []
        self._show_from = 0.0
        self._finish: Finish | None = None

    def run(self, opened: StudyOpened, earlier: Sequence[Event] = ()) -> Finish:
        """Run the study to its end.

        Args:
            opened: Opens it.
            earlier: Events of the executor that others have taken from it.

        Raises:
            StudyError: The ledger cannot be written, or the executor or the sampler failed. The
                ledger is consistent, and the study can be resumed.
        """
        try:
            # Events that came before, such as workers that joined early, belong to this run.
            self._process([opened, *self._gate(earlier)])
            if self._finish is None:
                # Before a worker is given a trial: the time or the budget may be used up already.
                self._process(self._requests())
            self._show()
            while self._finish is None:
                poll = BESIDE_PROGRAMS_SECONDS if self._engine.leased else POLL_SECONDS
                self._process(self._gate(self._executor.events(poll)))
                # Apart from the others, which must be recorded also if the search has failed.
                self._process(self._suggester.events())
                if self._finish is None:
                    # Apart from the others: what users ask for is answered by the present state.
                    self._process(self._requests())
                self._show()
            return self._finish
        finally:
            self._suggester.close()

    def _process(self, events: Sequence[Event]) -> None:
        """Let the engine decide, record the events, and only then carry out its commands."""
        if not events:
            return
        events, commands = self._decided(events)
        trials, attempts = self._engine.take_changes()
        self._recorder.append(events, trials=trials, attempts=attempts)
        self._ended.extend(trial for trial in trials if trial.state.is_final)
        for command in _without_withdrawn(commands):
            self._carry_out(command)

    def _decided(self, events: Sequence[Event]) -> tuple[list[Event], list[Command]]:
        """Let the engine handle events; its questions are answered in between."""
        handled, commands, left = list[Event](), list[Command](), deque(events)
        while left:
            event = left.popleft()
            handled.append(event)
            for command in self._engine.handle(event):
                match command:
                    case DecidePacking(evidence=evidence):
                        left.appendleft(PackingDecided(event.at, decide(evidence)))
                    case ExcludeNode(node=node):
                        left.appendleft(NodeExcluded(event.at, node))
                    case DecideSplit():
                        # It is asked again after the next worker that comes or goes.
                        if self._split and not (left and isinstance(left[0], _OF_POOL)):
                            left.appendleft(SplitChosen(event.at, *self._split(command)))
                    case Start() if self._engine.is_leased(command.attempt):
                        left.extendleft(reversed(taken(event.at, command)))
                    case Stop() | Continue() if self._engine.is_leased(command.attempt):
                        pass  # the program learns it by the answer to its report
                    case _:
                        commands.append(command)
        return handled, commands

    def _carry_out(self, command: Command) -> None:
        match command:
            case Ask(numbers=numbers):
                self._suggester.ask(numbers)
            case Tell(trial=trial):
                self._suggester.tell(trial)
            case GrowSpace(declared=declared):
                self._grow(declared)
            case Start():
                self._executor.start(AttemptOrder(self._brief, command, self._space_json))
            case Stop(attempt=attempt, halt=halt):
                self._executor.stop(attempt, halt)
            case Continue():
                self._executor.tell(command)
            case KeepBest(trials=trials):
                self._files.keep_best(trials)
            case Discard(trial=number, keep_checkpoint=keep):
                self._files.discard(number, keep_checkpoint=keep)
            case Finish():
                self._finish = command
            case DecidePacking() | DecideSplit() | ExcludeNode():
                pass  # answered before
            case _:
                assert_never(command)

    def _grow(self, declared: Sequence[Mapping[str, object]]) -> None:
        try:
            grown = self._space.extended(declared)
        except SpaceError as error:
            # The trial that declared it used its default; other trials do so too.
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

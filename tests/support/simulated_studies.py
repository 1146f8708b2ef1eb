"""Whole studies on simulated workers, in virtual time: what a sampler or a pruner does at scale.

Engine, loop and sampler are those of a real study; workers, files and ledger are simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hptune.core.attempt import Attempt, AttemptId
from hptune.core.clock import Clock
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import Event, Finish, StudyOpened
from hptune.core.pruner import PrunerSettings
from hptune.core.resources import Amount, Resources
from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.study_config import StudyConfig
from hptune.core.trial import Trial
from hptune.master.loop import Files, Observer, SplitChooser, StudyLoop
from hptune.master.suggester import InformedSampler, Suggester, suggested
from hptune.pruners.registry import make_pruner
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.orders import AttemptLimits, StudyBrief
from simulated import SimulatedExecutor


class SimulatedSuggester:
    """Calls the sampler in the caller's thread; a simulated executor delivers the answer.

    Args:
        sampler: The sampler.
        clock: The executor's clock.
        deliver: Has the executor deliver an event after a number of virtual seconds.
        seconds: Returns how long the sampler takes for a number of suggestions.
    """

    def __init__(
        self,
        sampler: InformedSampler,
        clock: Clock,
        deliver: Callable[[float, Event], None],
        seconds: Callable[[int], float],
    ) -> None:
        self._clock = clock
        self._deliver = deliver
        self._seconds = seconds
        self._sampler = sampler
        self.tell = sampler.tell
        self.grow = sampler.grow

    def ask(self, numbers: Sequence[int]) -> None:
        """Ask now; the answer is delivered when its virtual time has passed."""
        seconds = self._seconds(len(numbers))
        answer = suggested(self._clock.now() + seconds, numbers, self._sampler.ask(numbers))
        self._deliver(seconds, answer)

    def events(self) -> list[Event]:
        """Return nothing: the executor delivers the answers."""
        return []

    def close(self) -> None:
        """Do nothing."""


class Memory:
    """Recorder and files of a study without a directory."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.attempts: dict[AttemptId, Attempt] = {}

    def append(
        self,
        events: Sequence[Event],
        *,
        trials: Iterable[Trial],
        attempts: Iterable[Attempt],
    ) -> None:
        """Keep the events and the attempts."""
        self.events.extend(events)
        self.attempts.update((attempt.id, attempt) for attempt in attempts)

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Fail: only trials that declare parameters change facts, and simulated ones do not."""
        raise AssertionError(f"nothing grows the space, and yet there is {facts}")

    def keep_best(self, trials: Sequence[Trial]) -> None:
        """Do nothing: there are no models."""

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        """Do nothing: there are no models."""


@dataclass(frozen=True, slots=True)
class Played:
    """Result of a simulated study; its seconds are virtual."""

    engine: Engine
    finish: Finish
    seconds: float


def attempts_by(events: Iterable[Event]) -> list[Attempt]:
    """Return the attempts that a new engine makes of the events, as on resuming a study."""
    engine, last = Engine(), dict[AttemptId, Attempt]()
    for event in events:
        engine.handle(event)
        last.update((each.id, each) for each in engine.take_changes()[1])
    return [*last.values()]


def play(
    executor: SimulatedExecutor,
    *,
    space: SearchSpace,
    goals: Goals,
    trials: int | None,
    make_sampler: Callable[[SearchSpace], Sampler],
    memory: Memory,
    files: Files | None = None,
    suggest_seconds: Callable[[int], float] | None = lambda _: 0.0,
    ask_ahead: float = 0.0,
    engine: Engine | None = None,
    seed: int = 1,
    epochs: int | None = None,
    pruner: PrunerSettings | None = None,
    resources: Resources | None = None,
    measured: tuple[Amount, ...] = (),
    observer: Observer | None = None,
    requests: Callable[[], Sequence[Event]] = tuple,
    split: SplitChooser | None = None,
) -> Played:
    """Run a study to its end, however many trials fail.

    Args:
        executor: The simulated workers, not open yet; closed at the end.
        space: The search space.
        goals: The objectives and constraints, of the trials' curves.
        trials: The number of trials.
        make_sampler: Makes the sampler for the space.
        memory: Records what happens.
        files: Keeps the models; None for `memory`.
        suggest_seconds: How long the sampler takes for a number of suggestions, by the virtual
            clock; None to run it in a thread.
        ask_ahead: How many suggestions are kept ready, as a share of the running attempts.
        engine: The engine of a study that is resumed; None for a new study.
        seed: The study's seed.
        epochs: The full training of a trial; None for as long as its curve is.
        pruner: How trials are pruned; None for not at all.
        resources: What a trial asks for; None for `Resources()`.
        measured: The amounts that measurement decides instead.
        observer: Called after each batch of events; None for no observer.
        requests: Asked regularly for events from outside.
        split: Chooses what each trial asks for; None for `resources`.
    """

    def simulated(sampler: InformedSampler) -> Suggester:
        assert suggest_seconds is not None
        return SimulatedSuggester(sampler, executor.clock, executor.deliver, suggest_seconds)

    engine = engine or Engine(make_pruner)
    loop = StudyLoop(
        make_suggester=None if suggest_seconds is None else simulated,
        engine=engine,
        recorder=memory,
        make_sampler=make_sampler,
        space=space,
        executor=executor,
        clock=executor.clock,
        brief=StudyBrief(
            name="study",
            directory="",
            source=ObjectiveSource(SourceKind.FILE, ""),
            goals=goals,
            limits=AttemptLimits(epochs=epochs),
            deterministic=True,
        ),
        files=files or memory,
        observer=observer,
        requests=requests,
        split=split,
    )
    begun = executor.clock.now()
    executor.open()
    try:
        finish = loop.run(
            StudyOpened(
                at=begun,
                config=StudyConfig(
                    trials=trials,
                    goals=goals,
                    seed=seed,
                    resources=resources or Resources(),
                    measured=measured,
                    splits=split is not None,
                    ask_ahead=ask_ahead,
                    pruner=pruner or PrunerSettings(),
                ),
                space=tuple(space.to_json()),
            )
        )
    finally:
        executor.close()
    return Played(engine, finish, executor.clock.now() - begun)

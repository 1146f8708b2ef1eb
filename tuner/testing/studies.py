"""Whole studies on simulated workers, in virtual time: what a sampler or a pruner does at scale.

All but workers, files and ledger is what a real study has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..config.model_file import ObjectiveSource, SourceKind
from ..core.attempt import Attempt, AttemptId
from ..core.engine.engine import Engine
from ..core.goals import Goals
from ..core.messages import Event, Finish, StudyOpened
from ..core.pruner import PrunerSettings
from ..core.resources import Amount, Resources
from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.study_config import StudyConfig
from ..core.trial import Trial
from ..executors.simulated import SimulatedExecutor
from ..master.loop import Observer, StudyLoop
from ..master.suggester import SimulatedSuggester
from ..pruners.registry import make_pruner
from ..worker.orders import AttemptLimits, StudyBrief


class Memory:
    """Recorder and files of a study that lies nowhere."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.attempts: dict[AttemptId, Attempt] = {}

    def append(
        self,
        events: Sequence[Event],
        *,
        trials: Iterable[Trial],  # noqa: ARG002 - the engine has them
        attempts: Iterable[Attempt],
    ) -> None:
        """Keep what happened."""
        self.events.extend(events)
        self.attempts.update((each.id, each) for each in attempts)

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Simulated trials declare nothing."""
        raise AssertionError(f"nothing grows the space, and yet there is {facts}")

    def keep_best(self, trials: Sequence[Trial]) -> None:
        """There are no models."""

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        """There are no models."""


@dataclass(frozen=True, slots=True)
class Played:
    """How a simulated study went; its seconds are virtual."""

    engine: Engine
    finish: Finish
    seconds: float


def play(
    executor: SimulatedExecutor,
    *,
    space: SearchSpace,
    goals: Goals,
    trials: int,
    make_sampler: Callable[[SearchSpace], Sampler],
    memory: Memory,
    engine: Engine | None = None,
    seed: int = 1,
    epochs: int | None = None,
    pruner: PrunerSettings | None = None,
    resources: Resources | None = None,
    measured: tuple[Amount, ...] = (),
    observer: Observer | None = None,
    requests: Callable[[], Sequence[Event]] = tuple,
    revise: Callable[[Sequence[Event]], Sequence[Event]] = tuple,
) -> Played:
    """Run a study to its end; it gives nothing up, however many trials fail.

    Args:
        executor: Its simulated workers, not open yet; it is closed at the end.
        space: The search space.
        goals: What its trials' curves are judged by.
        trials: How many there are.
        make_sampler: Makes the sampler for that space.
        memory: Is told what happens.
        engine: Of a study that is taken up again; None for a new one.
        seed: Of the study.
        epochs: The full training of a trial; None for as long as its curve is.
        pruner: How trials are pruned; None for not at all.
        resources: What a trial asks for; None for the usual.
        measured: What of it is decided by measurement instead.
        observer: Is shown the study after each batch of events; None for nobody.
        requests: Asked regularly for events from outside.
        revise: Adds what follows from events before they are handled.
    """
    engine = engine or Engine(make_pruner)
    loop = StudyLoop(
        make_suggester=lambda sampler: SimulatedSuggester(
            sampler, executor.clock, executor.deliver
        ),
        engine=engine,
        recorder=memory,
        make_sampler=make_sampler,
        space=space,
        executor=executor,
        clock=executor.clock,
        brief=StudyBrief(
            name="study",
            directory="",
            working_directory="",
            source=ObjectiveSource(SourceKind.FILE, ""),
            goals=goals,
            limits=AttemptLimits(epochs=epochs),
            deterministic=True,
        ),
        files=memory,
        observer=observer,
        requests=requests,
        revise=revise,
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
                    pruner=pruner or PrunerSettings(),
                ),
            )
        )
    finally:
        executor.close()
    return Played(engine, finish, executor.clock.now() - begun)

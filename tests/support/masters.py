"""Masters of one study on a simulated cluster with the real ledger, and checks of the result."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine_checks import check_engine
from hptune.core.attempt import Attempt, AttemptId, Cause, Ending, Outcome
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import AttemptStarted, Event, Finish, FinishReason, Reported
from hptune.core.pruner import PrunerSettings
from hptune.core.resources import Amount
from hptune.core.sampler import Sampler
from hptune.core.snapshot import StudySnapshot
from hptune.core.space.space import ChoiceParameter, FloatParameter, IntParameter, SearchSpace
from hptune.core.trial import Direction, Goal, Params, Trial, TrialState
from hptune.pruners.registry import make_pruner
from hptune.samplers.registry import SamplerOptions, make_sampler
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from simulated import SimulatedExecutor
from simulated_parts import Curve, Faults, Needs, SimulatedEnd, SimulatedWorker
from simulated_studies import Memory, play

GOAL = Goal("score", Direction.MAX)
SEED = 5
SPACE = SearchSpace(
    (
        IntParameter("layers", 1, 4),
        ChoiceParameter("activation", ("relu", "tanh", "gelu")),
        FloatParameter("dropout", 0.0, 1.0, step=0.25),
    )
)


class MasterKilled(BaseException):
    """Simulated death of the master's process."""


def curve(params: Params, seed: int) -> Curve:
    """Return three epochs whose metrics depend on the configuration and the seed alone."""
    width = sum(len(str(value)) for value in params.values())
    if params["layers"] == 4 and params["activation"] == "relu":
        raise SimulatedEnd(Ending(Cause.EXCEPTION, reason="ValueError: too deep"))
    return [{"score": width + seed % 997 / 1000 + step / 10} for step in (1, 2, 3)]


def epoch_seconds(params: Params, worker: SimulatedWorker) -> float:
    return 1.0 + len(str(params["dropout"])) / 7


class Files:
    def __init__(self) -> None:
        self.best: int | None = None
        self.discarded: set[int] = set()

    def keep_best(self, trials: Sequence[Trial]) -> None:
        assert {trial.state for trial in trials} == {TrialState.COMPLETE}
        self.best = trials[0].number

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        self.discarded.add(number)


class Recorder(Memory):
    """The real ledger; the master dies before or after its n-th write."""

    def __init__(self, ledger: Ledger, *, die_before: int = 0, die_after: int = 0) -> None:
        super().__init__()
        self.ledger = ledger
        self.writes = 0
        self._die_before = die_before
        self._die_after = die_after

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        self.writes += 1
        if self.writes == self._die_before:
            raise MasterKilled
        attempts = [*attempts]
        self.ledger.append(events, trials=trials, attempts=attempts)
        super().append(events, trials=trials, attempts=attempts)
        if self.writes == self._die_after:
            raise MasterKilled

    def set_facts(self, facts: Mapping[str, object]) -> None:
        self.ledger.set_facts(facts)


class SimulatedStudy:
    """Inputs that every master of a study starts with."""

    def __init__(
        self,
        search: str = "random",
        *,
        trials: int | None = 5,
        workers: Sequence[SimulatedWorker] | None = None,
        faults: Faults | None = None,
        curve: Callable[[Params, int], Curve] = curve,
        pruner: PrunerSettings | None = None,
        needs: Callable[[Params], Needs] | None = None,
    ) -> None:
        self.search = search
        self.trials = trials
        two_cores = SimulatedWorker(name="a", cores=2)
        self.workers = workers or [two_cores, SimulatedWorker(name="b", joins_seconds=1.5)]
        self.faults = faults
        self.curve = curve
        self.pruner = pruner or PrunerSettings()
        self.needs = needs
        self.files = Files()
        self.executor = SimulatedExecutor
        self.masters = 0
        self.in_a_thread = False

    def sampler(self, space: SearchSpace) -> Sampler:
        options = SamplerOptions(
            space=space,
            seed=SEED,
            directions=(GOAL.direction,),
            own={"grid_resolution": 3} if self.search == "grid" else {},
        )
        return make_sampler(self.search, options)

    def run(
        self,
        recorder: Recorder,
        engine: Engine,
        *,
        requests: Callable[[SimulatedExecutor], Sequence[Event]] = lambda _: (),
        observer: Observer | None = None,
    ) -> Finish:
        """Run a master, as `hptune.master.run` does."""
        self.masters += 1
        executor = self.executor(
            curve=self.curve,
            seconds_per_epoch=epoch_seconds,
            workers=self.workers,
            faults=self.faults,
            seed=self.masters,
            needs=self.needs,
        )
        executor.clock.advance_to(executor.clock.now() + 1_000_000.0 * self.masters)
        return play(
            executor,
            space=SPACE,
            goals=Goals((GOAL,)),
            trials=self.trials,
            make_sampler=self.sampler,
            memory=recorder,
            files=self.files,
            suggest_seconds=None if self.in_a_thread else lambda _: 0.0,
            engine=engine,
            seed=SEED,
            pruner=self.pruner,
            measured=tuple(Amount) if self.needs is not None else (),
            observer=observer,
            requests=lambda: requests(executor),
        ).finish


class Observer:
    """Observer that remembers what it was shown."""

    def __init__(self) -> None:
        self.ended: list[Trial] = []
        self.snapshots: list[StudySnapshot] = []
        self.notes: list[str] = []

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        self.ended.extend(ended)
        self.snapshots.append(snapshot)

    def note(self, line: str) -> None:
        self.notes.append(line)


def _spare_the_disk(ledger: Ledger) -> None:
    """Let the kernel write when it likes: these masters die, and the machine does not."""
    ledger._connection.execute("PRAGMA synchronous=OFF")


@contextmanager
def new_ledger(path: Path) -> Iterator[Ledger]:
    directory = StudyDirectory(path).create()
    with directory.acquire(), Ledger.create(directory, {}) as ledger:
        _spare_the_disk(ledger)
        yield ledger


@contextmanager
def old_ledger(path: Path) -> Iterator[tuple[Ledger, Engine]]:
    """Return the ledger of a study that another master began, and an engine in its last state."""
    directory = StudyDirectory(path).open()
    with directory.acquire(), Ledger.open(directory) as ledger:
        _spare_the_disk(ledger)
        engine = Engine(make_pruner)
        for event in ledger.events():
            engine.handle(event)
        engine.take_changes()
        check_engine(engine)
        yield ledger, engine


def results(trials: Iterable[Trial]) -> list[str]:
    """Return every trial's configuration, end, value and metrics."""
    return [
        json.dumps([t.number, dict(t.params), t.state, t.value, dict(t.metrics), t.reason])
        for t in trials
    ]


def undisturbed(path: Path, study: SimulatedStudy) -> tuple[list[str], int]:
    """Return the results of a study whose master lives, and the number of its writes."""
    with new_ledger(path) as ledger:
        recorder, engine = Recorder(ledger), Engine()
        finish = study.run(recorder, engine)
        assert finish.finish_reason in (FinishReason.DONE, FinishReason.EXHAUSTED)
        return results(engine.trials), recorder.writes


def check_whole(ledger: Ledger, engine: Engine, study: SimulatedStudy) -> None:
    """Check that every trial exists once, is over, and ran to its end once."""
    trials = [*engine.trials]
    assert [trial.number for trial in trials] == [*range(len(trials))]
    assert all(trial.state.is_final for trial in trials)
    events = [*ledger.events()]
    started = [event.attempt for event in events if isinstance(event, AttemptStarted)]
    assert len(started) == len(set(started)), "an attempt was started twice"
    attempts = {row.id: row for row in attempts_of(engine, events)}
    for trial in trials:
        own = [attempts[AttemptId(trial.number, number)] for number in range(trial.attempts)]
        final = [
            each.outcome for each in own if each.outcome in (Outcome.FINISHED, Outcome.ERRORED)
        ]
        assert len(final) == 1, f"trial {trial.number} ended {final}"
        assert own[-1].outcome is final[0], "a trial that was over ran again"
    reports = [event for event in events if isinstance(event, Reported)]
    assert {report.attempt.trial for report in reports} <= {trial.number for trial in trials}
    best = engine.snapshot.best
    assert best is not None
    assert study.files.best == best.number
    assert best.number not in study.files.discarded or len(trials) == 1


def attempts_of(engine: Engine, events: Iterable[Event]) -> list[Attempt]:
    """Return every attempt, from the events alone."""
    again = Engine()
    for event in events:
        again.handle(event)
    assert results(again.trials) == results(engine.trials)
    return again.take_changes()[1]

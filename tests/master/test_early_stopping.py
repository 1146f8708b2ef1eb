"""Whole studies with early stopping on a simulated cluster, with stragglers and deaths."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from engine_checks import check_engine
from hptune.core.attempt import Attempt, Outcome
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import Event, Finish, FinishReason, Reported, StopRequested
from hptune.core.pruner import PrunerSettings
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Goal, Params, Trial, TrialState
from hptune.pruners.registry import make_pruner
from hptune.samplers.registry import SamplerOptions, make_sampler
from simulated import SimulatedExecutor
from simulated_parts import Curve, Faults, SimulatedWorker
from simulated_studies import Memory, play

EPOCHS = 27
TRIALS = 60
SEEDS = 3
GOAL = Goal("score", Direction.MAX)
SPACE = SearchSpace((FloatParameter("height", 0.0, 1.0), FloatParameter("speed", 0.05, 1.0)))
PRUNERS = {
    "none": PrunerSettings(epochs=EPOCHS),
    "median": PrunerSettings(name="median", epochs=EPOCHS),
    "asha": PrunerSettings(name="asha", epochs=EPOCHS),
    "promotion": PrunerSettings(name="asha", epochs=EPOCHS, options={"pruner_mode": "promote"}),
    "hyperband": PrunerSettings(name="hyperband", epochs=EPOCHS),
    "hyperband, promotion": PrunerSettings(
        name="hyperband", epochs=EPOCHS, options={"pruner_mode": "promote"}
    ),
}
DEATHS = Faults(
    killed_attempts=0.1,
    stragglers=0.1,
    straggler_slowdown=20.0,
    worker_life_seconds=60.0,
    replaced_after_seconds=10.0,
)

each_pruner = pytest.mark.parametrize("pruner", PRUNERS.values(), ids=PRUNERS)


def curve(params: Params, seed: int) -> Curve:
    height, speed = float(params["height"] or 0), float(params["speed"] or 0)
    noise = random.Random(seed)
    return [
        {"score": height * (1 - 1 / (1 + speed * step)) + noise.gauss(0, 0.01)}
        for step in range(1, EPOCHS + 1)
    ]


class Files(Memory):
    """Recorder and files of a study: its events, and the trials without models."""

    def __init__(self) -> None:
        super().__init__()
        self.discarded: set[int] = set()

    def keep_best(self, trials: Sequence[Trial]) -> None:
        assert {trial.state for trial in trials} == {TrialState.COMPLETE}

    def discard(self, number: int, *, keep_checkpoint: bool) -> None:
        self.discarded.add(number)


class Watched(Files):
    """Checks the engine after each batch of events, and measures the idle time of workers."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self.idle_while_work_waits = 0.0
        self._idle_since: float | None = None

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        changed = [*trials]
        super().append(events, trials=changed, attempts=attempts)
        check_engine(self.engine, trials_changed=bool(changed))
        now = events[-1].at
        # A suggestion that is on its way takes no time here.
        if self._idle_since is not None:
            self.idle_while_work_waits += now - self._idle_since
        snapshot = self.engine.snapshot
        is_over = snapshot.stopping or not snapshot.running
        more_to_come = sum(snapshot.counts.values()) < TRIALS
        waits = snapshot.counts.get(TrialState.WAITING, 0) or more_to_come
        is_idle = not is_over and waits and snapshot.cpus_held < snapshot.cpus
        self._idle_since = now if is_idle else None


def study(
    pruner: PrunerSettings,
    *,
    workers: int = 8,
    faults: Faults | None = None,
    seed: int = 1,
    search: str = "random",
    engine: Engine | None = None,
    memory: Files | None = None,
    stop_after: float | None = None,
) -> tuple[Engine, Files, Finish]:
    """Run a study, or resume it."""
    engine, memory = engine or Engine(make_pruner), memory or Files()
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 1.0 + len(worker.name) / 10,
        workers=[SimulatedWorker(name=f"w{n}", joins_seconds=n / 3) for n in range(workers)],
        faults=faults,
        seed=seed,
        stop_seconds=0.0,
    )
    if engine.active_seconds:
        executor.clock.advance_to(2e9)
    opened_at = executor.clock.now()

    def requests() -> Sequence[Event]:
        if stop_after is not None and executor.clock.now() >= opened_at + stop_after:
            return [StopRequested(executor.clock.now(), FinishReason.INTERRUPTED, "enough")]
        return ()

    played = play(
        executor,
        space=SPACE,
        goals=Goals((GOAL,)),
        trials=TRIALS,
        make_sampler=lambda space: make_sampler(
            search, SamplerOptions(space=space, seed=seed, directions=(GOAL.direction,))
        ),
        memory=memory,
        engine=engine,
        seed=seed,
        epochs=EPOCHS,
        pruner=pruner,
        requests=requests,
    )
    return engine, memory, played.finish


def epochs_spent(files: Files) -> int:
    return sum(isinstance(event, Reported) for event in files.events)


def replayed(files: Files) -> Engine:
    """Return an engine that has handled the same events."""
    engine = Engine(make_pruner)
    for event in files.events:
        engine.handle(event)
    check_engine(engine)
    return engine


# --- no trial starves -------------------------------------------------------------------------


@each_pruner
@pytest.mark.parametrize(
    ("workers", "faults"),
    [(1, None), (8, None), (8, DEATHS), (50, DEATHS)],
    ids=["1", "8", "8 that die", "50 that die"],
)
def test_a_study_ends_and_no_worker_is_idle_while_work_waits(
    pruner: PrunerSettings, workers: int, faults: Faults | None
) -> None:
    engine = Engine(make_pruner)
    watched = Watched(engine)
    _, _, finish = study(pruner, workers=workers, faults=faults, engine=engine, memory=watched)
    trials = [*engine.trials]
    assert finish.finish_reason is FinishReason.DONE
    assert len(trials) == TRIALS
    assert all(trial.state.is_final for trial in trials)
    assert watched.idle_while_work_waits == 0
    assert engine.snapshot.best is not None
    assert engine.snapshot.best.step == EPOCHS
    assert watched.discarded == {trial.number for trial in trials} - {engine.snapshot.best.number}
    if faults is None:
        assert epochs_spent(watched) <= TRIALS * EPOCHS
        assert (epochs_spent(watched) < TRIALS * EPOCHS) == (pruner.name != "none")


@pytest.mark.parametrize("name", ["promotion", "hyperband, promotion"])
@pytest.mark.parametrize("faults", [None, DEATHS], ids=["in peace", "deaths and stragglers"])
def test_every_promoted_trial_runs_on_from_where_it_was(name: str, faults: Faults | None) -> None:
    engine, files, _ = study(PRUNERS[name], faults=faults)
    released = {
        attempt.id.trial
        for attempt in files.attempts.values()
        if attempt.outcome is Outcome.RELEASED
    }
    assert len(released) > TRIALS / 2
    again = [t for t in engine.trials if t.attempts > 1 and t.number in released]
    assert len(again) > TRIALS / 10
    for trial in engine.trials:
        steps = [
            event.report.step
            for event in files.events
            if isinstance(event, Reported) and event.attempt.trial == trial.number
        ]
        assert steps == [*range(1, len(steps) + 1)], "no epoch is trained twice"


@each_pruner
def test_stopping_early_loses_little_and_saves_much(pruner: PrunerSettings) -> None:
    best, spent = [], []
    for seed in range(SEEDS):
        engine, files, _ = study(pruner, seed=seed)
        assert engine.snapshot.best is not None
        assert engine.snapshot.best.value is not None
        full = max(float(trial.params["height"] or 0) for trial in engine.trials)
        best.append(full - engine.snapshot.best.value)
        spent.append(epochs_spent(files) / TRIALS / EPOCHS)
    assert sum(best) / SEEDS < 0.2
    most = {"none": 1.0, "median": 0.9, "asha": 0.35, "hyperband": 0.6}[pruner.name]
    assert sum(spent) / SEEDS <= most


@each_pruner
@pytest.mark.parametrize("search", [pytest.param("random", marks=pytest.mark.slow), "tpe"])
def test_a_study_repeats_itself_and_its_events_tell_all(
    pruner: PrunerSettings, search: str
) -> None:
    first, files, _ = study(pruner, faults=DEATHS, search=search)
    second, _, _ = study(pruner, faults=DEATHS, search=search)
    assert [*first.trials] == [*second.trials]
    assert [*replayed(files).trials] == [*first.trials]


@each_pruner
@pytest.mark.parametrize("stop_after", [0.5, 5.0, 20.0])
def test_a_study_that_was_let_go_goes_on(pruner: PrunerSettings, stop_after: float) -> None:
    engine, files, finish = study(pruner, stop_after=stop_after)
    assert finish.finish_reason is FinishReason.INTERRUPTED
    assert not any(trial.state is TrialState.RUNNING for trial in engine.trials)
    spent = epochs_spent(files)
    paused = [t.number for t in engine.trials if t.state is TrialState.PAUSED]
    assert not files.discarded & set(paused)
    engine, files, finish = study(pruner, engine=engine)
    assert finish.finish_reason is FinishReason.DONE
    assert all(trial.state.is_final for trial in engine.trials)
    assert spent + epochs_spent(files) <= TRIALS * EPOCHS, "nothing is trained twice"


def test_a_study_may_change_how_it_prunes_whenever_it_is_resumed() -> None:
    stopped = {name: study(pruner, stop_after=12.0)[1] for name, pruner in PRUNERS.items()}
    for one, two in itertools.permutations(PRUNERS, 2):
        pruner = PRUNERS[two]
        later = {} if pruner.name == "none" else {"min_epochs": 2}
        changed = replace(pruner, options={**pruner.options, **later})
        engine, _, finish = study(changed, engine=replayed(stopped[one]))
        assert finish.finish_reason is FinishReason.DONE
        assert all(trial.state.is_final for trial in engine.trials)

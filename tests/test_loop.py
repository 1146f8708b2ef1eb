"""The loop over a simulated cluster: whole studies in moments, and masters that die anywhere."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tuner.core.aims import Aims
from tuner.core.engine import Engine
from tuner.core.messages import (
    AttemptStarted,
    Event,
    Finish,
    Reported,
    StopRequested,
    StudyOpened,
    Verdict,
)
from tuner.core.picture import StudyPicture
from tuner.core.resources import Resources
from tuner.core.sampler import Sampler
from tuner.core.space import ChoiceParameter, FloatParameter, IntParameter, SearchSpace
from tuner.core.trial import (
    Attempt,
    AttemptId,
    Cause,
    Direction,
    Ending,
    Goal,
    Outcome,
    Params,
    Trial,
    TrialState,
)
from tuner.errors import StorageFullError
from tuner.executors.simulated import (
    Curve,
    Faults,
    SimulatedEnd,
    SimulatedExecutor,
    SimulatedWorker,
)
from tuner.ledger import Ledger
from tuner.loop import POLL_SECONDS, StudyLoop
from tuner.model_file import ObjectiveSource, SourceKind
from tuner.samplers import SamplerOptions, make_sampler
from tuner.study_directory import StudyDirectory
from tuner.suggesting import InformedSampler, SimulatedSuggester, Suggester
from tuner.worker.orders import AttemptOrder, StudyBrief

GOAL = Goal("score", Direction.MAX)
SEED = 5
SPACE = SearchSpace(
    (
        IntParameter("layers", 1, 4),
        ChoiceParameter("activation", ("relu", "tanh", "gelu")),
        FloatParameter("dropout", 0.0, 1.0, step=0.25),
    )
)
BRIEF = StudyBrief(
    name="study",
    directory="",
    working_directory="",
    source=ObjectiveSource(SourceKind.FILE, ""),
    aims=Aims((GOAL,)),
    epochs=None,
    trial_timeout_seconds=None,
    deterministic=True,
)


class MasterKilled(BaseException):
    """The master's process ends here and now."""


def curve(params: Params, seed: int) -> Curve:
    """Three epochs; what they measure follows from the configuration and the seed alone."""
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


class Recorder:
    """The real ledger; the master dies before or after its n-th write."""

    def __init__(self, ledger: Ledger, *, die_before: int = 0, die_after: int = 0) -> None:
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
        self.ledger.append(events, trials=trials, attempts=attempts)
        if self.writes == self._die_after:
            raise MasterKilled

    def set_facts(self, facts: Mapping[str, object]) -> None:
        self.ledger.set_facts(facts)


class Cluster:
    """What every master of a study starts with."""

    def __init__(
        self,
        search: str = "random",
        *,
        trials: int | None = 5,
        workers: Sequence[SimulatedWorker] | None = None,
        faults: Faults | None = None,
        curve: Callable[[Params, int], Curve] = curve,
    ) -> None:
        self.search = search
        self.trials = trials
        two_cores = SimulatedWorker(name="a", cores=2)
        self.workers = workers or [two_cores, SimulatedWorker(name="b", joins_seconds=1.5)]
        self.faults = faults
        self.curve = curve
        self.files = Files()
        self.executor = SimulatedExecutor
        self.masters = 0
        self.in_a_thread = False

    def sampler(self, space: SearchSpace) -> Sampler:
        options = SamplerOptions(
            space=space,
            seed=SEED,
            direction=GOAL.direction,
            grid_resolution=3 if self.search == "grid" else None,
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
        """Be a master, as `tuner.run` is one."""
        self.masters += 1
        executor = self.executor(
            curve=self.curve,
            seconds_per_epoch=epoch_seconds,
            workers=self.workers,
            faults=self.faults,
            seed=self.masters,
        )
        executor.clock.advance_to(executor.clock.now() + 1_000_000.0 * self.masters)

        def simulated(sampler: InformedSampler) -> Suggester:
            return SimulatedSuggester(sampler, executor.clock, executor.deliver)

        loop = StudyLoop(
            make_suggester=None if self.in_a_thread else simulated,
            engine=engine,
            recorder=recorder,
            make_sampler=self.sampler,
            space=SPACE,
            executor=executor,
            clock=executor.clock,
            brief=BRIEF,
            files=self.files,
            observer=observer,
            requests=lambda: requests(executor),
        )
        executor.open()
        try:
            return loop.run(
                StudyOpened(
                    at=executor.clock.now(),
                    trials=self.trials,
                    aims=Aims((GOAL,)),
                    seed=SEED,
                    resources=Resources(),
                    max_failures=None,
                    same_failure_limit=0,
                    space=tuple(SPACE.to_json()),
                )
            )
        finally:
            executor.close()


class Observer:
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.ended: list[Trial] = []
        self.pictures: list[StudyPicture] = []
        self.notes: list[str] = []

    def update(self, picture: StudyPicture, ended: Sequence[Trial], now: float) -> None:
        self.ended.extend(ended)
        self.pictures.append(picture)

    def note(self, line: str) -> None:
        self.notes.append(line)


@contextmanager
def new_ledger(path: Path) -> Iterator[Ledger]:
    directory = StudyDirectory(path).create()
    with directory.acquire(), Ledger.create(directory, {}) as ledger:
        yield ledger


@contextmanager
def old_ledger(path: Path) -> Iterator[tuple[Ledger, Engine]]:
    """The ledger of a study that another master began, and an engine that stands where it did."""
    directory = StudyDirectory(path).open()
    with directory.acquire(), Ledger.open(directory) as ledger:
        engine = Engine()
        for event in ledger.events():
            engine.handle(event)
        engine.take_changes()
        engine.validate()
        yield ledger, engine


def results(trials: Iterable[Trial]) -> list[str]:
    """What a study found: every trial's configuration, end, value and metrics."""
    return [
        json.dumps([t.number, dict(t.params), t.state, t.value, dict(t.metrics), t.reason])
        for t in trials
    ]


def undisturbed(path: Path, cluster: Cluster) -> tuple[list[str], int]:
    """The results of a study whose master lives, and how often it writes."""
    with new_ledger(path) as ledger:
        recorder, engine = Recorder(ledger), Engine()
        finish = cluster.run(recorder, engine)
        assert finish.verdict in (Verdict.DONE, Verdict.EXHAUSTED)
        return results(engine.trials), recorder.writes


# --- masters that die -----------------------------------------------------------------------


def check_whole(ledger: Ledger, engine: Engine, cluster: Cluster) -> None:
    """Every trial is there once and over, and ran to its end once."""
    trials = [*engine.trials]
    assert [trial.number for trial in trials] == [*range(len(trials))]
    assert all(trial.state.is_final for trial in trials)
    events = [*ledger.events()]
    started = [event.attempt for event in events if isinstance(event, AttemptStarted)]
    assert len(started) == len(set(started)), "an attempt was started twice"
    attempts = {row.id: row for row in _attempts_of(engine, events)}
    for trial in trials:
        own = [attempts[AttemptId(trial.number, number)] for number in range(trial.attempts)]
        final = [
            each.outcome for each in own if each.outcome in (Outcome.FINISHED, Outcome.ERRORED)
        ]
        assert len(final) == 1, f"trial {trial.number} ended {final}"
        assert own[-1].outcome is final[0], "a trial that was over ran again"
    reports = [event for event in events if isinstance(event, Reported)]
    assert {report.attempt.trial for report in reports} <= {trial.number for trial in trials}
    best = engine.best
    assert best is not None
    assert cluster.files.best == best.number
    assert best.number not in cluster.files.discarded or len(trials) == 1


def _attempts_of(engine: Engine, events: Iterable[Event]) -> list[Attempt]:
    """Every attempt as the events tell it."""
    again = Engine()
    for event in events:
        again.handle(event)
    assert results(again.trials) == results(engine.trials)
    return again.take_changes()[1]


@pytest.mark.parametrize("search", ["random", "grid"])
def test_a_master_may_die_at_any_write(tmp_path: Path, search: str) -> None:
    expected, writes = undisturbed(tmp_path / "whole", Cluster(search))
    assert writes > 20
    for when in ("die_before", "die_after"):
        for number in range(1, writes + 1):
            path = tmp_path / f"{when}-{number}"
            cluster = Cluster(search)
            with new_ledger(path) as ledger, pytest.raises(MasterKilled):
                cluster.run(Recorder(ledger, **{when: number}), Engine())
            with old_ledger(path) as (ledger, engine):
                finish = cluster.run(Recorder(ledger), engine)
                assert finish.verdict is Verdict.DONE
                assert results(engine.trials) == expected
                check_whole(ledger, engine, cluster)


@pytest.mark.parametrize("search", ["random", "grid"])
def test_every_master_may_die_again_and_again(tmp_path: Path, search: str) -> None:
    expected, _ = undisturbed(tmp_path / "whole", Cluster(search))
    path = tmp_path / "study"
    cluster = Cluster(search)
    with new_ledger(path) as ledger, pytest.raises(MasterKilled):
        cluster.run(Recorder(ledger, die_after=3), Engine())
    for life in range(4, 100):
        with old_ledger(path) as (ledger, engine):
            try:
                cluster.run(Recorder(ledger, die_after=life), engine)
            except MasterKilled:
                continue
            assert results(engine.trials) == expected
            check_whole(ledger, engine, cluster)
            break
    assert cluster.masters > 3


def test_a_full_disk_ends_the_study_and_loses_nothing(tmp_path: Path) -> None:
    class FullDisk(Recorder):
        def append(
            self,
            events: Sequence[Event],
            *,
            trials: Iterable[Trial],
            attempts: Iterable[Attempt],
        ) -> None:
            if self.writes == 12:
                raise StorageFullError("no room")
            super().append(events, trials=trials, attempts=attempts)

    expected, _ = undisturbed(tmp_path / "whole", Cluster())
    cluster = Cluster()
    with new_ledger(tmp_path / "study") as ledger, pytest.raises(StorageFullError):
        cluster.run(FullDisk(ledger), Engine())
    with old_ledger(tmp_path / "study") as (ledger, engine):
        cluster.run(Recorder(ledger), engine)
        assert results(engine.trials) == expected


def test_nothing_is_done_before_it_is_written(tmp_path: Path) -> None:
    started: set[AttemptId] = set()
    kept: set[int] = set()

    class Written(Recorder):
        def __init__(self, ledger: Ledger) -> None:
            super().__init__(ledger)
            self.attempts: set[AttemptId] = set()
            self.over: set[int] = set()

        def append(
            self,
            events: Sequence[Event],
            *,
            trials: Iterable[Trial],
            attempts: Iterable[Attempt],
        ) -> None:
            trials, attempts = [*trials], [*attempts]
            super().append(events, trials=trials, attempts=attempts)
            self.attempts.update(attempt.id for attempt in attempts)
            self.over.update(trial.number for trial in trials if trial.state.is_final)

    class Watched(SimulatedExecutor):
        def start(self, order: AttemptOrder) -> None:
            assert order.attempt in recorder.attempts, f"{order.attempt} is not written down"
            started.add(order.attempt)
            super().start(order)

    class WatchedFiles(Files):
        def keep_best(self, trials: Sequence[Trial]) -> None:
            for trial in trials:
                assert trial.number in recorder.over, f"trial {trial.number} is not written down"
                kept.add(trial.number)

    with new_ledger(tmp_path / "study") as ledger:
        recorder = Written(ledger)
        cluster = Cluster()
        cluster.executor = Watched
        cluster.files = WatchedFiles()
        cluster.run(recorder, Engine())
    assert {name.trial for name in started} == {0, 1, 2, 3, 4}
    assert kept


# --- whole studies --------------------------------------------------------------------------


def test_a_study_is_repeated_event_by_event(tmp_path: Path) -> None:
    stories = []
    for name in ("one", "two"):
        with new_ledger(tmp_path / name) as ledger:
            faults = Faults(killed_attempts=0.3, stragglers=0.2, worker_life_seconds=9.0,
                            replaced_after_seconds=2.0)  # fmt: skip
            Cluster(trials=12, faults=faults).run(Recorder(ledger), Engine())
            stories.append([*ledger.events()])
    assert stories[0] == stories[1]
    assert len(stories[0]) > 50


def test_faults_change_no_result(tmp_path: Path) -> None:
    expected, _ = undisturbed(tmp_path / "whole", Cluster(trials=20))
    faults = Faults(killed_attempts=0.4, stragglers=0.2, worker_life_seconds=40.0,
                    replaced_after_seconds=1.0)  # fmt: skip
    cluster = Cluster(trials=20, faults=faults)
    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        cluster.run(Recorder(ledger), engine)
        events = [*ledger.events()]
    assert results(engine.trials) == expected
    lost = [each for each in _attempts_of(engine, events) if each.outcome is Outcome.LOST]
    assert len(lost) >= 3, "the faults did not happen"


def test_a_grid_is_searched_to_its_end(tmp_path: Path) -> None:
    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        finish = Cluster("grid", trials=None).run(Recorder(ledger), engine)
    assert finish.verdict is Verdict.EXHAUSTED
    seen = {SPACE.key(trial.params) for trial in engine.trials}
    assert len(seen) == len([*engine.trials]) == SPACE.grid_size(3)


def test_workers_may_come_late_and_all_be_gone_for_a_while(tmp_path: Path) -> None:
    workers = [
        SimulatedWorker(name="early", joins_seconds=60.0, leaves_seconds=63.0),
        SimulatedWorker(name="late", joins_seconds=600.0),
    ]
    cluster = Cluster(trials=4, workers=workers)
    observer, engine = Observer(), Engine()
    with new_ledger(tmp_path / "study") as ledger:
        cluster.run(Recorder(ledger), engine, observer=observer)
    notices = {picture.notice for picture in observer.pictures}
    assert "waiting for a worker" in notices
    assert engine.active_seconds > 600.0
    assert len([*engine.trials]) == 4


def test_a_stop_lets_attempts_go_at_their_next_epoch(tmp_path: Path) -> None:
    cluster = Cluster(trials=50)

    def requests(executor: SimulatedExecutor) -> Sequence[Event]:
        now = executor.clock.now()
        if now % 1_000_000 < 10.0:
            return ()
        return [StopRequested(now, Verdict.INTERRUPTED, "Ctrl-C")]

    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        finish = cluster.run(Recorder(ledger), engine, requests=requests)
        assert finish == Finish(Verdict.INTERRUPTED, "Ctrl-C")
        assert 10.0 <= engine.active_seconds < 12.0
    with old_ledger(tmp_path / "study") as (ledger, engine):
        assert not any(trial.state is TrialState.RUNNING for trial in engine.trials)
        cluster.run(Recorder(ledger), engine)
        check_whole(ledger, engine, cluster)
        assert len([*engine.trials]) == 50


def test_the_display_is_told_every_end_once(tmp_path: Path) -> None:
    workers = [SimulatedWorker(name=f"w{number}", cores=64) for number in range(8)]
    observer = Observer()
    with new_ledger(tmp_path / "study") as ledger:
        cluster = Cluster(trials=55, workers=workers)
        recorder = Recorder(ledger)
        cluster.run(recorder, Engine(), observer=observer)
    assert sorted(trial.number for trial in observer.ended) == [*range(55)]
    last = observer.pictures[-1]
    assert (last.ended, last.running) == (55, ())


def test_nothing_is_polled_more_often_than_needed(tmp_path: Path) -> None:
    asked = 0

    def requests(executor: SimulatedExecutor) -> Sequence[Event]:
        nonlocal asked
        asked += 1
        return ()

    with new_ledger(tmp_path / "study") as ledger:
        engine = Engine()
        recorder = Recorder(ledger)
        Cluster(trials=4).run(recorder, engine, requests=requests)
    assert asked <= engine.active_seconds / POLL_SECONDS + recorder.writes

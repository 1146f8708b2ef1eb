"""Replay of a study's search from its ledger, which finds every difference."""

from __future__ import annotations

import itertools
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from hptune.config.objectives import goals_to_json
from hptune.config.settings import StudySettings
from hptune.core.engine.engine import Engine
from hptune.core.goals import Goals
from hptune.core.messages import Event, ParametersUsed, Suggested, UserRequested
from hptune.core.pruner import PrunerSettings
from hptune.core.sampler import Sampler
from hptune.core.space.space import IntParameter, SearchSpace
from hptune.core.trial import ADDED, Direction, Suggestion, Trial, TrialState
from hptune.core.user_requests import UserAction
from hptune.errors import NoStudyError
from hptune.master.replay import Replayed, replay
from hptune.pruners.registry import make_pruner
from hptune.samplers.registry import SamplerOptions, make_sampler
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader
from hptune.user_code.source import ObjectiveSource, SourceKind
from in_process import InProcess
from masters import GOAL, SEED, SPACE, MasterKilled, Recorder, SimulatedStudy, old_ledger
from real_runs import trials
from simulated import SimulatedExecutor
from simulated_parts import Faults

LATE = SearchSpace((IntParameter("late", 1, 50),))


def facts(search: str) -> dict[str, object]:
    source = ObjectiveSource(SourceKind.FILE, "gone.py")
    resolution = 3 if search == "grid" else None
    settings = StudySettings(
        source=source, working_directory="", search=search, grid_resolution=resolution
    )
    return {
        "hptune_version": "1",
        "created_at": 1000.0,
        "is_keras": False,
        "epochs": None,
        "settings": settings.to_json(),
        "goals": goals_to_json(Goals((GOAL,))),
        "seed": SEED,
        "space": SPACE.to_json(),
        "declared_space": SPACE.to_json(),
        "ended": None,
        "warm_start": [],
    }


class Slow(Sampler):
    """Sampler with random delays: other attempts run meanwhile in each run."""

    def __init__(self, inner: Sampler) -> None:
        self._inner = inner
        self._pauses = itertools.cycle((0.0, 0.004, 0.001))

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        time.sleep(next(self._pauses))
        return self._inner.ask(numbers)

    def tell(self, trial: Trial) -> None:
        self._inner.tell(trial)


class Declaring:
    """Callable that makes running attempts declare a new parameter."""

    def __init__(self) -> None:
        self._declared: set[int] = set()

    def __call__(self, executor: SimulatedExecutor) -> Sequence[Event]:
        for attempt, run in executor._runs.items():
            if attempt.trial % 7 == 5 and attempt.trial not in self._declared:
                self._declared.add(attempt.trial)
                values = {**run.order.start.params, "late": 7}
                entries = tuple(LATE.to_json())
                return [ParametersUsed(executor.clock.now(), attempt, entries, values)]
        return ()


def study(
    path: Path, search: str, *, in_a_thread: bool = False, pruner: PrunerSettings | None = None
) -> StudyDirectory:
    """Run a study of 30 trials with faults, a grown space, and a master that died once."""
    faults = Faults(killed_attempts=0.2, stragglers=0.3, worker_life_seconds=60.0,
                    replaced_after_seconds=2.0)  # fmt: skip
    cluster = SimulatedStudy(search, trials=30, faults=faults, pruner=pruner)
    cluster.in_a_thread = in_a_thread
    plain = cluster.sampler
    if in_a_thread:
        setattr(cluster, "sampler", lambda space: Slow(plain(space)))  # noqa: B010 - a method
    directory = StudyDirectory(path).create()
    with (
        directory.acquire(),
        Ledger.create(directory, facts(search)) as ledger,
        pytest.raises(MasterKilled),
    ):
        cluster.run(Recorder(ledger, die_after=30), Engine(make_pruner), requests=Declaring())
    with old_ledger(path) as (ledger, engine):
        cluster.run(Recorder(ledger), engine, requests=Declaring())
    return directory


@pytest.mark.parametrize("search", ["tpe", "grid"])
@pytest.mark.parametrize("in_a_thread", [False, True], ids=["simulated", "thread"])
def test_a_study_with_faults_and_a_grown_space_comes_out_again(
    tmp_path: Path, search: str, in_a_thread: bool
) -> None:
    directory = study(tmp_path / "study", search, in_a_thread=in_a_thread)
    replayed = replay(directory)
    assert replayed == Replayed(30, None)
    assert replayed.text() == "30 suggestions, all equal"


def test_a_study_whose_trials_are_raced_comes_out_again(tmp_path: Path) -> None:
    directory = study(tmp_path / "study", "tpe", pruner=PrunerSettings(name="asha", epochs=3))
    with old_ledger(directory.path) as (_, engine):
        known = [*engine.trials]
    assert any(trial.state is TrialState.PRUNED for trial in known)
    assert {trial.origin for trial in known} >= {"tpe", "tpe (random)"}
    assert replay(directory) == Replayed(30, None)


class Asking:
    """Callable that asks what users ask, at some of its calls."""

    def __init__(self) -> None:
        self._calls = 0

    def __call__(self, executor: SimulatedExecutor) -> Sequence[Event]:
        self._calls += 1
        at = executor.clock.now()
        running = [attempt.trial for attempt in executor._runs]
        added = Suggestion({"layers": 4, "activation": "gelu", "dropout": 1.0}, ADDED)
        match self._calls:
            case 5:
                return [UserRequested(at, "1", UserAction.ENQUEUE, "ada", added=(added,))]
            case 9 if running:
                return [UserRequested(at, "2", UserAction.STOP_TRIAL, "ada", running[0])]
            case 12:
                return [UserRequested(at, "3", UserAction.PAUSE, "ada")]
            case 16:
                return [UserRequested(at, "4", UserAction.RESUME, "ada")]
        return []


def test_what_users_asked_for_is_in_the_ledger_and_comes_out_again(tmp_path: Path) -> None:
    cluster = SimulatedStudy("tpe", trials=20)
    directory = StudyDirectory(tmp_path / "study").create()
    with directory.acquire(), Ledger.create(directory, facts("tpe")) as ledger:
        cluster.run(Recorder(ledger), Engine(make_pruner), requests=Asking())
    asked = LedgerReader(directory).user_requests()
    assert [each.action for each in asked] == [
        UserAction.ENQUEUE, UserAction.STOP_TRIAL, UserAction.PAUSE, UserAction.RESUME
    ]  # fmt: skip
    reader = LedgerReader(directory)
    assert ADDED in {trial.origin for trial in reader.trials()}
    assert "stopped by ada" in {attempt.reason for attempt in reader.attempts()}
    replayed = replay(directory)
    assert replayed == Replayed(19, None, others=1)
    assert replayed.text().endswith("1 other trial came from --try, enqueue or --confirm")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> StudyDirectory:
    return study(tmp_path_factory.mktemp("studies") / "study", "tpe")


def broken(inner: Sampler) -> Sampler:
    """Return a sampler that ignores all trials from the twelfth on."""

    class Deaf(Sampler):
        def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
            return inner.ask(numbers)

        def tell(self, trial: Trial) -> None:
            if trial.number < 12:
                inner.tell(trial)

    return Deaf()


def test_a_broken_sampler_is_seen(done: StudyDirectory) -> None:
    def make(space: SearchSpace) -> Sampler:
        options = SamplerOptions(space=space, seed=SEED, directions=(GOAL.direction,))
        return broken(make_sampler("tpe", options))

    replayed = replay(done, make)
    assert replayed.difference is not None
    assert 12 <= replayed.same < 30
    assert replayed.difference.trial == replayed.same


@pytest.mark.parametrize("wrong", ["seed", "direction", "name"])
def test_another_sampler_is_seen(done: StudyDirectory, wrong: str) -> None:
    def make(space: SearchSpace) -> Sampler:
        seed = SEED + (wrong == "seed")
        direction = Direction.MIN if wrong == "direction" else GOAL.direction
        options = SamplerOptions(space=space, seed=seed, directions=(direction,))
        return make_sampler("random" if wrong == "name" else "tpe", options)

    assert replay(done, make).difference is not None


def test_a_sampler_that_comes_to_its_end_earlier_is_seen(done: StudyDirectory) -> None:
    class Lazy(Sampler):
        def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
            return []

        def tell(self, trial: Trial) -> None:
            pass

    replayed = replay(done, lambda _: Lazy())
    assert replayed.difference is not None
    assert replayed.difference.again is None
    assert "now: no suggestion, the search was exhausted" in replayed.text()


def test_there_must_be_a_study(tmp_path: Path) -> None:
    with pytest.raises(NoStudyError):
        replay(StudyDirectory(tmp_path / "nowhere"))


def test_the_command_tells_the_same_from_the_tampered(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        def objective(hp, trial):
            x = hp.Float("x", 0.0, 1.0)
            trial.report(1, value=x)  # the probe comes no further
            return x + hp.Int("late", 1, 50)
        """,
    )
    run = ("run", model, "--executor", "joblib", "--search", "tpe", "--seed", 1, "--try", "x=0.25")
    assert cli(*run, "--trials", 6, "--study", cli.study("old")).code == 0
    warm = ("--warm-start", cli.study("old"))
    assert cli(*run, *warm, "--trials", 8, "--study", cli.study()).code == 0
    assert cli("resume", cli.study(), "--trials", 14).code == 0
    model.unlink()
    (cli.study("old") / "study.db").unlink()
    ended = cli("replay", cli.study())
    assert (ended.code, ended.out) == (0, "14 suggestions, all equal\n"), ended.err
    plain = json.loads(cli("replay", cli.study(), "--json").out)
    assert plain == {"same": 14, "not_of_the_search": 0, "difference": None}

    victim = trials(cli.study())[9]["params"]["x"]
    with closing(sqlite3.connect(cli.study() / "study.db")) as db, db:
        rows = db.execute("SELECT seq, payload FROM events WHERE kind = ?", [Suggested.__name__])
        for number, payload in rows.fetchall():
            if repr(victim) in payload:
                changed = payload.replace(repr(victim), "0.125")
                db.execute("UPDATE events SET payload = ? WHERE seq = ?", [changed, number])
    ended = cli("replay", cli.study())
    assert ended.code == 1
    assert "9 suggestions are equal; trial 9 differs:" in ended.out
    assert f"* x: 0.125 in the study, {victim!r} now" in ended.out
    ended = cli("replay", cli.study(), "--json")
    assert (ended.code, json.loads(ended.out)["difference"]["trial"]) == (1, 9)

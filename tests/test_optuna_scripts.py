"""Scripts of Optuna that run with one changed import."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import hptune.optuna
from hptune.ask_tell.session import Session
from hptune.ask_tell.study import enlarge
from hptune.core.attempt import ReportedValue
from hptune.core.user_requests import UserAction
from hptune.errors import UsageError
from hptune.storage.asking import send
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader
from thread_masters import beside, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:suggest_:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Choices for a categorical distribution:UserWarning"),
]

SCRIPTS = sorted((Path(__file__).parent / "optuna_scripts").glob("*.py"))


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hptune.optuna.logging.set_verbosity(hptune.optuna.logging.ERROR)


def square(trial: Any) -> float:
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda each: each.stem)
def test_a_script_runs_with_one_changed_import(script: Path) -> None:
    before, of_optuna, after = script.read_text().partition("\nimport optuna\n")
    assert of_optuna
    changed = f"{before}\nimport hptune.optuna as optuna\n{after}"
    exec(compile(changed, script, "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda o: o.create_study(storage="mysql://u@host/db"), "a study of hptune is a directory"),
        (lambda o: o.create_study(study_name="a/b"), "study_name is 'a/b'; allowed are"),
        (lambda o: o.create_study().sampler, "a study keeps those that create_study was given"),
        (lambda o: o.create_study(direction="up"), "'minimize' and 'maximize'"),
        (lambda o: o.create_study(pruner=3), "allowed are those of hptune.optuna.pruners"),
        (lambda o: o.create_study(sampler=3), "allowed are those of hptune.optuna.samplers"),
        (lambda o: o.samplers.TPESampler(constraints_func=max), "has no .constraints_func"),
        (lambda o: o.samplers.BruteForceSampler(), "has no .BruteForceSampler.; it has TPE"),
        (lambda o: o.pruners.ThresholdPruner(1), "it has .*MedianPruner"),
        (lambda o: o.delete_study, "has no .delete_study.; remove the study's directory"),
        (lambda o: o.create_study().set_metric_names(["a"]), "`hptune help from-optuna`"),
        (lambda o: [(s := o.create_study()).ask(), s.ask()], "suggest methods before the next ask"),
        (lambda o: o.create_study().add_trial(1), "has no 'add_trial'; study.enqueue_trial runs"),
        (lambda o: o.artifacts, "has no 'artifacts'; write files where you like"),
        (lambda o: o.storages.RetryFailedTrialCallback, "RetryFailedTrialCallback'. `hptune help"),
        (
            lambda o: o.create_study(storage=optuna.storages.InMemoryStorage()),
            "storage is <.*allow",
        ),
        (lambda o: nested(o.create_study(), "optimize"), "called by an objective or a callback"),
        (lambda o: nested(o.create_study(), "ask"), "suggest methods before the next ask"),
    ],
)
def test_what_is_missing_is_named(call: Callable[[Any], Any], words: str) -> None:
    with pytest.raises((UsageError, AttributeError), match=words):
        call(hptune.optuna)


def test_a_trial_declares_what_others_have_declared() -> None:
    study = hptune.optuna.create_study()
    study.optimize(square, n_trials=1)
    with pytest.raises(
        UsageError, match=r"x is .* of Float.*low=-10.0.*; this trial allows Float.*low=20.0"
    ):
        study.optimize(lambda trial: trial.suggest_float("x", 20, 30), n_trials=1)


@pytest.mark.parametrize("is_known", [False, True])
def test_an_enqueued_value_that_does_not_fit_is_not_tried(is_known: bool) -> None:
    def objective(trial: Any) -> float:
        assert trial.suggest_categorical("kind", ["a", "b"]) in ("a", "b")
        return square(trial) + [1, 2, 3].index(trial.suggest_int("n", 1, 3))

    study = hptune.optuna.create_study()
    if is_known:
        study.optimize(objective, n_trials=1)
    study.enqueue_trial({"x": 99.0, "kind": "c", "n": 2.0})
    with (
        pytest.warns(UserWarning, match=r"x is 99.0; allowed is -10.0..10.0. The study suggests"),
        pytest.warns(UserWarning, match="kind is 'c'"),
    ):
        study.optimize(objective, n_trials=1)
    study.optimize(objective, n_trials=1)
    tried = study.trials[int(is_known)].params
    assert abs(tried["x"]) <= 10
    assert tried["n"] == 2


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("point", [{"kind": "svm", "k": 160}, {"kind": "knn", "k": 3}])
def test_an_enqueued_value_is_of_the_declaration_that_is_active(point: dict[str, Any]) -> None:
    def space(hp: hptune.HyperParameters) -> None:
        hp.Choice("kind", ["svm", "knn"])
        for kind, low, high in (("svm", 100, 200), ("knn", 1, 9)):
            with hp.conditional_scope("kind", [kind]):
                hp.Int("k", low, high)

    hptune.open_study("two.studies/a", space, "value:min", trials=1).ask().tell(value=1.0)
    study = hptune.optuna.load_study(study_name="a", storage="sqlite:///two.db")
    study.enqueue_trial(point)
    trial = study.ask()
    assert trial.asked.params == point
    study.tell(trial, 1.0)
    study.enqueue_trial({**point, "k": 50})
    with pytest.warns(UserWarning, match="k is 50; allowed is .* The study suggests another"):
        assert study.ask().asked.params["kind"] == point["kind"]


def test_a_choice_may_be_infinite() -> None:
    study = hptune.optuna.create_study()
    study.optimize(lambda trial: trial.suggest_categorical("most", [1.0, math.inf, None]) or 0, 3)
    assert {trial.params["most"] for trial in study.trials} == {1.0, math.inf, None}


def test_a_step_is_not_negative() -> None:
    trial = hptune.optuna.create_study().ask()
    with pytest.raises(ValueError, match="the step is -1; steps begin at 0"):
        trial.report(1.0, -1)


def test_a_result_is_a_number() -> None:
    results = {0: 0.5, 1: (0.3,), 2: [True], 3: "0.5", 4: None, 5: float("nan"), 6: (0.1, 0.2)}

    def objective(trial: Any) -> Any:
        trial.suggest_float("x", 0, 1)
        return results[trial.number]

    study = hptune.optuna.create_study()
    study.optimize(objective, n_trials=len(results))
    assert [trial.value for trial in study.trials] == [0.5, 0.3, 1.0, None, None, None, None]
    assert [trial.state for trial in study.trials[3:]] == [TrialState.FAIL] * 4


@pytest.mark.parametrize("is_pruned", [False, True])
def test_a_trial_has_what_it_suggested_and_no_more(
    is_pruned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def objective(trial: Any) -> float:
        if trial.suggest_categorical("kind", ["a", "b"]) == "a":
            trial.suggest_float("of_a", 0, 1)
        if is_pruned and trial.number:
            raise hptune.optuna.TrialPruned
        return 1.0

    hptune.optuna.logging.set_verbosity(hptune.optuna.logging.INFO)
    study = hptune.optuna.create_study(sampler=hptune.optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=8)
    assert [trial.params["kind"] for trial in study.trials].count("b") > 1
    lines = [each for each in caplog.records if each.getMessage().startswith("trial")]
    for trial, line in zip(study.trials, lines, strict=True):
        assert ("of_a" in trial.params) == (trial.params["kind"] == "a")
        assert line.levelname == "INFO"
        assert line.getMessage().endswith(str(trial.params))


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("end", ["raise", "tell"])
def test_a_failed_trial_has_what_it_suggested(end: str, count: int) -> None:
    names = ["x", "y"]

    def objective(trial: Any) -> float:
        for name in names[: count if trial.number else 2]:
            trial.suggest_float(name, 0, 1)
        if trial.number:
            raise ValueError
        return 1.0

    study = hptune.optuna.create_study()
    study.optimize(objective, n_trials=1)
    if end == "raise":
        study.optimize(objective, n_trials=1, catch=ValueError)
    else:
        trial = study.ask()
        with pytest.raises(ValueError):  # noqa: PT011 - that of the objective
            objective(trial)
        study.tell(trial, state=TrialState.FAIL)
    assert study.trials[1].state is TrialState.FAIL
    assert [*study.trials[1].params] == names[:count]


def test_callbacks_read_only_what_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    reports = LedgerReader.reports

    def counted(reader: LedgerReader, trial: int | None = None) -> list[ReportedValue]:
        rows = reports(reader, trial)
        read.append(len(rows))
        return rows

    monkeypatch.setattr(LedgerReader, "reports", counted)

    def objective(trial: Any) -> float:
        trial.report(1.0, 0)
        return square(trial)

    def callback(study: Any, trial: Any) -> None:
        assert study.best_trial.number <= trial.number

    study = hptune.optuna.create_study()
    study.optimize(objective, n_trials=12, callbacks=[callback])
    assert sum(read) <= 2 * 12


def test_modules_are_imported_by_their_names() -> None:
    names: dict[str, Any] = {}
    for line in (
        "from hptune.optuna.trial import TrialState, create_trial",
        "from hptune.optuna.storages.journal import JournalFileBackend",
        "from hptune.optuna.visualization.matplotlib import plot_slice",
        "from hptune.optuna.samplers import TPESampler",
        "from hptune.optuna import TrialPruned, distributions",
    ):
        exec(line, names)
    with pytest.raises(UsageError, match="of your own is a plug-in"):
        exec("from hptune.optuna.samplers import BaseSampler", names)


def nested(study: Any, call: str) -> None:
    arguments = {"optimize": (square, 1), "ask": ()}[call]
    study.optimize(lambda _: getattr(study, call)(*arguments), n_trials=1)


def grid_study() -> Any:
    sampler = hptune.optuna.samplers.GridSampler({"x": [1.0, 2.0, 3.0]})
    return hptune.optuna.create_study(
        storage="sqlite:///grid.db", study_name="grid", sampler=sampler, load_if_exists=True
    )


@pytest.mark.parametrize("asks", [True, False])
def test_the_trial_of_a_killed_script_is_tried_by_the_next_one(asks: bool) -> None:
    def killed(trial: Any) -> float:
        if trial.number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return square(trial)

    script = multiprocessing.get_context("fork").Process(
        target=lambda: grid_study().optimize(killed)
    )
    script.start()
    script.join()
    study = grid_study()
    assert [each.state for each in study.trials] == [TrialState.COMPLETE, TrialState.RUNNING]
    for _ in range(2 if asks else 0):
        trial = study.ask()
        study.tell(trial, square(trial))
    study.optimize(square)
    assert sorted(each.params["x"] for each in study.trials) == [1.0, 2.0, 3.0]
    assert {each.state for each in study.trials} == {TrialState.COMPLETE}


def test_a_trial_that_the_command_line_has_is_left_to_it() -> None:
    enlarge(grid_study().hptune_study.session, 3)
    asking = multiprocessing.get_context("fork").Process(
        target=lambda: hptune.open_study("grid.studies/grid").ask()  # as `hptune ask` does
    )
    asking.start()
    asking.join()
    study = grid_study()
    study.optimize(square, timeout=1.5)
    states = [each.state for each in study.trials]
    assert states == [TrialState.RUNNING, TrialState.COMPLETE, TrialState.COMPLETE]


def test_a_study_that_another_process_creates_at_the_same_moment_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid_study().optimize(square, n_trials=2)
    is_there = iter([False])
    known = StudyDirectory.has_ledger.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(
        StudyDirectory, "has_ledger", property(lambda each: next(is_there, None) or known(each))
    )
    assert len(grid_study().trials) == 2


def test_an_interrupt_ends_the_processes_of_trials_and_gives_them_back() -> None:
    def objective(trial: Any) -> float:
        if trial.number == 2:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            time.sleep(20)
        return square(trial)

    def interrupt(study: Any, trial: Any) -> None:
        raise KeyboardInterrupt

    study = hptune.optuna.create_study()
    study.optimize(square, n_trials=1)
    with pytest.raises(KeyboardInterrupt):
        study.optimize(objective, n_trials=2, n_jobs=2, callbacks=[interrupt])
    states = [each.state for each in study.trials]
    assert states == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.WAITING]


def test_an_interrupted_trial_is_given_back() -> None:
    def interrupted(trial: Any) -> float:
        square(trial)
        raise KeyboardInterrupt

    study = hptune.optuna.create_study()
    with pytest.raises(KeyboardInterrupt):
        study.optimize(interrupted, n_trials=3)
    assert [each.state for each in study.trials] == [TrialState.WAITING]
    study.optimize(square, n_trials=1)
    assert [each.state for each in study.trials] == [TrialState.COMPLETE]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_trial_that_calls_sys_exit_ends_the_search_and_is_given_back(jobs: int) -> None:
    def objective(trial: Any) -> float:
        if trial.number == 1:
            sys.exit(0)
        return square(trial)

    study = hptune.optuna.create_study()
    with pytest.raises(SystemExit if jobs == 1 else RuntimeError):
        study.optimize(objective, n_trials=6, n_jobs=jobs)
    assert study.trials[1].state is TrialState.WAITING


def test_a_trial_that_was_given_back_is_the_next_programs_alone() -> None:
    study = hptune.optuna.create_study()

    def objective(trial: Any) -> float:
        trial.give_back()
        hptune.open_study(study.hptune_study.directory).ask()
        raise KeyboardInterrupt

    study.optimize(objective, n_trials=1, n_jobs=2)
    assert [each.state for each in study.trials] == [TrialState.RUNNING]


def test_processes_set_an_attribute_at_the_same_time() -> None:
    def objective(trial: Any) -> float:
        for number in range(40):
            trial.study.set_user_attr("latest", number)
        return square(trial)

    study = hptune.optuna.create_study()
    study.optimize(square, n_trials=1)
    study.optimize(objective, n_trials=4, n_jobs=4)
    assert study.user_attrs == {"latest": 39}


def test_trials_of_other_programs_have_parameters() -> None:
    space = {
        "lr": hptune.Float(1e-4, 0.1, sampling="log"), "n": hptune.Int(1, 4),
        "kind": hptune.Choice(["a", "b"]), "is": hptune.Boolean(), "batch": hptune.Fixed(8),
    }  # fmt: skip
    other = hptune.open_study("one.studies/a", objective="value:min", space=space, trials=1)
    asked = other.ask()
    asked.tell(value=1.0)
    study = hptune.optuna.load_study(study_name="a", storage="sqlite:///one.db")
    assert study.best_params == dict(asked.params)
    assert "log=True" in repr(study.trials[0].distributions["lr"])


def test_optuna_takes_the_trials_of_any_space() -> None:
    def space(hp: hptune.HyperParameters) -> None:
        hp.Choice("kind", ["svm", "knn", None])
        with hp.conditional_scope("kind", ["svm"]):
            hp.Float("c", 0.1, 10, sampling="log")
        with hp.conditional_scope("kind", ["knn"]):
            hp.Choice("c", ["x", "y"])
        hp.Float("mirrored", 0.001, 1, step=10, sampling="reverse_log")
        hp.Int("default", 1, 10, step=4, default=3)

    other = hptune.open_study("any.studies/a", space, "value:min", trials=9, search="random")
    for trial in other.trials_to_run():
        trial.tell(value=1.0)
    study = hptune.optuna.load_study(study_name="a", storage="sqlite:///any.db")
    again = optuna.create_study()
    again.add_trials(study.trials)  # Optuna checks them
    assert [each.params for each in again.trials] == [dict(each.params) for each in other.trials]


def test_an_attribute_that_is_set_after_the_end_is_read() -> None:
    study = hptune.optuna.create_study()
    trial = study.ask()
    study.tell(trial, 1.0)
    trial.set_user_attr("late", True)
    assert study.trials[0].user_attrs == study.best_trial.user_attrs == {"late": True}


def test_a_study_that_is_stopped_begins_no_more_trials() -> None:
    study = hptune.optuna.create_study()
    trial = study.ask()
    square(trial)
    study.hptune_study.session.stop("by a user")
    study.optimize(square, timeout=0.1)
    trial.report(1.0, 0)
    assert trial.should_prune()
    study.tell(trial, state=TrialState.PRUNED)
    study.optimize(square)
    assert len(study.trials) == 1


def test_few_calls_of_ask_enlarge_the_study(monkeypatch: pytest.MonkeyPatch) -> None:
    study = hptune.optuna.create_study()
    counts: list[int] = []

    def counted(session: Session, count: int) -> None:
        counts.append(count)
        enlarge(session, count)

    monkeypatch.setattr("hptune.optuna.study.enlarge", counted)
    for _ in range(20):
        trial = study.ask()
        study.tell(trial, square(trial))
    assert sum(counts) >= 19
    assert len(counts) < 8


@pytest.mark.parametrize(
    ("storage", "folder"),
    [
        ("sqlite:///results/example.db", "results/example.studies"),
        ("sqlite:////shared/example.sqlite3?timeout=9", "/shared/example.studies"),
        ("./journal.log", "journal.studies"),
        ("sqlite:///lr0.1", "lr0.1.studies"),
        ("sqlite:///lr0.01", "lr0.01.studies"),
        ("results/", "results.studies"),
    ],
)
def test_each_storage_has_a_folder_of_its_own(storage: str, folder: str) -> None:
    assert str(hptune.optuna.storages.RDBStorage(storage)) == folder


def test_a_database_of_optuna_is_named_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    optuna.create_study(storage="sqlite:///old.db", study_name="old").optimize(square, n_trials=1)
    before = Path("old.db").read_bytes()
    warnings: list[str] = []
    logger = hptune.optuna.storages.logger
    monkeypatch.setattr(logger, "warning", lambda text, *values: warnings.append(text % values))
    for _ in range(2):
        hptune.optuna.create_study(
            storage="sqlite:///old.db", study_name="old", load_if_exists=True
        ).optimize(square, n_trials=1)
    assert len(warnings) == 1
    assert "old.db is neither read nor written; study.enqueue_trial runs" in warnings[0]
    assert Path("old.db").read_bytes() == before


def test_a_failed_trial_that_begins_again_is_read_again() -> None:
    study = hptune.optuna.create_study(storage="sqlite:///results.db", study_name="mine")
    study.optimize(lambda trial: 1 / 0 * square(trial), n_trials=1, catch=ZeroDivisionError)
    assert [trial.state for trial in study.trials] == [TrialState.FAIL]
    again = hptune.open_study("results.studies/mine", retry_failed=True)
    states = [study.trials[0].state]
    again.ask().tell(value=0.5)
    assert [*states, study.trials[0].state] == [TrialState.WAITING, TrialState.COMPLETE]
    assert study.best_value == 0.5


def test_a_study_of_another_metric_is_continued() -> None:
    space = {"x": hptune.Float(-10.0, 10.0)}
    other = hptune.open_study("results.studies/mine", space, "loss:min", trials=1)
    with other.ask() as trial:
        trial.report(1, loss=0.5, size=9.0)
    study = hptune.optuna.load_study(storage="sqlite:///results.db")

    def reporting(trial: Any) -> float:
        trial.report(square(trial), 0)
        return square(trial)

    study.optimize(reporting, n_trials=1)
    first, last = study.trials
    assert first.intermediate_values == {0: 0.5}
    assert last.intermediate_values == {0: last.value}
    assert {each.metric for each in other.session.reader.reports(1)} == {"loss"}


def test_a_stop_of_a_master_that_was_killed_ends_a_script() -> None:
    study = hptune.optuna.create_study()
    study.optimize(square, n_trials=1)
    path = Path(study.hptune_study.directory)
    hptune.open_study(path, trials=9)
    with beside(path, workers=["w"]) as master:
        until(lambda: master.executor.running)
        master.executor.stop = lambda *_: None  # type: ignore[method-assign]  # it takes its time
        send(StudyDirectory(path), UserAction.STOP, tool="a test")
        until(lambda: master.snapshot and master.snapshot.stopping)
    study.optimize(square, n_trials=1)
    assert [trial.state for trial in study.trials].count(TrialState.COMPLETE) == 1

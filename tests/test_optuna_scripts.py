"""Scripts of Optuna that run with one changed import."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState

import hptune.optuna
from hptune.core.attempt import ReportedValue
from hptune.errors import UsageError
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader

pytestmark = [
    pytest.mark.filterwarnings("ignore:suggest_:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Choices for a categorical distribution:UserWarning"),
]

Program = Callable[[Any], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Add a program, which gets the module `optuna` and is true if it did what it should."""
    PROGRAMS[function.__name__] = function
    return function


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hptune.optuna.logging.set_verbosity(hptune.optuna.logging.ERROR)


def square(trial: Any) -> float:
    x = trial.suggest_float("x", -10, 10)
    return float((x - 2) ** 2)


def trained(optuna: Any, steps: range = range(6)) -> Callable[[Any], float]:
    def objective(trial: Any) -> float:
        rate = trial.suggest_float("rate", 1e-5, 1e-1, log=True)
        for step in steps:
            trial.report(1 - rate + step / 100, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return 1.0 - float(rate)

    return objective


@program
def quadratic(optuna: Any) -> Any:
    study = optuna.create_study()
    study.optimize(square, n_trials=12)
    return study.best_value == min(each.value for each in study.trials) and len(study.trials) == 12


@program
def all_kinds_of_suggestions(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        trial.suggest_uniform("drop", 0, 0.5)
        trial.suggest_loguniform("rate", 1e-5, 1)
        trial.suggest_discrete_uniform("q", 0, 1, 0.25)
        depth = trial.suggest_int("depth", 1, 1e3, log=True)
        even = trial.suggest_int("even", 2, 8, step=2)
        assert trial.suggest_int("one", 3, 3) == 3
        assert isinstance(depth, int)
        assert even in (2, 4, 6, 8)
        assert trial.suggest_float("drop", 0, 0.5) == trial.params["drop"]
        return float(depth)

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=3, multivariate=True))
    study.optimize(objective, n_trials=4, gc_after_trial=True, show_progress_bar=False)
    return set(study.best_params) == {"drop", "rate", "q", "depth", "even", "one"}


@program
def choices_of_any_type(optuna: Any) -> Any:
    allowed: dict[str, list[Any]] = {
        "layers": [(16,), (32, 16)], "fit": [True, False], "cap": [None, 5, "auto"],
        "loss": [square, max], "kind": ["a", None],
    }  # fmt: skip

    def objective(trial: Any) -> float:
        chosen = {name: trial.suggest_categorical(name, each) for name, each in allowed.items()}
        assert all(any(v is each for each in allowed[name]) for name, v in chosen.items())
        return len(str(chosen))

    study = optuna.create_study(direction="maximize")
    study.optimize(objective, n_trials=5)
    return all(value in allowed[name] for name, value in study.best_params.items())


@program
def define_by_run(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        if trial.suggest_categorical("model", ["svm", "forest"]) == "svm":
            return float(trial.suggest_float("c", 1e-3, 1e3, log=True))
        layers = trial.suggest_int("trees", 1, 3)
        return float(sum(trial.suggest_int(f"depth_{i}", 1, 9) for i in range(layers)))

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=10)
    return all(("c" in t.params) == (t.params["model"] == "svm") for t in study.trials)


@program
def pruning_from_step_0(optuna: Any) -> Any:
    pruner = optuna.pruners.MedianPruner(n_startup_trials=3, n_warmup_steps=1)
    study = optuna.create_study(direction="maximize", pruner=pruner)
    study.optimize(trained(optuna), n_trials=15)
    states = optuna.trial.TrialState
    pruned = study.get_trials(deepcopy=False, states=[states.PRUNED])
    complete = study.get_trials(states=(states.COMPLETE,))
    assert 0 in study.trials[0].intermediate_values
    return pruned and all(each.last_step > 0 for each in pruned) and len(complete) >= 3


@program
def halving(optuna: Any) -> Any:
    pruners = optuna.pruners
    makers = (
        pruners.SuccessiveHalvingPruner(), pruners.HyperbandPruner(max_resource=9),
        pruners.HyperbandPruner(), pruners.NopPruner(),
    )  # fmt: skip
    for pruner in makers:
        study = optuna.create_study(direction="maximize", pruner=pruner)
        study.optimize(trained(optuna, range(1, 10)), n_trials=4)
    return all(each.state == optuna.trial.TrialState.COMPLETE for each in study.trials)


@program
def pruned_without_a_report(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        if trial.suggest_float("x", 0, 1) < 2:
            raise optuna.exceptions.TrialPruned("useless")
        return 1.0

    study = optuna.create_study()
    study.optimize(objective, n_trials=3)
    try:
        return study.best_value is None
    except ValueError:  # as no trial is complete
        return {each.state.name for each in study.trials} == {"PRUNED"}


@program
def reports_and_never_asks(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        x = trial.suggest_float("x", 0, 1)
        for fold in range(5):
            trial.report(x, fold)
        return float(x)

    study = optuna.create_study()
    study.optimize(objective, n_trials=12)
    return {each.state.name for each in study.trials} == {"COMPLETE"}


@program
def infinite_none_and_nan(optuna: Any) -> Any:
    results = iter((float("inf"), None, float("nan"), 0.5))

    def objective(trial: Any) -> Any:
        trial.suggest_float("x", 0, 1)
        return next(results)

    study = optuna.create_study()
    study.optimize(objective, n_trials=4)
    states = [each.state.name for each in study.trials]
    return states == ["FAIL", "FAIL", "FAIL", "COMPLETE"] and study.best_value == 0.5


@program
def failures(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        if trial.number < 8:
            raise ValueError(f"bad {trial.suggest_float('x', 0, 1)}")
        raise KeyError("worse")

    study = optuna.create_study()
    with pytest.raises(KeyError, match="worse"):
        study.optimize(objective, n_trials=20, catch=(ValueError,))
    return [each.state.name for each in study.trials] == ["FAIL"] * 9


@program
def callbacks_and_attributes(optuna: Any) -> Any:
    seen = []

    def objective(trial: Any) -> float:
        trial.set_user_attr("model", SimpleNamespace(number=trial.number))
        assert trial.user_attrs["model"].number == trial.number
        return square(trial)

    def callback(study: Any, trial: Any) -> None:
        seen.append(trial.user_attrs["model"].number)
        if study.best_trial.number == trial.number:
            study.set_user_attr("best", trial.user_attrs["model"])
        if trial.number == 5:
            study.stop()

    study = optuna.create_study()
    study.optimize(objective, callbacks=[callback])
    return seen == [*range(6)] and study.user_attrs["best"].number == study.best_trial.number


@program
def callbacks_that_change_a_trial(optuna: Any) -> Any:
    def callback(study: Any, trial: Any) -> None:
        trial.params["x"] = trial.user_attrs["callback"] = 99

    study = optuna.create_study()
    study.optimize(square, n_trials=2, callbacks=[callback])
    study.tell(study.ask(), 1.0).user_attrs["callback"] = 99
    changed = [each for each in study.trials if 99 in {**each.params, **each.user_attrs}.values()]
    return not changed


@program
def again_and_by_name(optuna: Any) -> Any:
    storage = "sqlite:///results.db"
    study = optuna.create_study(storage=storage, study_name="mine", direction="maximize")
    study.optimize(square, n_trials=3)
    again = optuna.create_study(storage=storage, study_name="mine", load_if_exists=True)
    again.optimize(square, n_trials=2)
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        optuna.create_study(storage=storage, study_name="mine")
    loaded = optuna.load_study(study_name=None, storage=storage)
    assert optuna.get_all_study_names(storage) == ["mine"]
    return len(loaded.trials) == 5 and loaded.best_value == study.best_value


@program
def storages(optuna: Any) -> Any:
    kinds = optuna.storages
    journal = kinds.JournalStorage(kinds.journal.JournalFileBackend("journal.log"))
    for storage in (journal, kinds.RDBStorage("sqlite:///r.db"), kinds.InMemoryStorage()):
        study = optuna.create_study(storage=storage)
        study.optimize(square, n_trials=1, timeout=60)
    return study.best_trial.duration.total_seconds() >= 0


@program
def asked_and_told(optuna: Any) -> Any:
    study = optuna.create_study()
    first = study.ask()
    result = square(first)
    other = study.ask()
    square(other)
    study.tell(first, result)
    study.tell(other.number, state=optuna.trial.TrialState.FAIL)
    study.tell(study.ask(), state=optuna.trial.TrialState.PRUNED)
    study.tell(first, 3.0, skip_if_finished=True)
    return [each.state.name for each in study.trials] == ["COMPLETE", "FAIL", "PRUNED"]


@program
def enqueued(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        first, _ = trial.suggest_categorical("c", [(1, 2), (3, 4)])
        return square(trial) + float(first)

    study = optuna.create_study()
    study.enqueue_trial({"x": 2.0, "c": (3, 4)})
    study.enqueue_trial({"x": 2.0, "c": (1, 2)})
    study.optimize(objective, n_trials=2)
    study.enqueue_trial({"x": 2.0, "c": (1, 2)}, skip_if_exists=True)
    study.enqueue_trial({"x": 7.5})
    study.optimize(objective, n_trials=1)
    values = [(each.params["x"], each.params["c"]) for each in study.trials]
    return values[:2] == [(2.0, (3, 4)), (2.0, (1, 2))] and values[2][0] == 7.5


@program
def several_objectives(optuna: Any) -> Any:
    def objective(trial: Any) -> tuple[float, float]:
        x = trial.suggest_float("x", 0, 2)
        return x**2, x

    study = optuna.create_study(directions=["minimize", "maximize"])
    study.optimize(objective, n_trials=6)
    frame = study.trials_dataframe(attrs=("number", "value", "params"))
    assert [*frame.columns] == ["number", "values_0", "values_1", "params_x"]
    return len(study.best_trials) == 6 and len(study.best_trials[0].values) == 2


@program
def grid(optuna: Any) -> Any:
    space = {"x": [-1.0, 2.0], "n": [1, 2, 3]}
    study = optuna.create_study(sampler=optuna.samplers.GridSampler(space))
    study.optimize(lambda trial: square(trial) + trial.suggest_int("n", 1, 3))
    return len(study.trials) == 6 and study.best_params == {"x": 2.0, "n": 1}


@program
def table_and_figures(optuna: Any) -> Any:
    sampler = optuna.samplers.RandomSampler(seed=1)
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: square(trial) + trial.suggest_int("n", 1, 3), n_trials=5)
    frame = study.trials_dataframe(attrs=("number", "value", "params", "state"))
    assert [*frame.columns] == ["number", "value", "params_n", "params_x", "state"]
    assert {*frame["state"]} == {"COMPLETE"}
    return set(optuna.importance.get_param_importances(study)) == {"x", "n"}


@program
def two_processes(optuna: Any) -> Any:
    here, seen = os.getpid(), []

    def objective(trial: Any) -> float:
        trial.set_user_attr("pid", os.getpid())
        trial.set_user_attr("own", trial.study.study_name)
        if trial.number == 2:
            os._exit(7)
        if trial.number == 3:
            raise LookupError("no")
        return square(trial)

    study = optuna.create_study(study_name="forked")
    study.optimize(
        objective, 6, n_jobs=2, catch=Exception, callbacks=[lambda _, t: seen.append(t.number)]
    )
    pids = {each.user_attrs["pid"] for each in study.trials}
    states = [each.state.name for each in study.trials]
    assert states == ["COMPLETE", "COMPLETE", "FAIL", "FAIL", "COMPLETE", "COMPLETE"]
    return sorted(seen) == [*range(6)] and here not in pids and len(pids) == 6


@program
def most_trials_of_all_processes(optuna: Any) -> Any:
    callback = optuna.study.MaxTrialsCallback(3, states=(optuna.trial.TrialState.COMPLETE,))
    study = optuna.create_study(storage="sqlite:///shared.db", study_name="shared")
    study.optimize(square, n_trials=50, callbacks=[callback])
    return len(study.trials) == 3


@program
def again_with_the_best_configuration(optuna: Any) -> Any:
    study = optuna.create_study()
    study.optimize(square, n_trials=3)
    assert square(study.best_trial) == study.best_value
    assert square(optuna.trial.FixedTrial({"x": 3.0})) == 1.0
    return len(pickle.loads(pickle.dumps(study)).trials) == 3


@program
def enqueued_for_several_jobs(optuna: Any) -> Any:
    study = optuna.create_study()
    study.optimize(square, n_trials=1)
    for x in range(4):
        study.enqueue_trial({"x": float(x)})
    study.optimize(square, n_trials=4, n_jobs=2)
    return sorted(each.params["x"] for each in study.trials[1:]) == [0.0, 1.0, 2.0, 3.0]


@program
def errors_of_its_own_in_several_jobs(optuna: Any) -> Any:
    class Diverged(Exception):
        def __init__(self, loss: float, step: int) -> None:
            super().__init__(f"{loss} at step {step}")

    def objective(trial: Any) -> float:
        square(trial)
        raise Diverged(2.0, 3)

    study = optuna.create_study()
    study.optimize(objective, n_trials=2, n_jobs=2, catch=(Diverged,))
    seen: list[int] = []
    with pytest.raises(RuntimeError, match=r"2.0 at step 3"):
        study.optimize(
            objective, n_trials=1, n_jobs=2, callbacks=[lambda _, each: seen.append(each.number)]
        )
    return seen == [] and [each.state.name for each in study.trials] == ["FAIL"] * 3


@program
def an_error_in_several_jobs_that_is_not_caught(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        raise ValueError(square(trial))

    study = optuna.create_study()
    with pytest.raises((ValueError, RuntimeError)):
        study.optimize(objective, n_trials=6, n_jobs=2, catch=RuntimeError)
    return len(study.trials) < 6


@program
def choices_that_are_objects_of_the_script(optuna: Any) -> Any:
    class Named:
        def __repr__(self) -> str:
            return "one"

    def objective(trial: Any) -> float:
        names.append(str(trial.suggest_categorical("named", [Named(), None])))
        function = trial.suggest_categorical("function", functions)
        assert function in functions
        return float(function(1))

    names: list[str] = []
    functions = [lambda x: x, lambda x: -x]
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=2)
    study.optimize(objective, n_trials=2, n_jobs=2)
    return {*names} <= {"one", "None"} and study.best_params["function"] in functions


@program
def a_grid_of_booleans(optuna: Any) -> Any:
    study = optuna.create_study(sampler=optuna.samplers.GridSampler({"is": [True, False]}))
    study.optimize(lambda trial: trial.suggest_categorical("is", [True, False]), n_trials=2)
    return sorted(trial.params["is"] is True for trial in study.trials)


@program
def steps_that_are_reported_twice(optuna: Any) -> Any:
    def objective(trial: Any) -> float:
        for step, value in ((0, 1.0), (1, 2.0), (1, 3.0), (0, 4.0)):
            trial.report(value, step)
        assert trial.datetime_start is not None
        return square(trial)

    study = optuna.create_study()
    study.optimize(objective, n_trials=1)
    return study.trials[0].intermediate_values == {0: 1.0, 1: 2.0} and optuna.__version__


@program
def attributes_of_any_name(optuna: Any) -> Any:
    study = optuna.create_study()
    study.set_user_attr("ü/" * 200, [1])
    study.user_attrs["ü/" * 200].append(2)
    trial = study.ask()
    square(trial)
    assert study.trials[0].user_attrs.keys().isdisjoint({"later"})
    trial.set_user_attr("later", 3)
    return study.trials[0].user_attrs["later"] == 3 and study.user_attrs == {"ü/" * 200: [1]}


@program
def studies_without_names(optuna: Any) -> Any:
    storage = "sqlite:///several.db"
    first = optuna.create_study(storage=storage, study_name="study-2")
    names = {optuna.create_study(storage=storage).study_name for _ in range(2)}
    return len(names | {first.study_name}) == 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_script_runs_with_one_changed_import(name: str) -> None:
    assert PROGRAMS[name](hptune.optuna)


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


def test_a_step_is_not_negative() -> None:
    trial = hptune.optuna.create_study().ask()
    with pytest.raises(ValueError, match="the step is -1; steps begin at 0"):
        trial.report(1.0, -1)


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


def test_the_trial_of_a_killed_script_is_tried_by_the_next_one() -> None:
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
    study.optimize(square)
    assert sorted(each.params["x"] for each in study.trials) == [1.0, 2.0, 3.0]
    assert {each.state for each in study.trials} == {TrialState.COMPLETE}


def test_a_trial_that_the_command_line_has_is_left_to_it() -> None:
    grid_study().hptune_study.session.enlarge(3)
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
    session = study.hptune_study.session
    counts: list[int] = []
    enlarge = session.enlarge

    def counted(count: int) -> None:
        counts.append(count)
        enlarge(count)

    monkeypatch.setattr(session, "enlarge", counted)
    for _ in range(20):
        trial = study.ask()
        study.tell(trial, square(trial))
    assert sum(counts) >= 19
    assert len(counts) < 8


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

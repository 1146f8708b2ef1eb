"""`Tuner(…).fit(…)`, as scripts use it: real scripts, in processes and in this one."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
import threading

import pytest

from hptune.storage.directory import StudyDirectory
from in_process import InProcess
from real_runs import Hptune, rows, states, trials, wait_for

PLAIN = """
    import json
    import pickle
    from hptune import Tuner

    class Net:
        target = 0.3

    def objective(hp, trial):
        x = hp.Float("x", -1.0, 1.0)
        net = pickle.loads(pickle.dumps(Net()))  # as torch.save does
        return (x - net.target) ** 2
"""


def test_an_objective_is_tuned_from_a_script_without_a_main_guard(
    hptune: Hptune, cli: InProcess
) -> None:
    ended = hptune.script(
        PLAIN
        + """
    study = Tuner(objective, trials=5, directory="study", seed=1, quiet=True).fit()
    best = study.best_trial
    table = study.trials_dataframe()
    seconds = [float(each) for each in table["seconds"]]
    print(json.dumps([best.value, study.best_hyperparameters, len(study.trials)]))
    print(json.dumps([list(table), seconds, list(table["cause"])]))
    """
    ).wait()
    assert (ended.code, ended.err) == (0, "")
    result, table = map(json.loads, ended.out.splitlines())
    value, params, count = result
    assert value == pytest.approx((params["x"] - 0.3) ** 2)
    assert count == 5
    assert value == min(trial["value"] for trial in trials(hptune.study()))

    # The table of trials is the one that is exported.
    columns, seconds, causes = table
    heading, *exported = csv.reader(cli("export", "study", "--format", "csv").out.splitlines())
    assert columns == heading
    assert {"param.x", "peak_memory_bytes", "core_hours", "node"} < set(columns)
    assert [float(row[heading.index("seconds")]) for row in exported] == seconds
    assert causes == ["returned"] * 5


def test_a_study_that_was_moved_can_be_resumed(cli: InProcess) -> None:
    first = cli.script(
        PLAIN + '\n    Tuner(objective, trials=2, directory="study", executor="joblib").fit()\n'
    )
    assert first.code == 0, first.err
    shutil.move(cli.study(), cli.study("elsewhere"))
    (cli.directory / "script.py").unlink()
    ended = cli("resume", "elsewhere", "--trials", 4)
    assert ended.code == 0, ended.err
    assert states(cli.study("elsewhere")) == {"COMPLETE": 4}


def test_a_script_of_a_copied_project_reads_its_own_files(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = """
        from pathlib import Path
        from hptune import Tuner

        def number():
            return int(Path("number.txt").read_text())

        def objective(hp, trial):
            return number() + hp.Float("x", 0.0, 0.5)

        options = {"executor": "joblib", "directory": "study", "resume": True}
        Tuner(objective, trials=number(), **options).fit()
    """
    for number, project in ((1, cli.study("project")), (2, cli.study("copy"))):
        if number > 1:
            shutil.copytree(cli.study("project"), project)
        project.mkdir(exist_ok=True)
        (project / "number.txt").write_text(str(number))
        monkeypatch.chdir(project)
        assert cli.script(script).code == 0
    assert [int(each["value"]) for each in trials(cli.study("copy") / "study")] == [1, 2]


def test_a_study_is_resumed_only_on_request(cli: InProcess) -> None:
    script = (
        PLAIN
        + """
    Tuner(objective, trials=2, directory="study", resume=RESUME, quiet=True,
          executor="joblib").fit()
    """
    )
    assert cli.script(script.replace("RESUME", "True")).code == 0
    again = cli.script(script.replace("RESUME", "False"))
    assert again.code == 1
    assert "StudyExistsError" in again.err
    assert "Tuner(objective, directory='study', resume=True).fit()" in again.err
    assert "another directory with directory=" in again.err
    moment = threading.Timer(0.5, StudyDirectory(cli.study()).acquire(is_brief=True).release)
    moment.start()
    more = cli.script(script.replace("RESUME", "True").replace("trials=2", "trials=3"))
    moment.join()
    assert more.code == 0, more.err
    assert states(cli.study()) == {"COMPLETE": 3}


def test_a_study_of_a_model_file_is_resumed_with_the_function_that_is_given(
    cli: InProcess,
) -> None:
    cli.file("model.py", "def own(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n")
    options = ("--study", "study", "--executor", "joblib", "-q")
    assert cli("run", "model.py", "--entry", "own", "--trials", 1, *options).code == 0
    script = """
        from hptune import Tuner

        def now(hp, trial):
            return hp.Float("x", 0.0, 1.0) + 10

        Tuner(now, trials=2, directory="study", resume=True, quiet=True).fit()
    """
    ended = cli.script(script)
    assert ended.code == 0, ended.err
    (cli.directory / "model.py").unlink()
    assert cli("resume", "study", "--trials", 3, "-q").code == 0
    assert [trial["value"] // 10 for trial in trials(cli.study())] == [0, 1, 1]
    cli.file("model.py", "def own(hp, trial):\n    return hp.Float('x', 0.0, 1.0) + 20\n")
    ended = cli("resume", "study", "--trials", 4, "--model-file", "model.py", "--entry", "own")
    assert ended.code == 0, ended.err
    assert trials(cli.study())[-1]["value"] // 10 == 2


def test_a_resumed_study_uses_the_objective_as_it_is_now(cli: InProcess) -> None:
    script = """
        from hptune import Tuner

        def study(objective, trials, **more):
            return Tuner(objective, trials=trials, directory="study", resume=True, quiet=True,
                         executor="joblib", **more)

        study(lambda hp, trial: hp.Float("x", 0.0, 1.0), 1).fit()
        study(lambda hp, trial: hp.Float("x", 0.0, 1.0) + 10, 2).fit()
        study(lambda hp, trial: hp.Float("x", 0.0, 1.0) + 20, 3).fit()
        study(lambda hp, trial: hp.Float("y", 0.0, 1.0) + 30, 4).fit()
    """
    ended = cli.script(script)
    assert "SpaceChangedError" in ended.err
    assert "Tuner(objective, directory='study', resume=True, accept_space=True).fit()" in ended.err
    assert [int(trial["value"]) for trial in trials(cli.study())] == [0, 10, 20]
    # What was refused is not used later.
    ended = cli("resume", "study", "--trials", "4")
    assert ended.code == 0, ended.err
    assert [int(trial["value"]) for trial in trials(cli.study())] == [0, 10, 20, 20]
    assert not [*cli.study().glob("*.before")]
    begin = script.partition("        study(")[0]
    last = 'study(lambda hp, trial: hp.Float("y", 0.0, 1.0) + 30, 5, accept_space=True).fit()'
    ended = cli.script(f"{begin}        {last}")
    assert ended.code == 0, ended.err
    assert [int(trial["value"]) for trial in trials(cli.study())] == [0, 10, 20, 20, 30]


def test_failed_trials_begin_again_with_the_corrected_objective(cli: InProcess) -> None:
    script = """
        from hptune import Tuner

        def wrong(hp, trial):
            return {"a": 1.0, "b": "1"}[hp.Choice("x", ["a", "b"])]

        def right(hp, trial):
            return {"a": 1.0, "b": 2.0}[hp.Choice("x", ["a", "b"])]

        settings = {"search": "grid", "directory": "study", "executor": "joblib", "resume": True}
        Tuner(wrong, **settings).fit()
        Tuner(right, **settings, retry_failed=True).fit()
    """
    ended = cli.script(script)
    assert ended.code == 0, ended.err
    assert "Tuner(wrong, directory='study', resume=True, retry_failed=True).fit()" in ended.err
    assert sorted(trial["value"] for trial in trials(cli.study())) == [1.0, 2.0]


def test_later_start_points_are_tried_next_and_once(cli: InProcess) -> None:
    script = """
    def run(trials, *values):
        points = [{"x": value} for value in values]
        Tuner(objective, trials=trials, directory="study", resume=True, quiet=True,
              start_points=points, executor="joblib").fit()

    run(1, 0.5, 0.25)
    run(3, 0.5, 0.25, 0.75)
    run(3, 0.5, 0.25, 0.75)
    """
    ended = cli.script(PLAIN + script)
    assert ended.code == 0, ended.err
    assert [trial["params"]["x"] for trial in trials(cli.study())] == [0.5, 0.75, 0.25]


def test_an_unknown_metric_leaves_nothing(cli: InProcess) -> None:
    call = 'Tuner(wrapped, "auc:max", directory="study", executor="joblib").fit()'
    wrapped = 'wrapped = lambda hp, trial: {"loss": objective(hp, trial)}'
    ended = cli.script(PLAIN + f"\n    {wrapped}\n    {call}\n")
    assert "UnknownMetricError" in ended.err
    assert "returns no metric called 'auc'" in ended.err
    assert not cli.study().exists()


def test_ctrl_c_stops_the_study_and_resume_continues(hptune: Hptune) -> None:
    script = """
        import time
        from hptune import Tuner

        def objective(hp, trial):
            x = hp.Float("x", 0.0, 1.0)
            for step in range(1, 2000):
                trial.report(step, value=x)
                if trial.should_stop():
                    break
                time.sleep(SECONDS)
            return x

        Tuner(objective, trials=2, directory="study", resume=True).fit()
        print("not reached")
    """
    started = hptune.script(script.replace("SECONDS", "0.05"))
    reporting = "SELECT DISTINCT trial FROM reports"
    wait_for(lambda: len(rows(hptune.study(), reporting)) == 2, "both trials")
    started.interrupt()
    ended = started.wait()
    call = "Tuner(objective, directory='study', resume=True).fit()"
    assert f"KeyboardInterrupt: interrupted: 0/2 trials. Continue with: {call}" in ended.err
    assert "not reached" not in ended.out
    assert states(hptune.study()) == {"WAITING": 2}
    hptune.assert_nothing_left()
    again = hptune.script(script.replace("SECONDS", "0.0").replace("2000", "20"))
    assert again.wait().code == 0
    assert states(hptune.study()) == {"COMPLETE": 2}


def test_a_mistake_is_shown_with_the_frames_of_the_script(hptune: Hptune) -> None:
    """Once while the function is read, and once in the trials."""
    ended = hptune.script(
        """
        import traceback
        from hptune import Study, Tuner

        def build_model(hp):
            return helper(hp.Int("units", 1, 8))

        def helper(units):
            return unites

        later = lambda hp, trial: helper(hp.Float("x", 0, 1))

        for model_fn, data in ((build_model, [1]), (later, None)):
            try:
                Tuner(model_fn, trials=2, search="random", executor="joblib").fit(data)
            except Exception:
                traceback.print_exc()
        study = Study("studies/study-1")
        assert "<b>study-1</b>" in study._repr_html_(), study._repr_html_()
        print(repr(study), study.trials[0])
        print(Tuner(later, trials=2, timeout="10m", memory_per_trial="8GB"))
        """
    ).wait()
    assert ended.code == 0, ended.err
    read, trained = ended.err.split("ObjectiveFailedError: ")
    assert "ModelFileError: your model function cannot be used: NameError: name 'unites'" in read
    assert "Tuner(model_fn, directory=" in trained
    for each in (read, trained):
        assert 'script.py", line 9, in helper' in each
        assert "objective.pkl" not in each
        assert each.count("site-packages") == 0
        # Python 3.12 adds "Did you mean: 'units'?".
        last_line = "\nNameError: name 'unites' is not defined"
        assert last_line in each
    assert ended.err.count("/tuner/hptune/") == 2  # Tuner.fit itself, once for each
    study, tuner = ended.out.splitlines()
    assert "Study('studies/study-1'): 2/2 trials Trial(0, FAILED, params={'x': " in study
    assert "reason=\"NameError: name 'unites' is not defined\")" in study
    assert tuner == "Tuner(study, trials=2, timeout='10m', memory_per_trial=8000000000)"


def test_files_of_the_user_with_names_of_ours_hide_nothing(hptune: Hptune) -> None:
    """A script, its Dask and joblib workers, and a model file; the folder is on PYTHONPATH too."""
    for number, name in enumerate(("tuner", "jobqueue", "core", "study")):
        hptune.file(f"{name}.py", f"VALUE = {10**number}")
    hptune.file("report.py", "raise RuntimeError('report.py of the user was imported')")
    hptune.file(
        "model.py",
        """
        import core, jobqueue, study, tuner
        from hptune import report

        def objective(hp, trial):
            report(1, value=hp.Float("x", 0, 1))
            return tuner.VALUE + jobqueue.VALUE + core.VALUE + study.VALUE + hp.get("x")
        """,
    )
    path = os.pathsep.join((str(hptune.directory), os.environ.get("PYTHONPATH", "")))
    ended = hptune.script(
        """
        import core, hptune, jobqueue, study, tuner

        def objective(hp, trial):
            import study as same
            own = tuner.VALUE + jobqueue.VALUE + core.VALUE + same.VALUE
            return own + hp.Float("x", 0, 1)

        for executor in ("dask", "joblib"):
            search = hptune.Tuner(objective, trials=2, executor=executor, quiet=True)
            print(int(search.fit().best_trial.value))
        """,
        PYTHONPATH=path,
    ).wait()
    assert (ended.code, ended.out, ended.err) == (0, "1111\n1111\n", "")
    command = (sys.executable, "-m", "hptune", "run", "model.py", "--trials", "2", "-q")
    ended = hptune.other(*command, PYTHONPATH=path).wait()
    assert ended.code == 0, ended.err


def test_a_script_keeps_the_process_that_imports(hptune: Hptune) -> None:
    """As a notebook does; the process ends with that of the script."""
    ended = hptune.script(
        """
        import os
        from hptune import Tuner

        def parent(hp, trial):
            hp.Float("x", 0, 1)
            return os.getppid()

        servers = []
        for marked in ("", "", "changed"):
            os.environ["MARKED"] = marked
            study = Tuner(parent, trials=1, quiet=True, executor="joblib").fit()
            servers.append(int(study.best_trial.value))
        os.kill(servers[2], 0)
        first, second, third = servers
        assert first == second != third, servers
        """
    ).wait()
    assert (ended.code, ended.err) == (0, "")
    hptune.assert_nothing_left()


def test_a_keras_model_and_its_data_are_sent_from_a_script(hptune: Hptune, cli: InProcess) -> None:
    ended = hptune.script(
        """
        import json
        from pathlib import Path

        import keras
        import numpy as np
        import tensorflow as tf
        from hptune import Tuner, UsageError

        def build_model(hp):
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(hp.Int("units", 2, 8))])
            model.add(keras.layers.Dense(1))
            double = keras.layers.Lambda(lambda x: 2 * x)
            model.add(double)
            weight = 1.0
            model.compile(
                keras.optimizers.SGD(hp.Float("rate", 0.1, 0.2)),
                lambda y, p: weight * keras.ops.mean((y - p) ** 2),
            )
            return model

        x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
        y = x.sum(axis=1, keepdims=True)
        tuner = Tuner(build_model, objective="val_mae", trials=3, directory="study", quiet=True,
                      metrics=["mae"], hyperparameters={"rate": 0.01}, seed=1)
        held_back = tf.data.Dataset.from_tensor_slices((x[48:], y[48:])).batch(8)
        for wrong in (held_back.repeat(), held_back.filter(lambda *_: True).repeat()):
            try:
                tuner.fit(wrong, validation_data=held_back, steps_per_epoch=3)
            except UsageError as error:
                print(error.message)
        assert not Path("study").exists()

        class Batches(keras.utils.PyDataset):
            def __len__(self):
                return 3

            def __getitem__(self, index):
                return x[16 * index : 16 * index + 16], y[16 * index : 16 * index + 16]

        once = Tuner(build_model, trials=1, quiet=True, metrics=["mae"])
        once.fit(Batches(), validation_data=Batches(), epochs=1)
        study = tuner.fit(x[:48], y[:48], validation_data=held_back, epochs=3, batch_size=16)
        assert {trial.params["rate"] for trial in study.trials} == {0.01}
        chosen = study.best_hyperparameters
        build_model(chosen).fit(x, y, epochs=1, verbose=0)
        assert json.loads(json.dumps(chosen)) == dict(chosen) == study.best_trial.params
        assert list(chosen.values()) == list(study.best_trial.params.values())
        loss, mae = study.best_model().evaluate(x[48:], y[48:], verbose=0)
        ranked = sorted(study.trials, key=lambda trial: trial.value)
        for trial, model in zip(ranked, study.best_models(3), strict=True):
            assert abs(model.evaluate(x[48:], y[48:], verbose=0)[1] - trial.value) < 1e-6
        print(json.dumps([study.best_trial.value, mae, list(study.trials_dataframe()["state"])]))
        """
    ).wait(seconds=180)
    assert ended.code == 0, ended.err
    assert ended.out.count("the training dataset is infinite, so it cannot be stored") == 2
    value, measured, found = json.loads(ended.out.splitlines()[-1])
    assert measured == pytest.approx(value, abs=1e-6)
    assert found == ["COMPLETE"] * 3
    # Keras cannot load the loss, so the study builds the model again.
    assert "study').best_model()" in cli("best", "study").out


def test_trials_run_on_the_workers_of_a_client_and_a_joblib_backend(hptune: Hptune) -> None:
    ended = hptune.script(
        PLAIN
        + """
    if __name__ == "__main__":
        import joblib
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
            with Client(cluster) as client:
                own = Tuner(objective, trials=4, directory="a", client=client, quiet=True).fit()
                assert len(cluster.scheduler.workers) == 2  # left as they were found
        with joblib.parallel_config("threading"):
            Tuner(objective, trials=4, directory="b", executor="joblib", quiet=True).fit()
    """
    ).wait(seconds=180)
    assert ended.code == 0, ended.err
    for name in "ab":
        assert states(hptune.study(name)) == {"COMPLETE": 4}

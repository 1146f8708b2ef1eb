"""Trials continue from their checkpoints, whichever process was killed."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from in_process import InProcess
from real_runs import Hptune, rows, states, trials, wait_for
from requirements import light_backend

pytestmark = pytest.mark.keras

MODEL = """
import os, pathlib, time
import keras
import numpy as np

OBJECTIVE, EPOCHS = "val_loss", 6

class Slow(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        with open("begun", "a") as file:
            file.write(str(epoch))

    def on_epoch_end(self, epoch, logs=None):
        while epoch == 3 and not pathlib.Path("go").exists():
            time.sleep(0.05)

def build_model(hp):
    rate = hp.Float("rate", 0.01, 0.1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.2), keras.layers.Dense(1)])
    model.compile(keras.optimizers.Adam(rate), "mse")
    return model

def load_data():
    x = np.random.default_rng(1).normal(size=(64, 4))
    return (x, x[:, :1]), (x, x[:, :1])

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    return model.fit(x, y, validation_data=validation, epochs=epochs, verbose=0,
                     callbacks=[*callbacks, Slow()])
"""
RUN = ("--trials", "1", "--seed", "3", "--executor", "joblib", "--checkpoint-every", "1",
       "--keep-checkpoints", "0")  # fmt: skip


def steps(study: Path) -> list[tuple[int, int]]:
    found = rows(study, "SELECT DISTINCT attempt, step FROM reports ORDER BY attempt, step")
    return [(row["attempt"], row["step"]) for row in found]


def result(study: Path) -> tuple[object, ...]:
    trial = trials(study)[0]
    return trial["state"], trial["value"], trial["step"]


_of_whole_run: list[tuple[object, ...]] = []


def result_of_a_whole_run(cli: InProcess, model: Path) -> tuple[object, ...]:
    """Return the result without an interruption; it is always the same, so it runs once."""
    if not _of_whole_run:
        (cli.directory / "go").touch()
        assert cli("run", model, *RUN, "--study", "whole").code == 0
        (cli.directory / "go").unlink()
        _of_whole_run.append(result(cli.study("whole")))
    return _of_whole_run[0]


@pytest.mark.parametrize(
    "how",
    [
        "kill the master",
        # Killed trials are met in the fault table and in training/resume too.
        pytest.param("kill the trial", marks=pytest.mark.slow),
        pytest.param("stop", marks=pytest.mark.slow),
    ],
)
def test_a_trial_goes_on_from_its_last_epoch(hptune: Hptune, cli: InProcess, how: str) -> None:
    model = hptune.file("model.py", MODEL)
    whole = result_of_a_whole_run(cli, model)
    study, begun = hptune.study(), hptune.directory / "begun"
    begun.unlink(missing_ok=True)
    backend = light_backend()
    started = hptune.start("run", model, *RUN, "--study", study, KERAS_BACKEND=backend)
    kept = study / "trials" / "0" / "resume" / "3.ckpt"
    wait_for(kept.exists, "a checkpoint")
    wait_for(lambda: len(steps(study)) >= 3, "the reports")
    if how == "kill the master":
        started.kill()
        hptune.assert_nothing_left()
    elif how == "stop":
        assert hptune("stop", study).code == 0
    else:
        pid = json.loads(
            rows(study, "SELECT payload FROM events WHERE kind = 'AttemptStarted'")[0]["payload"]
        )["pid"]
        os.kill(pid, signal.SIGKILL)
    (hptune.directory / "go").touch()
    if how != "kill the master":
        started.wait()
    if how != "kill the trial":
        assert states(study) == ({"RUNNING": 1} if how == "kill the master" else {"WAITING": 1})
        assert cli("resume", study).code == 0
    assert result(study) == whole
    assert begun.read_text().count("0") == 1, "it began again"
    second = [step for attempt, step in steps(study) if attempt == 1]
    assert second[0] >= 4
    assert second[-1] == 6
    assert not (study / "trials" / "0" / "resume").exists()


def test_a_full_disk_stops_the_study_and_nothing_is_lost(cli: InProcess) -> None:
    text = (
        MODEL
        + """
sync = os.fsync

def full(file):
    if pathlib.Path("full").exists() and "/resume/" in os.readlink(f"/proc/self/fd/{file}"):
        raise OSError(28, os.strerror(28))
    sync(file)

os.fsync = full
"""
    )
    model = cli.file("model.py", text)
    (cli.directory / "go").touch()
    (cli.directory / "full").touch()
    study = cli.study()
    ended = cli("run", model, *RUN, "--study", study)
    assert ended.code == 1
    for word in ("no room for the checkpoint of epoch 1", "hptune resume"):
        assert word in ended.err
    assert states(study) == {"WAITING": 1}
    attempt = rows(study, "SELECT outcome, reason FROM attempts")[0]
    assert attempt["outcome"] == "RELEASED"
    assert "No space left on device" in attempt["reason"]
    (cli.directory / "full").unlink()
    assert cli("resume", study).code == 0
    assert states(study) == {"COMPLETE": 1}


def test_the_best_trials_are_given_more_epochs(cli: InProcess) -> None:
    """They end as with all epochs from the start."""
    model = cli.file("model.py", MODEL)
    (cli.directory / "go").touch()
    options = ("--trials", "3", "--seed", "3", "--executor", "joblib", "--workers", "1",
               "--keep-checkpoints", "2")  # fmt: skip
    study, whole = cli.study(), cli.study("whole")
    assert cli("run", model, *options, "--study", study).code == 0
    short = {trial["number"]: trial for trial in trials(study)}
    best = sorted(short, key=lambda number: float(short[number]["value"]))[:2]
    kept = [path.parent.name for path in (study / "trials").glob("*/resume")]
    assert sorted(kept) == sorted(map(str, best))
    ended = cli("resume", study, "--epochs", "9")
    assert ended.code == 0, ended.err
    assert "the other 1 complete trial stays as it is" in ended.err
    assert cli("run", model, *options, "--epochs", "9", "--study", whole).code == 0
    for one, other in zip(trials(study), trials(whole), strict=True):
        if one["number"] in best:
            assert (one["value"], one["step"]) == (other["value"], other["step"])
        else:
            assert {**one, "attempts": 0} == {**short[one["number"]], "attempts": 0}
    count = "SELECT COUNT(DISTINCT step) AS steps FROM reports WHERE attempt = 1 GROUP BY trial"
    assert [row["steps"] for row in rows(study, count)] == [3, 3]
    evaluated = json.loads((study / "best" / "best.json").read_text())
    assert evaluated["step"] == trials(study)[evaluated["trial"]]["step"]


@pytest.mark.slow
def test_what_ended_by_itself_stays_ended_and_others_train_on(hptune: Hptune) -> None:
    """It would end at once again. It does not count among the trials with kept checkpoints."""
    stop = "*[keras.callbacks.EarlyStopping(patience=0, min_delta=9.0)] * (hp['rate'] > 0.04)"
    model = hptune.file("model.py", MODEL.replace("Slow()]", f"Slow(), {stop}]"))
    (hptune.directory / "go").touch()
    study = hptune.study()
    ended = hptune("run", model, "--trials", "5", "--seed", "3", "--executor", "joblib",
                   "--workers", "1", "--keep-checkpoints", "2", "--study", study)  # fmt: skip
    assert ended.code == 0, ended.err
    short = {trial["number"]: trial for trial in trials(study)}
    early = {number for number, trial in short.items() if trial["params"]["rate"] > 0.04}
    full = sorted(short.keys() - early, key=lambda number: float(short[number]["value"]))
    assert early
    assert full
    ended = hptune("resume", study, "--epochs", "9")
    assert ended.code == 0, ended.err
    words = f"{len(early)} that ended by themselves (such as by EarlyStopping) do not"
    assert words in ended.err.replace("\n", " ")
    attempts = {trial["number"]: trial["attempts"] for trial in trials(study)}
    assert attempts == {number: 2 if number in full[:2] else 1 for number in short}


@pytest.mark.slow
def test_what_is_paused_and_promoted_trains_as_if_left_alone(hptune: Hptune) -> None:
    """Every epoch of every trial has the value that it has without pauses."""
    model = hptune.file("model.py", MODEL)
    (hptune.directory / "go").touch()
    options = ("--trials", "9", "--epochs", "9", "--search", "random", "--seed", "3",
               "--executor", "joblib", "--workers", "1")  # fmt: skip
    study, whole = hptune.study(), hptune.study("whole")
    ended = hptune("run", model, *options, "--pruner", "asha", "--pruner-mode", "promote",
                   "--min-epochs", "1", "--study", study)  # fmt: skip
    assert ended.code == 0, ended.err
    assert hptune("run", model, *options, "--study", whole).code == 0
    query = "SELECT trial, attempt, step, value FROM reports WHERE metric = 'val_loss'"
    values = {(row["trial"], row["step"]): row["value"] for row in rows(whole, query)}
    reports = rows(study, query)
    assert [row["value"] for row in reports] == [
        values[row["trial"], row["step"]] for row in reports
    ]
    assert len({(row["trial"], row["step"]) for row in reports}) == len(reports), "trained twice"
    promoted = {row["trial"] for row in reports if row["attempt"] > 0}
    assert promoted, "no trial was paused and promoted"
    assert states(study) == {"PRUNED": 8, "COMPLETE": 1}
    for trial in promoted:
        steps_of = [row["step"] for row in reports if row["trial"] == trial]
        assert steps_of == list(range(1, len(steps_of) + 1)), "each attempt went on where it was"
    best = next(trial for trial in trials(study) if trial["state"] == "COMPLETE")
    assert (best["value"], best["step"]) == next(
        (trial["value"], trial["step"])
        for trial in trials(whole)
        if trial["number"] == best["number"]
    )
    kept = {int(path.parent.name) for path in (study / "trials").glob("*/resume")}
    assert kept == {best["number"]}, "no other trial will ever continue"

"""`hptune scaling`: what it refuses, and one measurement."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import signal
from pathlib import Path
from unittest import mock

import pytest

from hptune.core.notice import Notify
from hptune.errors import StudyError
from hptune.master import scaling
from hptune.master.scaling import ScalingRequest, check_code
from hptune.scaling.curve import Point, Sample, ScalingCurve
from hptune.storage.directory import StudyDirectory
from hptune.user_code.source import Found
from in_process import InProcess, refused
from real_runs import Ended, Hptune, rows, wait_for
from requirements import require

MODEL = """
import numpy as np

def build_model(hp):
    import keras
    units = hp.Int("units", 4, 8)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(units), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def load_data():
    x = np.ones((64, 8), "float32")
    return (x, x[:, :1]), None
"""
LONG = 400.0
"""Seconds for several attempts, one after another, on a busy machine."""
FIGURES = ("step_seconds", "samples_per_second", "speed_up", "efficiency")


SCALING = ["scaling", "model.py"]
PROGRAM = ["run", "--command", "sh {x}", "--space", "space.toml", "--objective", "loss"]
AUTO = ["run", "model.py", "--processes-per-trial", "auto"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scaling", "none.py"], ["no file none.py"]),
        (["scaling"], ["Missing argument 'MODEL_FILE'"]),
        ([*SCALING, "--devices", "2,1"], ["'2,1'", "increasing whole numbers"]),
        ([*SCALING, "--devices", "0,1"], ["'0,1'", "from 1 on"]),
        ([*SCALING, "--devices", "1,two"], ["'1,two'", "such as 1,2,4"]),
        ([*SCALING, "--devices", "1,100000"], ["100000", "this machine has", "--slurm"]),
        ([*SCALING, "--devices", "1,2,4", "--batch-size", "30"], ["30", "28 or 32"]),
        ([*SCALING, "--batch-size", "1"], ["1, which does not divide", "--batch-size 2"]),
        ([*SCALING, "--compare", "jax,mxnet"], ["'mxnet'", "tensorflow, jax, torch"]),
        ([*SCALING, "--compare", "jax,jax"], ["twice"]),
        ([*SCALING, "--compare", "jax"], ["[jax]", "--python jax=PATH"]),
        ([*SCALING, "--python", "torch=/bin/python"], ["'torch'", "--compare"]),
        ([*SCALING, "-o", "report.pdf"], [".pdf", ".md and .html"]),
        ([*SCALING, "--json", "no/where.json"], ["there is no folder no"]),
        ([*SCALING, "--json", "."], [". cannot be written: it is a folder"]),
        ([*SCALING, "-o", "folder.md"], ["folder.md cannot be written: it is a folder"]),
        ([*SCALING, "--study", "nothing"], ["there is no study in nothing"]),
        (["run", "model.py", "--gpus-per-trial", "auto"], ["no GPU", "--processes-per-trial auto"]),
        (["run", "model.py", "--gpus-per-trial", "automatic"], ["'automatic'", "or auto"]),
        ([*AUTO, "--cpus-per-trial", "0.5"], ["--cpus-per-trial is 0.5"]),
        ([*AUTO, "--nodes-per-trial", "2"], ["--nodes-per-trial is 2"]),
        (
            ["run", "model.py", "--gpus-per-trial", "auto", "--processes-per-trial", "1"],
            ["a process of its own", "hptune scaling --one-process"],
        ),
        (
            [*PROGRAM, "--gpus-per-trial", "auto"],
            ["--gpus-per-trial is auto", "cannot be measured; give a number"],
        ),
        ([*AUTO, "--executor", "joblib"], ["--executor is joblib"]),
        ([*AUTO, "--strategy", "none"], ["--strategy is none"]),
        ([*AUTO[:2], "--gpus-per-trial", "auto", *AUTO[2:3], "2"], ["is auto", "is 2"]),
    ],
)
def test_wrong_input_is_refused_before_anything_is_trained(
    cli: InProcess, arguments: list[str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("model.py", MODEL)
    cli.file("space.toml", "[x]\ntype = 'int'\nmin_value = 1\nmax_value = 2\n")
    (cli.directory / "folder.md").mkdir()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name == "jax" else find(name, *more),
    )
    refused(cli(*arguments), cli.directory, *words)


def test_a_backend_that_fails_takes_neither_time_nor_results_from_the_others(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("model.py", MODEL)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    # As if each backend waited for hours in Slurm's queue.
    clock = mock.Mock(monotonic=mock.Mock(side_effect=itertools.count(step=3600.0)))
    monkeypatch.setattr(scaling, "time", clock)
    seconds = []

    def measure(request: ScalingRequest, directory: StudyDirectory, note: Notify) -> ScalingCurve:
        seconds.append(request.plan.seconds)
        if request.asked.settings.source.backend == "torch":
            raise StudyError("the workers were refused")
        sample = Sample(Point(1, 32), step_seconds=0.25, steps=8)
        return ScalingCurve(backend="jax", device="core", batch=32, devices=(1,), samples=(sample,))

    monkeypatch.setattr(scaling, "measure", measure)
    ended = cli(*SCALING, "--compare", "jax,torch", "--timeout", "10m", "--json", "found.json")
    assert (ended.code, ended.err) == (1, "Error: the workers were refused\n")
    assert seconds == [300.0, 300.0]
    assert "jax" in ended.out
    content = json.loads((cli.directory / "found.json").read_text())
    assert [each["backend"] for each in content["curves"]] == ["jax"]


@pytest.mark.parametrize(
    ("variable", "compare", "wanted", "code"),
    [
        ("", (), "", 0),
        ("jax", (), "jax", 0),
        ("jax", ("--compare", "torch"), "torch", 0),
        ("jax", ("--compare", "tensorflow"), "tensorflow", 2),
        ("jax", ("--compare", "jax"), "jax", 2),
    ],
)
def test_workers_elsewhere_have_the_backend_of_this_shell(
    cli: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    *,
    variable: str,
    compare: tuple[str, ...],
    wanted: str,
    code: int,
) -> None:
    cli.file("model.py", MODEL)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    monkeypatch.setenv("KERAS_BACKEND", variable)
    given = []

    def measure(request: ScalingRequest, directory: StudyDirectory, note: Notify) -> ScalingCurve:
        given.append(request.asked.settings.source.backend)
        # A file that sets the variable itself.
        check_code(Found(is_keras=True, space=(), constants={}, backend="torch"), request)
        sample = Sample(Point(1, 32), step_seconds=0.25, steps=8)
        return ScalingCurve(
            backend="torch", device="core", batch=32, devices=(1,), samples=(sample,)
        )

    monkeypatch.setattr(scaling, "measure", measure)
    assert cli(*SCALING, *compare).code == code
    assert given == [wanted]


@pytest.mark.slow
def test_a_study_measures_its_model_and_chooses_the_devices_of_each_trial(
    hptune: Hptune, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("torch")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    (hptune.directory / "model.py").write_text(MODEL)
    study = hptune.directory / "study"
    arguments = ("--processes-per-trial", "auto", "--epochs", "1", "--objective", "loss")
    ended = hptune("run", "model.py", *arguments, "--trials", "2", "--study", study, seconds=LONG)
    assert ended.code == 0, ended.err
    assert "measuring training steps on 1 and 2 cores" in ended.err
    (chosen,) = rows(study, "SELECT payload FROM events WHERE kind = 'SplitChosen'")
    reason = json.loads(chosen["payload"])["reason"]
    assert reason in ended.err
    assert {each.name for each in (study / "trials").iterdir()} == {"0", "1"}
    assert hptune("report", study, "-o", "report.md").code == 0
    assert "## Scaling" in (hptune.directory / "report.md").read_text()
    # Resumed, it chooses by the same measurements.
    more = hptune("resume", study, "--trials", "3", seconds=LONG)
    assert more.code == 0, more.err
    assert "measuring" not in more.err
    assert len(rows(study, "SELECT payload FROM events WHERE kind = 'SplitChosen'")) == 2
    # Of other trials, they say nothing: two processes divide their cores.
    other = hptune("resume", study, "--trials", "4", "--cpus-per-trial", "2", seconds=LONG)
    assert other.code == 0, other.err
    assert "measuring training steps on 1 and 2 processes" in other.err


def check(result: Path, backend: str) -> None:
    """Check that both points were measured, and that nothing is said of what ran once."""
    content = json.loads(result.read_text())
    one, two = content["rows"]
    assert (one["backend"], one["devices"], two["devices"]) == (backend, 1, 2)
    assert one["batch_per_device"] == two["batch_per_device"] == 16
    for row in (one, two):
        assert all(row[name]["middle"] > 0 for name in FIGURES), row
        assert row["memory_bytes"] > 1e6
        assert row["is_distinguishable"] is False
    assert two["samples_per_second"]["middle"] == pytest.approx(32 / two["step_seconds"]["middle"])
    (samples,) = (curve["samples"] for curve in content["curves"])
    assert all(each["steps"] >= 8 for each in samples)


def measure(hptune: Hptune, backend: str, *options: str) -> Ended:
    (hptune.directory / "model.py").write_text(MODEL)
    arguments = ("--compare", backend, "--mode", "weak", "--repeats", "1", "--batch-size", "16")
    files = ("--json", "scaling.json", "-o", "report.md")
    ended = hptune("scaling", "model.py", *arguments, *files, *options, seconds=LONG)
    assert ended.code == 0, ended.err
    assert "not distinguishable from 1" in ended.out
    assert f"{backend}: 2 cores, 16 samples each: " in ended.err
    assert "| devices |" in (hptune.directory / "report.md").read_text()
    assert not (hptune.directory / "studies").exists()
    check(hptune.directory / "scaling.json", backend)
    return ended


def test_steps_are_measured_on_one_process_and_on_two(hptune: Hptune) -> None:
    require("torch")
    measure(hptune, "torch")


def test_sigterm_while_steps_are_measured_leaves_nothing_behind(hptune: Hptune) -> None:
    require("torch")
    waits = "    pathlib.Path('begun').touch()\n    time.sleep(300)\n    x = np.ones"
    model = "import pathlib, time\n" + MODEL.replace("    x = np.ones", waits)
    (hptune.directory / "model.py").write_text(model)
    run = hptune.start("scaling", "model.py", "--devices", "1", KERAS_BACKEND="torch")
    wait_for((hptune.directory / "begun").exists, "the first steps")
    os.kill(run.pid, signal.SIGTERM)
    ended = run.wait()
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "interrupted")
    hptune.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "tensorflow"])
@pytest.mark.parametrize("options", [(), ("--one-process",)])
def test_steps_of_other_backends_are_measured(
    hptune: Hptune, backend: str, options: tuple[str, ...]
) -> None:
    require(backend)
    ended = measure(hptune, backend, *options)
    assert ("are those of one process" in ended.out) == bool(options)


def test_a_killed_command_leaves_a_folder_that_the_next_one_removes(hptune: Hptune) -> None:
    waits = "import pathlib, time\npathlib.Path('begun').touch()\ntime.sleep(300)\n"
    hptune.file("model.py", waits + MODEL)
    killed = hptune.start("scaling", "model.py", "--devices", "1")
    wait_for((hptune.directory / "begun").exists, "the model file")
    killed.kill()
    assert [name for name in hptune.leftovers() if name.startswith("hptune-scaling-")]
    wait_for(lambda: not hptune.processes(), "the end of its processes")
    hptune.file("model.py", "def objective(hp, trial):\n    return 0.0\n")
    ended = hptune("scaling", "model.py", "--devices", "1")
    assert (ended.code, "a loop of its own" in ended.err) == (2, True), ended.err
    hptune.assert_nothing_left()

"""Wrong input: one clear message, exit code 2, and no files."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from hptune.storage.ledger import Ledger, LedgerReader
from in_process import InProcess, refused
from real_runs import Hptune, wait_for
from stored_study import stored

MODEL = """
import keras

def build(hp):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(loss="mse")
    return model
"""
GOOD = """\
def objective(hp, trial):
    return hp.Float("x", 0, 1)
"""
RETURNS = "import numpy\ndef objective(hp, trial):\n    hp.Float('x', 0, 1)\n    return {}\n"

# The joblib executor starts workers only after all checks: quicker, if Dask does not matter.
LIGHT = ("--executor", "joblib", "--trials", "3")
# For runs in processes of their own: each worker is one more.
ALONE = ("--workers", "1")

RUN = ("run", "good.py")
OF_A_STUDY = ("best", "status", "stop", "resume", "export", "report", "trials")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "nofile.py"], ["no file nofile.py", "good.py"]),
        (["run", "."], ["not a Python file"]),
        ([*RUN, "--trials", "0"], ["--trials is 0", "from 1 on"]),
        ([*RUN, "--trials", "many"], ["--trials is 'many'", "from 1 on"]),
        ([*RUN, "--workers", "0"], ["--workers is 0"]),
        ([*RUN, "--timeout", "soon"], ["--timeout is 'soon'", "30m"]),
        ([*RUN, "--timeout", "0"], ["--timeout is 0", "above 0"]),
        ([*RUN, "--memory-per-trial", "3x"], ["'3x'", "4GB"]),
        ([*RUN, "--memory-per-trial", "4"], ["'4' is 4 bytes", "4GB?"]),
        ([*RUN, "--on-failure", "fire=stop"], ["'fire=stop'", "gpu-memory", "hang"]),
        ([*RUN, "--on-failure", "nan=panic"], ["'nan=panic'", "retry:N", "prune"]),
        ([*RUN, "--direction", "max"], ["--direction", "--objective val_loss:min"]),
        ([*RUN, "--executor", "ray"], ["'ray'", "dask, joblib, and module:Name"]),
        ([*RUN, "--serch", "grid"], ["--serch", "--search"]),
        ([*RUN, "--max-trials", "9"], ["--max-trials", "Did you mean --trials?"]),
        ([*RUN, "--n-jobs", "9"], ["--n-jobs", "Did you mean --workers?"]),
        ([*RUN, "--project-name", "a"], ["Did you mean --study?"]),
        ([*RUN, "--directory", "a"], ["Did you mean --study?"]),
        (["best", "--study", "a"], ["--study: give the study's directory without an option"]),
        ([*RUN, "--executions-per-trial", "2"], ["--confirm trains the best configurations"]),
        ([*RUN, "--repeats", "2"], ["No such option --repeats", "--confirm N trains the best"]),
        ([*RUN, "--max-jobs", "2"], ["--max-jobs is for --slurm, sge, pbs, lsf, htcondor and oar"]),
        ([*RUN, "--overwrite"], ["--overwrite", "a study is never overwritten"]),
        (["import", "DIR"], ["No such command 'import'", "--warm-start SOURCE"]),
        (["watch", "DIR"], ["No such command 'watch'", "`hptune status --watch`"]),
        (["compare", "a", "b"], ["No such command 'compare'", "`hptune dashboard FOLDER`"]),
        ([*RUN, "--dry-run"], ["--dry-run", "`hptune slurm script SLURM_TOML`"]),
        (["ls"], ["No such command 'ls'", "`hptune list`"]),
        (["good.py"], ["No such command 'good.py'. Did you mean 'hptune run good.py'?"]),
        (["reprot"], ["No such command 'reprot'. Did you mean 'report'?"]),
        ([*RUN, "--epoch", "3"], ["No such option --epoch. Did you mean --epochs?"]),
        ([*RUN, "--memory", "3GB"], ["Did you mean --memory-per-trial?"]),
        ([*RUN, "--search", "randm"], ["'randm'", "grid", "Did you mean 'random'?"]),
        ([*RUN, "--try", "fast"], ["'fast'", "name=value", "@FILE.csv"]),
        ([*RUN, "--try", "@no.csv"], ["no.csv cannot be read"]),
        ([*RUN, "--objective", "loss:down"], ["'down'", "loss:min", "loss:max"]),
        ([*RUN, "--objective", ":max"], ["':max'", "names no metric"]),
        ([*RUN, "--objective", "val_loss,auc"], ["'val_loss,auc'", "each objective by itself"]),
        ([*RUN, "--objective", "a:min", "--objective", "a:max"], ["the objective gives a twice"]),
        ([*RUN, "--constraint", "params=2e6"], ["'params=2e6'", "<="]),
        ([*RUN, "--constraint", "<3"], ["'<3'", "'params<2e6'"]),
        ([*RUN, "--constraint", "params<nan"], ["'params<nan'", "'params<2e6'"]),
        ([*RUN, "--confirm", "-1"], ["--confirm is -1"]),
        ([*RUN, "--confirm-repeats", "0"], ["--confirm-repeats is 0", "from 1 on"]),
        ([*RUN, "--confirm-repeats", "3"], ["but --confirm is 0", "such as --confirm 3"]),
        ([*RUN, "--warm-start", "nowhere"], ["no study", "nowhere", "allowed are .csv, .json"]),
        ([*RUN, "--warm-start", "empty"], ["no study in empty", "For --warm-start, allowed are"]),
        ([*RUN, "--search", "optuna:TPE"], ["'optuna:TPE'", "'optuna:TPESampler'?"]),
        ([*RUN, "--search", "nowhere:Mine"], ["nowhere is not installed", "no such file in"]),
        ([*RUN, "--search", "json:Mine"], ["json has no 'Mine'"]),
        ([*RUN, "--search", "json:__name__"], ["--search is json:__name__; allowed are auto, tpe"]),
        ([*RUN, "--search", "tpe", "--option", "search.a=1"], ["is tpe; it has no options"]),
        ([*RUN, "--option", "search.a"], ["--option is ('search.a',)", "search.population=8"]),
        ([*RUN, "--option", "a=1"], ["--option is ('a=1',)", "search, pruner, cluster"]),
        ([*RUN, "--pruner", "asha", "--option", "pruner.min_epochs=2"], ["give --min-epochs inst"]),
        ([*RUN, "--cluster", "sge", "--option", "cluster.max_jobs=2"], ["give --max-jobs instead"]),
        ([*RUN, "--grid-points", "3"], ["--search is auto; --grid-points is for grid"]),
        ([*RUN, "--prior", "x"], ["'x' is not NAME~PRIOR"]),
        ([*RUN, "--search", "grid", "--prior", "x~normal(1,1)"], ["ignores priors"]),
        ([*RUN, "--min-epochs", "2"], ["--min-epochs", "asha, hyperband and median"]),
        ([*RUN, "--connect", "node1"], ["--connect is 'node1'", "tls://node1:8786"]),
        ([*RUN, "--connect", "tls://a:x"], ["--connect is 'tls://a:x'", "tls://node1:8786"]),
        ([*RUN, "--connect", "tls://a:1", "--workers", "2"], ["give one of them"]),
        ([*RUN, "--workers", "100000"], ["--workers is 100000", "at most"]),
        (
            [*RUN, "--max-jobs", "2", "--connect", "tls://here:1"],
            ["--max-jobs is given, but so is --connect; --max-jobs is for --slurm, sge"],
        ),
        ([*RUN, "--certs", "missing.pem"], ["--certs", "--certs is for --connect"]),
        ([*RUN, "--study", ""], ["--study", "the path is empty", "unset"]),
        ([*RUN, "--slurm", ""], ["--slurm is empty", "slurm.toml", "unset"]),
        ([*RUN, "--warm-start", ""], ["--warm-start is empty", "unset"]),
        (["run", ""], ["the path is empty"]),
        (["best", ""], ["the path is empty"]),
        ([*RUN, "--detach"], ["--cluster is auto; give --slurm, or leave --detach out"]),
        (["scheduler", "--port", "many"], ["'many' is not a valid whole number"]),
        (["rnu", "good.py"], ["'rnu'", "Did you mean 'run'?"]),
        (["status"], ["no study is named", "studies has none", "`hptune list .`"]),
        (["status", "nowhere"], ["no study", "nowhere", "hptune run"]),
        (["resume", "nowhere"], ["no study", "nowhere"]),
        (["resume", "old", "--search", ""], ["--search is empty", "unset"]),
        (["resume", "old", "--trials", "0"], ["--trials is 0", "from 1 on"]),
        *(([each, "good.py"], ["no study", "it is a file"]) for each in OF_A_STUDY),
        *(([each, "a" * 300], ["aaa", "File name too long"]) for each in OF_A_STUDY),
        (["run", "a" * 300], ["aaa", "File name too long"]),
        ([*RUN, "--warm-start", "a" * 300], ["aaa", "File name too long"]),
        ([*RUN, "--file-limit", "9" * 400], ["--file-limit is 999", "4GB or 512MiB"]),
        (["stop", "nowhere"], ["no study"]),
        (["stop", "nowhere", "1"], ["1 is given beside DIR; use --trial 1"]),
        (["best", "nowhere", "3"], ["3 is given beside DIR; use `hptune show DIR 3`"]),
        (["export", "nowhere", "--format", "xml"], ["'xml'", "csv, json, parquet, optuna"]),
        (["worker", "tls://a:1", "--memory", "3x"], ["'3x'", "4GB"]),
        (["worker", "tls://127.0.0.1:x"], ["tls://127.0.0.1:x"]),
        (["scheduler", "--port", "70000"], ["70000", "65535"]),
        (["scheduler", "--scheduler-file", "no/s.json"], ["no/s.json", "there is no such folder"]),
        (["scheduler", "--scheduler-file", "pipe"], ["--scheduler-file is pipe", "not a file"]),
        (["scheduler", "--scheduler-file", "good.py"], ["good.py", "not replaced", "another file"]),
    ],
)
def test_the_request(cli: InProcess, arguments: list[str], words: list[str]) -> None:
    cli.file("good.py", GOOD)
    os.mkfifo(cli.directory / "pipe")
    (cli.directory / "empty").mkdir()
    refused(cli(*arguments), cli.directory, *words)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--search", "sobol"), "was begun with random, which cannot be changed; leave --search"),
        (("--prior", "units~normal(99,9)"), "begun with units~normal(64,8), which cannot be"),
        (("--prior", "units ~ normal(64, 8)"), "model.py has no entry point"),
        (("--grid-points", "3"), "begun without it, which cannot be changed; leave --grid-points"),
        (("--warm-start", "b"), "was begun without it, which cannot be changed"),
        (("--objective", "val_loss"), "was begun for val_accuracy (max), which cannot be changed"),
        (("--search", "random", "--seed", "1"), "model.py has no entry point"),
        (("--objective", "val_accuracy", "--search", "auto"), "model.py has no entry point"),
    ],
)
def test_a_resumed_study_keeps_what_is_of_the_whole_study(
    cli: InProcess, options: tuple[str, ...], said: str
) -> None:
    study = stored(cli.study())
    facts = LedgerReader(study).facts()
    with study.acquire() as lock, Ledger.open(study, lock=lock) as ledger:
        ledger.set_facts({"settings": {**facts["settings"], "priors": {"units": "normal(64,8)"}}})
    cli.file("model.py", "")
    ended = cli("resume", "study", *options)
    assert ended.code == 2
    assert said in " ".join(ended.err.split())
    assert f"\n  {options[0]} " not in cli("resume", "--help-all").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--try", "y=1"], ["start point 1 (y=1)", "y is unknown", "has x"]),
        (["--try", "x=0", "--try", "x=2"], ["start point 2 (x=2)", "x is 2", "allowed is 0.0..1"]),
        (["--prior", "y~normal(1,1)"], ["y is unknown", "has x"]),
        (["--prior", "x~normal(9,1)"], ["almost no weight within", "0.0..1.0"]),
    ],
)
def test_the_request_for_a_file(cli: InProcess, arguments: list[str], words: list[str]) -> None:
    cli.file("good.py", GOOD)
    refused(cli(*RUN, *LIGHT, *arguments), cli.directory, *words)


def test_what_the_file_may_say_is_not_refused_before_it_is_read(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trial of two processes fits on a machine with one GPU if RESOURCES leaves that alone."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a")
    command = ("run", "model.py", "--executor", "joblib", "--processes-per-trial", 2, "--try")
    cli.file("model.py", f"RESOURCES = {{'gpus': 0}}\n{GOOD}")
    refused(cli(*command, "y=1"), cli.directory, "y is unknown")
    cli.file("model.py", GOOD)
    refused(cli(*command, "x=1"), cli.directory, "2 processes takes a GPU", "--gpus-per-trial 0")


def test_with_a_prior_no_grid_is_chosen_which_ignores_it(cli: InProcess) -> None:
    model = cli.file("small.py", "def objective(hp, trial): return hp.Int('x', 1, 2)\n")
    command = ("run", model, *LIGHT, "--prior")
    refused(cli(*command, "y~normal(1,1)"), cli.directory, "y is unknown", "has x")
    ended = cli(*command, "x~normal(1,1)")
    assert ended.code == 0, ended.err
    assert "--search auto takes bayesian" in ended.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def train(): pass", ["no entry point", "found the functions train()"]),
        (MODEL, ["no load_data()", "((x, y), (x_val, y_val))"]),
        ("OBJECTIVE = 'quality'\n" + GOOD, ["'quality'", "quality:max or quality:min"]),
        ("OBJECTIVE = ['a:min', 'b']\n" + GOOD, ["'b'", "b:max or b:min"]),
        ("OBJECTIVE = [1]\n" + GOOD, ["OBJECTIVE is [1]", "a list"]),
        ("CONSTRAINTS = 'x is small'\n" + GOOD, ["'x is small'", "'params<2e6'"]),
        ("EPOCHS = 'many'\n" + GOOD, ["EPOCHS is 'many'", "from 1 on"]),
        ("RESOURCES = {'cpus': 512}\n" + GOOD, ["asks for 512 cores", "this machine has"]),
        (
            RETURNS.format("numpy.ones(2)"),
            ["returned array([1., 1.]); allowed are"],
        ),
        (RETURNS.format("{'loss': 'low'}"), ["returned {'loss': 'low'}; allowed are a number"]),
        (RETURNS.format("10**400"), ["objective() returned 1000", "allowed are a number"]),
        (RETURNS.format("None"), ["returned None;", "or nothing after trial.report(step, …)"]),
        (RETURNS.format("'x' * 9999"), ["characters left out]", "allowed are a number"]),
    ],
    ids=[
        "no entry point",
        "no data",
        "direction",
        "of one",
        "no text",
        "constraint",
        "epochs",
        "cores",
        "array",
        "texts",
        "large",
        "nothing",
        "long",
    ],
)
def test_the_file(cli: InProcess, text: str, words: list[str]) -> None:
    model = cli.file("model.py", text)
    ended = cli("run", model, *LIGHT, "--study", cli.study())
    refused(ended, cli.directory, *words)
    assert "Traceback" not in ended.err


def test_a_package_that_is_not_installed_is_named_with_its_extra(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    find_spec = importlib.util.find_spec
    missing = {"skopt", "optuna"}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name in missing else find_spec(name)
    )
    cli.file("good.py", GOOD)
    for arguments, extra in (
        ((*RUN, *LIGHT, "--search", "skopt"), "skopt"),
        ((*RUN, *LIGHT, "--search", "optuna:TPESampler"), "optuna"),
    ):
        refused(cli(*arguments), cli.directory, "pip install ", f"[{extra}]'")
    file = "raise ModuleNotFoundError(\"No module named 'jax'\", name='jax')"
    ended = cli("run", cli.file("model.py", file), *LIGHT)
    refused(ended, cli.directory, "No module named 'jax'", "pip install ", "[jax]'")


def test_the_users_own_error(hptune: Hptune) -> None:
    """The output is their traceback, within their file, and one message; also with Dask."""
    model = hptune.file("model.py", "import json\njson.loads('{')")
    ended = hptune("run", model, "--study", hptune.study())
    refused(ended, hptune.directory, "line 2", "json.loads('{')", f"Error: {model} cannot be used")
    assert ended.err.count('  File "') == 1
    other = hptune("space", hptune.file("other.py", "import keras"), KERAS_BACKEND="nope")
    assert other.code == 2
    assert other.err.partition("…\n")[2] == (
        "Error: KERAS_BACKEND is 'nope'; allowed are tensorflow, jax, torch\n"
    )


def test_an_unknown_metric_is_answered_with_those_there_are(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        def objective(hp, trial):
            return {"loss": hp.Float("x", 0, 1), "auc": 0.5}
        """,
    )
    command = ("run", model, *LIGHT, "--study", cli.study(), "--objective")
    refused(
        cli(*command, "val_auc"),
        cli.directory,
        "objective() returns no metric called 'val_auc': did you mean auc? It reports loss, auc",
    )
    said = "objective() returns loss, auc, and none is named to optimise. Name one, such as --obj"
    refused(cli(*command[:-1]), cli.directory, said)
    constraint = ("--objective", "auc", "--constraint", "params<9")
    refused(cli(*command[:-1], *constraint), cli.directory, "'params'", "reports loss, auc")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("hp, trial", "trial, hp"), "hyperparameters come first: objective(hp, tria"),
        (RETURNS.format("hp.Choice('c', 'relu')"), "c: the choices are 'relu'; give a list"),
    ],
)
def test_a_wrong_declaration_is_told_below_its_line(cli: InProcess, text: str, said: str) -> None:
    ended = cli("run", cli.file("model.py", text), *LIGHT)
    refused(ended, cli.directory, said, "line ")


def test_if_all_trials_failed_the_message_says_how_to_run_them_again(cli: InProcess) -> None:
    text = "def objective(hp, trial):\n    raise ValueError(hp.Float('x', 0, 1))\n"
    model = cli.file("model.py", text)
    ended = cli("run", model, *LIGHT, "--objective", "loss:min", "--study", cli.study())
    assert ended.code == 1
    assert f"`hptune resume {cli.study().name} --retry-failed`" in ended.err


def test_an_interruption_before_there_is_a_study_says_so(hptune: Hptune) -> None:
    reached = hptune.directory / "reached"
    model = hptune.file(
        "model.py",
        f"""
        import pathlib, time

        pathlib.Path({str(reached)!r}).touch()
        time.sleep(60)
        """,
    )
    started = hptune.start("run", model, *LIGHT, "--study", hptune.study())
    wait_for(reached.exists, "its code to be read")
    started.interrupt()
    ended = started.wait()
    assert ended.code == 130
    assert "interrupted; no study was made yet" in ended.err
    assert not hptune.study().exists()


def test_no_hyperparameters_means_one_trial(cli: InProcess) -> None:
    model = cli.file("model.py", "def objective(hp, trial):\n    return 1.5")
    ended = cli("run", model, *LIGHT, "--study", cli.study())
    assert ended.code == 0
    assert "no hyperparameters" in ended.err
    assert "1/1 trials" in ended.out


def test_a_file_that_starts_threads_is_imported_by_each_trial(hptune: Hptune) -> None:
    """Threads, started when the file is imported, do not survive a fork."""
    model = hptune.file(
        "model.py",
        """
        import queue
        import threading

        asked, answered = queue.Queue(), queue.Queue()

        def answer():
            while True:
                answered.put(asked.get() ** 2)

        threading.Thread(target=answer, daemon=True).start()

        def objective(hp, trial):
            asked.put(hp.Float("x", -1, 1))
            return answered.get(timeout=200)
        """,
    )
    ended = hptune("run", model, *LIGHT, *ALONE, "--study", hptune.study())
    assert ended.code == 0, ended.err
    assert "starts threads or uses a GPU when it is imported" in ended.err


def test_a_framework_that_runs_at_import(hptune: Hptune) -> None:
    """Its threads do not survive a fork either, but notebooks do this."""
    model = hptune.file(
        "model.py",
        """
        import keras
        import numpy as np
        import tensorflow as tf

        x = np.random.default_rng(0).normal(size=(32, 2)).astype("float32")
        SCALE = tf.reduce_mean(tf.square(x))
        DATA = tf.data.Dataset.from_tensor_slices((x, x[:, :1] / SCALE)).batch(8)
        EPOCHS = 2

        def build_model(hp):
            units = hp.Int("units", 1, 9)
            model = keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(1)])
            model.compile("sgd", "mse")
            return model

        def load_data():
            return DATA, DATA
        """,
    )
    # Each trial imports TensorFlow, so there is one only.
    options = ("--executor", "joblib", "--trials", 1, *ALONE)
    ended = hptune("run", model, *options, "--study", hptune.study())
    assert ended.code == 0, ended.err
    assert "starts threads or uses a GPU when it is imported" in ended.err
    assert (hptune.study() / "best" / "model.keras").exists()


def test_a_path_with_spaces_and_quotes(cli: InProcess) -> None:
    odd = Path(cli.directory / "an odd 'place'")
    odd.mkdir()
    model = cli.file("an odd 'place'/my model.py", GOOD)
    ended = cli("run", model, *LIGHT, "--study", odd / "a study")
    assert ended.code == 0, ended.err
    assert cli("best", odd / "a study").code == 0


def test_a_long_temporary_path(hptune: Hptune) -> None:
    """The path of a socket has at most 108 bytes."""
    model = hptune.file("model.py", GOOD)
    deep = hptune.directory / ("d" * 100)
    deep.mkdir()
    arguments = ("run", model, *LIGHT, *ALONE, "--study", hptune.study())
    ended = hptune(*arguments, TMPDIR=str(deep))
    assert ended.code == 0, ended.err


def test_a_metric_that_no_file_can_hold_is_written_as_its_escape(cli: InProcess) -> None:
    cli.file(
        "model.py",
        """
        def objective(hp, trial):
            trial.report(1, score=1.0, **{"\\ud801": 2.0})
            return {"score": hp.Float("x", 0, 1), "\\ud800": 1.0}
        """,
    )
    options = ("--objective", "score:max", "--trials", 1, "--executor", "joblib")
    assert cli("run", "model.py", *options, "--study", "study").code == 0
    for command in ("export study", "export study --format json", "show study 0"):
        ended = cli(*command.split())
        assert ended.code == 0, ended.err
        assert "\\ud800" in ended.out
    assert cli("report", "study").code == 0


@pytest.mark.parametrize(
    "declared", ['hp.Float("\\ud800", 0, 1)', 'hp.Choice("x", ["\\ud800", "a"])']
)
def test_a_hyperparameter_that_no_file_can_hold_is_refused(cli: InProcess, declared: str) -> None:
    cli.file("model.py", f"def objective(hp, trial):\n    {declared}\n    return 1.0\n")
    ended = cli("run", "model.py", "--trials", 1, "--executor", "joblib", "--study", "study")
    refused(ended, cli.directory, "'.ud800' is not valid text; give another one".replace(".", "\\"))

"""What the commands that read studies say of one, on ledgers that were written for them."""

from __future__ import annotations

import csv
import html
import importlib
import io
import json
import math
import os
import re
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path
from urllib.request import HTTPCookieProcessor, Request, build_opener

import pytest

from fake_study import GOALS, attempt, trial
from hptune.cli import main
from hptune.config.objectives import goals_to_json
from hptune.core.attempt import Outcome
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import (
    Event,
    FinishReason,
    StopRequested,
    StudyClosed,
    StudyOpened,
    WorkerJoined,
)
from hptune.core.resources import Capacity
from hptune.core.study_config import StudyConfig
from hptune.core.trial import Direction, Goal, Trial, TrialState
from hptune.core.user_requests import UserAction
from hptune.errors import HptuneError, StudyError
from hptune.reporting.results.trials import ranked, trials_text
from hptune.storage.asking import ask
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader
from hptune.study.study import Study
from hptune.text import NOTHING
from in_process import InProcess
from real_runs import Hptune, wait_for
from screens import assert_says
from stored_study import curve, stored, two_studies, typical

NEWEST = "newest study: studies/b-1\n"


def plain(shown: str) -> str:
    return shown.replace(NOTHING, "-")


@pytest.fixture
def two(cli: InProcess) -> InProcess:
    """Return the command, next to two studies."""
    two_studies(cli.directory)
    return cli


def test_the_dashboards_token_is_not_among_the_arguments_of_the_browser(hptune: Hptune) -> None:
    typical(hptune.study())
    log = hptune.study() / "trials" / "0" / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("x" * 300_000 + "the end")
    script = '#!/bin/sh\necho "$@" > given\ncp "$1" new\nmv new copy\n'
    hptune.file("xdg-open", script).chmod(0o700)
    path = f"{hptune.directory}{os.pathsep}{os.environ['PATH']}"
    page = hptune.start("dashboard", hptune.study(), "--open", PATH=path)
    copy = hptune.directory / "copy"
    wait_for(copy.exists, "the browser")
    address, token = re.findall(r"url=(http.*token=([^\"]+))\"", copy.read_text())[0]
    assert token not in (hptune.directory / "given").read_text()
    browser = build_opener(HTTPCookieProcessor())
    with browser.open(address) as answer:
        assert "Stop the study" in answer.read().decode()
    asked = Request(f"{answer.url}log", b'{"trial": 0}', {"X-Hptune": "1"})
    with browser.open(asked) as shown:
        end = json.load(shown)["text"]
    assert (len(end), end[-7:]) == (200_000, "the end")
    page.interrupt()
    ended = page.wait()
    assert (ended.code, address in ended.out) == (130, True)
    assert "Traceback" not in ended.err
    assert not list(hptune.temporary.rglob("hptune.html"))


def test_trials_are_listed_best_first_and_confirmations_named(two: InProcess) -> None:
    shown = plain(two("trials").out)
    assert_says(
        shown,
        "trial state val_accuracy from epoch time origin learning_rate units activation note",
        "2 complete 0.9000 4 1m29s tpe 16 =1+1",
        "4 complete 0.8800 4 3m10s confirm of 2 0.001235 128 relu",
        "0 complete 0.8000 3 40s tpe 0.001235 128 relu",
        "5 interrupted 0.7000 1 - tpe 0.001235 128 relu",
        "3 pruned 0.5000 2 20s tpe 0.001235 128 relu",
        "1 failed - - 10s tpe 0.001235 128 relu ValueError: bad shape",
    )
    assert len(shown.splitlines()) == 7
    best = json.loads(two("trials", "--top", 2, "--state", "complete", "--json").out)["trials"]
    assert [(each["trial"], each["origin"]) for each in best] == [(2, "tpe"), (4, "confirm of 2")]
    assert two("trials", "studies/a-1").out == "no such trials: no trials yet\n"
    # On a narrow terminal, the hyperparameters share one column, which is wrapped.
    view = Study("studies/b-1").view()
    failed = ranked(view, states=("failed",))
    narrow = plain(trials_text(view, failed, now=time.time(), width=80)).splitlines()
    assert narrow[1:4] == [
        "    1  failed             -           -   10s  tpe     learning_rate=0.001235",
        "                                                       units=128 activation=relu",
        "                                                       | ValueError: bad shape",
    ]


def test_one_trial_is_shown_with_its_curve_its_attempts_and_its_log(two: InProcess) -> None:
    log = two.directory / "studies/b-1/trials/2/log.txt"
    log.parent.mkdir()
    log.write_bytes(b"first line\n\xff raw bytes\n")
    shown = two("show", 2)
    assert shown.err == NEWEST
    assert_says(
        plain(shown.out),
        "study studies/b-1",
        "trial 2, complete, the best of 4/10 trials and 1/1 confirmations",
        "origin tpe",
        "value 0.9000 val_accuracy (max), from epoch 4/5",
        "trained again as trial 4 (0.8800)",
        "time 1m29s",
        "log studies/b-1/trials/2/log.txt",
        "hyperparameters",
        "units 16",
        "note =1+1",
        "metrics",
        "val_accuracy 0.9000",
        "val_loss 0.1000",
        "epoch val_accuracy val_loss",
        *("1 0.3000 0.7000", "2 0.6000 0.4000", "3 0.8000 0.2000", "4 0.9000 0.1000"),
        "attempt ended epoch time memory where why",
        "0 lost 1 10s - node01 2 cores worker lost",
        "1 finished 4 1m19s - node01 GPU 0",
    )
    details = json.loads(two("show", "studies/b-1", 2, "--json").out)
    assert details["log"] == str(log)
    assert [each["outcome"] for each in details["attempts"]] == ["LOST", "FINISHED"]
    assert two("show", 1).out.splitlines()[3] == "reason   ValueError: bad shape"
    assert "trial    5, interrupted\n" in two("show", 5).out
    printed = two("log", 2)
    assert "first line\n" in printed.out
    assert printed.err == f"{NEWEST}log: studies/b-1/trials/2/log.txt\n"
    log.with_name("log.rank1.txt").write_text("of rank 1\n")
    assert two("log", 2, "--rank", 1).out == "of rank 1\n"
    missing = two("log", 2, "--rank", 2)
    assert (missing.code, "rank 2 of trial 2 has printed nothing" in missing.err) == (1, True)
    nothing = two("log", "studies/b-1", 1)
    assert (nothing.code, "trial 1 has printed nothing" in nothing.err) == (1, True)
    for command in ("show", "log"):
        missing = two(command, 9)
        assert (missing.code, "has no trial 9; its trials are 0 to 5" in missing.err) == (2, True)
    by_address = two("status", "tls://node1:8786")
    assert (by_address.code, "hptune dashboard tls://node1:8786`" in by_address.err) == (2, True)
    assert (two("show", "b", "c").code, two("show", "b", 1, 2).code) == (2, 2)


def test_the_best_trials_are_read_again_only_after_further_events(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read_all = [], LedgerReader.trials

    def counted(reader: LedgerReader) -> list[Trial]:
        reads.append(reader)
        return read_all(reader)

    directory = stored(cli.directory / "study", [trial(0, value=0.7), trial(1, value=0.8)])
    monkeypatch.setattr(LedgerReader, "trials", counted)
    study = Study(directory)
    for _ in range(3):
        assert [study.best_trial, *study.best_trials] == [study.best_trial] * 2
        assert study.best_hyperparameters == study.best_trial.params
    assert (len(reads), study.best_trial.number) == (1, 1)
    better = trial(2, value=0.9)
    with Ledger.open(directory) as ledger, directory.acquire():
        ledger.append([WorkerJoined(1.0, "w", "n1", Capacity(cpus=(0,)))], trials=[better])
    assert (study.best_trial.number, len(reads)) == (2, 2)


def test_the_best_trials_of_a_study_that_took_the_place_of_another_are_its_own(
    cli: InProcess,
) -> None:
    """As in a notebook that runs a study again with `overwrite=True`."""
    path = cli.directory / "study"
    stored(path, [trial(0, value=0.7), trial(1, value=0.8)])
    study = Study(path)
    assert study.best_trial.number == 1
    shutil.rmtree(path)
    least = goals_to_json(Goals((replace(GOALS.goal, direction=Direction.MIN),)))
    stored(path, [trial(0, value=0.6), trial(1, value=0.8)], created_at=2000.0, goals=least)
    assert (study.best_trial.number, study.best_trial.value) == (0, 0.6)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["-o", "x.xlsx"], 2, "x.xlsx is not clear from its ending; allowed are .csv, .json and"),
        (["-o", "x"], 2, "--format csv, json, parquet, optuna, tensorboard, mlflow"),
        (["-o", "x.json", "--format", "csv"], 2, "the ending of x.json is .json"),
        (["-o", "x.json", "--curves"], 2, "--curves writes CSV"),
        (["-o", "no/x.csv"], 2, "no/x.csv cannot be written"),
        (["--format", "optuna", "--curves"], 2, "the export to optuna of all trials holds"),
        (["--format", "parquet"], 2, "name the file to write with -o trials.parquet"),
        (["--format", "parquet", "-o", "-"], 2, "name the file to write with -o trials.parquet"),
        (["--format", "optuna", "-o", "-"], 2, "the export to optuna needs a place of its own"),
        (["--format", "parquet", "-o", "x.csv"], 2, "the ending of x.csv is .csv"),
        (["-o", "no/x.parquet"], 2, "no/x.parquet cannot be written"),
        (["-o", "x.txt", "--format", "csv"], 0, "Wrote x.txt"),
        (["-o", "x.parquet"], 0, "Wrote x.parquet"),
        (["--format", "tensorboard"], 0, "Wrote 6 trials to studies/b-1/tensorboard. To look at"),
        (["-o", "x.JSON"], 0, "Wrote x.JSON"),
    ],
)
def test_an_export_follows_the_ending(
    two: InProcess, arguments: list[str], code: int, words: str
) -> None:
    ended = two("export", *arguments)
    assert (ended.code, words in ended.err) == (code, True), ended
    if arguments[1] == "x.JSON":
        tree = json.loads((two.directory / "x.JSON").read_text())
        assert tree["trials"][4]["origin"] == "confirm of 2"


def test_a_report_follows_the_ending(two: InProcess) -> None:
    ended = two("report", "-o", "r.md")
    assert (ended.code, ended.out) == (0, "Wrote r.md\n")
    assert (two.directory / "r.md").read_text().startswith("# b-1\n")
    assert two("report", "--format", "md").out == "Wrote studies/b-1/report.md\n"
    for arguments, words in (
        (
            ["-o", "x.png"],
            "png is asked for, but a report is html, md or methods; the button of each",
        ),
        (["--format", "svg"], "svg is asked for, but a report is html, md or methods; the button"),
        (["--format", "xml"], "the format is xml; allowed are html, md and methods"),
        (["-o", "x.md", "--format", "html"], "the format is html, but the ending of x.md is .md"),
        (["-o", "no/x.md"], "no/x.md cannot be written"),
    ):
        ended = two("report", *arguments)
        assert (ended.code, words in ended.err) == (2, True), ended


def test_an_export_has_origins_and_curves_and_no_formula(two: InProcess) -> None:
    rows = list(csv.DictReader(two("export").out.splitlines()))
    assert [row["origin"] for row in rows][3:5] == ["tpe", "confirm of 2"]
    assert rows[2]["param.note"] == "'=1+1"
    curves = two("export", "--curves", "-o", "-").out.splitlines()
    assert curves[:2] == ["trial,attempt,step,metric,value,time", "0,0,1,val_accuracy,0.6,1001.0"]
    assert len(curves) == 1 + 2 * 11
    study = Study("studies/b-1")
    assert study.curves_dataframe().query("metric == 'val_accuracy'").value.max() == 0.9
    table = study.trials_dataframe()
    assert (table.origin[4], table["param.note"][2]) == ("confirm of 2", "=1+1")


def state_in(status: str) -> str:
    return status.partition("state    ")[2].partition("\n")[0]


def test_a_status_says_how_a_study_ended_and_that_it_has_no_workers(cli: InProcess) -> None:
    failed = [trial(n, TrialState.FAILED, reason="ValueError: bad shape") for n in range(10)]
    reason = "the first 3 trials all failed the same way: ValueError: bad shape"
    ended = {"finish_reason": "same failure", "reason": reason}
    stored(cli.directory / "failed", failed, ended=ended)
    again = "continue with: hptune resume failed --retry-failed"
    assert state_in(cli("status", "failed").out) == f"not running: {reason}; {again}"
    plain = json.loads(cli("status", "failed", "--json").out)
    assert (plain["state"], plain["finish_reason"]) == ("stopped", "same failure")
    directory = typical(cli.directory / "study")
    gone = "not running: the master is gone (killed, or failed); continue with: hptune resume study"
    assert state_in(cli("status", "study").out) == gone
    events: list[Event] = [
        WorkerJoined(1.0, "old", "n1", Capacity(cpus=(0,))),
        StudyOpened(2.0, StudyConfig(trials=10, goals=GOALS, seed=1)),
    ]
    with Ledger.open(directory) as ledger, directory.acquire():
        ledger.append(events)
        shown = cli("status", "study").out
        assert state_in(shown).endswith("; it has no worker, so no trial runs")
        assert "1 running" in shown
        ledger.append([WorkerJoined(time.time(), "new", "n1", Capacity(cpus=(0,)))])
        assert "no worker" not in state_in(cli("status", "study").out)
        assert json.loads(cli("status", "study", "--json").out)["workers"] == 1
        ledger.set_facts({"measuring": True})
        measures = "; it measures training steps, to choose the devices of each trial"
        assert state_in(cli("status", "study").out).endswith(measures)
        with pytest.raises(StudyError, match="still measures training steps"):
            ask(directory, UserAction.PAUSE, tool="hptune pause", wait_seconds=0.0)


def test_a_run_that_a_second_ctrl_c_ended_names_the_first(cli: InProcess) -> None:
    opened = StudyOpened(1.0, StudyConfig(trials=10, goals=GOALS, seed=1))
    stop = StopRequested(2.0, FinishReason.INTERRUPTED, "interrupted by Ctrl-C")
    directory = typical(cli.directory / "study")
    with Ledger.open(directory) as ledger:
        ledger.append([opened, stop])
        with directory.acquire():
            assert state_in(cli("status", "study").out).startswith("running on ")
        again = "not running: interrupted by Ctrl-C; continue with: hptune resume study"
        assert state_in(cli("status", "study").out) == again
        assert "stopped" in cli("list", ".").out
        ledger.append([replace(opened, at=3.0)])
    assert "the master is gone" in state_in(cli("status", "study").out), "of the run after it"


def test_a_status_says_that_the_next_master_still_reads_the_model(cli: InProcess) -> None:
    """Jobs of the last master may wait for it meanwhile."""
    directory = typical(cli.directory / "study")
    opened = StudyOpened(1.0, StudyConfig(trials=10, goals=GOALS, seed=1))
    joined = WorkerJoined(2.0, "old", "n1", Capacity(cpus=(0,)))
    with Ledger.open(directory) as ledger:
        ledger.append([opened, joined])
        with directory.acquire():
            reads = "; it still reads the model, so no trial runs"
            assert state_in(cli("status", "study").out).endswith(reads)
            ledger.append([StudyClosed(time.time())])  # what workers have done meanwhile is read
            assert state_in(cli("status", "study").out).endswith(reads)
            # The time of this event is that of the command, and its workers come later.
            ledger.append([replace(opened, at=3.0)])
            waits = "; it has no worker, so no trial runs"
            assert state_in(cli("status", "study").out).endswith(waits)


@pytest.mark.parametrize(
    "words",
    ["trials study", "trials study --json", "show study 5", "show study 5 --json",
     "export study", "export study --format json", "status study", "status study --json"],
)  # fmt: skip
def test_no_trial_runs_and_no_hour_passes_while_the_next_master_reads_the_model(
    cli: InProcess, words: str
) -> None:
    """Trial 5 ran when the last master was killed, long ago."""

    def shown() -> list[str]:
        lines = cli(*words.split()).out.splitlines()
        told = r'state|trial 5 |  "(state|master)"|    "(host|pid|since)"|  }'
        return [line for line in lines if not re.match(told, line)]

    directory = typical(cli.directory / "study")
    opened = StudyOpened(1.0, StudyConfig(trials=10, goals=GOALS, seed=1))
    joined = WorkerJoined(1.0, "old", "n1", Capacity(cpus=(0,)))
    with Ledger.open(directory) as ledger:
        ledger.append([opened, joined, StudyClosed(2.0)])
    before = shown()
    with directory.acquire():
        assert [line for line in shown() if line not in before] == []
        assert "\ntrial 5 continues when the model is read\n" in cli("status", "study").out


def test_the_dashboard_waits_for_a_study_that_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    dashboard = importlib.import_module("hptune.cli.dashboard")
    directory = StudyDirectory(tmp_path / "study").create()
    assert dashboard._begun(directory.path) == directory.path, "no master runs it"
    with directory.acquire() as lock:

        def begin(_seconds: float) -> None:
            Ledger.create(directory, {}, lock=lock).close()

        monkeypatch.setattr(dashboard.time, "sleep", begin)
        dashboard._begun(directory.path)
    assert capsys.readouterr().out.count("begins; its page follows") == 1


@pytest.mark.parametrize("given", [("--certs", "nope"), ("--insecure",)])
def test_the_dashboard_of_a_directory_takes_no_certificates(
    cli: InProcess, given: tuple[str, ...]
) -> None:
    typical(cli.directory / "study")
    ended = cli("dashboard", "study", *given)
    assert (ended.code, f"{given[0]} is for a scheduler, but study is" in ended.err) == (2, True), (
        ended
    )


@pytest.mark.parametrize("number", [-1, 6, 2**63, -(2**70), 1.5])
def test_a_number_of_no_trial_is_told_so(cli: InProcess, number: float) -> None:
    typical(cli.study())
    study = Study(cli.study())
    for ask_for in (study.trial, study.log_path, study.trial_model):
        with pytest.raises(HptuneError):
            ask_for(number)  # type: ignore[arg-type]
    assert study.reports(2**70) == []


def test_a_trial_that_ctrl_c_interrupted_shows_its_last_epoch(cli: InProcess) -> None:
    released = [attempt(0, each, ended_at=1010.0, outcome=Outcome.RELEASED) for each in range(2)]
    events = [*curve(0, [0.5, 0.6]), *curve(0, [0.5, 0.6, 0.7], attempt_number=1)]
    waiting = replace(trial(0, TrialState.WAITING), attempts=2)
    stored(cli.study(), [waiting], released, events)
    row = cli("trials", "study").out.splitlines()[1]
    assert row.split()[:4] == ["0", "interrupted", "0.7000", "3"]
    assert (
        "value    0.7000  val_accuracy (max), at epoch 3/5, so far\n" in cli("show", "study", 0).out
    )


@pytest.mark.parametrize("state", [TrialState.WAITING, TrialState.RUNNING])
def test_a_trial_that_trains_on_shows_the_result_that_it_has(
    cli: InProcess, state: TrialState
) -> None:
    """Its last epoch may be worse, and counts only once the trial is over again."""
    before = attempt(0, ended_at=1010.0, outcome=Outcome.FINISHED)
    since = [attempt(0, 1, placed_at=1020.0)] if state is TrialState.RUNNING else []
    events = [*curve(0, [0.5, 0.9, 0.7]), *curve(0, [0.1], attempt_number=1)]
    shown = replace(trial(0, state, value=0.9, step=2), attempts=1 + len(since))
    stored(cli.study(), [shown], [before, *since], events)
    best = json.loads(cli("best", "study", "--json").out)["best"]
    assert (best["value"], best["step"]) == (0.9, 2)
    assert "0.9000" in cli("best", "study").out
    assert cli("trials", "study").out.splitlines()[1].split()[2:4] == ["0.9000", "2"]
    assert "0.9000  val_accuracy (max), from epoch 2/5\n" in cli("show", "study", 0).out
    study = Study(cli.study())
    assert [each.value for each in study.complete_trials] == [0.9]
    with pytest.raises(HptuneError, match="cannot be loaded"):  # its model is looked for
        study.best_models()


def test_a_search_space_is_shown_with_its_conditions(cli: InProcess) -> None:
    cli.file(
        "model.py",
        """
        def objective(hp, trial):
            rate = hp.Float("rate", 1e-4, 1e-1, sampling="log")
            if hp.Boolean("deep"):
                with hp.conditional_scope("deep", [True]):
                    hp.Int("layers", 2, 8, step=2)
            trial.report(1, score=rate)
            raise AssertionError("nothing is trained")
        """,
    )
    assert cli("space", "model.py").out.splitlines() == [
        "3 hyperparameters, any number of configurations",
        "",
        "name    values  tried first  type     range",
        "rate       any  0.003162     Float    0.0001..0.1, log scale",
        "deep         2  False        Boolean",
        "layers       4  6            Int      2..8, step 2, if deep is True",
    ]
    space = json.loads(cli("space", "model.py", "--json").out)["space"]
    assert [each["tried_first"] for each in space[1:]] == [False, 6]
    assert cli("space", "nofile.py").code == 2


def test_the_search_space_of_a_study_is_shown(two: InProcess) -> None:
    first, *_, row = two("space", "studies/b-1").out.splitlines()
    assert first.startswith(f"{len(Study(two.directory / 'studies/b-1').space)} hyperparameter")
    assert row.split()[0] == list(Study(two.directory / "studies/b-1").space)[-1].name
    assert json.loads(two("space", "studies/b-1", "--json").out)["is_complete"] is None
    refused = two("space", "studies/b-1", "--entry", "tune")
    assert (refused.code, "it is for a MODEL_FILE" in refused.err) == (2, True)
    assert two("space", "studies/b-1/best").code == 2


def test_a_report_is_written_next_to_the_study_or_where_asked(two: InProcess) -> None:
    assert two("report").out == "Wrote studies/b-1/report.html\n"
    page = (two.directory / "studies/b-1/report.html").read_text(encoding="utf-8")
    assert "hptune run studies/model.py --search random --trials 10" in page
    assert two("report", "studies/a-1", "-o", "a.html").out == "Wrote a.html\n"
    stored(two.directory / "my studies/c-1")
    assert two("report", "my studies/c-1", "-o", "c.html").code == 0
    page = html.unescape((two.directory / "c.html").read_text(encoding="utf-8"))
    assert "hptune run 'my studies/model.py' --search random --trials 10" in page
    refused = two("report", "-o", "missing/a.html")
    assert (refused.code, "missing/a.html cannot be written" in refused.err) == (2, True)


def test_a_constraint_metric_that_is_nan_is_no_number_in_json(cli: InProcess) -> None:
    goals = Goals(GOALS.objectives, (Constraint("loss", Comparison.LESS, 0.1),))
    metrics = {GOALS.goal.metric: 0.5, "loss": math.nan}
    pruned = trial(0, TrialState.PRUNED, 0.5, step=1, metrics=metrics)
    study = cli.directory / "study"
    stored(study, [pruned], goals=goals_to_json(goals))
    for command in (("trials", study, "--json"), ("show", study, 0, "--json")):
        assert '"violation": null' in cli(*command).out
    assert (
        json.loads(cli("export", study, "--format", "json").out)["trials"][0]["violation"] is None
    )


def test_every_output_gives_a_trial_of_a_killed_master_the_same_state(cli: InProcess) -> None:
    study = cli.directory / "study"
    stored(study, [trial(0, TrialState.RUNNING)])
    counts = json.loads(cli("status", study, "--json").out)["counts"]
    states = [
        next(state for state, number in counts.items() if number),
        json.loads(cli("trials", study, "--json").out)["trials"][0]["state"],
        json.loads(cli("show", study, 0, "--json").out)["state"],
        json.loads(cli("export", study, "--format", "json").out)["trials"][0]["state"],
        next(csv.DictReader(cli("export", study).out.splitlines()))["state"],
    ]
    assert states == ["WAITING"] * 5


def test_a_locale_that_lacks_characters_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study"
    failed = trial(0, TrialState.FAILED, params={"act": "\N{GREEK SMALL LETTER LAMDA}"})
    stored(study, [failed])

    def printed(*arguments: object) -> bytes:
        out = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="latin-1"))
        with pytest.raises(SystemExit) as ended:
            main([str(each) for each in arguments], prog_name="hptune")
        assert not ended.value.code
        return out.getvalue()

    assert b"failed" in printed("trials", study)
    found = json.loads(printed("trials", study, "--json"))
    assert found["trials"][0]["params"] == failed.params
    assert "\N{GREEK SMALL LETTER LAMDA}" in printed("export", study).decode("utf-8")


def test_each_trial_of_a_pareto_front_is_one_of_it(cli: InProcess) -> None:
    goals = Goals((*GOALS.objectives, Goal("size", Direction.MIN)))
    trials = [
        trial(n, value=value, metrics={GOALS.goal.metric: value, "size": value})
        for n, value in enumerate((0.5, 0.6))
    ]
    stored(cli.directory / "study", trials, goals=goals_to_json(goals))
    for number in (0, 1):
        shown = cli("show", "study", number).out
        assert f"{number}, complete, on the Pareto front of 2/10 trials\n" in shown

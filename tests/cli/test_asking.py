"""Requests to a running study from another terminal."""

from __future__ import annotations

import json
from pathlib import Path

from hptune.study.study import Study
from in_process import InProcess
from real_runs import Hptune, rows, trials, wait_for
from stored_study import stored

WAITING = """
    import time

    OBJECTIVE = "score:max"

    def objective(hp, trial):
        x, kind = hp.Float("x", 0.0, 1.0), hp.Choice("kind", ["a", "b"])
        trial.report(1, score=x)
        while not trial.should_stop():
            time.sleep(0.02)
        return x
    """


def test_a_running_study_is_paused_gets_a_trial_and_loses_one(
    hptune: Hptune, cli: InProcess
) -> None:
    model, study = hptune.file("model.py", WAITING), hptune.study()
    light = ("--executor", "joblib", "--workers", 1, "--trials", 2)
    run = hptune.start("run", model, "--study", study, *light)
    wait_for(lambda: rows(study, "SELECT * FROM reports"), "it")

    hptune.file("points.csv", "x,kind\n0.1,a\n7,b\n")
    refused = {
        ("stop", study, "--trial", 5): (2, "there is no trial 5; the trials are 0 to 0"),
        ("enqueue", study, "x=7"): (2, "x is 7; allowed is 0.0..1.0"),
        ("enqueue", study, "knd=a"): (2, "Did you mean 'kind'?"),
        ("enqueue", study, "x"): (2, "hptune enqueue has 'x', which is not name=value"),
        ("enqueue", study): (2, "no value is given"),
        ("enqueue", study, "@points.csv"): (2, "points.csv, line 3: x is 7"),
        ("stop", study, "--trial", "abc"): (2, "'abc' is not a valid whole number"),
        ("resume", study, "--try", "x=0.1"): (1, "hptune enqueue study NAME=VALUE"),
        ("enqueue", study, *(f"{n}={v}" for n, v in _values(study).items())): (
            2,
            "is trial 0 already",
        ),
    }
    for command, (code, message) in refused.items():
        ended = cli(*command)
        assert (ended.code, message in ended.err) == (code, True), ended.err

    paused = hptune("pause", study)
    assert (paused.code, paused.err) == (0, "")
    assert "running trials continue, and the workers keep their devices" in paused.out
    assert paused.out.endswith("Start more trials with: hptune resume study\n")
    assert "paused by" in cli("status", study).out
    changed = cli("resume", study, "--trials", 5)
    assert (changed.code, "is paused, and its settings cannot change" in changed.err) == (1, True)
    added = cli("enqueue", study, "x=0.25", "kind=b")
    assert (added.code, added.out) == (0, "Enqueued trial 1\n")
    assert cli("enqueue", study, "x=0.75").out == "Enqueued trial 2\n"
    noted = cli("note", study, "--trial", 0, "slow", "--tag", "odd")
    assert (noted.code, noted.out.partition(" (")[0]) == (
        0, "trial 0, tags: odd\ntrial 0, note: slow"
    )  # fmt: skip
    assert cli("note", study, "--trial", 7, "x").code == 2
    waiting = cli("stop", study, "--trial", 2)
    assert (waiting.code, waiting.out) == (0, "Trial 2 is pruned: no value\n")
    stopped = cli("stop", study, "--trial", 0)
    assert stopped.code == 0
    assert stopped.out.startswith("Trial 0 is pruned: score 0.")
    again = cli("stop", study, "--trial", 0)
    assert (again.code, "trial 0 is pruned; only one that runs, waits" in again.err) == (2, True)
    assert [each["state"] for each in trials(study)] == ["PRUNED", "WAITING", "PRUNED"]
    resumed = cli("resume", study)
    assert (resumed.code, resumed.out) == (0, "The study is resumed: new trials start again\n")
    wait_for(lambda: len(rows(study, "SELECT * FROM reports")) == 2, "the added trial")
    assert cli("stop", study).code == 0
    ended = run.wait()
    assert ended.code == 130
    (reason,) = (each["reason"] for each in rows(study, "SELECT * FROM attempts WHERE trial = 0"))
    assert reason.startswith("stopped by ")
    assert reason.endswith(" (hptune stop)")
    table = what_was_asked_in(study)
    assert [row[2:] for row in table] == [
        ("pause", "done"),
        ("enqueue\nx=0.25 kind=b", "done"),
        ("enqueue\nx=0.75 kind=a", "done"),
        ("stop trial 2", "done"),
        ("stop trial 0", "done"),
        ("resume", "done"),
    ]
    assert cli("note", study, "ended").code == 0
    assert cli("replay", study).code == 0
    assert Study(study).notes == ["ended"]
    gone = cli("enqueue", study, "x=0.5")
    assert (gone.code, "try a configuration when it resumes" in gone.err) == (1, True)


def test_a_value_that_is_too_long_for_a_name_is_not_taken_for_a_directory(cli: InProcess) -> None:
    stored(cli.directory / "studies" / "newest")
    for value in (json.dumps({"activation": 300 * "a"}), "activation=" + 300 * "a"):
        ended = cli("enqueue", value)
        assert (ended.code, "study in studies/newest is not running" in ended.err) == (1, True), (
            ended.err
        )


def what_was_asked_in(study: Path) -> list[tuple[str, ...]]:
    panel = next(
        each.make() for each in Study(study).report_contents().sections if each.name == "setup"
    )
    assert panel is not None
    return [tuple(row) for row in panel.tables[-1].rows]


def _values(study: Path) -> dict[str, object]:
    (first,) = rows(study, "SELECT params FROM trials")
    found: dict[str, object] = json.loads(first["params"])
    return found

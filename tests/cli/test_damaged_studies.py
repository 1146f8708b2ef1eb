"""Studies that were damaged or edited by hand: one clear error, never a traceback."""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fake_study import GOAL
from hptune.config.objectives import goals_to_json
from hptune.core.goals import Goals
from hptune.core.trial import Direction, Goal
from hptune.storage.artifacts import StudyFiles
from hptune.study.study import Study
from in_process import InProcess
from stored_study import stored, typical

Damage = Callable[[Path], None]


def sql(statement: str) -> Damage:
    def damage(database: Path) -> None:
        with contextlib.closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(statement)

    return damage


def fact(key: str, value: str) -> Damage:
    return sql(f"UPDATE study SET value = '{value}' WHERE key = '{key}'")


def cut(database: Path) -> None:
    database.write_bytes(database.read_bytes()[:5000])


def scribble(database: Path) -> None:
    database.write_bytes(
        database.read_bytes().replace(b'"learning_rate"', b'"learning_\xff\xff\xff"')
    )


IN_ALL = {
    "empty": lambda database: database.write_bytes(b""),
    "truncated": cut,
    "a text": lambda database: database.write_text("hello\n" * 1000),
    "no facts": sql("DELETE FROM study"),
    "no table": sql("DROP TABLE study"),
    "newer": fact("format", "99"),
    "no JSON": fact("settings", '{"sour'),
    "no settings": sql("DELETE FROM study WHERE key = 'settings'"),
    "other settings": fact("settings", '{"source": 3}'),
    "no goals": fact("goals", '"fast"'),
    "no goals and no space": sql("DELETE FROM study WHERE key IN ('goals', 'space')"),
    "no space": fact("space", '[{"class_name": "Star"}]'),
    "odd end": fact("ended", '{"finish_reason": "luck"}'),
    "not UTF-8": scribble,
}
IN_THE_TRIALS = {
    "no trials": sql("DROP TABLE trials"),
    "params": sql("UPDATE trials SET params = '[1]'"),
    "metrics": sql("""UPDATE trials SET metrics = '{"loss": "low"}'"""),
    "state": sql("UPDATE trials SET state = 'LOST' WHERE number = 3"),
    "value": sql("UPDATE trials SET value = 'high'"),
    "no value": sql("UPDATE trials SET value = NULL WHERE number = 2"),
    "devices": sql("UPDATE attempts SET devices = '{}'"),
    "time": sql("UPDATE attempts SET placed = 'noon'"),
}


@pytest.mark.parametrize("name", [*IN_ALL, *IN_THE_TRIALS])
def test_a_damaged_ledger_is_named_by_every_command(cli: InProcess, name: str) -> None:
    typical(cli.directory / "study")
    {**IN_ALL, **IN_THE_TRIALS}[name](cli.directory / "study/study.db")
    commands = [
        *("status", "status --json", "best", "trials", "show", "export", "export --format json"),
        *(("replay", "resume") if name in IN_ALL else ()),
    ]
    (cli.directory / "model.py").touch()
    for command in commands:
        first, *options = command.split()
        trial = [2] if first == "show" else []
        ended = cli(first, "study", *trial, *options)
        assert ended.code == 1, (command, ended)
        (line,) = ended.err.splitlines()
        assert line.startswith("Error: "), (command, ended)
        assert "study" in line
        advice = ("Restore it from a backup", "restore it from a backup", "Use the hptune that")
        assert any(each in line for each in advice), (command, line)
    assert "unreadable" in cli("list", ".").out


@pytest.mark.parametrize("command", ["status", "best", "trials", "show 2", "export", "list ."])
def test_a_complete_trial_without_the_second_objective_is_damage(
    cli: InProcess, command: str
) -> None:
    goals = Goals((GOAL, Goal("val_loss", Direction.MIN)))
    typical(cli.directory / "study", goals=goals_to_json(goals))
    sql("""UPDATE trials SET metrics = '{"val_accuracy": 0.9}' WHERE number = 2""")(
        cli.directory / "study/study.db"
    )
    first, *rest = command.split()
    ended = cli(first, *(rest if first == "list" else ["study", *rest]))
    assert ("trial 2 is complete and has no value" in ended.err) is (first != "list"), ended
    assert ended.code == (1 if ended.err else 0)
    assert ended.err or "unreadable" in ended.out


def test_events_that_do_not_fit_together_are_no_traceback(cli: InProcess) -> None:
    typical(cli.directory / "study")
    (cli.directory / "model.py").touch()
    for command in ("replay", "resume"):
        ended = cli(command, "study")
        assert (ended.code, "before the study was opened" in ended.err) == (1, True), ended


def test_a_model_file_with_a_syntax_error_is_no_traceback(cli: InProcess) -> None:
    stored(cli.directory / "study")
    cli.file("model.py", "def objective(hp, trial):\nreturn 1\n")
    ended = cli("resume", "study")
    assert ended.code == 2
    assert "model.py:2: IndentationError: expected an indented block" in ended.err


def test_a_best_model_that_was_damaged_or_deleted_is_noticed(cli: InProcess) -> None:
    directory = typical(cli.directory / "study")
    study = Study(directory)
    best = study.best_trial
    for name in ("model.keras", "model.weights.h5", "checkpoint/model.pt"):
        (place := directory.trial(best.number) / name).parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(place, "w") as model:
            model.writestr("config.json", "{}" * 1000)
        shutil.rmtree(directory.best, ignore_errors=True)
        StudyFiles(directory, study.goals).keep_best([best])
        kept = directory.best / name
        if name == "model.weights.h5":
            kept.write_bytes(b"\x89HDF\r\n\x1a\n and so on")
        ended = cli("best", "study")
        assert (ended.code, ended.err) == (0, ""), ended
        assert json.loads(cli("best", "study", "--json").out)["fault"] is None
        if name != "checkpoint/model.pt":
            kept.write_bytes(kept.read_bytes()[:7])
            ended = cli("best", "study")
            assert (ended.code, "trial 2, the best of" in ended.out) == (1, True), ended
            assert f"{name} of trial 2 in study/best is missing or damaged" in ended.err
        shutil.rmtree(directory.best)
        ended = cli("best", "study")
        assert ended.code == 1
        assert "the file best.json of trial 2 in study/best is missing or damaged" in ended.err
        helps = "study/trials/2/checkpoint" if "checkpoint" in name else "best_hyperparameters"
        assert helps in ended.err

"""Commands on studies of other users: what each may do, and what it leaves alone."""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hptune.storage.directory import StudyDirectory
from hptune.study.study import Study
from in_process import InProcess
from other_users import as_user, give, open_folder
from planted import plant_journal
from stored_study import stored, typical

PLUG_IN = """
    from pathlib import Path
    Path({mark!r}).touch()
    class S:
        pass
"""
READING = (
    *("status", "status --json", "best", "trials", "show 2", "log 2", "space", "export"),
    *("export --format json", "report -o report.html", "list", "note"),
)
CHANGING = ("note words", "scaling model.py --study", "stop")
RUNNING = ("replay", "resume", "resume --detach", "resume --trials 99")


def line(command: str) -> list[str]:
    name, *options = command.split()
    if name == "scaling":
        return [name, *options, "study"]
    return [name, "." if name == "list" else "study", *options]


def everybodys(study: Path) -> None:
    study.chmod(0o777)


@pytest.fixture
def study(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a study in the working directory whose code leaves a mark when it is loaded."""
    monkeypatch.chdir(cli.directory)
    mark = str(cli.directory / "mark")
    cli.file("evil.py", PLUG_IN.format(mark=mark))
    cli.file("model.py", PLUG_IN.format(mark=mark))
    directory = typical(cli.study())
    with contextlib.closing(sqlite3.connect(directory.database)) as connection, connection:
        for name in ("search", "pruner", "cluster"):
            connection.execute(
                f"UPDATE study SET value = json_set(value, '$.{name}', 'evil:S') "
                "WHERE key = 'settings'"
            )
    directory.log(2).parent.mkdir(parents=True)
    directory.log(2).write_text("printed\n")
    directory.path.chmod(0o755)
    return directory.path


def state(study: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in study.rglob("*") if each.is_file()}


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize("owner", [give, everybodys])
def test_others_studies_are_read_and_nothing_is_changed(
    cli: InProcess, study: Path, owner: Callable[[Path], None], command: str
) -> None:
    owner(study)
    before = state(study)
    ended = cli(*line(command))
    assert ended.code == 0 or (command == "best" and "missing or damaged" in ended.err), ended
    assert state(study) == before
    assert not (cli.directory / "mark").exists()


@pytest.mark.parametrize("command", [*CHANGING, *RUNNING])
@pytest.mark.parametrize("owner", [give, everybodys])
def test_others_studies_are_not_changed_and_their_code_is_not_run(
    cli: InProcess, study: Path, owner: Callable[[Path], None], command: str
) -> None:
    owner(study)
    before = state(study)
    ended = cli(*line(command))
    if command == "stop":
        assert (ended.code, "is not running" in ended.err) == (1, True), ended
    else:
        helps = "cp -r study COPY" if owner is give else "chmod -R go-w study"
        assert (ended.code, helps in ended.err) == (2, True), ended
    assert state(study) == before
    assert not (cli.directory / "mark").exists()


@pytest.mark.parametrize("command", ["status", "resume --trials 99", "dashboard"])
def test_a_study_that_may_not_be_read_says_who_can_allow_it(
    cli: InProcess, study: Path, command: str
) -> None:
    study.chmod(0)
    no_rights = "-dac_override,-dac_read_search"  # of root
    as_others = ["setpriv", f"--bounding-set={no_rights}"] if os.geteuid() == 0 else []
    tried = [*as_others, sys.executable, "-m", "hptune", *line(command)]
    ended = subprocess.run(tried, cwd=cli.directory, capture_output=True, text=True, check=False)
    study.chmod(0o755)
    assert ended.returncode == 1
    assert re.fullmatch(
        r"Error: \S+ cannot be used: this user may not read \S*study\. "
        r"Have its owner allow it \(`chmod -R go\+rX`\), then try again\n",
        ended.stderr,
    ), ended.stderr


@pytest.mark.parametrize("command", [*READING, "note words", "stop", *RUNNING])
@pytest.mark.parametrize("owner", [give, everybodys, Path.exists])
def test_no_command_deletes_what_a_planted_journal_names(
    cli: InProcess, study: Path, owner: Callable[[Path], object], command: str
) -> None:
    victim = cli.file("victim", "mine")
    plant_journal(study / "study.db", victim)
    owner(study)
    ended = cli(*line(command))
    assert "Traceback" not in ended.err
    assert victim.read_text() == "mine"
    assert ended.code in (1, 2) or command == "list"


def test_a_warm_start_and_python_delete_nothing_either(cli: InProcess, study: Path) -> None:
    victim = cli.file("victim", "mine")
    plant_journal(study / "study.db", victim)
    give(study)
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    ended = cli("run", "model.py", "--trials", 1, "--warm-start", "study", "--executor", "joblib")
    assert "journal names another file" in ended.err
    assert victim.read_text() == "mine"


def _fifo(study: Path) -> None:
    os.mkfifo(study / "study.db-journal")


def _sql(*statements: str) -> Callable[[Path], None]:
    def change(study: Path) -> None:
        with contextlib.closing(sqlite3.connect(study / "study.db")) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    return change


ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n) SELECT i AS number, "
    "'WAITING' AS state, '{}' AS params, NULL AS value, NULL AS step, '{}' AS metrics, '' AS "
    "origin, 0 AS attempts, '' AS reason, '' AS detail FROM n"
)
BLIND = {
    "a pipe as journal": _fifo,
    "an endless view": _sql("DROP TABLE trials", f"CREATE VIEW trials AS {ENDLESS}"),
    "an endless view of facts": _sql(
        "DROP TABLE study",
        f"CREATE VIEW study AS SELECT number AS key, '' AS value FROM ({ENDLESS})",
    ),
    "a view of gigabytes": _sql(
        "DROP TABLE reports",
        "CREATE VIEW reports AS SELECT 1 AS trial, 0 AS attempt, 1 AS step, "
        "hex(zeroblob(900000000)) AS metric, 0.0 AS value, 0.0 AS time",
    ),
    "a column that is computed": _sql(
        "ALTER TABLE trials ADD COLUMN more TEXT AS (hex(zeroblob(900000000)))"
    ),
    "a virtual table": _sql("DROP TABLE trials", "CREATE VIRTUAL TABLE trials USING fts5(number)"),
    "a trigger": _sql(
        "CREATE TRIGGER t AFTER INSERT ON events BEGIN SELECT hex(zeroblob(900000000)); END"
    ),
}


@pytest.mark.parametrize("name", BLIND)
@pytest.mark.parametrize("owner", [give, Path.exists])
def test_one_study_neither_holds_up_nor_hides_the_others(
    cli: InProcess, owner: Callable[[Path], object], name: str
) -> None:
    bad = typical(cli.study("bad")).path
    typical(cli.study("good"))
    BLIND[name](bad)
    owner(bad)
    ended = cli("list", cli.directory)
    assert (ended.code, ended.err) == (0, "")
    assert "good" in ended.out
    assert "unreadable" in ended.out
    ended = cli("status", bad)
    assert (ended.code, ended.err.count("\n")) == (1, 1), ended


def test_pages_that_lead_in_circles_are_refused(cli: InProcess) -> None:
    """A few pages of another user's file must not become gigabytes."""
    many = [f"INSERT INTO reports VALUES (0, 0, {n}, 'loss', 0.5, 1.0)" for n in range(2000)]
    directory = typical(cli.study())
    _sql(*many)(directory.path)
    with contextlib.closing(sqlite3.connect(directory.database)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = 'reports'"
        ((root,),) = connection.execute(query).fetchall()
    contents = bytearray(directory.database.read_bytes())
    page = memoryview(contents)[(root - 1) * 4096 : root * 4096]
    assert page[0] == 5, "an interior page of a table"
    first = int.from_bytes(page[12:14], "big")
    for at in range(12, 12 + 2 * int.from_bytes(page[3:5], "big"), 2):
        cell = int.from_bytes(page[at : at + 2], "big")
        page[cell : cell + 4] = bytes(page[first : first + 4])
    directory.database.write_bytes(contents)
    give(directory.path)
    ended = cli("status", directory.path)
    assert (ended.code, "is damaged or no study" in ended.err) == (1, True), ended


# --- commands without DIR ---------------------------------------------------------------------


def _planted(path: Path) -> Path:
    stored(path)
    give(path)
    return path


def test_a_study_of_another_user_above_is_not_taken(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = cli.directory / "shared"
    _planted(shared)
    os.chown(shared, 0, 0)
    shared.chmod(0o1777)  # as the temporary folder of all users
    (shared / "work").mkdir()
    monkeypatch.chdir(shared / "work")
    for command in ("status", "best", "trials", "replay", "resume", "stop", "note"):
        ended = cli(command)
        assert (ended.code, "no study is named" in ended.err) == (2, True), (command, ended)
    assert "must be named, as" in cli("status").err
    typical(shared / "work" / "studies" / "mine")
    ended = cli("status")
    assert (ended.code, "newest study: studies/mine" in ended.err) == (0, True), ended
    typical(shared / "work" / "studies" / "theirs")
    give(shared / "work" / "studies" / "theirs")
    assert StudyDirectory.newest().path.name == "mine"


def test_a_folder_of_another_user_ends_the_search(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = typical(cli.study())
    theirs = mine.path / "theirs"
    (theirs / "deep").mkdir(parents=True)
    monkeypatch.chdir(theirs / "deep")
    assert StudyDirectory.newest().path == mine.path
    give(theirs)
    assert "no study is named" in cli("status").err
    assert cli("status", mine.path).code == 0


def test_a_colleague_reads_and_copies_a_study(cli: InProcess, study: Path) -> None:
    give(study)
    assert Study(study).best_trial.number == 2
    assert "belongs to user nobody" in cli("note", study, "words").err


def test_a_list_names_folders_that_cannot_be_read(cli: InProcess) -> None:
    with open_folder() as folder:
        typical(folder / "closed" / "study")
        typical(folder / "open")
        for path, mode in {"closed": 0o700, "open": 0o755, "open/study.db": 0o644}.items():
            (folder / path).chmod(mode)
        assert cli("list", folder).err == ""
        with as_user():
            ended = cli("list", folder)
        assert "1 folder cannot be read, such as " in ended.err
        assert str(folder / "closed") in ended.err
        assert str(folder / "open") in ended.out


def test_a_note_is_by_the_user_whom_the_system_knows(
    cli: InProcess, study: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables may be of who has logged in, as after `su`."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(variable, "eve")
    assert cli("note", study, "words").code == 0
    (note,) = Study(study).view().notes
    assert note.by == f"{pwd.getpwuid(os.geteuid()).pw_name} (hptune note)"

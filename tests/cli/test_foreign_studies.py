"""Studies in which another user has put something: nothing is written through it, nothing waits."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from in_process import InProcess
from requirements import require_root
from stored_study import typical

OTHER = 65534


@pytest.fixture
def study(cli: InProcess) -> Path:
    directory = cli.study()
    typical(directory)
    return directory


def given_away(path: Path) -> Path:
    require_root("give files to others")
    os.chown(path, OTHER, OTHER, follow_symlinks=False)
    return path


@pytest.mark.parametrize("kind", ["html", "md"])
def test_a_report_is_not_written_through_a_link(cli: InProcess, study: Path, kind: str) -> None:
    keys = cli.file("authorized_keys", "mine")
    (study / f"report.{kind}").symlink_to(keys)
    ended = cli("report", study, "--format", kind)
    assert ended.code == 2
    assert f"report.{kind} is a symbolic link, and is not replaced" in ended.err
    assert keys.read_text() == "mine"


@pytest.mark.parametrize(
    ("tool", "name"), [("optuna", "optuna.db"), ("tensorboard", "tensorboard")]
)
def test_an_export_is_not_written_through_a_link(
    cli: InProcess, study: Path, tool: str, name: str
) -> None:
    elsewhere = cli.directory / "elsewhere"
    (study / name).symlink_to(elsewhere)
    ended = cli("export", study, "--format", tool)
    assert ended.code == 2
    assert f"{name} is a symbolic link, and is not replaced" in ended.err
    assert not elsewhere.exists()


def test_a_report_replaces_only_a_report(cli: InProcess, study: Path) -> None:
    (study / "report.md").write_text("notes of the user's")
    ended = cli("report", study, "--format", "md")
    assert ended.code == 2
    assert "is not a file that hptune made" in ended.err
    (study / "report.md").unlink()
    for _ in range(2):
        assert cli("report", study, "--format", "md").code == 0
    # A place that the user names is the user's decision.
    (cli.directory / "own.md").write_text("an older report")
    assert cli("report", study, "-o", cli.directory / "own.md").code == 0
    assert "study" in (cli.directory / "own.md").read_text()


@pytest.mark.parametrize(
    "command",
    [("report",), ("export", "--format", "optuna"), ("export", "--format", "tensorboard")],
)
def test_nothing_is_written_unasked_into_a_directory_of_another_user(
    cli: InProcess, study: Path, command: tuple[str, ...]
) -> None:
    given_away(study)
    before = sorted(study.iterdir())
    ended = cli(command[0], study, *command[1:])
    assert ended.code == 2
    assert "belongs to user nobody" in ended.err
    assert "-o" in ended.err
    assert sorted(study.iterdir()) == before


def test_a_named_place_is_not_reached_through_a_link_of_another_user(
    cli: InProcess, study: Path
) -> None:
    mine = cli.file("mine.csv", "mine")
    link = cli.directory / "trials.csv"
    link.symlink_to(mine)
    assert cli("export", study, "-o", link).code == 0  # the user's own link
    assert link.is_symlink()
    mine.write_text("mine")
    given_away(link)
    ended = cli("export", study, "-o", link)
    assert ended.code == 2
    assert "is a symbolic link that user nobody made" in ended.err
    assert mine.read_text() == "mine"


def test_an_output_may_be_a_device(cli: InProcess, study: Path) -> None:
    (cli.directory / "null.csv").symlink_to("/dev/null")
    assert cli("export", study, "-o", cli.directory / "null.csv").code == 0
    assert Path("/dev/null").is_char_device()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        here = Path.cwd()
        os.chdir(path.parent)  # the name of a socket is short
        end.bind(path.name)
        os.chdir(here)


@pytest.mark.parametrize("put", [_pipe, Path.mkdir, _socket], ids=["pipe", "directory", "socket"])
@pytest.mark.parametrize("name", ["lock", "lease", "requests", "study.db", "scaling.json"])
def test_whatever_lies_in_one_study_the_commands_answer_and_list_the_others(
    cli: InProcess, study: Path, name: str, put: Callable[[Path], None]
) -> None:
    other = cli.study("other")
    typical(other)
    (study / name).unlink(missing_ok=True)
    put(study / name)
    listed = cli("list", cli.directory)
    assert listed.code == 0, listed.err
    assert "other" in listed.out
    if name in ("lock", "lease"):
        assert f"study/{name} is a link, a pipe or a directory" in " ".join(listed.out.split())
    for command in (("status", study), ("stop", study), ("resume", study, "--trials", "99")):
        ended = cli(*command)
        assert "Traceback" not in ended.err
        assert ended.code in (0, 1, 2)


def test_no_command_waits_for_a_pipe_in_the_place_of_a_trials_file(
    cli: InProcess, study: Path
) -> None:
    places = ("best/best.json", "trials/2/log.txt", "jobs/shown.json", "scaling.json")
    for place in places:
        (study / place).parent.mkdir(exist_ok=True)
        (study / place).unlink(missing_ok=True)
        os.mkfifo(study / place)
    for command in ("status", "best", "report", "trials", "export"):
        assert cli(command, study).code in (0, 1), command
    assert cli("show", study, 2).code == 0
    assert "4/10 and 1/1 confirmations, 1 failed" in cli("list", cli.directory).out
    log = cli("log", study, 2)
    assert log.code == 1
    assert "log.txt is a link, a pipe or a directory" in log.err


def test_a_request_is_not_written_through_a_link(cli: InProcess, study: Path) -> None:
    keys = cli.file("authorized_keys", "mine")
    (study / "requests").unlink(missing_ok=True)
    (study / "requests").symlink_to(keys)
    cli("enqueue", study, "x=0.5")
    assert keys.read_text() == "mine"

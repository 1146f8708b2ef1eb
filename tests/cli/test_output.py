"""Output that cannot be written, and colours that are not wanted."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from hptune.study.dashboard import follow_log
from in_process import InProcess
from real_runs import Hptune, Terminal
from stored_study import typical


@pytest.fixture
def study(tmp_path: Path) -> Path:
    typical(tmp_path / "study")
    return tmp_path / "study"


def shell(command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a shell's line, in which "$@" stands for hptune and the arguments."""
    hptune = [sys.executable, "-m", "hptune", *map(str, arguments)]
    line = ["bash", "-c", f'"$@" {command}', "bash", *hptune]
    return subprocess.run(line, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("arguments", [("export",), ("trials", "--json"), ("status",)])
def test_a_full_disk_is_one_message(study: Path, arguments: tuple[str, ...]) -> None:
    command, *options = arguments
    ended = shell("> /dev/full", command, study, *options)
    assert ended.returncode == 1
    assert ended.stderr == "Error: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("command", ["report", "export"])
def test_so_is_a_place_on_a_full_disk(cli: InProcess, study: Path, command: str) -> None:
    place = cli.directory / ("full.csv" if command == "export" else "full.md")
    place.symlink_to("/dev/full")
    ended = cli(command, study, "-o", place)
    assert (ended.code, "No space left on device; name another place" in ended.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("report", "-o", "page.md"), "page.md cannot be written: File too large (see `ulimit -f`"),
        (("export", "--format", "optuna"), "disk I/O error; check space, quota and `ulimit -f`"),
        (("export", "--format", "mlflow"), "disk I/O error; check space, quota and `ulimit -f`"),
    ],
)
def test_a_limit_on_the_size_of_files_is_named(
    cli: InProcess,
    study: Path,
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # what is imported now is larger
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, limits[1]))
    try:
        ended = cli(arguments[0], study, *arguments[1:])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (ended.code != 0, words in ended.err) == (True, True), ended.err


def test_a_name_as_long_as_a_file_may_have(cli: InProcess, study: Path) -> None:
    name = f"{'表' * 83}.csv"
    assert cli("export", study, "-o", cli.directory / name).code == 0
    assert [each.name for each in cli.directory.glob("*表*")] == [name]


def test_closed_streams_are_no_error_and_no_file_takes_their_place(study: Path) -> None:
    before = (study / "study.db").read_bytes()
    for command, *options in (("status",), ("export",), ("report", "-o", study / "report.md")):
        ended = shell("<&- >&- 2>&-", command, study, *options)
        assert ended.returncode == 0, command
    assert (study / "study.db").read_bytes() == before
    assert (study / "report.md").read_text().startswith("# study")
    ended = shell(">&-", "best", study / "nowhere")
    assert (ended.returncode, "no study" in ended.stderr) == (2, True)


def test_no_colour_where_it_is_not_wanted(hptune: Hptune) -> None:
    for wish, mark in ({}, "\x1b["), ({"NO_COLOR": "1"}, "Error: "):
        terminal = Terminal()
        assert hptune.at(terminal, "status", "nowhere", TERM="xterm", **wish).wait().code == 2
        shown = terminal.rest()
        assert shown.startswith(mark), shown
        terminal.close()


def test_a_trial_of_a_number_that_no_database_holds(cli: InProcess, study: Path) -> None:
    for command in ("show", "log"):
        ended = cli(command, study, 10**20)
        assert ended.code == 2
        assert f"has no trial {10**20}; its trials are 0 to 5" in ended.err


def test_a_log_that_cannot_be_read(cli: InProcess, study: Path) -> None:
    (study / "trials" / "0" / "log.txt").mkdir(parents=True)
    ended = cli("log", study, 0)
    assert ended.code == 1
    assert "log.txt is a link, a pipe or a directory" in ended.err


def test_a_character_that_is_half_written_is_shown_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    written = "loss ↓ 0.5 日本\n".encode()
    shown, end = "", 0
    for size in range(1, len(written) + 1):
        log.write_bytes(written[:size])
        more, end = follow_log(log, end)
        shown += more
    assert (shown.encode(), end) == (written, len(written))
    log.write_bytes(b"\xff after a restart")
    assert follow_log(log, end)[0].endswith(" after a restart")


def test_an_export_for_a_tool_is_no_table(cli: InProcess, study: Path) -> None:
    ended = cli("export", study, "--format", "optuna", "-o", "trials.csv")
    assert ended.code == 2
    assert "--format is optuna, but the ending of trials.csv is .csv" in ended.err
    assert not (cli.directory / "trials.csv").exists()
    assert json.loads(cli("export", study, "--format", "json").out)["trials"]


def test_a_study_whose_name_is_no_text(cli: InProcess) -> None:
    """On a cluster with folders from the days of Latin-1, say."""
    name = os.fsdecode(b"stu\xdfy")
    typical(cli.directory / name)
    for command in (("status", "--json"), ("export",), ("report",), ("trials",)):
        assert cli(command[0], name, *command[1:]).code == 0, command
    for tool in ("optuna", "tensorboard"):
        ended = cli("export", name, "--format", tool, "-o", f"of-{tool}")
        assert ended.code == 0, ended.err
    assert cli("export", name, "-o", f"{name}.parquet").code == 0
    for tool in ("optuna", "mlflow"):
        ended = cli("export", name, "--format", tool)
        assert "is not UTF-8" in ended.err, ended.err
        assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("loaded", "said"),
    [
        ("hptune.cli", "interrupted\n"),
        ("hptune.master.stop_requests", "interrupted\n"),
        ("hptune.master.run", "interrupted; no study was made yet\n"),
    ],
)
def test_ctrl_c_while_hptune_is_loaded_is_no_traceback_and_leaves_nothing(
    tmp_path: Path, loaded: str, said: str
) -> None:
    (tmp_path / "model.py").write_text(
        "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n"
    )
    script = """
import sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "LOADED":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
from hptune.__main__ import main
main()
"""
    line = [sys.executable, "-P", "-c", script.replace("LOADED", loaded), "run", "model.py"]
    ended = subprocess.run(line, check=False, capture_output=True, text=True, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (130, said)
    assert [each.name for each in tmp_path.iterdir()] == ["model.py"]


def test_a_report_on_a_study_of_others_says_how_to_write_it_elsewhere(
    cli: InProcess, study: Path
) -> None:
    (study / "report.md").mkdir()  # no user may write a file there, not even root
    ended = cli("report", study, "--format", "md")
    assert ended.code == 2
    assert "report.md is not a file that hptune made, and is not replaced" in ended.err
    assert ended.err.endswith("name another place with -o\n")


def test_a_removed_working_directory_is_one_message(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = 'cd "$1" && rmdir "$1" && shift && "$@"'
    ended = subprocess.run(
        ["bash", "-c", line, "bash", str(gone), sys.executable, "-P", "-m", "hptune", "list"],
        check=False,
        capture_output=True,
        text=True,
    )
    words = "Error: the working directory was removed; change to one that exists\n"
    assert (ended.returncode, ended.stderr) == (2, words)


def test_a_terminal_gets_no_control_sequences_of_a_log(study: Path) -> None:
    log = study / "trials" / "2" / "log.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"\x1b[31mred\x1b[0m \x1b]0;title\x07\n")
    with contextlib.closing(Terminal()) as terminal:
        command = [sys.executable, "-m", "hptune", "log", str(study), "2"]
        subprocess.run(command, check=True, stdout=terminal.slave)
        shown = terminal.rest().encode()
    assert b"\x1b[31mred\x1b[0m" in shown
    assert b"\x1b]0;" not in shown
    assert b"?]0;title?" in shown
    ended = shell("| cat", "log", study, 2)
    assert "\x1b]0;title" in ended.stdout

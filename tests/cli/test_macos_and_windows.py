"""macOS and Windows: one sentence in place of a run, and studies that are read there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from child import answer_of
from in_process import InProcess
from stored_study import typical

WITHOUT_LINUX = """
import builtins, contextlib, fcntl, io, json, os, runpy, signal, socket, sys
# What is installed there has its own files for macOS.
import asyncio, click, ctypes.util, multiprocessing, numpy, platform, psutil, rich.console
import shutil, sqlite3, subprocess, uuid

for name in ("sched_getaffinity", "sched_setaffinity", "sched_getscheduler", "sched_setscheduler",
             "SCHED_BATCH", "memfd_create", "pidfd_open", "eventfd", "O_PATH", "O_TMPFILE",
             "posix_fadvise", "splice"):
    if hasattr(os, name):
        delattr(os, name)
for module in (fcntl, signal, socket):
    prefixes = ("F_OFD", "F_SEAL", "SIGRT", "AF_NETLINK")
    for name in [each for each in vars(module) if each.startswith(prefixes)]:
        delattr(module, name)
sys.platform = "darwin"


def hidden(function):
    def call(path, *arguments, **options):
        if isinstance(path, (str, bytes, os.PathLike)):
            if os.fsdecode(path).startswith(("/proc", "/sys")):
                raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
        return function(path, *arguments, **options)
    return call


for module, name in ((builtins, "open"), (io, "open"), (os, "open"), (os, "stat"), (os, "lstat"),
                     (os, "listdir"), (os, "scandir"), (os, "readlink"), (os, "access")):
    setattr(module, name, hidden(getattr(module, name)))
assert not os.path.exists("/proc/self/stat")

from hptune.cli import main

answers = []
for command in json.load(sys.stdin):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(command, prog_name="hptune")
        except SystemExit as end:
            code = end.code
    answers.append([code or 0, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


def without_linux(folder: Path, *commands: list[str]) -> list[tuple[int, str, str]]:
    """Return the exit codes and outputs of commands in a process that finds no Linux."""
    script = f"import os; os.chdir({str(folder)!r})\n{WITHOUT_LINUX}"
    answers: list[Any] = answer_of(script, given=commands)
    return [(code, out, err) for code, out, err in answers]


def test_a_copied_study_is_read_where_nothing_of_linux_is(cli: InProcess) -> None:
    typical(cli.study("studies/copied"))
    commands = [
        ["best", "studies/copied"],
        ["list", "studies"],
        ["status", "studies/copied"],
        ["trials", "studies/copied"],
        ["show", "studies/copied", "0"],
        ["space", "studies/copied"],
        ["report", "studies/copied", "-o", "report.md"],
        ["report", "studies/copied", "-o", "report.html"],
        ["export", "studies/copied", "--format", "csv", "-o", "trials.csv"],
        ["export", "studies/copied", "--format", "json", "-o", "trials.json"],
    ]
    there = without_linux(cli.directory, *commands)
    for command, (code, out, err) in zip(commands, there, strict=True):
        here = cli(*command)
        assert (code, out, err) == (here.code, here.out, here.err), command


@pytest.mark.parametrize("command", [["run", "model.py"], ["scaling", "model.py"]], ids=" ".join)
def test_a_run_there_says_what_works(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "model.py").write_text(
        "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n"
    )
    ((code, _, err),) = without_linux(tmp_path, command)
    assert (code, err.count("\n")) == (2, 1), err
    assert "on Linux only" in err
    assert not (tmp_path / "studies").exists()


def test_windows_is_told_what_works_before_anything_is_imported() -> None:
    script = "import os; os.name = 'nt'; from hptune.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=200
    )
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert "WSL2" in ended.stderr

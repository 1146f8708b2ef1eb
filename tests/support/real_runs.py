"""The real command in real processes, and the proof that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import termios
import textwrap
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

COMMAND = Path(sys.executable).with_name("hptune")
MARK = "HPTUNE_TEST_MARK"


def wait_for(condition: Callable[[], Any], what: str, *, seconds: float = 200.0) -> Any:
    """Wait until a condition is true, and return its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} s for {what}")
        time.sleep(0.02)
    return value


def is_alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that is over."""

    code: int
    out: str
    err: str


class Started:
    """A command that runs, as the leader of a process group, as a terminal would start it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    @property
    def pid(self) -> int:
        return self.process.pid

    def interrupt(self) -> None:
        """Ctrl-C: the terminal signals the whole foreground group."""
        os.killpg(self.pid, signal.SIGINT)

    def kill(self) -> None:
        """`kill -9` of the master alone."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.communicate(timeout=120)

    def leave(self) -> str:
        """Send SIGTERM, on which it ends in good order; return its output."""
        self.process.terminate()
        ended = self.wait()
        assert ended.code == 0, ended
        return ended.out

    def wait(self, *, seconds: float = 240.0) -> Ended:
        """Wait until it has ended; fail, with its output until then, if that takes too long."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            pytest.fail(f"not ended after {seconds:g} s; output {late.output!r}, {late.stderr!r}")
        return Ended(self.process.returncode, out, err)


class Terminal:
    """A terminal of a command's own; it is not read until `read` is called.

    Args:
        is_full: Whether it takes no more from the start, as after Ctrl-S.
    """

    def __init__(self, *, is_full: bool = False) -> None:
        self._master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, (40, 120))
        self._read = bytearray()
        if is_full:
            self._fill()

    def _fill(self) -> None:
        os.set_blocking(self.slave, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(self.slave, b"." * 64)
        os.set_blocking(self.slave, True)

    def read(self) -> str:
        """Return all that was written until now."""
        while select.select([self._master], [], [], 0.05)[0]:
            try:
                self._read += os.read(self._master, 65536)
            except OSError:  # all who could write have gone
                break
        return self._read.decode()

    def rest(self) -> str:
        """Return all that was written by commands that have ended.

        The kernel hands on what is written to a terminal a moment later, in order.
        """
        self.read()
        os.write(self.slave, b"\0")
        wait_for(lambda: self.read().endswith("\0"), "what was written to the terminal")
        del self._read[-1:]
        return self._read.decode()

    def close(self) -> None:
        os.close(self._master)
        os.close(self.slave)


class Hptune:
    """Runs `hptune` in a directory of its own, with every process of the run marked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        # Short: a socket's path may have some hundred characters only.
        self.temporary = Path(tempfile.mkdtemp(prefix="t", dir="/tmp"))
        self._mark = uuid.uuid4().hex
        self._started: list[Started] = []

    def file(self, name: str, text: str) -> Path:
        """Write a model file."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        return path

    def start(self, *arguments: object, **environment: str) -> Started:
        return self._start([COMMAND, *map(str, arguments)], environment)

    def other(self, *command: object, **environment: str) -> Started:
        """Start a command that is not `hptune`."""
        return self._start([*map(str, command)], environment)

    def at(self, terminal: Terminal, *arguments: object, **environment: str) -> Started:
        """Start the command at a terminal."""
        return self._start([COMMAND, *map(str, arguments)], environment, terminal)

    def script(self, text: str, *, terminal: Terminal | None = None, **environment: str) -> Started:
        """Start a Python script of the user's, at a terminal if one is given."""
        return self._start([sys.executable, self.file("script.py", text)], environment, terminal)

    def _start(
        self,
        command: list[Any],
        environment: Mapping[str, str],
        terminal: Terminal | None = None,
    ) -> Started:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if terminal is None else terminal.slave,
            stderr=subprocess.PIPE if terminal is None else terminal.slave,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.directory,
            env=self.environment(**environment),
            start_new_session=True,
        )
        started = Started(process)
        self._started.append(started)
        return started

    def __call__(self, *arguments: object, seconds: float = 240.0, **environment: str) -> Ended:
        return self.start(*arguments, **environment).wait(seconds=seconds)

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, MARK: self._mark, "TMPDIR": str(self.temporary), **more}

    def study(self, name: str = "study") -> Path:
        return self.directory / name

    def processes(self) -> dict[int, str]:
        """Return the names and commands of all living processes of this test.

        Those in other process groups are among them.
        """
        wanted = f"{MARK}={self._mark}".encode()
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                    words = (entry / "comm").read_bytes() + command
                    if is_alive(int(entry.name)):
                        found[int(entry.name)] = words.decode(errors="replace")
        return found

    def leftovers(self) -> list[str]:
        """Return the folders of runs in the temporary directory."""
        return [path.name for path in self.temporary.glob("hptune-*")]

    def assert_nothing_left(self, *, seconds: float = 120.0) -> None:
        """Check that no process (so no port either) and no temporary folder is left."""
        deadline = time.monotonic() + seconds
        while (self.processes() or self.leftovers()) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = (self.processes(), self.leftovers())
        assert left == ({}, []), f"left behind: {left}"

    def close(self) -> None:
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
                started.process.communicate()
            for stream in (started.process.stdout, started.process.stderr):
                if stream is not None:
                    stream.close()
        try:
            self.assert_nothing_left()
        finally:
            for pid in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            shutil.rmtree(self.temporary, ignore_errors=True)


def rows(study: Path, query: str) -> list[dict[str, Any]]:
    """Return rows of the ledger, none before there is one.

    It is opened for writing, to roll back a killed master's journal.
    """
    if not (study / "study.db").exists():
        return []
    with contextlib.closing(
        sqlite3.connect(f"{(study / 'study.db').as_uri()}?mode=rw", uri=True, timeout=60.0)
    ) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(query)]


def trials(study: Path) -> list[dict[str, Any]]:
    """Return the ledger's trials, with their params decoded."""
    found = rows(study, "SELECT * FROM trials ORDER BY number")
    return [{**row, "params": json.loads(row["params"])} for row in found]


def states(study: Path) -> dict[str, int]:
    """Return how many trials there are in each state."""
    counts: dict[str, int] = {}
    for trial in trials(study):
        counts[trial["state"]] = counts.get(trial["state"], 0) + 1
    return counts

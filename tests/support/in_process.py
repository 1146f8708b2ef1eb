"""The command called as a function, for tests in which no process of hptune's is the subject."""

from __future__ import annotations

import contextlib
import runpy
import signal
import textwrap
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hptune.cli import main
from hptune.worker.forkserver.client import ForkServer
from real_runs import Ended

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM)


class SharedForkServer:
    """Replacement of a run's own fork server by one that is shared and stays."""

    def __init__(self, shared: ForkServer) -> None:
        self._shared = shared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)

    def close(self) -> None:
        """Do nothing: others use it as well."""

    rest = close


class InProcess:
    """Calls `hptune` in this process, in a directory of its own."""

    def __init__(self, directory: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.directory = directory
        self._capture = capture

    def __call__(self, *arguments: object) -> Ended:
        self._capture.readouterr()
        try:
            with signals_kept():
                main([str(each) for each in arguments], prog_name="hptune")
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        return Ended(code, *self._capture.readouterr())

    def script(self, text: str) -> Ended:
        """Run a Python script in this process, as its `__main__`."""
        path = self.file("script.py", text)
        self._capture.readouterr()
        code = 0
        try:
            with signals_kept():
                runpy.run_path(str(path), run_name="__main__")
        except Exception:
            traceback.print_exc()
            code = 1
        return Ended(code, *self._capture.readouterr())

    def file(self, name: str, text: str) -> Path:
        """Write a model file."""
        path = self.directory / name
        path.write_text(textwrap.dedent(text))
        return path

    def study(self, name: str = "study") -> Path:
        return self.directory / name


def refused(ended: Ended, directory: Path, *words: str) -> None:
    """Check that a command ended in one usage error with these words, and left no files."""
    assert ended.code == 2, ended.err
    assert ended.err.count("\nError: ") + ended.err.startswith("Error: ") == 1, ended.err
    message = f"\n{ended.err}".rpartition("\nError: ")[2]
    if not ended.err.startswith("Usage: "):  # which is click's own
        assert not message.partition(" ")[0].istitle(), "the message continues after a colon"
    for word in words:
        assert word in ended.err, ended.err
    # Unless trials ran that could not tell it before.
    assert "was removed" not in ended.err
    assert "tuner/hptune/" not in ended.err, "a traceback of ours"
    assert not (directory / "study").exists()
    assert not (directory / "studies").exists()


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Undo what a command does to this process's signals."""
    kept = {each: signal.getsignal(each) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in kept.items():
            signal.signal(each, handler)

"""What the fork server tells of trials that ended."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hptune.worker.forkserver import orphans, server


def test_what_cannot_be_killed_delays_one_end_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a program of root's that a trial started."""
    told: list[Any] = []
    client: Any = SimpleNamespace(send=told.append)
    ended = [(os.getpid(), 0)]
    monkeypatch.setattr(orphans, "children", lambda: {4711})
    monkeypatch.setattr(orphans, "kill", lambda _, *, spares_trackers: spares_trackers)
    monkeypatch.setattr(os, "waitpid", lambda *_: ended.pop() if ended else (0, 0))
    serving = server._Server(str(tmp_path / "server"), 0)
    serving._children[os.getpid()] = server._Child("first", client)
    serving._reap()
    assert told == []
    monkeypatch.setattr(serving, "_tell_at", time.monotonic())
    serving._reap()
    assert told == [("first", 0)]
    serving._children[os.getpid()] = server._Child("second", client)
    ended.append((os.getpid(), 0))
    serving._reap()
    assert told[1:] == [("second", 0)]
    serving._listener.close()

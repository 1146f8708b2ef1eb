"""A worker's half of the exchange of files, with a master that the test plays."""

from __future__ import annotations

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from hptune.core.attempt import AttemptId
from hptune.worker.transport.notices import FilesChanged
from hptune.worker.transport.remote_study import NotSent, RemoteStudy
from real_runs import wait_for


def test_a_worker_sends_until_the_end_of_the_attempt_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between two notices, while it looks for what is left to send."""
    notices, ended = queue.SimpleQueue[Any](), list[NotSent | None]()
    looking, go = threading.Event(), threading.Event()
    study = RemoteStudy(tmp_path, worker="w", limit_bytes=10**9, tell=notices.put)
    attempt = AttemptId(3, 0)
    study.begin(attempt)

    def sends() -> bool:
        return study.sends

    assert not sends()
    (tmp_path / "trials" / "3" / "model.keras").write_text("whole")
    study.finish(attempt, ended.append)
    notice = notices.get(timeout=200.0)
    assert isinstance(notice, FilesChanged)
    assert sends()
    look = study._local.look

    def slowly(*given: Any, **named: Any) -> Any:
        looking.set()
        assert go.wait(200.0)
        return look(*given, **named)

    monkeypatch.setattr(study._local, "look", slowly)
    study.taken(notice.ticket, [each.state.path for each in notice.changes.changed], None)
    assert looking.wait(200.0)
    assert sends()
    go.set()
    wait_for(lambda: ended, "the end of the attempt")
    assert ended == [None]
    assert not sends()
    study.close()

"""Calls of programs that wait for the study's lock, which the program that has it answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import hptune
from asked_studies import Clock, opened
from hptune.ask_tell import followed, session
from hptune.ask_tell.study import AskedStudy
from hptune.ask_tell.trial import AskedTrial
from hptune.core.messages import UserRequested
from hptune.core.trial import TrialState
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader
from thread_masters import until


def asks(study: AskedStudy, trial: AskedTrial) -> None:
    assert study.ask().number in (0, 1, 2, 3)


def reports(study: AskedStudy, trial: AskedTrial) -> None:
    trial.report(1, loss=0.5)
    assert [each.value for each in study.reports(trial.number)] == [0.5]


def tells(study: AskedStudy, trial: AskedTrial) -> None:
    told = study.tell(trial, loss=0.5)
    assert (told.state, told.value) == (TrialState.COMPLETE, 0.5)


CALLS = [asks, reports, tells]


@pytest.mark.parametrize("call", CALLS, ids=lambda each: str(each.__name__))
@pytest.mark.parametrize("is_past_its_lease", [False, True])
def test_who_has_the_lock_answers_who_waits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: Callable[[AskedStudy, AskedTrial], None],
    is_past_its_lease: bool,
) -> None:
    """A trial whose program waits to report or to tell is not lost past its lease."""
    clock = Clock()
    monkeypatch.setattr(followed, "time", clock)
    monkeypatch.setattr(session, "_later", lambda _: float("inf"))  # the waiting takes no lock
    path = tmp_path / "study"
    one, other = opened(path, lease="5m"), hptune.open_study(path, lease="5m")
    trial, _ = other.ask(), one.ask()
    lock = StudyDirectory(path).acquire(is_program=True)
    waiting = threading.Thread(target=lambda: call(other, trial))
    waiting.start()
    until(lambda: (path / "requests").stat().st_size > 0)
    lock.release()
    clock.ahead_seconds = 301.0 if is_past_its_lease else 0.0
    one.ask()
    waiting.join(10.0)
    assert not waiting.is_alive()
    events = [*LedgerReader(StudyDirectory(path)).events()]
    assert sum(isinstance(each, UserRequested) for each in events) == 1
    assert replay(StudyDirectory(path)).difference is None

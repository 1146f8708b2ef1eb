"""Calls of programs that wait for the study's lock, which the program that has it answers."""

from __future__ import annotations

import json
import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import hptune
from asked_studies import Clock, opened
from hptune.ask_tell import calls, followed, session
from hptune.ask_tell.calls import PublishedCalls
from hptune.ask_tell.study import AskedStudy
from hptune.ask_tell.trial import AskedTrial
from hptune.core.messages import UserRequested
from hptune.core.trial import TrialState
from hptune.core.user_requests import RequestAnswer
from hptune.master.programs import program
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader
from hptune.storage.requests import RequestFile
from thread_masters import until


def asks(study: AskedStudy, trial: AskedTrial) -> None:
    assert study.ask().number in (0, 1, 2, 3)


def reports(study: AskedStudy, trial: AskedTrial) -> None:
    trial.report(2, loss=0.5)
    assert [each.value for each in study.reports(trial.number)] == [0.6, 0.5]


def tells(study: AskedStudy, trial: AskedTrial) -> None:
    told = study.tell(trial, loss=0.5)
    assert (told.state, told.value, told.rungs) == (TrialState.COMPLETE, 0.5, {1: (0.6,)})


def declares(study: AskedStudy, trial: AskedTrial) -> None:
    trial.hp.Float("y", 0.0, 1.0)
    assert "y" in study.trial(trial.number).params


def tells_what_it_used(study: AskedStudy, trial: AskedTrial) -> None:
    trial.hp.Float("x", 0.0, 1.0)
    assert study.tell(trial, loss=0.5).unused == ("kind",)


CALLS = [asks, reports, tells, declares, tells_what_it_used]


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
    one = opened(path, lease="5m", pruner="asha", epochs=3, min_epochs=1)
    other = hptune.open_study(path, lease="5m")
    trial, _ = other.ask(), one.ask()
    trial.report(1, loss=0.6)
    events_told = 2 if call is tells_what_it_used else 1
    lock = StudyDirectory(path).acquire(is_brief=True)
    waiting = threading.Thread(target=lambda: call(other, trial), daemon=True)
    waiting.start()
    until(lambda: (path / "requests").read_text().count("}\n") == events_told)
    lock.release()
    clock.ahead_seconds = 301.0 if is_past_its_lease else 0.0
    one.ask()
    waiting.join(10.0)
    assert not waiting.is_alive()
    events = [*LedgerReader(StudyDirectory(path)).events()]
    assert sum(isinstance(each, UserRequested) for each in events) == events_told
    assert replay(StudyDirectory(path)).difference is None


# --- what is published only saves time ------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


@contextmanager
def waiting(
    path: Path, call: Callable[[], object], then: Callable[[], object] = lambda: None
) -> Iterator[str]:
    """Let a call wait for a lock that is taken during the context; yields the call's name."""
    with StudyDirectory(path).acquire(is_brief=True):
        thread = threading.Thread(target=call)
        thread.start()
        file = path / "requests"
        until(lambda: file.read_text().endswith("}\n"))
        yield json.loads(file.read_text())["name"]
    then()
    thread.join(10.0)
    assert not thread.is_alive()


def begun(path: Path) -> int:
    """Return how many attempts were given to programs."""
    return len(LedgerReader(StudyDirectory(path)).attempts())


@pytest.mark.parametrize("text", ["", "[1,2]", "{", '[null,"no",null,null,null]'])
def test_an_answer_that_is_none_is_looked_for_in_the_ledger(path: Path, text: str) -> None:
    other = opened(path)
    trial = other.ask()
    with waiting(path, lambda: trial.report(1, loss=0.5)) as name:
        StudyDirectory(path).requests.answer([RequestAnswer(name, text)])
    assert [each.value for each in other.reports(0)] == [0.5]


def test_a_program_that_cannot_read_the_file_asks_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(path, trials=1), hptune.open_study(path)
    with monkeypatch.context() as patched, waiting(path, other.ask):
        patched.setattr(RequestFile, "read_all", lambda _: [])
    other.asked_trial(0).release()
    assert one.ask().number == 0
    assert begun(path) == 2


def test_who_is_interrupted_while_it_publishes_gets_no_trial(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(path), hptune.open_study(path)
    append = RequestFile.append

    def interrupted(file: RequestFile, *arguments: Any) -> None:
        append(file, *arguments)
        raise KeyboardInterrupt

    with StudyDirectory(path).acquire(is_brief=True), monkeypatch.context() as patched:
        patched.setattr(RequestFile, "append", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other.ask()
    one.ask()
    assert begun(path) == 1


def test_a_killed_program_gets_no_trial(path: Path) -> None:
    one = opened(path)
    with StudyDirectory(path).acquire(is_brief=True):
        killed = multiprocessing.get_context("fork").Process(
            target=lambda: hptune.open_study(path).ask()
        )
        killed.start()
        until(lambda: (path / "requests").read_text().endswith("}\n"))
        killed.kill()
        killed.join()
    one.ask()
    assert begun(path) == 1


def test_a_withdrawn_call_does_not_happen_however_much_follows(path: Path) -> None:
    one, file = opened(path), StudyDirectory(path).requests
    one.ask()
    PublishedCalls(StudyDirectory(path)).publish({"a": program(60.0)})
    file.answer([RequestAnswer("b", "c" * 1000)] * 1100)
    file.answer([RequestAnswer("a", "")])
    one.ask()
    assert begun(path) == 2


def test_the_file_of_calls_begins_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_later", lambda _: float("inf"))  # the waiting takes no lock
    monkeypatch.setattr(calls, "UNANSWERED_SECONDS", float("inf"))
    monkeypatch.setattr("hptune.storage.requests._MOST_BYTES", 4000)
    one, other = opened(path, trials=24), hptune.open_study(path)
    file, sizes = path / "requests", [0]
    for _ in range(12):
        with StudyDirectory(path).acquire(is_brief=True):
            thread = threading.Thread(target=other.ask, daemon=True)
            thread.start()
            until(lambda: file.stat().st_size > sizes[-1])
        one.ask()
        thread.join(10.0)
        assert not thread.is_alive()
        sizes.append(file.stat().st_size)
    assert sizes != sorted(sizes)
    assert max(sizes) < 6000
    assert begun(path) == 24


def test_a_call_too_long_to_publish_waits_for_the_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hptune.storage.requests._MOST_BYTES", 600)
    other = opened(path)
    trial = other.ask()
    lock = StudyDirectory(path).acquire(is_brief=True)
    threading.Timer(0.1, lock.release).start()
    trial.report(1, loss=0.5, **{f"loss_{number}": 0.5 for number in range(60)})
    assert other.reports(0)[0].value == 0.5


def test_another_programs_answer_has_the_whole_trial(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_later", lambda _: float("inf"))  # the waiting takes no lock
    one = hptune.open_study(path, {"x": [1, 2]}, ["loss:min", "acc:max"], trials=2, seed=1)
    other = hptune.open_study(path)
    trial, told = other.ask(), list[object]()
    with waiting(path, lambda: told.append(other.tell(trial, loss=0.5, acc=0.25)), one.ask):
        pass
    assert told == [other.trials[0]]

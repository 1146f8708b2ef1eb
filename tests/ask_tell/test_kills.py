"""Programs that are killed between any two writes: nothing is lost, and nothing is told twice."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hptune
from asked_studies import Clock
from hptune.ask_tell import followed
from hptune.core.attempt import Cause
from hptune.core.trial import TrialState
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader

TRIALS = 3
_WRITES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.utime", "shutil.rmtree")


class Death:
    """Kills this process at a write: a change of a file, or the end of a transaction of SQLite.

    What a transaction has written before its end leaves nothing, so killing there shows no more.
    """

    def __init__(self, at: int) -> None:
        self._left = at
        self._is_ready = False

    def arm(self) -> None:
        sys.addaudithook(self._on_audit)
        opened = Ledger.open

        def traced(*arguments: Any, **options: Any) -> Ledger:
            ledger = opened(*arguments, **options)
            connection = ledger._connection

            def on_statement(statement: str) -> None:
                is_read = statement.startswith(("SELECT", "BEGIN"))
                if statement == "COMMIT" or not (is_read or connection.in_transaction):
                    self.count()

            connection.set_trace_callback(on_statement)
            return ledger

        Ledger.open = traced  # type: ignore[method-assign]
        self._is_ready = True

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        is_write = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if self._is_ready and (event in _WRITES or is_write):
            self.count()

    def count(self) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def killed_at(write: int, work: Callable[[Callable[[str], None]], None]) -> tuple[bool, list[str]]:
    """Run work in a child that is killed at a write; return whether it was, and what it had done.

    Args:
        write: The number of the write, from 1.
        work: Calls its argument with each thing that it knows to be done.
    """
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.close(reading)
            Death(write).arm()
            work(lambda done: _write(writing, done))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as done:
        lines = done.read().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0, lines


def _write(pipe: int, done: str) -> None:
    os.write(pipe, f"{done}\n".encode())


def test_a_program_that_is_killed_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(followed, "time", clock)
    settings = {"search": "random", "trials": TRIALS, "seed": 1, "lease": "1h", "epochs": 3}
    template = tmp_path / "template"
    hptune.open_study(template, objective="loss:min", **settings)  # type: ignore[arg-type]

    for write in itertools.count(1):
        path = tmp_path / f"study-{write}"
        shutil.copytree(template, path)

        def work(done: Callable[[str], None], path: Path = path) -> None:
            study = hptune.open_study(path, trials=TRIALS + 1)
            trial = study.ask()
            done("asked 0")
            x = trial.hp.Float("x", 0.0, 1.0, default=0.5)
            done("declared 0")
            trial.report(1, loss=x)
            done("reported 0")
            study.tell(trial, loss=0.25)
            done("told 0")
            one, other = study.ask(2)
            study.tell(one, failed="diverged")
            done("failed 1")
            other.release()

        was_killed, done = killed_at(write, work)
        _check_and_complete(path, done, clock)
        shutil.rmtree(path)
        if not was_killed:
            break
    assert write > 50, "every write was met"


def _check_and_complete(path: Path, done: list[str], clock: Clock) -> None:
    """Check that all that was done is there, and that the study can be told to its end."""
    study = hptune.open_study(path, trials=TRIALS + 1)
    trials = study.trials
    reported = [each.value for each in study.reports(0)]
    assert reported == [0.5] or not (reported or "reported 0" in done)
    if "told 0" in done:
        assert (trials[0].state, trials[0].value) == (TrialState.COMPLETE, 0.25)
        assert study.directory.joinpath("best", "best.json").exists()
    if "failed 1" in done:
        assert trials[1].state is TrialState.FAILED
    if "declared 0" in done:
        assert [each.name for each in study.space] == ["x"]
    before = {trial.number: trial.value for trial in trials if trial.state.is_final}

    clock.ahead_seconds += 3601.0
    for trial in study.trials_to_run():
        with trial:
            trial.tell(loss=1.0 + trial.hp.Float("x", 0.0, 1.0, default=0.5))
    states = Counter(trial.state for trial in study.trials)
    assert states[TrialState.COMPLETE] + states[TrialState.FAILED] == TRIALS + 1
    for number, value in before.items():
        assert study.trials[number].value == value
    endings = Counter(
        each.id.trial
        for each in LedgerReader(StudyDirectory(path)).attempts()
        if each.cause in (Cause.RETURNED, Cause.EXCEPTION)
    )
    assert set(endings.values()) == {1}, "each was told once"
    best = study.best_trial
    assert f'"trial": {best.number}' in study.directory.joinpath("best", "best.json").read_text()
    assert replay(StudyDirectory(path)).difference is None
    with sqlite3.connect(path / "study.db") as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)

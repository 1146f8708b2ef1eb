"""What a reader shows of a study that is written between any two of its reads: one state, no error.

Before each transaction of a reader, a batch of a master's events is written. A reader that reads a
view in more than one transaction mixes two states.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from fake_study import attempt, trial
from hptune.core.attempt import Cause, Outcome
from hptune.core.messages import UserRequested
from hptune.core.trial import Trial, TrialState
from hptune.core.user_requests import Note, UserAction
from hptune.errors import StudyError
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader, damage_errors, database
from hptune.study.dashboard import folder_server, study_server
from hptune.study.study import Study, find_directories, listed
from in_process import InProcess
from stored_study import curve, typical

Write = Callable[[Ledger, int], None]


def a_better_trial_ends(ledger: Ledger, number: int) -> None:
    best = 0.95 + number / 1000
    metrics = {"val_accuracy": best, "val_loss": 1.0 - best}
    ledger.append(
        curve(number, [0.6, best]),
        trials=[trial(number, value=best, step=2, metrics=metrics)],
        attempts=[attempt(number, ended_at=1200.0, outcome=Outcome.FINISHED, cause=Cause.RETURNED)],
    )


def a_trial_is_stopped(ledger: Ledger, number: int) -> None:
    metrics = {"val_accuracy": 0.4, "val_loss": 0.6}
    ledger.append(
        curve(number, [0.4]),
        trials=[trial(number, TrialState.PRUNED, value=0.4, step=1, metrics=metrics)],
        attempts=[attempt(number, ended_at=1200.0, outcome=Outcome.PRUNED, cause=Cause.PRUNED)],
    )


def a_trial_fails(ledger: Ledger, number: int) -> None:
    ledger.append(
        [],
        trials=[trial(number, TrialState.FAILED, reason="ValueError")],
        attempts=[attempt(number, ended_at=1200.0, outcome=Outcome.ERRORED, cause=Cause.EXCEPTION)],
    )


def a_note_is_written(ledger: Ledger, number: int) -> None:
    note = Note("odd", ("odd",))
    ledger.append(
        [UserRequested(1300.0, f"n{number}", UserAction.NOTE, "ada", number - 1, note=note)]
    )


WRITES = (a_better_trial_ends, a_trial_is_stopped, a_trial_fails, a_note_is_written)


class Master:
    """Writes the next batch whenever a reader begins a transaction."""

    def __init__(self, directory: StudyDirectory, write: Write) -> None:
        self._directory = directory
        self._write = write
        self._running = itertools.count(5)
        self.written = 0

    def __call__(self) -> None:
        number = next(self._running)
        with Ledger.open(self._directory) as ledger:
            self._write(ledger, number)
            # The next trial runs, and its predecessor may not have ended with a result.
            ledger.append(
                curve(number + 1, [0.5]),
                trials=[trial(number + 1, TrialState.RUNNING)],
                attempts=[attempt(number + 1, placed_at=1100.0)],
            )
        self.written += 1


@pytest.fixture(params=WRITES, ids=lambda write: write.__name__)
def master(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Master:
    """Return the master of a study in `tmp_path / "study"` that writes before each transaction."""
    found = Master(typical(tmp_path / "study"), request.param)
    connect = database.connect

    def connected(*arguments: Any, **options: Any) -> sqlite3.Connection:
        found()
        return connect(*arguments, **options)

    monkeypatch.setattr(database, "connect", connected)
    return found


Asked = tuple[str, str, dict[str, object]]


def ask(answer: Callable[[str, str], Any], *asked: Asked) -> None:
    """Ask a live page for everything that it has, twice."""
    for method, name, body in asked * 2:
        found = answer(method, name)
        assert found(body)


@pytest.fixture
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `study_server` and `folder_server` return what answers requests."""
    monkeypatch.setattr("hptune.study.dashboard.PageServer", lambda answer, _port: answer)


PAGE: tuple[Asked, ...] = (
    ("GET", "", {}),
    ("POST", "state", {"seen": ["history", "curves", "trials"]}),
    ("POST", "curves", {"metric": "val_loss"}),
    ("POST", "curves", {"trial": 5}),
)
FOLDER: tuple[Asked, ...] = (("GET", "", {}), ("POST", "state", {"chosen": None, "known": ""}))

READERS: dict[str, Callable[[Study], object]] = {
    "view": Study.view,
    "trials": lambda study: study.trials,
    "trial": lambda study: study.trial(5),
    "complete trials": lambda study: study.complete_trials,
    "best trials": lambda study: study.best_trials,
    "best trial": lambda study: study.best_trial,
    "best hyperparameters": lambda study: study.best_hyperparameters,
    "goals": lambda study: study.goals,
    "space": lambda study: study.space,
    "notes": lambda study: study.notes,
    "tags": lambda study: study.tags,
    "repr": repr,
    "card": Study._repr_html_,
    "study trials": Study.study_trials,
    "exported": Study.exported,
    "setup": Study.setup,
    "report": Study.report_html,
    "markdown": Study.report_markdown,
    "history": Study.plot_history,
    "data frame": Study.trials_dataframe,
    "curves": Study.curves_dataframe,
    "best fault": lambda study: study.best_fault(study.view().front),
}


@pytest.mark.parametrize("name", READERS)
def test_python_reads_one_state(master: Master, tmp_path: Path, name: str) -> None:
    study = Study(tmp_path / "study")
    if name != "goals":
        _ = study.goals  # kept
    before = master.written
    READERS[name](study)
    assert master.written - before == 1, "more than one transaction"


COMMANDS = (
    *("status", "status --json", "status --watch", "best --json", "trials", "trials --json"),
    *("show 5", "show 3", "show 5 --json", "export --format csv", "export --format json"),
    *("export --curves", "report -o report.html", "report -o report.md", "space", "note"),
    *("note words", "note --trial 2 --tag odd", "list", "list --json"),
)


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_shows_one_state(
    master: Master, cli: InProcess, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.chdir(cli.directory)
    command, *options = line.split()
    places = ["."] if command == "list" else ["study"]
    ended = cli(command, *places, *options)
    # The study has no model files, which `best` says in the end.
    assert ended.code == 0 or (command == "best" and "is missing or damaged" in ended.err), ended
    assert master.written
    assert "unreadable" not in ended.out
    if "--json" in options:
        json.loads(ended.out)


@pytest.mark.parametrize("command", ["best", "list", "show", "status", "trials", "export"])
def test_a_command_reads_the_trials_once(
    cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    directory, calls = typical(tmp_path / "study"), []

    def trials(reader: LedgerReader) -> Sequence[Trial]:
        calls.append(reader)
        return read(reader)

    read = LedgerReader.trials
    monkeypatch.setattr(LedgerReader, "trials", trials)
    cli(command, tmp_path if command == "list" else directory, *(["2"] * (command == "show")))
    assert len(calls) == 1


@pytest.mark.usefixtures("_no_server")
def test_a_live_page_shows_one_state(master: Master, tmp_path: Path) -> None:
    server: Any = study_server(Study(tmp_path / "study"))
    ask(server, *PAGE)
    assert master.written


@pytest.mark.usefixtures("_no_server")
def test_the_page_of_a_folder_shows_one_state(master: Master, tmp_path: Path) -> None:
    server: Any = folder_server(
        tmp_path,
        find=lambda: find_directories(tmp_path),
        listed=listed,
        opened=Study,
    )
    ask(server, *FOLDER)
    assert master.written


def test_reads_of_their_own_are_of_two_states(master: Master, tmp_path: Path) -> None:
    reader = LedgerReader(StudyDirectory(tmp_path / "study"))
    assert reader.event_count() != reader.event_count()
    assert reader.snapshot(lambda now: now.event_count() == now.event_count())


def test_a_file_that_seems_damaged_is_read_once_more(tmp_path: Path) -> None:
    directory = typical(tmp_path / "study")
    reader, whole = LedgerReader(directory), directory.database.read_bytes()
    readings = []

    def read(now: LedgerReader) -> int:
        readings.append(now)
        if len(readings) == 1:
            with damage_errors(directory):
                raise ValueError("half of a copy")
        return len(now.trials())

    assert reader.snapshot(read) == 6
    directory.database.write_bytes(b"damaged" * 1000)
    with pytest.raises(StudyError, match="Restore it from a backup"):
        reader.trials()
    directory.database.write_bytes(whole)
    assert len(reader.trials()) == 6


def test_an_error_of_what_is_computed_is_no_damage(tmp_path: Path) -> None:
    reader = LedgerReader(typical(tmp_path / "study"))
    with pytest.raises(ZeroDivisionError):
        reader.snapshot(lambda now: len(now.trials()) / 0)
    with pytest.raises(ZeroDivisionError):
        Study(tmp_path / "study").read(lambda now: len(now.trials) / 0)

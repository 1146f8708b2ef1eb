"""Each view of a study at each moment of its life: what it is, or one line that says why not."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from fake_study import attempt, trial
from hptune.core.attempt import Cause, Outcome
from hptune.core.messages import Event, FinishReason, StopRequested, UserRequested
from hptune.core.trial import TrialState
from hptune.core.user_requests import UserAction
from hptune.storage.directory import StudyDirectory
from hptune.study.dashboard import folder_server, study_server
from hptune.study.study import Study, find_directories, listed
from in_process import InProcess
from stored_study import stored, typical

PAUSED = UserRequested(1200.0, "p", UserAction.PAUSE, "ada")
STOPS = StopRequested(1210.0, FinishReason.INTERRUPTED, "stopped by ada")
FAILED = tuple(trial(number, TrialState.FAILED, reason="ValueError: bad") for number in (0, 1))
BROKEN = tuple(
    attempt(number, ended_at=1010.0, outcome=Outcome.ERRORED, cause=Cause.EXCEPTION)
    for number in (0, 1)
)
OVER = (trial(0, value=0.8, step=3),)
ITS_ATTEMPT = (attempt(0, ended_at=1040.0, outcome=Outcome.FINISHED, cause=Cause.RETURNED),)


def _ended(reason: FinishReason, why: str = "") -> dict[str, Any]:
    return {"ended": {"finish_reason": str(reason), "reason": why}}


def _typical(path: Path, *events: Event, **facts: Any) -> StudyDirectory:
    from hptune.storage.ledger import Ledger

    directory = typical(path, **facts)
    with Ledger.open(directory) as ledger:
        ledger.append(events)
    return directory


MOMENTS: dict[str, tuple[Callable[[Path], StudyDirectory], bool]] = {
    "it begins": (lambda path: StudyDirectory(path).create(), True),
    "before the first trial": (stored, True),
    "measuring": (lambda path: stored(path, measuring=True), True),
    "the first trial runs": (
        lambda path: stored(path, [trial(0, TrialState.RUNNING)], [attempt(0)]),
        True,
    ),
    "running": (typical, True),
    "paused": (lambda path: _typical(path, PAUSED), True),
    "stopping": (lambda path: _typical(path, STOPS), True),
    "stopped": (
        lambda path: _typical(path, STOPS, **_ended(FinishReason.INTERRUPTED, "stopped by ada")),
        False,
    ),
    "paused, then stopped": (
        lambda path: _typical(path, PAUSED, STOPS, **_ended(FinishReason.INTERRUPTED, "by ada")),
        False,
    ),
    "its master was killed": (typical, False),
    "killed before the first trial": (stored, False),
    "killed while it measured": (lambda path: stored(path, measuring=True), False),
    "its run failed": (
        lambda path: _typical(path, **_ended(FinishReason.FAILED, "no worker could be had")),
        False,
    ),
    "all trials failed": (
        lambda path: stored(
            path, FAILED, BROKEN, **_ended(FinishReason.SAME_FAILURE, "ValueError: bad")
        ),
        False,
    ),
    "handed over": (
        lambda path: _typical(path, **_ended(FinishReason.HANDED_OVER, "job 7 is requeued")),
        False,
    ),
    "done": (lambda path: stored(path, OVER, ITS_ATTEMPT, **_ended(FinishReason.DONE)), False),
}
"""Each moment: what is in the study's directory, and whether a master runs."""

VIEWS = (
    *("status", "status --json", "best", "best --json", "trials", "trials --state failed"),
    *("trials --json", "show 0", "show 0 --json", "log 0", "export --format csv", "space"),
    *("report -o report.html", "report -o report.md", "note", "list", "list --json"),
)
UNWANTED = re.compile(r"Traceback|damaged|unreadable|\bNone\b|\bnan\b|\binf\b|Outcome\.|Errno")


@pytest.fixture(params=MOMENTS)
def moment(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Make a study in `tmp_path / "study"` at a moment; return the moment's name."""
    make, runs = MOMENTS[request.param]
    directory = make(tmp_path / "study")
    with ExitStack() as stack:
        if runs:
            stack.callback(directory.acquire().release)
        yield request.param


def test_each_view_says_what_there_is(moment: str, cli: InProcess) -> None:
    faults = []
    for line in VIEWS:
        name, *options = line.split()
        ended = cli(name, "." if name == "list" else "study", *options)
        complaints = ended.err.count("Error: ")
        # The files of its best model are not there, which `best` says of a study without a master.
        shown = f"{ended.out}{ended.err}".replace("is missing or damaged", "")
        is_right = complaints == (ended.code != 0) and not UNWANTED.search(shown)
        if moment == "it begins":
            said = ended.out if name == "list" else ended.err
            # A narrow column wraps the words of a list.
            is_right = is_right and "is being started" in " ".join(said.split())
        elif name in ("status", "trials", "list", "space", "note", "report", "export"):
            is_right = is_right and ended.code == 0
        if "--json" in options and ended.code == 0:
            json.loads(ended.out)
        if not is_right:
            faults.append((line, ended))
    assert not faults


def test_a_study_that_begins_is_the_newest(cli: InProcess) -> None:
    typical(cli.directory / "studies" / "before")
    begins = StudyDirectory(cli.directory / "studies" / "begins").create()
    lock = begins.acquire()
    try:
        ended = cli("status")
        assert "newest study: studies/begins\n" in ended.err
        assert "is being started by process" in ended.err
    finally:
        lock.release()
    assert "newest study: studies/before\n" in cli("status").err


Answer = Callable[[str, str], Callable[[dict[str, object]], Any]]
PAGE: list[tuple[str, str, dict[str, object]]] = [
    ("GET", "", {}),
    ("POST", "state", {"seen": ["history", "curves", "trials", "timeline", "importance"]}),
    ("POST", "curves", {"metric": "val_loss"}),
]


def test_each_page_answers(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hptune.study.dashboard.PageServer", lambda answer, _port: answer)
    folder: Any = folder_server(
        tmp_path, find=lambda: find_directories(tmp_path), listed=listed, opened=Study
    )
    assert folder("GET", "")({})
    assert folder("POST", "state")({"chosen": None, "known": ""})
    if moment == "it begins":
        return
    page: Any = study_server(Study(tmp_path / "study"))
    for method, name, body in PAGE * 2:
        assert page(method, name)(body)


def test_python_reads_it(moment: str, tmp_path: Path) -> None:
    if moment == "it begins":
        return
    study = Study(tmp_path / "study")
    for read in (repr, Study._repr_html_, Study.trials_dataframe, Study.report_html):
        assert len(read(study)) >= 0
    assert len(study.trials) >= len(study.complete_trials)

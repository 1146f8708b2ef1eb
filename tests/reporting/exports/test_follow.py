"""`hptune export --follow`: trials that end are written, and a failed writing is repeated."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asked_studies import opened
from commands import Commands
from exported_study import varied
from fake_study import GOALS
from hptune.ask_tell.session import Session
from hptune.cli import telling
from hptune.clusters.jobs import jobs_name
from hptune.core.messages import FinishReason, StopRequested, StudyOpened
from hptune.core.study_config import StudyConfig
from hptune.errors import MissingPackageError
from hptune.reporting.exports import exports
from hptune.reporting.results.view import StudyView
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.study.study import Study
from in_process import InProcess
from stored_study import stored, typical

TOOL = """
from hptune.reporting.exports.source import Written

calls = []

def write(study, place):
    calls.append([trial.number for trial in study.trials])
    if len(calls) == 1:
        raise OSError("the server does not answer")
    return Written("there")
"""


def test_a_server_that_did_not_answer_gets_the_same_trials_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "flaky_tool.py").write_text(TOOL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(exports, "FOLLOW_SECONDS", 0.0)
    monkeypatch.setattr(exports, "_REST", 0.0)
    monkeypatch.setattr(exports, "_END_SEEN_SECONDS", 0.0)
    over = iter([False, False, False, True])
    monkeypatch.setattr(StudyView, "has_ended", property(lambda _: next(over)))
    study = varied(tmp_path / "one")
    assert "to there" in study.export_to("flaky_tool:write", follow=True)
    ended = [trial.number for trial in study.exported().of_ended().trials]
    assert sys.modules["flaky_tool"].calls == [ended] * 3, (
        "failed, repeated, none without news, at the end"
    )
    assert "the server does not answer; tried again" in caplog.text


def test_a_package_that_is_missing_is_named_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tool_of_a_package.py").write_text(
        "from hptune.reporting.exports.registry import ExportRow\n"
        "row = ExportRow(name='one', summary='', factory='no_such:write', needs='no_such')"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Study, "view", lambda _: pytest.fail("it is not tried"))
    with pytest.raises(MissingPackageError, match="no_such"):
        varied(tmp_path / "one").export_to("tool_of_a_package:row", follow=True)


def end(reason: FinishReason) -> dict[str, Any]:
    return {"ended": {"finish_reason": str(reason), "reason": "it said so"}}


HANDED_OVER, STOPPED = end(FinishReason.HANDED_OVER), end(FinishReason.INTERRUPTED)


def run(path: Path, last_at: float = 2000.0, **facts: Any) -> None:
    """Write a study of which a master has written events, the last one at this time."""
    stops = StopRequested(last_at, FinishReason.INTERRUPTED, "stopped by ada")
    config = StudyConfig(trials=10, goals=GOALS, seed=1)
    with Ledger.open(typical(path, **facts)) as ledger:
        ledger.append([StudyOpened(1000.0, config), stops])


def run_now(path: Path, **facts: Any) -> None:
    run(path, time.time() + 60.0, **facts)


def resumed_by_job(path: Path) -> None:
    typical(path, **STOPPED, submitted=True)


def stop(path: Path) -> None:
    opened(path).ask()
    Session(StudyDirectory(path)).stop("by ada")


def told(path: Path) -> None:
    for trial in opened(path).trials_to_run():
        trial.tell(loss=1.0)


MASTER, NOBODY, PENDING, RUNNING, NO_JOB = "master", "", "PENDING", "RUNNING", "no job"
MOMENTS: dict[str, tuple[Callable[[Path], object], str, bool, bool]] = {
    "a master begins": (stored, MASTER, True, True),
    "a master runs": (run_now, MASTER, True, True),
    "a master has recorded its end": (lambda p: run_now(p, **STOPPED), MASTER, False, True),
    "a master leaves to the next job": (lambda p: run_now(p, **HANDED_OVER), MASTER, True, True),
    "a master that resumes reads": (lambda p: run(p, **STOPPED), MASTER, True, True),
    "no program has a trial": (opened, NOBODY, True, True),
    "programs have trials": (lambda p: opened(p).ask(2), NOBODY, True, True),
    "programs are told to stop": (stop, NOBODY, True, True),
    "programs have told all": (told, NOBODY, False, False),
    "between two jobs": (lambda p: typical(p, **HANDED_OVER), PENDING, True, True),
    "the next job reads the model": (lambda p: typical(p, **HANDED_OVER), RUNNING, True, True),
    "between two jobs elsewhere": (lambda p: typical(p, **HANDED_OVER), NOBODY, True, True),
    "the next job was cancelled": (lambda p: typical(p, **HANDED_OVER), NO_JOB, False, False),
    "killed, and a job continues it": (typical, PENDING, True, True),
    "killed, and no job continues it": (typical, NO_JOB, False, False),
    "killed": (typical, NOBODY, False, False),
    "killed before its first trial": (stored, NOBODY, False, False),
    "stopped": (lambda p: typical(p, **STOPPED), NOBODY, False, False),
    "stopped, and resumed by a job": (lambda p: typical(p, **STOPPED), PENDING, True, True),
    "stopped, and its next job reads": (resumed_by_job, RUNNING, True, True),
    "stopped, and its next job was cancelled": (resumed_by_job, NO_JOB, False, False),
    "failed": (lambda p: typical(p, **end(FinishReason.FAILED)), NOBODY, False, False),
    "done": (lambda p: typical(p, **end(FinishReason.DONE)), NOBODY, False, False),
}
"""What the study has, what continues it, and if `export --follow` and `wait` go on."""


@pytest.mark.parametrize(("make", "driver", "follows", "waits"), MOMENTS.values(), ids=MOMENTS)
def test_a_study_is_followed_until_nobody_continues_it(
    cli: InProcess,
    commands: Commands,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], object],
    driver: str,
    *,
    follows: bool,
    waits: bool,
) -> None:
    def goes_on(_: float) -> None:
        raise KeyboardInterrupt

    path = cli.study()
    if driver in (PENDING, RUNNING, NO_JOB):
        (path / "jobs").mkdir(parents=True)
        (path / "jobs" / "master.sbatch").touch()
        line = f"7|{jobs_name(path)}.master|{driver}|BeginTime|main||N/A|N/A|N/A"
        commands.make("squeue", "" if driver == NO_JOB else f"echo '{line}'")
    lock = StudyDirectory(path).create().acquire() if driver == MASTER else None
    make(path)
    cli.file("tool.py", "import hptune.reporting.exports.source as s\n"
             "def write(study, place): return s.Written('there')")  # fmt: skip
    for module in (exports, telling):
        monkeypatch.setattr(module, "time", SimpleNamespace(**vars(time) | {"sleep": goes_on}))
    ends = [
        cli("export", "study", "--format", "tool:write", "--follow"),
        cli("wait", "study"),
    ]
    if lock:
        lock.release()
    assert [ended.code == 130 for ended in ends] == [follows, waits], ends

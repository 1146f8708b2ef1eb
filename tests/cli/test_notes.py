"""Notes and tags on a study that does not run; tests/cli/test_asking.py has one that runs."""

from __future__ import annotations

import codecs
import json
import os
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from asked_studies import opened
from engine_driver import EngineDriver
from hptune.core.engine.engine import Engine
from hptune.core.messages import UserRequested
from hptune.core.user_requests import Note, UserAction
from hptune.errors import StorageFullError, StudyError, StudyLockedError
from hptune.reporting.results.view import StudyState
from hptune.storage import turn
from hptune.storage.directory import StudyDirectory
from hptune.study.study import Study
from in_process import InProcess
from requirements import require_root
from stored_study import typical


def test_notes_and_tags_are_shown_everywhere(cli: InProcess) -> None:
    study = cli.study()
    typical(study)
    assert cli("note", study).out == "there are no notes\n"
    written = cli("note", study, "wider layers\ndo not help", "--tag", "baseline")
    assert written.code == 0, written.err
    tags, note = written.out.splitlines()
    assert tags == "study, tags: baseline"
    assert note.startswith("study, note: wider layers do not help (")
    cli("note", study, "--trial", 2, "the best", "--tag", "good", "--tag", "odd")
    assert cli("note", study, "--trial", 2, "--remove-tag", "odd").out.startswith(
        "trial 2, tags: good\ntrial 2, note: the best ("
    )
    status = cli("status", study).out
    assert "tags     baseline\nnote     wider layers do not help (" in status
    assert "#good; the best" in cli("trials", study, "--top", 1).out
    assert "tags     good\nnote     the best (" in cli("show", study, 2).out
    shown = json.loads(cli("show", study, 2, "--json").out)
    assert (shown["tags"], shown["notes"][0]["text"]) == (["good"], "the best")
    assert json.loads(cli("status", study, "--json").out)["tags"] == ["baseline"]
    found = Study(study)
    assert (found.notes, found.tags) == (["wider layers\ndo not help"], ("baseline",))
    table = found.trials_dataframe().set_index("trial")
    assert (table.tags[2], table.notes[2]) == ("good", "the best")
    report = found.report_html()
    assert "<b>tags</b><span>baseline</span>" in report
    assert '"tags":"good","notes":"the best"' in report


def test_a_note_that_is_written_is_no_failure(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = cli.study()
    typical(study)

    def fail(_: Study) -> None:
        raise StudyError("the disk is busy")

    with monkeypatch.context() as patch:
        patch.setattr(Study, "view", fail)
        ended = cli("note", study, "words")
        assert (ended.code, cli("note", study).code) == (0, 1), ended
    assert ended.err == "The note is written, but cannot be shown: the disk is busy\n"
    assert Study(study).notes == ["words"]


def test_what_cannot_be_noted_is_refused(cli: InProcess) -> None:
    study = cli.study()
    typical(study)
    for words, code, message in (
        (("--trial", 99, "x"), 2, "there is no trial 99; the trials are 0 to "),
        (("--tag", "two words"), 2, "a tag is 'two words'; it must be one word"),
        (("a" * 10_001,), 2, "the note has 10001 characters; allowed are 1 to 10000"),
        (("one", "two"), 2, "2 are given; write the note in quotes, as one NOTE"),
    ):
        ended = cli("note", study, *words)
        assert (ended.code, message in ended.err) == (code, True), ended.err
    ended = cli("note", cli.directory / "none", "words")
    assert "none; write the note in quotes" in ended.err
    assert Study(study).view().notes == []


def test_a_study_of_another_user_takes_none() -> None:
    require_root("become another user")
    # Others may not enter the folders of pytest.
    with tempfile.TemporaryDirectory() as folder:
        typical(Path(folder, "study"))
        for path in (Path(folder), Path(folder, "study")):
            path.chmod(0o755)
        study = Study(Path(folder, "study"))
        codecs.lookup("unicode_escape")  # Python itself may lie where that user may not read
        os.seteuid(65534)
        try:
            with pytest.raises(StorageFullError, match=r"may not write to .*only its owner"):
                study.note("mine")
        finally:
            os.seteuid(0)
        assert study.notes == []


def test_notes_that_are_written_at_the_same_time_are_all_kept(cli: InProcess) -> None:
    study = cli.study()
    typical(study)
    at_once = threading.Barrier(8)

    def write(number: int) -> None:
        at_once.wait()
        Study(study).note(str(number))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, range(8)))
    assert sorted(Study(study).notes) == sorted(map(str, range(8)))


def test_a_note_waits_for_those_that_need_the_lock_for_a_moment(tmp_path: Path) -> None:
    study = opened(tmp_path / "study")
    directory = StudyDirectory(tmp_path / "study")
    lock = directory.acquire(is_brief=True)
    assert directory.owner() is None, "it is no master"
    assert study.view().state is StudyState.OPEN
    release = threading.Timer(0.3, lock.release)
    release.start()
    study.note("wider")
    release.join()
    assert study.notes == ["wider"]


def test_who_waits_for_a_turn_does_not_wait_for_a_master(tmp_path: Path) -> None:
    """Also for one that has not begun the study, and whatever its clock says."""
    directory = StudyDirectory(tmp_path / "study").create()
    with directory.acquire() as lock:
        assert directory.owner() == lock.owner
        with pytest.raises(StudyLockedError, match="already run by"):
            turn.acquired(directory)


def test_the_search_does_not_see_a_note() -> None:
    note = UserRequested(1e9, "name", UserAction.NOTE, "ada", note=Note("late"))
    assert Engine().handle(note) == []  # the first master died before it opened the study
    driver = EngineDriver()
    driver.open(5)
    driver.join()
    before = driver.engine.snapshot
    assert driver.engine.handle(note) == []
    assert driver.engine.snapshot == before  # a week without a master has cost no time

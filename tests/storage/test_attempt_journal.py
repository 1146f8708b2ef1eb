"""The journals of attempts whose master is gone: written, read, and counted once."""

from __future__ import annotations

import json
import os
import re
import resource
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hptune.core.attempt import AttemptId, Cause, Ending, Report, Usage
from hptune.core.messages import (
    AttemptEnded,
    AttemptStarted,
    Event,
    Measured,
    ParametersUsed,
    Reported,
)
from hptune.master.recovery import collect, discard_journals
from hptune.storage.attempt_journal import AttemptJournal, journal_path, read_journal
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger.codec import encode_event

NAME = AttemptId(3, 1)


def report(step: int) -> Reported:
    return Reported(0.0, NAME, Report(step, {"loss": 1.0 / step}))


ENDED = AttemptEnded(0.0, NAME, Ending(Cause.RETURNED, {"loss": 0.5}, step=2))
MEASURED = Measured(0.0, NAME, Usage(peak_memory_bytes=5, cpu_seconds=1.0, seconds=2.0))


def journal_with(directory: StudyDirectory, *events: Event) -> Path:
    home = directory.trial(NAME.trial)
    journal = AttemptJournal(home, NAME)
    for event in events:
        journal.add(event)
    return journal_path(home, NAME)


def plain(events: list[Event]) -> list[object]:
    """Return steps of reports, causes of ends, and peaks of measurements."""
    found: list[object] = []
    for event in events:
        assert abs(time.time() - event.at) < 60
        if isinstance(event, Reported):
            found.append(event.report.step)
        elif isinstance(event, AttemptEnded):
            found.append(event.ending)
        elif isinstance(event, Measured):
            found.append(event.usage)
    return found


def test_what_is_written_is_read(directory: StudyDirectory) -> None:
    path = journal_with(directory, report(1), report(2), MEASURED, ENDED)
    assert plain(read_journal(path)) == [1, 2, MEASURED.usage, ENDED.ending]
    assert read_journal(path.with_name("7.events")) == []


@pytest.mark.parametrize("kept_bytes", range(0, 400, 7))
def test_a_line_that_was_cut_short_does_not_count(
    directory: StudyDirectory, kept_bytes: int
) -> None:
    path = journal_with(directory, report(1), report(2), ENDED)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept_bytes])
    lines = whole[:kept_bytes].count(b"\n")
    assert plain(read_journal(path)) == [1, 2, ENDED.ending][:lines]


def test_nothing_after_a_damaged_line_is_read(directory: StudyDirectory) -> None:
    path = journal_with(directory, report(1), report(2), ENDED)
    whole = path.read_bytes()
    place = whole.index(b"\n") + 40
    path.write_bytes(whole[:place] + bytes(10) + whole[place + 10 :])
    assert plain(read_journal(path)) == [1]


@pytest.mark.parametrize("number", [-1, 2**63])
@pytest.mark.parametrize("event", [report(2), MEASURED, ENDED])
def test_a_number_that_the_ledger_cannot_hold_is_damage(
    directory: StudyDirectory, event: Event, number: int
) -> None:
    path = journal_with(directory, report(1))
    kind, payload = encode_event(event)
    forged = re.sub(r'"(step|peak_memory_bytes)":\d', rf'"\1":{number}', payload)
    with path.open("a") as file:
        file.write(json.dumps([kind, forged]) + "\n")
    assert plain(read_journal(path)) == [1]


def test_an_attempt_removes_the_journals_of_earlier_ones(directory: StudyDirectory) -> None:
    path = journal_with(directory, report(1))
    foreign = path.with_name("².events")  # a digit, and no number
    foreign.touch()
    AttemptJournal(directory.trial(NAME.trial), AttemptId(NAME.trial, 2))
    assert {each.name for each in path.parent.iterdir()} == {"2.events", foreign.name}


def test_a_disk_that_cannot_be_written_ends_no_attempt(tmp_path: Path) -> None:
    (tmp_path / "3").write_text("a file where a directory should be")
    journal = AttemptJournal(tmp_path / "3", NAME)
    journal.add(report(1))
    journal.touch()
    assert read_journal(journal_path(tmp_path / "3", NAME)) == []


def test_a_superseded_attempt_notices_and_creates_no_file(
    directory: StudyDirectory,
) -> None:
    home = directory.trial(NAME.trial)
    first, second = AttemptJournal(home, NAME), AttemptJournal(home, AttemptId(NAME.trial, 2))
    first.add(report(1))
    assert (first.is_superseded, second.is_superseded) == (True, False)
    AttemptJournal(home, AttemptId(NAME.trial, 3))
    second.touch()
    assert second.is_superseded
    assert [each.name for each in (home / "journal").iterdir()] == ["3.events"]


def test_what_could_not_be_written_is_written_with_the_next_event(
    directory: StudyDirectory,
) -> None:
    """A report that was lost would shift the count of those that the ledger has."""
    home = directory.trial(NAME.trial)
    journal, path = AttemptJournal(home, NAME), journal_path(home, NAME)
    journal.add(report(1))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, limits[1]))
    try:
        journal.add(report(2))  # of its line, 40 bytes are written
        journal.add(report(3))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert plain(read_journal(path)) == [1]
    journal.add(report(4))
    journal.add(ENDED)
    with directory.acquire():
        assert plain(collect(directory, [NAME], {NAME: 2})) == [3, 4, ENDED.ending]


def test_an_event_that_cannot_be_written_ends_no_attempt(directory: StudyDirectory) -> None:
    strange = ParametersUsed(0.0, NAME, (), {"n": object()})  # type: ignore[dict-item]  # the point
    path = journal_with(directory, report(1), strange, report(2))
    assert plain(read_journal(path)) == [1, 2]


# --- collecting -------------------------------------------------------------------------------


def test_only_what_the_ledger_lacks_is_collected(directory: StudyDirectory) -> None:
    journal_with(directory, report(1), report(2), report(3), MEASURED, ENDED)
    with directory.acquire():
        everything = [1, 2, 3, MEASURED.usage, ENDED.ending]
        assert plain(collect(directory, [NAME], {})) == everything
        # Until it is in the ledger, it may be collected again; then, the reports are heard of.
        assert plain(collect(directory, [NAME], {NAME: 2})) == everything[2:]
        assert collect(directory, [], {}) == []
        assert collect(directory, [AttemptId(9, 0)], {}) == []
        discard_journals(directory)
        assert collect(directory, [NAME], {}) == []


def test_a_start_that_the_ledger_lacks_is_collected(directory: StudyDirectory) -> None:
    """Without it, all that the attempt has held would be free of charge."""
    start = AttemptStarted(0.0, NAME, 7)
    journal_with(directory, start, report(1), ENDED)
    with directory.acquire():
        first, *others = collect(directory, [NAME], {})
        assert isinstance(first, AttemptStarted)
        assert first.at > 0
        assert plain(others) == [1, ENDED.ending]
        assert plain(collect(directory, [NAME], {}, started=[NAME])) == [1, ENDED.ending]


def test_results_are_collected_in_the_order_in_which_they_came(directory: StudyDirectory) -> None:
    later, earlier = AttemptId(1, 0), AttemptId(2, 0)
    for name in (earlier, later):
        AttemptJournal(directory.trial(name.trial), name).add(replace(ENDED, attempt=name))
    with directory.acquire():
        collected = collect(directory, [later, earlier], {})
    ends = [event.attempt for event in collected if isinstance(event, AttemptEnded)]
    assert ends == [earlier, later]


@pytest.mark.parametrize("ahead_seconds", [0.0, 40.0, -40.0])
def test_the_collector_waits_for_one_that_still_runs(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch, ahead_seconds: float
) -> None:
    """Also if the clocks of the file system and of this machine differ."""
    journal = AttemptJournal(directory.trial(NAME.trial), NAME)
    journal.add(report(1))
    writing = threading.Timer(0.5, lambda: journal.add(ENDED))
    clock = time.time
    with directory.acquire():
        monkeypatch.setattr(time, "time", lambda: clock() + ahead_seconds)
        writing.start()
        assert plain(collect(directory, [NAME], {})) == [1, ENDED.ending]
    writing.join()


def test_an_attempt_ends_last_although_the_clock_was_set_back(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, began = AttemptJournal(directory.trial(NAME.trial), NAME), time.time()
    for event, at in ((report(1), began), (report(2), began - 9), (ENDED, began - 8)):
        monkeypatch.setattr(time, "time", lambda at=at: at)
        journal.add(event)
    monkeypatch.undo()
    with directory.acquire():
        collected = collect(directory, [NAME], {})
    assert plain(collected) == [1, 2, ENDED.ending]
    assert {event.at for event in collected} == {began}


def test_the_collector_does_not_wait_for_the_dead_nor_for_ever(directory: StudyDirectory) -> None:
    path = journal_with(directory, report(1))
    with directory.acquire():
        began = time.monotonic()
        assert plain(collect(directory, [NAME], {}, patience_seconds=0.3)) == [1]
        assert 0.3 <= time.monotonic() - began < 30
        long_ago = time.time() - 60
        os.utime(path, (long_ago, long_ago))
        began = time.monotonic()
        assert plain(collect(directory, [NAME], {}, patience_seconds=60)) == [1]
        assert time.monotonic() - began < 30

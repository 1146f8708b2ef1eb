"""Whose a study is decides what a user may do with it, whichever command or class opens it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hptune.errors import HptuneError, StudyError, UsageError
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader
from hptune.storage.whose import Use, Whose, access
from hptune.study.study import Study
from other_users import ANOTHER, NOBODY, as_user, give, open_folder
from planted import plant_journal
from requirements import require_root
from stored_study import typical


@pytest.fixture
def directory() -> Iterator[StudyDirectory]:
    """Return a study that other users could enter."""
    with open_folder() as folder:
        found = typical(folder / "study")
        found.path.chmod(0o755)
        yield found


def mine(_: StudyDirectory) -> None:
    pass


def a_groups(directory: StudyDirectory) -> None:
    require_root("give files to a group")
    os.chown(directory.path, 0, NOBODY)
    directory.path.chmod(0o775)


def everybodys(directory: StudyDirectory) -> None:
    directory.path.chmod(0o777)


def with_a_file_of_everybodys(directory: StudyDirectory) -> None:
    directory.database.chmod(0o666)


def anothers(directory: StudyDirectory) -> None:
    give(directory.path)


def with_a_file_of_anothers(directory: StudyDirectory) -> None:
    require_root("give files to others")
    os.chown(directory.database, NOBODY, NOBODY)


def behind_anothers_link(directory: StudyDirectory) -> None:
    require_root("give files to others")
    real = directory.path.rename(directory.path.with_name("real"))
    directory.path.symlink_to(real)
    os.chown(directory.path, NOBODY, NOBODY, follow_symlinks=False)


OWNERS = {
    mine: Whose.MINE,
    a_groups: Whose.GROUPS,
    everybodys: Whose.EVERYBODYS,
    with_a_file_of_everybodys: Whose.EVERYBODYS,
    anothers: Whose.ANOTHERS,
    with_a_file_of_anothers: Whose.ANOTHERS,
    behind_anothers_link: Whose.ANOTHERS,
}
ALLOWED = {
    Whose.MINE: {Use.READ, Use.WRITE, Use.RUN},
    Whose.GROUPS: {Use.READ, Use.WRITE, Use.RUN},
    Whose.EVERYBODYS: {Use.READ},
    Whose.ANOTHERS: {Use.READ},
}


@pytest.mark.parametrize("use", Use)
@pytest.mark.parametrize("make", OWNERS, ids=lambda make: make.__name__)
def test_the_table(
    directory: StudyDirectory, make: Callable[[StudyDirectory], None], use: Use
) -> None:
    make(directory)
    whose = access(directory.path).whose
    assert whose is OWNERS[make]
    if use in ALLOWED[whose]:
        assert directory.open(use) is directory
        return
    remedy = r"`chmod -R go-w \S+`" if whose is Whose.EVERYBODYS else r"`cp -r \S+ COPY`"
    with pytest.raises(UsageError, match=rf"(may write to|belongs to).*{remedy}"):
        directory.open(use)


def test_a_group_that_may_write_is_named_when_code_is_run(directory: StudyDirectory) -> None:
    a_groups(directory)
    assert "may write to" in directory.writers_warning()


@pytest.mark.parametrize("name", ["best", "trials"])
def test_a_folder_of_models_or_checkpoints_counts_where_they_are_loaded(
    directory: StudyDirectory, name: str
) -> None:
    (directory.path / name).chmod(0o777)
    assert directory.open(Use.WRITE) is directory
    with pytest.raises(UsageError, match=f"every user .* may write to .*/{name}"):
        directory.open(Use.RUN)


def test_a_directory_that_keeps_others_out_is_its_owners(directory: StudyDirectory) -> None:
    directory.path.chmod(0o700)
    directory.database.chmod(0o666)
    assert access(directory.path).whose is Whose.MINE


@pytest.mark.parametrize("use", Use)
def test_anothers_study_that_this_user_may_only_read(directory: StudyDirectory, use: Use) -> None:
    assert Study(directory).view().trials  # loads what the other user may not load
    give(directory.path, ANOTHER)
    with as_user(NOBODY):
        if use is Use.READ:
            assert Study(directory.open(use)).best_trial.number == 2
            return
        with pytest.raises(UsageError, match=r"may write to|belongs to"):
            directory.open(use)


READERS: dict[str, Callable[[StudyDirectory], object]] = {
    "LedgerReader": LedgerReader,
    "Study": Study,
    "view": lambda directory: Study(directory).view(),
    "Ledger": Ledger.open,
    "note": lambda directory: Study(directory).note("mine"),
    "replay": replay,
    "best_model": lambda directory: Study(directory).best_model(),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("make", OWNERS, ids=lambda make: make.__name__)
def test_a_journal_deletes_no_other_file(
    directory: StudyDirectory, make: Callable[[StudyDirectory], None], name: str
) -> None:
    victim = directory.path.with_name("victim")
    victim.write_text("mine")
    journal = plant_journal(directory.database, victim)
    make(directory)
    with pytest.raises(HptuneError, match=r"journal names another file|may write to|belongs to"):
        READERS[name](directory)
    assert victim.read_text() == "mine"
    assert journal.exists()


def test_nor_where_a_master_undoes_a_commit_itself(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyDirectory, "locks_work", lambda _: False)
    victim = directory.path.with_name("victim")
    victim.write_text("mine")
    plant_journal(directory.database, victim)
    with pytest.raises(StudyError, match="journal names another file"):
        Ledger.open(directory)
    assert victim.read_text() == "mine"


def test_such_a_journal_works_without_the_check(directory: StudyDirectory) -> None:
    victim = directory.path.with_name("victim")
    victim.write_text("mine")
    plant_journal(directory.database, victim)
    with sqlite3.connect(directory.database) as connection:
        connection.execute("SELECT count(*) FROM trials")
    assert not victim.exists()


@pytest.mark.parametrize("make", OWNERS, ids=lambda make: make.__name__)
def test_only_who_writes_alone_undoes_an_unfinished_commit(
    directory: StudyDirectory, make: Callable[[StudyDirectory], None]
) -> None:
    journal = plant_journal(directory.database)
    make(directory)
    if OWNERS[make] is Whose.MINE:
        assert len(Study(directory).trials) == 6
        assert not journal.exists()
        return
    helps = "Have the owner run" if OWNERS[make] is Whose.ANOTHERS else "chmod -R go-w"
    with pytest.raises(StudyError, match=f"killed in the middle of a write.*{helps}"):
        Study(directory)
    assert journal.exists()


def as_link(place: Path) -> None:
    place.unlink(missing_ok=True)
    other = place.with_name("other")
    other.write_bytes(b"mine")
    place.symlink_to(other)


def as_pipe(place: Path) -> None:
    place.unlink(missing_ok=True)
    os.mkfifo(place)


def as_folder(place: Path) -> None:
    place.unlink(missing_ok=True)
    place.mkdir()


@pytest.mark.parametrize("put", [as_link, as_pipe, as_folder])
@pytest.mark.parametrize("name", ["study.db", "study.db-journal", "study.db-wal", "study.db-shm"])
def test_what_is_no_file_beside_a_ledger_is_not_opened(
    directory: StudyDirectory, name: str, put: Callable[[Path], None]
) -> None:
    put(directory.path / name)
    for door in (LedgerReader, Ledger.open):
        with pytest.raises(HptuneError, match=r"is a link, a pipe|no study|write-ahead"):
            door(directory)
    assert (directory.path / "other").read_bytes() == b"mine" if put is as_link else True


@pytest.mark.parametrize("has_log", [True, False], ids=["with its log", "without"])
def test_a_write_ahead_log_is_refused(directory: StudyDirectory, *, has_log: bool) -> None:
    with open_folder() as elsewhere:
        other = sqlite3.connect(directory.database)
        other.execute("PRAGMA journal_mode=WAL")
        other.execute("UPDATE trials SET value = 9.0")
        other.commit()
        if has_log:
            copies = {each: elsewhere / each.name for each in directory.path.glob("study.db*")}
            for each, copy in copies.items():
                copy.write_bytes(each.read_bytes())
        other.close()
        for each, copy in copies.items() if has_log else ():
            each.write_bytes(copy.read_bytes())
    anothers(directory)
    before = directory.database.read_bytes()
    with pytest.raises(StudyError, match=r"write-ahead log.*PRAGMA journal_mode=DELETE"):
        Study(directory)
    assert directory.database.read_bytes() == before

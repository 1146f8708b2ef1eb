"""The study directory: its layout and its requests."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from hptune.clusters.slurm_master import Masters
from hptune.core.user_requests import UserAction, UserRequest
from hptune.errors import NoStudyError, StorageFullError, StudyExistsError, UsageError
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from requirements import require_root

# --- layout ---------------------------------------------------------------------------------


def test_the_layout(directory: StudyDirectory, tmp_path: Path) -> None:
    root = tmp_path / "study"
    assert directory.path == root
    assert directory.database == root / "study.db"
    assert directory.best == root / "best"
    assert directory.best.is_dir()
    assert directory.trial(12) == root / "trials" / "12"
    assert directory.trials.is_dir()


def test_two_who_ask_for_a_free_directory_get_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [StudyDirectory.free("model").path for _ in range(3)]
    assert found == [tmp_path / "studies" / f"model-{n}" for n in (1, 2, 3)]
    assert all(path.is_dir() for path in found)


def test_those_of_the_same_name_before_it(tmp_path: Path) -> None:
    names = ("model-1", "model-2", "model-10", "model-11", "model-x", "models-3", "model", "a-b-1")
    for name in names:
        (tmp_path / name).mkdir()

    def before(name: str) -> list[str]:
        return [each.path.name for each in StudyDirectory(tmp_path / name).earlier()]

    assert before("model-11") == ["model-10", "model-2", "model-1"]
    assert before("a-b-20261126") == ["a-b-1"]
    assert before("model-1") == before("model") == before("none/model-7") == []


def test_the_folder_of_studies_may_be_removed_by_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a run does that makes no study; many may start and fail at once, as jobs of an array."""
    monkeypatch.chdir(tmp_path)

    def make(_: int) -> None:
        for _ in range(100):
            StudyDirectory.free("model").give_up()

    with ThreadPoolExecutor(4) as runs:
        assert [*runs.map(make, range(4))] == [None] * 4
    assert not any(tmp_path.iterdir())


def test_where_no_directory_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    studies = tmp_path / "studies"
    studies.touch()
    with pytest.raises(UsageError, match="which is not a directory"):
        StudyDirectory.free("model")
    studies.unlink()
    studies.symlink_to("nowhere")
    with pytest.raises(UsageError, match="which is not a directory"):
        StudyDirectory.free("model")


def test_a_place_where_no_directory_can_be_made() -> None:
    with pytest.raises(UsageError, match=r"/proc/x: no directory can be created there .*--study"):
        StudyDirectory("/proc/x").create()


def test_what_else_lies_there_stays_when_a_study_is_removed(directory: StudyDirectory) -> None:
    directory.database.touch()
    (directory.trial(3) / "checkpoint").mkdir(parents=True)
    (directory.best / "mine.txt").touch()
    directory.remove()
    left = {path.relative_to(directory.path) for path in directory.path.rglob("*")}
    assert left == {Path("best"), Path("best/mine.txt")}


def test_a_path_is_shown_without_detours_unless_they_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(tmp_path)
    assert StudyDirectory("./x/../y").path == tmp_path / "y"
    assert StudyDirectory("gone/../y/.").path == tmp_path / "y"
    assert StudyDirectory("link/y").path == tmp_path / "link" / "y"
    assert StudyDirectory("link/../y").path.resolve() == tmp_path / "far" / "y"


def test_a_new_study_is_its_owners_alone(tmp_path: Path) -> None:
    alone = StudyDirectory(tmp_path / "new" / "study").create()
    assert alone.path.stat().st_mode & 0o777 == 0o700
    assert alone.writers_warning() == ""
    alone.path.chmod(0o755)
    assert alone.writers_warning() == ""
    (alone.path / "objective.pkl").touch()
    (alone.path / "objective.pkl").chmod(0o666)
    with pytest.raises(UsageError, match=r"every user of this machine may write to .*objective"):
        alone.writers_warning()
    alone.path.chmod(0o700)
    assert alone.writers_warning() == ""

    (tmp_path / "shared").mkdir(mode=0o755)
    shared = StudyDirectory(tmp_path / "shared").create()
    assert shared.path.stat().st_mode & 0o777 == 0o755


def test_a_study_that_belongs_to_others(directory: StudyDirectory) -> None:
    require_root("give files to others")
    os.chown(directory.path, 0, 65534)
    directory.path.chmod(0o770)
    assert re.search(r"group \w+ may write to", directory.writers_warning())
    os.chown(directory.path, 65534, 0)
    with pytest.raises(UsageError, match=r"user nobody may write to .* `cp -r"):
        directory.writers_warning()


def test_another_users_study(monkeypatch: pytest.MonkeyPatch) -> None:
    require_root("become another user")
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        monkeypatch.chdir(place)
        theirs, mine = (StudyDirectory(place / "studies" / each).create() for each in "ab")
        for each in (theirs, mine):
            Ledger.create(each, {}).close()
        for path in (mine.path, *mine.path.iterdir()):
            os.chown(path, 65534, 65534)
        os.seteuid(65534)
        try:
            within = StudyDirectory(theirs.path / "one")
            for door in (theirs.open, lambda: Masters().job_of(theirs), within.check_place):
                with pytest.raises(StorageFullError, match=r"may not read \S+a\. Have its owner"):
                    door()
            assert StudyDirectory.newest().path == mine.path
            theirs_too = StudyDirectory(place / "studies" / "c")
            with pytest.raises(UsageError, match="Permission denied"):
                theirs_too.create()
        finally:
            os.seteuid(0)


def test_parents_that_were_made_for_a_study_go_with_it(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    unused = StudyDirectory(tmp_path / "a/b/c").create()
    unused.remove()
    assert list(tmp_path.rglob("*")) == [tmp_path / "a"]
    shared = StudyDirectory(tmp_path / "a/b/c").create()
    (tmp_path / "a/b/mine").touch()
    shared.remove()
    assert set(tmp_path.rglob("*")) == {tmp_path / each for each in ("a", "a/b", "a/b/mine")}


def test_who_leaves_at_once_takes_only_what_is_its_own(tmp_path: Path) -> None:
    first, second = (StudyDirectory(tmp_path / "study") for _ in range(2))
    with first.create().acquire():
        second.create().remove_if_unused()
        assert (tmp_path / "study/lock").exists()
        for name in ("program.py", "code/model.py"):
            file = first.path / name
            file.parent.mkdir(exist_ok=True)
            file.touch()
            first.draft(file)
        first.remove_if_unused()
        assert not list(tmp_path.iterdir())


def test_a_later_chdir_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = StudyDirectory("study").create()
    monkeypatch.chdir("/")
    directory.requests.append(STOP)
    assert (tmp_path / "study" / "requests").stat().st_size > 0


def test_creating_may_be_repeated_until_there_is_a_ledger(directory: StudyDirectory) -> None:
    directory.create()
    directory.database.touch()
    with pytest.raises(StudyExistsError, match=r"hptune resume .*--study"):
        directory.create()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        StudyDirectory(tmp_path / place).create()


@pytest.mark.parametrize(
    ("place", "found"),
    [("nowhere", "no such directory"), ("empty", "no file study.db"), ("file", "it is a file")],
)
def test_no_study(tmp_path: Path, place: str, found: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(NoStudyError, match=found):
        StudyDirectory(tmp_path / place).open()


def test_a_study_that_is_named_without_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    StudyDirectory.free("model").database.touch()
    with pytest.raises(NoStudyError, match=r"Did you mean studies/model-1\?$"):
        StudyDirectory(Path("model-1")).open()


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(UsageError, match=r"no directory can be created there \(.*quota"):
        StudyDirectory(tmp_path / "study").create()


# --- requests -------------------------------------------------------------------------------

STOP = UserRequest("1", UserAction.STOP, "Zoë (hptune stop)")
ADD = UserRequest("2", UserAction.ENQUEUE, "ada", points=({"lr": "0.1", "layers": 2},))


def test_each_reader_gets_each_request_once(directory: StudyDirectory) -> None:
    master = directory.requests
    assert master.read() == []
    directory.requests.append(STOP)
    assert master.read() == [STOP]
    assert master.read() == []
    # One that was not written to its end, as on a full disk, harms none that comes later.
    with (directory.path / "requests").open("a") as file:
        file.write('{"request": "3", "act')
    assert master.read() == []
    StudyDirectory(directory.path).requests.append(ADD)
    assert master.read() == [ADD]
    other = StudyDirectory(directory.path).requests
    assert other.read() == [STOP, ADD]
    master.append(STOP)
    master.skip()
    assert (master.read(), other.read()) == ([], [STOP])
    with pytest.raises(UsageError, match="give the configurations in parts"):
        master.append(replace(ADD, points=({"x": "1" * 1_000_000},)))


@pytest.mark.parametrize("contents", ["5\n", "[]\n", "{}\n", "now!\n", "\xff\n", "x" * 1_100_000])
def test_what_is_no_request_is_ignored(directory: StudyDirectory, contents: str) -> None:
    (directory.path / "requests").write_text(contents, encoding="latin-1")
    requests = directory.requests
    assert requests.read() == []
    requests.append(STOP)
    assert requests.read() == [STOP]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_no_file_is_no_request(directory: StudyDirectory, make: Callable[[Path], None]) -> None:
    (directory.path / "requests").unlink()
    make(directory.path / "requests")
    assert directory.requests.read() == []


def test_a_directory_in_the_ledgers_place_is_no_study(tmp_path: Path) -> None:
    (tmp_path / "study/study.db").mkdir(parents=True)
    directory = StudyDirectory(tmp_path / "study")
    for refused in (directory.check_place, directory.create):
        with pytest.raises(UsageError, match=r"its study\.db is a directory"):
            refused()

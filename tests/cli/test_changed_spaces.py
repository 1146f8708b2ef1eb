"""A study that is resumed after its model file, or its ledger, has changed."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path

import pytest

from in_process import InProcess
from real_runs import Hptune, trials

GOOD = """\
def objective(hp, trial):
    return hp.Float("x", 0, 1)
"""

# The joblib executor starts workers only after all checks: quicker, if Dask does not matter.
LIGHT = ("--executor", "joblib", "--trials", "3")
# For runs in processes of their own: each worker is one more.
ALONE = ("--workers", "1")


@pytest.fixture(scope="module")
def finished_study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a study of three trials, to be copied; its model file lies next to it."""
    hptune = Hptune(tmp_path_factory.mktemp("finished"))
    try:
        model = hptune.file("model.py", GOOD)
        ended = hptune("run", model, *LIGHT, *ALONE, "--study", hptune.study())
        assert ended.code == 0, ended.err
    finally:
        hptune.close()
    return hptune.study()


@pytest.fixture
def copied(cli: InProcess, finished_study: Path) -> None:
    shutil.copytree(finished_study, cli.study())


@pytest.mark.usefixtures("copied")
def test_a_study_is_not_overwritten(cli: InProcess) -> None:
    before = (cli.study() / "study.db").read_bytes()
    ended = cli("run", cli.file("model.py", GOOD), *LIGHT, "--study", cli.study())
    assert ended.code == 2
    assert "already holds a study" in ended.err
    assert f"hptune resume {cli.study().name}" in ended.err
    assert (cli.study() / "study.db").read_bytes() == before


CHANGED = """
def objective(hp, trial):
    return hp.Float("x", 2, 3) + hp.Int("n", 1, 4)
"""


@pytest.mark.usefixtures("copied")
def test_a_changed_space_is_shown(cli: InProcess) -> None:
    changed = cli.file("changed.py", CHANGED)
    ended = cli("resume", cli.study(), "--trials", "6", "--model-file", changed)
    assert ended.code == 2
    for word in ("has changed", "x", "n", "--accept-space", "--study OTHER"):
        assert word in ended.err
    assert len(trials(cli.study())) == 3


@pytest.mark.usefixtures("copied")
def test_a_changed_space_can_be_accepted(cli: InProcess) -> None:
    changed = ("--model-file", cli.file("changed.py", CHANGED))
    ended = cli("resume", cli.study(), "--trials", "6", *changed, "--accept-space")
    assert ended.code == 0, ended.err
    found = trials(cli.study())
    assert [set(trial["params"]) for trial in found] == [{"x"}] * 3 + [{"x", "n"}] * 3
    assert all(2 <= trial["params"]["x"] <= 3 for trial in found[3:])
    # And from now on, this is the space.
    assert cli("resume", cli.study(), "--trials", "7").code == 0


def contents(study: Path) -> list[str]:
    """Return all that a ledger holds."""
    with contextlib.closing(sqlite3.connect(study / "study.db")) as ledger:
        return [*ledger.iterdump()]


@pytest.mark.usefixtures("copied")
def test_a_study_whose_trials_ended_by_other_rules_is_not_continued(cli: InProcess) -> None:
    """Another version of hptune may have stopped trials by another rule."""
    with contextlib.closing(sqlite3.connect(cli.study() / "study.db")) as ledger, ledger:
        ledger.execute("UPDATE trials SET state = 'PRUNED' WHERE number = 1")
    before = contents(cli.study())
    ended = cli("resume", cli.study(), "--trials", "6")
    assert ended.code == 1
    for word in ("1 of 3 trials differ", "trial 1", "is pruned", "complete", "--warm-start"):
        assert word in ended.err
    assert "Traceback" not in ended.err
    assert len(trials(cli.study())) == 3
    assert contents(cli.study()) == before


def test_a_hyperparameter_that_the_probe_did_not_reach_is_kept(cli: InProcess) -> None:
    """The file fails once before it has declared all."""
    model = cli.file(
        "model.py",
        """
        import pathlib

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            if (broken := pathlib.Path("broken")).exists():
                broken.unlink()
                raise OSError("the file server is away")
            return x + hp.Int("n", 1, 4)
        """,
    )
    assert cli("run", model, *LIGHT, "--study", cli.study()).code == 0
    cli.file("broken", "")
    ended = cli("resume", cli.study(), "--trials", "6")
    assert ended.code == 0, ended.err
    assert [set(trial["params"]) for trial in trials(cli.study())] == [{"x", "n"}] * 6


def test_a_hyperparameter_that_a_trial_declared_and_the_user_removed_stays_away(
    cli: InProcess,
) -> None:
    model = """
        import pathlib

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            if (hides := pathlib.Path("hides")).exists():
                hides.unlink()
                return x
            return x + hp.Int("n", 1, 4)
        """
    plain = """
        def objective(hp, trial):
            return hp.Float("x", 0, 1)
        """
    file = cli.file("model.py", model)
    cli.file("hides", "")
    assert cli("run", file, *LIGHT, "--study", cli.study()).code == 0
    known = trials(cli.study())
    assert "n" in known[-1]["params"], "a trial has declared it"
    assert cli("resume", cli.study(), "--trials", "4").code == 0
    cli.file("model.py", plain)
    removed = cli("resume", cli.study(), "--trials", "5", "--accept-space")
    assert (removed.code, "n was removed" in removed.err) == (0, True), removed.err
    assert cli("resume", cli.study(), "--trials", "6").code == 0
    names = [set(trial["params"]) for trial in trials(cli.study())]
    assert names[3:] == [{"x", "n"}, {"x"}, {"x"}]

"""Where a study may be created."""

from __future__ import annotations

import shutil

import pytest

from hptune.storage.directory import StudyDirectory
from in_process import InProcess
from interrupted_runs import LIGHT
from real_runs import trials


def test_a_study_takes_no_files_of_one_whose_ledger_is_gone(cli: InProcess) -> None:
    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    for old in ("trials/0/checkpoint/state.json", "best/best.json"):
        path = cli.study() / old
        path.parent.mkdir(parents=True)
        path.write_text("1")
        ended = cli("run", "model.py", "--study", cli.study())
        assert ended.code == 2
        assert "files of a study whose study.db is gone" in ended.err
        assert path.read_text() == "1"
        # At once, not when its master starts, perhaps hours later.
        ended = cli("run", "model.py", "--study", cli.study(), "--detach", "--slurm", "slurm.toml")
        assert "files of a study whose study.db is gone" in ended.err
        path.unlink()
        StudyDirectory(cli.study()).remove()


def test_a_second_study_of_a_model_file_names_the_first(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    monkeypatch.chdir(file.parent)
    line = "studies/model-1 has 2 complete trials of this model file; --warm-start studies/model-1 "
    run = ("run", "model.py", "--trials", "2", *LIGHT)
    assert "--warm-start" not in cli(*run).err
    assert line in cli(*run).err
    assert "would learn" not in cli(*run, "--warm-start", "studies/model-1").err
    assert "would learn" not in cli(*run, "--study", "elsewhere").err
    # What is refused has one message.
    ended = cli(*run, "--search", "nonsense")
    assert ended.err.startswith("Error: unknown search 'nonsense'")

    # Another file of that name is another model.
    file.with_name("more").mkdir()
    other = cli.file("more/model.py", file.read_text())
    assert "would learn" not in cli("run", other, *run[2:]).err


def test_a_model_file_of_a_copied_project_reads_the_files_there(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cli.study("first"), cli.study("second")
    first.mkdir()
    body = "return int(Path('number.txt').read_text()) + hp.Float('x', 0.0, 0.5)"
    cli.file("first/model.py", f"from pathlib import Path\ndef objective(hp, trial):\n    {body}\n")
    (first / "number.txt").write_text("1")
    monkeypatch.chdir(first)
    assert cli("run", "model.py", "--study", "study", "--trials", 1, *LIGHT).code == 0
    shutil.copytree(first, second)
    (second / "number.txt").write_text("2")
    monkeypatch.chdir(second)
    assert cli("resume", "study", "--model-file", "model.py", "--trials", 2).code == 0
    assert [int(each["value"]) for each in trials(second / "study")] == [1, 2]

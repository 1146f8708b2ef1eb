"""Where a study may be created."""

from __future__ import annotations

from hptune.storage.directory import StudyDirectory
from in_process import InProcess


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

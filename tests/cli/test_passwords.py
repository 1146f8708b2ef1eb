"""No password of a URL is in the files of a study, in its reports or in what commands print."""

from __future__ import annotations

import pytest

from hptune.core.notice import Notice
from hptune.master.earlier import sources
from hptune.master.earlier.found import FoundTrial, FoundTrials
from hptune.reporting.terminal.progress import shown_line
from in_process import InProcess

URL = "postgresql://ada:geheim@db/earlier"
MODEL = f"""
def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    if trial.number == 1:
        raise OSError("cannot connect to {URL}")
    return x
"""


def test_a_study_has_none(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    found = FoundTrials([FoundTrial({"x": 0.5}, value=0.5)])
    monkeypatch.setattr(sources, "read_storage", lambda _: found)
    cli.file("model.py", MODEL)
    place = ("--executor", "joblib", "--workers", "1", "--study", "study")
    commands = (
        ("run", "model.py", "--trials", "2", "--warm-start", URL, *place),
        ("resume", "study", "--warm-start", URL, "--trials", "3"),
        ("status", "study"),
        ("status", "study", "--json"),
        ("show", "study", "1"),
        ("report", "study"),
        ("export", "study", "--format", "json"),
        ("export", "study", "--format", "mlflow", "-o", URL),
    )
    for command in commands:
        ended = cli(*command)
        assert ended.code == (2 if "mlflow" in command else 0), ended.err
        assert "geheim" not in ended.out + ended.err, command
    assert "cannot connect to postgresql://ada:***@db/earlier" in cli("show", "study", "1").out
    files = [path for path in (cli.directory / "study").rglob("*") if path.is_file()]
    with_it = {path.name for path in files if b"geheim" in path.read_bytes()}
    assert with_it <= {"log.txt", "model.py"}, "what user code writes itself"


def test_a_line_of_a_run_has_none() -> None:
    assert shown_line(Notice(f"ended with 7: {URL}")).endswith("7: postgresql://ada:***@db/earlier")
    cut = Notice(f"{URL[:24]}…")
    assert shown_line(cut) == "postgresql://ada:***…"

"""`hptune export --follow`: trials that end are written, and a failed writing is repeated."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from exported_study import varied
from hptune.errors import MissingPackageError
from hptune.reporting.exports import exports
from hptune.study.study import Study

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
    monkeypatch.setattr(Study, "_is_over", lambda _: next(over))
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
    monkeypatch.setattr(Study, "_is_over", lambda _: pytest.fail("it is not tried"))
    with pytest.raises(MissingPackageError, match="no_such"):
        varied(tmp_path / "one").export_to("tool_of_a_package:row", follow=True)

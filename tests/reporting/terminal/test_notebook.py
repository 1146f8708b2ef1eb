"""The display in a notebook, with a stand-in for IPython."""

from __future__ import annotations

import io
import linecache
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from fake_study import running, snapshot, trial
from hptune.core.notice import Notice
from hptune.core.trial import TrialState
from hptune.errors import UsageError
from hptune.reporting.terminal.display import make_progress, progress_stream
from hptune.user_code import user_errors


class Output:
    """An output below a cell."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def update(self, content: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(content["text/plain"])


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> Output:
    """A notebook whose third cell is /tmp/ipykernel_1/3.py."""
    output = Output()

    def display(content: dict[str, str], *, raw: bool, display_id: bool) -> Output:
        assert display_id
        output.update(content, raw=raw)
        return output

    names: dict[str, Any] = {"/tmp/ipykernel_1/3.py": ("Cell", "In[3]")}
    shell = SimpleNamespace(kernel=None, compile=SimpleNamespace(format_code_name=names.get))
    for name, content in (
        ("IPython", {"get_ipython": lambda: shell}),
        ("IPython.display", {"display": display}),
    ):
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    return output


def test_one_output_is_updated_at_most_once_a_second(output: Output) -> None:
    assert progress_stream() is sys.stdout
    stream = io.StringIO()
    progress = make_progress(stream, quiet=False)
    ended = trial(0, TrialState.COMPLETE, value=0.5)
    for tenth in range(30):
        now = 100.0 + tenth / 10
        shown = snapshot(ended, runs=(running(1, placed_at=100.0),), budget=5)
        progress.update(shown, [ended] if not tenth else [], now)
    progress.note(Notice("a note"))
    assert 2 <= len(output.shown) <= 3
    assert "1/5 trials" in output.shown[-1]
    assert "running" in output.shown[-1]
    progress.stop()
    progress.stop()
    assert output.shown[-1].count("\n") == 0
    assert stream.getvalue() == "a note\n"


def test_frames_in_cells_have_their_numbers_and_lines(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    del output
    file, source = "/tmp/ipykernel_1/3.py", "def f():\n    return 1 / 0\n"
    lines = source.splitlines(keepends=True)
    monkeypatch.setitem(linecache.cache, file, (len(source), None, lines, file))
    cells = user_errors.notebook_cells()
    monkeypatch.delitem(linecache.cache, file)
    user_errors.remember_cells(cells)  # in a trial's process
    names: dict[str, Any] = {}
    exec(compile(source, file, "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["f"]()
    shown = user_errors.user_traceback(caught.value)
    assert "Cell In[3], line 2, in f" in shown
    assert "return 1 / 0" in shown


def test_an_error_is_shown_without_the_frames_of_hptune() -> None:
    error = UsageError("trials is 0", "Cell In[3], line 2, in f")
    assert error._render_traceback_() == ["UsageError: trials is 0\n\nCell In[3], line 2, in f"]

"""The report's figures one by one: in a notebook's cell, and as files."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from browser import browser
from exported_study import varied
from hptune.config.model_file import ObjectiveSource, SourceKind
from hptune.config.settings import StudySettings
from hptune.errors import StudyError, UsageError
from hptune.reporting.html.reports import _Carrier
from hptune.study import Study
from stored_study import stored, typical

# A notebook inserts the output of a cell, and runs its scripts afterwards.
NOTEBOOK = """<!DOCTYPE html><meta charset=utf-8><link rel=icon href="data:,"><body>
<div class=cell></div><div class=cell></div><script>
const outputs = $OUTPUTS;
document.querySelectorAll(".cell").forEach((cell, number) => {
  cell.innerHTML = outputs[number];
  cell.querySelectorAll("script").forEach(each => {
    const script = document.createElement("script");
    script.textContent = each.textContent;
    each.replaceWith(script);
  });
});
</script>"""


def points(figure: object) -> int:
    """Return how many visible points a Bokeh figure has."""
    renderers = figure.renderers  # type: ignore[attr-defined]
    return sum(
        len(each.data_source.data["x"])
        for each in renderers
        if each.visible and type(each.glyph).__name__ == "Scatter"
    )


def test_the_figures_are_those_of_the_report_with_its_choice_of_trials(tmp_path: Path) -> None:
    study = Study(typical(tmp_path / "one"))  # three complete trials, and a pruned one
    assert points(study.plot_history().figures[0]) == 4
    assert points(study.plot_history(complete_only=True).figures[0]) == 3
    assert points(study.plot_history(complete_only=False).figures[0]) == 4
    assert len(study.plot_slices().figures) == 3
    assert repr(study.plot_parallel()) == "Plot('All configurations')"
    for plot in (study.plot_curves(), study.plot_timeline()):
        assert plot.figures[0].renderers
    assert varied(tmp_path / "two").plot_front().figures[0].renderers
    for plot in (study.plot_history(), study.plot_curves()):
        ticker = plot.figures[0].xaxis.ticker
        assert ticker.min_interval == 1.0, "there is no trial 0.5"


def test_what_cannot_be_plotted_says_what_is_missing(tmp_path: Path) -> None:
    study = Study(typical(tmp_path / "one"))
    with pytest.raises(StudyError, match="at least 20 trials"):
        study.plot_importance()
    with pytest.raises(StudyError, match="ten complete trials"):
        study.plot_contour()
    with pytest.raises(StudyError, match="two objectives"):
        study.plot_front()
    empty = Study(stored(tmp_path / "two"))
    for plot in (empty.plot_history, empty.plot_curves, empty.plot_slices, empty.plot_parallel):
        with pytest.raises(StudyError, match="there is nothing to plot"):
            plot()
        with pytest.raises(StudyError, match="there is nothing to plot"):
            plot(complete_only=True)
    with pytest.raises(StudyError, match="no trial has started"):
        empty.plot_timeline()


def test_a_cell_of_a_notebook_shows_its_figure_without_a_network(tmp_path: Path) -> None:
    study = Study(typical(tmp_path / "one"))
    outputs = [study.plot_history()._repr_html_(), study.plot_slices()._repr_html_()]
    assert all(len(each) < 600_000 for each in outputs)  # Jupyter drops more than 1 MB a second
    page = tmp_path / "notebook.html"
    shown = json.dumps(outputs).replace("</", "<\\/")
    page.write_text(NOTEBOOK.replace("$OUTPUTS", shown), encoding="utf-8")
    saved = tmp_path / "saved.html"
    study.plot_history().save(saved)
    with browser() as seen:
        for path, figures in ((page, 4), (saved, 1)):
            seen.page.goto(path.as_uri())
            seen.page.wait_for_function(
                "count => window.Bokeh && document.querySelectorAll('.bk-Figure').length === count"
                " && Bokeh.documents.every(each => each.is_idle)",
                arg=figures,
            )
        assert seen.complaints == []
        assert {each.partition(":")[0] for each in seen.requests} <= {"file", "data"}


def test_a_notebook_has_one_copy_of_bokeh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(typical(tmp_path / "one"))
    shell = SimpleNamespace(kernel=None, execution_count=1)
    module = ModuleType("IPython")
    vars(module)["get_ipython"] = lambda: shell
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr("hptune.reporting.html.reports._carrier", _Carrier())

    def shown(cell: str) -> str:
        shell.get_parent = lambda: {"metadata": {"cellId": cell}}
        shell.execution_count += 1
        return study.plot_history()._repr_html_()

    assert len(shown("in a terminal")) > 100_000
    shell.kernel = "a kernel"
    outputs = [shown("first"), shown("second")]
    sizes = [len(each) > 100_000 for each in (*outputs, shown("second"), shown("first"))]
    assert sizes == [True, False, False, True]  # a cell that runs again has no former output
    page = tmp_path / "notebook.html"
    # The browser may show the second one first.
    inserted = json.dumps(outputs[::-1]).replace("</", "<\\/")
    page.write_text(NOTEBOOK.replace("$OUTPUTS", inserted), encoding="utf-8")
    with browser() as seen:
        seen.page.goto(page.as_uri())
        seen.page.wait_for_function("document.querySelectorAll('.bk-Figure').length === 2")
        assert not seen.page.get_by_text("This figure is drawn by").is_visible()
        assert seen.complaints == []


def test_a_study_shows_itself_as_a_card(tmp_path: Path) -> None:
    study = Study(typical(tmp_path / "<b>one"))
    study.note(tags=["<i>odd"])
    shown = study._repr_html_()
    assert "<b>&lt;b&gt;one</b>" in shown
    assert "&lt;i&gt;odd" in shown
    assert "trial 2" in shown
    assert shown.count("<circle") == 4
    assert "<script" not in shown
    assert "No trial has begun yet." in Study(stored(tmp_path / "two"))._repr_html_()


def test_the_save_tool_of_a_figure_writes_a_picture(tmp_path: Path) -> None:
    plot = Study(typical(tmp_path / "one")).plot_history()
    for backend, kind in (("canvas", b"\x89PNG"), ("svg", b"<svg")):
        plot.figures[0].output_backend = backend
        plot.save(tmp_path / "plot.html")
        with browser() as seen:
            seen.page.goto((tmp_path / "plot.html").as_uri())
            seen.page.on("dialog", lambda asked: asked.accept("history"))  # for the file's name
            seen.page.locator(".bk-Figure").hover()
            with seen.page.expect_download() as download:
                seen.page.locator(".bk-tool-icon-save").click()
            assert download.value.path().read_bytes().startswith(kind)


def test_a_figure_is_written_as_html_only(tmp_path: Path) -> None:
    plot = Study(typical(tmp_path / "one")).plot_history()
    with pytest.raises(UsageError, match=r"ends with .svg; a figure is written as .html, and its"):
        plot.save(tmp_path / "a.svg")
    with pytest.raises(UsageError, match="cannot be written"):
        plot.save(tmp_path / "no" / "a.html")


def test_markdown_has_the_best_trials_and_what_was_asked(tmp_path: Path) -> None:
    page = varied(tmp_path / "my|study").report_markdown()
    lines = page.splitlines()
    assert lines[0] == r"# my\|study"
    assert "| trial | state | accuracy | params | epoch | configuration |" in lines
    row = "| 0 | complete | 0.9000 | 500.0 | 2 | lr=0.01 units=32 act=relu dropout=False depth=2"
    assert any(line.startswith(row) for line in lines)
    assert "| --trials | 10 |" in lines
    assert "| rate | Float 0.0..0.5, step 0.1 | dropout is True |" in lines
    assert any(line.startswith("| 1 | ValueError: bad shape | trial 4 |") for line in lines)
    assert "Importance" not in page  # too few trials
    assert "No trial has begun yet." in Study(stored(tmp_path / "empty")).report_markdown()


def test_the_seed_that_was_given_is_shown_once(tmp_path: Path) -> None:
    given = StudySettings(
        source=ObjectiveSource(SourceKind.FILE, "model.py"),
        working_directory="",
        search="random",
        trials=10,
        seed=7,
    )
    setup = Study(stored(tmp_path / "a", settings=given.to_json(), seed=7)).setup()
    assert [fact for fact in setup.facts if "seed" in fact[0]] == [("seed", "7")]
    assert setup.command.count("--seed 7") == 1

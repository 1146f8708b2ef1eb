"""The report's figures one by one: in a notebook's cell, and as files."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Chromium
from exported_study import varied
from fake_study import GOALS, trial
from hptune.config.settings import StudySettings
from hptune.core.goals import Goals
from hptune.core.trial import CONFIRMS, Direction, Goal
from hptune.errors import StudyError, UsageError
from hptune.reporting.html.methods import methods_text
from hptune.reporting.results.view import StudyView
from hptune.study.study import Study
from hptune.user_code.source import ObjectiveSource, SourceKind
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


POINTS = """() => [...document.querySelectorAll("svg:not(.legend svg) path")]
  .map(each => (each.getAttribute("d").match(/h0|l4 -7l4 7z/g) || []).length)
  .reduce((sum, count) => sum + count, 0)"""


def test_the_figures_are_those_of_the_report_with_the_trials_that_are_asked_for(
    tmp_path: Path, chromium: Chromium
) -> None:
    study = Study(typical(tmp_path / "one"))  # three complete trials, and a pruned one
    assert repr(study.plot_parallel()) == "Plot('All configurations')"
    file = tmp_path / "plot.html"
    with chromium.window() as seen:
        for plot, points, figures in (
            (study.plot_history(), 4, 1),
            (study.plot_history(complete_only=True), 3, 1),
            (study.plot_slices(), 10, 3),
            (study.plot_curves(), 0, 1),
            (study.plot_timeline(), 0, 1),
            (varied(tmp_path / "two").plot_front(), 3, 1),
        ):
            plot.save(file)
            seen.open(file)
            assert seen.page.locator(".figure > svg").count() == figures, plot
            assert seen.page.evaluate(POINTS) == points, plot
        assert seen.complaints == []


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


def test_a_cell_of_a_notebook_shows_its_figure_without_a_network(
    tmp_path: Path, chromium: Chromium
) -> None:
    study = Study(typical(tmp_path / "one"))
    outputs = [study.plot_history()._repr_html_(), study.plot_slices()._repr_html_()]
    assert all(len(each) < 100_000 for each in outputs)  # Jupyter drops more than 1 MB a second
    page = tmp_path / "notebook.html"
    shown = json.dumps(outputs).replace("</", "<\\/")
    page.write_text(NOTEBOOK.replace("$OUTPUTS", shown), encoding="utf-8")
    saved = tmp_path / "saved.html"
    study.plot_history().save(saved)
    with chromium.window() as seen:
        for path, figures in ((page, 4), (saved, 1)):
            seen.open(path)
            assert seen.page.locator(".figure > svg").count() == figures
        assert seen.complaints == []
        assert {each.partition(":")[0] for each in seen.requests} <= {"file", "data"}


def test_a_report_is_written_and_shown_as_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study(typical(tmp_path / "my study"))
    written = study.report()
    assert repr(written) == "Wrote 'my study/report.html'"
    assert written._repr_html_().startswith('<p><a href="my study/report.html"')
    assert "<section" in written.path.read_text()
    assert study.report("short.md").path.read_text().startswith("# my study\n")
    for path, file_format in (("page.pdf", ""), ("page.md", "html"), ("page.html", "xml")):
        with pytest.raises(UsageError, match=r"html"):
            study.report(path, file_format=file_format)
        assert not Path(path).exists()


def test_a_result_that_other_tuners_call_otherwise_is_named(tmp_path: Path) -> None:
    study = Study(typical(tmp_path / "one"))
    for name, words in (
        ("best_params", r"no attribute 'best_params'\. Use study\.best_hyperparameters\."),
        ("stop", r"Use study\.directory as the DIR of `hptune stop DIR`\."),
        ("path", r"Use study\.directory\."),
        ("best_modle", r"Did you mean study\.best_model"),
        ("nothing_alike", r"no attribute 'nothing_alike'\.$"),
    ):
        with pytest.raises(AttributeError, match=words) as refused:
            getattr(study, name)
        shown = "".join(traceback.format_exception(refused.value))
        assert shown.count("Did you mean") <= 1, shown
    assert not hasattr(study, "best_value")


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


def test_a_figure_is_written_as_html_only(tmp_path: Path) -> None:
    plot = Study(typical(tmp_path / "one")).plot_history()
    with pytest.raises(UsageError, match=r"ends with .svg; a figure is written as .html, and the"):
        plot.save(tmp_path / "a.svg")
    with pytest.raises(UsageError, match="cannot be written"):
        plot.save(tmp_path / "no" / "a.html")


def test_markdown_has_the_best_trials_and_what_was_asked(tmp_path: Path) -> None:
    page = varied(tmp_path / "my|study").report_markdown()
    lines = page.splitlines()
    assert lines[0] == r"# my\|study"
    heads = "| trial | state | accuracy | params | from epoch | time | origin | configuration |"
    assert heads in lines
    row = "| 0 | complete | 0.9000 | 500 | 2 | 43s | tpe | lr=0.01 units=32 act=relu dropout=False"
    assert any(line.startswith(row) for line in lines)
    assert "## Best trial in accuracy" in lines, "another may be the best in the others"
    assert "| --trials | 10 |" in lines
    assert "| rate | Float 0.0..0.5, step 0.1 | dropout is True |" in lines
    assert any(line.startswith("| 1 | ValueError: bad shape | trial 4 |") for line in lines)
    assert "Importance" not in page  # too few trials
    assert "No trial has begun yet." in Study(stored(tmp_path / "empty")).report_markdown()


def test_methods_are_a_paragraph_on_how_the_best_was_found(tmp_path: Path) -> None:
    study = varied(tmp_path / "a|study")
    study.report(file_format="methods")
    study.report(file_format="methods")  # replaces its own
    words = (tmp_path / "a|study" / "methods.md").read_text()
    for part in (
        "(search random) to maximise accuracy and minimise params",
        "The seed was 1; the seed of each trial follows from it.",
        "rate (Float 0.0..0.5, step 0.1, only if dropout is True)",
        "1 failed",
        "The limits were --trials 10.",
        "The failures were 1 x ValueError: bad shape (trial 4).",
        "The best was",
        "lr=0.01",
        "To add: the versions of the framework",
    ):
        assert part in words, words
    begun = Study(stored(tmp_path / "empty"))
    begun.report(tmp_path / "methods.md", file_format="methods")
    assert "No trial is complete yet." in (tmp_path / "methods.md").read_text()


def test_methods_count_repeats_apart_and_name_a_pruner_only_if_there_is_one() -> None:
    view = StudyView(
        directory="one",
        search="tpe",
        goals=GOALS,
        budget_trials=2,
        trials=[
            trial(0, value=0.5),
            trial(1, value=0.6),
            trial(2, value=0.7, origin=f"{CONFIRMS}1"),
        ],
        rungs=(1, 3),
    )
    facts = {"hptune": "1", "seed": "7"}
    words = methods_text(view, {**facts, "--pruner": "none"}, now=0.0)
    assert "There were 2 trials, and 1 repeat of the best ones: 3 complete." in words
    assert "The best was 0.7000" in words
    assert "pruned" not in words
    words = methods_text(view, {**facts, "--pruner": "asha"}, now=0.0)
    assert "Poor trials were pruned by asha at steps 1, 3." in words
    two = Goals((*GOALS.objectives, Goal("size", Direction.MIN)))
    trials = [replace(each, extra_values=(each.value or 0.0,)) for each in view.trials[:2]]
    words = methods_text(replace(view, goals=two, trials=trials), facts, now=0.0)
    best = "the best in val_accuracy was val_accuracy 0.6000, size 0.6000, trial 1"
    assert f"Of 2 trials on the Pareto front, {best}" in words


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

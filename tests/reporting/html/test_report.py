"""The report, in a real browser."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from hptune.reporting.html.space_figures import slices

from browser import browser
from fake_study import attempt, trial
from hptune import text
from hptune.core.attempt import Outcome, ReportedValue
from hptune.core.goals import Goals
from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FloatParameter,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, TrialState
from hptune.reporting.html.panel import Panel, Shown, blank_figure
from hptune.reporting.html.report import make_report, page_of
from hptune.reporting.html.run_figures import all_trials, timeline
from hptune.reporting.html.search_figures import history, importance
from hptune.reporting.html.trials import StudyTrials
from hptune.reporting.results.view import StudyView
from hptune.storage.lease import LockOwner
from report_study import SETUP, SPACE, study, view


def written(path: Path, of: StudyView, reports: list[ReportedValue]) -> Path:
    page = path / "report.html"
    page.write_text(
        page_of(make_report(StudyTrials(of, SPACE, reports), SETUP, now=2000.0)), encoding="utf-8"
    )
    return page


def test_the_page_in_a_browser(tmp_path: Path) -> None:
    page = written(tmp_path, *study(39))
    with browser() as seen:
        seen.open(page)
        for section in ("best", "history", "curves", "importance", "slices", "parallel",
                        "contour", "stopping", "timeline", "costs", "failures", "setup",
                        "trials"):  # fmt: skip
            assert seen.page.locator(f"#{section} h2").count() == 1, section
        # The choice of trials acts on figures and tables alike.
        assert seen.points("history") == 26
        complete = seen.points("contour")
        seen.page.get_by_label("with stopped ones").check()
        assert seen.points("history") == 39
        assert seen.points("contour") > complete
        seen.page.get_by_label("complete only").check()
        assert seen.points("history") == 26
        assert seen.points("contour") == complete
        # What a trial wrote is shown as it is, and does nothing.
        assert "hptune: digits" in seen.page.title()
        assert "document.title = 'hacked'" in seen.page.locator("#failures").inner_text()
        rows = seen.page.locator("#trials tbody tr")
        seen.page.locator("#trials summary").click()
        assert rows.count() == 40
        assert "39" in rows.nth(39).inner_text()
        seen.page.set_viewport_size({"width": 390, "height": 800})
        # A phone does not scroll sideways, once the figures have followed.
        seen.page.wait_for_function("document.documentElement.scrollWidth <= 390")
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(seen.page).response["violations"]
        grave = [each["id"] for each in found if each["impact"] in ("serious", "critical")]
        assert grave == [], grave
        assert seen.requests == [page.as_uri()], "nothing is fetched"
        assert seen.complaints == []


def test_studies_with_little_to_show(tmp_path: Path) -> None:
    """No trial, one trial, one step, several objectives: what can be shown is shown."""
    two = Goals((Goal("val_accuracy", Direction.MAX), Goal("size", Direction.MIN)))
    several = [
        replace(trial(n, value=0.1 * n, params={"units": n}), extra_values=(float(n),))
        for n in range(5)
    ]
    studies = {
        "nothing": (view([], []), set[str]()),
        "one": (view([trial(0, value=0.5, params={})], [attempt(0, ended_at=1001.0)]),
                {"history"}),
        "several": (view(several, [], two), {"history", "front"}),
    }  # fmt: skip
    for name, (of, shown) in studies.items():
        (tmp_path / name).mkdir()
        page = written(tmp_path / name, of, []).read_text(encoding="utf-8")
        for section in ("best", "setup", "trials", *shown):
            assert f'<section id="{section}">' in page, name
        assert ("front" in shown) == ('<section id="front">' in page)
        assert '<section id="curves">' not in page
        assert "hptune run model.py --trials 40" in page


def test_other_declarations_of_a_name_and_large_steps() -> None:
    """Also with trials of values that the space shows under another condition."""
    under = {head: (Condition("head", (head,)),) for head in "ab"}
    space = SearchSpace(
        (
            ChoiceParameter("head", ("a", "b")),
            FloatParameter("rate", 0.0, 1.0, conditions=under["a"]),
            ChoiceParameter("rate", ("low", "high"), conditions=under["b"]),
            FloatParameter("x", 0.0, 1.0),
        )
    )
    trials = [
        trial(
            n,
            value=n / 60,
            params={"head": "ab"[n % 2], "rate": "low" if n % 2 else n / 60, "x": n / 60},
        )
        for n in range(60)
    ]
    reports = [ReportedValue(59, 0, step, "val_accuracy", 0.5, 1.0) for step in (1, 2**40)]
    page = page_of(make_report(StudyTrials(view(trials, []), space, reports), SETUP, now=2000.0))
    assert '<section id="contour">' in page
    assert str(2**40) in page


def test_long_curves_are_thinned_at_the_same_steps() -> None:
    lengths = (1000, 999, 3)
    reports = [
        ReportedValue(number, 0, step, "val_accuracy", 0.5, 1.0)
        for number, length in enumerate(lengths)
        for step in range(1, length + 1)
    ]
    (one, _), (other, _), (short, _) = StudyTrials(view([], []), SPACE, reports).curves.values()
    assert (len(one), one[-1], other[-1], short) == (201, 1000, 999, [1, 3])
    assert one[:-1] == other[:-1]


def test_trials_that_break_a_constraint_are_not_the_best_so_far() -> None:
    trials = [
        replace(trial(n, value=value), violation=violation)
        for n, (value, violation) in enumerate([(0.5, 0.0), (0.9, 1.0), (0.625, 0.0)])
    ]
    tables = history(StudyTrials(view(trials, []), SPACE, [])).tables
    (shown,) = [each for each in tables if each.shown is Shown.COMPLETE_ONLY]
    assert shown.rows == [("0", "0.5000"), ("2", "0.6250")]


def test_crosses_mark_trials_that_break_a_constraint() -> None:
    two = Goals((Goal("val_accuracy", Direction.MAX), Goal("size", Direction.MIN)))
    trials = [
        replace(trial(n, value=value), extra_values=(7.0,), violation=float(n == 1))
        for n, value in enumerate((0.5, 0.9, 0.625))
    ]
    panels = panels_of(view(trials, [], two), [])
    for name in ("history", "slices", "front"):
        panel = panels[name]
        assert "Crosses are trials that break a constraint." in panel.words
        (crosses,) = (each for each in panel.figures[0].renderers if marker_of(each) == "x")
        assert crosses.data_source.data["trial"] == [1]


def marker_of(renderer: Any) -> str:
    return str(getattr(renderer.glyph, "marker", ""))


def trials_of(*values: float, space: SearchSpace = SPACE) -> StudyTrials:
    rng = np.random.default_rng(0)
    found = [trial(n, value=value, params=space.sample(rng)) for n, value in enumerate(values)]
    return StudyTrials(view(found, []), space, [])


def slices_of(trials: StudyTrials) -> Panel:
    panel = slices(trials)
    assert panel is not None
    return panel


def test_axes_of_hyperparameters_show_the_whole_range() -> None:
    rate = slices_of(trials_of(0.5)).figures[0].x_range
    assert 0.9e-4 > rate.start > 0.5e-4
    assert 0.2 > rate.end > 0.1
    beyond = trial(1, value=0.5, params={"learning_rate": 0.5})  # tried before the range shrank
    assert slices_of(StudyTrials(view([beyond], []), SPACE, [])).figures[0].x_range.end > 0.5
    one = SearchSpace((FloatParameter("x", 0.0, 1.0),))
    assert "over the hyperparameter. " in slices_of(trials_of(0.5, space=one)).words


def test_trials_outside_the_axis_are_counted() -> None:
    values = [0.9 + 0.001 * n for n in range(10)]
    assert "outside" not in history(trials_of(*values)).words
    for far, words in (([0.1], "One trial is"), ([0.1, 0.2], "2 trials are")):
        trials = trials_of(*values, *far)
        for panel in (history(trials), slices_of(trials)):
            assert f"{words} far worse, and outside the axis." in panel.words


def test_figures_have_the_order_of_the_importance() -> None:
    trials = StudyTrials(study(90)[0], SPACE, [])
    shown = next(t for t in importance(trials).tables if t.shown is Shown.COMPLETE_ONLY)
    leading = [row[0] for row in slices_of(trials).tables[0].rows]
    assert leading == [row[0] for row in shown.rows][: len(leading)]


def test_early_stopping_is_shown_with_the_rank_correlation_at_its_rungs() -> None:
    of, reports = study(30)
    ends = {t.number: t.value for t in of.trials if t.state is TrialState.COMPLETE and t.value}
    at_rungs = {1: {n: -value for n, value in ends.items()}, 3: ends}
    panel = panels_of(replace(of, at_rungs=at_rungs), reports)["stopping"]
    assert "rank correlation of the values there" in panel.words.lower()
    assert "-1.00 at 1, 1.00 at 3. Early stopping may mislead: " in panel.words
    assert panel.words.endswith("; use --min-epochs 3 (1.00) or --pruner none.")
    assert [tuple(row) for row in panel.tables[1].rows] == [
        ("1", "20", "-1.000"),
        ("3", "20", "1.000"),
    ]
    assert len(panels_of(of, reports)["stopping"].tables) == 1


def test_dragging_over_a_figure_scrolls_the_page() -> None:
    assert blank_figure("x", "y").toolbar.active_drag is None


def test_all_sections_count_the_trials_alike() -> None:
    of, reports = study(12)
    waits = replace(trial(13, TrialState.WAITING), attempts=0)
    waiting = replace(of, trials=[*of.trials, waits])
    report = make_report(StudyTrials(waiting, SPACE, reports), SETUP, now=2000.0)
    last = panels_of(waiting, reports)["trials"]
    assert report.head[1] == "13/40 trials: 8 complete, 4 pruned, 1 failed, 27 to come"
    assert last.words == "8 complete, 4 pruned, 1 failed, 27 to come."


def test_what_a_dead_master_left_is_interrupted_when_it_was_last_seen() -> None:
    two = Goals((Goal("val_accuracy", Direction.MAX), Goal("size", Direction.MIN)))
    left = [
        trial(0, TrialState.RUNNING),
        replace(trial(1, value=0.5), extra_values=(7.0,)),
        trial(2, TrialState.PRUNED, value=0.25),
    ]
    ran = [attempt(0), attempt(1, ended_at=1010.0, outcome=Outcome.FINISHED)]
    of = StudyTrials(view(left, ran, two), SPACE, [])
    (table,) = all_trials(of).tables
    assert table.columns[:4] == ("trial", "state", "val_accuracy", "size")
    assert [row[1:4] for row in table.rows] == [
        ("interrupted", text.NOTHING, text.NOTHING),
        ("complete", "0.5000", "7.000"),
        ("pruned", "0.2500", text.NOTHING),
    ]
    panel = timeline(of, now=1e6)
    assert panel is not None
    assert panel.tables[0].rows[0][3] == "10s", "the worker was last seen then"


def test_a_page_with_few_complete_trials_begins_with_the_stopped_ones() -> None:
    of, reports = study(12)
    few = replace(
        of, trials=[t for t in of.trials if t.state is not TrialState.COMPLETE or not t.number]
    )
    for each, begins in ((of, "complete-only"), (few, "with-pruned")):
        page = page_of(make_report(StudyTrials(each, SPACE, reports), SETUP, now=2000.0))
        assert f'<body class="{begins}-shown">' in page
        assert f'value="{begins}" checked' in page


def test_a_thousand_trials_are_no_burden() -> None:
    of, reports = study(1000)
    page = page_of(make_report(StudyTrials(of, SPACE, reports), SETUP, now=2000.0))
    assert len(page) < 10e6
    assert page.count('<section id="') == 13


def test_of_many_paused_trials_the_last_are_shown() -> None:
    found, reports = study(12)
    paused = [trial(number, TrialState.PAUSED, 0.5, step=1) for number in range(100, 160)]
    master = LockOwner("node", 1, 0.0)
    of = replace(found, master=master, trials=[*paused[::-1], *found.trials])
    panel = panels_of(of, reports)["running"]
    assert panel.words == "60 paused (the last 50 are shown)."
    assert [row[0] for row in panel.tables[0].rows] == [str(each) for each in range(110, 160)]


def test_few_trials_give_no_importance() -> None:
    few = panels_of(*study(12))
    assert few["importance"].words.startswith("No importance yet: at least 20 trials")
    assert few["importance"].figures == ()
    of, reports = study(27)  # 18 are complete
    panel = panels_of(of, reports)["importance"]
    assert "Stopped trials count, too: fewer than 20 are complete." in panel.words
    assert all(each.visible for each in panel.figures[0].renderers)
    assert [table.shown for table in panel.tables] == [Shown.ALWAYS]
    assert "of their declaration, because importance needs 20 trials" in few["slices"].words
    assert "most important" not in " ".join(each.words for each in few.values())
    many = panels_of(*study(39))
    assert "the most important first" in many["slices"].words
    assert "the most important first" in many["contour"].words


def test_names_and_values_that_look_alike_stay_apart() -> None:
    space = SearchSpace(
        (
            FloatParameter("score", 0.0, 1.0),  # as the metric
            FloatParameter("trial", 0.0, 1.0),  # as a column
            FloatParameter("\x1btrial", 0.0, 1.0),
            ChoiceParameter("rate", (0.123456789, 0.123456788), ordered=False),
        )
    )
    rng = np.random.default_rng(0)
    found = [trial(n, TrialState.COMPLETE, n / 30, params=space.sample(rng)) for n in range(30)]
    of = replace(view(found, []), goals=Goals((Goal("score", Direction.MAX),)))
    report = make_report(StudyTrials(of, space, []), SETUP, now=2000.0)
    panels = {each.name: panel for each, panel in report.panels()}
    assert [row[0] for row in panels["importance"].tables[0].rows].count("trial") == 1
    (table,) = panels["trials"].tables
    assert table.columns[0::2][:1] == ("trial",)
    assert len({*table.columns}) == len(table.columns)
    assert {"score", "score (hyperparameter)", "trial (hyperparameter)"} <= {*table.columns}
    rates = next(f for f in panels["slices"].figures if f.xaxis[0].axis_label == "rate")
    assert [*rates.x_range.factors] == ["0.1235", "0.1235 (2)"]
    assert {*rates.renderers[0].data_source.data["x"]} == {*rates.x_range.factors}
    page_of(report)


def panels_with(space: SearchSpace, values: list[float]) -> dict[str, Panel]:
    rng = np.random.default_rng(0)
    found = [trial(n, value=value, params=space.sample(rng)) for n, value in enumerate(values)]
    report = make_report(StudyTrials(view(found, []), space, []), SETUP, now=2000.0)
    page_of(report)
    return {each.name: panel for each, panel in report.panels()}


def test_values_that_do_not_differ_have_one_colour_and_no_importance() -> None:
    panels = panels_with(SPACE, [0.5] * 30)
    assert panels["importance"].words == "No importance: the trials do not differ in their values."
    assert panels["importance"].figures == ()
    assert "in the order of their declaration" in panels["contour"].words
    for name in ("contour", "parallel"):
        mapper = panels[name].figures[0].right[0].color_mapper
        assert mapper.low < 0.5 < mapper.high, "rounding errors would have the colours of extremes"


def test_values_whose_distance_overflows_are_not_drawn() -> None:
    panels = panels_with(SPACE, [sys.float_info.max, -sys.float_info.max, 0.25, 0.5])
    points = panels["history"].figures[0].renderers[0].data_source.data["value"]
    assert points == [0.25, 0.5]


def test_thousands_of_hyperparameters_and_long_names() -> None:
    many = SearchSpace(tuple(FloatParameter(f"p{n}", 0.0, 1.0) for n in range(1000)))
    panels = panels_with(many, [n / 30 for n in range(30)])
    (bars,) = panels["importance"].figures
    assert bars.height < 2000, "a browser draws no figure of tens of thousands of pixels"
    assert "30 of 1000" in panels["importance"].words
    assert len(panels["importance"].tables[0].rows) == 1000
    assert len(panels["parallel"].figures[0].xaxis[0].ticker.ticks) == 20
    long = [f"encoder.layer.{n}.{'attention.' * 9}rate" for n in range(3)]
    choice = ChoiceParameter("head", ("a" * 99, "b" * 99))
    space = SearchSpace((*(FloatParameter(name, 0.0, 1.0) for name in long), choice))
    panels = panels_with(space, [n / 30 for n in range(30)])
    for name in ("importance", "slices", "contour", "parallel"):
        for figure in panels[name].figures:
            axes = (figure.xaxis[0], figure.yaxis[0])
            labels = [each.axis_label or "" for each in axes]
            labels += [word for each in axes for word in each.major_label_overrides.values()]
            for limits in (figure.x_range, figure.y_range):
                labels += getattr(limits, "factors", [])
            assert max(map(len, labels)) <= 40, name
    assert {row[0] for row in panels["importance"].tables[0].rows} == {*long, "head"}


def panels_of(of: StudyView, reports: list[ReportedValue]) -> dict[str, Panel]:
    report = make_report(StudyTrials(of, SPACE, reports), SETUP, now=2000.0)
    return {each.name: panel for each, panel in report.panels()}

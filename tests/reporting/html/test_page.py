"""The report's page in a real browser: what is shown, chosen, compared and walked."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from browser import Browser, browser
from fake_study import LivingMaster, attempt, trial
from hptune.core.attempt import Outcome, ReportedValue, Usage
from hptune.core.goals import Goals
from hptune.core.messages import UserRequested
from hptune.core.space.space import (
    ChoiceParameter,
    FloatParameter,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, TrialState
from hptune.core.user_requests import Note, UserAction
from hptune.reporting.html.report import make_report, page_of
from hptune.reporting.html.trials import StudyTrials
from hptune.text import NOTHING
from real_runs import wait_for
from report_study import (
    SETUP,
    SPACE,
    page_text,
    panels_of_page,
    study,
    trials_of,
    view,
)

SCREEN: Any = {"width": 1400, "height": 900}


@pytest.fixture(scope="module")
def started() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def window(started: Browser) -> Browser:
    """The browser, as wide as a screen whatever the test before made of it."""
    started.page.set_viewport_size(SCREEN)
    return started


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page_text(*study(39)), encoding="utf-8")
    return path


@pytest.fixture
def seen(window: Browser, file: Path) -> Iterator[Browser]:
    """The page of 26 complete, 13 pruned trials and a failed one, as it opens."""
    window.page.goto("about:blank")
    window.requests.clear()
    window.open(file)
    yield window
    assert {each.partition(":")[0] for each in window.requests} <= {"file", "blob", "data"}
    assert window.complaints == []


def grave_faults(page: Any) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


def rows(seen: Browser) -> Any:
    return seen.figure("trials").locator(".scroll").first.locator("tbody tr")


def shown(seen: Browser) -> int:
    """Return how many trials the table says that it shows."""
    return int(seen.figure("trials").locator(".tools > span").inner_text().split()[0])


def choose(seen: Browser, name: str, option: str) -> None:
    seen.page.get_by_label(name, exact=True).select_option(option)


def test_the_first_screen_has_what_matters(seen: Browser) -> None:
    for width, height in ((1400, 900), (390, 844)):
        seen.page.set_viewport_size({"width": width, "height": height})
        seen.page.wait_for_function("w => document.documentElement.scrollWidth <= w", arg=width)
        for place in ("#tiles", "#best", "#history svg"):
            box = seen.page.locator(place).last.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] <= height, place
        assert grave_faults(seen.page) == []
    tiles = seen.page.locator("#tiles").inner_text()
    for words in (
        "best val_accuracy",
        "40/40",
        "26 complete",
        "13 pruned, 1 failed",
        "core minutes",
    ):
        assert words in tiles
    for section in ("best", "history", "trials", "curves", "importance", "parallel", "slices",
                    "contour", "stopping", "costs", "failures", "timeline", "setup"):  # fmt: skip
        assert seen.page.locator(f"#{section} h2").count() == 1, section
    assert seen.page.locator("#front").count() == 0
    # What a trial wrote is shown as it is, and does nothing.
    assert "hptune: digits" in seen.page.title()
    assert "document.title = 'hacked'" in seen.page.locator("#failures").inner_text()


def test_a_choice_of_trials_acts_on_all_figures_and_the_table(seen: Browser) -> None:
    assert (seen.points("history"), rows(seen).count()) == (39, 25)
    whole = seen.points("contour")
    choose(seen, "Trials", "complete")
    assert seen.points("history") == 26
    assert 0 < seen.points("contour") < whole
    assert shown(seen) == 26
    choose(seen, "Trials", "all")
    seen.page.get_by_label("Filter", exact=True).fill("tanh value>0.8 nonsense")
    seen.page.get_by_text("Nothing is known of: nonsense.").wait_for()
    activation = rows(seen).locator("td", has_text=re.compile("^(relu|tanh)$")).all_inner_texts()
    assert set(activation) == {"tanh"}
    assert 0 < seen.points("history") == shown(seen) == len(activation) < 25


def test_metric_axes_and_colours_are_chosen(seen: Browser) -> None:
    choose(seen, "Metric", "loss")
    assert seen.figure("history").get_attribute("aria-label") == "loss of each trial"
    choose(seen, "Metric", "val_accuracy")
    before = seen.figure("slices").locator(".axes text").all_text_contents()
    choose(seen, "Other axes", "linear")
    assert seen.figure("slices").locator(".axes text").all_text_contents() != before
    choose(seen, "Colour", "dropout")
    legend = seen.figure("history").locator(".legend")
    assert {"dropout False", "dropout True"} <= {*map(str.strip, legend.inner_text().split("\n"))}
    choose(seen, "Colour", "value")
    assert legend.locator(".gradient").count() == 1
    seen.page.get_by_label("Up", exact=True).select_option("rate")
    assert "and rate" in (seen.figure("contour").get_attribute("aria-label") or "")


def test_a_brush_of_an_axis_shows_the_same_trials_everywhere(seen: Browser) -> None:
    figure = seen.figure("parallel")
    figure.scroll_into_view_if_needed()
    axis = figure.locator(".handle").first.bounding_box()
    assert axis is not None
    x, top, down = axis["x"] + axis["width"] / 2, axis["y"], axis["height"]
    seen.page.mouse.move(x, top + 8)
    seen.page.mouse.down()
    seen.page.mouse.move(x, top + down / 3)
    seen.page.mouse.up()
    chip = seen.page.locator("#brushes button")
    assert chip.inner_text().startswith("val_accuracy 0.")
    assert 0 < (left := shown(seen)) < 39
    dim = "#history path[opacity='0.2']"
    seen.figure("history")
    parts = seen.page.locator(dim).evaluate_all("all => all.map(each => each.getAttribute('d'))")
    assert sum(each.count("M") for each in parts) == 39 - left
    chip.press("Enter")
    assert seen.page.locator(dim).count() == 0
    # Axes are moved by their names.
    names = figure.locator(".name")
    assert names.nth(1).text_content() == "learning_rate"
    names.nth(1).drag_to(names.nth(2))
    assert names.nth(2).text_content() == "learning_rate"


def test_the_table_sorts_compares_and_is_downloaded(seen: Browser) -> None:
    page = seen.page
    head = page.locator("#trials th[aria-sort=descending]")
    assert rows(seen).first.get_attribute("class") == "best", "as `hptune trials` begins"
    for _ in range(2):
        page.get_by_role("button", name=re.compile("^val_accuracy .$")).press("Enter")
    assert head.inner_text().startswith("val_accuracy")
    assert rows(seen).first.get_attribute("class") == "best"
    page.locator("#trials summary").click()
    page.get_by_role("checkbox", name="origin", exact=True).check()
    chosen = [int(each) for each in rows(seen).locator("a").all_inner_texts()[:2]]
    for number in chosen:
        page.get_by_role("checkbox", name=f"Compare trial {number}", exact=True).check()
    compare = page.locator(".compare")
    assert compare.locator("thead a").all_inner_texts() == [f"trial {each}" for each in chosen]
    assert "≠" not in compare.locator("tr", has_text="state").inner_text()
    assert "≠" in compare.locator("tr", has_text="learning_rate").inner_text()
    assert compare.locator("svg path[stroke='#c47b17']").count() > 0
    page.get_by_label("Filter", exact=True).fill("failed")
    page.locator("#trials").get_by_text("1 of 40 trials").wait_for()
    files = {}
    for kind in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("button", name=kind, exact=True).click()
        files[kind] = download.value.path().read_text(encoding="utf-8")
    names, *cells = csv.reader(io.StringIO(files["CSV"]))
    (row,) = json.loads(files["JSON"])
    assert names == list(row)
    assert [row["trial"], row["state"], row["origin"]] == [39, "failed", "tpe"]
    assert cells[0][0] == "39"
    assert grave_faults(page) == []


def test_every_mark_leads_to_the_page_of_its_trial(seen: Browser) -> None:
    page = seen.page
    figure = seen.figure("history")
    figure.focus()
    for key in ("ArrowRight", "ArrowRight", "Enter"):  # the second point
        page.keyboard.press(key)
    page.locator("#trial h2").wait_for()
    assert page.url.endswith("#trial-1")
    assert "Trial 1" in page.locator("#trial h2").inner_text()
    assert not page.locator("#history").is_visible()
    assert page.locator("#trial .figure svg").count() == 1
    words = page.locator("#trial").inner_text()
    assert "hptune run model.py --trials 1 --try '{" in words
    assert "hptune log studies/digits 1" in words
    assert "pruned" in page.locator("#trial table").last.inner_text()
    assert grave_faults(page) == []
    page.goto(page.url.replace("#trial-1", "#trial-39"))
    assert "Traceback" in page.locator("#trial pre.detail").inner_text()
    listed = [int(each) for each in rows(seen).locator("a").all_inner_texts()]
    at = listed.index(39)
    assert page.locator("#trials tr[aria-current]").inner_text().split()[0] == "39"
    page.get_by_role("link", name="Previous").click()
    page.locator("#trial h2", has_text=f"Trial {listed[at - 1]} ").wait_for()
    for key, number in (("ArrowLeft", listed[at - 2]), ("ArrowRight", listed[at - 1])):
        page.keyboard.press(key)
        page.locator("#trial h2", has_text=f"Trial {number} ").wait_for()
    rows(seen).get_by_role("link", name="1", exact=True).click()
    page.locator("#trial h2", has_text="Trial 1 ").wait_for()
    page.keyboard.press("Escape")
    page.locator("#history").wait_for()
    rows(seen).get_by_role("link", name="2", exact=True).click()
    assert page.url.endswith("#trial-2")
    page.get_by_role("link", name="Importance").click()
    seen.figure("importance").wait_for()


def test_a_figure_shows_a_part_larger(seen: Browser) -> None:
    page, whole = seen.page, seen.points("history")
    box = page.locator("#history svg").last.bounding_box()
    assert box is not None
    x, y, width, height = box["x"], box["y"], box["width"], box["height"]
    page.mouse.move(x + 0.3 * width, y + 2)
    page.mouse.down()
    page.mouse.move(x + 0.6 * width, y + 0.6 * height)
    page.mouse.up()
    button = page.locator("#history .whole")
    assert 3 < seen.points("history") < whole / 2
    assert grave_faults(page) == []
    assert "#trial" not in page.url, "a drag picks no trial"
    choose(seen, "Colour", "value")
    assert seen.points("history") < whole / 2, "what is shown stays"
    choose(seen, "Metric", "loss")
    assert button.count() == 0, "another metric has another range"
    choose(seen, "Metric", "val_accuracy")
    button.press("Enter")
    assert seen.points("history") == whole
    for key in ("ArrowRight", "Control+="):
        page.keyboard.press(key)
    assert seen.points("history") == whole, "the browser zooms, not the figure"
    for key in ("+", "+"):
        page.keyboard.press(key)
    assert 0 < seen.points("history") < whole / 2
    page.keyboard.press("-")
    assert seen.points("history") == whole


def test_a_figure_is_saved_as_a_picture(seen: Browser) -> None:
    with seen.page.expect_download() as download:
        seen.figure("history").get_by_role("button").click()
    assert download.value.suggested_filename == "history.svg"
    picture = download.value.path().read_text(encoding="utf-8")
    assert picture.startswith("<svg")
    assert "var(" not in picture


def test_all_figures_are_printed(seen: Browser, tmp_path: Path) -> None:
    seen.page.pdf(path=tmp_path / "report.pdf")
    empty = (
        "[...document.querySelectorAll('[data-figure]')].filter(each => !each.childElementCount)"
    )
    assert seen.page.evaluate(f"{empty}.length") == 0
    assert seen.page.evaluate(_CUT_OFF) == []


_CUT_OFF = """
[...document.querySelectorAll(".figure svg text")].filter(text => {
  const inner = text.getBoundingClientRect(), outer = text.closest("svg").getBoundingClientRect();
  return inner.left < outer.left - 1 || inner.right > outer.right + 1;
}).map(text => text.textContent)
"""


def test_no_word_of_a_printed_header_is_broken(seen: Browser) -> None:
    seen.page.set_viewport_size({"width": 600, "height": 900})
    seen.page.emulate_media(media="print")
    try:
        lines = seen.page.evaluate(_LINES_OF_WORDS, "#trials th button")
    finally:
        seen.page.emulate_media(media="screen")
    assert len(lines) > 10
    assert set(lines.values()) == {1}


_LINES_OF_WORDS = r"""
headers => Object.fromEntries([...document.querySelectorAll(headers)].flatMap(header => {
  const walker = document.createTreeWalker(header, NodeFilter.SHOW_TEXT), found = [];
  while (walker.nextNode())
    for (const { 0: word, index } of walker.currentNode.data.matchAll(/[a-z]+/g)) {
      const range = new Range();
      range.setStart(walker.currentNode, index);
      range.setEnd(walker.currentNode, index + word.length);
      found.push([word, range.getClientRects().length]);
    }
  return found;
}))
"""


def test_studies_with_little_to_show(window: Browser, tmp_path: Path) -> None:
    """No trial, one trial, one step, several objectives: what can be shown is shown."""
    two = Goals((Goal("val_accuracy", Direction.MAX), Goal("size", Direction.MIN)))
    several = [
        replace(trial(n, value=0.1 * n, params={"units": n}), extra_values=(float(n),))
        for n in range(5)
    ]
    studies = {
        "nothing": (view([], []), set[str]()),
        "one": (view([trial(0, value=0.5, params={})], [attempt(0, ended_at=1001.0)]),
                {"history", "trials"}),
        "several": (view(several, [], two), {"history", "trials", "front"}),
    }  # fmt: skip
    for name, (of, shown) in studies.items():
        page = page_text(of, [])
        for section in ("best", "setup", *shown):
            assert f'<section id="{section}"' in page, name
        for section in {"history", "trials", "front", "curves"} - shown:
            assert f'<section id="{section}"' not in page, name
        assert "hptune run model.py --trials 40" in page
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        window.open(tmp_path / "page.html")
        for section in shown - {"trials"}:
            assert window.points(section) > 0
    assert window.complaints == []


def test_all_configurations_have_an_axis_for_each_objective(
    window: Browser, tmp_path: Path
) -> None:
    goals = Goals(tuple(Goal(name, Direction.MIN) for name in ("loss", "size", "ms")))
    three = [
        replace(
            trial(n, value=0.1 * n, params={"rate": 0.1 * n, "value": 0.5 * n}),
            extra_values=(9.0 - n % 7, float(n % 3)),
        )
        for n in range(9)
    ]
    # A hyperparameter may be called as the figure's own axis could be.
    space = SearchSpace((FloatParameter("rate", 0.0, 1.0), FloatParameter("value", 0.0, 5.0)))
    of = StudyTrials(view(three, [], goals), space, [])
    page = page_of(make_report(of, SETUP, now=2000.0))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    window.open(tmp_path / "page.html")
    figure = window.figure("parallel")
    names = figure.locator(".name")
    assert names.all_text_contents() == ["loss", "size", "ms", "rate", "value"]
    # The axis of an objective that is not the chosen one chooses trials, too.
    figure.scroll_into_view_if_needed()
    axis = figure.locator(".handle").nth(1).bounding_box()
    assert axis is not None
    x = axis["x"] + axis["width"] / 2
    window.page.mouse.move(x, axis["y"] + 8)
    window.page.mouse.down()
    window.page.mouse.move(x, axis["y"] + axis["height"] / 2)
    window.page.mouse.up()
    assert window.page.locator("#brushes button").inner_text().startswith("size ")
    assert 0 < shown(window) < 9
    choose(window, "Metric", "ms")
    assert window.figure("parallel").locator(".name").all_text_contents()[:3] == [
        "ms", "loss", "size"
    ]  # fmt: skip
    legend = window.figure("history").locator(".legend").inner_text()
    assert "best ms so far" in legend
    # The first ones beat the last two; all others are on the front.
    window.page.locator("#brushes button").press("Enter")
    assert (rows(window).count(), window.page.locator("#trials tr.best").count()) == (9, 7)
    assert window.complaints == []


def test_curves_of_one_epoch_are_points_and_running_trials_have_their_colour(
    window: Browser, tmp_path: Path
) -> None:
    of, reports = study(12)
    more = [trial(20, TrialState.PRUNED, 0.5, step=1), trial(21, TrialState.RUNNING)]
    reports += [ReportedValue(20, 0, 1, "val_accuracy", 0.5, 1200.0)]
    reports += [ReportedValue(21, 0, step, "val_accuracy", 0.6, 1200.0) for step in (1, 2)]
    running = replace(
        of,
        trials=[*of.trials, *more],
        attempts=[*of.attempts, attempt(21, placed_at=1200.0)],
        master=LivingMaster(),
    )
    (tmp_path / "page.html").write_text(page_text(running, reports), encoding="utf-8")
    window.open(tmp_path / "page.html")
    assert window.points("curves") == 1
    legend = window.figure("curves").locator(".legend").inner_text().splitlines()
    assert [*map(str.strip, legend)][:3] == ["complete", "pruned", "running"]
    stopped, went_on = (
        window.figure("curves").locator(f".legend path[stroke='{color}']")
        for color in ("#c47b17", "#0b8f8f")
    )
    assert (stopped.count(), went_on.count()) == (1, 1)
    assert window.complaints == []


def test_complete_trials_come_first_by_a_metric(window: Browser, tmp_path: Path) -> None:
    """A stopped trial may have a better value, of fewer epochs."""
    trials = [
        trial(0, value=0.8, params={}),
        trial(1, TrialState.PRUNED, 0.9, params={}),
        trial(2, value=0.7, params={}),
    ]
    text = page_text(view(trials, []), [])
    assert "Sorted by a metric, complete trials come first: the others have trained less" in text
    assert "come first" not in page_text(view([*trials[:1], trials[2]], []), [])
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    window.open(tmp_path / "page.html")
    orders = []
    for _ in range(2):
        window.figure("trials").get_by_role("button", name="val_accuracy").click()
        orders.append([row.split("\t")[1] for row in rows(window).all_inner_texts()])
    assert orders == [["2", "0", "1"], ["0", "2", "1"]]


def test_energy_is_a_column_and_a_sum_where_it_is_measured(window: Browser, tmp_path: Path) -> None:
    trials = [trial(n, value=0.1 * n, params={}) for n in range(3)]
    ran = [attempt(n, ended_at=1060.0, outcome=Outcome.FINISHED) for n in range(3)]
    file = tmp_path / "page.html"
    file.write_text(page_text(view(trials, ran), []), encoding="utf-8")
    window.open(file)
    window.figure("trials")
    assert "energy" not in window.page.inner_text("body")
    used = [
        Usage(peak_memory_bytes=1, cpu_seconds=1.0, seconds=1.0, processor_joules=joules)
        for joules in (36_000.0, 4_500_000.0, None)
    ]
    pairs = zip(ran, used, strict=True)
    measured = [replace(each, usage=usage) for each, usage in pairs]
    file.write_text(page_text(view(trials, measured), []), encoding="utf-8")
    window.open(file)
    window.page.get_by_text("energy 1.26 kWh", exact=True).wait_for()
    window.page.get_by_text("Measured energy: 1.26 kWh.").wait_for()
    window.figure("trials").get_by_role("button", name="energy", exact=True).click()
    cells = [row.split("\t") for row in rows(window).all_inner_texts()]
    found = {each[1]: [cell for cell in each if cell.endswith("Wh")] for each in cells}
    assert found == {"0": ["10.00 Wh"], "1": ["1.250 kWh"], "2": []}
    assert rows(window).nth(2).locator("td.number").get_by_text(NOTHING).count() == 1
    assert window.complaints == []


def test_a_metric_may_be_called_as_a_column(window: Browser, tmp_path: Path) -> None:
    trials = [
        trial(n, value=0.1 * n, params={}, metrics={"energy": 0.1 * n, "time": 1.0})
        for n in range(3)
    ]
    ran = [attempt(n, ended_at=1060.0, outcome=Outcome.FINISHED) for n in range(3)]
    used = [
        Usage(peak_memory_bytes=1, cpu_seconds=1.0, seconds=1.0, processor_joules=36_000.0 * kwh)
        for kwh in (2, 1, 3)
    ]
    measured = [replace(each, usage=use) for each, use in zip(ran, used, strict=True)]
    goals = Goals((Goal("energy", Direction.MIN),))
    (tmp_path / "page.html").write_text(
        page_text(replace(view(trials, measured), goals=goals), []), encoding="utf-8"
    )
    window.open(tmp_path / "page.html")
    orders = []
    for name in ("energy_kwh", "energy"):
        window.figure("trials").get_by_role("button", name=name, exact=True).click()
        orders.append([row.split("\t")[1] for row in rows(window).all_inner_texts()])
    assert orders == [["1", "0", "2"], ["0", "1", "2"]]
    assert window.complaints == []


def test_what_breaks_a_constraint_and_what_is_far_worse(window: Browser, tmp_path: Path) -> None:
    """Crosses are not the best so far; far values are at the end of the axis, with their mark."""
    values = [0.9, 0.99, *(0.9 + 0.001 * n for n in range(10)), 0.1, 0.2, 0.95]
    trials = [
        replace(trial(n, value=value, params={"units": 16 + n}), violation=float(n == 1))
        for n, value in enumerate(values)
    ]
    trials[-1] = replace(trials[-1], origin="confirm of 11")  # nor are repeats
    (tmp_path / "page.html").write_text(page_text(view(trials, []), []), encoding="utf-8")
    window.open(tmp_path / "page.html")
    figure = window.figure("history")
    assert "far below the axis" in figure.locator(".legend").inner_text()
    marks = [
        each.get_attribute("d") or "" for each in figure.locator("svg").last.locator("path").all()
    ]
    assert sum(each.count("l4 5l4 -5") for each in marks) == 2
    low = min(
        float(each.text_content() or 0)
        for each in figure.locator(".axes text[text-anchor=end]").all()
    )
    assert low > 0.8, "the others have room"
    assert "breaks a constraint" in figure.locator(".legend").inner_text()
    assert window.points("history") == 15
    (best,) = figure.locator("path[stroke='#1a9850'][fill=none]:not(.legend path)").all()
    steps = (best.get_attribute("d") or "").count("V")
    assert steps == 10  # nine trials are better than all before, and the last is no step
    assert figure.locator("path[stroke-width='2'][stroke='#767b84']:not(.legend path)").count() == 1


def test_workers_are_shown_with_their_trials(seen: Browser) -> None:
    names = seen.figure("timeline").locator("text.name").all_text_contents()
    assert {"0", "2", "4"} <= set(names), "the trials of nine epochs have room for their numbers"
    seen.page.locator("#timeline summary").click()
    links = seen.page.locator("#timeline td a").all_inner_texts()
    assert links == [str(number) for number in range(40)]


def test_the_best_trial_is_followed_by_the_next_best_ones(seen: Browser) -> None:
    found = seen.page.locator("#best .next tbody tr")
    values = [float(row.split("\t")[1]) for row in found.all_inner_texts()]
    assert len(values) == 5
    assert values == sorted(values, reverse=True)
    best = seen.page.locator("#tiles .tile a").first.inner_text()
    assert best.split()[-1] not in found.locator("a").all_inner_texts()
    seen.page.set_viewport_size({"width": 390, "height": 844})
    assert not found.first.is_visible()


def test_notes_and_advice_are_on_the_page(window: Browser, tmp_path: Path) -> None:
    of, reports = study(39)
    written = ((None, Note("the baseline", ("paper",))), (3, Note("<b>odd", ("outlier",))))
    notes = [
        UserRequested(1.0, "1", UserAction.NOTE, "ann (run 1)", trial=number, note=note)
        for number, note in written
    ]
    ranked = sorted(of.trials, key=lambda each: -(each.value or 0.0))
    rate = next(iter(SPACE))
    low = [
        replace(each, params={**each.params, rate.name: rate.from_unit((place / 40) ** 2)})
        for place, each in enumerate(ranked)
    ]
    path = tmp_path / "notes.html"
    path.write_text(page_text(replace(of, trials=low, space=SPACE, notes=notes), reports))
    window.open(path)
    remarks = window.page.locator("#tiles .answers").inner_text().replace("\n", " ")
    for words in (
        "learning_rate at the lower end of its range",
        "tags paper",
        "note the baseline (ann",
    ):
        assert words in remarks
    assert grave_faults(window.page) == []
    window.page.get_by_label("Filter").fill("outlier")
    wait_for(lambda: shown(window) == 1, "the trial with the tag")
    assert "<b>odd" in rows(window).inner_text()
    rows(window).get_by_role("link", name="3").click()
    facts = window.page.locator("#trial .facts").inner_text()
    assert "outlier" in facts
    assert "<b>odd" in facts


def test_answers_lead_to_their_sections_and_failures_are_shown_alone(seen: Browser) -> None:
    page = seen.page
    links = page.locator("#tiles .answers a")
    assert links.all_inner_texts() == ["Values", "Costs"]
    for link in links.all():
        assert page.locator(f"{link.get_attribute('href')} [data-figure]").count() > 0
    page.locator("#failures").scroll_into_view_if_needed()
    page.get_by_role("button", name="Show these").click()
    wait_for(lambda: shown(seen) == 1, "the failed trial alone")
    assert rows(seen).locator("a").inner_text() == "39"
    page.locator("#brushes button").press("Enter")
    wait_for(lambda: shown(seen) == 40, "all trials")
    current = page.locator("#bar nav a[aria-current]")
    seen.figure("costs")
    wait_for(lambda: current.all_inner_texts() == ["Costs"], "the link to where the page is")


@pytest.mark.parametrize(
    ("direction", "is_log"), [(Direction.MIN, True), (Direction.MAX, False)], ids=str
)
def test_values_that_span_decades_have_a_log_axis_where_less_is_better(
    window: Browser, tmp_path: Path, direction: Direction, *, is_log: bool
) -> None:
    goals = Goals((Goal("val_accuracy", direction),))
    trials = [trial(n, value=10.0 ** (-n / 5), params={"units": 16 + n}) for n in range(20)]
    (tmp_path / "page.html").write_text(page_text(view(trials, [], goals), []), encoding="utf-8")
    window.open(tmp_path / "page.html")
    for option in ("automatic", "linear" if is_log else "logarithmic"):
        choose(window, "Value axis", option)
        labels = window.figure("history").locator(".axes text").all_text_contents()
        assert ("0.01" in labels) is (is_log if option == "automatic" else not is_log)


def test_names_and_values_that_look_alike_stay_apart(window: Browser, tmp_path: Path) -> None:
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
    known = {each["label"]: each["values"] for each in report.facts["space"]}
    assert len(known) == 4
    assert known["rate"] == [0.123456788, 0.123456789]
    (tmp_path / "page.html").write_text(page_of(report), encoding="utf-8")
    window.open(tmp_path / "page.html")
    window.figure("slices")
    heads = window.page.locator("#trials th button").all_inner_texts()
    assert {"score ▾", "score (hyperparameter)", "trial (hyperparameter)"} <= {*heads}
    assert len({*heads}) == len(heads)
    assert window.complaints == []


def test_a_reason_without_spaces_hides_no_failure(window: Browser, tmp_path: Path) -> None:
    reasons = (f"OSError: {'/folder' * 30}", "ValueError: bad shape")
    failed = [trial(n, TrialState.FAILED, reason=each) for n, each in enumerate(reasons)]
    found = [replace(each, detail=f"Traceback\n{each.reason}") for each in failed]
    (tmp_path / "page.html").write_text(page_text(view(found, []), []), encoding="utf-8")
    window.page.set_viewport_size({"width": 1200, "height": 900})
    window.open(tmp_path / "page.html")
    table = window.page.locator("#failures .scroll")
    assert table.locator("tbody tr").count() == 2
    size = "each => [each.scrollWidth - each.clientWidth, each.scrollHeight - each.clientHeight]"
    assert table.evaluate(size) == [0, 0]


def test_thousands_of_hyperparameters_and_long_names(window: Browser, tmp_path: Path) -> None:
    many = SearchSpace(tuple(FloatParameter(f"p{n}", 0.0, 1.0) for n in range(100)))
    panels = panels_of_page(trials_of(*(n / 30 for n in range(30)), space=many))
    (bars,) = panels["importance"].figures
    assert len(bars.given["sets"]["all"]) == 30  # type: ignore[index]
    assert "30 of 100" in panels["importance"].words
    assert len(panels["importance"].tables[0].rows) == 100
    long = [f"encoder.layer.{n}.{'attention.' * 9}rate" for n in range(3)]
    choice = ChoiceParameter("head", ("a" * 99, "b" * 99))
    space = SearchSpace((*(FloatParameter(name, 0.0, 1.0) for name in long), choice))
    of = trials_of(*(n / 30 for n in range(30)), space=space)
    (tmp_path / "page.html").write_text(page_of(make_report(of, SETUP, now=2000.0)))
    window.open(tmp_path / "page.html")
    window.page.set_viewport_size({"width": 390, "height": 844})
    for name in ("importance", "slices", "contour", "parallel"):
        window.figure(name)
        labels = window.page.locator(f"#{name} .axes text").all_text_contents()
        assert max(map(len, labels)) <= 40, name
        assert window.page.evaluate(_CUT_OFF) == []
    assert window.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert {row[0] for row in panels_of_page(of)["importance"].tables[0].rows} == {*long, "head"}
    assert window.complaints == []


def test_the_filter_names_each_hyperparameter(window: Browser, tmp_path: Path) -> None:
    """One with a space, and one that is called like a metric."""
    space = SearchSpace(
        (
            FloatParameter("batch size", 0.0, 10.0),
            FloatParameter("val_accuracy", 0.0, 10.0),
            ChoiceParameter("act", ("leaky relu", "relu")),
        )
    )
    trials = [
        trial(
            n,
            value=0.1 * n,
            params={
                "batch size": float(n),
                "val_accuracy": 9.0 - n,
                "act": "relu" if n % 2 else "leaky relu",
            },
        )
        for n in range(10)
    ]
    report = make_report(StudyTrials(view(trials, []), space, []), SETUP, now=2000.0)
    (tmp_path / "page.html").write_text(page_of(report), encoding="utf-8")
    window.open(tmp_path / "page.html")
    for words, count in {
        '"batch size">=7': 3,
        "val_accuracy>0.65": 3,
        "hp.val_accuracy>6.5": 3,
        '"val_accuracy (hyperparameter)">6.5': 3,
        'act="leaky relu"': 5,
        '"leaky relu" hp.val_accuracy<=1': 1,
    }.items():
        window.page.get_by_label("Filter", exact=True).fill(words)
        window.page.get_by_text(f"{count} of 10 trials").first.wait_for(state="attached")
    window.page.get_by_label("Filter", exact=True).fill("hp.nothing>3")
    window.page.get_by_text("Nothing is known of: hp.nothing>3.").wait_for()

"""The page of a folder of studies, in a real browser, and what it compares."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from axe_playwright_python.sync_playwright import Axe

from browser import Chromium
from fake_study import GOALS, LivingMaster, attempt, trial
from hptune.config.objectives import goals_to_json
from hptune.config.settings import StudySettings
from hptune.core.attempt import Attempt, Outcome
from hptune.core.goals import Goals
from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Goal, Trial, TrialState
from hptune.reporting.html import folder as folder_module
from hptune.reporting.html.comparison import comparison
from hptune.reporting.html.folder import Folder, FolderPage
from hptune.reporting.html.live_server import PageServer
from hptune.reporting.html.panel import Figure
from hptune.reporting.results.listing import ListedStudy
from hptune.reporting.results.view import StudyView
from hptune.study.dashboard import folder_server
from hptune.study.study import Study, find_directories, listed
from hptune.text import NOTHING
from hptune.user_code.source import ObjectiveSource, SourceKind
from real_runs import wait_for
from stored_study import SPACE, stored, typical

HOUR = 3600.0
MIN = Direction.MIN


@contextmanager
def served(folder: Path) -> Iterator[PageServer]:
    server = folder_server(
        folder, find=lambda: find_directories(folder), listed=listed, opened=Study
    )
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def test_studies_are_found_opened_and_compared(tmp_path: Path, chromium: Chromium) -> None:
    typical(tmp_path / "one")
    typical(tmp_path / "deep" / "<b>two", created_at=2000.0)
    stored(tmp_path / "empty", created_at=900.0)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "study.db").write_text("no database")
    with served(tmp_path) as server, chromium.window(width=390) as window:
        page = window.page
        page.goto(server.address)
        rows = page.locator("#rows tr")
        wait_for(lambda: rows.count() == 4, "the studies")
        # Two have a result, and are compared at once.
        drawn = page.locator("#comparison .figure > svg")
        wait_for(lambda: drawn.count() == 2, "the figures")
        names = [each.inner_text() for each in page.locator("#rows td:nth-child(2)").all()]
        assert names == ["deep/<b>two", "one", "empty", "broken"]
        assert "damaged or no study" in rows.nth(3).inner_text()
        assert page.locator("#comparison tbody").first.locator("tr").count() == 2
        link = page.locator("#comparison tbody").first.get_by_role("link", name="2")
        assert str(link.first.get_attribute("href")).startswith("study/")
        violations = Axe().run(page).response["violations"]
        assert [e["id"] for e in violations if e["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.set_viewport_size({"width": 1280, "height": 800})
        table = page.locator("#comparison .scroll").first
        configuration = table.locator("tbody td:last-child").first
        configuration.evaluate("cell => cell.textContent = 'learning_rate=0.001 '.repeat(20)")
        assert table.evaluate("each => each.scrollWidth <= each.clientWidth"), "nothing is cut off"
        page.set_viewport_size({"width": 390, "height": 800})
        # One that begins meanwhile appears; a box that is pressed stays where it is until then.
        page.get_by_label("Compare one").hover()
        page.mouse.down()
        stored(tmp_path / "three", created_at=3000.0)
        head = page.locator("#head")
        wait_for(lambda: "5 studies" in head.inner_text(), "the new study")
        page.mouse.up()
        wait_for(lambda: rows.count() == 5, "its row")
        comparison = page.locator("#comparison")
        wait_for(lambda: "Choose two studies" in comparison.inner_text(), "none to compare")
        page.get_by_label("Find a study").fill("DEEP")
        assert rows.count() == 1
        page.locator("#rows a").click()
        wait_for(page.locator("#best").is_visible, "the page of the study")
        assert page.locator("h1").inner_text() == "hptune: <b>two"
        page.get_by_role("link", name="All studies").click()
        wait_for(lambda: rows.count() == 5, "the folder")
        assert window.complaints == []
        assert server.answer("GET", f"{server.folder}study/../one/") is None


def test_all_values_of_an_option_and_times_in_fitting_units_are_shown(tmp_path: Path) -> None:
    second = Goal("params", MIN)
    for number, goals in enumerate([GOALS, Goals((*GOALS.objectives, second))]):
        metrics = {"val_accuracy": 0.8, "params": 100.0}
        ended = replace(trial(0, value=0.8, metrics=metrics), extra_values=(100.0,) * number)
        objectives = tuple(f"{goal.metric}:{goal.direction}" for goal in goals.objectives)
        source = ObjectiveSource(SourceKind.FILE, "model.py")
        settings = StudySettings(
            source=source, working_directory=str(tmp_path), objectives=objectives
        ).to_json()
        ran = attempt(0, ended_at=1002.0, outcome=Outcome.FINISHED)
        path = tmp_path / str(number)
        stored(path, [ended], [ran], goals=goals_to_json(goals), settings=settings)
    with served(tmp_path) as server:
        state = server.answer("POST", f"{server.folder}state")
        assert state is not None
        shown = json.loads(state({}))
        assert [row["hours"] for row in shown["rows"]] == ["4 core seconds"] * 2
        drawn = json.loads(state({"chosen": [row["id"] for row in shown["rows"]]}))["comparison"]
    assert "val_accuracy:max, params:min" in drawn["html"]


def test_studies_of_another_model_are_not_compared_at_first(tmp_path: Path) -> None:
    other = SearchSpace((FloatParameter("dropout", 0.0, 1.0),)).to_json()
    for number, space in enumerate([SPACE.to_json(), other, SPACE.to_json()]):
        typical(tmp_path / str(number), created_at=1000.0 + number, space=space)
    folder = Folder(
        str(tmp_path), lambda: find_directories(tmp_path), str, listed, lambda _: {}, Mock()
    )
    state = json.loads(FolderPage(folder).state({}))
    names = {row["id"]: row["name"] for row in state["rows"]}
    assert [names[each] for each in state["chosen"]] == ["2", "0"]


@pytest.mark.parametrize("paused_by", ["", "ada (hptune pause)"])
def test_time_passes_for_the_trials_that_go_on_in_a_paused_study(
    monkeypatch: pytest.MonkeyPatch, paused_by: str
) -> None:
    monkeypatch.setattr(folder_module, "_next", lambda _: 0.0)
    goes_on = view({0: (1, 0.5)})
    reads: list[Path] = []

    def read(path: Path) -> ListedStudy:
        reads.append(path)
        return ListedStudy("study", replace(goes_on, master=LivingMaster(), paused_by=paused_by))

    page = FolderPage(
        Folder("studies", lambda: [Path("studies/one")], lambda _: 0, read, lambda _: {}, Mock())
    )
    for _ in range(3):
        page.state({})
    assert len(reads) == 3


def test_a_phone_holds_two_objectives_and_long_names(tmp_path: Path, chromium: Chromium) -> None:
    goals = Goals((Goal("val_sparse_categorical_accuracy", Direction.MAX), Goal("size", MIN)))
    best = replace(trial(0, value=0.9, step=3), extra_values=(123456789.0,))
    metrics = {"val_sparse_categorical_accuracy": 0.9, "size": 123456789.0}
    best = replace(best, metrics=metrics)
    stored(tmp_path / ("long-name-" * 6), [best], goals=goals_to_json(goals))
    with served(tmp_path) as server, chromium.window(width=390) as window:
        window.page.goto(server.address)
        row = window.page.locator("#rows tr")
        wait_for(lambda: row.count() == 1, "the study")
        cells = row.locator("td").evaluate_all(
            "all => all.map(each => Math.ceil(each.getBoundingClientRect().right))"
        )
        assert max(cells) <= 390
        words = row.locator("td").evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)")
        assert max(words) <= 0, "the words of a cell lie over another one's"
        assert window.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_study_that_does_not_answer_holds_up_no_other(tmp_path: Path) -> None:
    answers = threading.Event()

    def read(path: Path) -> ListedStudy:
        if path.name == "stuck":
            answers.wait()
        return ListedStudy(str(path), None, "not a study")

    paths = [tmp_path / "stuck", tmp_path / "other"]
    unused = Mock(side_effect=AssertionError)
    page = FolderPage(Folder(str(tmp_path), lambda: paths, lambda _: 0, read, unused, unused))

    def names() -> list[str]:
        return [each["name"] for each in json.loads(page.state({}))["rows"]]

    try:
        wait_for(lambda: names() == ["other"], "the other one")
    finally:
        answers.set()
    wait_for(lambda: len(names()) == 2, "both")


def view(
    ends: dict[int, tuple[float, float | None]], goals: Goals = GOALS, gpus: tuple[str, ...] = ()
) -> StudyView:
    """Return a study by the hour at which each trial ended and its value; each ran for an hour."""
    trials: list[Trial] = []
    attempts: list[Attempt] = []
    for number, (hour, value) in ends.items():
        state = TrialState.FAILED if value is None else TrialState.COMPLETE
        trials.append(trial(number, state, value))
        begun = (hour - 1) * HOUR
        held = attempt(
            number, placed_at=begun, ended_at=hour * HOUR, outcome=Outcome.FINISHED, gpus=gpus
        )
        attempts.append(replace(held, started_at=begun))
    return StudyView("study", "tpe", goals, 9, trials, attempts)


def lines(figure: Figure) -> Any:
    return figure.given["series"]


def test_the_best_values_follow_the_ends_of_trials() -> None:
    # Trial 1 ends first, and half of trial 2 is used when trial 0 ends.
    ends = {0: (2.0, 0.7), 1: (1.0, 0.5), 2: (2.5, None), 3: (4.0, 0.6)}
    other = view({0: (1.0, 0.9)}, Goals((Goal("loss", Direction.MIN),)))
    studies = {"a": view(ends), "b": view({0: (1.0, 0.4)}), "c": other}
    facts = {"a": {"--search": "tpe", "seed": "1"}, "b": {"seed": "1"}, "c": {}}
    panel = comparison(studies, facts, now=0.0)
    assert panel.words.endswith("Left out, with another objective: c (loss (min)).")
    first, second = panel.tables[0].rows
    cores = len(attempt(0).placement.cpus)
    assert first[:6] == ("a", "0.7000", "0", "4/9, 1 failed", f"{4 * cores:g}", f"{2.5 * cores:g}")
    assert second[:4] == ("b", "0.4000", "0", "1/9")
    assert panel.tables[1].rows == [("--search", "tpe", NOTHING)]
    by_trials, by_hours = (lines(each)[0] for each in panel.figures)
    assert by_trials["texts"] == ["a\ntrial 1: 0.5000", "a\ntrial 0: 0.7000"]
    assert by_trials["at"] == [(1, 0.5), (2, 0.7), (4, 0.7)]
    assert by_hours["at"] == [
        (cores * each, value) for each, value in ((1.0, 0.5), (2.5, 0.7), (4.0, 0.7))
    ]


def test_a_repeat_that_was_lucky_is_no_better_value() -> None:
    of = view({0: (1.0, 0.5), 1: (2.0, 0.9), 2: (3.0, 0.6)})
    of = replace(
        of, trials=[*of.trials[:1], replace(of.trials[1], origin="confirm of 0"), of.trials[2]]
    )
    panel = comparison({"a": of}, {"a": {}}, now=0.0)
    assert lines(panel.figures[0])[0]["texts"] == ["a\ntrial 0: 0.5000", "a\ntrial 2: 0.6000"]


def test_a_comparison_of_other_hyperparameters_says_so() -> None:
    dropout = SearchSpace((*SPACE, FloatParameter("dropout", 0.0, 1.0)))
    spaces = {"a": SPACE, "b": dropout, "c": None}
    studies = {name: replace(view({0: (1.0, 0.4)}), space=space) for name, space in spaces.items()}
    facts: dict[str, dict[str, str]] = {name: {} for name in spaces}
    words = comparison(studies, facts, now=0.0).words
    assert " Not all of these studies search dropout: compare their values only if " in words
    del studies["b"]
    assert "search" not in comparison(studies, facts, now=0.0).words


def test_gpu_hours_count_where_all_studies_have_some() -> None:
    with_gpus, without = view({0: (1.0, 0.4)}, gpus=("0",)), view({0: (1.0, 0.4)})
    for studies, unit in (
        ({"a": with_gpus, "b": with_gpus}, "GPU hours"),
        ({"a": with_gpus, "b": without}, "core hours"),
    ):
        panel = comparison(studies, {"a": {}, "b": {}}, now=0.0)
        assert panel.figures[1].given["xLabel"] == unit


def test_a_study_serves_its_page_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/ada/")
    page = Study(typical(tmp_path / "one")).dashboard()
    try:
        with urllib.request.build_opener(urllib.request.HTTPCookieProcessor()).open(
            page.address
        ) as answer:
            assert b"<title>hptune: one</title>" in answer.read()
        assert f'href="{page.address}"' in page._repr_html_()
        behind = page.address.replace("http://127.0.0.1:", "/user/ada/proxy/")
        assert f'href="{behind}"' in page._repr_html_()
    finally:
        page.close()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(page.address)

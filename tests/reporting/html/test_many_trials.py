"""The page of a study with thousands of trials: work that grows with them, and lines left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser import Browser, browser
from report_study import page_text, study

# Draws a figure of the page's trials repeated that many times. Counts the elements of arrays that
# are walked or copied meanwhile, which says how the work grows on a machine of any speed.
_DRAW = """([kind, times]) => {
  const data = JSON.parse(document.getElementById("data").textContent), made = [];
  for (let n = 0; n < times; n++) {
    for (const each of data.trials) made.push({ ...each, n: made.length });
  }
  const study = hptuneTrials.studyOf({ ...data, trials: made });
  const place = document.createElement("div");
  place.dataset.figure = JSON.stringify([kind, {}]);
  document.body.append(place);
  const walk = Array.prototype[Symbol.iterator];
  let walked = 0;
  Array.prototype[Symbol.iterator] = function () { walked += this.length; return walk.call(this); };
  try { hptuneFigures.draw(place, study, hptuneTrials.firstChoice(study)); }
  finally { Array.prototype[Symbol.iterator] = walk; }
  const lines = [...place.querySelectorAll("path[stroke-linejoin]")];
  const counts = lines.map(each => each.getAttribute("d").split("M").length - 1);
  const note = place.querySelector(".note")?.textContent ?? "";
  place.remove();
  return { walked, trials: made.length, lines: counts, note };
}"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page_text(*study(40)), encoding="utf-8")
    with browser() as window:
        window.open(path)
        yield window


@pytest.mark.parametrize("kind", ["history", "curves", "slices", "contour", "parallel", "timeline"])
def test_twice_the_trials_are_twice_the_work(page: Browser, kind: str) -> None:
    one, two = (page.page.evaluate(_DRAW, [kind, times]) for times in (5, 10))
    assert one["walked"] > one["trials"]
    assert two["walked"] < 2.5 * one["walked"]


@pytest.mark.parametrize("kind", ["curves", "parallel"])
def test_of_thousands_of_lines_a_part_is_drawn_and_said(page: Browser, kind: str) -> None:
    few = page.page.evaluate(_DRAW, [kind, 5])
    assert 195 <= sum(few["lines"]) <= few["trials"] + 2  # the best one and the median
    assert few["note"] == ""
    many = page.page.evaluate(_DRAW, [kind, 100])
    assert 2000 <= sum(many["lines"]) <= 2002
    assert max(many["lines"]) <= 100, "browsers paint a path of many lines slowly"
    assert "2000 of 4000 trials are drawn" in many["note"]


def test_sorting_the_table_draws_no_figure(page: Browser) -> None:
    page.figure("history")
    page.page.evaluate("document.querySelector('#history svg').dataset.kept = 'yes'")
    page.figure("trials").get_by_role("button", name="val_accuracy").click()
    page.page.locator("#trials th[aria-sort=ascending]", has_text="val_accuracy").wait_for()
    assert page.page.locator("#history svg[data-kept]").count() == 1
    assert page.complaints == []

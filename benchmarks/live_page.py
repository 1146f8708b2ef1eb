"""Time until the live page shows the end of a trial, by the study's size.

    python benchmarks/live_page.py                      # 1,000 and 5,000 trials
    python benchmarks/live_page.py --trials 1000 --updates 20 --json

A study of that many trials (a third of them pruned, 10 epochs each, 7 hyperparameters) is written
into a ledger. This process is its master: it holds the lock and ends trials. `hptune dashboard`
serves the page, and a headless Chromium shows it. An update begins when the trial's end is on disk
in the ledger. It ends when the page's head counts the trial, and when the section's first figure or
table is drawn of it. Updates begin at random times, so they meet the page at any point of its
cycle.

Each view is scrolled to first, and the page shows the sections that fit into the window, as for a
user: `top` is the page as it opens.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from master_scale import GOALS, SPACE

from hptune.config.objectives import goals_to_json
from hptune.config.settings import StudySettings
from hptune.core.attempt import Attempt, AttemptId, Cause, Outcome, Report
from hptune.core.messages import Event, Reported
from hptune.core.resources import Placement
from hptune.core.trial import Trial, TrialState
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.user_code.source import ObjectiveSource, SourceKind

SIZES = (1_000, 5_000)
UPDATES = 10
EPOCHS = 10
WORKERS = 16
MOST_SECONDS = 20.0
VIEWS = ("top", "history", "curves", "importance", "slices", "contour", "parallel", "timeline",
         "trials")  # fmt: skip


class GrowingStudy:
    """A study whose trials this process ends."""

    def __init__(self, path: Path, trials: int) -> None:
        self.count = 0
        self._rng = np.random.default_rng(0)
        settings = StudySettings(
            source=ObjectiveSource(SourceKind.FILE, str(path.parent / "model.py")),
            working_directory=str(path.parent),
            search="tpe",
            trials=10 * trials,
        )
        facts = {
            "hptune_version": "1",
            "created_at": time.time() - 3600.0,
            "is_keras": False,
            "settings": settings.to_json(),
            "epochs": EPOCHS,
            "space": SPACE.to_json(),
            "declared_space": SPACE.to_json(),
            "ended": None,
            "goals": goals_to_json(GOALS),
            "seed": 1,
            "warm_start": [],
        }
        self.directory = StudyDirectory(path).create()
        self.lock = self.directory.acquire()
        self._ledger = Ledger.create(self.directory, facts, lock=self.lock)
        self._began = time.time() - 3600.0
        self._end(trials)

    def end_one(self) -> None:
        """End one more trial; it is on disk when this returns."""
        self.lock.refresh()
        self._end(1)

    def _end(self, count: int) -> None:
        made = [self._made(number) for number in range(self.count, self.count + count)]
        self.count += count
        events = [event for _, _, reports in made for event in reports]
        trials, attempts = [each[0] for each in made], [each[1] for each in made]
        self._ledger.append(events, trials=trials, attempts=attempts)

    def _made(self, number: int) -> tuple[Trial, Attempt, list[Event]]:
        params = SPACE.sample(self._rng)
        is_pruned = number % 3 == 1
        last = 3 if is_pruned else EPOCHS
        rate = math.log10(float(params["learning_rate"] or 0))
        top = 0.9 - 0.03 * (rate + 3.0) ** 2 + float(self._rng.normal(0.0, 0.01))
        values = [top * (1.0 - math.exp(-step / 2)) for step in range(1, last + 1)]
        name = AttemptId(number, 0)
        start = self._began + 0.5 * number
        metrics = {"val_accuracy": values[-1], "val_loss": 1.0 - values[-1]}
        trial = Trial(
            number=number,
            params=params,
            origin="tpe",
            state=TrialState.PRUNED if is_pruned else TrialState.COMPLETE,
            value=values[-1],
            step=last,
            metrics=metrics,
            attempts=1,
        )
        attempt = Attempt(
            id=name,
            placement=Placement(f"worker-{number % WORKERS}", cpus=(0,)),
            node=f"node{number % WORKERS:02}",
            placed_at=start,
            started_at=start + 0.1,
            ended_at=start + last * 0.5,
            outcome=Outcome.PRUNED if is_pruned else Outcome.FINISHED,
            cause=Cause.PRUNED if is_pruned else Cause.RETURNED,
        )
        reports: list[Event] = [
            Reported(start + step * 0.5, name, Report(step, {"val_accuracy": value}))
            for step, value in enumerate(values, start=1)
        ]
        return trial, attempt, reports


@contextmanager
def dashboard(directory: StudyDirectory) -> Iterator[str]:
    """Serve the page, and give its address."""
    command = [sys.executable, "-m", "hptune", "dashboard", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"http://\S+", process.stdout.readline())
            assert found is not None, "hptune dashboard printed no address"
            yield found[0]
        finally:
            process.terminate()


# Whether the page shows this many trials: in its head, and in the section's figure or table.
SHOWN = """
([name, count]) => {
  const tiles = document.getElementById("tiles").textContent;
  const ended = [...tiles.matchAll(/(\\d+) (complete|pruned)/g)];
  if (ended.reduce((sum, each) => sum + Number(each[1]), 0) !== count) return false;
  const place = name && document.querySelector(`#${name} [data-figure]`);
  const { version } = document.querySelector("main").dataset;
  return !name || Boolean(place) && place.dataset.drawn === version;
}
"""


def measured(trials: int, updates: int, views: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the seconds of the updates of each view of a study of this size."""
    from playwright.sync_api import sync_playwright

    chance = random.Random(0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        study = GrowingStudy(folder / "study", trials)
        address = stack.enter_context(dashboard(study.directory))
        playwright = stack.enter_context(sync_playwright())
        program = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        stack.callback(browser.close)
        page = browser.new_context(viewport={"width": 1200, "height": 900}).new_page()
        page.goto(address)
        for view in views:
            if view == "top":
                page.evaluate("window.scrollTo(0, 0)")
            else:
                page.locator(f"#{view}").scroll_into_view_if_needed()
                page.evaluate("id => document.getElementById(id).scrollIntoView()", view)
            section = "history" if view == "top" else view
            time.sleep(4.0)
            head, whole = [], []
            for _ in range(updates):
                time.sleep(chance.uniform(2.0, 5.0))
                study.end_one()
                began = time.monotonic()
                head.append(_wait(page, "", study.count, began))
                whole.append(_wait(page, section, study.count, began))
            yield {"trials": trials, "view": view, "head": head, "drawn": whole}


def _wait(page: Any, section: str, count: int, began: float) -> float:
    while not page.evaluate(SHOWN, [section, count]):
        if time.monotonic() - began > MOST_SECONDS:
            return math.nan
        time.sleep(0.01)
    return time.monotonic() - began


def summary(seconds: Sequence[float]) -> str:
    """Return the median and the range."""
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f}) s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trials", type=int, nargs="+", default=SIZES)
    parser.add_argument("--updates", type=int, default=UPDATES)
    parser.add_argument("--views", nargs="+", default=VIEWS)
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    given = parser.parse_args()
    for trials in given.trials:
        for each in measured(trials, given.updates, given.views):
            if given.json:
                print(json.dumps(each), flush=True)
            else:
                words = f"{trials:>6} trials, {each['view']:<11}"
                print(f"{words} head {summary(each['head'])}, drawn {summary(each['drawn'])}",
                      flush=True)  # fmt: skip


if __name__ == "__main__":
    main()

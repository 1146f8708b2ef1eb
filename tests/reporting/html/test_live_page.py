"""The live page, in a real browser, and who may read it."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe

from browser import Browser, Chromium
from fake_study import attempt, trial
from hptune.core.attempt import ReportedValue
from hptune.core.trial import TrialState
from hptune.core.user_requests import UserAction
from hptune.errors import StudyError, UsageError
from hptune.reporting.html.live import LivePage, LiveStudy
from hptune.reporting.html.live_server import PageServer
from hptune.reporting.html.page_data import TrialRows
from hptune.reporting.html.report import ReportContents, make_report
from hptune.reporting.html.trials import StudyTrials
from hptune.storage.lease import LockOwner
from hptune.study.dashboard import folder_server, study_server
from hptune.study.study import Study, listed
from real_runs import wait_for
from report_study import SETUP, SPACE, study
from stored_study import stored, typical


class Source:
    """A study that grows."""

    def __init__(self, trials: int) -> None:
        self.trials = trials
        self.is_running = True
        self.paused_by = ""
        self.asked: list[tuple[UserAction, int | None, Mapping[str, object]]] = []
        self.log = "log of 7 <b>"
        self.readings = 0
        self.rows = TrialRows()

    def version(self) -> int:
        return hash((self.trials, self.is_running, self.paused_by))

    def read(self) -> ReportContents:
        self.readings += 1
        found, reports = study(self.trials)
        master = LockOwner("node", 1, 0.0) if self.is_running else None
        runs = trial(self.trials + 1, TrialState.RUNNING)
        waits = trial(self.trials + 2, TrialState.WAITING)
        paused = trial(self.trials + 3, TrialState.PAUSED, 0.5, step=1)
        changed = replace(
            found,
            master=master,
            paused_by=self.paused_by,
            trials=[*found.trials, runs, waits, paused],
            attempts=[*found.attempts, attempt(self.trials + 1)],
        )
        return make_report(
            StudyTrials(changed, SPACE, reports),
            SETUP,
            now=2000.0 + time.monotonic(),
            rows=self.rows,
        )

    def act(self, action: UserAction, number: int | None, values: Mapping[str, object]) -> str:
        if values.get("units") == "7":
            raise UsageError("units is 7; allowed is 16..512")
        self.asked.append((action, number, values))
        self.paused_by = "ada" if action is UserAction.PAUSE else ""
        self.is_running = action is not UserAction.STOP
        return f"Done: {action}."

    def last(self) -> tuple[UserAction, int | None, Mapping[str, object]]:
        return self.asked[-1]

    def page(self) -> PageServer:
        shown = LiveStudy(
            read=self.read,
            version=self.version,
            log=lambda _, start: (self.log[start:], len(self.log)),
            reports=self.reports,
            act=self.act,
        )
        return PageServer(LivePage(shown).answer)

    def reports(self, metric: str, number: int | None) -> list[ReportedValue]:
        of = 7 if number is None else number
        return [ReportedValue(of, 0, step, metric or "loss", 0.1, 1.0) for step in (1, 2, 3)]


@contextmanager
def live(source: Source) -> Iterator[PageServer]:
    page = source.page()
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        yield page
    finally:
        page.close()
        thread.join()


def label_of(window: Browser, name: str) -> str:
    return window.figure(name).get_attribute("aria-label") or ""


def grave_faults(page: Any) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [each["id"] for each in found if each["impact"] in ("serious", "critical")]


def test_a_trial_appears_without_a_reload(chromium: Chromium) -> None:
    source = Source(12)
    with live(source) as served, chromium.window() as window:
        page = window.page
        # From a page of another site, such as a terminal in the browser.
        page.goto("data:text/html,<a>the address that was printed</a>")
        page.evaluate("address => document.querySelector('a').href = address", served.address)
        page.locator("a").click()
        page.wait_for_url("**/")
        before = window.points("history")
        assert "token" not in page.url
        page.evaluate("window.wasNotReloaded = true")
        source.trials = 15
        wait_for(lambda: window.points("history") > before, "their points")
        wait_for(lambda: page.locator("#trials tbody tr").count() == 19, "the new trials")
        # The curves of another metric are fetched when it is chosen.
        page.get_by_label("Metric", exact=True).select_option("loss")
        wait_for(lambda: "loss" in label_of(window, "curves"), "the curves of another metric")
        page.get_by_role("link", name="7", exact=True).first.click()
        follows = page.locator("#log")
        wait_for(lambda: follows.inner_text() == "log of 7 <b>", "the log")
        source.log += " and more"
        wait_for(lambda: follows.inner_text().endswith("and more"), "the rest")
        wait_for(lambda: page.locator("#trial .figure svg").count() == 2, "its curves")
        assert grave_faults(page) == []
        page.get_by_role("link", name="Running", exact=True).click()
        # A section that comes above the button would move it from under the pointer.
        page.wait_for_function("!document.querySelector('section.coming')")
        # A button that is pressed stays where it is.
        page.on("dialog", lambda dialog: dialog.accept())
        page.get_by_role("button", name="Stop trial 16", exact=True).hover()
        page.mouse.down()
        for paused_by, shown in (("ada", "Resume"), ("", "Pause")):
            source.paused_by = paused_by
            button = page.get_by_role("button", name=shown, exact=True)
            wait_for(button.is_visible, f"the button {shown}")
        page.mouse.up()
        wait_for(lambda: source.asked, "the click")
        assert source.last() == (UserAction.STOP_TRIAL, 16, {})
        assert page.evaluate("window.wasNotReloaded")
        own = f"http://127.0.0.1:{served.port}/"
        assert all(each.startswith((own, "data:", "blob:")) for each in window.requests)
        assert window.complaints == []


def test_text_that_is_selected_stays_until_it_is_not(chromium: Chromium) -> None:
    source = Source(12)
    select = "getSelection().selectAllChildren(document.querySelector('%s'))"
    with live(source) as served, chromium.window() as window:
        page = window.page
        page.goto(served.address)
        for place in ("#best > p", "#tiles"):
            wait_for(page.locator(place).is_visible, place)
            page.evaluate(select % place)
            chosen = page.evaluate("String(getSelection())")
            assert len(chosen) > 20
            source.trials += 3
            stop = f"Stop trial {source.trials + 1}"
            wait_for(page.get_by_role("button", name=stop, exact=True).is_visible, "a new trial")
            assert page.evaluate("String(getSelection())") == chosen
        page.evaluate("getSelection().empty()")
        tiles = page.locator("#tiles")
        wait_for(lambda: "19/40" in tiles.inner_text(), "the new state")
        assert window.complaints == []


def test_a_section_that_nobody_sees_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hptune.reporting.html.live._STILL_SECONDS", 1e6)
    monkeypatch.setattr("hptune.reporting.html.live._DRAWING_SECONDS", 1e6)
    source = Source(60)
    with live(source) as page:
        token = urlsplit(page.address).query.removeprefix("token=")
        own = {"Cookie": f"hptune-{page.port}={token}", "X-Hptune": "1"}

        def state(**asked: Any) -> Any:
            status, body = ask(page, "POST", f"{page.folder}state", json.dumps(asked), **own)
            assert status == 200
            return json.loads(body)

        first = state(seen=["best", "history"])
        assert set(first["sections"]) == {"best", "history"}
        assert len(first["data"]["trials"]) == 64
        known = {name: each["version"] for name, each in first["sections"].items()}
        readings, since = source.readings, first["reading"]
        again = state(seen=["best", "history"], known=known, since=since)
        assert (again["sections"], again["data"]) == ({}, None)
        source.trials = 61
        wait_for(lambda: state(seen=["history"], known=known)["sections"], "the trial")
        assert source.readings == readings + 1  # nothing else had changed
        changed = state(since=since)["data"]["trials"]
        assert {each["n"] for each in changed} == {60, 61, 62, 63, 64}, "those of before are known"


def test_an_answer_has_a_section_however_little_time_there_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The page of a server without time would stay empty."""
    monkeypatch.setattr("hptune.reporting.html.live._DRAWING_SECONDS", -1.0)
    with live(Source(6)) as page:
        token = urlsplit(page.address).query.removeprefix("token=")
        own = {"Cookie": f"hptune-{page.port}={token}", "X-Hptune": "1"}
        asked = json.dumps({"seen": ["best", "history"]})
        status, body = ask(page, "POST", f"{page.folder}state", asked, **own)
        assert status == 200
        assert len(json.loads(body)["sections"]) == 1


def test_what_is_asked_on_the_page_by_keyboard(chromium: Chromium) -> None:
    source = Source(6)
    with live(source) as served, chromium.window(width=390, dark=True) as window:
        page = window.page
        page.goto(served.address)
        told = page.locator("#live")

        def press(name: str, answer: str) -> None:
            page.get_by_role("button", name=name, exact=True).focus()
            page.keyboard.press("Enter")
            wait_for(lambda: told.inner_text() == answer, answer)

        press("Pause", "Done: pause.")
        press("Resume", "Done: resume.")
        source.paused_by = "eve"  # in another window: the answer is no longer true
        wait_for(lambda: told.inner_text() == "", "no answer")
        source.paused_by = ""
        page.context.set_offline(True)
        cut = "Not up to date: hptune dashboard does not answer"
        wait_for(lambda: told.inner_text().startswith(cut), "the missing connection")
        page.context.set_offline(False)
        wait_for(lambda: told.inner_text() == "", "the connection")
        page.get_by_text("Enqueue a trial").press("Enter")
        form = page.locator("#add-form")
        form.get_by_label("units").fill("7")
        form.get_by_label("activation").select_option("tanh")
        form.get_by_label("units").press("Enter")
        added = page.locator("#added")
        wait_for(lambda: added.inner_text().startswith("Not done: units is 7"), "the refusal")
        assert len(source.asked) == 2
        form.get_by_label("units").fill("64")
        form.get_by_label("units").press("Enter")
        wait_for(lambda: added.inner_text() == "Done: enqueue.", "the trial")
        values = {"units": "64", "activation": "tanh"}
        assert source.last() == (UserAction.ENQUEUE, None, values)
        assert grave_faults(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.on("dialog", lambda dialog: dialog.accept())
        press("Stop trial 7", "Done: stop a trial.")
        assert source.last() == (UserAction.STOP_TRIAL, 7, {})
        press("Stop trial 9", "Done: stop a trial.")
        assert source.last() == (UserAction.STOP_TRIAL, 9, {})
        press("Stop the study", "Done: stop.")
        command = page.locator("#resume code")
        wait_for(command.is_visible, "the command")
        assert command.inner_text() == "hptune resume studies/digits"
        assert not page.locator("#add").is_visible()
        assert grave_faults(page) == []
        # The browser writes the refusal, an answer 400, and the missing connection to its console.
        expected = "400", "ERR_INTERNET_DISCONNECTED"
        assert [e for e in window.complaints if not any(each in e for each in expected)] == []


def test_a_broken_request_and_an_error_of_the_study_end_in_an_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> Any:
        raise StudyError("the study is gone")

    page = PageServer(LivePage(LiveStudy(fail, fail, fail, fail, fail)).answer)
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        token = urlsplit(page.address).query.removeprefix("token=")
        ours = {"Cookie": f"hptune-{page.port}={token}", "X-Hptune": "1"}
        stop, first = '{"action": "stop"}', '{"trial": 1}'
        for method, name, body in (("GET", "", ""), ("POST", "log", first), ("POST", "state", "{}"),
                                   ("POST", "act", stop), ("POST", "curves", first)):  # fmt: skip
            answer = ask(page, method, page.folder + name, body, **ours)
            assert answer == (500, "the study is gone")
        for name, body, words in (
            ("log", "{}", "the request {} is none of this page; reload it"),
            ("log", '{"trial": 1e400}', "the request {'trial': inf} is none"),
            ("state", '{"seen": 5}', "the request {'seen': 5} is none"),
            ("state", '{"known": 1}', "the request {'known': 1} is none"),
            ("state", "[]", "the request is a list; it must be a JSON object"),
            ("state", "{", "the request is not JSON"),
            ("state", "[" * 50_000, "the request is not JSON"),
            ("state", "\xff", "the request is not JSON"),
            ("state", " " * 100_001, "the request has 100001 bytes"),
            ("act", '{"action": "go"}', "the request {'action': 'go'} is none"),
            ("act", '{"action": {}}', "the request {'action': {}} is none"),
            ("act", '{"action": "stop a trial", "trial": "one"}', "'trial': 'one'} is none"),
        ):
            status, told = ask(page, "POST", page.folder + name, body, **ours)
            assert (status, words in told) == (400, True), (name, body, told)
        long = {"Content-Length": "9" * 6000}
        status, told = ask(page, "POST", f"{page.folder}log", first, **ours, **long)
        assert (status, "the request has 99999999999999999999 bytes" in told) == (400, True)
        assert ask(page, "GET", "http://[", **ours)[0] == 500
        # A browser that leaves before it has its answer.
        with socket.create_connection(("127.0.0.1", page.port)) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(b"GET / HTTP/1.1\r\n")
        assert ask(page, "GET", page.folder, **ours)[0] == 500
    finally:
        page.close()
        thread.join()
    assert capfd.readouterr().err == ""


def ask(
    page: PageServer, method: str, path: str, body: str = "{}", *, host: str = "", **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=200)
    headers["Host"] = host or f"127.0.0.1:{page.port}"
    if method == "POST":
        connection.request(method, path, body, headers)
    else:
        connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_the_head_says_what_slurm_jobs_wait_for(tmp_path: Path) -> None:
    directory = typical(tmp_path / "study")
    words = {directory.path: ""}
    page = study_server(Study(directory.path), jobs=words.__getitem__)
    ours = {"Cookie": f"hptune-{page.port}={page.token}", "X-Hptune": "1"}
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        status, before = ask(page, "POST", f"{page.folder}state", **ours)
        words[directory.path] = "1 pending in <gpu>: Resources"
        _, after = ask(page, "POST", f"{page.folder}state", **ours)
    finally:
        page.close()
        thread.join()
    assert (status, "jobs: " in json.loads(before)["head"]) == (200, False)
    assert " · jobs: 1 pending in &lt;gpu&gt;: Resources" in json.loads(after)["head"]


@pytest.mark.parametrize("is_of_folder", [False, True])
def test_a_study_in_the_place_of_another_one_has_a_page_of_its_own(
    tmp_path: Path, *, is_of_folder: bool
) -> None:
    """As by `overwrite=True`. A page that shows the former one is told so."""
    path, place = typical(tmp_path / "study").path, ""
    page = (
        folder_server(tmp_path, find=lambda: [path], listed=listed, opened=Study)
        if is_of_folder
        else study_server(Study(path))
    )
    ours = {"Cookie": f"hptune-{page.port}={page.token}", "X-Hptune": "1"}

    def got(name: str, body: str = "{}") -> Any:
        return json.loads(ask(page, "POST", f"{page.folder}{place}{name}", body, **ours)[1])

    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        place = f"study/{got('state')['rows'][0]['id']}/" if is_of_folder else ""
        before, metric = got("state"), json.dumps({"metric": "val_accuracy"})
        assert got("curves", metric).keys() == {"0", "2", "3", "5"}
        shutil.rmtree(path)
        stored(path, [trial(0, value=0.7)], created_at=2000.0)
        since = json.dumps({"since": before["reading"]})
        status, said = ask(page, "POST", f"{page.folder}{place}state", since, **ours)
        assert (status, "another study has taken the place" in said) == (400, True)
        assert ask(page, "GET", f"{page.folder}{place}", **ours)[0] == 200
        assert [each["n"] for each in got("state")["data"]["trials"]] == [0]
        assert got("curves", metric) == {}
    finally:
        page.close()
        thread.join()


def test_only_who_has_the_token_gets_anything() -> None:
    source = Source(3)
    with live(source) as page:
        token = urlsplit(page.address).query.removeprefix("token=")
        cookie = f"hptune-{page.port}={token}"
        for path in ("/", page.folder, f"{page.folder}?token=wrong", "/other"):
            assert ask(page, "GET", path)[0] == 403
        for path in (f"{page.folder}{name}" for name in ("state", "act", "log", "curves")):
            assert ask(page, "POST", path, **{"X-Hptune": "1"})[0] == 403
            # A form of a foreign page has the cookie at most, and no header of ours.
            assert ask(page, "POST", path, Cookie=cookie)[0] == 403
        # A foreign page whose name leads to this machine has no cookie of ours.
        assert ask(page, "GET", page.folder, host="evil.example:80")[0] == 403
        assert source.asked == []
        own = {"X-Hptune": "1", "Cookie": cookie}
        status, body = ask(page, "POST", f"{page.folder}state", '{"seen": ["history"]}', **own)
        assert status == 200
        assert "history" in json.loads(body)["sections"]
        status, body = ask(page, "POST", f"{page.folder}log", '{"trial": 7, "start": 4}', **own)
        assert (status, json.loads(body)) == (200, {"text": "of 7 <b>", "end": 12})
        # A forwarded port or a proxy has another name, and a proxy may leave its prefix.
        for path in (page.folder, f"/node/one/8799{page.folder}"):
            assert ask(page, "GET", path, host="hub.example", Cookie=cookie)[0] == 200
        assert ask(page, "GET", "/node/one/8799/", Cookie=cookie)[0] == 404
        # Another local server has set a cookie of the same name.
        for both in (f"{cookie}; hptune-{page.port}=other", f"hptune-{page.port}=other; {cookie}"):
            assert ask(page, "GET", page.folder, Cookie=both)[0] == 200
        assert ask(page, "GET", page.folder, Cookie=f"hptune-{page.port}=other")[0] == 403
        # A browser sends the cookie to this page only, not to other ports of the machine.
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=200)
        # That is what a browser makes of a cookie without a path.
        connection.request("GET", f"{page.folder}?token={token}")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Location")) == (303, "./")
        assert "path" not in (answer.getheader("Set-Cookie") or "path").lower()
        assert len(page.folder) > 16

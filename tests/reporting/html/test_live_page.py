"""The live page, in a real browser, and who may read it."""

from __future__ import annotations

import http.client
import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import browser
from real_runs import wait_for
from report_study import SETUP, SPACE, study

from tuner.errors import StudyError
from tuner.reporting.html.live import LivePage, LiveStudy
from tuner.reporting.html.report import ReportContents, make_report
from tuner.storage.lease import LockOwner


class Source:
    """A study that grows."""

    def __init__(self, trials: int) -> None:
        self.trials = trials
        self.stops = 0

    def read(self) -> ReportContents:
        view, reports = study(self.trials)
        running = replace(view, master=LockOwner("node", 1, 0.0))
        return make_report(running, SPACE, reports, SETUP, now=2000.0)

    def stop(self) -> str:
        self.stops += 1
        return "The study stops."


@contextmanager
def live(source: Source) -> Iterator[LivePage]:
    page = LivePage(LiveStudy(source.read, lambda trial: f"log of {trial} <b>", source.stop))
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        yield page
    finally:
        page.close()
        thread.join()


def test_a_trial_appears_without_a_reload_and_the_study_can_be_stopped() -> None:
    source = Source(12)
    with live(source) as served, browser() as window:
        page = window.page
        # From a page of another site, such as a terminal in the browser.
        page.goto("data:text/html,<a>the address that was printed</a>")
        page.evaluate("address => document.querySelector('a').href = address", served.address)
        page.locator("a").click()
        page.wait_for_url("**/")
        # A function that polls in the page would need what its policy forbids.
        drawn = "!!window.Bokeh && document.querySelectorAll('#history .bk-Figure').length === 1"
        wait_for(lambda: page.evaluate(drawn), "the figures")
        assert "token" not in page.url
        before = window.points("history")
        page.evaluate("window.wasNotReloaded = true")
        source.trials = 15
        wait_for(lambda: page.locator("#trials tbody tr").count() == 16, "the new trials")
        wait_for(lambda: window.points("history") > before, "their points")
        # Those of figures that were replaced are gone.
        figures = page.evaluate("document.querySelectorAll('.bk-Figure').length")
        wait_for(lambda: page.evaluate("Bokeh.documents.length") == figures, "the documents")
        assert page.evaluate("window.wasNotReloaded")
        with page.expect_popup() as opened:
            page.locator("#trials summary").click()
            page.locator("#trials td a").first.click()
        assert opened.value.locator("body").inner_text().endswith("<b>")
        page.on("dialog", lambda dialog: dialog.accept())
        page.locator("#stop").click()
        wait_for(lambda: page.locator("#live").inner_text() == "The study stops.", "the answer")
        assert source.stops == 1
        found = Axe().run(page).response["violations"]
        assert [each for each in found if each["impact"] in ("serious", "critical")] == []
        own = f"http://127.0.0.1:{served.port}/"
        assert all(each.startswith((own, "data:", "blob:")) for each in window.requests)
        assert window.complaints == []


def test_a_broken_request_and_an_error_of_the_study_end_in_an_answer(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> Any:
        raise StudyError("the study is gone")

    page = LivePage(LiveStudy(fail, fail, fail))
    thread = threading.Thread(target=page.serve)
    thread.start()
    try:
        token = urlsplit(page.address).query.removeprefix("token=")
        ours = {"Cookie": f"hptune-{page.port}={token}", "X-Hptune": "1"}
        for method, name in (("GET", ""), ("GET", "log/1"), ("POST", "state"), ("POST", "stop")):
            answer = ask(page, method, page.folder + name, **ours)
            assert answer == (500, "the study is gone")
        assert ask(page, "GET", f"{page.folder}log/{'9' * 5000}", **ours)[0] == 500
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
    page: LivePage, method: str, path: str, *, host: str = "", **headers: str
) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
    headers["Host"] = host or f"127.0.0.1:{page.port}"
    if method == "POST":
        connection.request(method, path, "{}", headers)
    else:
        connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_only_who_has_the_token_gets_anything() -> None:
    source = Source(3)
    with live(source) as page:
        token = urlsplit(page.address).query.removeprefix("token=")
        cookie = f"hptune-{page.port}={token}"
        for path in ("/", page.folder, f"{page.folder}log/0", "/?token=wrong", "/other"):
            assert ask(page, "GET", path)[0] == 403
        for path in (f"{page.folder}state", f"{page.folder}stop"):
            assert ask(page, "POST", path, **{"X-Hptune": "1"})[0] == 403
            # A form of a foreign page has the cookie at most, and no header of ours.
            assert ask(page, "POST", path, Cookie=cookie)[0] == 403
        # A foreign page whose name leads to this machine.
        assert ask(page, "GET", page.folder, host="evil.example:80", Cookie=cookie)[0] == 403
        assert ask(page, "GET", f"/?token={token}", host="evil.example")[0] == 403
        assert source.stops == 0
        own = {"X-Hptune": "1", "Cookie": cookie}
        status, body = ask(page, "POST", f"{page.folder}state", **own)
        assert status == 200
        assert "history" in json.loads(body)["panels"]
        assert ask(page, "GET", f"{page.folder}log/7", Cookie=cookie) == (200, "log of 7 <b>")
        # Through a forwarded port the browser knows another number.
        assert ask(page, "GET", page.folder, host="localhost:9000", Cookie=cookie)[0] == 200
        # A browser sends the cookie to this page only, not to other ports of the machine.
        connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=30)
        connection.request("GET", f"/?token={token}")
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("Location")) == (303, page.folder)
        assert f"; Path={page.folder}" in (answer.getheader("Set-Cookie") or "")
        assert len(page.folder) > 16

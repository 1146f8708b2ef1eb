"""The report as a live page: a small web server on this machine's loopback interface.

The page asks every few seconds for the sections that have changed. Anyone who has the address with
its token may read the study and stop it; others, also of this machine, get nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import html
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .panel import Panel
from .report import ReportContents, bokeh_script, filled_page, links, page_file, section

LOOPBACK = "127.0.0.1"
_SECONDS = 1.0
"""Shortest time between two readings of the study."""
_BUSY_SHARE = 0.5
"""Most of its time that the server spends on reading."""
_COOKIE = "hptune"
_MOST_BYTES = 100_000
_SILENT_SECONDS = 30.0
"""Longest time for a request to arrive."""
_OF_NOW = ("running", "timeline", "costs")
"""Sections that change all the time while the study runs: figures are not drawn again for them."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'"
)
"""The page's own parts only: nothing is fetched from elsewhere."""
_LOCAL_NAMES = (LOOPBACK, "localhost", "[::1]")
"""Names by which a browser may reach the page, also through a forwarded port. Another name is that
of a foreign page, which made its own name lead here (DNS rebinding)."""


@dataclass(frozen=True, slots=True)
class LiveStudy:
    """What the page needs of a study.

    Attributes:
        read: Returns its report as it is now.
        log: Returns the end of a trial's log.
        stop: Asks its master to stop, and returns what was done, for the user.
    """

    read: Callable[[], ReportContents]
    log: Callable[[int], str]
    stop: Callable[[], str]


@dataclass(frozen=True, slots=True)
class _Section:
    """A section, drawn.

    Attributes:
        version: Changes with its contents.
        html: Its HTML.
        figures: Its figures, in Bokeh's JSON form.
    """

    version: str
    html: str
    figures: Sequence[Any]


class LivePage:
    """A server of the live page of one study.

    Args:
        study: The study.
        port: The port to listen on; 0 for a free one.

    Raises:
        OSError: The port cannot be had.
    """

    def __init__(self, study: LiveStudy, port: int = 0) -> None:
        self._study = study
        self._token = secrets.token_urlsafe(24)
        self._folder = f"/{secrets.token_urlsafe(12)}/"
        self._lock = threading.Lock()
        self._drawn: dict[str, _Section] = {}
        self._contents: ReportContents | None = None
        self._read_at = 0.0
        self._read_seconds = 0.0
        page = self

        class Handler(_Handler):
            live = page

        self._server = _Server((LOOPBACK, port), Handler)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        port: int = self._server.server_address[1]
        return port

    @property
    def address(self) -> str:
        """The page's address, with its token."""
        return f"http://{LOOPBACK}:{self.port}/?token={self._token}"

    @property
    def folder(self) -> str:
        """Path of the page, whose cookie a browser sends there only.

        Cookies are shared by all ports of a machine: a server of another user, if its page was
        opened too, would get one that is for all paths.
        """
        return self._folder

    def serve(self) -> None:
        """Answer requests until `close` is called."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering, from another thread."""
        self._server.shutdown()
        self._server.server_close()

    # --- answers ----------------------------------------------------------------------------

    def allows(self, token: str) -> bool:
        """Return whether this is the page's token."""
        return hmac.compare_digest(token.encode(), self._token.encode())

    def page(self) -> str:
        """Return the page, still without sections."""
        with self._lock:
            contents = self._latest()
        controls = (
            '<p id="live" role="status"></p><button id="stop" type="button">Stop the study</button>'
        )
        parts = {
            "BOKEH": bokeh_script(),
            "SCRIPT": "",
            "PAGE_SCRIPT": page_file("page.js") + page_file("live.js"),
            "LINKS": "",
            "SECTIONS": "",
        }
        page = filled_page(contents, parts)
        return page.replace("<nav", f"{controls}<nav", 1)

    def state(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sections that the page does not have yet.

        Args:
            known: The versions of the sections that it has.
        """
        with self._lock:
            contents = self._latest()
            drawn = dict(self._drawn)
        return {
            "head": "<br>".join(html.escape(each) for each in contents.head),
            "links": links(contents.panels),
            "order": [panel.name for panel in contents.panels],
            "has_pruned": contents.has_pruned,
            "is_running": contents.is_running,
            "seconds": max(2 * _SECONDS, self._read_seconds / _BUSY_SHARE),
            "panels": {
                name: {"version": each.version, "html": each.html, "figures": each.figures}
                for name, each in drawn.items()
                if known.get(name) != each.version
            },
        }

    def log(self, trial: int) -> str:
        """Return the end of a trial's log."""
        return self._study.log(trial)

    def stop(self) -> str:
        """Ask the study's master to stop."""
        return self._study.stop()

    def _latest(self) -> ReportContents:
        """Read the study again, unless that was just done; the caller holds the lock."""
        age = time.monotonic() - self._read_at
        if self._contents is None or age > max(_SECONDS, self._read_seconds / _BUSY_SHARE):
            began = time.monotonic()
            self._contents = self._study.read()
            panels = self._contents.panels
            everything = _version_of([panel for panel in panels if panel.name not in _OF_NOW])
            self._drawn = {
                panel.name: self._draw(panel, everything, self._drawn.get(panel.name))
                for panel in panels
            }
            self._read_at = time.monotonic()
            self._read_seconds = self._read_at - began
        return self._contents

    def _draw(self, panel: Panel, everything: str, before: _Section | None) -> _Section:
        # What a figure shows is in one of the tables, but not always in its own.
        version = everything if panel.figures else _version_of([panel])
        if before is not None and before.version == version:
            return before
        from bokeh.embed import json_item

        items = [
            json_item(figure, f"{panel.name}-{i}-{version}")
            for i, figure in enumerate(panel.figures)
        ]
        places = [
            f'<div id="{item["target_id"]}" data-root-id="{item["root_id"]}"></div>'
            for item in items
        ]
        return _Section(version, section(panel, places), items)


class _Server(ThreadingHTTPServer):
    """Server that a page which is closed, or a broken request, does not disturb."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Write no traceback into the terminal: the connection is lost, and no answer arrives."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of a browser."""

    live: LivePage
    timeout = _SILENT_SECONDS
    server_version = "hptune"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the page, or a trial's log."""
        with self._errors_sent():
            self._get()

    def do_POST(self) -> None:
        """Send what has changed, or stop the study."""
        with self._errors_sent():
            self._post()

    @contextlib.contextmanager
    def _errors_sent(self) -> Iterator[None]:
        """Send an error as the answer, such as that the study was deleted; the page shows it."""
        try:
            yield
        except (ConnectionError, TimeoutError):
            raise  # nobody is there to read it
        except Exception as error:
            status = HTTPStatus.INTERNAL_SERVER_ERROR
            self._send(str(error), "text/plain; charset=utf-8", status)

    def _get(self) -> None:
        url = urlsplit(self.path)
        given = parse_qs(url.query).get("token", [""])[0]
        if given and self.live.allows(given) and self._is_local:
            # The token stays neither in the address nor in the browser's history.
            self.send_response(HTTPStatus.SEE_OTHER)
            self.send_header("Location", self.live.folder)
            # Strict would withhold it after a link of another page, as of a terminal in a browser.
            rights = f"HttpOnly; SameSite=Lax; Path={self.live.folder}"
            self.send_header("Set-Cookie", f"{self._cookie_name}={given}; {rights}")
            self.end_headers()
        elif not self._is_allowed:
            self._refuse()
        elif url.path == self.live.folder:
            self._send(self.live.page(), "text/html; charset=utf-8")
        elif (trial := url.path.removeprefix(f"{self.live.folder}log/")).isdecimal():
            self._send(self.live.log(int(trial)), "text/plain; charset=utf-8")
        else:
            self._send("There is no such page.", "text/plain", HTTPStatus.NOT_FOUND)

    def _post(self) -> None:
        # A form of a foreign page cannot send this header.
        if not self._is_allowed or self.headers.get("X-Hptune") != "1":
            self._refuse()
        elif self.path == f"{self.live.folder}stop":
            self._send(self.live.stop(), "text/plain; charset=utf-8")
        elif self.path == f"{self.live.folder}state":
            given = self.headers.get("Content-Length", "")
            length = min(_MOST_BYTES, int(given)) if given.isdecimal() else 0
            known = json.loads(self.rfile.read(length) or b"{}")
            state = self.live.state(known if isinstance(known, dict) else {})
            self._send(json.dumps(state), "application/json")
        else:
            self._send("There is no such page.", "text/plain", HTTPStatus.NOT_FOUND)

    @property
    def _cookie_name(self) -> str:
        # Of several pages on this machine, each has a cookie of its own.
        return f"{_COOKIE}-{self.live.port}"

    @property
    def _is_local(self) -> bool:
        return self.headers.get("Host", "").rpartition(":")[0] in _LOCAL_NAMES

    @property
    def _is_allowed(self) -> bool:
        cookies = dict(
            each.strip().partition("=")[::2] for each in self.headers.get("Cookie", "").split(";")
        )
        return self._is_local and self.live.allows(cookies.get(self._cookie_name, ""))

    def _refuse(self) -> None:
        words = "Open the address that `hptune dashboard` printed, with its token.\n"
        self._send(words, "text/plain; charset=utf-8", HTTPStatus.FORBIDDEN)

    def _send(self, content: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        data = content.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Content-Security-Policy", _POLICY),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        """Write no log of requests: they would hide the address in the terminal."""


def _version_of(panels: Sequence[Panel]) -> str:
    """Return a text that changes with the words and tables of sections."""
    shown = [
        (panel.words, [(table.columns, table.rows) for table in panel.tables]) for panel in panels
    ]
    return hashlib.sha256(repr(shown).encode()).hexdigest()[:16]

"""A web server on the loopback interface, for pages that only their user may read."""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ...errors import UsageError

LOOPBACK = "127.0.0.1"
_COOKIE = "hptune"
_MOST_BYTES = 100_000
_SILENT_SECONDS = 30.0
"""Longest time for a request to arrive."""
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; connect-src 'self'"
)
"""The page's own parts only: nothing is fetched from elsewhere."""

Answer = Callable[[Mapping[str, Any]], str]
"""Returns the body of an answer to a request, whose JSON object it is given. A GET is answered with
HTML, a POST with JSON or plain text."""


class PageServer:
    """A server whose answers are only for a browser that has its token.

    A browser may reach it by any name and below any path: through a forwarded port, or a proxy
    such as that of Jupyter, which may pass on its own prefix. A foreign page that makes its own
    name lead here (DNS rebinding) gets nothing: a browser sends the cookie to the name alone that
    it came from.

    Cookies are shared by all ports of a machine. A server of another user, if its page was opened
    too, would get a cookie that is for all paths; this one is for the folder alone.

    Args:
        answer: Returns what answers a method and a name within the folder; None if nothing does.
        port: The port to listen on; 0 for a free one.

    Attributes:
        token: What the address must have.
        folder: Path of the page.

    Raises:
        OSError: The port cannot be had.
    """

    def __init__(self, answer: Callable[[str, str], Answer | None], port: int = 0) -> None:
        self.token = secrets.token_urlsafe(24)
        self.folder = f"/{secrets.token_urlsafe(12)}/"
        self._answer = answer
        served = self

        class Handler(_Handler):
            server_of_page = served

        self._server = _Server((LOOPBACK, port), Handler)

    @property
    def port(self) -> int:
        """The port on which the server listens."""
        port: int = self._server.server_address[1]
        return port

    @property
    def address(self) -> str:
        """The page's address, with its token."""
        return f"http://{LOOPBACK}:{self.port}{self.folder}?token={self.token}"

    def serve(self) -> None:
        """Answer requests until `close` is called."""
        self._server.serve_forever(poll_interval=0.2)

    def close(self) -> None:
        """Stop answering, from another thread."""
        self._server.shutdown()
        self._server.server_close()

    def allows(self, token: str) -> bool:
        """Return whether this is the page's token."""
        return hmac.compare_digest(token.encode(), self.token.encode())

    def answer(self, method: str, path: str) -> Answer | None:
        """Return what answers a request; None if there is no such page."""
        _, folder, name = path.partition(self.folder)
        return self._answer(method, name) if folder else None


class _Server(ThreadingHTTPServer):
    """Server that a page which is closed, or a broken request, does not disturb."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Write no traceback into the terminal: the connection is lost, and no answer arrives."""


class _Handler(BaseHTTPRequestHandler):
    """Answers one request of a browser."""

    server_of_page: PageServer
    timeout = _SILENT_SECONDS
    server_version = "hptune"
    sys_version = ""

    def do_GET(self) -> None:
        """Send a page."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Send data, or carry out what is asked."""
        self._answer(self._post)

    def _answer(self, request: Callable[[], None]) -> None:
        """Answer, with an error if there is one, such as that the study was deleted."""
        try:
            request()
        except (ConnectionError, TimeoutError):
            raise  # nobody is there to read it
        except Exception as error:
            is_usage = isinstance(error, UsageError)
            status = HTTPStatus.BAD_REQUEST if is_usage else HTTPStatus.INTERNAL_SERVER_ERROR
            self._send(str(error), "text/plain; charset=utf-8", status)

    def _get(self) -> None:
        page, url = self.server_of_page, urlsplit(self.path)
        given = parse_qs(url.query).get("token", [""])[0]
        if given and page.allows(given) and url.path.endswith(page.folder):
            # The token stays neither in the address nor in the browser's history.
            self.send_response(HTTPStatus.SEE_OTHER)
            self.send_header("Location", "./")
            # Without a path, it is for the folder as the browser knows it. Strict would withhold it
            # after a link of another page, as of a terminal in a browser.
            cookie = f"{self._cookie_name}={given}; HttpOnly; SameSite=Lax"
            self.send_header("Set-Cookie", cookie)
            self.end_headers()
        elif not self._is_allowed:
            self._refuse()
        elif (answer := page.answer("GET", url.path)) is not None:
            self._send(answer({}), "text/html; charset=utf-8")
        else:
            self._send("There is no such page.", "text/plain", HTTPStatus.NOT_FOUND)

    def _post(self) -> None:
        # A form of a foreign page cannot send this header.
        if not self._is_allowed or self.headers.get("X-Hptune") != "1":
            self._refuse()
        elif (answer := self.server_of_page.answer("POST", self.path)) is not None:
            self._send(answer(self._asked()), "application/json")
        else:
            self._send("There is no such page.", "text/plain", HTTPStatus.NOT_FOUND)

    def _asked(self) -> dict[str, Any]:
        """Return the JSON object that was sent.

        Raises:
            UsageError: It is something else.
        """
        given = self.headers.get("Content-Length", "")
        is_long = len(given) > len(str(_MOST_BYTES))  # Python reads no number of 5,000 digits
        length = int(given) if given.isdecimal() and not is_long else 0
        if is_long or length > _MOST_BYTES:
            raise UsageError(f"the request has {given[:20]} bytes; allowed are {_MOST_BYTES}")
        try:
            asked = json.loads(self.rfile.read(length) or b"{}")
        except (ValueError, RecursionError) as error:
            raise UsageError(f"the request is not JSON: {error}") from None
        if not isinstance(asked, dict):
            raise UsageError(f"the request is a {type(asked).__name__}; it must be a JSON object")
        return asked

    @property
    def _cookie_name(self) -> str:
        # Of several pages on this machine, each has a cookie of its own.
        return f"{_COOKIE}-{self.server_of_page.port}"

    @property
    def _is_allowed(self) -> bool:
        # Another local server may have set one of the same name, for a path of its own.
        given = (pair.strip().partition("=") for pair in self.headers.get("Cookie", "").split(";"))
        allows = self.server_of_page.allows
        return any(name == self._cookie_name and allows(value) for name, _, value in given)

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

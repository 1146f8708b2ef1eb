"""A real browser without a window, for the pages that hptune writes."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from real_runs import wait_for
from requirements import unavailable

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """A browser window, and what its page wrote to the console and asked the network for."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.page.set_default_timeout(100_000)
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path) -> None:
        """Open a page."""
        self.page.goto(path.as_uri())

    def figure(self, name: str) -> Any:
        """Return the first figure of a section, once it is drawn of what is chosen."""
        section = self.page.locator(f"#{name}")
        self.page.evaluate("name => document.getElementById(name).scrollIntoView()", name)
        wait_for(lambda: self.page.evaluate(_DRAWN, name), f"the figure of {name}", seconds=60.0)
        return section.locator(".figure").first

    def points(self, name: str) -> int:
        """Return how many points the figures of a section have."""
        self.figure(name)
        count: int = self.page.evaluate(_POINTS, name)
        return count


# Whether a figure of a section is drawn of what is chosen now.
_DRAWN = """
name => [...document.querySelectorAll(`#${name} [data-drawn]`)]
  .some(each => each.dataset.drawn === document.querySelector("main").dataset.version)
"""

# Points that look alike are parts of one path; parts of other marks look different.
_POINTS = r"""
name => [...document.querySelectorAll(`#${name} svg:not(.legend svg) path`)]
  .map(each => (each.getAttribute("d").match(/h0|l4 -7l4 7z|l7 7m0 -7l-7 7|l4 -?5l4 -?5|a3.5 3.5 0 1 0 7 0/g) || []).length)
  .reduce((sum, count) => sum + count, 0)
"""  # noqa: E501


class Chromium:
    """A browser that runs; each window has cookies of its own."""

    def __init__(self, process: Any) -> None:
        self._process = process

    @contextlib.contextmanager
    def window(self, *, width: int = 1200, dark: bool = False) -> Iterator[Browser]:
        """Open a window."""
        context = self._process.new_context(
            viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light"
        )
        try:
            yield Browser(context)
        finally:
            context.close()


@contextlib.contextmanager
def started() -> Iterator[Chromium]:
    """Start a browser, or skip the test where there is none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        unavailable(f"no browser is installed; looked for {', '.join(_PROGRAMS)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        process = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield Chromium(process)
        finally:
            process.close()


@contextlib.contextmanager
def browser(*, width: int = 1200, dark: bool = False) -> Iterator[Browser]:
    """Start a browser with one window, or skip the test where there is none."""
    with started() as chromium, chromium.window(width=width, dark=dark) as window:
        yield window

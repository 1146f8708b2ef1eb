"""A real browser without a window, for the pages that hptune writes."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from requirements import unavailable

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "chrome")


class Browser:
    """A browser window, and what its page wrote to the console and asked the network for."""

    def __init__(self, context: Any) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", self._on_console)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def open(self, path: Path) -> None:
        """Open a page, and wait until its figures are drawn."""
        self.page.goto(path.as_uri())
        self.page.wait_for_function(
            "!window.Bokeh || (Bokeh.documents.length && Bokeh.documents.every(d => d.is_idle))"
        )

    def points(self, name: str) -> int:
        """Return how many points the visible scatter plots of a section have."""
        count: int = self.page.evaluate(_POINTS, name)
        return count


# The figures of a section, found by the elements that they are drawn in.
_POINTS = """
name => {
  const ids = [...document.querySelectorAll("#" + name + " [data-root-id]")]
    .map(each => each.dataset.rootId);
  let count = 0;
  for (const drawn of Bokeh.documents)
    for (const root of drawn.roots().filter(each => ids.includes(each.id)))
      for (const model of root.references())
        if (model.type === "GlyphRenderer" && model.visible && model.glyph.type === "Scatter")
          count += model.data_source.get_length();
  return count;
}
"""


@contextlib.contextmanager
def browser(*, width: int = 1200, dark: bool = False) -> Iterator[Browser]:
    """Start a browser, or skip the test where there is none."""
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        unavailable(f"no browser is installed; looked for {', '.join(_PROGRAMS)}")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield Browser(
                started.new_context(
                    viewport={"width": width, "height": 900},
                    color_scheme="dark" if dark else "light",
                )
            )
        finally:
            started.close()

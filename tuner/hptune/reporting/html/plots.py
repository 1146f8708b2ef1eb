"""A figure of the report by itself, for notebooks and scripts."""

from __future__ import annotations

import base64
import gzip
import html
import os
from functools import cache
from pathlib import Path

from ...errors import UsageError
from ...storage.output_files import write_output
from .panel import Panel


class Plot:
    """A figure of the report. It shows itself in a notebook.

    Attributes:
        figures: The Bokeh figures, to change or to lay out.
    """

    def __init__(self, title: str, panel: Panel) -> None:
        self._title, self._words = title, panel.words
        self.figures = list(panel.figures)

    def __repr__(self) -> str:
        return f"Plot({self._title!r})"

    def _repr_html_(self) -> str:
        from bokeh.embed import components

        script, places = components(self.figures, wrap_script=False)
        label = html.escape(f"{self._title}. {self._words}")
        columns = "repeat(auto-fit, minmax(20rem, 1fr))" if len(self.figures) > 1 else "1fr"
        return (
            f'<div role="img" aria-label="{label}" style="display: grid; '
            f'grid-template-columns: {columns}">{"".join(places)}</div>'
            f"<script>{_LOADING.replace('$CODE', _bokeh())}.then(() => {{{script}}});</script>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to an HTML file, which needs no network.

        Raises:
            UsageError: The ending is not .html, or the file cannot be written.
        """
        file = Path(path)
        if file.suffix.lower() != ".html":
            raise UsageError(
                f"{file} ends with {file.suffix or 'nothing'}; a figure is written as .html, and "
                "its save tool gives a PNG file"
            )
        page = f"<!DOCTYPE html><meta charset=utf-8><body>{self._repr_html_()}"
        write_output(file, page.encode())


# A cell's output has all that it needs, and is shown alike in Jupyter, VS Code and Colab. It is
# packed, because Jupyter drops the output of a kernel that sends more than 1 MB a second.
_LOADING = """
(window.hptuneBokeh ??= window.Bokeh ? Promise.resolve() : (async () => {
  const packed = Uint8Array.from(atob("$CODE"), each => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
})())"""


@cache
def _bokeh() -> str:
    """Return Bokeh's own script, packed."""
    from bokeh.resources import Resources

    code = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return base64.b64encode(gzip.compress(code.encode(), mtime=0)).decode()

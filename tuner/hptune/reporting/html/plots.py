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

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self.figures = list(panel.figures)

    def __repr__(self) -> str:
        return f"Plot({self._panel.title!r})"

    def _repr_html_(self) -> str:
        from bokeh.embed import components

        script, places = components(self.figures, wrap_script=False)
        label = html.escape(f"{self._panel.title}. {self._panel.words}")
        columns = "repeat(auto-fit, minmax(20rem, 1fr))" if len(self.figures) > 1 else "1fr"
        return (
            f'<div role="img" aria-label="{label}" style="display: grid; '
            f'grid-template-columns: {columns}">{"".join(places)}</div>'
            f"<script>{_LOADING.replace('$CODE', _bokeh())}.then(() => {{{script}}});</script>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to a file: .html, which needs no network, .png, .svg or .pdf.

        Of several figures, such as slices, all but the first get a number in their names.

        Raises:
            MissingPackageError: matplotlib is not installed, which all but .html need.
            UsageError: The ending is another one, or the file cannot be written.
        """
        from .pictures import FORMATS, save_figures

        file = Path(path)
        kind = file.suffix.lower().removeprefix(".")
        if kind != "html" and kind not in FORMATS:
            raise UsageError(
                f"{file} ends with {file.suffix or 'nothing'}; allowed are .html and "
                f"{', '.join(f'.{each}' for each in FORMATS)}"
            )
        try:
            if kind == "html":
                page = f"<!DOCTYPE html><meta charset=utf-8><body>{self._repr_html_()}"
                write_output(file, page.encode())
            else:
                save_figures(self.figures, file)
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}") from error


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

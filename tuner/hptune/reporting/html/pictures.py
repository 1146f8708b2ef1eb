"""The report's figures as pictures for papers: PNG, SVG and PDF.

A picture is drawn by matplotlib from the Bokeh figure itself: its points, lines, bars, ranges and
labels. So it shows what the page shows, and no browser is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import check_installed

FORMATS = ("png", "svg", "pdf")

_WIDTH_INCHES = 7.0
_PIXELS_PER_INCH = 100.0
_DOTS_PER_INCH = 200
_INK = "#333333"
_POINTS_PER_PIXEL = 0.72
_MARKERS = {"circle": "o", "triangle": "^", "x": "x"}


def save_figures(figures: Sequence[Any], path: Path) -> list[Path]:
    """Write Bokeh figures as pictures; all but the first get a number in their names.

    The ending of the path is one of `FORMATS`.

    Returns:
        The files.

    Raises:
        MissingPackageError: matplotlib is not installed.
        OSError: A file cannot be written.
    """
    check_installed("matplotlib", "a picture")
    from matplotlib import rc_context

    written = []
    for number, figure in enumerate(figures, start=1):
        file = path if number == 1 else path.with_stem(f"{path.stem}-{number}")
        # The same study gives the same file.
        with rc_context({"svg.hashsalt": "hptune", "svg.fonttype": "none", "font.size": 9}):
            metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
            kind = file.suffix.lower().removeprefix(".")
            drawn(figure).savefig(file, dpi=_DOTS_PER_INCH, metadata=metadata.get(kind))
        written.append(file)
    return written


def drawn(figure: Any) -> Any:
    """Return a Bokeh figure as a figure of matplotlib."""
    from matplotlib.figure import Figure

    height = (figure.height or 320) / _PIXELS_PER_INCH
    picture = Figure(figsize=(_WIDTH_INCHES, max(1.6, height)), layout="constrained")
    axes = picture.add_subplot()
    _Drawing(figure, axes).draw()
    return picture


class _Drawing:
    """One figure while it is drawn."""

    def __init__(self, figure: Any, axes: Any) -> None:
        self._figure = figure
        self._axes = axes
        self._across = _places(figure.x_range)
        self._up = _places(figure.y_range)
        items = (item for legend in figure.legend for item in legend.items)
        self._labels = {
            each.id: _plain(str(_given(item.label))) for item in items for each in item.renderers
        }
        self._random = np.random.default_rng(0)

    def draw(self) -> None:
        axes, figure = self._axes, self._figure
        axes.set_title(_plain(figure.title.text or ""), loc="left", fontsize=9, color=_INK)
        for of, name in ((figure.xaxis[0], "x"), (figure.yaxis[0], "y")):
            if type(of).__name__ == "LogAxis":
                axes.set(**{f"{name}scale": "log"})
            axes.set(**{f"{name}label": _plain(of.axis_label or "")})
        for renderer in figure.renderers:
            if renderer.visible:
                draw = getattr(self, f"_{type(renderer.glyph).__name__.lower()}")
                draw(renderer.glyph, renderer.data_source, self._labels.get(renderer.id))
        self._finish_axes()
        for bar in figure.right:
            if type(bar).__name__ == "ColorBar":
                axes.figure.colorbar(_scale(bar.color_mapper), ax=axes, pad=0.01, aspect=40)
        handles, _ = axes.get_legend_handles_labels()
        if handles:
            is_above = any(each in figure.above for each in figure.legend)
            place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 5} if is_above else {}
            axes.legend(frameon=not is_above, fontsize=8, **place)

    def _finish_axes(self) -> None:
        from matplotlib.ticker import MaxNLocator, NullLocator

        axes, figure = self._axes, self._figure
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("#999999")
        axes.tick_params(colors=_INK, length=3)
        axes.set_axisbelow(True)
        for axis, of, grid, places, limits in (
            (axes.xaxis, figure.xaxis[0], figure.xgrid[0], self._across, figure.x_range),
            (axes.yaxis, figure.yaxis[0], figure.ygrid[0], self._up, figure.y_range),
        ):
            if grid.visible:
                axis.grid(color="#dddddd", linewidth=0.6)
            if places:
                axis.set_ticks(list(places.values()), labels=[*map(_plain, places)])
                axes.set(**{f"{axis.axis_name}lim": (-0.5, len(places) - 0.5)})
            elif getattr(of.ticker, "ticks", None):
                named = of.major_label_overrides
                ticks = list(of.ticker.ticks)
                labels = [_plain(named.get(each, f"{each:g}")) for each in ticks]
                axis.set_ticks(ticks, labels=labels)
                axis.set_minor_locator(NullLocator())
            elif getattr(of.ticker, "min_interval", 0.0) >= 1.0:
                axis.set_major_locator(MaxNLocator(integer=True))
            if not of.visible:
                axis.set_visible(False)
                axes.spines["left" if axis is axes.yaxis else "bottom"].set_visible(False)
            ends = [getattr(limits, end, None) for end in ("start", "end")]
            known = [each if each is not None and np.isfinite(each) else None for each in ends]
            if not places and known[0] is not None:
                axes.set(**{f"{axis.axis_name}lim": known})
        if self._figure.xaxis[0].major_label_orientation != "horizontal":
            axes.tick_params(axis="x", rotation=25)

    # --- glyphs ---------------------------------------------------------------------------------

    def _scatter(self, glyph: Any, source: Any, label: str | None) -> None:
        from matplotlib.colors import to_rgba, to_rgba_array

        x, y = self._points(glyph, source)
        marker = _MARKERS.get(str(_given(glyph.marker)), "o")
        size = float(_given(glyph.size)) * _POINTS_PER_PIXEL
        fill = to_rgba_array(_given(glyph.fill_color), _column(glyph.fill_alpha, source))
        edge = to_rgba(_given(glyph.line_color), _given(glyph.line_alpha))
        self._axes.scatter(
            x, y, s=size**2, marker=marker, c=fill, edgecolors=None if marker == "x" else edge,
            linewidths=_width(glyph), label=label, zorder=2,
        )  # fmt: skip

    def _line(self, glyph: Any, source: Any, label: str | None) -> None:
        points = self._points(glyph, source)
        self._axes.plot(*points, label=label, zorder=3, **_stroke(glyph))

    def _step(self, glyph: Any, source: Any, label: str | None) -> None:
        points = self._points(glyph, source)
        self._axes.step(*points, where="post", label=label, zorder=3, **_stroke(glyph))

    def _multiline(self, glyph: Any, source: Any, label: str | None) -> None:
        from matplotlib.collections import LineCollection

        lines = zip(_column(glyph.xs, source), _column(glyph.ys, source), strict=True)
        segments = [np.column_stack([x, y]) for x, y in lines]
        stroke = _stroke(glyph)
        spec = glyph.line_color
        if mapper := getattr(spec, "transform", None):
            scale = _scale(mapper)
            stroke["color"] = scale.to_rgba(np.array(source.data[spec.field], dtype=float))
        found = LineCollection(
            segments, colors=stroke["color"], alpha=stroke["alpha"],
            linewidths=stroke["linewidth"], label=label,
        )  # fmt: skip
        self._axes.add_collection(found)
        self._axes.autoscale_view()

    def _hbar(self, glyph: Any, source: Any, label: str | None) -> None:
        y = self._at(glyph.y, source, self._up)
        left = self._at(glyph.left, source, {}) * np.ones(len(y))
        right = self._at(glyph.right, source, {})
        self._axes.barh(
            y, right - left, left=left, height=float(_given(glyph.height)),
            color=_given(glyph.fill_color), alpha=_given(glyph.fill_alpha), label=label,
        )  # fmt: skip

    def _vbar(self, glyph: Any, source: Any, label: str | None) -> None:
        x = self._at(glyph.x, source, self._across)
        bottom = self._at(glyph.bottom, source, {}) * np.ones(len(x))
        top = self._at(glyph.top, source, {})
        self._axes.bar(
            x, top - bottom, bottom=bottom, width=float(_given(glyph.width)),
            color=_given(glyph.fill_color), alpha=_given(glyph.fill_alpha), label=label,
        )  # fmt: skip

    def _segment(self, glyph: Any, source: Any, _label: str | None) -> None:
        x = [self._at(each, source, self._across) for each in (glyph.x0, glyph.x1)]
        y = [self._at(each, source, self._up) for each in (glyph.y0, glyph.y1)]
        self._axes.plot(x, y, zorder=3, **_stroke(glyph))

    def _image(self, glyph: Any, source: Any, _label: str | None) -> None:
        values = np.asarray(_column(glyph.image, source)[0])
        places = (glyph.x, glyph.y, glyph.dw, glyph.dh)
        x, y, width, height = (float(_given(each, source)) for each in places)
        edges = (
            _edges(x, x + width, values.shape[1], self._figure.xaxis[0]),
            _edges(y, y + height, values.shape[0], self._figure.yaxis[0]),
        )
        scale = _scale(glyph.color_mapper)
        self._axes.pcolormesh(*edges, values, cmap=scale.cmap, norm=scale.norm, rasterized=True)

    def _text(self, glyph: Any, source: Any, _label: str | None) -> None:
        x, y = self._points(glyph, source)
        align = str(_given(glyph.text_align))
        baseline = {"middle": "center"}.get(str(_given(glyph.text_baseline)), "bottom")
        moved = float(_given(glyph.x_offset)) * _POINTS_PER_PIXEL
        for at_x, at_y, words in zip(x, y, _column(glyph.text, source), strict=True):
            self._axes.annotate(
                _plain(words), (at_x, at_y), (moved, 0), textcoords="offset points", color=_INK,
                ha=align, va=baseline, fontsize=7, annotation_clip=False,
            )  # fmt: skip

    def _points(self, glyph: Any, source: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        return self._at(glyph.x, source, self._across), self._at(glyph.y, source, self._up)

    def _at(self, spec: Any, source: Any, places: dict[str, int]) -> NDArray[np.float64]:
        """Return coordinates; those of words are their places."""
        given = _column(spec, source)
        if places and len(given) and isinstance(given[0], str):
            found = np.array([places[each] for each in given], dtype=float)
            transform = getattr(spec, "transform", None)
            if width := getattr(transform, "width", None):
                found = found + self._random.uniform(-width / 2, width / 2, len(found))
            return found
        return np.array(given, dtype=float)


def _plain(words: str) -> str:
    """Return words that matplotlib shows as they are: two $ would enclose a formula."""
    return words.replace("$", r"\$")


def _column(spec: Any, source: Any) -> Any:
    """Return the values of a property that may differ between marks."""
    expression = getattr(spec, "expr", None)
    if expression is not None:  # a stack of bars
        parts = [np.array(source.data[name], dtype=float) for name in expression.fields]
        return sum(parts, np.zeros(len(next(iter(source.data.values())))))
    name = getattr(spec, "field", spec)
    if isinstance(name, str):
        return source.data[name]
    return np.array([_given(spec)])


def _given(spec: Any, source: Any = None) -> Any:
    """Return the value of a property that is one for all marks."""
    name = getattr(spec, "field", spec)
    if source is not None and isinstance(name, str):
        return source.data[name][0]
    return getattr(spec, "value", spec)


def _width(glyph: Any) -> float:
    return float(_given(glyph.line_width)) * _POINTS_PER_PIXEL


def _stroke(glyph: Any) -> dict[str, Any]:
    dashes = _given(glyph.line_dash)
    return {
        "color": _given(glyph.line_color),
        "alpha": _given(glyph.line_alpha),
        "linewidth": _width(glyph),
        "linestyle": (0, tuple(dashes)) if isinstance(dashes, list) and dashes else "-",
    }


def _places(limits: Any) -> dict[str, int]:
    """Return the places of the words of an axis; empty if it has numbers."""
    return {each: place for place, each in enumerate(getattr(limits, "factors", ()))}


def _scale(mapper: Any) -> Any:
    """Return the colours of a mapper of Bokeh's for matplotlib."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, Normalize

    colours = ListedColormap(list(mapper.palette))  # missing values are transparent
    return ScalarMappable(Normalize(mapper.low, mapper.high), colours)


def _edges(low: float, high: float, cells: int, axis: Any) -> NDArray[np.float64]:
    is_log = type(axis).__name__ == "LogAxis"
    return np.geomspace(low, high, cells + 1) if is_log else np.linspace(low, high, cells + 1)

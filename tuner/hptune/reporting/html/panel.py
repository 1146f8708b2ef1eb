"""A figure with its words and tables, and the marks that all figures share."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ... import text

COMPLETE = "#2f6fde"
PRUNED = "#c47b17"
FAILED = "#d23b3b"
BEST = "#1a9850"
MEDIAN = "#8e5fc9"
MUTED = "#767b84"
"""Colours that are legible on a light and on a dark page. `page.css` gives the texts of axes the
page's own colour."""


LABEL_CHARACTERS = 40
"""Longest name in a figure, which a longer one would leave no room; tables have whole names."""

_SHORT = 30
"""Numbers that are encoded faster one by one than as an array with its header."""


class Shown(enum.StrEnum):
    """With which choice of the reader something is shown; the names are tags and CSS classes."""

    ALWAYS = ""
    COMPLETE_ONLY = "complete-only"
    WITH_PRUNED = "with-pruned"


@dataclass(frozen=True, slots=True)
class Table:
    """A table of texts.

    Attributes:
        columns: The headings.
        rows: The cells of each row.
        shown: With which choice of the reader it is shown.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    shown: Shown = Shown.ALWAYS


@dataclass(frozen=True, slots=True)
class Panel:
    """The contents of one section of the report.

    Attributes:
        words: What it shows, in a sentence or two.
        figures: Bokeh figures, drawn side by side where there is room.
        tables: The same as tables.
        is_folded: Whether the tables are hidden until the reader opens them.
    """

    words: str
    figures: Sequence[Any] = ()
    tables: Sequence[Table] = ()
    is_folded: bool = True

    @property
    def has_marks(self) -> bool:
        """Whether a figure shows anything."""
        return any(figure.renderers for figure in self.figures)


class Follows(enum.Enum):
    """What a section changes with."""

    TRIALS = enum.auto()
    """With the trials that have a value, and so when one ends."""
    EVERYTHING = enum.auto()
    """With every report, and some with time."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the report that is made when it is needed.

    Attributes:
        name: Identifier within the page.
        title: The heading.
        make: Makes the panel; None if there is nothing to show.
        follows: What it changes with.
    """

    name: str
    title: str
    make: Callable[[], Panel | None]
    follows: Follows = Follows.TRIALS


def blank_figure(
    x_label: str, y_label: str, *, height: int = 320, counts: bool = False, **options: Any
) -> Any:
    """Return an empty Bokeh figure that fits the page's width, light or dark.

    Args:
        x_label: What the x axis shows.
        y_label: What the y axis shows.
        height: In pixels.
        counts: Whether the x axis counts, such as trials, and has ticks at whole numbers only.
        options: Further arguments of Bokeh's `figure`.
    """
    from bokeh.models import DataRange1d
    from bokeh.plotting import figure

    options.setdefault("tools", "pan,box_zoom,wheel_zoom,reset,save")
    for axis in ("x_range", "y_range"):
        if axis not in options:
            options[axis] = DataRange1d(only_visible=True)
    plot = figure(
        height=height,
        sizing_mode="stretch_width",
        x_axis_label=text.without_middle(x_label, LABEL_CHARACTERS),
        y_axis_label=text.without_middle(y_label, LABEL_CHARACTERS),
        **options,
    )
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    # Dragging over a figure scrolls the page on a phone; a tool is chosen first.
    plot.toolbar.active_scroll = plot.toolbar.active_drag = None
    plot.background_fill_alpha = plot.border_fill_alpha = 0
    plot.outline_line_color = None
    plot.grid.grid_line_color = MUTED
    plot.grid.grid_line_alpha = 0.25
    plot.axis.axis_line_color = plot.axis.major_tick_line_color = MUTED
    plot.axis.minor_tick_line_color = None
    plot.axis.major_label_text_color = plot.axis.axis_label_text_color = MUTED
    plot.axis.axis_label_text_font_style = "normal"
    if counts:
        plot.xaxis.ticker.min_interval = 1.0
    return plot


def style_legend(plot: Any) -> None:
    """Give the legend of a figure small letters, and no box, which would be white."""
    plot.legend.label_text_font_size = "11px"
    plot.legend.label_text_color = MUTED
    plot.legend.background_fill_color = plot.legend.border_line_color = None


def legend_above(plot: Any) -> None:
    """Move the legend of a figure above it, where it hides nothing."""
    style_legend(plot)
    plot.legend.update(ncols=2, glyph_height=14, label_height=14, padding=4, spacing=2)
    plot.add_layout(plot.legend[0], "above")


def encodable(values: Sequence[float]) -> Any:
    """Return numbers as Bokeh encodes them fastest: a short list, or an array of many."""
    if len(values) <= _SHORT:
        return [float(value) for value in values]
    return np.array(values, dtype=np.float64)


def mark(renderer: Any, shown: Shown) -> Any:
    """Show a renderer only with a choice of the reader, which the page's first one may be."""
    if shown is not Shown.ALWAYS:
        renderer.tags = [str(shown)]
    return renderer


def begin_with(panel: Panel, shown: Shown) -> None:
    """Let the figures of a section begin with a choice of the reader."""
    for figure in panel.figures:
        for renderer in figure.renderers:
            if renderer.tags:
                renderer.visible = str(shown) in renderer.tags

"""Small figures of a few lines each, which stand next to each other and name their lines directly.

They have the same margins, one tool, which saves the figure, and no legend, so that a row of them
reads as one, also on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import text
from ..reporting.html.panel import MUTED, blank_figure
from .curve import Range

_HEIGHT = 250
_INNER_HEIGHT = 170.0
"""Pixels of the frame's height, which the labels are divided among."""
_INNER_WIDTH = 225.0
"""Pixels of the frame's width on a phone, where it is least."""
_CHARACTER = 6.3
"""Pixels of a label's character."""
_LABEL_GAP = 14.0
_LOWEST = 7.0
_LABEL_OFFSET = 9.0
_MARGIN = 0.06
"""Room beside the first and the last point, as a share of the distance between them."""
_ROOM_ABOVE = 1.08
"""The axis ends beyond the largest value by this factor."""
_ROOM_LOG = 1.2


@dataclass(frozen=True, slots=True)
class Mark:
    """A point of a line, with its spread.

    Attributes:
        x: Where it is.
        y: Its value; None if it is unknown, where the line has a gap, or ends with a "?".
        is_hollow: Whether it is drawn as a ring.
    """

    x: float
    y: Range | None
    is_hollow: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A line with its points.

    Attributes:
        label: Its name, written at its end.
        color: Its colour.
        marks: Its points, from left to right.
        drop: A point from which a dotted line falls to the x axis, which it names; None for none.
    """

    label: str
    color: str
    marks: Sequence[Mark]
    drop: tuple[float, float] | None = None

    @property
    def known(self) -> list[tuple[Mark, Range]]:
        """The points whose values are known."""
        return [(mark, mark.y) for mark in self.marks if mark.y is not None]


@dataclass(frozen=True, slots=True)
class Reference:
    """A dotted line to compare the others with.

    Attributes:
        points: Its points, from left to right.
        label: Its name, written at its end; empty for a line that needs none.
    """

    points: Sequence[tuple[float, float]]
    label: str = ""


def line_figure(
    title: str,
    x_label: str,
    lines: Sequence[Line],
    *,
    reference: Reference | None = None,
    top: float = 0.0,
    is_log: bool = False,
) -> Any:
    """Return a figure of some lines over positive numbers that mostly double.

    Args:
        title: What the y axis shows, with the unit.
        x_label: What the x axis shows.
        lines: The lines.
        reference: What to compare them with; None for nothing.
        top: Where the y axis ends at least.
        is_log: Whether the y axis is logarithmic; it begins at 0 otherwise.
    """
    xs = sorted({mark.x for line in lines for mark in line.marks})
    points = () if reference is None else reference.points
    ys = [y for _, y in points] + [top] * (not is_log)
    ys += [end for line in lines for _, y in line.known for end in (y.low, y.high)]
    low = min(ys, default=1.0) / _ROOM_LOG if is_log else 0.0
    high = max(ys, default=1.0) * (_ROOM_LOG if is_log else _ROOM_ABOVE) or 1.0
    ends = [_end(line, low) for line in lines if line.marks]
    if reference is not None and reference.label:
        ends.append((reference.label, MUTED, points[-1]))
    plot = _blank(title, x_label, xs, (low, high), is_log=is_log,
                  longest=max((len(label) for label, _, _ in ends), default=0))  # fmt: skip
    if points:
        plot.line(*zip(*points, strict=True), color=MUTED, line_dash="dotted", line_width=1.5)
    dots = [_drawn(plot, line) for line in lines]
    plot.hover.renderers = dots
    _write_labels(plot, ends, (low, high), is_log=is_log)
    return plot


def _end(line: Line, low: float) -> tuple[str, str, tuple[float, float]]:
    """Return the label of a line, its colour, and where the line ends."""
    last = line.marks[-1]
    if last.y is None:
        return f"{line.label} ?", line.color, (last.x, low)
    return line.label, line.color, (last.x, last.y.middle)


def _blank(
    title: str,
    x_label: str,
    xs: Sequence[float],
    y_range: tuple[float, float],
    *,
    is_log: bool,
    longest: int,
) -> Any:
    from bokeh.models import FixedTicker, NumeralTickFormatter

    first, last = (xs[0], xs[-1]) if xs else (1.0, 1.0)
    span = math.log2(last / first) or 1.0
    share = (_LABEL_OFFSET + _CHARACTER * longest) / _INNER_WIDTH if longest else _MARGIN
    begin, end = first * 2 ** (-_MARGIN * span), last * 2 ** (_MARGIN * span)
    plot = blank_figure(
        x_label,
        "",
        height=_HEIGHT,
        title=title,
        x_axis_type="log",
        y_axis_type="log" if is_log else "linear",
        x_range=(begin, last * 2 ** (span * (1.0 + _MARGIN) * share / (1.0 - share))),
        y_range=y_range,
        tooltips=[("", "@label"), (x_label, "@x"), (title, "@shown")],
        tools="save",
        toolbar_location="above",
    )
    plot.title.text_color = MUTED
    plot.title.text_font_size = "13px"
    plot.min_border_left = 58
    plot.min_border_right = 4
    plot.xgrid.visible = False
    # The labels stand beyond the grid.
    plot.ygrid.cross_bounds = plot.xaxis.bounds = (begin, end)
    plot.xaxis.ticker = FixedTicker(ticks=list(xs))
    plot.xaxis.formatter = NumeralTickFormatter(format="0,0")
    plot.yaxis.formatter = NumeralTickFormatter(format="0,0.[00]")
    if is_log:
        powers = range(math.floor(math.log2(y_range[0])), math.ceil(math.log2(y_range[1])) + 1)
        plot.yaxis.ticker = FixedTicker(ticks=[2.0**each for each in powers])
    else:
        plot.yaxis.ticker.desired_num_ticks = 5
    return plot


def _drawn(plot: Any, line: Line) -> Any:
    """Draw a line, and return its points."""
    color = line.color
    plot.line(
        [mark.x for mark in line.marks],
        [math.nan if mark.y is None else mark.y.middle for mark in line.marks],
        color=color,
        line_width=2,
    )
    x = [mark.x for mark, _ in line.known]
    plot.segment(
        x, [y.low for _, y in line.known], x, [y.high for _, y in line.known],
        color=color, line_width=7, line_alpha=0.35,
    )  # fmt: skip
    if line.drop is not None:
        at, height = line.drop
        plot.segment([at], [0.0], [at], [height], color=color, line_dash="dotted", line_width=1.5)
        plot.text([at], [0.0], [f"{at:,.0f}"], text_color=color, text_font_size="11px",
                  x_offset=4, y_offset=-4)  # fmt: skip
    source = {
        "x": x,
        "y": [y.middle for _, y in line.known],
        "fill": [0.0 if mark.is_hollow else 1.0 for mark, _ in line.known],
        "label": [line.label] * len(x),
        "shown": [_range_text(y) for _, y in line.known],
    }
    return plot.scatter(
        "x", "y", source=source, size=8, color=color, line_width=2, fill_alpha="fill"
    )


def _range_text(values: Range) -> str:
    low, middle, high = (text.amount(each) for each in (values.low, values.middle, values.high))
    return middle if values.count < 2 else f"{middle} ({low} to {high})"


def _write_labels(
    plot: Any,
    ends: Sequence[tuple[str, str, tuple[float, float]]],
    limits: tuple[float, float],
    *,
    is_log: bool,
) -> None:
    """Write the name of each line at its end, none over another."""
    scale = math.log if is_log else float
    low, high = map(scale, limits)
    ends = sorted(ends, key=lambda each: each[2][1])
    pixels = [_INNER_HEIGHT * (scale(y) - low) / (high - low) for _, _, (_, y) in ends]
    for (label, color, (x, _)), at in zip(ends, spread(pixels), strict=True):
        y = low + at * (high - low) / _INNER_HEIGHT
        plot.text(
            [x], [math.exp(y) if is_log else y], [label], text_color=color,
            text_font_size="11px", text_baseline="middle", x_offset=_LABEL_OFFSET,
        )  # fmt: skip


def spread(places: Sequence[float]) -> list[float]:
    """Return places of labels that are a line apart, near those that are wanted, in pixels.

    >>> spread([10.0, 12.0, 100.0])
    [10.0, 24.0, 100.0]
    >>> spread([150.0, 165.0, 168.0])
    [135.0, 149.0, 163.0]

    Args:
        places: Where they are wanted, from the bottom to the top.
    """
    found: list[float] = []
    for place in places:
        found.append(max(place, found[-1] + _LABEL_GAP if found else _LOWEST))
    highest = _INNER_HEIGHT - _LOWEST
    for i in reversed(range(len(found))):
        found[i] = min(found[i], highest)
        highest = found[i] - _LABEL_GAP
    return found

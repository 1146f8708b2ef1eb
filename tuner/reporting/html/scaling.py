"""The section on how a model scales: throughput and efficiency over the number of devices."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from ...core.scaling.curve import ScalingCurve
from ...core.scaling.points import Mode
from ...core.scaling.rows import Row
from ..results.scaling import COLUMNS, EFFICIENT, all_rows, cells, conclusions
from .panel import BEST, COMPLETE, FAILED, MUTED, PRUNED, Panel, Table, blank_figure

_COLORS = (COMPLETE, PRUNED, BEST, FAILED)
_DASHES = {Mode.STRONG: "solid", Mode.WEAK: "dashed"}


def scaling_panel(
    curves: Sequence[ScalingCurve],
    *,
    modes: Sequence[Mode] = tuple(Mode),
    efficiency: float = EFFICIENT,
    has_figures: bool = True,
) -> Panel | None:
    """Return what was measured of a model's scaling; None if nothing was.

    Args:
        curves: The curve of each backend.
        modes: Which rows to show.
        efficiency: The share of the ideal speed-up that is asked for.
        has_figures: Whether to draw figures, which needs Bokeh.
    """
    found = all_rows(curves, modes)
    if not found:
        return None
    lines = conclusions(curves, modes=modes, efficiency=efficiency)
    said = Table(("what the measurements say",), [(line,) for line in lines])
    return Panel(
        "scaling",
        "Scaling",
        "Samples a second, and the share of the ideal speed-up, over the number of devices. Bars "
        "are the spread of repeated runs. Strong: all devices divide one batch; weak: each has a "
        "whole one.",
        [_throughput(found), _efficiency(found, efficiency)] if has_figures else [],
        [said, Table(COLUMNS, [cells(row) for row in found])],
        is_folded=False,
    )


def _throughput(found: Sequence[Row]) -> Any:
    plot = blank_figure("devices", "samples a second")
    for label, color, mode, rows in _lines(found):
        shown = [(row, row.throughput) for row in rows if row.throughput is not None]
        x = [row.point.devices for row, _ in shown]
        style = {"color": color, "legend_label": label}
        plot.line(x, [each.middle for _, each in shown], line_dash=_DASHES[mode], **style)
        plot.scatter(x, [each.middle for _, each in shown], size=7, **style)
        low, high = [each.low for _, each in shown], [each.high for _, each in shown]
        plot.segment(x, low, x, high, color=color, line_width=2)
    return _with_axes(plot, found)


def _efficiency(found: Sequence[Row], wanted: float) -> Any:
    plot = blank_figure("devices", "efficiency, %")
    most = max(row.point.devices for row in found)
    plot.line([1, most], [100 * wanted] * 2, color=MUTED, line_dash="dotted")
    for label, color, mode, rows in _lines(found):
        shown = [(row, row.efficiency) for row in rows if row.efficiency is not None]
        x = [row.point.devices for row, _ in shown]
        middle = [100 * each.middle for _, each in shown]
        style = {"color": color, "legend_label": label}
        plot.line(x, middle, line_dash=_DASHES[mode], **style)
        plot.scatter(x, middle, size=7, **style)
        low = [100 * each.low for _, each in shown]
        high = [100 * each.high for _, each in shown]
        plot.segment(x, low, x, high, color=color, line_width=2)
    return _with_axes(plot, found)


def _lines(found: Sequence[Row]) -> list[tuple[str, str, Mode, list[Row]]]:
    """Return the rows of each line, with its label and colour."""
    colors = dict(zip(dict.fromkeys(row.backend for row in found), itertools.cycle(_COLORS)))
    groups = itertools.groupby(found, key=lambda row: (row.backend, row.mode))
    return [
        (f"{backend}, {mode}", colors[backend], mode, list(rows))
        for (backend, mode), rows in groups
    ]


def _with_axes(plot: Any, found: Sequence[Row]) -> Any:
    plot.xaxis.ticker = sorted({row.point.devices for row in found})
    plot.y_range.start = 0
    plot.legend.background_fill_alpha = 0.6
    plot.add_layout(plot.legend[0], "above")
    plot.legend.orientation = "horizontal"
    return plot

"""The section on how a model scales: throughput and efficiency over the number of devices."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from ...core.scaling.curve import Range, ScalingCurve
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
    """Return what was measured of a model's scaling; None if nothing was."""
    found = all_rows(curves, modes)
    if not found:
        return None
    figures = []
    if has_figures:
        throughput = _figure(found, "samples a second", attrgetter("throughput"))
        figures = [throughput, _efficiency(found, efficiency)]
    lines = conclusions(curves, modes=modes, efficiency=efficiency)
    said = Table(("what the measurements say",), [(line,) for line in lines])
    return Panel(
        "scaling",
        "Scaling",
        "Samples a second, and the share of the ideal speed-up, over the number of devices. Bars "
        "are the spread of repeated runs. Strong: all devices divide one batch; weak: each has a "
        "whole one.",
        figures,
        [said, Table(COLUMNS, [cells(row) for row in found])],
        is_folded=False,
    )


def _figure(
    found: Sequence[Row], y_label: str, value_of: Callable[[Row], Range | None], factor: float = 1.0
) -> Any:
    """Return a figure with a line for each backend and mode; segments are the spread."""
    plot = blank_figure("devices", y_label)
    for label, color, mode, rows in _lines(found):
        known = [(row.point.devices, value) for row in rows if (value := value_of(row)) is not None]
        x = [devices for devices, _ in known]
        low, middle, high = (
            [factor * getattr(value, name) for _, value in known]
            for name in ("low", "middle", "high")
        )
        style = {"color": color, "legend_label": label}
        plot.line(x, middle, line_dash=_DASHES[mode], **style)
        plot.scatter(x, middle, size=7, **style)
        plot.segment(x, low, x, high, color=color, line_width=2)
    plot.xaxis.ticker = sorted({row.point.devices for row in found})
    plot.y_range.start = 0
    plot.legend.background_fill_alpha = 0.6
    plot.add_layout(plot.legend[0], "above")
    plot.legend.orientation = "horizontal"
    return plot


def _efficiency(found: Sequence[Row], wanted: float) -> Any:
    plot = _figure(found, "efficiency, %", attrgetter("efficiency"), 100.0)
    most = max(row.point.devices for row in found)
    plot.line([1, most], [100 * wanted] * 2, color=MUTED, line_dash="dotted")
    return plot


def _lines(found: Sequence[Row]) -> list[tuple[str, str, Mode, list[Row]]]:
    """Return the rows of each line, with its label and colour."""
    colors = dict(zip(dict.fromkeys(row.backend for row in found), itertools.cycle(_COLORS)))
    groups = itertools.groupby(found, key=lambda row: (row.backend, row.mode))
    return [
        (f"{backend}, {mode}", colors[backend], mode, list(rows))
        for (backend, mode), rows in groups
    ]

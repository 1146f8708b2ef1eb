"""The section on how a model scales: small figures over the number of devices, and tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import text
from ..reporting.html.panel import BEST, COMPLETE, FAILED, PRUNED, Panel, Section, Shown, Table
from ..reporting.html.report import ReportContents, page_of
from .curve import Range, ScalingCurve
from .efficient_batch import Side, efficiency_by_batch
from .file import read_curves
from .line_figures import Line, Mark, Reference, line_figure
from .points import Mode
from .rows import Row, measured_modes
from .texts import (
    BAR_COLUMNS,
    COLUMNS,
    EFFICIENT,
    all_rows,
    bar_cells,
    cells,
    conclusions,
    efficient_batches,
)

_COLORS = (COMPLETE, PRUNED, BEST)
_COLORS_BY_DEVICES = ("#8e5fc9", "#1593a5", FAILED)
_PERCENT = 100.0
_MODES = "Strong scaling: all devices together train one batch; weak: each trains a whole one."
_MARKS = (
    "Pale bars are the range of repeated runs; a ring is not distinguishable from the smallest "
    "number of devices, and ? is unknown, or less than the noise. Dotted: the ideal speed-up, and "
    "an efficiency of {:.0f} %."
)


def scaling_panel(
    curves: Sequence[ScalingCurve],
    *,
    modes: Sequence[Mode] | None = None,
    efficiency: float = EFFICIENT,
    has_figures: bool = True,
) -> Panel | None:
    """Return what was measured of a model's scaling; None if nothing was.

    Args:
        curves: What was measured, by backend.
        modes: Which of them are shown; None for those that were measured.
        efficiency: Efficiency that is worth the devices.
        has_figures: Whether it has figures, instead of a table of bars.
    """
    if modes is None:
        measured_in = {mode for curve in curves if curve.batch for mode in measured_modes(curve)}
        modes = [mode for mode in Mode if mode in measured_in] or [Mode.STRONG]
    found = all_rows(curves, modes)
    if not found:
        return None
    lines = conclusions(curves, modes=modes, efficiency=efficiency)
    said = Table(("what the measurements say",), [(line,) for line in lines])
    measured = Table(COLUMNS, [cells(row) for row in found])
    if not has_figures:
        bars = Table(BAR_COLUMNS, bar_cells(found))
        return Panel("scaling", "Scaling", _MODES, tables=[said, measured, bars], is_folded=False)
    measured = Table(COLUMNS, [_in_one_line(each) for each in measured.rows])
    figures = _figures([each for each in curves if each.batch], found, efficiency)
    words = f"{_MODES} {_MARKS.format(_PERCENT * efficiency)}" if figures else _MODES
    return Panel("scaling", "Scaling", words, figures, [said, measured], is_folded=False)


def kept_panel(study: Path, *, has_figures: bool) -> Panel | None:
    """Return what was measured for a study, by its directory; None if nothing was."""
    return scaling_panel(read_curves(study), has_figures=has_figures)


def scaling_page(title: str, head: Sequence[str], panel: Panel) -> str:
    """Return a page of one section, on how a model scales."""
    return page_of(
        ReportContents(
            title,
            head,
            [Section(panel.name, panel.title, lambda: panel)],
            Shown.ALWAYS,
            has_pruned=False,
            is_running=False,
        )
    )


def _in_one_line(row: Sequence[str]) -> tuple[str, ...]:
    """Return cells that a narrow page breaks after commas only; the last one may be a reason."""
    return (*(each.replace(" ", "\u00a0").replace(",\u00a0", ", ") for each in row[:-1]), row[-1])


@dataclass(frozen=True, slots=True)
class _Series:
    """The rows of one line."""

    label: str
    color: str
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measure:
    """What one figure shows of each row.

    Attributes:
        title: Its name and unit.
        value_of: Returns it in this unit; None if it is unknown.
        is_relative: Whether rows are compared with the smallest number of devices.
        reference: What it is compared with.
        top: Where its axis ends at least.
        is_log: Whether its axis is logarithmic.
    """

    title: str
    value_of: Callable[[Row], Range | None]
    is_relative: bool = False
    reference: Reference | None = None
    top: float = 0.0
    is_log: bool = False


def _figures(curves: Sequence[ScalingCurve], found: Sequence[Row], efficiency: float) -> list[Any]:
    """Return the figures; a wide page has three in a row."""
    devices = {each.device for each in curves}
    device = devices.pop() if len(devices) == 1 else "device"
    by_batch = [
        figure for curve in curves
        if (figure := _by_batch(curve, efficiency, has_name=len(curves) > 1)) is not None
    ]  # fmt: skip
    figures = []
    for suffix, group in _groups([row for row in found if row.throughput is not None]):
        measures = list(_measures(group, device, efficiency))
        if len(curves) == 1 and by_batch:
            del measures[-1]  # the figure by batch completes the row instead
        for measure in measures:
            lines = [_line(series, measure) for series in group]
            # Those of the fewest devices alone compare nothing.
            if not any(mark.y for line in lines for mark in line.marks[1:]):
                continue
            figures.append(
                line_figure(
                    measure.title + suffix,
                    text.plural(2, device).partition(" ")[2],
                    lines,
                    reference=measure.reference,
                    top=measure.top,
                    is_log=measure.is_log,
                )
            )
    return figures + by_batch


def _groups(found: Sequence[Row]) -> Iterator[tuple[str, list[_Series]]]:
    """Yield the lines of figures that belong together, and what follows their titles.

    A figure has the modes of one backend, or the backends in one mode: three lines at most.
    """
    backends = list(dict.fromkeys(row.backend for row in found))
    modes = list(dict.fromkeys(row.mode for row in found))
    if len(backends) == 1:
        of_mode = [(str(mode), [row for row in found if row.mode is mode]) for mode in modes]
        yield "", _series(of_mode)
        return
    for mode in modes:
        of_backend = [
            (each, [row for row in found if row.mode is mode and row.backend == each])
            for each in backends
        ]
        yield f", {mode}" if len(modes) > 1 else "", _series(of_backend)


def _series(named: Sequence[tuple[str, Sequence[Row]]]) -> list[_Series]:
    colors = zip(named, itertools.cycle(_COLORS), strict=False)
    return [_Series(label, color, rows) for (label, rows), color in colors if rows]


def _measures(group: Sequence[_Series], device: str, efficiency: float) -> Iterator[_Measure]:
    """Yield what is shown over the number of devices."""
    found = [row for series in group for row in series.rows]
    counts = sorted({row.point.devices for row in found})
    fewest = min(row.baseline for row in found)
    ideal = Reference([(each, each / fewest) for each in counts], "ideal")
    unit, unit_name = (1e9, "GB") if max(map(_memory, found)) >= 1e9 else (1e6, "MB")
    yield _Measure(title="Samples a second", value_of=lambda row: row.throughput, is_relative=True)
    yield _Measure(
        title="Speed-up",
        value_of=lambda row: row.speed_up,
        is_relative=True,
        reference=ideal,
        is_log=True,
    )
    yield _Measure(
        title="Efficiency, %",
        value_of=lambda row: row.efficiency and row.efficiency.times(_PERCENT),
        is_relative=True,
        reference=_enough(counts, efficiency),
        top=_PERCENT,
    )
    yield _Measure(
        title="Communication, % of a step",
        value_of=lambda row: row.communication and row.communication.times(_PERCENT),
        top=_PERCENT,
    )
    yield _Measure(
        title=f"Memory of each {device}, {unit_name}",
        value_of=lambda row: Range.of(_memory(row) / unit) if _memory(row) else None,
    )
    yield _Measure(
        title="Time of a step, ms",
        value_of=lambda row: row.step_seconds and row.step_seconds.times(1000.0),
    )


def _memory(row: Row) -> float:
    return row.device_memory_bytes or 0.0


def _enough(over: Sequence[float], efficiency: float) -> Reference:
    wanted = _PERCENT * efficiency
    return Reference([(each, wanted) for each in over])


def _line(series: _Series, measure: _Measure) -> Line:
    return Line(
        series.label,
        series.color,
        [
            Mark(
                row.point.devices,
                measure.value_of(row),
                measure.is_relative and not row.is_distinct and row.point.devices != row.baseline,
            )
            for row in series.rows
        ],
    )


def _by_batch(curve: ScalingCurve, efficiency: float, *, has_name: bool) -> Any | None:
    """Return the efficiency over the batch per device; None if there are no two batches."""
    efficient = {
        each.devices: (each.batch_per_device, _PERCENT * efficiency)
        for each in efficient_batches(curve, efficiency)
        if each.side is Side.WITHIN
    }
    several = [each for each in curve.devices if each > 1]
    lines = []
    for count, color in zip(several, itertools.cycle(_COLORS_BY_DEVICES), strict=False):
        found = efficiency_by_batch(curve, count)
        marks = [Mark(batch, each.times(_PERCENT)) for batch, each in found.items()]
        if len(marks) > 1:
            name = text.plural(count, curve.device)
            lines.append(Line(name, color, marks, efficient.get(count)))
    if not lines:
        return None
    return line_figure(
        f"Efficiency by batch, %{f', {curve.backend}' if has_name else ''}",
        f"batch on each {curve.device}",
        lines,
        reference=_enough(sorted({mark.x for each in lines for mark in each.marks}), efficiency),
        top=_PERCENT,
    )

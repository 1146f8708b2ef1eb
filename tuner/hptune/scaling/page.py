"""The section on how a model scales: small figures over the number of devices, and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import text
from ..reporting.html import markdown
from ..reporting.html.panel import Figure, Panel, Section, Table
from ..reporting.html.report import ReportContents, page_of
from .curve import Mode, Range, ScalingCurve, read_curves
from .rows import Row, efficiency_by_batch, measured_modes
from .texts import COLUMNS, EFFICIENT, all_rows, cells, conclusions, range_text

_PERCENT = 100.0
_MODES = "Strong scaling: all devices together train one batch; weak: each trains a whole one."
_MARKS = (
    "Pale bars are the range of repeated runs; a ring is not distinguishable from the smallest "
    "number of devices, and where a line ends early, the value is unknown, or less than the noise. "
    "Dotted: the ideal speed-up, and an efficiency of {:.0f} %."
)

_Mark = tuple[float, Range | None, bool]
"""A point of a line: where it is, its value if that is known, and whether it is drawn as a ring."""


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
        has_figures: Whether it has figures besides the tables.
    """
    if modes is None:
        measured_in = {mode for curve in curves if curve.batch for mode in measured_modes(curve)}
        modes = [mode for mode in Mode if mode in measured_in] or [Mode.STRONG]
    found = all_rows(curves, modes)
    if not found:
        return None
    lines = conclusions(curves, modes=modes, efficiency=efficiency)
    tables = [
        Table(("what the measurements say",), [(line,) for line in lines]),
        Table(COLUMNS, [_in_one_line(cells(row)) for row in found]),
    ]
    figures = _figures([each for each in curves if each.batch], found, efficiency) * has_figures
    words = f"{_MODES} {_MARKS.format(_PERCENT * efficiency)}" if figures else _MODES
    return Panel(words, figures, tables, is_folded=False)


def kept_panel(study: Path) -> Panel | None:
    """Return what was measured for a study, by its directory; None if nothing was."""
    return scaling_panel(read_curves(study))


def scaling_report(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float, as_html: bool
) -> str:
    """Return a page on how a model scales, as HTML with figures or as Markdown."""
    panel = scaling_panel(curves, modes=modes, efficiency=efficiency, has_figures=as_html)
    title = "hptune: how the model scales"
    head = [f"{curve.backend}: a batch of {curve.batch} on one {curve.device}" for curve in curves]
    if panel is None:
        return title
    if not as_html:
        return markdown.page(title, head, [("Scaling", panel)])
    sections = [Section("scaling", "Scaling", lambda: panel, is_wide=True)]
    return page_of(ReportContents(title, head, sections))


def _in_one_line(row: Sequence[str]) -> tuple[str, ...]:
    """Return cells that a narrow page breaks after commas only; the last one may be a reason."""
    return (*(each.replace(" ", "\u00a0").replace(",\u00a0", ", ") for each in row[:-1]), row[-1])


def _figures(
    curves: Sequence[ScalingCurve], found: Sequence[Row], efficiency: float
) -> list[Figure]:
    """Return a figure of each measure over the devices, and of the efficiency over the batch."""
    devices = {each.device for each in curves}
    device = devices.pop() if len(devices) == 1 else "device"
    counts = sorted({row.devices for row in found if not row.failure})
    fewest = min(row.speed_up_relative_to for row in found)
    figures = [
        _figure(
            measure.title,
            text.plural(2, device).partition(" ")[2],
            {name: measure.marks(rows) for name, rows in _lines(found).items()},
            reference=[(n, measure.ideal(n / fewest)) for n in counts] if measure.ideal else (),
            is_log=measure.is_log,
        )
        for measure in _measures(found, device, efficiency)
    ]
    for curve in curves:
        by_batch = {
            text.plural(count, curve.device): [
                (batch, each.times(_PERCENT), False)
                for batch, each in efficiency_by_batch(curve, count).items()
            ]
            for count in curve.devices
            if count > 1
        }
        batches = sorted({batch for marks in by_batch.values() for batch, _, _ in marks})
        figures.append(
            _figure(
                f"Efficiency by batch, %{f', {curve.backend}' if len(curves) > 1 else ''}",
                f"batch on each {curve.device}",
                by_batch,
                reference=[(each, _PERCENT * efficiency) for each in batches],
            )
        )
    return [figure for figure in figures if figure is not None]


def _lines(found: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the measured rows of each backend and mode, by what tells them apart."""
    measured = [row for row in found if not row.failure]
    backends, modes = {row.backend for row in measured}, {row.mode for row in measured}
    named: dict[str, list[Row]] = {}
    for row in measured:
        parts = [row.backend] if len(backends) > 1 else []
        parts += [row.mode] if len(modes) > 1 or not parts else []
        named.setdefault(" ".join(parts), []).append(row)
    return named


@dataclass(frozen=True, slots=True)
class _Measure:
    """What one figure shows of each row.

    Attributes:
        title: Its name and unit.
        value: Returns it in this unit; None if it is unknown.
        is_relative: Whether rows are compared with the smallest number of devices.
        ideal: Returns what it is compared with, by the number of devices relative to the smallest.
        is_log: Whether its axis is logarithmic.
    """

    title: str
    value: Callable[[Row], Range | None]
    is_relative: bool = False
    ideal: Callable[[float], float] | None = None
    is_log: bool = False

    def marks(self, rows: Sequence[Row]) -> list[_Mark]:
        """Return the points of a line."""
        return [
            (
                row.devices,
                self.value(row),
                self.is_relative and not row.is_distinguishable and not row.is_base,
            )
            for row in rows
        ]


def _measures(found: Sequence[Row], device: str, efficiency: float) -> list[_Measure]:
    """Return what is shown over the number of devices."""
    most = max(row.device_memory_bytes for row in found)
    unit, unit_name = (1e9, "GB") if most >= 1e9 else (1e6, "MB")

    def memory(row: Row) -> Range | None:
        return Range.of(row.device_memory_bytes / unit) if row.device_memory_bytes else None

    def percent(share: Range | None) -> Range | None:
        return share and share.times(_PERCENT)

    return [
        _Measure("Samples a second", lambda row: row.samples_per_second, is_relative=True),
        _Measure("Speed-up", lambda row: row.speed_up, is_relative=True, ideal=float, is_log=True),
        _Measure(
            "Efficiency, %",
            lambda row: percent(row.efficiency),
            is_relative=True,
            ideal=lambda _: _PERCENT * efficiency,
        ),
        _Measure("Communication, % of a step", lambda row: percent(row.communication)),
        _Measure(f"Memory of each {device}, {unit_name}", memory),
    ]


def _figure(
    title: str,
    x_label: str,
    lines: Mapping[str, Sequence[_Mark]],
    *,
    reference: Sequence[tuple[float, float]] = (),
    is_log: bool = False,
) -> Figure | None:
    """Return a figure of some lines over positive numbers that mostly double.

    None if no line has a value beyond its first: the fewest devices alone compare nothing.

    Args:
        title: What the y axis shows, with the unit.
        x_label: What the x axis shows.
        lines: The points of each line, from left to right, by its name.
        reference: The points of a dotted line to compare the others with.
        is_log: Whether the y axis is logarithmic; it begins at 0 otherwise.
    """
    if not any(y for marks in lines.values() for _, y, _ in marks[1:]):
        return None
    series = [
        {"name": name, "at": [_json_of(mark) for mark in marks]} for name, marks in lines.items()
    ]
    given = {"title": title, "xLabel": x_label, "series": series, "reference": list(reference)}
    return Figure("measured", {**given, "isLog": is_log})


def _json_of(mark: _Mark) -> list[object]:
    """Return a point of a line as its script needs it: where, its value, range, mark and text."""
    x, y, is_ring = mark
    if y is None:
        return [x, None, None, None, is_ring, ""]
    return [x, y.middle, y.low, y.high, is_ring, range_text(y)]

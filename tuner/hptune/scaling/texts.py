"""Scaling curves as text: a table, bars, and what can be concluded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from .. import text
from ..core.resources import size
from ..reporting.table import table
from .curve import Range, ScalingCurve
from .efficient_batch import EfficientBatch, Side, efficient_batch
from .points import Mode
from .rows import Row, rows

EFFICIENT = 0.8
"""Efficiency that is worth the devices: the default of --efficiency."""

COLUMNS = (
    "backend", "mode", "devices", "batch each", "step, ms", "samples/s", "speed-up", "efficiency",
    "communication", "memory",
)  # fmt: skip
BAR_COLUMNS = (
    "backend", "mode", "devices", "samples/s", "efficiency", "communication", "memory each",
)  # fmt: skip
_UNKNOWN = "?"
_BAR_CHARACTERS = 12
_SAME = "not distinguishable from"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table, as texts in the order of `COLUMNS`."""
    point = row.point
    first = (row.backend, str(row.mode), str(point.devices), str(point.batch_per_device))
    if row.step_seconds is None or row.throughput is None or row.speed_up is None:
        nothing = [text.NOTHING] * (len(COLUMNS) - len(first) - 1)
        return (*first, *nothing, row.failure)
    is_base = point.devices == row.baseline
    speed_up = _with_spread(row.speed_up, "{:.2f}".format)
    efficiency = row.efficiency or row.speed_up
    return (
        *first,
        _with_spread(row.step_seconds.times(1000.0), text.amount),
        f"{row.throughput.middle:,.0f}",
        "1" if is_base else speed_up if row.is_distinct else f"{speed_up}, not distinguishable",
        "100 %" if is_base else f"{100 * efficiency.middle:.0f} %",
        _UNKNOWN if row.communication is None else f"{100 * row.communication.middle:.0f} %",
        _memory(row),
    )


def _memory(row: Row) -> str:
    host = size(row.memory_bytes) if row.memory_bytes else _UNKNOWN
    return f"{host}, {size(row.gpu_memory_bytes)} a GPU" if row.gpu_memory_bytes else host


def _with_spread(values: Range, form: Callable[[float], str]) -> str:
    shown = form(values.middle)
    if values.count < 2:
        return shown
    return f"{shown} ({form(values.low)} to {form(values.high)})"


def all_rows(curves: Sequence[ScalingCurve], modes: Sequence[Mode]) -> list[Row]:
    """Return the rows of some curves."""
    return [row for curve in curves if curve.batch for row in rows(curve, modes)]


def scaling_text(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float = EFFICIENT
) -> str:
    """Return a table, bars, and what can be concluded, as text."""
    found = all_rows(curves, modes)
    shown = table([COLUMNS, *map(cells, found)], left=("backend", "mode"))
    names = [name for name in BAR_COLUMNS if name != "devices"]
    bars = [BAR_COLUMNS, *bar_cells(found)]
    if len(bars) > 1:
        shown += ["", *table(bars, left=names)]
    return "\n".join([*shown, "", *conclusions(curves, modes=modes, efficiency=efficiency)])


def bar_cells(found: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the measured rows with bars of characters, as texts in the order of `BAR_COLUMNS`.

    The largest throughput and the largest memory have the longest bars, and so has 100 %.
    """
    measured = [(row, row.throughput) for row in found if row.throughput is not None]
    most = max((each.middle for _, each in measured), default=1.0)
    most_memory = max((row.device_memory_bytes or 0.0 for row, _ in measured), default=1.0)
    found_cells: list[tuple[str, ...]] = []
    for row, throughput in measured:
        memory = row.device_memory_bytes
        bars = (
            _bar(throughput.middle / most),
            _bar(_middle(row.efficiency), rest="░"),
            _bar(_middle(row.communication), rest="░"),
            _bar(memory and memory / most_memory),
        )
        found_cells.append((row.backend, str(row.mode), str(row.point.devices), *bars))
    return found_cells


def _middle(values: Range | None) -> float | None:
    return None if values is None else values.middle


def _bar(share: float | None, *, rest: str = "") -> str:
    """Return a bar, with another character for what is missing to 100 %."""
    if share is None:
        return _UNKNOWN
    length = min(_BAR_CHARACTERS, round(_BAR_CHARACTERS * share))
    return "█" * length + rest * (_BAR_CHARACTERS - length) or "▏"


def conclusions(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float = EFFICIENT
) -> list[str]:
    """Return what the measurements say, in lines; nothing that their spread does not allow."""
    lines = []
    for curve in curves:
        found = rows(curve, modes) if curve.batch else []
        for mode in modes:
            lines += _of_mode(curve, [row for row in found if row.mode is mode])
        lines += _efficient_batch_lines(curve, efficiency)
        lines += (f"{curve.backend}: {note}" for note in curve.notes)
        lines += _failures(curve)
    return list(dict.fromkeys(lines))


def _of_mode(curve: ScalingCurve, found: Sequence[Row]) -> list[str]:
    measured = [row for row in found if row.throughput is not None]
    if len(measured) < 2:
        return []
    best = max(measured, key=lambda row: row.throughput.middle if row.throughput else 0.0)
    head = f"{curve.backend}, {best.mode} scaling"
    if best.point.devices == best.baseline:
        others = ", ".join(str(row.point.devices) for row in measured[1:])
        slower = all(row.is_distinct for row in measured[1:])
        words = "slower than" if slower else _SAME
        return [f"{head}: {others} devices are {words} {best.baseline}"]
    if not best.is_distinct or best.speed_up is None:
        remedy = "more --repeats, or a machine that does nothing else, shows more"
        return [f"{head}: {best.point.devices} devices are {_SAME} {best.baseline}; {remedy}"]
    low, high = best.speed_up.low, best.speed_up.high
    return [
        (
            f"{head}: {best.point.devices} devices train {best.speed_up.middle:.2f} times as many "
            f"samples a second as {best.baseline} ({low:.2f} to {high:.2f})"
        )
    ]


def efficient_batches(curve: ScalingCurve, efficiency: float) -> list[EfficientBatch]:
    """Return the batch from which on each number of devices is efficient, if it is known."""
    several = (devices for devices in curve.devices if devices > 1)
    return [
        found for each in several if (found := efficient_batch(curve, efficiency, each)) is not None
    ]


def _efficient_batch_lines(curve: ScalingCurve, efficiency: float) -> list[str]:
    lines = []
    for found in efficient_batches(curve, efficiency):
        words = {
            Side.WITHIN: f"from about {found.batch_per_device} samples on each on",
            Side.BELOW: f"at all batches measured ({found.batch_per_device} each and more)",
            Side.ABOVE: f"at no batch measured (up to {found.batch_per_device} each)",
        }[found.side]
        reach = f"{found.devices} devices reach {100 * efficiency:.0f} % efficiency"
        lines.append(f"{curve.backend}: {reach} {words}")
    return lines


def _failures(curve: ScalingCurve) -> list[str]:
    return [
        f"{curve.backend}: {text.plural(each.point.devices, curve.device)}, "
        f"{each.point.batch_per_device or curve.batch} samples each: {each.reason}"
        for each in curve.failures
    ]


def scaling_json(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float = EFFICIENT
) -> dict[str, Any]:
    """Return every measurement, what follows, and what can be concluded, as plain values."""
    return {
        "curves": [each.to_json() for each in curves],
        "rows": [_row_json(row) for row in all_rows(curves, modes)],
        "efficient_batches": [
            {"backend": curve.backend, **asdict(each)}
            for curve in curves
            for each in efficient_batches(curve, efficiency)
        ],
        "conclusions": conclusions(curves, modes=modes, efficiency=efficiency),
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "backend": row.backend,
        "mode": str(row.mode),
        "devices": row.point.devices,
        "batch_per_device": row.point.batch_per_device,
        "step_seconds": _range_json(row.step_seconds),
        "samples_per_second": _range_json(row.throughput),
        "speed_up": _range_json(row.speed_up),
        "speed_up_relative_to": row.baseline,
        "is_distinguishable": row.is_distinct,
        "efficiency": _range_json(row.efficiency),
        "communication": _range_json(row.communication),
        "memory_bytes": row.memory_bytes,
        "gpu_memory_bytes": row.gpu_memory_bytes,
        "failure": row.failure,
    }


def _range_json(values: Range | None) -> dict[str, float] | None:
    return None if values is None else asdict(values)

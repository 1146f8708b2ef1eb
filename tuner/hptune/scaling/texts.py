"""Scaling curves as text: a table, and what can be concluded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from .. import text
from ..core.resources import size
from ..reporting.table import table
from .curve import Mode, Range, ScalingCurve
from .rows import Row, Side, efficient_batches, rows

EFFICIENT = 0.8
"""Efficiency that is worth the devices: the default of --efficiency."""

COLUMNS = (
    "backend", "mode", "devices", "batch each", "step, ms", "samples/s", "speed-up", "efficiency",
    "communication", "memory",
)  # fmt: skip
_UNKNOWN = "?"
_SAME = "not distinguishable from"


def cells(row: Row) -> tuple[str, ...]:
    """Return a row of the table, as texts in the order of `COLUMNS`."""
    first = (row.backend, str(row.mode), str(row.devices), str(row.batch_per_device))
    if row.failure:
        nothing = [text.NOTHING] * (len(COLUMNS) - len(first) - 1)
        return (*first, *nothing, row.failure)
    speed_up = "1" if row.is_base else range_text(row.speed_up, "{:.2f}".format)
    different = row.is_base or row.is_distinguishable
    host = size(row.memory_bytes) if row.memory_bytes else _UNKNOWN
    return (
        *first,
        range_text(row.step_seconds and row.step_seconds.times(1000.0)),
        f"{row.samples_per_second.middle:,.0f}" if row.samples_per_second else _UNKNOWN,
        speed_up if different else f"{speed_up}, not distinguishable",
        _percent(row.efficiency),
        _percent(row.communication),
        f"{host}, {size(row.gpu_memory_bytes)} a GPU" if row.gpu_memory_bytes else host,
    )


def _percent(share: Range | None) -> str:
    return _UNKNOWN if share is None else f"{100 * share.middle:.0f} %"


def range_text(values: Range | None, form: Callable[[float], str] = text.amount) -> str:
    """Return the median of several values, and their range if there are several."""
    if values is None:
        return _UNKNOWN
    shown = form(values.middle)
    return shown if values.count < 2 else f"{shown} ({form(values.low)} to {form(values.high)})"


def all_rows(curves: Sequence[ScalingCurve], modes: Sequence[Mode]) -> list[Row]:
    """Return the rows of some curves."""
    return [row for curve in curves for row in rows(curve, modes)]


def scaling_text(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float = EFFICIENT
) -> str:
    """Return a table, and what can be concluded, as text."""
    shown = table([COLUMNS, *map(cells, all_rows(curves, modes))], left=("backend", "mode"))
    return "\n".join([*shown, "", *conclusions(curves, modes=modes, efficiency=efficiency)])


def conclusions(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float = EFFICIENT
) -> list[str]:
    """Return what the measurements say, in lines; nothing that their spread does not allow."""
    lines = []
    for curve in curves:
        for mode in modes:
            lines += _of_mode(rows(curve, [mode]))
        lines += _efficient_batch_lines(curve, efficiency)
        lines += (f"{curve.backend}: {note}" for note in curve.notes)
        lines += _failures(curve)
    return list(dict.fromkeys(lines))


def _of_mode(found: Sequence[Row]) -> list[str]:
    """Return what the rows of one mode say, in a line; nothing if there are no two."""
    rates = {row.devices: row.samples_per_second.middle for row in found if row.samples_per_second}
    if len(rates) < 2:
        return []
    others = [row for row in found if row.devices in rates and not row.is_base]
    best = next(row for row in found if row.devices == max(rates, key=lambda each: rates[each]))
    base = best.speed_up_relative_to
    head = f"{best.backend}, {best.mode} scaling"
    if best.is_base:
        words = "slower than" if all(row.is_distinguishable for row in others) else _SAME
        return [
            f"{head}: {', '.join(str(row.devices) for row in others)} devices are {words} {base}"
        ]
    if not best.is_distinguishable or best.speed_up is None:
        remedy = "more --repeats, or a machine that does nothing else, shows more"
        return [f"{head}: {best.devices} devices are {_SAME} {base}; {remedy}"]
    low, middle, high = best.speed_up.low, best.speed_up.middle, best.speed_up.high
    times = f"train {middle:.2f} times as many samples a second as {base}"
    return [f"{head}: {best.devices} devices {times} ({low:.2f} to {high:.2f})"]


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
        f"{curve.backend}: {text.plural(failure.point.devices, curve.device)}, "
        f"{failure.point.batch_per_device or curve.batch} samples each: {failure.reason}"
        for failure in curve.failures
    ]


def scaling_json(
    curves: Sequence[ScalingCurve], *, modes: Sequence[Mode], efficiency: float = EFFICIENT
) -> dict[str, Any]:
    """Return every measurement, what follows, and what can be concluded, as plain values."""
    return {
        "curves": [each.to_json() for each in curves],
        "rows": [asdict(row) for row in all_rows(curves, modes)],
        "efficient_batches": [
            {"backend": curve.backend, **asdict(batch)}
            for curve in curves
            for batch in efficient_batches(curve, efficiency)
        ],
        "conclusions": conclusions(curves, modes=modes, efficiency=efficiency),
    }

"""Figures and tables from measurements; pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .runner import Measurement

Spread = Sequence[float]
"""One value for each round."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One variant's figures, one value for each round.

    Attributes:
        wall_small: Seconds for the smaller number of trials.
        wall_large: Seconds for the larger number of trials.
        core_seconds: Wall seconds that a further trial costs, times the processes.
        core_seconds_ratio: The same over bare's of the same round.
        start_difference: Seconds to the end of the first epoch, less bare's of the same round.
        cpu_small: CPU seconds for the smaller number of trials.
        cpu_large: CPU seconds for the larger number of trials.
        cpu_seconds: CPU seconds that a further trial costs.
        cpu_seconds_ratio: The same over bare's of the same round.
    """

    wall_small: Spread
    wall_large: Spread
    core_seconds: Spread
    core_seconds_ratio: Spread
    start_difference: Spread
    cpu_small: Spread
    cpu_large: Spread
    cpu_seconds: Spread
    cpu_seconds_ratio: Spread


def figures(
    measurements: Iterable[Measurement], *, counts: tuple[int, int], processes: Mapping[str, int]
) -> dict[str, Figures]:
    """Return the figures of every variant.

    Args:
        measurements: Both numbers of trials of every variant and round, bare's among them.
        counts: The smaller and the larger number of trials.
        processes: How many trials each variant trains at a time.
    """
    small, large = counts
    runs = {(m.variant, m.round, m.trials): m for m in measurements}
    rounds = sorted({number for _, number, _ in runs})

    def core_seconds(name: str, number: int) -> float:
        more = runs[name, number, large].wall_seconds - runs[name, number, small].wall_seconds
        return more / (large - small) * processes[name]

    def cpu_seconds(name: str, number: int) -> float:
        more = runs[name, number, large].cpu_seconds - runs[name, number, small].cpu_seconds
        return more / (large - small)

    def start(name: str, number: int) -> float:
        # The start does not depend on how many trials follow: both runs measure it.
        return statistics.mean(runs[name, number, n].first_epoch_seconds for n in counts)

    return {
        name: Figures(
            wall_small=[runs[name, r, small].wall_seconds for r in rounds],
            wall_large=[runs[name, r, large].wall_seconds for r in rounds],
            core_seconds=[core_seconds(name, r) for r in rounds],
            core_seconds_ratio=[core_seconds(name, r) / core_seconds("bare", r) for r in rounds],
            start_difference=[start(name, r) - start("bare", r) for r in rounds],
            cpu_small=[runs[name, r, small].cpu_seconds for r in rounds],
            cpu_large=[runs[name, r, large].cpu_seconds for r in rounds],
            cpu_seconds=[cpu_seconds(name, r) for r in rounds],
            cpu_seconds_ratio=[cpu_seconds(name, r) / cpu_seconds("bare", r) for r in rounds],
        )
        for name in processes
    }


def table(found: Mapping[str, Figures], *, counts: tuple[int, int]) -> str:
    """Return the figures as Markdown tables: medians, with the smallest and largest value."""
    small, large = counts
    wall = [
        ("variant", *found),
        _row(f"{small} trials, s", [f.wall_small for f in found.values()], digits=1),
        _row(f"{large} trials, s", [f.wall_large for f in found.values()], digits=1),
        _row("a further trial, core-s", [f.core_seconds for f in found.values()], digits=2),
        _row("... over bare's", [f.core_seconds_ratio for f in found.values()], digits=2),
        _row("start, s after bare's", [f.start_difference for f in found.values()], digits=1),
        _row(f"{small} trials, CPU s", [f.cpu_small for f in found.values()], digits=1),
        _row(f"{large} trials, CPU s", [f.cpu_large for f in found.values()], digits=1),
        _row("a further trial, CPU s", [f.cpu_seconds for f in found.values()], digits=2),
        _row("... over bare's", [f.cpu_seconds_ratio for f in found.values()], digits=2),
    ]
    # Measures are gathered by column above and read by line: one line for each variant.
    header, *lines = zip(*wall, strict=True)
    rule = ("---",) + ("---:",) * (len(header) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def _row(title: str, spreads: Iterable[Spread], *, digits: int) -> tuple[str, ...]:
    return (title, *(_cell(spread, digits) for spread in spreads))


def _cell(spread: Spread, digits: int) -> str:
    median = f"{statistics.median(spread):.{digits}f}"
    if len(spread) == 1:
        return median
    return f"{median} ({min(spread):.{digits}f} to {max(spread):.{digits}f})"

"""Figures and tables from measurements; pure functions."""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from .runner import Measurement

Spread = Sequence[float]
"""One value for each round."""

_RESAMPLINGS = 2_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure of all rounds together, with its bootstrap 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Figures:
    """One variant's figures: a value for each round, or an estimate from all of them.

    Attributes:
        wall_small: Seconds for the smaller number of trials.
        wall_large: Seconds for the larger number of trials.
        start_difference: Seconds to the end of the first epoch, less bare's of the same round.
        core_seconds: Wall seconds that a further trial costs, times the processes.
        work: What a further trial costs, in CPU seconds or in thousand millions of instructions.
        work_ratio: The same over bare's.
        study_ratio: Work of the larger number of trials, start and end included, over bare's.
    """

    wall_small: Spread
    wall_large: Spread
    start_difference: Spread
    core_seconds: Estimate
    work: Estimate
    work_ratio: Estimate
    study_ratio: Estimate


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

    def further(name: str, chosen: Sequence[int], what: Callable[[Measurement], float]) -> float:
        # Differences are added up before they are divided: each of them is noisy.
        more = [what(runs[name, r, large]) - what(runs[name, r, small]) for r in chosen]
        return sum(more) / (len(chosen) * (large - small))

    def whole(name: str, chosen: Sequence[int]) -> float:
        return sum(_work(runs[name, r, large]) for r in chosen)

    def start(name: str, number: int) -> float:
        # The start does not depend on how many trials follow: both runs measure it.
        return statistics.mean(runs[name, number, n].first_epoch_seconds for n in counts)

    def of(name: str) -> Figures:
        return Figures(
            wall_small=[runs[name, r, small].wall_seconds for r in rounds],
            wall_large=[runs[name, r, large].wall_seconds for r in rounds],
            start_difference=[start(name, r) - start("bare", r) for r in rounds],
            core_seconds=_estimate(
                rounds, lambda some: further(name, some, _wall) * processes[name]
            ),
            work=_estimate(rounds, lambda some: further(name, some, _work)),
            work_ratio=_estimate(
                rounds, lambda some: further(name, some, _work) / further("bare", some, _work)
            ),
            study_ratio=_estimate(rounds, lambda some: whole(name, some) / whole("bare", some)),
        )

    return {name: of(name) for name in processes}


def _wall(run: Measurement) -> float:
    return run.wall_seconds


def _work(run: Measurement) -> float:
    return run.cpu_seconds if run.instructions is None else run.instructions / 1e9


def _estimate(rounds: Sequence[int], figure: Callable[[Sequence[int]], float]) -> Estimate:
    """Return a figure of all rounds, and its interval: rounds are drawn with replacement."""
    draw = random.Random(0).choices
    found = sorted(figure(draw(rounds, k=len(rounds))) for _ in range(_RESAMPLINGS))
    return Estimate(figure(rounds), found[_RESAMPLINGS // 40], found[-_RESAMPLINGS // 40])


def table(found: Mapping[str, Figures], *, counts: tuple[int, int], unit: str) -> str:
    """Return the figures as a Markdown table.

    Args:
        found: The figures of each variant.
        counts: The two numbers of trials.
        unit: What work is counted in.
    """
    small, large = counts
    all_of = found.values()
    columns = [
        ("variant", *found),
        _row(f"{small} trials, s", [_spread(f.wall_small) for f in all_of]),
        _row(f"{large} trials, s", [_spread(f.wall_large) for f in all_of]),
        _row("start, s after bare's", [_spread(f.start_difference) for f in all_of]),
        _row("a further trial, core-s", [_interval(f.core_seconds) for f in all_of]),
        _row(f"a further trial, {unit}", [_interval(f.work) for f in all_of]),
        _row("... over bare's", [_interval(f.work_ratio) for f in all_of]),
        _row(f"{large} trials, {unit} over bare's", [_interval(f.study_ratio) for f in all_of]),
    ]
    # Measures are gathered by column above and read by line: one line for each variant.
    header, *lines = zip(*columns, strict=True)
    rule = ("---",) + ("---:",) * (len(header) - 1)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def _row(title: str, cells: Iterable[str]) -> tuple[str, ...]:
    return (title, *cells)


def _spread(values: Spread) -> str:
    median = f"{statistics.median(values):.1f}"
    return median if len(values) == 1 else f"{median} ({min(values):.1f} to {max(values):.1f})"


def _interval(found: Estimate) -> str:
    return f"{found.value:.2f} ({found.low:.2f} to {found.high:.2f})"

"""Scores, ranks and intervals from runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHECKPOINTS = (10, 25, 50, 100)
_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Run:
    """Result of one search on one problem.

    Attributes:
        sampler: The search's name.
        version: The version of the code that the result is valid for.
        problem: The problem's name.
        workers: How many trials ran at once.
        seed: The seed.
        scores: The best score so far, after each trial that ended; without the problem's floor.
        failures: Places, in the order of the ends, of the trials that failed.
        cpu_seconds: CPU time of `ask` and `tell` for all trials together.
        costs: With several objectives, the costs of each trial that ended.
    """

    sampler: str
    version: str
    problem: str
    workers: int
    seed: int
    scores: tuple[float, ...]
    failures: tuple[int, ...]
    cpu_seconds: float
    costs: tuple[tuple[float, ...], ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """Identity of the run: a second one with the same key is not needed."""
        return (self.sampler, self.version, self.problem, self.workers, self.seed)


Cube = NDArray[np.float64]  # problems x seeds x trials


def cubes(runs: Iterable[Run], floors: Mapping[str, float]) -> dict[str, Cube]:
    """Return the scores of each sampler, over the problems and seeds that all of them have.

    No score is below the floor of its problem.
    """
    found: dict[str, dict[tuple[str, int], tuple[float, ...]]] = {}
    for run in runs:
        found.setdefault(run.sampler, {})[run.problem, run.seed] = run.scores
    common = set.intersection(*(set(scores) for scores in found.values())) if found else set()
    problems = list(dict.fromkeys(problem for problem, _ in sorted(common)))
    seeds = sorted({seed for _, seed in common})
    full = [s for s in seeds if all((problem, s) in common for problem in problems)]
    if not full:
        return {}
    return {
        sampler: np.array([[np.maximum(scores[p, s], floors[p]) for s in full] for p in problems])
        for sampler, scores in found.items()
    }


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the bootstrap 95 % interval of the mean; problems and seeds are resampled."""
    rng = np.random.default_rng(0)
    problems, seeds = values.shape
    p = rng.integers(problems, size=(_RESAMPLES, problems))
    s = rng.integers(seeds, size=(_RESAMPLES, problems, seeds))
    means = values[p[:, :, None], s].mean(axis=(1, 2))
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def table(
    by_sampler: Mapping[str, Cube], cpu: Mapping[str, float], failed: Mapping[str, Sequence[int]]
) -> str:
    """Return scores, ranks and costs as Markdown."""
    marks = _marks(by_sampler)
    lines = [
        "| search | " + " | ".join(f"score @{mark} | rank @{mark}" for mark in marks) + " | "
        "CPU ms per trial | failed | after the second |",
        "|---" * (2 * len(marks) + 4) + "|",
    ]
    ranks = {mark: _ranks([cube[:, :, mark - 1] for cube in by_sampler.values()]) for mark in marks}
    for place, (name, cube) in enumerate(by_sampler.items()):
        cells = []
        for mark in marks:
            for values in (cube[:, :, mark - 1], ranks[mark][place]):
                low, high = interval(values)
                cells.append(f"{values.mean():.2f} ({low:.2f} to {high:.2f})")
        counts = np.array(failed[name])
        cells += [f"{1000 * cpu[name]:.2f}", f"{counts.mean():.2f}"]
        cells.append(f"{np.maximum(counts - 2, 0).mean():.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _ranks(scores: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the rank of each search for each problem and seed; equal scores share the mean."""
    stacked = np.array(scores)
    better = (stacked[:, None] > stacked[None]).sum(axis=1)
    equal = (stacked[:, None] == stacked[None]).sum(axis=1)
    ranks: NDArray[np.float64] = better + (equal + 1) / 2
    return ranks


def difference_table(by_sampler: Mapping[str, Cube]) -> str:
    """Return the score of the first search minus that of each other one, as Markdown.

    The second row of each says what difference could have been seen: half the interval's width.
    """
    marks = _marks(by_sampler)
    (first, own), *others = by_sampler.items()
    lines = [
        f"| {first} minus | " + " | ".join(f"@{mark}" for mark in marks) + " |",
        "|---" * (len(marks) + 1) + "|",
    ]
    for name, cube in others:
        cells, visible = [], []
        for mark in marks:
            difference = own[:, :, mark - 1] - cube[:, :, mark - 1]
            low, high = interval(difference)
            cells.append(f"{difference.mean():+.2f} ({low:+.2f} to {high:+.2f})")
            visible.append(f"{(high - low) / 2:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("| … could have seen | " + " | ".join(visible) + " |")
    return "\n".join(lines)


def tally_table(by_sampler: Mapping[str, Cube]) -> str:
    """Return on how many problems the first search is better and worse, as Markdown.

    It is if the interval of the difference, whose seeds are resampled, does not contain 0.
    """
    marks = _marks(by_sampler)
    (first, own), *others = by_sampler.items()
    lines = [
        f"| {first} better, level, worse | " + " | ".join(f"@{mark}" for mark in marks) + " |",
        "|---" * (len(marks) + 1) + "|",
    ]
    for name, cube in others:
        cells = []
        for mark in marks:
            bounds = [interval(each[None]) for each in (own - cube)[:, :, mark - 1]]
            better, worse = sum(high < 0 for _, high in bounds), sum(low > 0 for low, _ in bounds)
            cells.append(f"{better}, {len(bounds) - better - worse}, {worse}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _marks(by_sampler: Mapping[str, Cube]) -> list[int]:
    trials = next(iter(by_sampler.values())).shape[2]
    return [mark for mark in CHECKPOINTS if mark <= trials] or [trials]


def problem_table(by_sampler: Mapping[str, Cube], floors: Mapping[str, float]) -> str:
    """Return the mean score of each problem after the last trial, and its floor, as Markdown."""
    lines = [
        "| problem | floor | " + " | ".join(by_sampler) + " |",
        "|---" * (len(by_sampler) + 2) + "|",
    ]
    for place, problem in enumerate(sorted(floors)):
        means = (f"{cube[place, :, -1].mean():.2f}" for cube in by_sampler.values())
        lines.append(f"| {problem} | {floors[problem]:.2f} | " + " | ".join(means) + " |")
    return "\n".join(lines)


def plot(panels: Mapping[int, Mapping[str, Cube]], path: Path) -> None:
    """Draw the mean score over the trials, one panel for each number of workers.

    Raises:
        ImportError: There is no matplotlib.
    """
    import importlib

    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots(
        1, len(panels), figsize=(5.5 * len(panels), 4), squeeze=False, sharey=True
    )
    for axis, (workers, by_sampler) in zip(axes[0], panels.items(), strict=True):
        for name, cube in by_sampler.items():
            axis.plot(np.arange(1, cube.shape[2] + 1), cube.mean(axis=(0, 1)), label=name)
        axis.set_title("one after the other" if workers == 1 else f"{workers} workers")
        axis.set_xlabel("trials")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("mean score (log10 of the regret)")
    axes[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)

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
        scores: The best score so far, after each trial that ended.
        failures: Places, in the order of the ends, of the trials that failed.
        cpu_seconds: CPU time of `ask` and `tell` for all trials together.
    """

    sampler: str
    version: str
    problem: str
    workers: int
    seed: int
    scores: tuple[float, ...]
    failures: tuple[int, ...]
    cpu_seconds: float

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """Identity of the run: a second one with the same key is not needed."""
        return (self.sampler, self.version, self.problem, self.workers, self.seed)


Cube = NDArray[np.float64]  # problems x seeds x trials


def cubes(runs: Iterable[Run]) -> dict[str, Cube]:
    """Return the scores of each sampler, over the problems and seeds that all of them have."""
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
        sampler: np.array([[scores[p, s] for s in full] for p in problems])
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
    last = np.array([cube[:, :, marks[-1] - 1] for cube in by_sampler.values()])
    ranks = (last[:, None] > last[None]).sum(1) + ((last[:, None] == last[None]).sum(1) + 1) / 2
    lines = [
        "| search | " + " | ".join(f"score @{mark}" for mark in marks) + f" | rank @{marks[-1]} | "
        "CPU ms per trial | failed | after the second |",
        "|---" * (len(marks) + 5) + "|",
    ]
    for place, (name, cube) in enumerate(by_sampler.items()):
        cells = []
        for mark in marks:
            low, high = interval(cube[:, :, mark - 1])
            cells.append(f"{cube[:, :, mark - 1].mean():.2f} ({low:.2f} to {high:.2f})")
        cells += [f"{ranks[place].mean():.2f}", f"{1000 * cpu[name]:.2f}"]
        counts = np.array(failed[name])
        cells += [f"{counts.mean():.2f}", f"{np.maximum(counts - 2, 0).mean():.2f}"]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def difference_table(by_sampler: Mapping[str, Cube]) -> str:
    """Return the score of the first search minus that of each other one, as Markdown."""
    marks = _marks(by_sampler)
    (first, own), *others = by_sampler.items()
    lines = [
        f"| {first} minus | " + " | ".join(f"@{mark}" for mark in marks) + " |",
        "|---" * (len(marks) + 1) + "|",
    ]
    for name, cube in others:
        cells = []
        for mark in marks:
            difference = own[:, :, mark - 1] - cube[:, :, mark - 1]
            low, high = interval(difference)
            cells.append(f"{difference.mean():+.2f} ({low:+.2f} to {high:+.2f})")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _marks(by_sampler: Mapping[str, Cube]) -> list[int]:
    trials = next(iter(by_sampler.values())).shape[2]
    return [mark for mark in CHECKPOINTS if mark <= trials] or [trials]


def problem_table(by_sampler: Mapping[str, Cube], problems: Sequence[str]) -> str:
    """Return the mean score of each problem after the last trial, as Markdown."""
    lines = [
        "| problem | " + " | ".join(by_sampler) + " |",
        "|---" * (len(by_sampler) + 1) + "|",
    ]
    for place, problem in enumerate(problems):
        means = (f"{cube[place, :, -1].mean():.2f}" for cube in by_sampler.values())
        lines.append(f"| {problem} | " + " | ".join(means) + " |")
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

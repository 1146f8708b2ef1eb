"""Several objectives: a Gaussian process for each, and the expected hypervolume improvement."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads its parts when they are used: a study begins without them

from ..common.encoding import Floats
from ..common.observations import Observations, Tier
from ..common.pareto import pareto_losses
from .acquisition import HALF_LOG_2PI, MIN_IMPROVEMENT, log1mexp, log_expected_improvement
from .gaussian_process import GaussianProcess
from .kernel_features import KernelFeatures
from .surrogate import SurrogateFitter, comparable, subset

_BEYOND_WORST = 0.1
"""Distance of the reference point from the worst value, as a part of the range of all values."""

Point = tuple[float, ...]
Box = tuple[Point, Point]
"""The lower and the upper corner."""


@dataclass(frozen=True, slots=True, eq=False)
class FrontSurrogate:
    """Models of all objectives.

    Attributes:
        processes: The Gaussian process of each objective; lower values are better.
        means: The values that they predict for the finished and running configurations
            (n x objectives).
        reference: The values beyond which nothing is gained.
        promising: Rows near which the search draws candidates: of the measured configurations
            that no other one dominates.
    """

    processes: tuple[GaussianProcess, ...]
    means: Floats
    reference: Floats
    promising: Floats

    def acquisition(self) -> HypervolumeImprovement:
        """Return the acquisition function."""
        front = self.means[pareto_losses(self.means) < 1.0]
        return HypervolumeImprovement(self.processes, front - MIN_IMPROVEMENT, self.reference)

    def with_fantasy(self, features: Floats) -> FrontSurrogate:
        """Return the surrogate while a configuration with these features runs."""
        return replace(
            self,
            processes=tuple(process.with_fantasy(features) for process in self.processes),
            means=np.concatenate([self.means, _means(self.processes, features[None])]),
        )


def fit_front(
    fitter: SurrogateFitter, kernel_features: KernelFeatures, seen: Sequence[Observations]
) -> FrontSurrogate:
    """Return the models of all objectives.

    The reference point lies a little beyond the worst values. With one nearer to the front,
    searches found one part of it and stayed there.

    Args:
        fitter: Fits the process of each objective.
        kernel_features: Features of the space's rows.
        seen: The observations of each objective.
    """
    processes = tuple(fitter.fit(each).process for each in seen)
    rows, tiers = seen[0].rows, seen[0].tiers
    is_measured = tiers < Tier.FAILED
    losses = np.column_stack([comparable(each) for each in seen])
    measured = rows[is_measured][subset(pareto_losses(losses), fitter.max_modelled)]
    means = _means(processes, kernel_features.of_observed(measured))
    running = kernel_features.of_observed(rows[tiers == Tier.UNFINISHED])
    return FrontSurrogate(
        processes,
        np.concatenate([means, _means(processes, running)]),
        means.max(axis=0) + _BEYOND_WORST * np.ptp(means, axis=0),
        measured[pareto_losses(means) < 1.0],
    )


def _means(processes: Sequence[GaussianProcess], features: Floats) -> Floats:
    return np.column_stack([process.predict(features)[0] for process in processes])


class HypervolumeImprovement:
    """The logarithm of the expected growth of the hypervolume that the front dominates.

    The objectives are independent normal variables, so the expected volume that a result
    dominates of a box is a product, and it is added over boxes that cover what the front does not
    dominate (Emmerich, Deutz and Klinkenberg 2011, "Hypervolume-based expected improvement:
    monotonicity properties and exact computation"). The sum is of logarithms, as in
    `log_expected_improvement`, and has an exact gradient.

    Args:
        processes: The model of each objective; lower is better.
        front: Points that no other one dominates (n x objectives).
        reference: The upper corner of all that counts.
    """

    caution = 5.0
    """Lower than with one objective: all along the front something is gained, and with 60 the
    search stays near what succeeded first."""

    def __init__(
        self, processes: Sequence[GaussianProcess], front: Floats, reference: Floats
    ) -> None:
        lows, highs = zip(*boxes(front.tolist(), reference.tolist()), strict=True)
        self._processes = processes
        # Boxes share their sides, so that the improvement on each is computed once.
        self._sides = []
        for low, high in zip(np.array(lows).T, np.array(highs).T, strict=True):
            values, which = np.unique(np.concatenate([low, high]), return_inverse=True)
            self._sides.append((values, which[: len(low)], which[len(low) :]))

    def values(self, features: Floats) -> Floats:
        """Return the value at each point."""
        logs = sum(
            self._log_lengths(objective, *process.predict(features))
            for objective, process in enumerate(self._processes)
        )
        found: Floats = scipy.special.logsumexp(logs, axis=1)
        return found

    def values_with_gradients(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the value at each point, and its derivatives by each feature."""
        predicted = [process.predict_with_gradients(features) for process in self._processes]
        lengths = [self._log_lengths(k, mean, dev) for k, (mean, dev, _, _) in enumerate(predicted)]
        volumes = np.asarray(sum(lengths))
        found = scipy.special.logsumexp(volumes, axis=1)
        gradients = np.zeros_like(features)
        for (mean, deviation, mean_gradients, deviation_gradients), logs, (sides, low, high) in zip(
            predicted, lengths, self._sides, strict=True
        ):
            z = (sides - mean[:, None]) / deviation[:, None]
            below, density = scipy.special.log_ndtr(z), -0.5 * z * z - HALF_LOG_2PI
            # Not divided by the length, which may be zero but for rounding.
            rest = volumes - logs - found[:, None]
            for slopes, sign, by in (
                (below, -1.0, mean_gradients),
                (density, 1.0, deviation_gradients),
            ):
                each = np.exp(slopes[:, high] + rest) - np.exp(slopes[:, low] + rest)
                gradients += sign * each.sum(axis=1)[:, None] * by
        return found, gradients

    def _log_lengths(self, objective: int, mean: Floats, deviation: Floats) -> Floats:
        """Return the logarithms of the expected lengths (points x boxes) along an objective."""
        sides, low, high = self._sides[objective]
        # The first side is infinitely low.
        logs = np.full((len(mean), len(sides)), -math.inf)
        logs[:, 1:] = log_expected_improvement(mean[:, None], deviation[:, None], sides[1:])
        upper = logs[:, high]
        found: Floats = upper + log1mexp(logs[:, low] - upper)
        return found


def boxes(front: Sequence[Sequence[float]], reference: Sequence[float]) -> list[Box]:
    """Return disjoint boxes that cover what no point of the front dominates, below the reference.

    Lower is better. Between two successive values of the last objective, the boxes are those of
    the other objectives; equal ones of successive layers are joined. So there is one more box than
    points with two objectives, and about twice as many as points with three.

    >>> boxes([(0.0, 2.0), (1.0, 1.0)], (3.0, 3.0))
    [((-inf, -inf), (3.0, 1.0)), ((-inf, 1.0), (1.0, 2.0)), ((-inf, 2.0), (0.0, 3.0))]
    """
    if len(reference) == 1:
        return [((-math.inf,), (min([reference[0], *(first for (first,) in front)]),))]
    found: list[Box] = []
    started: dict[Box, float] = {}
    for begin, layer in _layers(front, reference):
        for low, high in [box for box in started if box not in layer]:
            found.append(((*low, started.pop((low, high))), (*high, begin)))
        for box in layer:
            started.setdefault(box, begin)
    found += [((*low, begin), (*high, reference[-1])) for (low, high), begin in started.items()]
    return found


def _layers(
    front: Sequence[Sequence[float]], reference: Sequence[float]
) -> Iterator[tuple[float, dict[Box, None]]]:
    """Yield where each layer along the last objective begins, and its boxes of the other ones."""
    inside = sorted((p for p in front if p[-1] < reference[-1]), key=lambda point: point[-1])
    below: list[Sequence[float]] = []
    begin = -math.inf
    for point in inside:
        if point[-1] > begin:
            yield begin, dict.fromkeys(boxes(below, reference[:-1]))
            begin = point[-1]
        # What this point dominates in the other objectives changes no layer from here on.
        below = [
            each for each in below if any(a < b for a, b in zip(each, point[:-1], strict=True))
        ]
        below.append(point[:-1])
    yield begin, dict.fromkeys(boxes(below, reference[:-1]))

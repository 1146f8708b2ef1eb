"""Climbing from many points at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..common.encoding import Booleans, Floats

Slope = Callable[[Floats], tuple[Floats, Floats]]

_FIRST_STEP = 0.05
_LONGEST_STEP = 0.25
_ENOUGH = 1e-4
_SHORTER = 0.3
_LOST = 0.05
_TINY = 1e-12


def ascend(function: Slope, points: Floats, *, steps: int) -> tuple[Floats, Floats]:
    """Climb within the unit cube, from each point by itself, all of them in step.

    A projected BFGS method (Nocedal and Wright 2006, "Numerical optimization", eq. 6.17) with a
    matrix for each point. The function is called once for each step: a point whose step did not
    help stays, and tries a shorter one next time, while the others go on.

    Args:
        function: For the points in the rows of a matrix, the values and the gradients.
        points: Where to start.
        steps: How often to call the function, the first time for the start.

    Returns:
        Where each climb ended, and the values there, which are never less than at the start.
    """
    count, dimensions = points.shape
    values, slopes = function(points)
    identity = np.broadcast_to(np.eye(dimensions), (count, dimensions, dimensions))
    hills = np.zeros_like(identity)
    fresh = np.ones(count, dtype=np.bool_)
    length = np.ones(count)
    for _ in range(steps - 1):
        stuck = ((points <= 0.0) & (slopes < 0.0)) | ((points >= 1.0) & (slopes > 0.0))
        free = np.where(stuck, 0.0, slopes)
        ways = np.where(stuck, 0.0, np.einsum("ijk,ik->ij", hills, free))
        uphill = np.einsum("ij,ij->i", ways, free)
        steepest = fresh | ~(uphill > 0.0)
        largest = np.maximum(np.abs(free).max(axis=1, initial=0.0), _TINY)[:, None]
        ways = np.where(steepest[:, None], free * (_FIRST_STEP / largest), ways)
        ways *= length[:, None]
        reach = np.abs(ways).max(axis=1, initial=0.0)[:, None]
        ways *= np.minimum(1.0, _LONGEST_STEP / np.maximum(reach, _TINY))
        tried = np.clip(points + ways, 0.0, 1.0)
        moved = tried - points
        found, found_slopes = function(tried)
        expected = np.einsum("ij,ij->i", moved, slopes)
        better = (found >= values + _ENOUGH * expected) & (expected > 0.0)
        hills, fresh = _learned(
            hills, moved, slopes - found_slopes, better=better, steepest=steepest, fresh=fresh
        )
        length = np.where(better, 1.0, length * _SHORTER)
        # What was learned leads nowhere, often because of an edge that was met since.
        lost = ~fresh & (length < _LOST)
        fresh, length = fresh | lost, np.where(lost, 1.0, length)
        points = np.where(better[:, None], tried, points)
        slopes = np.where(better[:, None], found_slopes, slopes)
        values = np.where(better, found, values)
    return points, values


def _learned(
    hills: Floats,
    moved: Floats,
    turned: Floats,
    *,
    better: Booleans,
    steepest: Booleans,
    fresh: Booleans,
) -> tuple[Floats, Booleans]:
    """The inverses of the curvatures after a step, and which of them know nothing yet."""
    curve = np.einsum("ij,ij->i", moved, turned)
    bend = np.einsum("ij,ij->i", turned, turned)
    learns = better & (curve > _TINY)
    safe = np.where(learns, curve, 1.0)
    identity = np.eye(hills.shape[1])
    guess = (safe / np.where(learns, np.maximum(bend, _TINY), 1.0))[:, None, None] * identity
    old = np.where((steepest & learns)[:, None, None], guess, hills)
    left = identity - moved[:, :, None] * turned[:, None, :] / safe[:, None, None]
    new = left @ old @ left.transpose(0, 2, 1)
    new += moved[:, :, None] * moved[:, None, :] / safe[:, None, None]
    return np.where(learns[:, None, None], new, hills), fresh & ~learns

"""Vectorised local maximisation from many starting points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..common.encoding import Booleans, Floats

Objective = Callable[[Floats], tuple[Floats, Floats]]
"""Returns the values and gradients for the points in the rows of a matrix."""

_FIRST_STEP = 0.05
"""Largest coordinate of a steepest-ascent step, as a part of the range."""
_MAX_STEP = 0.25
_ARMIJO = 1e-4
_SHRINKAGE = 0.3
_RESET_LENGTH = 0.05
_TINY = 1e-12


def maximize(function: Objective, points: Floats, *, steps: int) -> tuple[Floats, Floats]:
    """Maximise a function in the unit cube from each starting point independently.

    A projected BFGS method (Nocedal and Wright 2006, "Numerical optimization", eq. 6.17) with an
    inverse Hessian for each point. Each step evaluates the function once for all points. A point
    whose step does not increase the value stays and tries a shorter step next.

    Args:
        function: The function and its gradient.
        points: The starting points (n x dimensions).
        steps: Number of evaluations, including the first at the start.

    Returns:
        The final points and their values, which are not below those at the start.
    """
    count, dimensions = points.shape
    values, gradients = function(points)
    identity = np.broadcast_to(np.eye(dimensions), (count, dimensions, dimensions))
    inverse_hessians = np.zeros_like(identity)
    is_reset = np.ones(count, dtype=np.bool_)
    length = np.ones(count)
    for _ in range(steps - 1):
        at_bound = ((points <= 0.0) & (gradients < 0.0)) | ((points >= 1.0) & (gradients > 0.0))
        free = np.where(at_bound, 0.0, gradients)
        directions = np.where(at_bound, 0.0, np.einsum("ijk,ik->ij", inverse_hessians, free))
        slope = np.einsum("ij,ij->i", directions, free)
        steepest = is_reset | ~(slope > 0.0)
        largest = np.maximum(np.abs(free).max(axis=1, initial=0.0), _TINY)[:, None]
        directions = np.where(steepest[:, None], free * (_FIRST_STEP / largest), directions)
        directions *= length[:, None]
        reach = np.abs(directions).max(axis=1, initial=0.0)[:, None]
        directions *= np.minimum(1.0, _MAX_STEP / np.maximum(reach, _TINY))
        tried = np.clip(points + directions, 0.0, 1.0)
        moved = tried - points
        found, found_gradients = function(tried)
        expected = np.einsum("ij,ij->i", moved, gradients)
        better = (found >= values + _ARMIJO * expected) & (expected > 0.0)
        inverse_hessians, is_reset = _bfgs_update(
            inverse_hessians,
            moved,
            gradients - found_gradients,
            better=better,
            steepest=steepest,
            is_reset=is_reset,
        )
        length = np.where(better, 1.0, length * _SHRINKAGE)
        # The Hessian is no longer valid, often because a bound became active.
        failed = ~is_reset & (length < _RESET_LENGTH)
        is_reset, length = is_reset | failed, np.where(failed, 1.0, length)
        points = np.where(better[:, None], tried, points)
        gradients = np.where(better[:, None], found_gradients, gradients)
        values = np.where(better, found, values)
    return points, values


def _bfgs_update(
    inverse_hessians: Floats,
    moved: Floats,
    gradient_drop: Floats,
    *,
    better: Booleans,
    steepest: Booleans,
    is_reset: Booleans,
) -> tuple[Floats, Booleans]:
    """Return the inverse Hessians after a step, and which of them are still in the reset state."""
    curvature = np.einsum("ij,ij->i", moved, gradient_drop)
    squared_drop = np.einsum("ij,ij->i", gradient_drop, gradient_drop)
    updates = better & (curvature > _TINY)
    safe = np.where(updates, curvature, 1.0)
    identity = np.eye(inverse_hessians.shape[1])
    scaled = (safe / np.where(updates, np.maximum(squared_drop, _TINY), 1.0))[
        :, None, None
    ] * identity
    old = np.where((steepest & updates)[:, None, None], scaled, inverse_hessians)
    left = identity - moved[:, :, None] * gradient_drop[:, None, :] / safe[:, None, None]
    new = left @ old @ left.transpose(0, 2, 1)
    new += moved[:, :, None] * moved[:, None, :] / safe[:, None, None]
    return np.where(updates[:, None, None], new, inverse_hessians), is_reset & ~updates

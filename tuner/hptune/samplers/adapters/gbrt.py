"""Gradient-boosted regression trees (GBRT) as a model for scikit-optimize.

It replaces scikit-optimize 0.10.2's `GradientBoostingQuantileRegressor`, which fails with
scikit-learn 1.6 and newer (not a regressor) and NumPy 2.4 (a removed function).
"""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor

from ..common.encoding import Floats

_QUANTILES = (0.16, 0.5, 0.84)
"""Quantiles of a normal distribution at its mean and one standard deviation below and above."""


class QuantileGBRT(RegressorMixin, BaseEstimator):
    """GBRT for three quantiles: the median, and two for the standard deviation.

    Args:
        random_state: Seed of all three models.
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Floats, y: Floats) -> Self:
        """Fit the models to points (n x columns) and their values (n)."""
        self.models_ = [
            GradientBoostingRegressor(
                loss="quantile", alpha=quantile, n_estimators=30, random_state=self.random_state
            ).fit(X, y)
            for quantile in _QUANTILES
        ]
        return self

    def predict(
        self,
        X: Floats,
        return_std: bool = False,
    ) -> Floats | tuple[Floats, Floats]:
        """Return the medians at these points; with `return_std`, also the standard deviations."""
        low, median, high = (np.asarray(model.predict(X)) for model in self.models_)
        return (median, (high - low) / 2.0) if return_std else median

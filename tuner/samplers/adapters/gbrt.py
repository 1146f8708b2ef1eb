"""A model with gradient boosting for scikit-optimize, whose own one is broken.

scikit-optimize 0.10.2's `GradientBoostingQuantileRegressor` is no regressor for scikit-learn 1.6
and newer, and needs a function that NumPy 2.4 no longer has. This one is what it was.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import GradientBoostingRegressor

from ..common.encoding import Floats

_QUANTILES = (0.16, 0.5, 0.84)
"""Those of the normal distribution at its mean, and a standard deviation to both sides of it."""


class QuantileGBRT(RegressorMixin, BaseEstimator):
    """Gradient boosting of three quantiles: the median, and two that tell the spread.

    Args:
        random_state: Seeds all three.
    """

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Floats, y: Floats) -> Self:
        """Fit to these points (n x columns) and their values (n)."""
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
        """The medians at these points; with `return_std`, the standard deviations as well."""
        low, median, high = (np.asarray(model.predict(X)) for model in self.models_)
        return (median, (high - low) / 2.0) if return_std else median

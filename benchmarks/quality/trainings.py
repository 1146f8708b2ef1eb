"""Short trainings of scikit-learn on its digits, with an error and sizes as costs."""

from __future__ import annotations

import functools
from typing import Any

from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Params

from .several import Costs, Problem


@functools.cache
def _digits() -> tuple[Any, ...]:
    """Return images to train with and to test with, then their labels."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    halves = train_test_split(images / 16, labels, test_size=0.5, random_state=0, stratify=labels)
    return tuple(halves)


def _error(model: Any) -> float:
    """Train the model, and return its share of wrong answers."""
    images, others, labels, answers = _digits()
    model.fit(images, labels)
    return 1.0 - float(model.score(others, answers))


def _support_vectors(params: Params) -> Costs:
    """The error, and the multiplications of a prediction."""
    from sklearn.decomposition import PCA
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC

    given: dict[str, Any] = dict(params)
    components = given.pop("components")
    model = make_pipeline(PCA(components, random_state=0), SVC(**given, random_state=0))
    error = _error(model)
    return error, float(components * (64 + model[1].n_support_.sum()))


def _forest(params: Params) -> Costs:
    """The error, the nodes, and the comparisons of a prediction."""
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(**dict(params), random_state=0)
    error = _error(model)
    paths = model.decision_path(_digits()[1])[0]
    nodes = sum(tree.tree_.node_count for tree in model.estimators_)
    return error, float(nodes), float(paths.sum() / paths.shape[0])


def _log(name: str, low: float, high: float, *conditions: Condition) -> FloatParameter:
    return FloatParameter(name, low, high, scale=Scale.LOG, conditions=conditions)


def _count(name: str, low: int, high: int) -> IntParameter:
    return IntParameter(name, low, high, scale=Scale.LOG)


_CURVED = Condition("kernel", ("rbf", "poly"))
TRAININGS = {
    "digits-svm": Problem(
        SearchSpace(
            (
                IntParameter("components", 2, 64),
                _log("C", 1e-2, 1e3),
                ChoiceParameter("kernel", ("rbf", "linear", "poly")),
                _log("gamma", 1e-3, 10.0, _CURVED),
                IntParameter("degree", 2, 5, conditions=(Condition("kernel", ("poly",)),)),
            )
        ),
        _support_vectors,
        ratios=(1,),
    ),
    "digits-forest": Problem(
        SearchSpace(
            (
                _count("n_estimators", 1, 64),
                IntParameter("max_depth", 2, 16),
                FloatParameter("max_features", 0.02, 1.0),
                _count("min_samples_leaf", 1, 20),
                ChoiceParameter("criterion", ("gini", "entropy")),
                BooleanParameter("bootstrap"),
            )
        ),
        _forest,
        ratios=(1, 2),
    ),
}

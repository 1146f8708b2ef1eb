from __future__ import annotations

import math
import statistics
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune.core.space.parameters.priors import EVEN_SHARE, Prior
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.space.user_priors import PriorSpec, with_priors
from hptune.core.trial import ParamValue
from hptune.errors import UsageError

SPACE = SearchSpace(
    (
        FloatParameter("lr", 1e-5, 1.0, scale=Scale.LOG),
        FloatParameter("mirrored", 0.9, 0.999, scale=Scale.REVERSE_LOG),
        FloatParameter("drop", 0.0, 0.9, step=0.1),
        IntParameter("units", 16, 512, step=16),
        IntParameter("wide", 1, 100_000, scale=Scale.LOG),
        IntParameter("batch", 8, 256, step=2, scale=Scale.LOG),
        ChoiceParameter("act", ("relu", "tanh", "gelu")),
        ChoiceParameter("scale", (0.5, 1.0, 2.0)),
        BooleanParameter("flag"),
        FixedParameter("epochs", 3),
    )
)
PRIORS: dict[str, PriorSpec] = {
    "lr": "lognormal(0.001, 0.5)",
    "mirrored": "normal(0.99, 0.005)",
    "drop": "normal(0.3, 0.1)",
    "units": "normal(128, 32)",
    "wide": "lognormal(300, 0.3)",
    "batch": "lognormal(32, 0.4)",
    "act": "{relu: 6, tanh:1}",
    "scale": {"0.5": 0.0, "2": 8},
    "flag": "{true:9}",
}
WITH_PRIORS = with_priors(SPACE, PRIORS)


def drawn(name: str, count: int = 2_000) -> list[ParamValue]:
    (parameter,) = (each for each in WITH_PRIORS if each.name == name)
    return [parameter.from_unit(float(u)) for u in np.random.default_rng(0).random(count)]


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("lr", 0.0005, 0.002),
        ("mirrored", 0.98, 0.9985),
        ("drop", 0.1, 0.5),
        ("units", 64, 192),
        ("wide", 150, 600),
        ("batch", 16, 64),
    ],
)
def test_most_draws_fall_where_the_prior_says_and_some_anywhere(
    name: str, low: float, high: float
) -> None:
    values = [float(str(value)) for value in drawn(name)]
    within = sum(low <= value <= high for value in values) / len(values)
    (parameter,) = (each for each in SPACE if each.name == name)
    kind = int if isinstance(parameter, IntParameter) else float
    evenly = abs(parameter.to_unit(kind(high)) - parameter.to_unit(kind(low)))
    assert 0.68 * (1 - EVEN_SHARE) < within < 1 - EVEN_SHARE * (1 - evenly) * 0.5
    assert within > evenly


def test_choices_come_as_they_are_weighed() -> None:
    counts = Counter(drawn("act"))
    assert counts["relu"] > 2.5 * counts["tanh"]
    assert counts["tanh"] == pytest.approx(counts["gelu"], rel=0.3)
    counts = Counter(drawn("scale"))
    assert counts[2.0] > 2 * counts[1.0] > 2 * counts[0.5] > 0
    assert sum(value is True for value in drawn("flag")) > 1_500


@given(
    st.lists(st.floats(0.0, 1e6), min_size=1, max_size=50).filter(lambda w: sum(w) > 1e-6),
    st.floats(0.0, 1.0),
)
def test_the_ruler_is_bent_and_straightened_again(weights: list[float], place: float) -> None:
    ruler = Prior(tuple(weights))
    assert math.isclose(ruler.quantile(ruler.cdf(place)), place, abs_tol=1e-9)
    assert 0.0 <= ruler.cdf(place) <= 1.0
    assert ruler.cdf(0.0) == 0.0
    assert ruler.cdf(1.0) == 1.0


@given(st.floats(0.0, 1.0))
def test_values_are_found_again(u: float) -> None:
    for parameter in WITH_PRIORS:
        value = parameter.from_unit(u)
        assert parameter.explain(value) == ""
        again = parameter.from_unit(parameter.to_unit(value))
        if isinstance(value, float) and not isinstance(again, str | None):
            assert math.isclose(value, again, rel_tol=1e-9)
        else:
            assert value == again


def test_the_space_is_otherwise_the_same() -> None:
    assert WITH_PRIORS.to_json() == SPACE.to_json()
    assert WITH_PRIORS.defaults() == SPACE.defaults()
    params = SPACE.sample(np.random.default_rng(0))
    assert WITH_PRIORS.contains(params)
    assert WITH_PRIORS.key(params) == SPACE.key(params)


def test_a_symmetric_prior_has_its_mean_in_the_middle() -> None:
    (units,) = (each for each in WITH_PRIORS if each.name == "units")
    assert statistics.median(float(str(v)) for v in drawn("units")) == pytest.approx(128, abs=32)
    assert units.to_unit(128) == pytest.approx(0.45, abs=0.08)


@pytest.mark.parametrize(
    ("name", "prior", "words"),
    [
        ("rate", "normal(1,1)", "rate is unknown; the space has lr"),
        ("unit", "normal(1,1)", "Did you mean 'units'"),
        ("lr", "gaussian(1,1)", r"'gaussian\(1,1\)'; allowed are normal\(MEAN,SD\)"),
        ("lr", "lognorm(1,1)", "Did you mean lognormal"),
        ("lr", "0.001", "allowed are normal"),
        ("lr", "normal(1)", "normal takes two numbers"),
        ("lr", "normal(1,x)", "normal takes two numbers"),
        ("lr", "normal(1,0)", "the deviation must be above 0"),
        ("lr", "lognormal(-1,1)", "the median and the deviation must be above 0"),
        ("lr", "normal(50,1)", r"has almost no weight within Float 1e-05\.\.1\.0"),
        ("lr", {"a": 1}, "the last one for choices"),
        ("act", "normal(1,1)", "for choices give weights"),
        ("act", "{relu:3,silu:1}", "has 'silu'; its choices are 'relu', 'tanh', 'gelu'"),
        ("act", "{relu:-1}", "the weight '-1'; give a number of 0 or more"),
        ("act", "{relu}", "the weight 'relu'"),
        ("act", "{relu:0,tanh:0,gelu:0}", "gives every choice the weight 0"),
        ("epochs", "normal(1,1)", "epochs, which is fixed"),
    ],
)
def test_an_invalid_prior_is_refused(name: str, prior: PriorSpec, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        with_priors(SPACE, {name: prior})

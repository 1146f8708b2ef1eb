"""What priors do to a search: they speed it up if they are right, and are overruled if not."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pytest

from hptune.core.sampler import Sampler
from hptune.core.space.space import SearchSpace
from hptune.core.space.user_priors import PriorSpec, with_priors
from hptune.core.trial import Direction
from hptune.samplers.common.encoding import Encoding
from hptune.samplers.registry import SamplerOptions, make_sampler
from hptune.samplers.tpe.parzen_estimator import ParzenEstimator, Smoothing
from hptune.samplers.tpe.sampler import TpeSampler
from hptune.testing.samplers import SamplerSuite
from hptune.testing.spaces import ALL_TYPES, BRANIN
from searches import MOST_SPACES, branin_regret

RIGHT = {"x": "normal(3.1, 1)", "y": "normal(2.3, 1)"}
WRONG = {"x": "normal(-4, 1)", "y": "normal(1, 1)"}
PRIORS: dict[str, PriorSpec] = {
    "activation": "{gelu:4}",
    "layers": "normal(3,1)",
    "batch": "lognormal(32,0.5)",
    "warmup": "lognormal(100,0.5)",
    "rate": "lognormal(0.001,1)",
    "scale": "{1:2}",
}


class TestTpeWithPriors(SamplerSuite):
    slow_spaces = MOST_SPACES
    branin_tolerance = -0.6

    def make(self, space: SearchSpace, seed: int) -> Sampler:
        known = {parameter.name for parameter in space}
        for name, prior in PRIORS.items() if known >= set(PRIORS) else ():
            space = with_priors(space, {name: prior})
        return TpeSampler(space, seed, directions=(Direction.MIN,))


def options(seed: int, priors: Mapping[str, PriorSpec]) -> SamplerOptions:
    return SamplerOptions(space=BRANIN, seed=seed, directions=(Direction.MIN,), priors=priors)


def mean_regret(name: str, trials: int, priors: Mapping[str, PriorSpec]) -> float:
    return statistics.mean(
        branin_regret(make_sampler(name, options(seed, priors)), trials) for seed in range(8)
    )


@pytest.mark.parametrize("name", ["random", "tpe"])
def test_a_right_prior_helps(name: str) -> None:
    assert mean_regret(name, 15, RIGHT) < mean_regret(name, 15, {}) - 0.5


def test_a_wrong_prior_is_overruled() -> None:
    assert mean_regret("tpe", 80, WRONG) < mean_regret("random", 80, {})


def test_the_densities_are_the_priors_where_nothing_is_known() -> None:
    encoding = Encoding(with_priors(ALL_TYPES, PRIORS))
    nothing = np.empty((0, len(encoding)))
    density = ParzenEstimator(encoding, nothing, np.empty(0), Smoothing())
    rows = density.sample(np.random.default_rng(0), 2_000)
    drawn = [encoding.decode(row, row) for row in rows]
    counts = Counter(params["activation"] for params in drawn)
    assert counts["gelu"] > 2 * counts["relu"]
    assert np.median([float(str(p["layers"])) for p in drawn]) == pytest.approx(3, abs=1)
    assert np.median([float(str(p["rate"])) for p in drawn]) == pytest.approx(1e-3, rel=0.3)
    index = next(
        i for i, column in enumerate(encoding.columns) if column.parameter.name == "activation"
    )
    logs = {}
    for value in range(3):
        row = rows[:1].copy()
        row[0, index] = value
        logs[value] = float(density.log(row, np.ones_like(row, dtype=np.bool_))[0])
    assert logs[2] - logs[0] == pytest.approx(math.log(counts["gelu"] / counts["relu"]), abs=0.2)


def test_the_middle_that_stands_in_for_a_missing_default_is_the_priors() -> None:
    (first,) = make_sampler("random", options(0, RIGHT)).ask([0])
    assert first.params["x"] == pytest.approx(3.1, abs=0.2)


def test_a_grid_heeds_no_prior() -> None:
    alike = [make_sampler("grid", options(0, priors)) for priors in (RIGHT, {})]
    assert alike[0].ask(range(20)) == alike[1].ask(range(20))

"""The check that all devices hold equal weights, and its error."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from hptune.core.data_parallel import DATA_PARALLEL
from hptune.training.strategies.base import Method, ParallelTrainingError, Strategy

A, B = np.ones(3), np.zeros((2, 2))


class OnDevices(Strategy):
    """Devices with given weights."""

    weights: tuple[Mapping[str, Any], ...] = ()
    on_cpu = True

    def enter(self) -> None:
        raise NotImplementedError

    def fit(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        raise NotImplementedError

    def copies(self, _model: Any) -> Iterator[Mapping[str, Any]]:
        yield from self.weights


class Ranks:
    """This rank among others, whose digests are given."""

    rank, world_size = 0, 2

    def __init__(self, *others: Mapping[str, Any]) -> None:
        self.others = others

    def gather(self, data: bytes) -> list[bytes]:
        from hptune.training.strategies import equal_weights

        return [data, *(b"".join(equal_weights._digests(each).values()) for each in self.others)]


def check(ranks: Ranks | None, *weights: Mapping[str, Any]) -> None:
    # Here, as it imports Keras, and every process of the tests collects this file.
    from hptune.training.strategies import equal_weights

    strategy = OnDevices(ranks, len(weights), DATA_PARALLEL)  # type: ignore[arg-type]
    strategy.weights = weights
    equal_weights.check(strategy, None, "batch 1")


def test_equal_weights_pass() -> None:
    check(None, {"a": A, "b": B}, {"a": A.copy(), "b": B.copy()})
    check(Ranks({"a": A, "b": B}), {"a": A, "b": B})


@pytest.mark.parametrize("nearly", [np.nextafter(A, 2), -A])
def test_unequal_weights_of_a_device_or_a_rank_are_named(nearly: Any) -> None:
    said = r"2 devices .* after batch 1 they hold different weights \(a\)\."
    with pytest.raises(ParallelTrainingError, match=said):
        check(None, {"a": A, "b": B}, {"a": nearly, "b": B})
    with pytest.raises(ParallelTrainingError, match=said):
        check(Ranks({"a": nearly, "b": B}), {"a": A, "b": B})
    with pytest.raises(ParallelTrainingError, match=r"different weights \(a and 1 more\)"):
        check(Ranks({"a": nearly, "b": B + 1}), {"a": A, "b": B})

"""Sharing of results by calls of load_data(hp) that read the same hyperparameters."""

from __future__ import annotations

from typing import Any

import pytest

from data_cache_node import Calls, Node, arrays
from hptune.training.data_cache import cache_store
from hptune.training.hyperparameters import make_hyperparameters


def test_only_hyperparameters_that_were_read_tell_calls_apart(node: Node, calls: Calls) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        start = hp.get("start")
        return arrays(start + (hp.get("more") if start > 1 else 0))

    def first(**values: Any) -> float:
        return float(node.load(load_data, **values)[0][0][0, 0])

    assert first(start=0, more=5, rate=0.1) == 0
    assert first(start=0, more=6, rate=0.2) == 0
    assert calls.count == 1
    assert first(start=2, more=5, rate=0.1) == 7
    assert first(start=2, more=6, rate=0.1) == 8
    assert first(start=2, more=5, rate=0.3) == 7
    assert calls.count == 3


@pytest.mark.parametrize(
    "look",
    [
        lambda hp: dict(hp.values),
        lambda hp: {**hp.values},
        lambda hp: hp.values.copy(),
        lambda hp: list(hp.values.items()),
        lambda hp: hp.values | {},
        lambda hp: {} | hp.values,
        lambda hp: hp.get_config(),
        lambda hp: hp.copy(),
        lambda hp: repr(hp.values),
        lambda hp: sorted(hp.values),
        lambda hp: hp.values == {},
    ],
)
def test_a_call_that_reads_all_depends_on_all(node: Node, calls: Calls, look: Any) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        look(hp)
        return arrays()

    node.load(load_data, a=1)
    node.load(load_data, a=1)
    assert calls.count == 1
    node.load(load_data, a=2)
    node.load(load_data, a=1, b=1)
    assert calls.count == 3


@pytest.mark.parametrize(
    "read",
    [
        lambda hp: hp.get("start"),
        lambda hp: hp["start"],
        lambda hp: hp.values["start"],
        lambda hp: hp.values.get("start"),
        lambda hp: hp.Int("start", 0, 9),
        lambda hp: hp.Fixed("start", 0),
    ],
)
def test_every_way_to_read_one_counts(node: Node, calls: Calls, read: Any) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        return arrays(read(hp))

    for start in (1, 1, 2):
        assert node.load(load_data, start=start, rate=0.1)[0][0][0, 0] == start
        assert node.load(load_data, start=start, rate=0.2)[0][0][0, 0] == start
    assert calls.count == 2


def test_a_missing_hyperparameter_is_not_the_same_as_any_value(node: Node, calls: Calls) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        return arrays(hp.values.get("start", 5))

    assert node.load(load_data)[0][0][0, 0] == 5
    assert node.load(load_data, start=5)[0][0][0, 0] == 5
    assert node.load(load_data, start=5.0)[0][0][0, 0] == 5
    assert calls.count == 3


def test_a_hyperparameter_that_load_data_declares_is_still_declared(node: Node) -> None:
    def load_data(hp: Any) -> Any:
        return arrays(hp.Int("start", 1, 3))

    for _ in range(2):
        hp = make_hyperparameters()
        assert node.cached(load_data)(hp)[0][0][0, 0] == 1
        assert hp.values == {"start": 1}
        assert type(hp.values) is dict


def test_not_more_than_some_results_are_kept(
    node: Node, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_store, "MAX_RESULTS", 3)

    def load_data(hp: Any) -> Any:
        calls.note()
        return arrays(hp.get("start"))

    for start in range(6):
        assert node.load(load_data, start=start)[0][0][0, 0] == start
    assert calls.count == 6
    assert len(node.files) == 3 * 3  # three arrays in each
    node.load(load_data, start=2)
    assert calls.count == 6
    node.load(load_data, start=5)
    assert calls.count == 7

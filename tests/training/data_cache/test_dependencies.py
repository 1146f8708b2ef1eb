"""Which calls of load_data() may be taken for the same, and which not at all."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras_tuner
import numpy as np
import pytest
from data_cache_node import Calls, Node, arrays, is_mapped

from tuner.config.model_file import UserCode
from tuner.training.data_cache import cache_store, data_cache

# --- which calls are the same --------------------------------------------------------------------


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
        lambda hp: hp.get_config(),
        lambda hp: hp.copy(),
        lambda hp: repr(hp.values),
        lambda hp: sorted(hp.values),
    ],
)
def test_who_looks_at_all_depends_on_all(node: Node, calls: Calls, look: Any) -> None:
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


@pytest.mark.parametrize("read", [os.environ.get, lambda n: n in os.environ, os.getenv])
def test_the_environment_that_was_read_counts(
    node: Node, calls: Calls, read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_data() -> Any:
        calls.note()
        read("DATA_DIR")
        return arrays()

    node.load(load_data)
    monkeypatch.setenv("UNREAD", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    node.load(load_data)
    assert calls.count == 1
    monkeypatch.setenv("DATA_DIR", "/data")
    node.load(load_data)
    assert calls.count == 2
    assert type(os.environ).__name__ == "_Environ"


def test_a_file_that_was_read_and_has_changed_is_read_again(
    node: Node, calls: Calls, tmp_path: Path
) -> None:
    path = tmp_path / "data.npy"
    np.save(path, arrays()[0][0])

    def load_data() -> Any:
        calls.note()
        x = np.load(path)
        return (x, x), None

    node.load(load_data)
    node.load(load_data)
    assert calls.count == 1
    np.save(path, arrays(5)[0][0])
    assert node.load(load_data)[0][0][0, 0] == 5
    assert calls.count == 2


def test_another_directory_or_another_file_is_another_call(
    node: Node, calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load_data() -> Any:
        calls.note()
        return arrays()

    node.load(load_data)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    node.load(load_data)
    assert calls.count == 2
    node.source = replace(node.source, path=str(tmp_path / "changed.py"))
    Path(node.source.path).write_text("# another one")
    node.load(load_data)
    assert calls.count == 3


# --- what is not shared --------------------------------------------------------------------------

COUNTED: list[int] = []


def _draws_python() -> Any:
    import random

    return arrays(random.random())


def _draws_numpy() -> Any:
    return arrays(np.random.rand())


def _seeds_numpy() -> Any:
    np.random.seed(0)
    return arrays(np.random.rand())


def _changes_its_module() -> Any:
    COUNTED.append(1)
    return arrays()


def _has_a_dataset() -> Any:
    return arrays()[0], object()


def _has_words() -> Any:
    return (np.array(["a", "b"] * 500_000, dtype=object), arrays()[0][0]), None


def _is_tiny() -> Any:
    return (np.zeros((10, 10)), np.zeros(10)), None


def _overlaps() -> Any:
    (x, _), _ = arrays()
    return (x, x[:, :1]), (x[:500], None)


def _windows() -> Any:
    return (np.lib.stride_tricks.sliding_window_view(np.arange(50_000.0), 100), None), None


def _is_a_generator() -> Any:
    return (each for each in arrays()), None


@pytest.mark.parametrize(
    "load",
    [
        _draws_python,
        _draws_numpy,
        _seeds_numpy,
        _changes_its_module,
        _has_a_dataset,
        _has_words,
        _is_tiny,
        _overlaps,
        _windows,
        _is_a_generator,
    ],
)
def test_what_cannot_be_shared_is_loaded_by_each(node: Node, calls: Calls, load: Any) -> None:
    def load_data() -> Any:
        calls.note()
        return load()

    # The watched module is the one of the function that is called.
    load_data = load_data if load is not _changes_its_module else load
    before = len(COUNTED)
    for _ in range(2):
        train, _ = node.load(load_data)
        assert not any(is_mapped(each) for each in train if isinstance(each, np.ndarray))
    assert calls.count + len(COUNTED) - before == 2
    assert node.kept == []


def test_a_parameter_that_load_data_declares_is_still_declared(node: Node) -> None:
    def load_data(hp: Any) -> Any:
        return arrays(hp.Int("start", 1, 3))

    for _ in range(2):
        code = UserCode(hypermodel=object(), load_data=load_data)
        code = data_cache.staged(code, node.source, limit_bytes=None)
        hp = keras_tuner.HyperParameters()
        assert code.load_data is not None
        assert code.load_data(hp)[0][0][0, 0] == 1
        assert hp.values == {"start": 1}
        assert type(hp.values) is dict


def test_data_that_differs_in_each_trial_is_soon_left_alone(node: Node, calls: Calls) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        return arrays(hp.get("start"))

    for start in range(8):
        node.load(load_data, start=start)
    assert calls.count == 8
    assert len(node.kept) == cache_store.MANY_VARIANTS * 3  # three arrays in each


def test_off_is_off(node: Node) -> None:
    code = UserCode(hypermodel=object(), load_data=arrays)
    assert data_cache.staged(code, node.source, limit_bytes=0) is code
    assert not node.store.exists()

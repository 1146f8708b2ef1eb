"""load_data() once per node: who shares what, within what room, and that nothing is left."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import keras_tuner
import numpy as np
import pytest
from data_cache_node import FORK, Calls, Node, arrays, is_mapped

from tuner.config.model_file import UserCode
from tuner.training.data_cache import data_cache

# --- what is shared ------------------------------------------------------------------------------


def test_the_arrays_are_loaded_once_and_are_what_was_returned(node: Node, calls: Calls) -> None:
    def load_data() -> Any:
        calls.note()
        return arrays()

    for _ in range(3):
        (x, y), (inputs, none) = node.load(load_data)
        (expected, labels), (expected_inputs, _) = arrays()
        assert type(x) is np.ndarray
        assert x.dtype == expected.dtype
        np.testing.assert_array_equal(x, expected)
        np.testing.assert_array_equal(y, labels)
        np.testing.assert_array_equal(inputs["left"], expected_inputs["left"])
        np.testing.assert_array_equal(inputs["right"][0], expected_inputs["right"][0])
        assert none is None
        assert is_mapped(x)
        assert x.ctypes.data % 64 == 0
    assert calls.count == 1


def test_other_processes_share_it_and_none_sees_what_another_writes(
    node: Node, calls: Calls
) -> None:
    def load_data() -> Any:
        calls.note()
        return arrays()

    def write() -> float:
        (x, _), _ = node.load(load_data)
        x /= 2.0
        return float(x.sum())

    (mine, _), _ = node.load(load_data)
    whole = float(arrays()[0][0].sum())
    assert node.elsewhere(write) == pytest.approx(whole / 2)
    assert node.elsewhere(write) == pytest.approx(whole / 2)
    assert float(mine.sum()) == pytest.approx(whole)
    mine[:] = 0
    assert node.elsewhere(write) == pytest.approx(whole / 2)
    assert calls.count == 1


def test_an_array_that_is_there_twice_is_kept_once(node: Node) -> None:
    def autoencoder() -> Any:
        (x, _), _ = arrays()
        return (x, x), None

    (x, same), _ = node.load(autoencoder)
    assert np.shares_memory(x, same)
    assert len(node.kept) == 1


def test_those_who_come_meanwhile_wait_for_the_first(node: Node, calls: Calls) -> None:
    gate = FORK.Event()
    begun = FORK.Event()

    def load_data() -> Any:
        calls.note()
        begun.set()
        assert gate.wait(30)
        return arrays()

    def trial() -> float:
        return float(node.load(load_data)[0][0].sum())

    sums: list[float] = []
    threads = [
        threading.Thread(target=lambda: sums.append(node.elsewhere(trial))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(30)
    gate.set()
    for thread in threads:
        thread.join(60)
    assert len(sums) == 4
    assert len(set(sums)) == 1
    assert calls.count == 1


def test_nobody_waits_for_the_dead(node: Node, calls: Calls) -> None:
    begun = FORK.Event()

    def load_data() -> Any:
        calls.note()
        if calls.count == 1:
            begun.set()
            signal.pause()
        return arrays()

    first = FORK.Process(target=lambda: node.load(load_data))
    first.start()
    assert begun.wait(30)
    os.kill(first.pid or 0, signal.SIGKILL)
    (x, _), _ = node.load(load_data)
    assert is_mapped(x)
    first.join()
    assert calls.count == 2


@pytest.mark.parametrize(
    ("most_seconds", "hang_timeout_seconds"),
    [
        (0.05, None),
        pytest.param(data_cache.WAIT_SECONDS, 0.1, id="nor until it is held for hanging"),
    ],
)
def test_nobody_waits_for_ever(
    node: Node,
    calls: Calls,
    monkeypatch: pytest.MonkeyPatch,
    most_seconds: float,
    hang_timeout_seconds: float | None,
) -> None:
    monkeypatch.setattr(data_cache, "WAIT_SECONDS", most_seconds)
    begun = FORK.Event()

    def load_data() -> Any:
        calls.note()
        if calls.count == 1:
            begun.set()
            signal.pause()
        return arrays()

    first = FORK.Process(target=lambda: node.load(load_data))
    first.start()
    try:
        assert begun.wait(30)
        (x, _), _ = node.load(load_data, hang_timeout_seconds=hang_timeout_seconds)
        assert not is_mapped(x)
        assert calls.count == 2
    finally:
        first.kill()
        first.join()


def test_nobody_waits_for_what_a_load_left_behind(
    node: Node, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that `load_data` forked, and that lives on, has its open files, too."""
    left: list[Any] = []

    def load_data() -> Any:
        calls.note()
        if calls.count == 1:
            left.append(FORK.Process(target=signal.pause))
            left[0].start()
            raise OSError("the network is gone")
        return arrays()

    monkeypatch.setattr(data_cache, "WAIT_SECONDS", 5.0)
    try:
        with pytest.raises(OSError, match="network"):
            node.load(load_data)
        (x, _), _ = node.load(load_data)
        assert is_mapped(x), "it had its turn"
    finally:
        for each in left:
            each.kill()
            each.join()


def test_who_is_told_to_stop_does_not_wait(node: Node) -> None:
    class ToldToStop(BaseException):
        pass

    def stop() -> None:
        raise ToldToStop

    begun = FORK.Event()

    def load_data() -> Any:
        begun.set()
        signal.pause()

    first = FORK.Process(target=lambda: node.load(load_data))
    first.start()
    try:
        assert begun.wait(30)
        code = UserCode(hypermodel=object(), load_data=load_data)
        code = data_cache.staged(code, node.source, limit_bytes=None, while_waiting=stop)
        assert code.load_data is not None
        with pytest.raises(ToldToStop):
            code.load_data(keras_tuner.HyperParameters())
    finally:
        first.kill()
        first.join()


def test_an_error_of_the_users_is_the_users(node: Node, calls: Calls) -> None:
    def load_data() -> Any:
        calls.note()
        raise OSError(28, "no space for the user's cache")

    for _ in range(2):
        with pytest.raises(OSError, match="the user's cache"):
            node.load(load_data)
    assert calls.count == 2


def test_columns_of_one_table_are_shared(node: Node) -> None:
    table = np.arange(600_000.0).reshape(1000, 600)

    def load_data() -> Any:
        return (table[:500, :-10], table[:500, -10:]), (table[500:, :-10], table[500:, -10:])

    (x, y), (x_val, _) = node.load(load_data)
    assert is_mapped(x)
    np.testing.assert_array_equal(x, table[:500, :-10])
    np.testing.assert_array_equal(y, table[:500, -10:])
    np.testing.assert_array_equal(x_val, table[500:, :-10])


# --- room ----------------------------------------------------------------------------------------


def test_the_limit_is_kept_and_the_oldest_goes(node: Node, calls: Calls) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        x = arrays(hp.get("start"))[0][0]
        return (x, x), None

    def trial(start: int) -> float:
        return float(node.load(load_data, limit_bytes=3_500_000, start=start)[0][0][0, 0])

    for start in (0, 1, 0, 2, 0, 2):  # in processes that end, so that nobody uses it any more
        assert node.elsewhere(lambda start=start: trial(start)) == start
    assert calls.count == 3
    assert len(node.kept) == 2
    assert node.elsewhere(lambda: trial(1)) == 1  # gone, since it was not used for longest
    assert calls.count == 4


def test_more_than_the_limit_is_loaded_by_each(node: Node, calls: Calls) -> None:
    def load_data() -> Any:
        calls.note()
        return arrays()

    for _ in range(2):
        (x, _), _ = node.load(load_data, limit_bytes=1_200_000)
        assert not is_mapped(x)
    assert calls.count == 2
    assert node.kept == []


def test_a_store_that_cannot_be_written_is_done_without(node: Node, tmp_path: Path) -> None:
    data_cache.leave()
    (tmp_path / "node").rmdir()
    (tmp_path / "node").write_text("a file")
    node.join()
    (x, _), _ = node.load(arrays)
    np.testing.assert_array_equal(x, arrays()[0][0])


def test_a_strangers_folder_is_not_trusted(node: Node) -> None:
    node.store.mkdir()
    node.store.chmod(0o777)
    (x, _), _ = node.load(arrays)
    assert not is_mapped(x)
    node.store.chmod(0o700)


# --- the end -------------------------------------------------------------------------------------


def test_the_last_user_removes_it_and_those_who_map_it_keep_it(node: Node) -> None:
    (x, _), _ = node.load(arrays)
    data_cache.leave()
    assert not node.store.exists()
    np.testing.assert_array_equal(x, arrays()[0][0])


def test_it_stays_while_another_study_uses_it(node: Node, calls: Calls) -> None:
    def load_data() -> Any:
        calls.note()
        return arrays()

    ready, done = FORK.Event(), FORK.Event()

    def other_study() -> None:
        node.join()
        node.load(load_data)
        ready.set()
        done.wait(60)
        data_cache.leave()

    process = FORK.Process(target=other_study)
    node.load(load_data)
    process.start()
    assert ready.wait(60)
    data_cache.leave()
    assert len(node.kept) == 3
    done.set()
    process.join()
    assert not node.store.exists()
    assert calls.count == 1


def test_what_a_killed_study_left_is_removed_by_the_next(node: Node) -> None:
    def killed() -> None:
        node.join()
        node.load(arrays)
        os.kill(os.getpid(), signal.SIGKILL)

    data_cache.leave()
    process = FORK.Process(target=killed)
    process.start()
    process.join()
    assert len(node.kept) == 3
    node._count += 1
    node.join()
    assert node.kept == []
    assert not node.store.exists()

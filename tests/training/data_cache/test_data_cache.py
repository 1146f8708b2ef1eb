"""load_data() once per node: sharing between trials, limits of space, and clean-up."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from data_cache_node import FORK, Calls, Node, arrays, is_mapped
from hptune.files.filesystem import Mount
from hptune.training.data_cache import cache_store, data_cache
from hptune.training.hyperparameters import make_hyperparameters
from hptune.training.resume.randomness import seed_after_loading, seed_everything

# --- what is shared ------------------------------------------------------------------------------


def test_the_arrays_are_loaded_once_and_are_what_was_returned(node: Node, calls: Calls) -> None:
    for _ in range(3):
        (x, y), (inputs, none) = node.load(calls.load_data)
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
    def write() -> float:
        (x, _), _ = node.load(calls.load_data)
        x /= 2.0
        return float(x.sum())

    (mine, _), _ = node.load(calls.load_data)
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
    assert len(node.files) == 1


def test_other_trials_wait_for_the_first(node: Node, calls: Calls) -> None:
    gate = FORK.Event()
    begun = FORK.Event()

    def load_data() -> Any:
        calls.note()
        begun.set()
        assert gate.wait(200)
        return arrays()

    def trial() -> float:
        return float(node.load(load_data)[0][0].sum())

    sums: list[float] = []
    threads = [
        threading.Thread(target=lambda: sums.append(node.elsewhere(trial))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    assert begun.wait(200)
    gate.set()
    for thread in threads:
        thread.join(200)
    assert len(sums) == 4
    assert len(set(sums)) == 1
    assert calls.count == 1


def test_another_trial_takes_over_from_one_that_was_killed(node: Node, calls: Calls) -> None:
    begun = FORK.Event()

    def load_data() -> Any:
        calls.note()
        if calls.count == 1:
            begun.set()
            signal.pause()
        return arrays()

    first = FORK.Process(target=lambda: node.load(load_data))
    first.start()
    assert begun.wait(200)
    os.kill(first.pid or 0, signal.SIGKILL)
    (x, _), _ = node.load(load_data)
    assert is_mapped(x)
    first.join()
    assert calls.count == 2


def test_a_trial_does_not_wait_until_it_is_taken_for_hung(node: Node, calls: Calls) -> None:
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
        assert begun.wait(200)
        (x, _), _ = node.load(load_data, hang_timeout_seconds=0.1)
        assert not is_mapped(x)
        assert calls.count == 2
    finally:
        first.kill()
        first.join()


def test_a_process_that_load_data_leaves_behind_holds_no_lock(node: Node, calls: Calls) -> None:
    """Such a process inherits the trial's open files."""
    left: list[Any] = []

    def load_data() -> Any:
        calls.note()
        if calls.count == 1:
            left.append(FORK.Process(target=signal.pause))
            left[0].start()
            raise OSError("the network is gone")
        return arrays()

    try:
        with pytest.raises(OSError, match="network"):
            node.load(load_data)
        (x, _), _ = node.load(load_data, hang_timeout_seconds=10.0)
        assert is_mapped(x), "it got the lock"
    finally:
        for each in left:
            each.kill()
            each.join()


def test_a_trial_that_is_told_to_stop_does_not_wait(node: Node) -> None:
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
        assert begun.wait(200)
        load = node.cached(load_data, while_waiting=stop)
        with pytest.raises(ToldToStop):
            load(make_hyperparameters())
    finally:
        first.kill()
        first.join()


def test_each_trial_gets_an_error_in_load_data_as_its_own(node: Node, calls: Calls) -> None:
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


# --- random numbers ------------------------------------------------------------------------------


def test_what_load_data_draws_does_not_depend_on_the_trial_that_calls_it(node: Node) -> None:
    def load_data(hp: Any) -> Any:
        return arrays(np.random.randint(1000) + random.randrange(1000) + hp.get("start"))

    def trial(seed: int, start: int) -> float:
        seed_everything(seed, deterministic=False)
        return float(node.load(load_data, start=start)[0][0][0, 0])

    assert trial(1, start=1) == trial(2, start=2) - 1


def test_a_training_draws_the_same_whether_it_loads_or_not(node: Node) -> None:
    def load_data() -> Any:
        return arrays(np.random.randint(1000))

    def trial() -> tuple[float, float]:
        seed_everything(3, deterministic=False)
        node.load(load_data)
        seed_after_loading(3)
        return float(np.random.rand()), random.random()

    assert trial() == trial()


# --- what is not shared --------------------------------------------------------------------------


def _with_a_dataset() -> Any:
    return arrays()[0], object()


def _of_objects() -> Any:
    return (np.array(["a", "b"] * 500_000, dtype=object), arrays()[0][0]), None


def _windows() -> Any:
    return (np.lib.stride_tricks.sliding_window_view(np.arange(50_000.0), 100), None), None


def _is_a_generator() -> Any:
    return (each for each in arrays()), None


def _with_keys_of_its_own() -> Any:
    class Key:
        pass

    return {Key(): arrays()[0][0]}, None


@pytest.mark.parametrize(
    "load", [_with_a_dataset, _of_objects, _windows, _is_a_generator, _with_keys_of_its_own]
)
def test_each_trial_loads_what_cannot_be_shared(node: Node, calls: Calls, load: Any) -> None:
    def load_data() -> Any:
        calls.note()
        return load()

    for _ in range(2):
        train, _ = node.load(load_data)
        assert not any(is_mapped(each) for each in train if isinstance(each, np.ndarray))
    assert calls.count == 2
    assert node.files == []


def test_what_load_data_has_mapped_itself_stays_where_it_is(node: Node, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", arrays()[0][0])

    def load_data() -> Any:
        return (np.load(tmp_path / "x.npy", mmap_mode="r"), None), None

    (x, _), _ = node.load(load_data)
    assert Path(x.filename) == tmp_path / "x.npy"
    assert node.files == []


def test_the_cache_is_turned_off_by_a_limit_of_zero_or_in_the_model_file(node: Node) -> None:
    assert node.cached(arrays, limit_bytes=0) is arrays
    assert node.cached(arrays, constants={"CACHE_DATA": False}) is arrays
    assert node.cached(arrays, constants={"CACHE_DATA": True}) is not arrays
    # What the command line says wins.
    assert node.cached(arrays, constants={"CACHE_DATA": False}, is_wanted=True) is not arrays


def test_a_changed_model_file_is_loaded_again(node: Node, calls: Calls) -> None:
    node.load(calls.load_data)
    Path(node.source.path).write_text("# changed")
    node.join()
    node.load(calls.load_data)
    assert calls.count == 2


def test_a_model_file_whose_folder_has_an_odd_name(node: Node, calls: Calls) -> None:
    node.source = replace(node.source, path=f"{node.source.path}\udcff")  # a byte that is no UTF-8
    Path(node.source.path).touch()
    node.join()
    assert [node.elsewhere(lambda: node.load(calls.load_data)[0][1][9]) for _ in "12"] == [9, 9]
    assert calls.count == 1


def test_a_file_that_changes_after_its_import_is_not_taken_for_the_new_one(node: Node) -> None:
    """The study's process runs the old code until it ends; another worker runs the new code."""

    def load_as_another_worker() -> Any:
        with mock.patch.dict(data_cache._imported, clear=True):
            node.join()
            return node.load(lambda: arrays(7.0))[0][0][0, 0]

    data_cache.note_import(node.source)
    Path(node.source.path).write_text("# changed")
    node.join()  # for the next order
    assert node.load(arrays)[0][0][0, 0] == 0.0
    assert node.elsewhere(load_as_another_worker) == 7.0
    assert node.load(lambda: arrays(8.0))[0][0][0, 0] == 0.0


# --- space ---------------------------------------------------------------------------------------


def test_the_limit_is_kept_and_what_is_there_stays(node: Node, calls: Calls) -> None:
    def load_data(hp: Any) -> Any:
        calls.note()
        x = arrays(hp.get("start"))[0][0]
        return (x, x), None

    def trial(start: int) -> float:
        return float(node.load(load_data, limit_bytes=3_500_000, start=start)[0][0][0, 0])

    for start in (0, 1, 2, 0, 1, 2):
        assert trial(start) == start
    assert calls.count == 4
    assert len(node.files) == 2


def test_each_trial_loads_what_is_larger_than_the_limit(node: Node, calls: Calls) -> None:
    for _ in range(2):
        (x, _), _ = node.load(calls.load_data, limit_bytes=1_200_000)
        assert not is_mapped(x)
    assert calls.count == 2
    assert node.files == []


def test_files_in_memory_count_against_the_memory_of_the_job(
    node: Node, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_store, "mount_of", lambda _: Mount("/dev/shm", "tmpfs"))
    node.free_memory_bytes = 1_200_000
    for _ in range(2):
        node.load(calls.load_data)
    assert calls.count == 2
    assert node.files == []
    node.free_memory_bytes = 10**12
    data_cache.close()
    node.join()
    for _ in range(2):
        node.load(calls.load_data)
    assert calls.count == 3


def test_a_small_file_system_in_memory_is_not_filled(
    node: Node, calls: Calls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As /dev/shm in a container of Kubernetes, which has 64 MB by default."""
    monkeypatch.setattr(cache_store, "mount_of", lambda _: Mount("/dev/shm", "tmpfs"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: mock.Mock(free=1_500_000))
    for _ in range(2):
        (x, _), _ = node.load(calls.load_data)
        assert not is_mapped(x)
    assert (calls.count, node.files) == (2, [])
    assert "which has 1.5 MB free" in caplog.text


def test_a_full_disk_fails_no_trial(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", save)
    (x, _), _ = node.load(arrays)
    np.testing.assert_array_equal(x, arrays()[0][0])
    assert not is_mapped(x)
    assert not list(node.place.glob("*/unfinished"))


def test_a_kernel_that_promises_no_memory_for_copies_shares_read_only(
    node: Node, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With vm.overcommit_memory=2, copy-on-write counts in full."""
    load = np.load

    def load_or_refuse(path: Path, mmap_mode: Any) -> Any:
        if mmap_mode == "c":
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return load(path, mmap_mode=mmap_mode)

    monkeypatch.setattr(np, "load", load_or_refuse)
    for _ in range(2):
        (x, _), _ = node.load(calls.load_data)
        np.testing.assert_array_equal(x, arrays()[0][0])
        assert is_mapped(x)
    assert calls.count == 1


def test_a_node_without_a_place_for_the_cache_fails_no_trial(node: Node) -> None:
    data_cache.close()
    node.place.rmdir()
    node.place.write_text("a file")
    node.join()
    (x, _), _ = node.load(arrays)
    np.testing.assert_array_equal(x, arrays()[0][0])


def test_a_folder_of_another_user_or_open_to_others_is_not_used(node: Node) -> None:
    (folder,) = node.folders
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    data_cache.close()
    folder.mkdir()
    folder.chmod(0o777)
    node.join()
    (x, _), _ = node.load(arrays)
    assert not is_mapped(x)
    assert node.files == []


# --- the end -------------------------------------------------------------------------------------


def test_the_last_process_removes_the_files_and_mapped_arrays_stay(node: Node) -> None:
    (x, _), _ = node.load(arrays)
    data_cache.close()
    assert node.folders == []
    np.testing.assert_array_equal(x, arrays()[0][0])


def test_the_files_stay_while_another_process_serves_the_study(node: Node, calls: Calls) -> None:
    ready, done = FORK.Event(), FORK.Event()

    def another_worker() -> None:
        data_cache._held.clear()  # those of the process that it was forked from
        node.join()
        node.load(calls.load_data)
        ready.set()
        done.wait(200)
        data_cache.close()

    process = FORK.Process(target=another_worker)
    node.load(calls.load_data)
    process.start()
    assert ready.wait(200)
    data_cache.close()
    assert len(node.files) == 3
    done.set()
    process.join()
    assert node.folders == []
    assert calls.count == 1


def test_what_a_killed_study_has_left_is_removed_by_the_next(node: Node) -> None:
    def killed() -> None:
        node.join()
        node.load(arrays)
        os.kill(os.getpid(), signal.SIGKILL)

    data_cache.close()
    process = FORK.Process(target=killed)
    process.start()
    process.join()
    assert len(node.files) == 3
    node.study += "-2"
    node.join()
    assert node.files == []
    assert len(node.folders) == 1


def test_a_result_that_was_half_written_is_written_again(node: Node) -> None:
    def killed() -> None:
        def save(path: Path, _array: Any) -> None:
            path.write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)

        with mock.patch.object(np, "save", save):
            node.load(arrays)

    process = FORK.Process(target=killed)
    process.start()
    process.join()
    assert len(node.files) == 1
    (x, _), _ = node.load(arrays)
    np.testing.assert_array_equal(x, arrays()[0][0])
    assert is_mapped(x)
    assert len(node.files) == 3

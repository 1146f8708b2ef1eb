"""load_data() once per node: what is shared, what is not, and that nothing is left."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras_tuner
import numpy as np
import pytest

from tuner.model_file import ObjectiveSource, SourceKind, UserCode
from tuner.training import shared_store, staging

FORK = multiprocessing.get_context("fork")


class Node:
    """A node with a store, on which this process is the one that lives as long as the study."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.store = shared_store.usual_folder()
        self._file = directory / "model.py"
        self._file.touch()
        self.source = ObjectiveSource(SourceKind.FILE, str(self._file))
        self._count = 0

    def join(self) -> None:
        self._count += 1
        folder = self.directory / f"life-{self._count}"
        folder.mkdir()
        staging.join(folder / "life", None)

    def load(self, load_data: Any, *, limit_bytes: int | None = None, **values: Any) -> Any:
        """What a trial with these hyperparameters gets."""
        code = staging.staged(
            UserCode(hypermodel=object(), load_data=load_data), self.source, limit_bytes=limit_bytes
        )
        hp = keras_tuner.HyperParameters()
        for name, value in values.items():
            hp.Fixed(name, value)
        hp.values = dict(values)
        assert code.load_data is not None
        return staging.call_load_data(code.load_data, hp)

    def elsewhere(self, act: Any) -> Any:
        """What `act` returns in a forked process, as a trial's is."""
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=lambda: theirs.send(act()))
        process.start()
        theirs.close()
        try:
            return ours.recv()
        finally:
            process.join()

    @property
    def kept(self) -> list[Path]:
        return sorted(self.store.glob("*/*/*.npy"))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    place = tmp_path / "node"
    place.mkdir()
    monkeypatch.setenv("SLURM_TMPDIR", str(place))
    monkeypatch.chdir(tmp_path)
    node = Node(tmp_path)
    node.join()
    try:
        yield node
    finally:
        staging.leave()


class Calls:
    """Counts calls over all processes, in a file that load functions append to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b".")
        os.close(file)

    @property
    def count(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0


@pytest.fixture
def calls(tmp_path: Path) -> Calls:
    return Calls(tmp_path / "calls")


def arrays(start: float = 0.0) -> Any:
    x = np.arange(start, start + 400_000, dtype="float32").reshape(1000, 400)
    return (x, np.arange(1000)), ({"left": x[:100] + 1, "right": [x[100:200] + 1]}, None)


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    found: Any = array
    while found is not None:
        if isinstance(found, np.memmap):
            return True
        found = getattr(found, "base", None)
    return False


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


def test_nobody_waits_for_ever(node: Node, calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "WAIT_SECONDS", 0.05)
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
        (x, _), _ = node.load(load_data)
        assert not is_mapped(x)
        assert calls.count == 2
    finally:
        first.kill()
        first.join()


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
        code = staging.staged(code, node.source, limit_bytes=None, while_waiting=stop)
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
        code = staging.staged(code, node.source, limit_bytes=None)
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
    assert len(node.kept) == shared_store.MANY_VARIANTS * 3  # three arrays in each


def test_off_is_off(node: Node) -> None:
    code = UserCode(hypermodel=object(), load_data=arrays)
    assert staging.staged(code, node.source, limit_bytes=0) is code
    assert not node.store.exists()


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
    staging.leave()
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
    staging.leave()
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
        staging.leave()

    process = FORK.Process(target=other_study)
    node.load(load_data)
    process.start()
    assert ready.wait(60)
    staging.leave()
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

    staging.leave()
    process = FORK.Process(target=killed)
    process.start()
    process.join()
    assert len(node.kept) == 3
    node._count += 1
    node.join()
    assert node.kept == []
    assert not node.store.exists()

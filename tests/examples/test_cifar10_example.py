"""examples/cifar10_cnn.py: the data that it reads or refuses, and its training."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import pickle
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "cifar10_cnn.py"
FOLDER = "cifar-10-batches-py"
ARCHIVE = "cifar-10-python.tar.gz"
BATCHES = [f"data_batch_{number}" for number in range(1, 6)]
ROWS = 20

Contents = dict[str, bytes]


def load_example(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return load_example(EXAMPLE)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CIFAR10", raising=False)
    monkeypatch.delenv("CIFAR10_UNVERIFIED", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))


def pickle_2(value: Any) -> bytes:
    """Pickle as Python 2 did, with text for bytes, the format in which CIFAR-10 was published."""

    class Pickler(
        pickle._Pickler
    ):  # the Python implementation, which can be extended to save bytes
        dispatch: ClassVar[Any] = dict(pickle._Pickler.dispatch)

        def save_bytes(self, obj: bytes) -> None:
            file.write(pickle.BINSTRING + len(obj).to_bytes(4, "little") + obj)

        dispatch[bytes] = save_bytes

    file = io.BytesIO()
    Pickler(file, protocol=2).dump(value)
    return file.getvalue().replace(b"numpy._core", b"numpy.core")


def make_contents(rows: int = ROWS) -> Contents:
    random = np.random.default_rng(0)
    return {
        name: pickle_2(
            {
                b"batch_label": name.encode(),
                b"labels": [int(label) for label in random.integers(0, 10, rows)],
                b"data": random.integers(0, 256, (rows, 3072), dtype=np.uint8),
                b"filenames": [b"an_image.png"] * rows,
            }
        )
        for name in reversed(BATCHES)  # the published archive is in no order either
    }


def write_folder(path: Path, contents: Contents) -> Path:
    path.mkdir(parents=True)
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return path


def write_archive(path: Path, contents: Contents, *, folder: str = FOLDER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, content in {"readme.html": b"<html>", **contents}.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def unverified(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    def point(path: Path) -> None:
        monkeypatch.setenv("CIFAR10", str(path))
        monkeypatch.setenv("CIFAR10_UNVERIFIED", "1")

    return point


class TestReading:
    def test_archive_in_the_published_format(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        contents = make_contents()
        unverified(write_archive(tmp_path / "sample.tar.gz", contents))
        (x, y), (x_val, y_val) = example.load_data()
        assert x.shape == (90, 32, 32, 3)
        assert x_val.shape == (10, 32, 32, 3)
        assert y.shape == (90,)
        assert y_val.shape == (10,)
        assert {array.dtype for array in (x, y, x_val, y_val)} == {np.dtype(np.uint8)}
        first = pickle.loads(contents["data_batch_1"], encoding="bytes")
        last = pickle.loads(contents["data_batch_5"], encoding="bytes")
        # A row is the red plane, then the green, then the blue one, each row by row.
        assert x[3, 5, 7, 2] == first[b"data"][3][2 * 1024 + 5 * 32 + 7]
        assert y[:ROWS].tolist() == first[b"labels"]
        assert y_val.tolist() == last[b"labels"][-10:]

    @pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
    def test_sample_pickled_by_this_python(
        self,
        example: ModuleType,
        tmp_path: Path,
        unverified: Callable[[Path], None],
        protocol: int,
    ) -> None:
        images = np.full((4, 3072), 9, np.uint8)
        content = pickle.dumps({b"labels": [1] * 4, b"data": images}, protocol=protocol)
        unverified(write_folder(tmp_path / "sample", dict.fromkeys(BATCHES, content)))
        (x, _), (x_val, _) = example.load_data()
        assert len(x) + len(x_val) == 20
        assert (x == 9).all()

    @pytest.mark.parametrize("place", [ARCHIVE, f"deep/{ARCHIVE}", FOLDER, f"deep/{FOLDER}"])
    def test_variable_names_it_or_the_folder_that_holds_it(
        self,
        example: ModuleType,
        tmp_path: Path,
        unverified: Callable[[Path], None],
        place: str,
    ) -> None:
        path = tmp_path / place
        (write_archive if place.endswith("gz") else write_folder)(path, make_contents())
        unverified(path.parent if "deep" in place else path)
        assert example.find_data() == path
        assert len(example.load_data()[0][0]) == 90

    @pytest.mark.parametrize(
        "place",
        [
            f"data/{ARCHIVE}",
            f"data/{FOLDER}",
            f"keras/datasets/{FOLDER}-target/{FOLDER}",
            f"keras/datasets/{FOLDER}",
        ],
    )
    def test_found_beside_the_file_and_in_the_cache_of_keras(
        self, tmp_path: Path, place: str
    ) -> None:
        moved = load_example(Path(shutil.copy(EXAMPLE, tmp_path)))
        path = tmp_path / place
        (write_archive if place.endswith("gz") else write_folder)(path, make_contents())
        assert moved.find_data() == path

    def test_published_files_are_accepted(
        self, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = pickle_2({b"labels": [0] * 10_000, b"data": np.zeros((10_000, 3072), np.uint8)})
        folder = write_folder(tmp_path / FOLDER, {BATCHES[0]: content})
        for name in BATCHES[1:]:
            os.link(folder / BATCHES[0], folder / name)
        digest = hashlib.md5(content).hexdigest()
        monkeypatch.setattr(example, "DIGESTS", dict.fromkeys(BATCHES, digest))
        monkeypatch.setenv("CIFAR10", str(folder))
        (x, y), (x_val, y_val) = example.load_data()
        assert (len(x), len(y), len(x_val), len(y_val)) == (45_000, 45_000, 5_000, 5_000)

    def test_published_archive_is_accepted(
        self, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive = write_archive(tmp_path / ARCHIVE, make_contents(rows=1))
        monkeypatch.setattr(
            example, "ARCHIVE_DIGEST", hashlib.md5(archive.read_bytes()).hexdigest()
        )
        monkeypatch.setattr(example, "ARCHIVE_BYTES", archive.stat().st_size)
        monkeypatch.setenv("CIFAR10", str(archive))
        # The digest was the published one, so that only the number of images is left to refuse.
        with pytest.raises(ValueError, match=r"uint8 of shape \(10000, 3072\)"):
            example.load_data()


class TestAbsent:
    def test_message_says_what_was_sought_where_to_get_it_and_how_to_point_at_it(
        self, tmp_path: Path
    ) -> None:
        moved = load_example(Path(shutil.copy(EXAMPLE, tmp_path)))
        with pytest.raises(FileNotFoundError) as caught:
            moved.load_data()
        message = str(caught.value)
        assert "CIFAR10 is not set" in message
        assert f"{tmp_path}/data/{ARCHIVE}" in message
        assert f"{tmp_path}/keras/datasets/{FOLDER}-target/{FOLDER}" in message
        assert "https://www.cs.toronto.edu/~kriz/cifar.html" in message
        assert "export CIFAR10=" in message

    def test_a_wrong_path_is_not_passed_over(
        self, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_folder(tmp_path / "keras" / "datasets" / FOLDER, make_contents())
        monkeypatch.setenv("CIFAR10", str(tmp_path / "mistyped"))
        with pytest.raises(FileNotFoundError, match=r"CIFAR10 is .*/mistyped; looked for"):
            example.load_data()


class TestVerifying:
    def test_short_archive(
        self, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive = write_archive(tmp_path / ARCHIVE, make_contents())
        monkeypatch.setenv("CIFAR10", str(archive))
        with pytest.raises(ValueError, match=r"is cut short: .* of 170,498,071 bytes.*UNVERIFIED"):
            example.load_data()

    def test_altered_archive(
        self, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        archive = write_archive(tmp_path / ARCHIVE, make_contents())
        monkeypatch.setattr(example, "ARCHIVE_BYTES", archive.stat().st_size)
        monkeypatch.setenv("CIFAR10", str(archive))
        with pytest.raises(ValueError, match="instead of c58f30108f718f92721af3b95e74349a"):
            example.load_data()

    def test_altered_batch_of_an_unpacked_folder(
        self, example: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("CIFAR10", str(write_folder(tmp_path / FOLDER, make_contents())))
        with pytest.raises(ValueError, match=r"data_batch_1 is not the published file: its MD5"):
            example.load_data()


class TestRefusing:
    def test_archive_cut_short(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        archive = write_archive(tmp_path / "sample.tar.gz", make_contents())
        archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
        unverified(archive)
        with pytest.raises(ValueError, match=r"is cut short or no tar\.gz archive"):
            example.load_data()

    def test_archive_with_a_flipped_bit(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        archive = write_archive(tmp_path / "sample.tar.gz", make_contents())
        content = bytearray(archive.read_bytes())
        content[len(content) // 2] ^= 1  # within an image: stored as it is, being random
        archive.write_bytes(content)
        unverified(archive)
        with pytest.raises(ValueError, match=r"tar\.gz is cut short or .*CRC"):
            example.load_data()

    def test_no_archive_at_all(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        (tmp_path / "page.tar.gz").write_text("<html>404</html>")
        unverified(tmp_path / "page.tar.gz")
        with pytest.raises(ValueError, match=r"is cut short or no tar\.gz archive"):
            example.load_data()

    @pytest.mark.parametrize("place", [ARCHIVE, FOLDER])
    def test_missing_batch(
        self,
        example: ModuleType,
        tmp_path: Path,
        unverified: Callable[[Path], None],
        place: str,
    ) -> None:
        contents = make_contents()
        del contents["data_batch_1"], contents["data_batch_3"]
        (write_archive if place == ARCHIVE else write_folder)(tmp_path / place, contents)
        unverified(tmp_path / place)
        with pytest.raises(ValueError, match="lacks data_batch_1, data_batch_3"):
            example.load_data()

    def test_members_elsewhere_in_the_archive_are_neither_read_nor_written(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        before = sorted(tmp_path.rglob("*"))
        archive = write_archive(
            tmp_path / "in" / "sample.tar.gz", make_contents(), folder=f"../{FOLDER}"
        )
        unverified(archive)
        with pytest.raises(ValueError, match="lacks data_batch_1"):
            example.load_data()
        assert sorted(tmp_path.rglob("*")) == sorted([*before, archive.parent, archive])

    def test_a_pickle_that_would_run_code(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        class Evil:
            def __reduce__(self) -> Any:
                return os.mkdir, (str(tmp_path / "ran"),)

        contents = make_contents()
        contents["data_batch_2"] = pickle.dumps({b"data": Evil(), b"labels": []}, protocol=2)
        unverified(write_folder(tmp_path / FOLDER, contents))
        with pytest.raises(ValueError, match=r"data_batch_2 .* wants to call posix.mkdir"):
            example.load_data()
        assert not (tmp_path / "ran").exists()

    @pytest.mark.parametrize(
        ("batch", "message"),
        [
            ([1, 2], "data_batch_2 holds list"),
            (
                {b"data": 1, b"fine_labels": [1]},
                r"holds .*fine_labels.*; a batch of CIFAR-10 holds",
            ),
            ({b"data": [[1, 2]], b"labels": [1]}, r"int64 of shape \(1, 2\)"),
            ({b"data": np.zeros((2, 3071), np.uint8), b"labels": [1, 2]}, r"shape \(2, 3071\)"),
            ({b"data": np.zeros((3, 3072), np.uint8), b"labels": [1, 2]}, r"shape \(3, 3072\)"),
            ({b"data": np.zeros((2, 3072), np.float32), b"labels": [1, 2]}, "are float32"),
            ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]}, "not 2 whole numbers"),
            ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [-1, 0]}, "not 2 whole numbers"),
            ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0.5, 0]}, "not 2 whole numbers"),
            ({b"data": np.zeros((0, 3072), np.uint8), b"labels": []}, "not 0 whole numbers"),
        ],
    )
    def test_malformed_batch(
        self,
        example: ModuleType,
        tmp_path: Path,
        unverified: Callable[[Path], None],
        batch: Any,
        message: str,
    ) -> None:
        contents = make_contents() | {"data_batch_2": pickle_2(batch)}
        unverified(write_folder(tmp_path / FOLDER, contents))
        with pytest.raises(ValueError, match=message):
            example.load_data()

    def test_damaged_pickle(
        self, example: ModuleType, tmp_path: Path, unverified: Callable[[Path], None]
    ) -> None:
        contents = make_contents()
        contents["data_batch_4"] = contents["data_batch_4"][:1000]
        unverified(write_folder(tmp_path / FOLDER, contents))
        with pytest.raises(ValueError, match="data_batch_4 is no batch of CIFAR-10, or is damaged"):
            example.load_data()


class TestNetwork:
    def test_momentum_belongs_to_sgd(self, example: ModuleType) -> None:
        import keras_tuner

        hp = keras_tuner.HyperParameters()
        hp.values.update(optimizer="sgd", momentum=0.95)
        model = example.build_model(hp)
        assert model.optimizer.momentum == pytest.approx(0.95)
        momentum = next(parameter for parameter in hp.space if parameter.name == "momentum")
        assert [condition.values for condition in momentum.conditions] == [["sgd"]]

    @pytest.mark.parametrize(
        ("augmentation", "optimizer"),
        [
            ("flip+crop", "sgd"),
            pytest.param("none", "adam", marks=pytest.mark.slow),
            pytest.param("flip", "adam", marks=pytest.mark.slow),
        ],
    )
    def test_smallest_network_trains_for_an_epoch(
        self,
        example: ModuleType,
        tmp_path: Path,
        unverified: Callable[[Path], None],
        augmentation: str,
        optimizer: str,
    ) -> None:
        import keras_tuner

        unverified(write_archive(tmp_path / ARCHIVE, make_contents()))
        (x, y), validation = example.load_data()
        hp = keras_tuner.HyperParameters()
        hp.values.update(augmentation=augmentation, optimizer=optimizer, width=16, blocks=1)
        model = example.build_model(hp)
        history = model.fit(
            x, y, validation_data=validation, batch_size=hp.get("batch_size"), epochs=1, verbose=0
        )
        assert np.isfinite(history.history["loss"]).all()
        assert 0 <= history.history[example.OBJECTIVE][0] <= 1
        images = x[:5]
        assert (model.predict(images, verbose=0) == model.predict(images, verbose=0)).all()

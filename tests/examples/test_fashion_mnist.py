"""examples/fashion_mnist.py, and examples/cifar10_cnn.py on its real images."""

from __future__ import annotations

import gzip
import importlib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from requirements import unavailable

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delenv("FASHION_MNIST", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setenv("DATA", "fashion")
    return importlib.import_module("fashion_mnist")


def write(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = np.array(array.shape, ">i4").tobytes()
    path.write_bytes(gzip.compress(bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()))


def write_sample(folder: Path, reader: ModuleType, *, images: int = 4, labels: int = 4) -> Path:
    write(folder / reader.IMAGES, np.full((images, 28, 28), 9, np.uint8))
    write(folder / reader.LABELS, np.arange(labels, dtype=np.uint8))
    return folder


def test_the_network_learns_from_real_images(reader: ModuleType) -> None:
    import keras_tuner

    try:
        reader.find_fashion_mnist()
    except FileNotFoundError as err:
        unavailable(str(err))
    example = importlib.import_module("cifar10_cnn")
    (x, y), (x_val, y_val) = example.load_data()
    assert x.shape == (55_000, 28, 28, 1)
    assert x_val.shape == (5_000, 28, 28, 1)
    assert np.bincount(y_val).min() > 400
    hp = keras_tuner.HyperParameters()
    hp.values.update(width=16, blocks=3, learning_rate=0.003, dropout=0.0)
    model = example.build_model(hp)
    assert hp.get("data") == "fashion"
    keras = importlib.import_module("keras")
    keras.utils.set_random_seed(0)
    history = model.fit(x[:1500], y[:1500], batch_size=32, epochs=1, verbose=0).history
    assert history["accuracy"][0] > 0.5


def test_a_given_folder_and_the_cache_of_keras(
    reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FASHION_MNIST", str(write_sample(tmp_path / "mine", reader)))
    images, labels = reader.load_fashion_mnist()
    assert images.shape == (4, 28, 28)
    assert (images == 9).all()
    assert labels.tolist() == [0, 1, 2, 3]
    monkeypatch.setenv("FASHION_MNIST", str(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match=r"(?s)nowhere does not have .*dataset-fas"):
        reader.load_fashion_mnist()


def test_what_is_refused(
    reader: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_sample(tmp_path, reader, labels=3)
    monkeypatch.setenv("FASHION_MNIST", str(folder))
    with pytest.raises(ValueError, match=r"holds images of shape \(4, 28, 28\) and labels of shap"):
        reader.load_fashion_mnist()
    write_sample(folder, reader, images=11, labels=11)
    with pytest.raises(ValueError, match="has the label 10; allowed are 0 to 9"):
        reader.load_fashion_mnist()
    (folder / reader.LABELS).write_bytes(gzip.compress(b"\0\0\x08\x01\0\0\0\x0b123"))
    with pytest.raises(ValueError, match="is no IDX file of bytes, or is cut short"):
        reader.load_fashion_mnist()
    (folder / reader.IMAGES).write_bytes(b"<html>")
    with pytest.raises(ValueError, match="cannot be read"):
        reader.load_fashion_mnist()
    monkeypatch.setenv("DATA", "mnist")
    with pytest.raises(ValueError, match="DATA is 'mnist'; allowed are cifar10 and fashion"):
        importlib.import_module("cifar10_cnn").load_data()

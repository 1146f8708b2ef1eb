"""A convolutional network on CIFAR-10 or Fashion-MNIST: depth, width, augmentation, optimizer.

    export CIFAR10=~/Downloads/cifar-10-python.tar.gz
    hptune run examples/cifar10_cnn.py --search tpe --pruner asha --trials 60

    DATA=fashion hptune run examples/cifar10_cnn.py --search tpe --pruner asha --trials 60

`CIFAR10` names the archive as published at https://www.cs.toronto.edu/~kriz/cifar.html, the folder
`cifar-10-batches-py` unpacked from it, or a folder that holds either. Without it the folder `data`
next to this file is searched, then the cache of `keras.datasets.cifar10`. On a cluster the path has
to be readable from every node. The data are checked against their published digests; set
`CIFAR10_UNVERIFIED=1` to read others in the same format, such as a small sample.

With `DATA=fashion`, the same network trains on Fashion-MNIST (fashion_mnist.py says where it is
searched), whose images are 28x28 and grey.

The cosine schedule ends after `EPOCHS` epochs, and the learning rate stays 0 from then on. To train
longer, change `EPOCHS` in this file instead of giving `--epochs`, which the file does not see.

The network comes first, the reading of the data below it.
"""

import gzip
import hashlib
import io
import math
import os
import pickle
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras_tuner import HyperParameters

OBJECTIVE = "val_accuracy"
EPOCHS = 9 if os.environ.get("DATA") == "fashion" else 30

SHAPES = {"cifar10": (32, 32, 3), "fashion": (28, 28, 1)}
TRAINING_IMAGES = {"cifar10": 45_000, "fashion": 55_000}

Examples = tuple[np.ndarray, np.ndarray]


def build_model(hp: HyperParameters) -> keras.Model:
    layers = keras.layers
    # Recorded with the study, so that `hptune resume` refuses other data.
    data = hp.Fixed("data", chosen_data())
    # The images stay bytes until here: a quarter of the memory, and less to copy to a GPU.
    model = keras.Sequential([keras.Input(SHAPES[data], dtype="uint8"), layers.Rescaling(1 / 255)])

    augmentation = hp.Choice("augmentation", ["none", "flip", "flip+crop"])
    if augmentation != "none":
        model.add(layers.RandomFlip("horizontal"))
    if augmentation == "flip+crop":
        # The usual crop from an image padded by an eighth, drawn for each image; Keras's RandomCrop
        # would draw one for the whole batch.
        model.add(
            layers.RandomTranslation(1 / 8, 1 / 8, fill_mode="constant", interpolation="nearest")
        )

    width = hp.Choice("width", [16, 32, 64])
    for block in range(hp.Int("blocks", 1, 4)):
        for _ in range(2):
            model.add(layers.Conv2D(width * 2**block, 3, padding="same", use_bias=False))
            model.add(layers.BatchNormalization())
            model.add(layers.ReLU())
        model.add(layers.MaxPooling2D())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dropout(hp.Float("dropout", 0.0, 0.5, step=0.1)))
    model.add(layers.Dense(10, activation="softmax"))

    # hptune passes a hyperparameter of this name to `fit`.
    batch_size = hp.Choice("batch_size", [32, 64, 128, 256])

    steps = EPOCHS * math.ceil(TRAINING_IMAGES[data] / batch_size)
    model.compile(
        _optimizer(hp, steps=steps), loss="sparse_categorical_crossentropy", metrics=["accuracy"]
    )
    return model


def _optimizer(hp: HyperParameters, *, steps: int) -> keras.optimizers.Optimizer:
    """Return an optimizer; its learning rate may fall to zero within `steps`."""
    name = hp.Choice("optimizer", ["adam", "sgd"])
    learning_rate = hp.Float("learning_rate", 1e-4, 1e-1, sampling="log")
    if hp.Choice("schedule", ["constant", "cosine"]) == "cosine":
        learning_rate = keras.optimizers.schedules.CosineDecay(learning_rate, steps)
    weight_decay = hp.Float("weight_decay", 1e-6, 1e-2, sampling="log")
    with hp.conditional_scope("optimizer", ["sgd"]):
        if name == "sgd":
            momentum = hp.Float("momentum", 0.8, 0.99)
            return keras.optimizers.SGD(
                learning_rate, momentum=momentum, nesterov=True, weight_decay=weight_decay
            )
    return keras.optimizers.Adam(learning_rate, weight_decay=weight_decay)


def chosen_data() -> str:
    """Return `DATA` of the environment: "cifar10" (without the variable) or "fashion".

    Raises:
        ValueError: It is something else.
    """
    name = os.environ.get("DATA") or "cifar10"
    if name not in ("cifar10", "fashion"):
        raise ValueError(f"DATA is {name!r}; allowed are cifar10 and fashion")
    return name


def load_data() -> tuple[Examples, Examples]:
    """Return the training images, and those to validate.

    That is 45,000 and 5,000 images of CIFAR-10, or 55,000 and 5,000 of Fashion-MNIST; the test set
    is not read. The published order is random, so the split needs no shuffling and is the same
    everywhere.

    Returns:
        `(x, y)` twice: images of shape (n, 32, 32, 3), or (n, 28, 28, 1) of Fashion-MNIST, from 0
        to 255, and labels from 0 to 9, all uint8.

    Raises:
        FileNotFoundError: The data are nowhere; the message says how to get them.
        ValueError: What was found is not the data set, or is damaged.
    """
    if chosen_data() == "fashion":
        from fashion_mnist import load_fashion_mnist

        x, y = load_fashion_mnist()
        x = x[..., np.newaxis]
        return (x[:-5000], y[:-5000]), (x[-5000:], y[-5000:])
    batches = {name: _parse(name, content) for name, content in _contents(find_data())}
    x = np.concatenate([batches[name][0] for name in DIGESTS])
    y = np.concatenate([batches[name][1] for name in DIGESTS])
    split = len(x) * 9 // 10
    return (x[:split], y[:split]), (x[split:], y[split:])


PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
ARCHIVE = "cifar-10-python.tar.gz"
ARCHIVE_DIGEST = "c58f30108f718f92721af3b95e74349a"
ARCHIVE_BYTES = 170_498_071
FOLDER = "cifar-10-batches-py"
DIGESTS = {  # MD5, as for the archive
    "data_batch_1": "c99cafc152244af753f735de768cd75f",
    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
    "data_batch_4": "634d18415352ddfa80567beed471001a",
    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
}


def find_data() -> Path:
    """Return the archive or its folder: from `CIFAR10`, `data` next to this file, Keras's cache.

    Raises:
        FileNotFoundError: There is none.
    """
    given = os.environ.get("CIFAR10")
    if given:
        root = Path(given).expanduser()
        places = [root, root / FOLDER, root / ARCHIVE]
    else:
        data = Path(__file__).resolve().parent / "data"
        cache = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser() / "datasets"
        places = [
            data / FOLDER,
            data / ARCHIVE,
            cache / f"{FOLDER}-target" / FOLDER,
            cache / FOLDER,  # where older versions of Keras unpacked it
        ]
    for place in places:
        if place.is_file() or any((place / name).exists() for name in DIGESTS):
            return place
    looked_for = "\n".join(f"  {place}" for place in places)
    raise FileNotFoundError(
        f"CIFAR-10 was not found. CIFAR10 is {given or 'not set'}; looked for\n{looked_for}\n"
        f"Download {ARCHIVE} (171 MB) from {PAGE} and say where it is:\n"
        f"  export CIFAR10=/path/to/{ARCHIVE}\n"
        f"The folder {FOLDER} unpacked from it will do as well. "
        "DATA=fashion takes Fashion-MNIST instead."
    )


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each of the five batches, in the order of the file."""
    if path.is_dir():
        missing = [name for name in DIGESTS if not (path / name).is_file()]
        _refuse_missing(path, missing)
        for name, digest in DIGESTS.items():
            content = (path / name).read_bytes()
            if _verifying():
                found = hashlib.md5(content, usedforsecurity=False).hexdigest()
                _compare(path / name, found=found, published=digest)
            yield name, content
        return
    if _verifying():
        _check_archive(path)
    missing = list(DIGESTS)
    try:
        # Members are read by name and never unpacked, so none can write outside a folder. In the
        # order of the archive, because going back would decompress it from its start again.
        with gzip.open(path) as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            for member in archive:
                folder, _, name = member.name.rpartition("/")
                if folder == FOLDER and name in missing and member.isfile():
                    missing.remove(name)
                    content_file = archive.extractfile(member)
                    yield name, content_file.read() if content_file else b""
            stream.read()  # to its end, where gzip compares its checksum
    except (tarfile.TarError, EOFError, OSError, zlib.error) as err:
        raise ValueError(
            f"{path} is cut short or no tar.gz archive ({err}). Download it again from {PAGE}"
        ) from err
    _refuse_missing(path, missing)


def _verifying() -> bool:
    return os.environ.get("CIFAR10_UNVERIFIED", "0") in ("", "0")


def _check_archive(path: Path) -> None:
    size_bytes = path.stat().st_size
    if size_bytes < ARCHIVE_BYTES:
        raise ValueError(
            f"{path} is cut short: it has {size_bytes:,} of {ARCHIVE_BYTES:,} bytes. "
            f"Download it again from {PAGE}, or set CIFAR10_UNVERIFIED=1 if it is a sample."
        )
    with path.open("rb") as file:
        found = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    _compare(path, found=found, published=ARCHIVE_DIGEST)


def _compare(path: Path, *, found: str, published: str) -> None:
    if found != published:
        raise ValueError(
            f"{path} is not the published file: its MD5 is {found} instead of {published}. "
            f"Download it again from {PAGE}, or set CIFAR10_UNVERIFIED=1 to read it anyway."
        )


def _refuse_missing(path: Path, missing: list[str]) -> None:
    if missing:
        raise ValueError(
            f"{path} lacks {', '.join(missing)}. CIFAR-10 has {', '.join(DIGESTS)} in a folder "
            f"{FOLDER}. Download it again from {PAGE}"
        )


def _encode(text: str, _encoding: str) -> bytes:
    return text.encode("latin1")


# A pickle is a program; what it may call is all that matters, and these only build arrays and
# bytes. Published files use `numpy.core`; the rest is for files that newer versions wrote.
_REBUILD = np.empty(0).__reduce_ex__(2)[0]
_REBUILD_5 = np.empty(0).__reduce_ex__(5)[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy.core.numeric", "_frombuffer"): _REBUILD_5,
    ("numpy._core.numeric", "_frombuffer"): _REBUILD_5,
    ("_codecs", "encode"): _encode,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it wants to call {module_name}.{global_name}, and only arrays may be in it"
            ) from None


def _parse(name: str, content: bytes) -> Examples:
    """Return images and labels of one batch, from its pickle."""
    try:
        batch = _ArrayUnpickler(io.BytesIO(content), encoding="bytes").load()
    except (
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    ) as err:
        raise ValueError(f"{name} is no batch of CIFAR-10, or is damaged: {err}") from err
    if not isinstance(batch, dict) or not {b"data", b"labels"} <= batch.keys():
        found = sorted(map(str, batch)) if isinstance(batch, dict) else type(batch).__name__
        raise ValueError(f"{name} holds {found}; a batch of CIFAR-10 holds b'data' and b'labels'")
    images, labels = np.asarray(batch[b"data"]), np.asarray(batch[b"labels"])
    rows = 10_000 if _verifying() else labels.size
    if images.dtype != np.uint8 or images.shape != (rows, 3072):
        raise ValueError(
            f"The images of {name} are {images.dtype} of shape {images.shape}; "
            f"those of CIFAR-10 are uint8 of shape ({rows}, 3072)"
        )
    whole = labels.shape == (rows,) and labels.dtype.kind in "iu"
    if not whole or labels.min() < 0 or labels.max() > 9:
        raise ValueError(f"The labels of {name} are not {rows} whole numbers from 0 to 9: {labels}")
    return images.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), labels.astype(np.uint8)

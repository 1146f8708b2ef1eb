"""Read Fashion-MNIST: 60,000 photographs of clothes, 28x28 grey, in 10 classes.

Other examples import this module; it is no model file. The data are Debian's package
`dataset-fashion-mnist`, the cache of `keras.datasets.fashion_mnist`, or the same four files in the
folder that the environment variable `FASHION_MNIST` names. On a cluster the folder has to be
readable from every node.
"""

import gzip
import math
import os
import zlib
from pathlib import Path

import numpy as np

CLASSES = [
    *("T-shirt", "trouser", "pullover", "dress", "coat"),
    *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
]
IMAGES, LABELS = "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"


def load_fashion_mnist() -> tuple[np.ndarray, np.ndarray]:
    """Return the 60,000 training images, of shape (n, 28, 28), and their labels; all uint8.

    The published order is random. The 10,000 test images are not read.

    Raises:
        FileNotFoundError: The data are nowhere; the message says how to get them.
        ValueError: What was found is not Fashion-MNIST, or is damaged.
    """
    folder = find_fashion_mnist()
    images, labels = (_read(folder / name) for name in (IMAGES, LABELS))
    if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{folder} holds images of shape {images.shape} and labels of shape {labels.shape}; "
            "Fashion-MNIST has (60000, 28, 28) and (60000,)"
        )
    if labels.max() > 9:
        raise ValueError(f"{folder / LABELS} has the label {labels.max()}; allowed are 0 to 9")
    return images, labels


def find_fashion_mnist() -> Path:
    """Return the folder of the data.

    Raises:
        FileNotFoundError: There is none.
    """
    given = os.environ.get("FASHION_MNIST")
    cache = Path(os.environ.get("KERAS_HOME", "~/.keras")).expanduser()
    places = [Path("/usr/share/datasets/fashion-mnist"), cache / "datasets" / "fashion-mnist"]
    if given:
        places = [Path(given).expanduser()]
    for place in places:
        if (place / IMAGES).is_file() and (place / LABELS).is_file():
            return place
    raise FileNotFoundError(
        f"Fashion-MNIST was not found: {' and '.join(map(str, places))} "
        f"{'do' if len(places) > 1 else 'does'} not have {IMAGES} and {LABELS}.\n"
        "Install Debian's package dataset-fashion-mnist, run "
        "`python -c 'import keras; keras.datasets.fashion_mnist.load_data()'`, "
        "or set FASHION_MNIST to the folder of these files."
    )


def _read(path: Path) -> np.ndarray:
    """Return the array of a file in the IDX format: a magic number, the sizes, the bytes."""
    try:
        content = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error) as err:
        raise ValueError(f"{path} cannot be read ({err}); install it again") from err
    dimensions = content[3] if content[:3] == b"\0\0\x08" else 0
    sizes = np.frombuffer(content[4 : 4 + 4 * dimensions], ">i4").tolist()
    values = content[4 + 4 * dimensions :]
    if not dimensions or len(values) != math.prod(sizes):
        raise ValueError(f"{path} is no IDX file of bytes, or is cut short; install it again")
    return np.frombuffer(values, np.uint8).reshape(sizes)

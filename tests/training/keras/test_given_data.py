"""The data that Keras does not take is named before the first trial, with what to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from attempts import Attempts
from hptune.errors import ModelFileError
from hptune.training.keras.given_data import check_kinds
from keras_models import BUILD

pytestmark = pytest.mark.keras

X = np.arange(12.0).reshape(6, 2)
WORDS = ["a", "b", "c", "d", "e", "f"]
ROWS = [[1.0] * (1 + each % 3) for each in range(6)]
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1]})


def objects(values: Any) -> np.ndarray[Any, Any]:
    made = np.empty(len(values), dtype=object)
    made[:] = values
    return made


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.array(WORDS), "holds texts; Keras takes numbers: .*StringLookup"),
        (np.array(WORDS).astype("S"), "holds bytes"),
        (objects([["a"]] * 6), "holds rows of different lengths.*pad_sequences"),
        (np.array([[each] for each in WORDS], dtype=object), "holds texts"),
        (np.full(6, np.datetime64("2026")), "dates"),
        (np.full(6, np.timedelta64(1, "D")), "holds spans of time.*such as seconds"),
        (np.zeros(6, dtype=[("a", "f4"), ("b", "f4")]), "holds records.*for each field"),
        (X.astype(object), r'has the dtype object.*\.astype\("float32"\)'),
        (np.array([1.0, None, 2.0, 3.0, 4.0, 5.0], dtype=object), "holds None.*what is missing"),
        (objects([np.ones(1 + each % 3) for each in range(6)]), "rows of different lengths"),
        (WORDS, "is a list of texts.*np.array"),
        (ROWS, "is a list of numbers"),
        (X.tolist(), "is a list of numbers"),
        (FRAME.assign(city=WORDS), "holds texts in the column 'city'"),
        (FRAME.assign(when=pd.Timestamp("2026-01-01")), "holds dates in the column 'when'"),
        (FRAME.assign(kind=pd.Categorical(WORDS)), "holds texts in the column 'kind'"),
        (FRAME.assign(yes=True), "has columns of different types"),
        (FRAME.astype("Float32"), "has the dtype Float32 in the column 'a'"),
        (pd.Series(WORDS), "holds texts"),
        ([X, np.array(WORDS)], "holds texts"),
        ({"one": X, "two": np.array(WORDS)}, "holds texts"),
    ],
)
@pytest.mark.parametrize("place", ["x", "y", "x of the validation data"])
def test_what_keras_does_not_take(given: Any, words: str, place: str) -> None:
    good = np.zeros((6, 1))
    arguments, keywords = {
        "x": ((given, good), {}),
        "y": ((X, given), {}),
        "x of the validation data": ((X, good), {"validation_data": (given, good)}),
    }[place]
    with pytest.raises(ModelFileError, match=f"^{place}.*{words}"):
        check_kinds(arguments, keywords)


@pytest.mark.parametrize(
    "given",
    [X, X.astype("float16"), X > 1, FRAME, FRAME["a"], scipy.sparse.csr_matrix(X), [X, X], {"a": X},
     objects(WORDS), iter([X]), None],
)  # fmt: skip
def test_what_keras_takes(given: Any) -> None:
    assert check_kinds((given, X), {}) == []


def test_of_complex_numbers_keras_uses_the_real_parts() -> None:
    (note,) = check_kinds((X + 1j, X), {})
    assert (
        note == "x of the training data holds complex numbers, of which Keras uses the real parts"
    )


def test_texts_are_told_of_before_the_first_trial(attempts: Attempts) -> None:
    text = """
def load_data():
    x, y = arrays(32)
    return (x, np.array(["a"] * 32)), None
"""
    with pytest.raises(ModelFileError, match=r"^y of the training data holds texts"):
        attempts.probe(BUILD + text)

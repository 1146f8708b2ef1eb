"""The data that `load_data` returns, as Keras's `fit` takes them: read and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...errors import ModelFileError

_NAMES = ("x", "y", "sample_weight")
_KINDS = {
    "U": "texts",
    "S": "bytes",
    "M": "dates",
    "m": "spans of time",
    "V": "records",
    "NoneType": "None",
    "str": "texts",
    "list": "rows of different lengths",
    "ndarray": "rows of different lengths",
}
"""What an array holds, by the kind of its dtype, or of one of dtype object by its elements."""
_SPARSE = "sparse_categorical_crossentropy"
_REMEDIES = {
    "texts": "turn them into numbers before, such as with keras.layers.StringLookup; or, if a "
    "layer of the model does that on TensorFlow, give one column of them as x.astype(object)",
    "bytes": "turn them into numbers, such as with np.frombuffer",
    "dates": "turn them into numbers, such as the days since the first one",
    "spans of time": "turn them into numbers, such as seconds",
    "records": "give one array for each field",
    "None": "put a number in place of what is missing",
    "rows of different lengths": "make them equally long, such as with keras.utils.pad_sequences",
}


def fit_arguments(data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of `model.fit` for the data that `load_data` returned.

    Raises:
        ModelFileError: It is not a pair (train, validation).
    """
    if not isinstance(data, tuple | list) or len(data) != 2:
        many = f" of {len(data)}" if isinstance(data, tuple | list) else ""
        raise ModelFileError(
            f"load_data() returned a {type(data).__name__}{many}; it must return a pair "
            "(train, validation), for example ((x, y), (x_val, y_val)) or two datasets "
            "(validation may be None)"
        )
    train, validation = data
    if hasattr(validation, "shape"):
        raise ModelFileError(
            "load_data() returned two arrays; it must return a pair (train, validation), each "
            "with its inputs and targets: ((x, y), (x_val, y_val))"
        )
    # A longer list is of samples or inputs, and so one argument.
    is_parts = isinstance(train, tuple) or (isinstance(train, list) and len(train) in (2, 3))
    if is_parts and len(train) > 3:
        raise ModelFileError(
            f"load_data() returned training data of {len(train)} parts; allowed are (x, y) and "
            "(x, y, sample_weight), where x may be a list or dict of inputs; or a dataset"
        )
    arguments = tuple(train[:2]) if is_parts else (train,)
    keywords: dict[str, Any] = {}
    if is_parts and len(train) == 3:
        keywords["sample_weight"] = train[2]
    if validation is not None:
        is_arrays = isinstance(validation, tuple | list)
        if is_arrays and validation and getattr(validation[0], "shape", (1,))[:1] == (0,):
            raise ModelFileError(
                "the validation data has no sample; give it some, or None to train without any"
            )
        keywords["validation_data"] = tuple(validation) if is_arrays else validation
    return arguments, keywords


def check_lengths(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Check that inputs, targets and weights are equally long, where they are single arrays.

    Args:
        arguments: The first arguments of `model.fit`, as `fit_arguments` returns them.
        keywords: The others.

    Raises:
        ModelFileError: They are not.
    """
    for name, parts in _parts(arguments, keywords).items():
        shapes = {part: getattr(each, "shape", ()) for part, each in parts.items()}
        lengths = {
            part: shape[0] for part, shape in shapes.items() if shape and isinstance(shape[0], int)
        }
        if len(set(lengths.values())) > 1:
            raise ModelFileError(
                f"the {name} data has unequal lengths: "
                f"{', '.join(f'{part} has {length}' for part, length in lengths.items())}; give "
                "each sample of x its own target (and weight, if any)"
            )


def check_kinds(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[str]:
    """Check that the arrays hold what Keras takes, which names only their dtype when it trains.

    Args:
        arguments: The first arguments of `model.fit`, as `fit_arguments` returns them.
        keywords: The others.

    Returns:
        Lines on what Keras changes silently.

    Raises:
        ModelFileError: They do not.
    """
    notes: list[str] = []
    for kind, parts in _parts(arguments, keywords).items():
        for name, part in parts.items():
            _check_kind(part, f"{name} of the {kind} data", notes)
    return notes


def check_labels(model: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> None:
    """Check that labels are numbers of the model's classes, where its loss takes such numbers.

    Keras does not: with a wrong label, a loss is an error, NaN, or wrong, depending on the backend.

    Args:
        model: A compiled model; only one with a single output is checked.
        arguments: The first arguments of `model.fit`, as `fit_arguments` returns them.
        keywords: The others.

    Raises:
        ModelFileError: A label is none of them.
    """
    import numpy as np

    classes, ignored = _classes(model)
    if classes is None:
        return
    for kind, parts in _parts(arguments, keywords).items():
        labels = parts.get("y")
        if not hasattr(labels, "to_numpy") and not isinstance(labels, np.ndarray):
            continue  # a dataset, or several outputs
        labels = np.asarray(labels)
        if ignored is not None:
            labels = labels[labels != ignored]
        if not labels.size or labels.dtype.kind not in "iuf":
            continue
        least, most = labels.min(), labels.max()
        if least < 0 or most >= classes:
            raise ModelFileError(
                f"y of the {kind} data has labels from {least:g} to {most:g}, but {_SPARSE} with "
                f"{classes} outputs takes 0 to {classes - 1}: number the classes from 0, and give "
                "the last layer one output for each"
            )


def _classes(model: Any) -> tuple[int | None, int | None]:
    """Return how many classes a model's loss takes by number, and the one that it ignores."""
    import keras

    loss: Any = getattr(model, "loss", None)
    outputs = list(getattr(model, "outputs", None) or [])
    by_object = isinstance(loss, keras.losses.SparseCategoricalCrossentropy)
    by_name = loss == _SPARSE or loss is keras.losses.sparse_categorical_crossentropy
    settings = loss.get_config() if by_object else {}
    if len(outputs) != 1 or not (by_object or by_name) or settings.get("axis", -1) != -1:
        return None, None
    return outputs[0].shape[-1], settings.get("ignore_class")


def batch_like(model: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    """Return what a batch of the training data looks like: tensors without values.

    Returns:
        Inputs, targets and weights as KerasTensor; None if only drawing from the data can tell.
    """
    import keras

    if not arguments:
        return None
    x, y, *_ = (*arguments, None, None)
    batch = x[0] if isinstance(x, keras.utils.PyDataset) else getattr(x, "element_spec", None)
    size: int | None = None
    if batch is None:
        batch = (x, y, keywords.get("sample_weight"))
        inputs = getattr(model, "inputs", None) or ()
        size = next((each.shape[0] for each in inputs), None) or keywords.get("batch_size") or 32

    def symbol(array: Any) -> Any:
        if array is None:
            return None
        kind = array.iloc[:2].to_numpy().dtype if hasattr(array, "columns") else array.dtype
        dtype = "string" if getattr(kind, "kind", "") == "O" else kind
        length, *shape = array.shape
        length = length if size is None else min(length, size)
        return keras.KerasTensor((length, *shape), keras.backend.standardize_dtype(dtype))

    try:
        return keras.tree.map_structure(symbol, batch)
    except (AttributeError, TypeError, ValueError):  # a generator, or tensors of unknown rank
        return None


def as_arguments(validation: Any, keywords: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return validation data as `fit_arguments` returns training data, with other keywords."""
    parts = validation if isinstance(validation, tuple) else (validation,)
    return parts[:2], {**keywords, "sample_weight": parts[2] if len(parts) > 2 else None}


def sample_shapes(batch: Any) -> list[Any]:
    """Return the shapes of one sample of a `batch_like`; empty if they are not known."""
    import keras

    return [getattr(each, "shape", ())[1:] for each in keras.tree.flatten(batch)]


def _parts(arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parts of the training and the validation data, by name."""
    validation = keywords.get("validation_data")
    x, y, *_ = (*arguments, None, None)
    return {
        "training": dict(zip(_NAMES, (x, y, keywords.get("sample_weight")), strict=True)),
        "validation": dict(
            zip(_NAMES, validation if isinstance(validation, tuple) else (), strict=False)
        ),
    }


def _check_kind(part: Any, name: str, notes: list[str]) -> None:
    if isinstance(part, list | tuple) and not hasattr(_first(part), "shape"):
        given = "texts" if isinstance(_first(part), str) else "numbers"
        raise ModelFileError(
            f"{name} is a list of {given}; Keras takes arrays, and a list for several inputs "
            "only: give np.array(…)"
        )
    for array in _leaves(part):
        found, remedy = _found(array)
        if found:
            raise ModelFileError(f"{name} {found}; Keras takes numbers: {remedy}")
        if getattr(getattr(array, "dtype", None), "kind", "") == "c":
            notes.append(f"{name} holds complex numbers, of which Keras uses the real parts")


def _first(part: Any) -> Any:
    while isinstance(part, list | tuple) and part:
        part = part[0]
    return part


def _leaves(part: Any) -> Iterator[Any]:
    inner = part.values() if isinstance(part, dict) else part
    if isinstance(part, dict | list | tuple):
        for each in inner:
            yield from _leaves(each)
    elif hasattr(part, "shape"):
        yield part


def _found(array: Any) -> tuple[str, str]:
    """Return what an array holds that Keras does not take, and what to do; empty for nothing."""
    import keras
    import numpy as np

    if hasattr(array, "columns"):  # a data frame
        for column in array.columns:
            if (found := _found(array[column]))[0]:
                return f"{found[0]} in the column {column!r}", found[1]
        if array.iloc[:1].to_numpy().dtype.kind == "O":
            return "has columns of different types", 'call .astype("float32")'
        return "", ""
    try:
        keras.backend.standardize_dtype(array.dtype)
    except ValueError:
        pass
    else:
        return "", ""
    head = np.asarray(array[:100])  # also of a type of pandas' own
    words = _KINDS.get(head.dtype.kind, "")
    if head.dtype.kind == "O":
        names = {type(value).__name__ for value in head.ravel()}
        words = next((_KINDS[name] for name in _KINDS if name in names), "")
        is_plain = isinstance(array, np.ndarray) and array.ndim == 1
        if names == {"str"} and is_plain and keras.config.backend() == "tensorflow":
            return "", ""
    if not words:
        return f"has the dtype {array.dtype}", 'call .astype("float32")'
    return f"holds {words}", _REMEDIES[words]

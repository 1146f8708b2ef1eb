"""What each rank computes on its own part of the data, made equal on all ranks.

For frameworks whose processes each have a model of their own. The calls are collective: every rank
makes them at the same points. The arrays are small, and go over hptune's own connections.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from ..parallel.ranks import Ranks
from .base import ParallelTrainingError

_SEED_STEP = 1 << 24
"""Distance between the seeds of two ranks; a layer draws less often than this in a training."""


def average_statistics(ranks: Ranks, model: Any) -> None:
    """Give all ranks the mean of the non-trainable variables that differ, such as batch statistics.

    The variance of BatchNormalization is that of the parts then, as each rank normalises its own.
    """
    known = [
        variable
        for variable in model.non_trainable_variables
        if keras.backend.is_float_dtype(keras.backend.standardize_dtype(variable.dtype))
    ]
    digests = b"".join(hashlib.blake2b(_array(each).tobytes(), digest_size=8).digest()
                       for each in known)  # fmt: skip
    gathered = ranks.gather(digests)
    # Most are equal, such as the weights of frozen layers, and need not be sent.
    differs = [each for i, each in enumerate(known)
               if len({digests[8 * i : 8 * i + 8] for digests in gathered}) > 1]  # fmt: skip
    _assign(differs, _reduced(ranks, differs, [True] * len(differs)))


@contextlib.contextmanager
def global_metrics(ranks: Ranks, model: Any) -> Iterator[None]:
    """Let the model's metrics hold the counts of all ranks; afterwards those of this rank again."""
    variables = [
        variable for variable in model.metrics_variables if variable.aggregation in ("sum", "mean")
    ]
    own = [_array(variable) for variable in variables]
    _assign(variables, _reduced(ranks, variables, [x.aggregation == "mean" for x in variables]))
    try:
        yield
    finally:
        _assign(variables, own)


def mean_logs(ranks: Ranks, logs: Mapping[str, Any]) -> dict[str, float]:
    """Return the means over the ranks of those logs that are numbers and differ.

    A `train_step` of the user's own may return numbers that no metric holds.
    """
    own = {}
    for name, value in logs.items():
        with contextlib.suppress(TypeError, ValueError):
            own[name] = float(value)
    given = [json.loads(each) for each in ranks.gather(json.dumps(own).encode())]
    columns = {name: [each.get(name, own[name]) for each in given] for name in own}
    # The mean of equal numbers could differ from them by rounding.
    return {name: sum(column) / len(column) for name, column in columns.items()
            if len(set(column)) > 1}  # fmt: skip


def any_true(ranks: Ranks, *, own: bool) -> bool:
    """Return whether it is true on any rank."""
    return b"1" in ranks.gather(b"1" if own else b"0")


def draw_differently(ranks: Ranks, model: Any) -> None:
    """Let each rank draw other random numbers, such as Dropout's, for its part of the batches."""
    for variable in model.non_trainable_variables:
        if variable.path.endswith("seed_generator_state"):
            seed, count = _array(variable)
            variable.assign([(int(seed) + ranks.rank * _SEED_STEP) % 2**31, int(count)])


def _reduced(ranks: Ranks, variables: Sequence[Any], are_means: Iterable[bool]) -> list[Any]:
    """Return the sum or the mean of each variable over the ranks."""
    if not variables:
        return []
    flat = np.concatenate(
        [np.asarray(_array(variable), "float64").ravel() for variable in variables]
    )
    given = [np.frombuffer(each, "float64") for each in ranks.gather(flat.tobytes())]
    if any(len(each) != len(flat) for each in given):
        raise ParallelTrainingError(
            "the ranks of this trial have variables of different sizes; build_model must build "
            "the same model on every rank"
        )
    total = np.sum(given, axis=0)
    reduced, at = [], 0
    for each, is_mean in zip(variables, are_means, strict=True):
        shape = tuple(each.shape)
        size = int(np.prod(shape, dtype="int64"))
        part = total[at : at + size].reshape(shape)
        reduced.append(part / ranks.world_size if is_mean else part)
        at += size
    return reduced


def _assign(variables: Sequence[Any], values: Sequence[Any]) -> None:
    for variable, value in zip(variables, values, strict=True):
        variable.assign(value)


def _array(variable: Any) -> Any:
    return np.array(keras.ops.convert_to_numpy(variable))

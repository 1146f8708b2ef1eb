"""Results that the user's training returns, read as metrics."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .context import as_metrics


def metrics_of(result: Any, name: str, names: Sequence[str] = ()) -> dict[str, float] | None:
    """Return the metrics in a result; None if it is no result.

    >>> metrics_of(0.5, "loss"), metrics_of((0.5, 3), "loss", ["loss", "size"])
    ({'loss': 0.5}, {'loss': 0.5, 'size': 3.0})
    >>> metrics_of([{"loss": 1, "size": 3}, {"loss": 2}], "loss")
    {'loss': 1.5}

    Args:
        result: A number; a tuple with a number for each name; a dict of metrics; or a list of
            such results, of which the mean is taken.
        name: The name of a number alone.
        names: The names of the numbers in a tuple.
    """
    if isinstance(result, Mapping):
        return as_metrics(result)
    if isinstance(result, tuple) and len(result) == len(names):
        measured = as_metrics(dict(zip(names, result, strict=True)))
        return measured if len(measured) == len(names) else None
    if isinstance(result, list) and result:
        several = [metrics_of(each, name, names) for each in result]
        found = [each for each in several if each is not None]
        common = [key for key in several[0] or () if all(key in each for each in found)]
        means = {key: statistics.mean(each[key] for each in found) for key in common}
        return means if len(found) == len(several) else None
    return as_metrics({name: result}) or None

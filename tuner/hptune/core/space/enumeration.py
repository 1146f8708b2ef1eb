"""The configurations of a space over given values: counting, indexing, iteration.

A space with conditions is a tree: earlier values decide which parameters are active. Walking the
tree to count it would take as long as the search. A value affects later parameters only by the
conditions that it meets, so subtrees with the same conditions met are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ..trial import Params, ParamValue
from .parameters import Condition, Parameter

_Run = tuple[int, ParamValue]
"""Number of adjacent values that meet the same conditions, and one of them."""


class Configurations:
    """The distinct configurations of a space over given values, in a fixed order.

    The order is that of nested loops over the declarations: the value of the last active
    parameter changes fastest. Values come in the order of `Parameter.values`.

    >>> from hptune.core.space.parameters import BooleanParameter, IntParameter
    >>> deep = BooleanParameter("deep")
    >>> layers = IntParameter("layers", 1, 2, conditions=(Condition("deep", (True,)),))
    >>> every = Configurations((deep, layers), (deep.values, layers.values))
    >>> every.count, list(every)
    (3, [{'deep': False}, {'deep': True, 'layers': 1}, {'deep': True, 'layers': 2}])
    >>> every.at(2)
    {'deep': True, 'layers': 2}

    Args:
        parameters: The declarations, parents before children.
        axes: The values of each declaration; none is empty.
    """

    def __init__(
        self, parameters: Sequence[Parameter], axes: Sequence[Sequence[ParamValue]]
    ) -> None:
        self._parameters = tuple(parameters)
        self._axes = tuple(axes)
        self._dependencies = _dependencies(self._parameters)
        self._runs = tuple(
            _runs(axis, self._dependencies[i + 1].get(parameter.name, ()))
            for i, (parameter, axis) in enumerate(zip(self._parameters, axes, strict=True))
        )
        self._counted: dict[tuple[object, ...], int] = {}
        self.count = self._count_from(0, {})
        """Number of configurations."""

    def at(self, index: int) -> dict[str, ParamValue]:
        """Return the configuration with this index, from 0 to `count` - 1.

        Raises:
            IndexError: The index is out of range.
        """
        if not 0 <= index < self.count:
            raise IndexError(f"there is no configuration {index}: there are {self.count}")
        chosen: dict[str, ParamValue] = {}
        for i, parameter in enumerate(self._parameters):
            if not is_open(parameter, chosen):
                continue
            start = 0
            for length, example in self._runs[i]:
                each = self._count_from(i + 1, {**chosen, parameter.name: example})
                if index < length * each:
                    step, index = divmod(index, each)
                    chosen[parameter.name] = self._axes[i][start + step]
                    break
                index -= length * each
                start += length
        return chosen

    def __iter__(self) -> Iterator[dict[str, ParamValue]]:
        return map(self.at, range(self.count))

    def _count_from(self, i: int, chosen: Params) -> int:
        """Count the completions of the first `i` declarations' values."""
        future = (
            i,
            *(
                (name in chosen, *(condition.holds(chosen) for condition in conditions))
                for name, conditions in self._dependencies[i].items()
            ),
        )
        if future in self._counted:
            return self._counted[future]
        values = dict(chosen)
        ways = 1
        for j in range(i, len(self._parameters)):
            parameter = self._parameters[j]
            if not is_open(parameter, values):
                continue
            runs = self._runs[j]
            if len(runs) > 1:
                ways *= sum(
                    length * self._count_from(j + 1, {**values, parameter.name: example})
                    for length, example in runs
                )
                break
            ways *= runs[0][0]
            values[parameter.name] = runs[0][1]
        self._counted[future] = ways
        return ways


def is_open(parameter: Parameter, chosen: Params) -> bool:
    """Return whether a declaration takes a value: it is active, and its name has no value yet.

    If two declarations of one name are active at once, the first one counts, as in KerasTuner.
    """
    return parameter.name not in chosen and all(
        condition.holds(chosen) for condition in parameter.conditions
    )


def _dependencies(parameters: Sequence[Parameter]) -> list[dict[str, tuple[Condition, ...]]]:
    """Return, for each index, the names that later declarations depend on, with the conditions."""
    watched: list[dict[str, tuple[Condition, ...]]] = [{}]
    times = Counter(parameter.name for parameter in parameters)
    for parameter in reversed(parameters):
        later = dict(watched[-1])
        if times[parameter.name] > 1:
            # Even without a condition on it: an earlier declaration may have given it a value.
            later.setdefault(parameter.name, ())
        for condition in parameter.conditions:
            known = later.get(condition.name, ())
            if condition not in known:
                later[condition.name] = (*known, condition)
        watched.append(later)
    return watched[::-1]


def _runs(axis: Sequence[ParamValue], conditions: Sequence[Condition]) -> tuple[_Run, ...]:
    """Divide an axis into runs of values that meet the same conditions."""
    special = set()
    for condition in conditions:
        for value in condition.values:
            index = _index(axis, value)
            if index is not None:
                special.add(index)
    runs: list[_Run] = []
    start = 0
    for index in sorted(special):
        if index > start:
            runs.append((index - start, axis[start]))
        runs.append((1, axis[index]))
        start = index + 1
    if start < len(axis):
        runs.append((len(axis) - start, axis[start]))
    return tuple(runs)


def _index(axis: Sequence[ParamValue], value: ParamValue) -> int | None:
    if isinstance(axis, range):  # may be huge; its search is fast for an int only
        if not isinstance(value, int | float) or value != int(value) or int(value) not in axis:
            return None
        return axis.index(int(value))
    try:
        return axis.index(value)
    except ValueError:
        return None

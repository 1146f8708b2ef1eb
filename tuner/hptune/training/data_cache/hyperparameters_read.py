"""The hyperparameters that a call of `load_data(hp)` reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class HyperparametersRead:
    """Hyperparameters that one call has read.

    Attributes:
        values: The values as `repr` shows them, by name; None for a name without a value.
        all: Whether it has read all that there were.
    """

    values: Mapping[str, str | None]
    all: bool

    def match(self, values: Mapping[str, object]) -> bool:
        """Return whether a call with these hyperparameters would read the same."""
        if self.all and set(values) != set(self.values):
            return False
        return all(
            (repr(values[name]) if name in values else None) == value
            for name, value in self.values.items()
        )


NOTHING_READ = HyperparametersRead({}, all=False)


class RecordedValues(MutableMapping[str, Any]):
    """The values of hyperparameters, which remembers the names that are read.

    Attributes:
        plain: The values.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.plain = dict(values)
        self._before = dict(values)
        self._names: set[str] = set()
        self._all = False

    @property
    def read(self) -> HyperparametersRead:
        """What has been read so far."""
        names = self._names | (set(self._before) if self._all else set())
        found = {name: repr(self._before[name]) if name in self._before else None for name in names}
        return HyperparametersRead(found, self._all)

    def __getitem__(self, name: str) -> Any:
        self._names.add(name)
        return self.plain[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self.plain[name] = value

    def __delitem__(self, name: str) -> None:
        del self.plain[name]

    def __iter__(self) -> Iterator[str]:
        self._all = True
        return iter(self.plain)

    def __len__(self) -> int:
        self._all = True
        return len(self.plain)

    # A dict has these too, and the user's code may use them.

    def __repr__(self) -> str:
        return repr(self.copy())

    def __or__(self, other: dict[str, Any]) -> dict[str, Any]:
        return self.copy() | other

    def __ror__(self, other: dict[str, Any]) -> dict[str, Any]:
        return other | self.copy()

    def copy(self) -> dict[str, Any]:
        """Return the values as a plain dict."""
        return dict(self)


@contextlib.contextmanager
def recording(hp: Any) -> Iterator[RecordedValues]:
    """Record what is read of the hyperparameters, all of whose methods use its values."""
    hp.values = recorded = RecordedValues(hp.known_values)
    try:
        yield recorded
    finally:
        hp.values = recorded.plain

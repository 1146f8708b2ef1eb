"""What the tests of a suite share."""

from __future__ import annotations

import functools
from typing import TypeVar

_Suite = TypeVar("_Suite")


def shared(suite: _Suite) -> _Suite:
    """Return one object for all tests of a suite's class, which begin with one of their own each.

    It is the test's own if a fixture of the author has set something on it, which `make` may read.
    """
    return suite if vars(suite) else _of_class(type(suite))  # type: ignore[arg-type]  # it has a hash


@functools.cache
def _of_class(suite: type[_Suite]) -> _Suite:
    return suite()

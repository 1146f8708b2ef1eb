"""One thread for linear algebra, so that suggestions do not depend on the number of cores."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterator

from threadpoolctl import ThreadpoolController


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy and SciPy compute with one thread: with several, rounding errors differ.

    Call it only before SciPy is used, since it loads a part of it.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _libraries() -> ThreadpoolController:
    # The controller knows the libraries that are loaded. SciPy has one besides NumPy's, which
    # `import scipy` does not load.
    importlib.import_module("scipy.linalg")
    return ThreadpoolController()

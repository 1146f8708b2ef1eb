"""Pickles of what a user gives in Python: functions and classes of a script or notebook."""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar


def pickled(value: object) -> bytes:
    """Return a pickle that `pickle.loads` reads in any process, with the code of functions.

    A function keeps the name of its file, which cloudpickle replaces from version 3.1.3 on: errors
    show the user's lines.

    Raises:
        Exception: Something in it cannot be pickled.
    """
    import cloudpickle

    known = cloudpickle.Pickler.dispatch_table

    def code(of: CodeType) -> tuple[Any, ...]:
        make, arguments = known[CodeType](of)
        named = (of.co_filename if each == "<dynamic-code>" else each for each in arguments)
        return make, tuple(named)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not typed
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: code}, known)

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()

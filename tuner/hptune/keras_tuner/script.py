"""Whole scripts of KerasTuner, run as they are."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import keras_tuner as tuners
from ..errors import HptuneError, ModelFileError, StudyError
from ..user_code.foreign_searches import replaced_on_import
from ..user_code.user_errors import one_line, user_traceback


def run_script(path: Path, settings: Mapping[str, Any], arguments: Sequence[str] = ()) -> None:
    """Run a script of KerasTuner as it is, with these tuners in place of KerasTuner's.

    Args:
        path: The script.
        settings: Settings of `hptune.Tuner` that come before those of the script.
        arguments: The script's own arguments.

    Raises:
        ModelFileError: The script has failed before its first search, or has not searched.
        StudyError: It has failed later.
        BaseException: What a search raised, or the script to end itself.
    """
    tuners.script_settings.update(settings)
    before = len(tuners.searched)
    try:
        with _as_main(path, arguments), replaced_on_import(_ours):
            runpy.run_path(str(path), run_name="__main__")
    except HptuneError:
        raise
    except Exception as error:
        kind = ModelFileError if len(tuners.searched) == before else StudyError
        raise kind(f"{path.name}: {one_line(error)}", user_traceback(error)) from error
    finally:
        tuners.script_settings.clear()
    if len(tuners.searched) == before:
        raise ModelFileError(
            f"{path.name} has ended without a search: no tuner's search(…) was called"
        )


@contextmanager
def _as_main(path: Path, arguments: Sequence[str]) -> Iterator[None]:
    """Let a script see what it sees when Python runs it."""
    own, folders = sys.argv, [*sys.path]
    sys.argv, sys.path[:0] = [str(path), *arguments], [str(path.parent.resolve())]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = own, folders


def _ours(modules: Mapping[str, Any]) -> list[tuple[Any, str, Any]]:
    """Return what replaces KerasTuner's tuners, once it is imported."""
    if not all(hasattr(modules.get("keras_tuner"), name) for name in tuners.__all__):
        return []
    ours = {name: getattr(tuners, name) for name in tuners.__all__}
    modules_of = (modules["keras_tuner"], modules["keras_tuner.tuners"])
    return [(module, name, tuner) for module in modules_of for name, tuner in ours.items()]

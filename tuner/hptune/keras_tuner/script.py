"""Whole scripts of KerasTuner, run as they are."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import keras_tuner as tuners
from ..errors import HptuneError, ModelFileError, StudyError
from ..user_code.user_errors import one_line, user_traceback
from ..user_code.watched_imports import imports_run_by, watched_imports


def run_script(
    path: Path,
    settings: Mapping[str, Any],
    arguments: Sequence[str] = (),
    *,
    say: Callable[[str], None] = lambda _: None,
) -> None:
    """Run a script of KerasTuner as it is, with these tuners in place of KerasTuner's.

    Args:
        path: The script.
        settings: Settings of `hptune.Tuner` that come before those of the script.
        arguments: The script's own arguments.
        say: Takes what is being imported, as from `watched_imports`.

    Raises:
        ModelFileError: The script has failed before its first search, or no tuner has trials.
        StudyError: It has failed later.
        BaseException: What a search raised, or the script to end itself.
    """
    tuners.script_settings.update(settings)
    tuners.made.clear()
    try:
        with watched_imports(say), _in_place_of_keras_tuners(), _as_main(path, arguments):
            runpy.run_path(str(path), run_name="__main__")
    except HptuneError as error:
        error.detail = error.detail or user_traceback(error)
        raise
    except Exception as error:
        kind = StudyError if any(oracle.trials for _, oracle in tuners.made) else ModelFileError
        raise kind(f"{path.name}: {one_line(error)}", user_traceback(error)) from error
    finally:
        tuners.script_settings.clear()
    if not any(oracle.trials for _, oracle in tuners.made):
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


@contextmanager
def _in_place_of_keras_tuners() -> Iterator[None]:
    """Put these tuners in place of KerasTuner's, as soon as a script imports it.

    It is not imported here: what a script does before that, such as setting KERAS_BACKEND, counts.
    """

    def run_and_replace(module: ModuleType, run: Callable[[ModuleType], None]) -> None:
        run(module)
        _replace(module)

    if "keras_tuner" in sys.modules:
        _replace(sys.modules["keras_tuner"])
    with imports_run_by(run_and_replace, "keras_tuner"):
        yield


def _replace(module: ModuleType) -> None:
    for each in (module, sys.modules["keras_tuner.tuners"]):
        vars(each).update({name: getattr(tuners, name) for name in tuners.__all__})

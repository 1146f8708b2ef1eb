"""Imports of frameworks, which take seconds: a process that waits can show which one it is."""

from __future__ import annotations

import contextlib
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_NAMES = {
    "jax": "JAX",
    "keras": "Keras",
    "keras_tuner": "KerasTuner",
    "tensorflow": "TensorFlow",
    "torch": "PyTorch",
}
_STAND_ON_OTHERS = ("keras", "keras_tuner")


@contextlib.contextmanager
def watched_imports(say: Callable[[str], None]) -> Iterator[None]:
    """Say what is being imported, and import it without the garbage collector.

    Args:
        say: Takes "importing TensorFlow" when that begins, and an empty text when no framework is
            imported any more. Of one that imports others, as TensorFlow imports JAX where it is
            installed, only its own name is said; of Keras also what it stands on.
    """
    now: list[str] = []

    def around(module: ModuleType, run: Callable[[ModuleType], None]) -> None:
        is_part = bool(now) and now[-1] not in _STAND_ON_OTHERS
        now.append(now[-1] if is_part else module.__name__)
        say(_words(now))
        try:
            with _without_collector():
                run(module)
        finally:
            now.pop()
            say(_words(now))

    with imports_run_by(around, *_NAMES):
        yield


@contextlib.contextmanager
def _without_collector() -> Iterator[None]:
    """Switch the garbage collector off, and leave to it only what comes later.

    What a framework's import makes stays, and the collector would walk through it again and again:
    a fifth of the import's time.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def _words(now: list[str]) -> str:
    return f"importing {_NAMES[now[-1]]}" if now else ""


@contextlib.contextmanager
def imports_run_by(
    run_by: Callable[[ModuleType, Callable[[ModuleType], None]], None], *names: str
) -> Iterator[None]:
    """Have these modules run by a function at their imports.

    Args:
        run_by: Called with a module and with what runs it.
        names: Names of modules that are not imported yet.
    """
    finder = _Finder(run_by, names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        finder.is_over = True
        with contextlib.suppress(ValueError):  # the user's code has removed it
            sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds modules as others do, and changes how they are run."""

    def __init__(
        self,
        run_by: Callable[[ModuleType, Callable[[ModuleType], None]], None],
        names: tuple[str, ...],
    ) -> None:
        self.is_over = False
        self._run_by = run_by
        self._names = names

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is; called by Python, and by what only asks if it is there."""
        if name not in self._names or self not in sys.meta_path:
            return None
        # The list stays as it is, as another thread may be going through it.
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        specs = (each.find_spec(name, path, target) for each in later if hasattr(each, "find_spec"))
        spec = next(filter(None, specs), None)
        if spec is not None and spec.loader is not None:
            loader, run = spec.loader, spec.loader.exec_module

            def run_module(module: ModuleType) -> None:
                vars(loader).pop("exec_module", None)
                # A lazy module runs when it is used. One loader may load all modules of a folder.
                if self.is_over or module.__name__ != name:
                    run(module)
                else:
                    self._run_by(module, run)

            loader.exec_module = run_module  # type: ignore[method-assign]
        return spec

"""The local modules that a model file imports, found without running it."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path

_MOST_FILES = 1000
"""Number of files at which the search ends: a model file in a large repository may name many."""


def local_modules(model: Path) -> list[Path]:
    """Return the modules and packages beside a model file that it imports, directly or not.

    Modules in other folders must be installed wherever the file runs. An import by a computed
    name, and files that are no modules, are not found.

    Args:
        model: The model file.

    Returns:
        Their files, all in the model file's folder or below it, without the model file itself.
    """
    root, found, waiting = model.parent, {model}, [model]
    while waiting and len(found) <= _MOST_FILES:
        for name in _imported(waiting.pop(), root):
            for path in _files_of(name, root):
                if path not in found:
                    found.add(path)
                    waiting.append(path)
    return sorted(found - {model})


def _imported(file: Path, root: Path) -> Iterator[str]:
    """Yield the absolute names of the modules that a file may import."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return
    package = file.relative_to(root).parent.parts
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for alias in node.names:
                    yield alias.name
            case ast.ImportFrom():
                if node.level > len(package) + 1:
                    continue
                above = package[: len(package) - node.level + 1] if node.level else ()
                source = ".".join(filter(None, (*above, node.module)))
                if source:
                    yield source
                for alias in node.names:
                    yield f"{source}.{alias.name}" if source else alias.name
            case ast.Call(func=function, args=[ast.Constant(value=str(name)), *_]):
                called = getattr(function, "attr", getattr(function, "id", ""))
                if called in ("import_module", "__import__"):
                    yield name


def _files_of(name: str, root: Path) -> Iterator[Path]:
    """Yield the files that Python runs to import a module from a folder."""
    folder = root
    for part in name.split("."):
        if not part.isidentifier():
            return
        with contextlib.suppress(OSError):
            if (init := folder / part / "__init__.py").is_file():
                yield init
            elif (module := folder / f"{part}.py").is_file():
                yield module
                return
        folder /= part

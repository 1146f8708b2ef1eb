"""The study's own copy of the user's code, for workers elsewhere and for models loaded later.

It has the model file, and the local modules that the file imports, which are found without running
it.
"""

from __future__ import annotations

import ast
import contextlib
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import ModelFileError
from ..files.access import replacing
from .model_file import CONSTANTS, module_digests, sha256
from .source import ObjectiveSource, SourceKind

CODE = "code"
"""The folder of the study's directory with copies of the model file and its local modules."""

_MOST_FILES = 1000
"""Number of files at which the search ends: a model file in a large repository may name many."""


def keep_copy(source: ObjectiveSource, directory: Path) -> Path | None:
    """Copy the model file into the study's directory; return None if its code is there anyway.

    Raises:
        ModelFileError: The model file is gone.
        OSError: The copy cannot be written.
    """
    if source.kind is not SourceKind.FILE:
        return None
    copy = copy_of(source, directory)
    try:
        _copy(Path(source.path), copy)
    except FileNotFoundError as error:
        raise ModelFileError(f"the model file {source.path} is gone; put it back") from error
    return copy


def _copy(file: Path, copy: Path) -> None:
    """Write a copy, which appears whole."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with replacing(copy) as fresh:
        shutil.copyfile(file, fresh)


def keep_modules(source: ObjectiveSource, directory: Path) -> Mapping[str, str]:
    """Copy the local modules of a model file next to its copy.

    Returns:
        The SHA-256 of each copy, by its path below the folder of copies.

    Raises:
        OSError: A copy cannot be written.
    """
    digests = {}
    for file, copy in _modules(source, directory).items():
        _copy(file, copy)
        digests[copy.relative_to(directory / CODE).as_posix()] = sha256(copy)
    return digests


def copies_of(source: ObjectiveSource, directory: Path) -> list[Path]:
    """Return where the copies of a model file and its modules are, files in folders first."""
    return [*sorted(_modules(source, directory).values(), reverse=True), copy_of(source, directory)]


def _modules(source: ObjectiveSource, directory: Path) -> dict[Path, Path]:
    model = Path(source.path)
    return {
        file: directory / CODE / file.relative_to(model.parent) for file in _local_modules(model)
    }


def copy_of(source: ObjectiveSource, directory: Path) -> Path:
    """Return where the copy of a model file is."""
    return directory / CODE / Path(source.path).name


def as_trained(source: ObjectiveSource, directory: Path) -> tuple[ObjectiveSource, str]:
    """Return the code of a study as its last run used it.

    Returns:
        The code; and a warning for the user if it was changed since, else an empty text.
    """
    if source.kind is SourceKind.PICKLE:
        modules = module_digests(source)
    else:
        modules = {str(file): sha256(copy) for file, copy in _modules(source, directory).items()}
    changed = [path for path, digest in modules.items() if digest not in ("", sha256(path))]
    since = "changed since the study ran"
    words = [f"{', '.join(changed)} {since}; the model may not be the same"] if changed else []
    copy = copy_of(source, directory)
    if source.kind is SourceKind.FILE and sha256(copy) not in ("", sha256(source.path)):
        words.append(f"{source.path} {since}; {copy} is used instead")
        source = replace(source, copy=str(copy))
    return source, "; ".join(words)


def changed_constants(source: ObjectiveSource, last: ObjectiveSource, directory: Path) -> list[str]:
    """Return which constants are written otherwise in a model file than in the last run.

    Args:
        source: Where the file is now.
        last: Where it was in the last run.
        directory: The study's directory.
    """
    if source.kind is not SourceKind.FILE:
        return []
    now, before = _constants(Path(source.path)), _constants(copy_of(last, directory))
    return [name for name in CONSTANTS if now.get(name) != before.get(name)]


def _constants(file: Path) -> dict[str, str]:
    """Return what a model file writes for its constants; empty if that cannot be read."""
    found: dict[str, str] = {}
    for each in _tree(file).body:
        if isinstance(each, ast.Assign | ast.AnnAssign) and each.value is not None:
            bound = [node for node in ast.walk(each) if isinstance(node, ast.Name)]
            names = [node.id for node in bound if isinstance(node.ctx, ast.Store)]
            found |= dict.fromkeys(names, ast.unparse(each.value))
    return found


def _local_modules(model: Path) -> list[Path]:
    """Return the modules and packages next to a model file that it imports, directly or not.

    Modules in other folders must be installed wherever the file runs. An import by a computed
    name, and files that are no modules, are not found.

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
    package = file.relative_to(root).parent.parts
    for node in ast.walk(_tree(file)):
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


def _tree(file: Path) -> ast.Module:
    """Return a file's syntax tree; an empty one if it cannot be read."""
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


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

"""Checks of a model file's source, without the seconds that running it takes.

They refuse only what cannot work. A file that passes may still be wrong.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from ..errors import ModelFileError, UsageError, own_source
from .scripts import is_of_program, refuse_other_searches, refuse_programs
from .user_errors import is_installed

_VERSION = "import hptune, importlib.metadata as m; print(m.version('hptune'))"


def check_syntax(path: Path, python: str = "") -> ast.Module:
    """Check that the file is Python, and return its syntax tree.

    Args:
        path: The file.
        python: The Python that runs the file; empty for this one. Another one may read what this
            one cannot; the tree is empty then.

    Raises:
        ModelFileError: It is not.
    """
    try:
        source = path.read_bytes()
        compile(source, str(path), "exec", dont_inherit=True)  # refuses more than `ast.parse`
        return ast.parse(source)
    except SyntaxError as error:
        if python:
            return ast.Module([], [])
        place = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise ModelFileError(syntax_error(error) or f"{place}: {error.msg}") from error
    except OSError as error:
        raise ModelFileError(f"the model file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelFileError(f"{path} cannot be read as Python: {error}") from error
    except (RecursionError, MemoryError) as error:  # the parser's stack, which is small
        raise ModelFileError(
            f"{path} has an expression that is nested too deeply for Python; divide it, or read "
            "long data from a file"
        ) from error


def syntax_error(error: SyntaxError) -> str:
    """Return the place and the message of an error in the user's files; empty for other files."""
    file, line = error.filename, error.lineno
    if file is None or not line or not Path(file).is_file() or is_installed(file):
        return ""
    text = f": {error.text.strip()}" if error.text and error.text.strip() else ""
    return f"{file}:{line}: {type(error).__name__}: {error.msg}{text}"


def check_source(path: Path, *, has_entry: bool, python: str = "") -> None:
    """Check a model file's source, and the Python that runs it.

    Args:
        path: The file.
        has_entry: Whether the user named the entry point, which may then be any function.
        python: The Python that runs the file; empty for this one.

    Raises:
        ModelFileError: The file is not Python, or a script of another tuner.
        UsageError: The other Python cannot run trials.
    """
    check_text(path, has_entry=has_entry, python=python)
    if python:
        _check_python(python)


def check_text(path: Path, *, has_entry: bool, python: str = "") -> None:
    """Check a model file's source as `check_source` does, where its Python may be missing.

    Raises:
        ModelFileError: The file is not Python, has the name of a module that it imports, or is a
            script of another tuner.
    """
    tree = check_syntax(path, python)
    _refuse_own_name(tree, path)
    if not has_entry:
        refuse_other_searches(tree, path.name)
        refuse_programs(tree, path.name)


def _refuse_own_name(tree: ast.Module, path: Path) -> None:
    """Refuse a file such as keras.py that imports keras, and so itself.

    It may import itself on purpose: where it runs as a program, or for names of its own.
    """
    own = set(_bound(tree))
    as_program = {id(each) for node in tree.body if is_of_program(node) for each in ast.walk(node)}
    imported: list[str] = []
    for node in ast.walk(tree):
        if id(node) in as_program:
            continue
        if isinstance(node, ast.Import):
            imported += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            of_others = {each.name for each in node.names} - own
            imported += [node.module or ""] if of_others else []
    if any(name.partition(".")[0] == path.stem for name in imported):
        raise ModelFileError(
            f"{path.name} imports {path.stem}, which is its own name, so it would import itself; "
            f"rename the file, such as to my_{path.name}"
        )


def _bound(tree: ast.Module) -> Iterator[str]:
    """Yield the functions, classes and variables that a file defines."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id


def _check_python(python: str) -> None:
    """Check that another Python has this version of hptune."""
    import subprocess
    from importlib import metadata

    try:
        asked = subprocess.run(
            [python, "-c", _VERSION],
            capture_output=True,
            text=True,
            timeout=60,
            cwd="/",
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"--python is {python}, which cannot be run ({reason}); give the path of a Python, "
            "such as /path/to/environment/bin/python"
        ) from error
    here, there = metadata.version("hptune"), asked.stdout.strip()
    if asked.returncode or there != here:
        found, source = f"hptune {there}" if there else "no hptune", own_source()
        remedy = f"{python} -m pip install {source}" if source else "install it as here"
        raise UsageError(
            f"--python is {python}, whose environment has {found}; it needs hptune {here}: "
            f"{remedy}. A program that runs without hptune is tuned with --command"
        )

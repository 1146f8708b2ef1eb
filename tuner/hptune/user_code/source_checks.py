"""Checks of a model file's source, without the seconds that running it takes.

They refuse only what cannot work. A file that passes may still be wrong.
"""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path

from ..errors import ModelFileError, UsageError, how_to_install, own_source
from .scripts import refuse_other_searches
from .user_errors import is_installed

NO_LOAD_DATA = (
    "the model file has no load_data(); define load_data() (or load_data(hp)) returning "
    "(train, validation), for example ((x, y), (x_val, y_val))"
)
NO_DATA_IN_PYTHON = (
    "Tuner.fit got no data; pass x and y, or a function that returns (train, validation)"
)
_MAY_BIND_ANYTHING = frozenset(("exec", "globals", "setattr", "vars", "load_data"))
"""Names and texts whose use may bind a name that the source does not show."""
_NEED_NO_LOAD_DATA = ("load_data", "objective", "fit")
"""Functions, or methods, with which a file may have data."""

_VERSION = "import hptune, importlib.metadata as m; print(m.version('hptune'))"


def check_syntax(path: Path) -> ast.Module:
    """Check that the file is Python, and return its syntax tree.

    Raises:
        ModelFileError: It is not.
    """
    try:
        source = path.read_bytes()
        compile(source, str(path), "exec", dont_inherit=True)  # refuses more than `ast.parse`
        return ast.parse(source)
    except SyntaxError as error:
        place = f"{path}:{error.lineno}" if error.lineno else str(path)
        raise ModelFileError(syntax_error(error) or f"{place}: {error.msg}") from error
    except OSError as error:
        raise ModelFileError(f"the model file {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ModelFileError(f"{path} cannot be read as Python: {error}") from error


def syntax_error(error: SyntaxError) -> str:
    """Return the place and the message of an error in the user's files; empty for other files."""
    file, line = error.filename, error.lineno
    if file is None or not line or not Path(file).is_file() or is_installed(file):
        return ""
    text = f": {error.text.strip()}" if error.text and error.text.strip() else ""
    return f"{file}:{line}: {type(error).__name__}: {error.msg}{text}"


def check_source(path: Path, *, has_entry: bool, python: str = "") -> None:
    """Check a model file's syntax and the imports at its top, and that there is a `load_data`.

    Args:
        path: The file.
        has_entry: Whether the user named the entry point, which may then be any function.
        python: The Python that runs the file, whose modules are not known here; empty for this one.

    Raises:
        ModelFileError: The file is not Python or a script of another tuner, a module does not
            exist, or a model has no data.
        UsageError: The other Python cannot run trials.
    """
    tree = check_syntax(path)
    if not has_entry:
        refuse_other_searches(tree, path.name)
        if _lacks_load_data(tree):
            raise ModelFileError(f"{path}: {NO_LOAD_DATA}")
    if python:
        _check_python(python)
    for line, name in () if python else _first_imports(tree):
        found = PathFinder.find_spec(name, [str(path.parent)])
        if found is None:  # what this process has imported need not be looked for again
            if name in sys.modules or name in sys.builtin_module_names:
                continue
            found = importlib.util.find_spec(name)
        if found is None:
            remedy = how_to_install(name)
            raise ModelFileError(
                f"{path}:{line}: there is no module {name} in this environment ({sys.prefix}); "
                + (f"install it with: {remedy}" if remedy else "install it, or correct the name")
            )
        if found.origin != "frozen" and not is_installed(found.origin or ""):
            break  # a module of the user's may change where others are found


def _check_python(python: str) -> None:
    """Check that another Python has this version of hptune."""
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


def _first_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and module of the imports before the first statement that may change them."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            if node.module and not node.level:
                yield node.lineno, node.module.partition(".")[0]
        elif not isinstance(node, ast.Assign | ast.Expr) or any(map(_may_act, ast.walk(node))):
            return


def _may_act(node: ast.AST) -> bool:
    """Return whether a part of a statement calls something, or may change `sys.path`."""
    if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
        return not ast.unparse(node).startswith("os.environ[")
    return isinstance(node, ast.Call)


def _lacks_load_data(tree: ast.Module) -> bool:
    """Return whether the file builds models for Keras's `fit` and binds no `load_data`."""
    builds = False
    within = {
        inner
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef)
        for inner in ast.walk(outer)
        if inner is not outer
    }
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name, args=ast.arguments(args=[first, *more])):
                if name in _NEED_NO_LOAD_DATA or any(each.arg == "trial" for each in more):
                    return False
                builds = builds or (first.arg == "hp" and not more and node not in within)
            case ast.ClassDef(bases=bases):
                # One that is derived from another class may inherit a `fit`.
                names = [ast.unparse(base).rpartition(".")[2] for base in bases]
                builds = builds or "HyperModel" in names
            case ast.FunctionDef(name=name) | ast.alias(name=name, asname=None):
                if name in (*_NEED_NO_LOAD_DATA, "*"):
                    return False
            case ast.alias(asname=name) | ast.Name(id=name, ctx=ast.Store()):
                if name in _NEED_NO_LOAD_DATA:
                    return False
            case ast.Name(id=name) | ast.Constant(value=name):
                if isinstance(name, str) and name in _MAY_BIND_ANYTHING:
                    return False
    return builds

"""The user's code: a model file, or what `Tuner` was given in Python.

Only child processes load user code; the master has an `ObjectiveSource`, which says where it is.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from ..core.goals import objective_texts
from ..core.space.parameters.checks import plain
from ..core.spelling import nearest_name
from ..errors import ModelFileError
from ..files.access import exists
from .entry_points import ENTRY_POINTS, EntryKind, EntryPoint, check_helpers, find_entry_point
from .fit_results import FitResult, result_of
from .pickling import StoredData, pickled, read_head, read_pickle, write_pickle
from .scripts import refuse_search_at_import
from .search_arguments import check_fit_arguments, has_own_fit, read_hyperparameters
from .source import ObjectiveSource, SourceKind
from .source_checks import check_syntax, syntax_error
from .user_errors import is_installed

_FRAMEWORKS = ("tensorflow", "torch", "jax", "keras", "keras_tuner", "sklearn")
_FRAMEWORK_IMPORT = re.compile(rf"^\s*(?:import|from)\s+({'|'.join(_FRAMEWORKS)})\b", re.MULTILINE)
NO_LOAD_DATA = (
    "the model file has no load_data(); define load_data() (or load_data(hp)) returning "
    "(train, validation), for example ((x, y), (x_val, y_val))"
)
CONSTANTS = ("OBJECTIVE", "CONSTRAINTS", "EPOCHS", "RESOURCES", "CACHE_DATA")


@dataclass(frozen=True, slots=True)
class UserCode:
    """The user's functions and constants, from a file or from Python.

    Exactly one of `hypermodel` and `objective` is set.

    Attributes:
        hypermodel: An object with `build(hp)`: a HyperModel, or a `BuildFunction`.
        objective: `objective(hp, trial)`.
        load_data: `load_data()` or `load_data(hp)`, returning (train, validation).
        fit: The file's `fit(hp, model, data, callbacks, epochs)`; None if it has none.
        fit_result: What the training returns.
        fit_arguments: Keyword arguments for `model.fit`.
        compile_arguments: Arguments of `model.compile` that replace those of the built model.
        hyperparameters: Declarations, in their JSON form, that precede those of the code.
        tune_new_entries: Whether hyperparameters that only the code declares are searched; if not,
            they keep their defaults.
        constants: The file's values of `CONSTANTS`, by name.
        entry: Name of the function, class or instance that is tuned.
        notes: Lines for the user about the choice of the entry point.
        no_data: What is said where there are no data, and how the user gives some.
    """

    hypermodel: Any = None
    objective: Callable[..., Any] | None = None
    load_data: Callable[..., Any] | None = None
    fit: Callable[..., Any] | None = None
    fit_result: FitResult = FitResult.HISTORY
    fit_arguments: Mapping[str, Any] = field(default_factory=dict)
    compile_arguments: Mapping[str, Any] = field(default_factory=dict)
    hyperparameters: tuple[Mapping[str, object], ...] = ()
    tune_new_entries: bool = True
    constants: Mapping[str, Any] = field(default_factory=dict)
    entry: str = "build_model"
    notes: tuple[str, ...] = ()
    no_data: str = (
        "Tuner.fit got no data; pass x and y, or a function that returns (train, validation)"
    )

    @property
    def function(self) -> Callable[..., Any] | None:
        """The function that is called for each trial, which belongs to the user's module."""
        return self.objective or getattr(self.hypermodel, "build", None)

    @property
    def owns_fit(self) -> bool:
        """Whether a `fit` of the user's own trains."""
        return self.fit is not None or has_own_fit(self.hypermodel)

    @property
    def build_text(self) -> str:
        """The call that builds a model, as messages name it."""
        is_function = isinstance(self.hypermodel, BuildFunction)
        return f"{self.entry}(hp)" if is_function else f"{self.entry}.build(hp)"


class BuildFunction:
    """A `build_model(hp)` function with the interface of a HyperModel."""

    def __init__(self, build: Callable[[Any], Any]) -> None:
        self.build = build


def check_path(path: Path, python: str = "") -> ObjectiveSource:
    """Return the source for the path of a model file.

    Args:
        path: The file.
        python: The Python that runs it; empty for this one.

    Raises:
        ModelFileError: There is no such file, it is not a Python file, or its syntax is wrong.
    """
    source = find_file(path)
    check_syntax(path, python)
    return source


def find_file(path: Path) -> ObjectiveSource:
    """Return the source for the path of a model file, whose syntax is not checked.

    Raises:
        ModelFileError: There is no such file, or it is not a Python file.
    """
    if not exists(path):
        if path.is_symlink():
            raise ModelFileError(
                f"{path} is a link to {path.readlink()}, which is not there; correct the link"
            )
        near = sorted(p.name for p in path.parent.glob("*.py")) if path.parent.is_dir() else []
        # Without their suffix, which is the same for all and would make them look alike.
        meant = nearest_name(path.stem, [Path(name).stem for name in near], likeness=0.7)
        shown = [*near[:8], *(["…"] if len(near) > 8 else [])]
        hint = f" Python files there: {', '.join(shown)}." if near else ""
        hint = f" Did you mean {path.with_name(f'{meant}.py')}?" if meant else hint
        raise ModelFileError(f"there is no file {path}.{hint}")
    if exists(path / "study.db"):
        raise ModelFileError(
            f"{path} is a study; `hptune resume {shlex.quote(str(path))}` continues it"
        )
    if path.is_dir() or path.suffix != ".py":
        raise ModelFileError(f"{path} is not a Python file (.py) with {ENTRY_POINTS}.")
    return ObjectiveSource(SourceKind.FILE, str(path.resolve()))


def load(source: ObjectiveSource) -> UserCode:
    """Run the user's file, or unpickle what was given in Python, and return its entry points.

    This process goes to the code's working directory first, unless it has run the file already:
    the file may have gone elsewhere.

    Raises:
        ModelFileError: The file is not Python, or has nothing to tune.
        BaseException: An error that the user's code raises at import.
    """
    if source.kind is SourceKind.PICKLE:
        _go_to(source.working_directory)
        code = read_pickle(Path(source.path))
        if not isinstance(code, UserCode):
            raise ModelFileError(f"{source.path} does not hold an objective")
        if isinstance(code.load_data, StoredData):
            # The study's directory may have been moved.
            data = Path(source.path).with_name(code.load_data.path.name)
            code = replace(code, load_data=StoredData(data))
        _add_to_main(code)
        return code
    path, read = Path(source.path), Path(source.copy or source.path)
    module = _import(path, read, source.working_directory)
    return _code_of_file(find_entry_point(module, read, source.entry), vars(module))


def _add_to_main(code: UserCode) -> None:
    """Let a script's classes be found where they say that they are, as `torch.save` looks for them.

    The script's module is not that of this process.
    """
    main = sys.modules["__main__"]
    for name, value in own_objects(code).items():
        if value.__module__ == "__main__" and not hasattr(main, name):
            setattr(main, name, value)


def frameworks(source: ObjectiveSource) -> tuple[str, ...]:
    """Return the frameworks that the user's code imports anywhere, without running it."""
    path = Path(source.path)
    if source.kind is SourceKind.PICKLE:
        return tuple(read_head(path)[0])
    return tuple(dict.fromkeys(_FRAMEWORK_IMPORT.findall(path.read_text(errors="replace"))))


def module_digests(source: ObjectiveSource) -> Mapping[str, str]:
    """Return the user's modules that what was given in Python refers to: file and SHA-256."""
    return read_head(Path(source.path))[1]


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file's contents; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def save(code: UserCode, path: Path) -> None:
    """Write what was given in Python, for `load` in other processes.

    Raises:
        ModelFileError: Something in it cannot be pickled.
    """
    try:
        contents = pickled(code)
    except Exception as error:  # an object that cannot be pickled may raise anything
        raise ModelFileError(
            f"your model function cannot be sent to the trials' processes: it uses "
            f"{_that_cannot_be_sent(code)} ({str(error).rstrip('.')}). Make open files, locks and "
            "live datasets inside the function"
        ) from error
    names = [name for name in _FRAMEWORKS if name in sys.modules]
    if code.objective is None and "keras" not in names:
        names.append("keras")
    digests = {file: sha256(file) for file in _modules_of(code)}
    write_pickle(path, contents, frameworks=names, digests=digests)


def _modules_of(code: UserCode) -> list[str]:
    """Return the files of the user's modules that the pickled code refers to by name."""
    module = sys.modules.get(getattr(code.function, "__module__", ""))
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__" or is_installed(file):
        return []
    return [str(Path(file).absolute())]


def _that_cannot_be_sent(code: UserCode) -> str:
    """Return the names of the objects in the user's code that cannot be pickled."""
    names = []
    callbacks = getattr(code.function, "hydra_callbacks", {})  # of Hydra's application
    used = {**code.fit_arguments, **code.compile_arguments, **callbacks}
    with contextlib.suppress(TypeError):  # it is no function
        function: Any = getattr(code.function, "function", code.function)  # of the same
        found = inspect.getclosurevars(function)
        used |= {**found.nonlocals, **found.globals}
    for name, value in used.items():
        try:
            pickled(value)
        except Exception:  # an object that cannot be pickled may raise anything
            names.append(repr(name))
    return ", ".join(names) or "an object that cannot be pickled"


class _Loader(SourceFileLoader):
    """Runs a file, or a copy of it as a module that believes to be the file itself.

    Never by cached bytecode: that is known by size and second, so an edit may not be seen.
    """

    def __init__(self, name: str, path: Path, copy: Path) -> None:
        super().__init__(name, str(path))
        self._copy = copy

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled file or copy; called by Python."""
        del fullname
        return compile(self._copy.read_bytes(), str(self._copy), "exec", dont_inherit=True)


def _go_to(folder: str) -> None:
    with contextlib.suppress(OSError):  # this machine may not have it
        os.chdir(folder)


def _import(path: Path, read: Path, folder: str) -> ModuleType:
    # Under the file's own name, so that objects pickled by reference find their module.
    name = path.stem if read == path else f"hptune_model_{path.stem}_{sha256(read)[:8]}"
    other_name = f"hptune_model_{name}"
    for each in (name, other_name):
        if getattr(sys.modules.get(each), "__file__", None) == str(path):
            return sys.modules[each]
    if name in sys.modules or name in sys.stdlib_module_names:
        name = other_name
    tree = check_syntax(read)
    refuse_search_at_import(tree, path.name)
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    loader = _Loader(name, path, read)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None or spec.loader is None:
        raise ModelFileError(f"{path} cannot be imported as Python")
    spec.loader_state = tree  # the file may be edited once it is imported
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _go_to(folder)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError) and (message := syntax_error(error)):
            raise ModelFileError(message) from error
        raise
    return module


def user_code(entry: EntryPoint, fit: Callable[..., Any] | None = None) -> UserCode:
    """Return the code of an entry point; `fit` is that of the model file, if it has one."""
    if entry.kind is EntryKind.OBJECTIVE:
        return UserCode(objective=entry.value, entry=entry.name, notes=entry.notes)
    if entry.kind is EntryKind.HYPERMODEL:
        hypermodel, fit = entry.value, None
        own = type(hypermodel).fit if has_own_fit(hypermodel) else None
    else:
        hypermodel, own = BuildFunction(entry.value), fit
    return UserCode(
        hypermodel=hypermodel,
        fit=fit,
        fit_result=FitResult.HISTORY if own is None else result_of(own),
        entry=entry.name,
        notes=entry.notes,
    )


def _code_of_file(entry: EntryPoint, names: Mapping[str, Any]) -> UserCode:
    if "DIRECTION" in names:  # it was a constant, and without it a value may be minimised
        raise ModelFileError(
            f"DIRECTION is {names['DIRECTION']!r}, but OBJECTIVE says which values are better; "
            "write for example OBJECTIVE = 'value:max', and leave DIRECTION out"
        )
    constants = {name: plain(names[name]) for name in CONSTANTS if name in names}
    if "OBJECTIVE" in constants:
        constants["OBJECTIVE"] = objective_texts(constants["OBJECTIVE"])
    declared = read_hyperparameters(names.get("HYPERPARAMETERS"), given_to="HYPERPARAMETERS")
    check_helpers(names, entry.kind)
    return replace(
        user_code(entry, names.get("fit")),
        load_data=names.get("load_data"),
        fit_arguments=_fit_arguments(names, entry, constants),
        hyperparameters=declared,
        tune_new_entries=bool(names.get("TUNE_NEW_ENTRIES", True)),
        constants=constants,
        no_data=NO_LOAD_DATA,
    )


def _fit_arguments(
    names: Mapping[str, Any], entry: EntryPoint, constants: dict[str, Any]
) -> Mapping[str, Any]:
    """Return the file's FIT without its epochs, which become EPOCHS."""
    given = names.get("FIT", {})
    if not isinstance(given, Mapping):
        raise ModelFileError(f"FIT is {given!r}; allowed is a dict of arguments of Keras's fit")
    is_builder = entry.kind in (EntryKind.BUILD_MODEL, EntryKind.BUILDER)
    if given and (entry.kind is EntryKind.OBJECTIVE or (is_builder and "fit" in names)):
        trains = "objective" if entry.kind is EntryKind.OBJECTIVE else "fit"
        raise ModelFileError(f"FIT has no effect, because the file's {trains}() trains; remove FIT")
    check_fit_arguments(given, entry.value, given_to="FIT")
    arguments = dict(given)
    if "epochs" in arguments:
        epochs = arguments.pop("epochs")
        if constants.setdefault("EPOCHS", epochs) != epochs:
            raise ModelFileError(
                f"EPOCHS is {constants['EPOCHS']!r}, but FIT has {epochs!r} epochs; remove one"
            )
    return arguments


def own_objects(code: UserCode) -> dict[str, Any]:
    """Return the classes and functions in the user's module, by name.

    Keras needs them to read a model with layers that are not registered.
    """
    call = code.function
    names: Mapping[str, Any] = getattr(inspect.unwrap(call), "__globals__", {}) if call else {}
    return {
        name: value
        for name, value in names.items()
        if inspect.isclass(value) or inspect.isfunction(value)
    }

"""The entry point of a model file: the function, class or object that is tuned.

The first of these kinds is taken: `objective(hp, trial)` or another function of these two, a
HyperModel, `build_model(hp)`, another function whose only argument is `hp`. If a file has several
of one kind, `objective` is taken, and else the user says which one. Functions whose names begin
with an underscore are helpers, and so are the base classes of HyperModels. What the file imports is
taken only if the file itself has nothing.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ModelFileError
from .user_errors import is_installed

ENTRY_POINTS = (
    "build_model(hp) or another function that takes hp, a keras_tuner.HyperModel subclass or "
    "instance, or objective(hp, trial)"
)
BUILD, OBJECTIVE = "build_model", "objective"
_HP = ("hp", "hps", "hparams", "hyperparameters")
"""Names of the only argument by which a function is known to build a model."""
_NOT_TUNED = ("load_data", "fit")


class EntryKind(enum.IntEnum):
    """Kind of an entry point, in the order of preference."""

    OBJECTIVE = enum.auto()
    HYPERMODEL = enum.auto()
    BUILD_MODEL = enum.auto()
    BUILDER = enum.auto()


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """What is tuned.

    Attributes:
        name: Its name in the file.
        kind: What it is.
        value: The function, or the instance of a HyperModel.
        notes: Lines for the user about the choice, and about what has no effect.
    """

    name: str
    kind: EntryKind
    value: Any
    notes: tuple[str, ...] = ()


def find_entry_point(module: ModuleType, path: Path, asked: str = "") -> EntryPoint:
    """Return what to tune in a model file: the name that was asked for, or by the rule above.

    Raises:
        ModelFileError: There is nothing to tune, or it cannot be called as it is.
    """
    names, file = vars(module), path.name
    tree = getattr(module.__spec__, "loader_state", None) or ast.parse(path.read_bytes())
    imported = _imported(tree, names)
    own = [name for name in names if name not in imported]
    if asked:
        if asked not in names:
            others = ", ".join(_kinds(names, names))
            has = f"; it has {others}" if others else ""
            raise ModelFileError(f"--entry is {asked!r}, but {file} has no {asked}{has}")
        return EntryPoint(asked, *read_entry(asked, names[asked]), _unused(own, names))
    kinds = _kinds(own, names)
    if not kinds:
        _explain(own, names, file)
        kinds = _kinds(names, names)
    if not kinds:
        raise ModelFileError(
            f"{path} has no entry point: {_functions(own, names)}; looked for {ENTRY_POINTS} "
            "(--entry NAME)."
        )
    first = min(kinds.values())
    of_kind = [name for name, kind in kinds.items() if kind is first]
    name = OBJECTIVE if OBJECTIVE in of_kind else of_kind[0]
    if len({id(names[each]) for each in of_kind}) > 1 and name != OBJECTIVE:
        raise ModelFileError(
            f"{file} has {len(of_kind)} entry points ({', '.join(of_kind)}); say with --entry NAME "
            "which one is tuned, and begin the names of helpers with an underscore"
        )
    return EntryPoint(name, first, _made(names[name]), _unused(own, names))


def _imported(tree: ast.AST, names: Mapping[str, Any]) -> set[str]:
    """Return the names that a file imports at its top level, and does not bind again itself."""
    found, left = set[str](), [tree]
    while left:
        match node := left.pop():
            case ast.Import() | ast.ImportFrom():
                found |= {alias.asname or alias.name for alias in node.names}
                module = sys.modules.get(getattr(node, "module", None) or "")
                if module is not None and node.names[0].name == "*":
                    theirs = vars(module)
                    found |= {name for name in theirs if names.get(name) is theirs[name]}
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.discard(node.name)  # what is inside is no name of the file
            case ast.Name(ctx=ast.Store()):
                found.discard(node.id)
            case _:
                left += reversed([*ast.iter_child_nodes(node)])
    return found


def _functions(own: Iterable[str], names: Mapping[str, Any]) -> str:
    """Return which functions a file has, and what they take."""
    functions = sorted(name for name in own if inspect.isroutine(names[name]))
    calls = [f"{name}({', '.join(_signature(names[name]).parameters)})" for name in functions]
    return f"found the functions {', '.join(calls)}" if calls else "found no function"


# --- candidates ---------------------------------------------------------------------------------


def _kinds(candidates: Iterable[str], names: Mapping[str, Any]) -> dict[str, EntryKind]:
    """Return the candidates with their kinds."""
    candidates = [name for name in candidates if _is_users(names[name])]
    kinds = {name: kind for name in candidates if (kind := _kind(name, names[name])) is not None}
    if not kinds and BUILD in candidates and _takes(names[BUILD], 1):
        return {BUILD: EntryKind.BUILD_MODEL}
    values = [names[name] for name in kinds]
    return {
        name: kind
        for name, kind in kinds.items()
        if not any(_is_class_of(names[name], value) for value in values)
    }


def _is_class_of(one: Any, other: Any) -> bool:
    """Return whether one is a base class of a class, or the class of an instance."""
    if not inspect.isclass(one) or one is other:
        return False
    return one in other.__mro__ if inspect.isclass(other) else type(other) is one


def _kind(name: str, value: Any) -> EntryKind | None:
    if _is_hypermodel(value):
        needs = inspect.isclass(value) and _required(value)
        return None if needs else EntryKind.HYPERMODEL
    if inspect.isclass(value) or name.isupper() or name.startswith("_") or name in _NOT_TUNED:
        return None
    required = _required(value)
    if required == ["hp", "trial"] or (name == OBJECTIVE and _takes(value, 2)):
        return EntryKind.OBJECTIVE
    if len(required) == 1 and name != OBJECTIVE and _takes_hp(value, required[0]):
        return EntryKind.BUILD_MODEL if name == BUILD else EntryKind.BUILDER
    return None


def _takes_hp(function: Any, argument: str) -> bool:
    annotation = inspect.signature(function).parameters[argument].annotation
    kind = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return argument.strip("_").lower() in _HP or kind.endswith("HyperParameters")


def _signature(function: Any) -> inspect.Signature:
    if callable(function):
        with contextlib.suppress(TypeError, ValueError):  # one that is not written in Python
            return inspect.signature(function)
    return inspect.Signature()


def _takes(function: Any, count: int) -> bool:
    try:
        _signature(function).bind(*[None] * count)
    except TypeError:
        return False
    return True


def _required(function: Any) -> list[str]:
    """Return the arguments that a call must give."""
    return [
        parameter.name
        for parameter in _signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _is_hypermodel(value: Any) -> bool:
    base = _keras_tuner("HyperModel")
    if base is None or value is base:
        return False
    return issubclass(value, base) if inspect.isclass(value) else isinstance(value, base)


def _keras_tuner(name: str) -> Any:
    return getattr(sys.modules.get("keras_tuner"), name, None)


def _is_users(value: Any) -> bool:
    """Return whether an imported object is from a file of the user's, or is an instance."""
    if not inspect.isclass(value) and not inspect.isroutine(value):
        return True
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    return file is not None and not is_installed(file)


# --- what the user asked for, and what cannot be tuned --------------------------------------------


def read_entry(name: str, value: Any) -> tuple[EntryKind, Any]:
    """Return the kind of an entry point that the user named, and the function or instance.

    Raises:
        ModelFileError: It is no entry point.
    """
    if hasattr(value, "build"):
        if inspect.isclass(value) and (required := _required(value)):
            raise ModelFileError(_needs_arguments(name, required))
        return EntryKind.HYPERMODEL, _made(value)
    if callable(value) and not inspect.isclass(value) and not inspect.isbuiltin(value):
        _refuse_other_objective(name, value)
        _refuse_more_arguments(name, value)
        for count, kind in ((1, EntryKind.BUILDER), (2, EntryKind.OBJECTIVE)):
            if _takes(value, count) and (count == 2 or name != OBJECTIVE):  # of (hp, trial=None)
                return kind, value
    called = f"{name}({', '.join(_required(value))}) is no entry point"
    what = called if callable(value) else f"{name} is {value!r}"
    raise ModelFileError(f"{what}; allowed are {ENTRY_POINTS}")


def _made(value: Any) -> Any:
    return value() if inspect.isclass(value) else value


def _needs_arguments(name: str, required: Iterable[str]) -> str:
    return (
        f"the class {name} needs arguments ({', '.join(required)}); give an instance, such as "
        f"hypermodel = {name}({', '.join(f'{each}=…' for each in required)})"
    )


def _explain(own: Sequence[str], names: Mapping[str, Any], file: str) -> None:
    """Raise the error for what looks like an entry point and cannot be called as one."""
    for name in reversed(own):
        value = names[name]
        if inspect.isclass(value) and _is_hypermodel(value) and (required := _required(value)):
            raise ModelFileError(f"{file}: {_needs_arguments(name, required)}")
        if _is_own_tuner(value):
            raise ModelFileError(f"{file} has no entry point, and {RUN_TRIAL.format(name)}")
        _refuse_other_objective(name, value)
        _refuse_more_arguments(name, value)


def _refuse_more_arguments(name: str, value: Any) -> None:
    """Raise the error for a function that needs more than `hp` to build a model."""
    first, *more = _required(value) or ("",)
    if inspect.isclass(value) or not more or not callable(value) or not _takes_hp(value, first):
        return
    second = more[0].strip("_").lower()
    is_trial = "trial" in second or len(second) <= _SHORT or more[0].startswith("_")
    if len(more) == 1 and (is_trial or OBJECTIVE in name.lower()):
        return
    given = ", ".join(f"{each}=…" for each in more)
    raise ModelFileError(
        f"{name}({first}, {', '.join(more)}) needs {' and '.join(more)}, and hptune has only "
        f"{first} for a model; add a function of {first} alone, with your values:\n"
        f"  def build_model_of({first}):\n      return {name}({first}, {given})"
    )


_SHORT = 2
"""Most characters of a name, such as `t`, that may stand for a trial."""


def _refuse_other_objective(name: str, value: Any) -> None:
    required = _required(value)
    is_optunas = required == ["trial"]
    if is_optunas or (name == OBJECTIVE and callable(value) and not _takes(value, 2)):
        hint = (
            "; hp.Float, hp.Int and hp.Choice declare what trial.suggest_… does in Optuna "
            "(`hptune help from-optuna`)"
        )
        raise ModelFileError(
            f"{name}({', '.join(required)}) is no entry point: hptune calls objective(hp, trial)"
            f"{hint if is_optunas else ''}"
        )


_CALLS = {
    "fit": ((5,), "fit(hp, model, data, callbacks, epochs)"),
    "load_data": ((0, 1), "load_data() or load_data(hp)"),
}
"""How many arguments the functions beside a `build_model(hp)` get, and how they are called."""


def check_helpers(names: Mapping[str, Any], kind: EntryKind) -> None:
    """Check the functions that are called beside an entry point that builds a model.

    Raises:
        ModelFileError: One takes other arguments, or is no function.
    """
    for name, (counts, called) in _CALLS.items():
        value = names.get(name)
        is_called = name == "load_data" or kind is not EntryKind.HYPERMODEL
        if value is None or kind is EntryKind.OBJECTIVE or not is_called:
            continue
        if callable(value) and any(_takes(value, each) for each in counts):
            continue
        arguments = ", ".join(_signature(value).parameters)
        found = f"{name}({arguments}) takes other arguments" if callable(value) else ""
        raise ModelFileError(
            f"{found or f'{name} is {value!r}, which is no function'}; hptune calls {called}"
        )


def _is_own_tuner(value: Any) -> bool:
    base = _keras_tuner("Tuner")
    is_tuner = base is not None and inspect.isclass(value) and issubclass(value, base)
    return is_tuner and "run_trial" in vars(value)


RUN_TRIAL = (
    "{}.run_trial is not used, as hptune runs the trials: move what it does to objective(hp, "
    "trial), or to fit(self, hp, model, …) of a HyperModel"
)


def _unused(own: Iterable[str], names: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note on each object of the file that KerasTuner would use, and hptune does not."""
    notes = []
    for name in own:
        if _is_own_tuner(names[name]):
            notes.append(RUN_TRIAL.format(name))
        kind, used = _keras_tuner("HyperParameters"), names.get("HYPERPARAMETERS")
        if kind is not None and isinstance(names[name], kind) and names[name] is not used:
            notes.append(
                f"the HyperParameters object {name} is not used; call it HYPERPARAMETERS, or "
                "declare in build_model(hp) what it declares"
            )
    return tuple(notes)

"""The entry point of a model file: the function, class or object that is tuned.

The file's own definitions come before what it imports. A definition that another candidate uses is
a helper of it, and no candidate. Of those that remain, the first of these kinds is taken, and of
several of one kind the last in the file: a function `build_model`, a HyperModel, an objective,
another function that takes `hp`. A function of the last kind may be no builder: it makes others of
that kind its helpers only, and one that trains, or that `fit` or `load_data` uses, is taken only if
there is no other.
"""

from __future__ import annotations

import ast
import contextlib
import enum
import inspect
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
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

    BUILD_MODEL = enum.auto()
    HYPERMODEL = enum.auto()
    OBJECTIVE = enum.auto()
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
    """Return what to tune in a model file.

    Args:
        module: The imported file.
        path: The file.
        asked: The name that the user gave; empty for the rule above.

    Raises:
        ModelFileError: There is nothing to tune, or it cannot be called as it is.
    """
    names, file = vars(module), path.name
    own = [name for name in _defined(path) if name in names]
    if asked:
        if asked not in names:
            others = ", ".join(_kinds([each for each in names if _is_users(names[each])], names))
            has = f"; it has {others}" if others else ""
            raise ModelFileError(f"--entry is {asked!r}, but {file} has no {asked}{has}")
        return EntryPoint(asked, *read_entry(asked, names[asked]), _unused(own, names))
    kinds = _kinds(own, names)
    if not kinds:
        _explain(own, names, file)
        kinds = _kinds([each for each in names if _is_users(names[each])], names)
    if not kinds:
        found = [name for name in own if inspect.isroutine(names[name])]
        what = f"found the functions {', '.join(sorted(found))}" if found else "found no function"
        raise ModelFileError(
            f"{path} has no entry point: {what}; looked for {ENTRY_POINTS} (--entry NAME)."
        )
    first = min(kinds.values())
    name = [name for name, kind in kinds.items() if kind is first][-1]
    notes = []
    if len(kinds) > 1:
        notes.append(
            f"{file} has {len(kinds)} entry points ({', '.join(kinds)}); {name} is tuned "
            "(--entry NAME takes another)"
        )
    return EntryPoint(name, first, _made(names[name]), (*notes, *_unused(own, names)))


def _defined(path: Path) -> list[str]:
    """Return the names that the file itself binds at its top level, in order, without imports."""
    found: dict[str, None] = {}
    for node in _top_level(ast.parse(path.read_bytes()).body):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = [
                each.id for one in targets for each in ast.walk(one) if isinstance(each, ast.Name)
            ]
        else:
            continue
        for name in bound:
            found.pop(name, None)
            found[name] = None
    return list(found)


def _top_level(statements: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for each in statements:
        yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for block in ("body", "handlers", "orelse", "finalbody"):
                yield from _top_level(getattr(each, block, ()))


# --- candidates ---------------------------------------------------------------------------------


def _kinds(candidates: Iterable[str], names: Mapping[str, Any]) -> dict[str, EntryKind]:
    """Return the candidates with their kinds, without the helpers of others."""
    kinds = {}
    for name in candidates:
        kind = _kind(name, names[name])
        if kind is not None:
            kinds[name] = kind
    of_others = {used for each in _NOT_TUNED if each in names for used in _reached(each, names)}
    likely = {
        name: kind
        for name, kind in kinds.items()
        if kind is not EntryKind.BUILDER or not (name in of_others or _trains(name, names, kinds))
    }
    kinds = likely or kinds
    uses = {name: _reached(name, names) for name in kinds}
    main = {
        name: kind
        for name, kind in kinds.items()
        if not any(
            name in uses[other]
            and other not in uses[name]
            and (kind is EntryKind.BUILDER or kinds[other] is not EntryKind.BUILDER)
            for other in kinds
        )
    }
    if not main and BUILD in candidates and _takes(names[BUILD], 1):
        return {BUILD: EntryKind.BUILD_MODEL}
    return main


def _kind(name: str, value: Any) -> EntryKind | None:
    if _is_hypermodel(value):
        needs = inspect.isclass(value) and _required(value)
        return None if needs else EntryKind.HYPERMODEL
    if inspect.isclass(value) or name.isupper() or name in _NOT_TUNED:
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
        each.name
        for each in _signature(function).parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
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


def _reached(name: str, names: Mapping[str, Any]) -> set[str]:
    """Return the names in the file that an object uses, itself or through others."""
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        value = names[waiting.pop()]
        used = [each for each, one in names.items() if _is_part(one, value)]
        for code in _codes(value, names):
            used += _names_in(code) & names.keys()
        new = set(used) - reached
        reached |= new
        waiting += new
    return reached


def _trains(name: str, names: Mapping[str, Any], candidates: Container[str]) -> bool:
    """Return whether a function calls `fit` without `compile`, itself or through its helpers.

    One that calls both may build a model, and fit a scaler of its data before.
    """
    within = [name, *(each for each in _reached(name, names) if each not in candidates)]
    called = {used for each in within for code in _codes(names[each], names)
              for used in _names_in(code)}  # fmt: skip
    return "fit" in called and "compile" not in called


def _is_part(one: Any, of: Any) -> bool:
    """Return whether one is a base class of a class, or the class of an instance."""
    if not inspect.isclass(one) or one is of:
        return False
    return one in of.__mro__ if inspect.isclass(of) else type(of) is one


def _codes(value: Any, names: Mapping[str, Any]) -> Iterator[CodeType]:
    """Yield the code of a function of the file, or of the methods of a class."""
    owned = vars(value).values() if inspect.isclass(value) else [getattr(value, "func", value)]
    for each in owned:
        function = inspect.unwrap(each) if callable(each) else None
        if inspect.isfunction(function) and function.__globals__ is names:
            yield function.__code__


def _names_in(code: CodeType) -> set[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return set(code.co_names).union(*map(_names_in, inner))


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
    if callable(value) and not inspect.isclass(value):
        _refuse_other_objective(name, value)
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
            raise ModelFileError(f"{file} has no entry point, and {_RUN_TRIAL.format(name)}")
        _refuse_other_objective(name, value)


def _refuse_other_objective(name: str, value: Any) -> None:
    required = _required(value)
    is_optunas = required == ["trial"]
    if is_optunas or (name == OBJECTIVE and callable(value) and not _takes(value, 2)):
        hint = "; hp.Float, hp.Int and hp.Choice declare what trial.suggest_… does in Optuna"
        raise ModelFileError(
            f"{name}({', '.join(required)}) is no entry point: hptune calls objective(hp, trial)"
            f"{hint if is_optunas else ''}"
        )


def _is_own_tuner(value: Any) -> bool:
    base = _keras_tuner("Tuner")
    is_tuner = base is not None and inspect.isclass(value) and issubclass(value, base)
    return is_tuner and "run_trial" in vars(value)


_RUN_TRIAL = (
    "{}.run_trial is not used, as hptune runs the trials: move what it does to objective(hp, "
    "trial), or to fit(self, hp, model, …) of a HyperModel"
)


def _unused(own: Iterable[str], names: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a note on each object of the file that KerasTuner would use, and hptune does not."""
    notes = []
    for name in own:
        if _is_own_tuner(names[name]):
            notes.append(_RUN_TRIAL.format(name))
        kind, used = _keras_tuner("HyperParameters"), names.get("HYPERPARAMETERS")
        if kind is not None and isinstance(names[name], kind) and names[name] is not used:
            notes.append(
                f"the HyperParameters object {name} is not used; call it HYPERPARAMETERS, or "
                "declare in build_model(hp) what it declares"
            )
    return tuple(notes)

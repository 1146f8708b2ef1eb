"""One way to find a thing by name: built in, installed, or `module:Name`.

A sampler, pruner, export, executor or cluster is a row: its name, what makes it, its options, and
what it can. Rows of packages are found by entry points; reading them imports these packages, and
nothing else. What a user gives instead of a row, a class or a function, becomes one here.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Self, TypeVar

from .core.kinds import enumerated, plain
from .core.spelling import did_you_mean
from .core.table import Section, Setting, option
from .errors import UsageError, check_installed, faults_of_others, how_to_install

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

Target = str | Callable[..., Any]
"""A callable, or where it is, as "package.module:Name"; that is imported on first use."""

STORED = "@"
"""Separates the name of what was given in Python from the digest of its pickle."""


def shown_name(name: str) -> str:
    """Return a name as people read it.

    >>> shown_name("Evolution@1a2b3c4d"), shown_name("mine:Evolution")
    ('Evolution', 'mine:Evolution')
    """
    return name.partition(STORED)[0]


def loaded(target: Target) -> Callable[..., Any]:
    """Return the callable that a target names."""
    if not isinstance(target, str):
        return target
    module, _, name = target.partition(":")
    found: Callable[..., Any] = attrgetter(name)(importlib.import_module(module))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What can be chosen by name. Each kind of thing has a class of rows of its own.

    Attributes:
        name: What the user calls it.
        summary: One line for help and reference.
        factory: Makes it. It is called with `arguments` by position, then with `keywords` and the
            options that were given by name.
        options: Its own options (`core.table.option`), each a keyword argument of the factory.
        checks: Checks options without making anything: called with `keywords` and options as the
            factory is. Raises UsageError.
        needs: A module that it needs, and that comes with an extra; empty for none.
    """

    name: str
    summary: str
    factory: Target
    options: tuple[Setting, ...] = ()
    checks: Target | None = None
    needs: str = ""

    what: ClassVar[str]
    """What messages call such a thing, such as "search"."""
    group: ClassVar[str]
    """The group of entry points."""
    arguments: ClassVar[tuple[str, ...]] = ()
    keywords: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        named = (
            each if each.flag else replace(each, flag=f"--option {self.what}.{each.name}")
            for each in self.options
        )
        object.__setattr__(self, "options", tuple(named))

    def read(self, given: Mapping[str, object]) -> dict[str, Any]:
        """Return the values of the given options, as the factory takes them.

        Raises:
            UsageError: There is no such option, or its value is not allowed.
        """
        known = {each.name: each for each in self.options}
        for name in given.keys() - known.keys():
            has = f"its options are {enumerated(*known)}" if known else "it has no options"
            raise UsageError(
                f"--option {self.what}.{name} is given, but --{self.what} is {self.name}; {has}."
                f"{did_you_mean(name, known, '{}')}"
            )
        return {name: known[name].read(value) for name, value in given.items()}

    def check(self, given: Mapping[str, object], **keywords: Any) -> None:
        """Check options without making anything.

        Args:
            given: The options that the user gave.
            keywords: The values of `keywords`.

        Raises:
            UsageError: The options are wrong, or the factory cannot be called with them.
        """
        values = self.read(given)
        self._check_installed()
        if not isinstance(self.factory, str):
            try:
                inspect.signature(self.factory).bind(*self.arguments, **keywords, **values)
            except (TypeError, ValueError) as error:
                shown = ", ".join(
                    (*self.arguments, *(f"{name}=…" for name in (*keywords, *values)))
                )
                raise UsageError(
                    f"--{self.what} is {self.name}, which cannot be called as "
                    f"{self.name}({shown}): {error}"
                ) from error
        if self.checks is not None:
            loaded(self.checks)(**keywords, **values)

    def make(self, *arguments: Any, given: Mapping[str, object], **keywords: Any) -> Any:
        """Call the factory.

        Args:
            arguments: The values of `arguments`.
            given: The options that the user gave.
            keywords: The values of `keywords`.
        """
        self._check_installed()
        return loaded(self.factory)(*arguments, **keywords, **self.read(given))

    def _check_installed(self) -> None:
        if self.needs:
            check_installed(self.needs, f"--{self.what} {self.name}")

    def bound(self, **arguments: Any) -> Self:
        """Return the row with more arguments for its factory and its checks."""
        checks = (
            None if self.checks is None else functools.partial(loaded(self.checks), **arguments)
        )
        factory = functools.partial(loaded(self.factory), **arguments)
        return replace(self, factory=factory, checks=checks)


R = TypeVar("R", bound=Row)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(Generic[R]):
    """Classes and objects of another library, which an adapter makes usable here.

    Attributes:
        row: The adapter. Its name is the prefix in `prefix:NAME`, and its factory takes the class
            or object as the keyword argument `adapted`.
        base: The class of the objects, as "package.module:Name"; its module has the classes.
        example: Name of one of the classes.
        without: Names of classes that cannot be used.
    """

    row: R
    base: str
    example: str
    without: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module of the classes."""
        return self.base.partition(":")[0]

    def has(self, thing: object) -> bool:
        """Return whether this is one of the classes, or an object of one."""
        module = sys.modules.get(self.module)
        if module is None:
            return False
        base = getattr(module, self.base.partition(":")[2])
        return isinstance(thing, base) or (inspect.isclass(thing) and issubclass(thing, base))

    def names(self, module: ModuleType) -> list[str]:
        """Return the names of the classes that can be used."""
        base = self.base.partition(":")[2]
        hidden = (base, *self.without)
        return sorted(n for n, each in vars(module).items() if self.has(each) and n not in hidden)


class Registry(Generic[R]):
    """Things of one kind, by name.

    Args:
        row: The class of its rows.
        built_in: The rows that are built in.
        families: Adapters of other libraries.
    """

    def __init__(self, row: type[R], built_in: Sequence[R], families: Sequence[Family[R]] = ()):
        self._row = row
        self.what = row.what
        self.built_in = {each.name: each for each in built_in}
        self._families = {family.row.name: family for family in families}

    @property
    def rows(self) -> Mapping[str, R]:
        """The rows that are built in or installed, by name."""
        found = _entry_points(self._row.group, tuple(sys.path))
        others = (each for each in found if each.name not in self.built_in)
        return {**self.built_in, **{each.name: self._installed(each) for each in others}}

    @property
    def summaries(self) -> Mapping[str, str]:
        """A one-line summary of each row and family."""
        families = {
            f"{name}:NAME": f"{each.row.summary}, such as {name}:{each.example}"
            for name, each in self._families.items()
        }
        return {name: row.summary for name, row in self.rows.items()} | families

    def known(self, name: str) -> R | None:
        """Return what is built in or installed under this name; None if nothing is."""
        return self.built_in.get(name) or self.rows.get(name)

    def find(self, name: str, folders: Sequence[str | Path] = ()) -> R:
        """Return the row of a name.

        Args:
            name: The name, `module:Name`, or the prefix of a family with the name of a class.
            folders: Where modules are looked for first.

        Raises:
            UsageError: There is no such thing.
        """
        if (row := self.known(name)) is not None:
            return row
        prefix, colon, attribute = name.partition(":")
        if not colon or not attribute or not prefix:
            raise self._unknown(name)
        family = self._families.get(prefix)
        module = self._module(name, family.module if family else prefix, folders)
        if family and attribute not in family.names(module):
            names = family.names(module)
            hint = did_you_mean(attribute, names, f"'{prefix}:{{}}'", likeness=0.4)
            raise UsageError(
                f"unknown {self.what} {name!r}; those of {prefix} that can be used are "
                f"{', '.join(names)}.{hint}"
            )
        try:
            found = attrgetter(attribute)(module)
        except AttributeError:
            raise UsageError(
                f"--{self.what} is {name!r}, but {prefix} has no {attribute!r}."
                f"{did_you_mean(attribute, vars(module))}"
            ) from None
        return self.row_of(found, name)

    def row_of(self, thing: object, name: str = "") -> R:
        """Return the row of what a user gives: a row, a factory, or an object of a family.

        Args:
            thing: What was given.
            name: Its name; by default the one that it has in Python.

        Raises:
            UsageError: It is none of these.
        """
        if (row := self._row_of(thing, name)) is not None:
            return row
        call = ", ".join(
            (*self._row.arguments, *(f"{keyword}=…" for keyword in self._row.keywords))
        )
        raise UsageError(
            f"--{self.what} is {name or repr(thing)}; allowed are {', '.join(self.summaries)}, "
            f"module:Name, and a class or function that is called as factory({call})"
        )

    def _row_of(self, thing: object, name: str) -> R | None:
        if isinstance(thing, self._row):
            return replace(thing, name=name or thing.name)
        name = name or getattr(thing, "__name__", type(thing).__name__)
        for family in self._families.values():
            if family.has(thing):
                return replace(family.row.bound(adapted=thing), name=name)
        if not callable(thing):
            return None
        doc = (thing.__doc__ or "").strip().partition("\n")[0].rstrip(".")
        return self._row(name=name, summary=doc, factory=thing, options=self._options(thing))

    def _installed(self, entry: EntryPoint) -> R:
        """Return the row of an installed package; one that cannot be loaded fails when used."""
        try:
            row = self._row_of(entry.load(), entry.name)
            why = f"cannot be used: {entry.value} is no class or function"
        except Exception as error:  # a package may raise anything, and only this row fails
            row = None
            why = f"cannot be loaded from {entry.value}: {type(error).__name__}: {error}"

        def fail(*_: Any, **__: Any) -> NoReturn:
            raise UsageError(f"--{self.what} {entry.name} {why}")

        return row or self._row(name=entry.name, summary=why, factory=fail, checks=fail)

    def _options(self, factory: Callable[..., Any]) -> tuple[Setting, ...]:
        """Return the options of a factory that declares none: its other arguments."""
        try:
            found = list(inspect.signature(factory).parameters.values())
        except (TypeError, ValueError):
            return ()
        by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(
            option(each.name, plain(), "must be given")
            if each.default is inspect.Parameter.empty
            else option(each.name, plain(), "", default_text=repr(each.default))
            for each in found[len(self._row.arguments) :]
            if each.kind in by_name and each.name not in self._row.keywords
        )

    def _module(self, name: str, module: str, folders: Sequence[str | Path]) -> ModuleType:
        given = f"--{self.what} is {name!r}"

        def broken(words: str, detail: str) -> UsageError:
            return UsageError(f"{given}, but {module} cannot be imported: {words}", detail)

        with faults_of_others(broken):
            try:
                return _imported(module, folders)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{module}.".startswith(f"{error.name}."):
                    raise
                install = how_to_install(error.name)
                hint = f"; install it with: {install}" if install else _where(folders)
                raise UsageError(f"{given}, but {error.name} is not installed{hint}") from None

    def _unknown(self, name: str) -> UsageError:
        what = self.what
        if STORED in name:
            return UsageError(
                f"the {what} {shown_name(name)} was given in Python, and is stored in a "
                f"study's directory; name the {what} as module:Name"
            )
        return UsageError(
            f"unknown {what} {name!r}; allowed are {', '.join(self.summaries)}, and module:Name."
            f"{did_you_mean(name, self.rows, likeness=0.5)}"
        )


def own_option(
    name: str,
    registry: Registry[Any],
    section: Section,
    *,
    resumable: bool = True,
    is_rare: bool = True,
    stands_alone: bool = False,
) -> Any:
    """Return a field of a settings table for an option of what is built in; None if not given.

    With `stands_alone`, the option's text says all; if not, what it is an option of comes first.
    """
    built_in = registry.built_in.values()
    found = {row.name: each for row in built_in for each in row.options if each.name == name}
    given = next(iter(found.values()))
    begin = "" if stands_alone else f"With --{registry.what} {enumerated(*found)}: "
    row = {
        **{key: getattr(given, key) for key in ("flag", "argument", "kind", "default_text")},
        "help": f"{begin}{given.help}",
        "section": section,
        "resumable": resumable,
        "is_rare": is_rare,
        "owner": registry.what,
        "owners": tuple(found),
    }
    return field(default=None, metadata=row)


def _where(folders: Sequence[str | Path]) -> str:
    return f", and there is no such file in {enumerated(*map(str, folders))}" if folders else ""


def _imported(name: str, folders: Sequence[str | Path]) -> ModuleType:
    """Import a module, from the first of these folders that has its file or else as usual."""
    for folder in folders:
        place = Path(folder, *name.split("."))
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return _of_file(name, path.resolve(), str(folder))
    return importlib.import_module(name)


def _of_file(name: str, path: Path, folder: str) -> ModuleType:
    names = (name, f"hptune_plugin_{name}")  # another module may have the name
    for each in names:
        present = sys.modules.get(each)
        if present is not None and getattr(present, "__file__", None) == str(path):
            return present
    name = names[name in sys.modules or name in sys.stdlib_module_names]
    if folder not in sys.path:
        sys.path.append(folder)  # for the modules that it imports
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None:
        raise ImportError(f"{path} is not Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Cached bytecode is known by size and second, so an edit might not be seen.
        code = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        exec(code, vars(module))  # noqa: S102
    except BaseException:
        del sys.modules[name]
        raise
    return module


@functools.cache
def _entry_points(group: str, _path: tuple[str, ...]) -> Sequence[EntryPoint]:
    from importlib.metadata import entry_points  # loads the parser of e-mails

    return tuple(entry_points(group=group))

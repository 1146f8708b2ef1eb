"""Texts made from the settings table: arguments in Python, and the reference of all options.

`python -m hptune.config.reference` prints `docs/reference-options.md`.
"""

from __future__ import annotations

import enum
import inspect
import re
import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..core.table import Section, Setting
from ..errors import without_passwords
from ..pruners.registry import PRUNERS
from ..registry import Registry
from ..samplers.registry import SAMPLERS
from .places import CLUSTERS, EXECUTORS
from .settings import SETTINGS, StudySettings

_ARGUMENTS = {each.flag: each.argument for each in SETTINGS} | {"--study": "directory="}

_SWITCHES = {"--retry-failed": "retry_failed", "--accept-space": "accept_space"}
"""Arguments of `Tuner` for the options of `hptune resume` that have no value."""
OPEN_STUDY = "hptune.open_study"
"""Stands for a function's name where programs ask for the trials."""
SWEEPER = "hydra.sweeper"
"""Stands for a function's name where Hydra starts the study."""
KERAS_TUNER = "keras_tuner.Tuner"
"""Stands for a function's name where a script of KerasTuner starts the study."""
SWEEPERS_STUDY = "hptune"
"""Name of the study's directory in the folder of a multirun."""
MULTIRUN = "multirun.txt"
"""Name of the file in a study's directory that says where the folder of its multirun is."""
_NEW_STUDY = "hptune run … --study "

_HEAD = """\
# Settings

All settings of a study: options of `hptune run`, and keyword arguments of `hptune.Tuner`, where
times and sizes may be texts ("10m", "8GB") or numbers (seconds, bytes). `hptune resume` takes those
marked with "yes" in the column *Resume*; the others stay as they were when the study began.

An option is given once, as all options of all commands, unless its text says that it may be
repeated. A second value is refused, and so are two values of one name: `--prior lr~A --prior lr~B`.

<!-- Made by `python -m hptune.config.reference` from `tuner/hptune/config/options.py`. -->
"""


_OF_FILES = ("entry", "python")
"""Settings that only a model file has; `Tuner` is given what to tune."""


def in_python(message: str, function: str = "...") -> str:
    """Return a message with arguments for options, and calls of `Tuner` for commands.

    In all messages a setting stands as its option, which is looked up in the table of settings.
    `function` is the model function's name.

    >>> in_python("--min-epochs is 0; or `hptune resume DIR --trials 9`; or --study")
    "min_epochs is 0; or `Tuner(..., directory='DIR', trials=9, resume=True).fit()`; or directory="
    >>> in_python("see `hptune status DIR`; use --min-epochs 6 or --pruner none")
    "see `hptune status DIR`; use min_epochs=6 or pruner='none'"
    >>> in_python("train.py: error: --units is missing (--objective value:max)")
    "train.py: error: --units is missing (objective='value:max')"
    """

    def argument(found: re.Match[str]) -> str:
        command, flag, value = found.groups()
        if command and command.startswith(_NEW_STUDY):
            study = command.removeprefix(_NEW_STUDY)
            return f"`{_call(function, study, [])}`"
        if command:
            return f"`{resume_call(command, function) or command}`"
        name = _ARGUMENTS.get(flag) or _SWITCHES.get(flag)
        if name is None:  # no setting: it may be of the user's own program
            return found[0]
        return f"{name.removesuffix('=')}={_python_value(value)}" if value else name

    return _OPTION.sub(argument, message)


_OPTION = re.compile(r"`([^`]*)`|(--[a-z][a-z-]*[a-z])(?: (\d[\w.]*\b|none\b|\w+:m(?:in|ax)\b))?")
"""A command, or an option with its value: a number, an amount, none, or an objective."""


def _python_value(value: str) -> str:
    """Return a value of an option as an argument in Python.

    >>> _python_value("0.25"), _python_value("8GB")
    ('0.25', "'8GB'")
    """
    return value if re.fullmatch(r"\d+(\.\d+)?", value) else repr(value)


def resume_call(command: str, function: str = "...") -> str:
    """Return the call of `Tuner` that does what `hptune resume` does; empty if there is none.

    >>> resume_call("hptune resume studies/a-1 --timeout 4h", "build_model")
    "Tuner(build_model, directory='studies/a-1', timeout='4h', resume=True).fit()"
    >>> resume_call("hptune resume studies/a-1 --trials 9", OPEN_STUDY)
    "hptune.open_study('studies/a-1', trials=9)"
    >>> resume_call("hptune resume multirun/a/hptune --retry-failed", SWEEPER)
    '--multirun … hydra.sweep.dir=multirun/a hydra.sweeper.retry_failed=True'
    >>> resume_call("hptune resume out/digits --retry-failed", KERAS_TUNER)
    "Tuner(..., project_name='digits', retry_failed=True).search(...)"
    >>> resume_call("hptune resume studies/a-1 --retry-failed")
    "Tuner(..., directory='studies/a-1', resume=True, retry_failed=True).fit()"
    """
    begin, _, rest = command.partition("hptune resume ")
    words = shlex.split(rest)
    switches = [f"{_SWITCHES[word]}=True" for word in words if word in _SWITCHES]
    words = [word for word in words if word not in _SWITCHES]
    flags, values = words[1::2], words[2::2]
    if begin or not words or len(flags) != len(values) or not _ARGUMENTS.keys() >= set(flags):
        return ""
    pairs = zip(flags, values, strict=True)
    given = [f"{_ARGUMENTS[flag]}={_python_value(value)}" for flag, value in pairs]
    resumes = [] if function in (OPEN_STUDY, SWEEPER, KERAS_TUNER) else ["resume=True"]
    return _call(function, words[0], [*given, *resumes, *switches])


def _call(function: str, directory: str, given: Sequence[str]) -> str:
    """Return what continues the study in a directory: a call, or overrides for Hydra."""
    if function == SWEEPER:
        path = Path(directory)
        is_usual = path.name == SWEEPERS_STUDY
        key, path = ("hydra.sweep.dir", path.parent) if is_usual else (f"{SWEEPER}.directory", path)
        value = path if re.fullmatch(r"[\w/.:+-]+", str(path), re.ASCII) else repr(str(path))
        where = shlex.quote(f"{key}={value}")
        return " ".join(("--multirun …", where, *(f"{SWEEPER}.{each}" for each in given)))
    if function == KERAS_TUNER:
        given = ["...", f"project_name={Path(directory).name!r}", *given]
        return f"Tuner({', '.join(given)}).search(...)"
    if function == OPEN_STUDY:
        return f"{OPEN_STUDY}({', '.join((repr(directory), *given))})"
    return f"Tuner({', '.join((function, f'directory={directory!r}', *given))}).fit()"


def given_options(settings: StudySettings) -> list[tuple[str, str]]:
    """Return the options that differ from their defaults, each with a value as a user writes it.

    An option without a value has an empty one.
    Passwords of URLs are masked.
    """
    found = []
    for each in SETTINGS:
        value = getattr(settings, each.name)
        if value in (each.default, ()):
            continue
        parts = [value]
        if each.kind.is_repeated and isinstance(value, Mapping):
            parts = [{name: one} for name, one in value.items()]
        elif each.kind.is_repeated:
            parts = [(one,) for one in value]
        found += [(each.flag, without_passwords(each.kind.show(part))) for part in parts]
    return found


def _sections() -> Iterator[tuple[Section, list[Setting]]]:
    for section in Section:
        settings = [each for each in SETTINGS if each.section is section]
        if settings:
            yield section, settings


def arguments_text() -> str:
    """Return the settings as arguments, in the form of `Args:` sections of a docstring.

    Those that few studies need come last, and then what settings can name.
    """
    texts: dict[str, list[str]] = {section: [] for section, _ in _sections()}
    texts["Rarely needed"] = []
    for section, settings in _sections():
        for each in settings:
            if each.name not in _OF_FILES:
                texts["Rarely needed" if each.is_rare else section].append(_argument_text(each))
    for title, registry in NAMED.items():
        built_in = registry.built_in.values()  # to look for others would import their packages
        texts[title] = [f'"{row.name}": {in_python(row.summary)}.' for row in built_in]
    return "\n".join(f"{title}:\n{_indented(those)}\n" for title, those in texts.items() if those)


def _argument_text(setting: Setting) -> str:
    default = f" Default: {in_python(setting.default_text)}." if setting.default_text else ""
    several = " May be a list." if setting.kind.is_repeated else ""
    return f"{setting.argument}: {in_python(setting.help)}{several}{default}"


def _indented(texts: Iterable[str]) -> str:
    filled = partial(textwrap.fill, width=92, initial_indent="    ", subsequent_indent=" " * 8)
    return "\n".join(map(filled, texts))


def parameters() -> list[inspect.Parameter]:
    """Return the settings as keyword-only parameters of a function."""
    return [
        inspect.Parameter(
            each.argument,
            inspect.Parameter.KEYWORD_ONLY,
            default=str(each.default) if isinstance(each.default, enum.Enum) else each.default,
        )
        for each in SETTINGS
        if each.name not in _OF_FILES
    ]


def markdown() -> str:
    """Return the reference of all settings."""
    lines = [_HEAD]
    for section, settings in _sections():
        lines += [f"## {section}", "", "| Option | In Python | Default | Resume | Meaning |"]
        lines += ["|---|---|---|---|---|", *map(_row, settings), ""]
    for title, registry in NAMED.items():
        lines += [f"## {title}", "", "| Name | Meaning |", "|---|---|"]
        lines += [f"| `{name}` | {words} |" for name, words in summaries(registry).items()]
        lines.append("")
    return "\n".join(lines)


NAMED: Mapping[str, Registry[Any]] = {
    "Search methods": SAMPLERS,
    "Pruners": PRUNERS,
    "Clusters": CLUSTERS,
    "Executors": EXECUTORS,
}
"""What settings name, by heading."""


def summaries(registry: Registry[Any]) -> dict[str, str]:
    """Return a line on each thing that can be named, with its options if it is not built in."""
    found = dict(registry.summaries)
    for name, row in registry.rows.items():
        if name in registry.built_in:
            continue
        options = [
            f"{option.flag}={option.kind.metavar} ({_explained(option)})" for option in row.options
        ]
        found[name] = "; ".join((found[name], *options))
    return found


def _explained(option: Setting) -> str:
    default = f"default {option.default_text}" if option.default_text else ""
    return ", ".join(filter(None, (option.help.rstrip("."), default)))


def _row(setting: Setting) -> str:
    more = " May be repeated; a list in Python." if setting.kind.is_repeated else ""
    cells = (
        f"`{f'{setting.flag} {setting.kind.metavar}'.strip()}`",
        "" if setting.name in _OF_FILES else f"`{setting.argument}`",
        setting.default_text,
        "yes" if setting.resumable else "no",
        f"{setting.help}{more} Allowed: {setting.kind.allowed}.",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    sys.stdout.write(markdown())

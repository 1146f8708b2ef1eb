"""Options of commands that come from the settings table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from ..config.settings import BY_NAME, SETTINGS
from ..core.table import Setting
from ..errors import UsageError
from .commands import Command, help_all, option_in


def setting_option(name: str) -> Callable[[Command], Command]:
    """Return the option of one setting, by its field of `StudySettings`; None if not given."""
    return _option(BY_NAME[name], default_text=BY_NAME[name].default_text)


def setting_options(*names: str) -> Callable[[Command], Command]:
    """Return the options of some settings, as `setting_option`."""

    def add(command: Command) -> Command:
        for name in reversed(names):
            command = setting_option(name)(command)
        return command

    return add


def settings_options(command: Command) -> Command:
    """Add the options of all settings; those not given are None."""
    return setting_options(*BY_NAME)(help_all(command))


def resumable_options(command: Command) -> Command:
    """Add the options of all settings; those that a resumed study cannot change are not shown."""
    command = help_all(command)
    for setting in reversed(SETTINGS):
        command = _option(setting, hidden=not setting.resumable)(command)
    return command


def _option(
    setting: Setting, *, default_text: str = "", hidden: bool = False
) -> Callable[[Command], Command]:
    kind, text = setting.kind, setting.help
    shape: dict[str, Any] = {"metavar": kind.metavar, "multiple": kind.is_repeated}
    if kind.is_flag:
        shape = {"is_flag": True, "default": None}
    elif kind.is_repeated:
        text += " May be repeated."
    if default_text and not kind.is_flag:
        text += f"  [default: {default_text}]"

    def read(_context: click.Context, _option: click.Parameter, given: Any) -> Any:
        if given == "" or (isinstance(given, tuple) and "" in given):
            raise UsageError(
                f"{setting.flag} is empty; allowed are {kind.allowed}. Is a variable of the shell "
                "unset?"
            )
        return None if given in (None, ()) else setting.read(given)

    shape |= {"callback": read, "is_rare": setting.is_rare, "help": text, "hidden": hidden}
    return option_in(setting.section, setting.flag, setting.name, **shape)

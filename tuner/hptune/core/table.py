"""One row of a table of settings: what a setting, or an option of a plug-in, takes and means."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field, fields
from typing import Any

from ..errors import UsageError
from .kinds import Kind


class Section(enum.StrEnum):
    """Headings under which settings are listed, in their order."""

    GOAL = "What is optimised"
    SEARCH = "How it is searched"
    AMOUNT = "How much"
    PRUNING = "Early stopping"
    PLACE = "Where trials run, and with what"
    CHECKPOINTS = "Checkpoints"
    FAILURES = "What happens on failure"
    NOTIFICATIONS = "Notifications"
    OTHERS = "Others"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a study.

    Attributes:
        name: Name of the field of `StudyOptions`.
        flag: The command-line option.
        argument: The keyword argument of `Tuner`.
        kind: The values that it takes.
        default: The value of a setting that was not given. If it is None, so may a value be.
        default_text: The default as help shows it.
        help: What the setting does, in one or two sentences.
        section: Heading under which it is listed.
        resumable: Whether a study that is resumed may be given another value.
        is_rare: Whether few studies need it: `--help-all` lists it, and `--help` does not.
        owner: What it is an option of: "search", "pruner"; empty for a setting of every study.
        owners: Names of those built in that have this option.
    """

    name: str
    flag: str
    argument: str
    kind: Kind
    default: Any
    default_text: str
    help: str
    section: Section = Section.OTHERS
    resumable: bool = True
    is_rare: bool = False
    owner: str = ""
    owners: tuple[str, ...] = ()

    def read(self, value: object) -> Any:
        """Return the value that was meant.

        Raises:
            UsageError: The value is not allowed.
        """
        if value is None and self.default is None:
            return None
        try:
            return self.kind.read(value)
        except ValueError as error:
            if str(error):
                raise UsageError(f"{self.flag}: {error}") from error
            # A number in text stands as it was typed: --trials is 0.
            shown = value if re.fullmatch(r"-?[\d.]+", str(value)) else repr(value)
            message = f"{self.flag} is {shown}; allowed are {self.kind.allowed}"
            raise UsageError(message) from error


def setting(
    kind: Kind,
    section: Section,
    text: str,
    *,
    default: Any,
    flag: str = "",
    argument: str = "",
    default_text: str = "",
    resumable: bool = True,
    is_rare: bool = False,
) -> Any:
    """Return a field of `StudyOptions` that is a row of the settings table.

    The arguments are attributes of `Setting`, and `text` is its `help`. Without `flag`, it is the
    field's name with hyphens; without `argument`, the flag's name with underscores; without
    `default_text`, the default as a user would write it.
    """
    row = {
        "flag": flag,
        "argument": argument,
        "kind": kind,
        "default_text": default_text or kind.show(default),
        "help": text,
        "section": section,
        "resumable": resumable,
        "is_rare": is_rare,
    }
    given: dict[str, Any] = {"default": default}
    if isinstance(default, dict):
        given = {"default_factory": dict}
    return field(**given, metadata=row)


def option(
    name: str,
    kind: Kind,
    text: str,
    *,
    default: Any = None,
    default_text: str = "",
    flag: str = "",
) -> Setting:
    """Return an option of a sampler, pruner or other plug-in.

    Args:
        name: Name of the factory's keyword argument.
        kind: The values that it takes.
        text: What it does, in a sentence.
        default: The factory's own default, which is used if the option is not given.
        default_text: The default as help shows it; by default as a user would write it.
        flag: A command-line option of its own, for what is built in.
    """
    return Setting(
        name=name,
        flag=flag,
        argument=flag.removeprefix("--").replace("-", "_") or name,
        kind=kind,
        default=default,
        default_text=default_text or kind.show(default),
        help=text,
    )


def rows(settings: type[Any]) -> tuple[Setting, ...]:
    """Return the settings table of a dataclass whose fields were made by `setting`."""
    found = []
    for each in fields(settings):
        if not each.metadata:
            continue
        default = each.default_factory() if callable(each.default_factory) else each.default
        flag = each.metadata["flag"] or f"--{each.name.replace('_', '-')}"
        argument = each.metadata["argument"] or flag.removeprefix("--").replace("-", "_")
        row = {**each.metadata, "flag": flag, "argument": argument}
        found.append(Setting(name=each.name, default=default, **row))
    return tuple(found)

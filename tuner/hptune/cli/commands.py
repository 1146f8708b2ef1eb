"""Commands, and the arguments and options that are not of the settings table."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from ..core.kinds import Kind
from ..core.table import Section
from ..errors import UsageError

Command = Callable[..., None]

_SCHEDULER = re.compile(r"(tls|tcp):/[^/]")
"""The beginning of a scheduler's address, of which a path has lost a slash."""


class PathType(click.Path):
    """A path. An empty text is none, as that of an unset variable of the shell.

    What uses the path says what helps where this user may not read it.
    """

    def __init__(self, *, readable: bool = False, **others: Any) -> None:
        super().__init__(readable=readable, **others)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path of a text."""
        if value == "":
            self.fail("the path is empty; is a variable of the shell unset?", param, ctx)
        return super().convert(value, param, ctx)


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


def _or_newest(_context: click.Context, _argument: click.Parameter, given: Path | None) -> Path:
    if given is not None and _SCHEDULER.match(str(given)):
        address = str(given).replace(":/", "://", 1)
        raise UsageError(
            f"{address} is a scheduler, and here a study's directory is named; `hptune dashboard "
            f"{address}` shows the study that runs there, and says where it is"
        )
    return newest_study() if given is None else given


def newest_study() -> Path:
    """Return the directory that a command without DIR means, and name it on stderr."""
    from ..storage.directory import StudyDirectory

    found = StudyDirectory.newest()
    is_around = Path.cwd().is_relative_to(found.path)
    click.echo(f"study: {found.path}" if is_around else f"newest study: {found}", err=True)
    return found.path


study_directory = click.argument(
    "directory",
    type=PathType(path_type=Path),
    metavar="[DIR]",
    required=False,
    callback=_or_newest,
    is_eager=True,  # messages about options name it
)
"""The argument DIR, a study's directory; see `StudyDirectory.newest` for commands without it."""


class WholeNumber(click.IntRange):
    """A whole number within bounds, with the name that messages give it."""

    name = "whole number"


class KindType(click.ParamType[Any]):
    """A kind of value, such as a time, as a type of click's."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.name = kind.metavar

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value of a text."""
        try:
            return self.kind.read(value)
        except ValueError as error:
            message = str(error) or f"{value!r} is given; allowed are {self.kind.allowed}"
            return self.fail(message, param, ctx)


class SectionedOption(click.Option):
    """An option that is listed under a heading of its command's help.

    Args:
        names: Those of the option, as click takes them.
        section: The heading.
        is_rare: Whether only `--help-all` lists it.
        others: What else click's option takes.
    """

    def __init__(
        self,
        *names: Any,
        section: Section = Section.OTHERS,
        is_rare: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(*names, **others)
        self.section = section
        self.is_rare = is_rare


def option_in(section: Section, *names: str, **others: Any) -> Callable[[Command], Command]:
    """Return an option that is listed under a heading, made as `click.option` does."""
    return click.option(*names, cls=SectionedOption, section=section, **others)


def path_option(
    *names: str, text: str, metavar: str = "FILE", section: Section = Section.OTHERS, **others: Any
) -> Callable[[Command], Command]:
    """Return an option that takes a path, made as `click.option` does."""
    shape = {"type": PathType(path_type=Path), "metavar": metavar, "help": text, **others}
    return option_in(section, *names, **shape)


_OF_A_TRIAL = {"best": "`hptune show DIR {}`", "stop": "--trial {}"}
"""What takes the number of a trial, by the commands that have been given one without an option."""


class OptionsOnce(click.Command):
    """A command that refuses a second value of an option that takes one: none is lost silently."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        given: set[click.Parameter] = set()
        _, left, params = self.make_parser(ctx).parse_args([*args])
        meant = _OF_A_TRIAL.get(self.name or "")
        if meant and left and left[0].isdecimal() and not ctx.resilient_parsing:
            raise UsageError(f"{left[0]} is given beside DIR; use {meant.format(left[0])}")
        for param in params:
            takes_one = isinstance(param, click.Option) and not (param.multiple or param.is_flag)
            if takes_one and param in given and not ctx.resilient_parsing:
                raise UsageError(f"{param.opts[-1]} is given twice; it takes one value")
            given.add(param)
        return super().parse_args(ctx, args)


plain_command = partial(click.command, cls=OptionsOnce)
"""`click.command`, of commands without sections."""


class SectionedCommand(OptionsOnce):
    """A command whose options are listed by section."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections in their order."""
        found: dict[str, list[tuple[str, str]]] = {section: [] for section in Section}
        left_out = 0
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is None:
                continue
            if getattr(param, "is_rare", False) and not wants_all(ctx):
                left_out += 1
            else:
                found[getattr(param, "section", Section.OTHERS)].append(record)
        for section, records in found.items():
            if records:
                with formatter.section(section):
                    formatter.write_dl(records)
        if left_out:
            formatter.write_paragraph()
            formatter.write_text(f"{left_out} more options: `{ctx.command_path} --help-all`")


_HELP_ALL = "hptune.help_all"


def wants_all(ctx: click.Context) -> bool:
    """Return whether the help that is written is to list the rare options too."""
    return _HELP_ALL in ctx.meta


def _show_all(ctx: click.Context, _option: click.Parameter, is_given: Any) -> None:
    if is_given and not ctx.resilient_parsing:
        ctx.meta[_HELP_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


help_all = click.option(
    "--help-all",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options and exit.",
)

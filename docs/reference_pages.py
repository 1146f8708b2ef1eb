"""Pages of the site that are made from the code: the Python API and the commands."""

from __future__ import annotations

import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import click

import hptune
from hptune.cli import main
from hptune.core.attempt import Usage
from hptune.core.messages import Event
from hptune.reporting.results import export
from hptune.reporting.results.costs import Costs
from hptune.reporting.results.rows import COLUMNS, FILES, Column, Place
from hptune.samplers.registry import SAMPLERS
from hptune.training.context import TrialContext

_STABLE = (Path(__file__).parent / "stability.md").read_text()
_SECTION = re.compile(r"^(Args|Attributes|Raises|Returns|Example|Examples|The columns)::?$")
_ENTRY = re.compile(r"^(\*{0,2}[\w.]+(?: \([^)]*\))?): (.*)", re.DOTALL)
_VALUES_OF_TRIAL = ("number", "seed", "epochs", "resumed_from")
_OF_TRIAL = (
    *("params", "report", "should_stop", "checkpoint_dir"),
    *("rank", "world_size", "local_rank", "port"),
)
_FIRST = ("Tuner", "Study", "HyperParameters", "Resources")
_DECLARATIONS = ("Int", "Float", "Choice", "Boolean", "Fixed", "conditional_scope")


def python_api() -> str:
    """Return what docs/stability.md promises of Python, from the docstrings."""
    parts = []
    for name in dict.fromkeys((*_FIRST, *hptune.__all__)):
        value = getattr(hptune, name)
        parts.append(_entry(name, value, 2))
        if name in ("Tuner", "Study"):
            kept = re.search(rf"^Of `{name}`:(.*)", _STABLE, re.MULTILINE)
            members = re.findall(r"`(\w+)`", kept[1]) if kept else []
            members = [each for each in dict.fromkeys(members) if each != "Tuner"]
        else:
            members = list(_DECLARATIONS) if name == "HyperParameters" else []
        parts += [_entry(f"{name}.{each}", _member(value, each), 3) for each in members]
    parts.append(_trial())
    parts += [_entry(f"trial.{each}", _member(TrialContext, each), 3) for each in _OF_TRIAL]
    return "\n" + "\n".join(parts)


def _trial() -> str:
    described = dict(_sections(inspect.cleandoc(TrialContext.__doc__ or "")))
    values = {each.split("`")[1]: each for each in map(_item, _entries(described["Attributes"]))}
    kept = [values[name] for name in _VALUES_OF_TRIAL]
    head = "The second argument of `objective(hp, trial)`."
    return "\n".join(("## trial", "", head, "", *kept, ""))


def _member(of: type, name: str) -> Any:
    return inspect.getattr_static(of, name)


def _entry(name: str, value: Any, level: int) -> str:
    documented = value.func if isinstance(value, cached_property) else value
    call = ""
    if name == "Tuner":
        call = "Tuner(model_fn, objective=None, *, **settings)"
    elif inspect.isfunction(value) or (inspect.isclass(value) and "Error" not in name):
        call = name + _signature(value, is_method="." in name)
    text = _as_markdown(inspect.cleandoc(documented.__doc__ or ""))
    signature = f"```text\n{call}\n```\n\n" if call else ""
    return f"{'#' * level} {name}\n\n{signature}{text}\n"


def _signature(value: Any, *, is_method: bool) -> str:
    try:
        signature = inspect.signature(value)
    except ValueError:  # of an exception, which takes anything
        return ""
    given = list(signature.parameters.values())[1 if is_method else 0 :]
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in given]
    text = str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return textwrap.fill(text, 88, subsequent_indent="    ", break_long_words=False)


def _as_markdown(docstring: str) -> str:
    """Return a docstring of Google's style as Markdown."""
    lines = []
    for title, body in _sections(docstring):
        if title.startswith("What is optimised"):  # the settings, which have a page of their own
            lines.append("All settings: [Settings](../reference-options.md).\n")
            break
        if title in ("Args", "Attributes", "Raises"):
            lines += [f"**{title}**", "", *map(_item, _entries(body)), ""]
        elif title.startswith("Example"):
            lines += ["```python", body.strip(), "```", ""]
        else:
            lines += ([f"**{title}**", ""] if title else []) + [_paragraphs(body), ""]
    return "\n".join(lines)


def _sections(docstring: str) -> Iterator[tuple[str, str]]:
    title = ""
    body: list[str] = []
    for line in docstring.splitlines():
        found = _SECTION.match(line)
        if found or line == "What is optimised:":
            yield title, textwrap.dedent("\n".join(body))
            title, body = found[1] if found else line, []
        elif title and line and not line.startswith(" "):
            yield title, textwrap.dedent("\n".join(body))
            title, body = "", [line]
        else:
            body.append(line)
    yield title, textwrap.dedent("\n".join(body))


def _entries(body: str) -> list[str]:
    return [" ".join(each.split()) for each in re.split(r"\n(?=\S)", body.strip())]


def _item(entry: str) -> str:
    return _ENTRY.sub(r"- `\1`: \2", entry)


def _paragraphs(body: str) -> str:
    """Return text with its indented blocks, and blocks of `>>>`, as code."""
    found = []
    for each in re.split(r"\n\s*\n", body.strip("\n")):
        is_code = each.startswith((" ", ">>>"))
        code = textwrap.dedent(each)
        found.append(f"```text\n{code}\n```" if is_code else re.sub(r"::$", ":", each))
    return re.sub(r"``([^`\n]+)``", r"`\1`", "\n\n".join(found))


def commands() -> str:
    """Return all commands with their options, from click's help."""
    with click.Context(main, info_name="hptune") as top:
        return "\n" + "\n".join(
            _command(main.commands[name], top, 2) for name in main.list_commands(top)
        )


def _command(command: click.Command, parent: click.Context, level: int) -> str:
    with click.Context(command, info_name=command.name, parent=parent) as ctx:
        usage = " ".join((ctx.command_path, *command.collect_usage_pieces(ctx)))
        records = [each.get_help_record(ctx) for each in command.get_params(ctx)]
        rows = [
            f"| `{_cell(names)}` | {_cell(words)} |"
            for names, words in filter(None, records)
            if words
        ]
        options = ["| Option | Meaning |", "|---|---|", *rows, ""]
        lines = [f"{'#' * level} {ctx.command_path}", "", f"```sh\n{usage}\n```", ""]
        lines += [_help(command.help or ""), "", *options]
        if isinstance(command, click.Group):
            lines += [_command(each, ctx, level + 1) for each in command.commands.values()]
    return "\n".join(lines)


def _help(text: str) -> str:
    """Return a help text; what click would not wrap is code."""
    found = []
    for each in inspect.cleandoc(text).split("\n\n"):
        if each.startswith("\b"):
            each = f"```text\n{each.removeprefix(chr(8)).strip(chr(10))}\n```"  # noqa: PLW2901 (one of two forms)
        found.append(each)
    return "\n\n".join(found)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def notebook() -> str:
    """Return the cells of the tutorial's notebook after its title."""
    cells = json.loads((Path(__file__).parent / "guide" / "notebook.ipynb").read_text())["cells"]
    parts = []
    for cell in cells[1:]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
    return "\n" + "\n\n".join(parts) + "\n"


def searches() -> str:
    """Return what each search can do, from its row in the registry."""
    heads = ("search", "learns from results", "tries the defaults first",
             "ends when all its configurations are tried", "needs")  # fmt: skip
    rows = [heads, ("---",) * len(heads)]
    for name, row in SAMPLERS.built_in.items():
        if name != "auto":
            can = (row.learns, row.tries_defaults, row.count is not None)
            marks = ("yes" if each else "no" for each in can)
            rows.append((f"`{name}`", *marks, row.needs or "nothing"))
    return "\n" + "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def columns() -> str:
    """Return the columns of a trial, and what is measured of attempts, from the code."""
    parts = ["", "## Columns of a trial", "", *map(_column, COLUMNS), ""]
    names = ", ".join(f"`{each}`" for each in export.curves(()).columns)
    parts += ["## Columns of `hptune export --curves`", "", f"{names}: a row for each report.", ""]
    parts += ["## Costs of a trial", "", *_described(Costs, "Attributes")]
    parts += ["## What an attempt used", "", *_described(Usage, "Attributes")]
    return "\n".join(parts)


def _column(column: Column) -> str:
    only = {Place.TABLE: " (in tables)", Place.JSON: " (in JSON)"}.get(column.places & FILES, "")
    return f"- `{column.name}`{only}: {column.meaning}"


def _described(thing: Any, section: str) -> list[str]:
    entries = _entries(dict(_sections(inspect.cleandoc(thing.__doc__ or "")))[section])
    return [*(re.sub(r"^- (.*?): ", _names, f"- {each}") for each in entries), ""]


def _names(found: re.Match[str]) -> str:
    return f"- {', '.join(f'`{each}`' for each in found[1].split(', '))}: "


def events() -> str:
    """Return all events with their fields, from their docstrings."""
    parts = [""]
    for event in get_args(Event):
        parts += [f"## {event.__name__}", "", _as_markdown(inspect.cleandoc(event.__doc__ or ""))]
        fields = ", ".join(f"`{each}`" for each in event.__dataclass_fields__)
        parts += [f"Fields: {fields}.", ""]
    return "\n".join(parts)


PAGES: Mapping[str, Callable[[], str]] = {
    "docs/reference/python": python_api,
    "docs/reference/commands": commands,
    "docs/guide/notebook": notebook,
    "docs/reference/columns": columns,
    "docs/reference/events": events,
    "docs/guide/how-search-decides": searches,
}
"""What is added to a page of the site, by its name."""

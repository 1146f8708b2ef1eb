"""`hptune help`: the guide in the terminal, without a network."""

from __future__ import annotations

import io
import re
from pathlib import Path

import click

from ..core.spelling import did_you_mean
from ..errors import UsageError
from .commands import plain_command
from .output import echo, terminal_width

_GUIDE = Path(__file__).parents[1] / "guide"
"""In a checkout a link to docs/guide; a package has the files."""


_LIKENESS = 0.75
"""Of a topic and a name that was perhaps meant; "asha" and "dashboard" have 0.6."""

_PAGES_NAMED = 3


def _topics() -> list[str]:
    return sorted(page.stem for page in _GUIDE.glob("*.md"))


def _completed(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
    return [topic for topic in _topics() if topic.startswith(begun)]


@plain_command("help")
@click.argument("topic", default="", shell_complete=_completed)
@click.pass_context
def guide(ctx: click.Context, topic: str) -> None:
    """Show a page of the guide, or the help of a command.

    Without TOPIC, it lists the pages. In a pipe it prints their Markdown.
    """
    above = ctx.parent
    assert above is not None
    assert isinstance(above.command, click.Group)
    command = above.command.commands.get(topic)
    if topic in _topics():
        _show(_text(topic))
    elif command is not None:
        echo(command.get_help(click.Context(command, info_name=topic, parent=above)))
    elif not topic:
        titles = (_text(each).partition("\n")[0].removeprefix("# ") for each in _topics())
        rows = (f"- `{each}`: {title}" for each, title in zip(_topics(), titles, strict=True))
        start = "New here? Begin with `hptune help first-study`."
        _show("\n".join(("# hptune help TOPIC", "", start, "", *rows, "")))
    else:
        known = (*_topics(), *above.command.commands)
        near = did_you_mean(topic, known, likeness=_LIKENESS)
        pages = "" if near else _pages_with(topic)
        raise UsageError(
            f"there is no page and no command {topic!r}; `hptune help` lists the pages."
            f"{near}{pages}"
        )


def _pages_with(word: str) -> str:
    """Return a sentence with the pages that have a word most often for their length, or ""."""
    shares = {
        topic: len(re.findall(rf"\b{re.escape(word)}\b", text, re.IGNORECASE)) / len(text)
        for topic in _topics()
        if (text := _text(topic))
    }
    found = sorted(filter(shares.get, shares), key=lambda topic: -shares[topic])
    pages = ", ".join(f"`hptune help {each}`" for each in found[:_PAGES_NAMED])
    return f" These have the word: {pages}" if pages else ""


def _text(topic: str) -> str:
    """Return a page without its comments, which are for the tests of the documentation."""
    text = _GUIDE.joinpath(f"{topic}.md").read_text(encoding="utf-8")
    return re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)


def _show(markdown: str) -> None:
    width = terminal_width()
    if width is None:
        echo(markdown.rstrip("\n"))
        return
    from rich.console import Console
    from rich.markdown import Markdown

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=min(width, 100), legacy_windows=False)
    console.print(Markdown(markdown))
    click.echo_via_pager(stream.getvalue())

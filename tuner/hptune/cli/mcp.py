"""The command that serves an agent: mcp."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import UsageError, check_installed
from .commands import path_option, plain_command
from .output import echo


@plain_command("mcp", short_help="Let an agent drive studies, within limits of yours.")
@path_option("--limits", text="A TOML file with what the agent may use: `hptune help agents`.")
@click.option(
    "--name",
    default="agent",
    metavar="NAME",
    help="Its name in ledgers and reports.  [default: agent]",
)
@click.option("--read-only", is_flag=True, help="Only let it look.")
@click.option("--skill", is_flag=True, help="Print a SKILL.md for agents with a shell instead.")
def mcp(limits: Path | None, name: str, *, read_only: bool, skill: bool) -> None:
    """Serve the tools of the Model Context Protocol on stdin and stdout.

    Nothing outside of FILE can be used, whatever the agent asks for.
    """
    if skill:
        echo((Path(__file__).parents[1] / "agents/SKILL.md").read_text(encoding="utf-8"))
        return
    if limits is None:
        raise UsageError("give --limits FILE; `hptune help agents` says what is in it")
    check_installed("mcp", "hptune mcp")
    from ..agents.limits import read_limits
    from ..agents.server import Agent

    Agent(read_limits(limits), by=name).server(read_only=read_only).run()

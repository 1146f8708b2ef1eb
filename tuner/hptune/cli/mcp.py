"""The command that serves an agent: mcp."""

from __future__ import annotations

from pathlib import Path

import click

from .options import PathType


@click.command("mcp", short_help="Let an agent drive studies, within limits of yours.")
@click.option(
    "--limits",
    type=PathType(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    required=True,
    help="A TOML file with what the agent may use: `hptune help agents`.",
)
@click.option(
    "--name",
    default="agent",
    metavar="NAME",
    help="Its name in ledgers and reports.  [default: agent]",
)
@click.option("--read-only", is_flag=True, help="Only let it look.")
def mcp(limits: Path, name: str, *, read_only: bool) -> None:
    """Serve the tools of the Model Context Protocol on stdin and stdout.

    Nothing outside of FILE can be used, whatever the agent asks for.
    """
    from ..errors import check_installed

    check_installed("mcp", "hptune mcp")
    from ..agents.limits import read_limits
    from ..agents.server import Agent

    Agent(read_limits(limits), by=name).server(read_only=read_only).run()

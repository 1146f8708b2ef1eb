"""A client of `hptune mcp`, whose server is in this process."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

from mcp import Client

from hptune.agents.server import Agent


class Answer(NamedTuple):
    text: str
    is_error: bool

    @property
    def token(self) -> str:
        assert "Nothing was started" in self.text
        return self.text.partition("token='")[2].rstrip("'")

    @property
    def study(self) -> str:
        found = re.search(r"study: (\S+)", self.text)
        assert found is not None
        return found[1]


class Driver:
    """Calls the tools of an agent; it checks that every answer is short."""

    def __init__(self, agent: Agent, *, read_only: bool = False) -> None:
        self.server = agent.server(read_only=read_only)

    def tools(self) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            async with Client(self.server) as client:
                return {each.name: each for each in (await client.list_tools()).tools}

        return asyncio.run(ask())

    def __call__(self, tool: str, **arguments: Any) -> Answer:
        async def ask() -> Answer:
            async with Client(self.server) as client:
                result = await client.call_tool(tool, arguments)
                (content,) = result.content
                return Answer(content.text, bool(result.is_error))  # type: ignore[union-attr]

        answer = asyncio.run(ask())
        assert len(answer.text.encode()) <= 2048
        return answer

"""The official MCP client, which starts `llmops mcp` as an agent's program does."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import mcp_types as types
from mcp import ClientSession, StdioServerParameters, stdio_client

T = TypeVar("T")
NAME = "tester 1.0"
"""What runs say of this agent."""


class Agent:
    """A connected client."""

    def __init__(self, session: ClientSession, started: types.InitializeResult) -> None:
        self.session = session
        self.instructions = started.instructions or ""

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the structured answer of a tool that succeeds."""
        result = await self.session.call_tool(name, arguments)
        assert not result.is_error, result.content
        assert result.structured_content is not None
        return result.structured_content

    async def error(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Return the error of a tool that is refused, which is JSON in its text."""
        result = await self.session.call_tool(name, arguments)
        assert result.is_error, result.content
        error: dict[str, Any] = parsed_error(result)["error"]
        return error


def parsed_error(result: types.CallToolResult) -> dict[str, Any]:
    """Return an error, which is in the text alone: the TypeScript SDK compares what is structured
    with the schema of an answer, also of an error.
    """
    assert result.structured_content is None
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    parsed: dict[str, Any] = json.loads(content.text)
    return parsed


@asynccontextmanager
async def connected(folder: Path, *flags: str) -> AsyncIterator[Agent]:
    """Start the server in a folder, with this process's home, and greet it."""
    command = StdioServerParameters(
        command=sys.executable,
        args=["-m", "llmops_kernel", "mcp", *flags],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        cwd=folder,
    )
    who = types.Implementation(name="tester", version="1.0")
    async with (
        stdio_client(command) as (read, write),
        ClientSession(read, write, client_info=who) as session,
    ):
        yield Agent(session, await session.initialize())


def talk(folder: Path, *flags: str, story: Callable[[Agent], Awaitable[T]]) -> T:
    """Return what the story returns."""

    async def told() -> T:
        async with connected(folder, *flags) as agent:
            return await story(agent)

    return asyncio.run(told())

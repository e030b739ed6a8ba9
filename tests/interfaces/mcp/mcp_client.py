"""An MCP client for tests: the client of the SDK, over HTTP and over standard input and output."""

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

import anyio
import httpx2
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import CallToolResult, Tool

from tests.support.fork_server import ForkedPopen
from tests.support.wait import TIMEOUT_S

T = TypeVar("T")
ClientWork = Callable[[Client], Awaitable[T]]


def run_over_http(
    url: str, token: str | None, work: ClientWork[T], *, mode: str = "auto", headers: Mapping[str, str] | None = None
) -> T:
    """Run `work` with an MCP client at this URL with this key and return its result."""

    async def run() -> T | MCPError:
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        async with (
            # Certificates are not needed here and take long to load.
            httpx2.AsyncClient(headers=sent, timeout=TIMEOUT_S, verify=False) as http,
            Client(streamable_http_client(url, http_client=http), mode=mode) as client,
        ):
            try:
                return await work(client)
            except MCPError as error:  # raised inside the client's tasks it would become an exception group
                return error

    result = run_in_thread(run)
    if isinstance(result, MCPError):
        raise result
    return result


def run_over_stdio(
    data: Path,
    arguments: list[str],
    work: ClientWork[T],
    *,
    mode: str = "auto",
    message_handler: Any = None,
    directory: Path | None = None,
    keep_warm: int = 0,
) -> T:
    """Run `work` with an MCP client that starts `wikiholt mcp` in this directory and return its result."""
    command = ["-m", "wikiholt.interfaces.cli.main", "--data", str(data), "mcp", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WIKIHOLT_")}
    environment["WIKIHOLT_SEARCH_KEEP_WARM"] = str(keep_warm)

    async def run() -> T:
        parameters = StdioServerParameters(command=sys.executable, args=command, env=environment, cwd=directory)
        async with Client(stdio_client(parameters), mode=mode, message_handler=message_handler) as client:
            return await work(client)

    with patch("subprocess.Popen", ForkedPopen):  # the SDK starts the process
        return run_in_thread(run)


def run_in_thread(run: Callable[[], Awaitable[T]]) -> T:
    """Run in a new thread: a browser test may have left an event loop in this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, run).result()


def call_tool(url: str, token: str | None, name: str, **arguments: Any) -> CallToolResult:
    async def work(client: Client) -> CallToolResult:
        result = await client.call_tool(name, dict(arguments))
        assert isinstance(result, CallToolResult)
        return result

    return run_over_http(url, token, work)


def get_text(result: CallToolResult) -> str:
    (content,) = result.content
    assert content.type == "text"
    return content.text


def get_document(result: CallToolResult) -> Any:
    """The structured content of a successful call."""
    assert not result.is_error, get_text(result)
    return result.structured_content


@dataclass(frozen=True)
class Agent:
    """Calls tools with one key."""

    url: str
    token: str | None

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        return call_tool(self.url, self.token, tool, **arguments)

    def get(self, tool: str, **arguments: Any) -> Any:
        return get_document(self.call(tool, **arguments))

    def fail(self, tool: str, **arguments: Any) -> str:
        """The text of the error."""
        failed = self.call(tool, **arguments)
        assert failed.is_error
        return get_text(failed)

    def follow(self, answer: Any) -> Iterator[Any]:
        """This answer and the answers of its continuations."""
        yield answer
        while rest := answer.get("continuation") or answer.get("metadata", {}).get("continuation"):
            answer = self.get(rest["tool"], **rest["arguments"])
            yield answer

    def list_tools(self) -> list[Tool]:
        async def work(client: Client) -> list[Tool]:
            return (await client.list_tools()).tools

        return run_over_http(self.url, self.token, work)


def make_message(method: str, params: Mapping[str, Any] | None = None, version: str = "2026-07-28") -> tuple[Any, Any]:
    """Body and headers of one message, for requests that the SDK client does not send."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": meta}}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": version,
        "Mcp-Method": method,
    }
    if params and "name" in params:
        headers["Mcp-Name"] = str(params["name"])
    return json.dumps(body), headers

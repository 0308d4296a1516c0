"""Sessions with MCP servers: the only module that speaks the protocol, through the official SDK.

A session lists the tools of a server and makes at most one call. The SDK is slow to import, so this module is
imported when the first session begins (sender.py).
"""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeVar

import httpx2
from mcp import Client
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    CallToolRequest,
    CallToolRequestParams,
    Implementation,
    PaginatedRequestParams,
    Tool,
)
from pydantic import RootModel, ValidationError

from app.base.json import strict_json
from app.tools.models import MAX_RESULT_BYTES
from app.tools.transports.mcp.tools import RemoteTool, readable_text
from app.tools.transports.mcp.wire import (
    DefinitionChanged,
    McpWire,
    RejectedByServer,
    Server,
    SessionFailed,
    ToolUse,
)

CONNECT_S: Final = 5.0
MAX_PAGES: Final = 50
MAX_TOOLS: Final = 2_000

T = TypeVar("T")


class _RawResult(RootModel[dict[str, Any]]):
    """A result as the server sent it. By then the SDK has validated it against the version of the protocol in use."""


async def list_tools(wire: McpWire, server: Server, within_s: float) -> list[RemoteTool]:
    """Return the tools that the server lists. Raise SessionFailed."""
    return await _in_session(wire, server, within_s, lambda session, _: _list_all(session))


async def call(
    wire: McpWire, server: Server, use: ToolUse, *, open_within_s: float, within_s: float
) -> dict[str, Any]:
    """Return the result of the tool in the form of the protocol, if the server still defines the tool as
    registered.

    Raise SessionFailed; `wire.left` then says whether the call had left, and `wire.fault` why, if the
    connection failed.
    """
    began = asyncio.get_running_loop().time()

    async def work(session: ClientSession, deadline: asyncio.Timeout) -> dict[str, Any]:
        _check(use, await _list_all(session))
        deadline.reschedule(began + within_s)
        wire.allow(MAX_RESULT_BYTES)
        request = CallToolRequest(
            params=CallToolRequestParams(name=use.name, arguments=use.arguments, _meta=use.meta)
        )
        return (await session.send_request(request, _RawResult)).root

    return await _in_session(wire, server, min(open_within_s, within_s), work)


async def _in_session(
    wire: McpWire,
    server: Server,
    within_s: float,
    work: Callable[[ClientSession, asyncio.Timeout], Awaitable[T]],
) -> T:
    """Return the result of `work` in a session. A failure to close the session afterwards is ignored."""
    task = asyncio.current_task()
    assert task is not None
    cancels = task.cancelling()
    done: list[T] = []
    deadline = asyncio.timeout(within_s)
    try:
        async with deadline, _client(wire, server) as client:
            done.append(await work(client.session, deadline))
            deadline.reschedule(None)
    except Exception as error:  # the SDK raises many kinds of errors for invalid responses
        if task.cancelling() > cancels:  # the SDK's task groups replace the cancellation by their own errors
            raise asyncio.CancelledError from error
        if not done:
            raise _session_failure(wire, error) from error
    return done[0]


def _client(wire: McpWire, server: Server) -> Client:
    """Return a client for one session. It offers nothing to a server: no sampling, no elicitation, no
    roots."""
    headers = httpx2.Headers({"user-agent": "plangate"})
    headers.update(server.headers)
    headers["accept-encoding"] = "identity"
    http = httpx2.AsyncClient(
        transport=wire,
        headers=headers,
        timeout=httpx2.Timeout(None, connect=CONNECT_S),
        trust_env=False,
        follow_redirects=False,
    )
    transport = streamable_http_client(server.url, http_client=http, max_sse_event_size=MAX_RESULT_BYTES)
    about = Implementation(name="plangate", version=importlib.metadata.version("plangate-server"))
    return Client(transport, client_info=about, cache=None)


async def _list_all(session: ClientSession) -> list[RemoteTool]:
    tools: list[RemoteTool] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await session.list_tools(params=PaginatedRequestParams(cursor=cursor) if cursor else None)
        tools += [_remote(tool) for tool in page.tools]
        cursor = page.next_cursor
        if not cursor:
            break
    if cursor or len(tools) > MAX_TOOLS:
        raise SessionFailed(f"lists more than {MAX_TOOLS} tools, or on more than {MAX_PAGES} pages")
    return tools


def _remote(tool: Tool) -> RemoteTool:
    annotations = tool.annotations.model_dump(by_alias=True, exclude_none=True) if tool.annotations else {}
    remote = RemoteTool(tool.name, tool.description or "", tool.input_schema, tool.output_schema, annotations)
    try:
        remote.digest()
    except strict_json.NotJson as error:
        raise SessionFailed(
            f"defines {readable_text(tool.name)[:100]!r} with a definition that is not valid JSON: {error}"
        ) from error
    return remote


def _check(use: ToolUse, tools: list[RemoteTool]) -> None:
    tool = next((tool for tool in tools if tool.name == use.name), None)
    if tool is None:
        raise DefinitionChanged(f"has no tool {use.name!r} any more")
    if tool.digest() != use.digest:
        raise DefinitionChanged(f"changed the definition of {use.name!r} since the runtime was registered")


def _session_failure(wire: McpWire, error: Exception) -> SessionFailed:
    """Return why a session ended, in words that contain no header."""
    if wire.fault is not None:
        return SessionFailed(str(wire.fault))
    first = next(_leaves(error))
    if isinstance(first, SessionFailed):
        return first
    if isinstance(first, MCPError):
        return _protocol_error(wire, first)
    if isinstance(first, TimeoutError):
        return SessionFailed("did not answer in time")
    if isinstance(first, ValidationError):
        return SessionFailed("answered otherwise than the protocol says")
    if isinstance(first, RuntimeError):  # of the SDK, such as an unknown version of the protocol
        return SessionFailed(f"cannot be used: {readable_text(str(first))[:200]}")
    return SessionFailed(f"cannot be used ({type(first).__name__})")


# JSON-RPC errors for a request that was not understood. Any other error may come after partial work.
SAYS_NOTHING_WAS_DONE = frozenset({-32600, -32601, -32602})


def _protocol_error(wire: McpWire, error: MCPError) -> SessionFailed:
    """Return the failure behind an error of the SDK, which also reports missing and unreadable responses as
    protocol errors."""
    message = readable_text(error.message)
    if error.code == CONNECTION_CLOSED and message.startswith(("SSE stream", "Connection closed")):
        return SessionFailed("broke the connection")
    if error.code == PARSE_ERROR:
        return SessionFailed("answered something other than JSON-RPC")
    if wire.left and error.code in SAYS_NOTHING_WAS_DONE:
        return RejectedByServer(message)
    return SessionFailed(str(wire.refusal or f"answered: {message}"))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _leaves(inner)
    else:
        yield error

"""The transport `mcp`: a call runs a tool of a remote MCP server, over Streamable HTTP.

Every call has its own session, which lists the tools, calls one if its definition is still the registered one, and
ends. Nothing takes effect before the request `tools/call` leaves; if it left and no response came, the outcome is
unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from plangate.spec.transports import HeaderValue, McpTransport

from app.base.clock import retry_after_s
from app.base.egress import EgressTransport
from app.base.egress_policy import EgressPolicy, requests_of
from app.base.extras import MissingExtra, import_with_extra
from app.tenancy.secrets import Secrets
from app.tools.models import Attempt, NotDelivered, OutcomeUnknown, parse_request
from app.tools.results import ToolError, ToolResult
from app.tools.transports.headers import SecretMissing, redact, resolve_headers, with_redacted_errors
from app.tools.transports.http import TIMED_OUT, had_no_effect
from app.tools.transports.mcp import tools as mcp_tools
from app.tools.transports.mcp.tools import RemoteTool
from app.tools.transports.mcp.wire import (
    DeadlinePassed,
    DefinitionChanged,
    ForbiddenAddress,
    HttpErrorResponse,
    McpWire,
    RedirectRefused,
    RejectedByServer,
    Server,
    SessionFailed,
    ToolUse,
)

OPEN_S: Final = 4.0
"""How long a session may take until it calls the tool: less than half a lease, in which a call must leave, so that a
slow server is called slow. At registration it has as long."""

SDK_MODULE: Final = "app.tools.transports.mcp.session"


class McpSender:
    def __init__(self, policy: EgressPolicy, secrets: Secrets) -> None:
        self._secrets = secrets
        self._checked = EgressTransport(policy)
        self._sdk: Any = None

    async def send(self, attempt: Attempt) -> ToolResult:
        transport = attempt.call.transport
        assert isinstance(transport, McpTransport)
        try:
            server = await self._server(attempt.tenant, transport.url, transport.headers)
        except SecretMissing as error:
            return ToolError(str(error), had_no_effect=True)
        with requests_of(attempt.tenant):
            return await with_redacted_errors(
                self._call(attempt, transport, server), transport.headers, server.headers
            )

    async def _call(self, attempt: Attempt, transport: McpTransport, server: Server) -> ToolResult:
        use = ToolUse(
            transport.tool or attempt.call.name,
            mcp_tools.arguments(replace(attempt, request=await parse_request(attempt.request))),
            mcp_tools.meta(attempt),
            transport.definition_digest,
        )
        wire = McpWire(self._checked, attempt.may_send)
        try:
            sdk = await self._load_sdk()
            result = await sdk.call(wire, server, use, open_within_s=OPEN_S, within_s=attempt.timeout_s)
        except DefinitionChanged as error:
            return ToolError(
                f"Nothing was sent: its server {error}: register the runtime again.", had_no_effect=True
            )
        except RejectedByServer as error:
            return ToolError(f"Its server refused the call of {attempt.call.name}: {error}")
        except SessionFailed as error:
            return _outcome_of_failure(attempt.call.name, wire, error)
        return await asyncio.to_thread(mcp_tools.outcome, attempt, result)

    async def tools(
        self, tenant: str, url: str, headers: Mapping[str, HeaderValue], within_s: float
    ) -> list[RemoteTool]:
        """Return the tools that a server lists. Raise SecretMissing or SessionFailed."""
        server = await self._server(tenant, url, headers)
        sdk = await self._load_sdk()
        try:
            with requests_of(tenant):
                wire = McpWire(self._checked, lambda: False)
                tools: list[RemoteTool] = await sdk.list_tools(wire, server, within_s)
        except SessionFailed as error:
            raise SessionFailed(redact(str(error), headers, server.headers)) from None
        return tools

    async def aclose(self) -> None:
        await self._checked.aclose()

    async def _server(self, tenant: str, url: str, headers: Mapping[str, HeaderValue]) -> Server:
        return Server(url, await resolve_headers(self._secrets, tenant, headers))

    async def _load_sdk(self) -> Any:
        """Import the module over the SDK, which takes half a second: not at startup, and not on the event
        loop. Raise SessionFailed if the SDK is not installed."""
        if self._sdk is None:
            try:
                self._sdk = await asyncio.to_thread(import_with_extra, SDK_MODULE, "mcp")
            except MissingExtra as error:
                raise SessionFailed(f"cannot be reached: {error}") from error
        return self._sdk


def _outcome_of_failure(name: str, wire: McpWire, error: SessionFailed) -> ToolResult:
    """Return the result that a failed session means for the call. HTTP errors mean the same as with the transport
    `http`. Raise NotDelivered or OutcomeUnknown."""
    fault = wire.fault
    if isinstance(fault, DeadlinePassed):
        raise NotDelivered(
            "Nothing was sent: the deadline of the call passed before the service could send it."
        ) from error
    if isinstance(fault, ForbiddenAddress):
        if wire.left:
            raise OutcomeUnknown(f"its server answered, but {fault.denied.why}.") from error
        return ToolError(f"Nothing was sent. {fault.denied}", had_no_effect=True)
    if not wire.left:
        raise NotDelivered(f"Nothing was sent: the server of {name} {error}.") from error
    message = f"The server of {name} {error}."
    if isinstance(fault, RedirectRefused):
        return ToolError(message, had_no_effect=True)
    if isinstance(fault, HttpErrorResponse) and had_no_effect(fault.response):
        raise NotDelivered(message, retry_after_s(fault.response.headers)) from error
    if (
        isinstance(fault, HttpErrorResponse)
        and fault.response.status_code < 500
        and fault.response.status_code != TIMED_OUT
    ):
        return ToolError(message, had_no_effect=True)
    raise OutcomeUnknown(f"its server {error}.") from error

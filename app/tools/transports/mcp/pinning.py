"""Pinning at registration: what the MCP servers of a spec define now is what its runtime may call, and nothing else.

Servers are asked before any transaction, each once however many tools name it, and all problems are told at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plangate.spec.problems import json_pointer
from plangate.spec.transports import Headers
from pydantic import TypeAdapter

from app.base.errors import FieldError, Invalid, TooManyRequests
from app.base.json import strict_json
from app.base.metrics import Metrics
from app.base.shares import TenantShares
from app.tools.transports.headers import SecretMissing
from app.tools.transports.mcp import tools
from app.tools.transports.mcp.sender import McpSender
from app.tools.transports.mcp.tools import RemoteTool
from app.tools.transports.mcp.wire import SessionFailed

LIST_S: Final = 4.0
"""How long all the servers of a spec may take together: every request is answered within 5 s."""

MAX_NAMED: Final = 20  # tools of a server that a message lists
_HEADERS: TypeAdapter[Headers] = TypeAdapter(Headers)


@dataclass(frozen=True, slots=True)
class McpTransportPlace:
    """A transport `mcp` in the wire of a spec: where it stands, and the ToolSpec around it, unless it is a
    dispatcher."""

    pointer: str
    transport: dict[str, Any]
    tool: Mapping[str, Any] | None

    @property
    def remote_name(self) -> str | None:
        return self.transport.get("tool") or (self.tool["name"] if self.tool else None)

    @property
    def server(self) -> bytes:
        """Equal for those that share a listing."""
        return strict_json.canonical([self.transport["url"], self.transport.get("headers", {})])


class McpPinning:
    """`shares` bounds how many servers are asked at once, by the route that lists tools and by registrations."""

    def __init__(self, mcp: McpSender, shares: TenantShares, metrics: Metrics) -> None:
        self._mcp = mcp
        self._shares = shares
        self._metrics = metrics

    @property
    def in_use(self) -> int:
        """Return the number of servers that are being asked."""
        return self._shares.in_use

    async def pin(self, tenant: str, wire: dict[str, Any]) -> dict[str, Any]:
        """Return the wire form of an assembled spec with the digest of each definition in its transports.
        Raise Invalid with every server that cannot be reached and every tool that differs from the spec."""
        places = list(_places(wire))
        if not places:
            return wire
        first = {place.server: place for place in reversed(places)}
        asked = await asyncio.gather(*self._share(tenant, list(first.values())))
        found = dict(zip(first, asked, strict=True))
        flaws = [listed for listed in asked if isinstance(listed, FieldError)]
        for place in places:
            listed = found[place.server]
            if not isinstance(listed, FieldError):
                flaws += _pin(place, listed)
        if flaws:
            raise Invalid(
                f"The spec does not fit its MCP servers: {len(flaws)} problem{'s' * (len(flaws) > 1)}; see errors.",
                flaws,
            )
        return wire

    async def listed(self, tenant: str, url: str, headers: Headers) -> list[RemoteTool]:
        """Return the tools that a server lists. Raises Invalid, and TooManyRequests if the tenant's share of listings is in
        use."""
        if not self._shares.try_acquire(tenant):
            raise self._too_many()
        try:
            found = await self._ask(tenant, "", url, headers, LIST_S)
        finally:
            self._shares.release(tenant)
        if isinstance(found, FieldError):
            raise Invalid(f"The MCP server cannot be used: {found.message}", [found])
        return found

    def _share(self, tenant: str, places: Sequence[McpTransportPlace]) -> Iterator[Any]:
        until = asyncio.get_running_loop().time() + LIST_S

        async def ask(place: McpTransportPlace) -> list[RemoteTool] | FieldError:
            try:
                async with asyncio.timeout_at(until):
                    await self._shares.acquire(tenant)
            except TimeoutError as error:
                raise self._too_many() from error
            try:
                left_s = until - asyncio.get_running_loop().time()
                headers = _HEADERS.validate_python(place.transport.get("headers", {}))
                return await self._ask(tenant, place.pointer, place.transport["url"], headers, left_s)
            finally:
                self._shares.release(tenant)

        return (ask(place) for place in places)

    def _too_many(self) -> TooManyRequests:
        self._metrics.mcp_lists_refused.inc()
        return TooManyRequests(
            "Too many MCP servers are being asked for their tools at the moment: at most "
            f"{self._shares.max_per_tenant} at once for a tenant. Retry."
        )

    async def _ask(
        self, tenant: str, pointer: str, url: str, headers: Headers, within_s: float
    ) -> list[RemoteTool] | FieldError:
        try:
            return await self._mcp.tools(tenant, url, headers, within_s)
        except SecretMissing as error:
            return FieldError(f"{pointer}/headers", str(error))
        except SessionFailed as error:
            return FieldError(f"{pointer}/url", f"its tools cannot be listed: {url} {error}")


def _places(wire: Mapping[str, Any]) -> Iterator[McpTransportPlace]:
    for n, tool in enumerate(wire.get("tools", [])):
        if tool["transport"]["kind"] == "mcp":
            yield McpTransportPlace(f"/tools/{n}/transport", tool["transport"], tool)
    dispatchers: dict[tuple[str, ...], Any] = {
        ("actionDispatchers", kind): d for kind, d in wire.get("actionDispatchers", {}).items()
    }
    if "actionDispatcher" in wire:
        dispatchers[("actionDispatcher",)] = wire["actionDispatcher"]
    for path, dispatcher in dispatchers.items():
        if dispatcher["kind"] == "mcp":
            yield McpTransportPlace(json_pointer(path), dispatcher, None)


def _pin(place: McpTransportPlace, listed: Sequence[RemoteTool]) -> Iterator[FieldError]:
    """Write the digest of the definition into the transport, or return how the definition differs from the
    spec."""
    transport, name, url = place.transport, place.remote_name, place.transport["url"]
    if name is None:
        yield FieldError(
            f"{place.pointer}/tool", "a dispatcher names the tool of the MCP server that carries actions out"
        )
        return
    tool = next((t for t in listed if t.name == name), None)
    if tool is None:
        more = f" and {len(listed) - MAX_NAMED} more" if len(listed) > MAX_NAMED else ""
        has = ", ".join(tools.readable_text(t.name)[:100] for t in listed[:MAX_NAMED]) or "none"
        pointer = f"{place.pointer}/tool" if "tool" in transport else place.pointer
        yield FieldError(pointer, f"{url} has no tool {name!r}; it has: {has}{more}")
        return
    if place.tool is not None:
        differs = tools.difference(place.tool["inputSchema"], tool.input_schema)
        if differs is not None:
            yield FieldError(
                f"{place.pointer.removesuffix('/transport')}/inputSchema",
                f"is not the input schema that {url} lists for {name!r}: {differs}",
            )
    digest = tool.digest()
    if transport.get("definitionDigest", digest) != digest:
        yield FieldError(
            f"{place.pointer}/definitionDigest",
            f"is not the digest of the definition that {url} lists for {name!r}, which is {digest}: remove it to "
            "take that one",
        )
    transport["definitionDigest"] = digest

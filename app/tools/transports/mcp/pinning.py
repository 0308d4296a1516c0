"""Pinning at registration: a runtime may call exactly the tools that the MCP servers of its spec define at that time.

The servers are contacted before any transaction, each once however many tools name it, and all problems are reported
together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from plangate.json_pointer import json_pointer
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
    """A transport `mcp` in the wire form of a spec: its place, and the ToolSpec around it, unless it is a dispatcher."""

    pointer: str
    transport: dict[str, Any]
    tool: Mapping[str, Any] | None

    @property
    def remote_name(self) -> str | None:
        return self.transport.get("tool") or (self.tool["name"] if self.tool else None)

    @property
    def server(self) -> bytes:
        """Return a cache key: transports with equal keys share one tool listing."""
        return strict_json.canonical([self.transport["url"], self.transport.get("headers", {})])


class McpPinning:
    """Contacts MCP servers for their tools. `shares` bounds how many are contacted at once, by registrations and by
    the route that lists tools."""

    def __init__(self, mcp: McpSender, shares: TenantShares, metrics: Metrics) -> None:
        self._mcp = mcp
        self._shares = shares
        self._metrics = metrics

    @property
    def in_use(self) -> int:
        """Return the number of servers that are being contacted."""
        return self._shares.in_use

    async def pin(self, tenant: str, wire: dict[str, Any]) -> dict[str, Any]:
        """Return the wire form of an assembled spec with the digest of each definition in its transports.
        Raise Invalid with every server that cannot be reached and every tool that differs from the spec."""
        places = list(_places(wire))
        if not places:
            return wire
        first = {place.server: place for place in reversed(places)}
        listings = await asyncio.gather(*self._share(tenant, list(first.values())))
        listing_of = dict(zip(first, listings, strict=True))
        errors = [listing for listing in listings if isinstance(listing, FieldError)]
        for place in places:
            listing = listing_of[place.server]
            if not isinstance(listing, FieldError):
                errors += _pin(place, listing)
        if errors:
            raise Invalid(
                f"The spec does not fit its MCP servers: {len(errors)} problem{'s' * (len(errors) > 1)}; see errors.",
                errors,
            )
        return wire

    async def list_tools(self, tenant: str, url: str, headers: Headers) -> list[RemoteTool]:
        """Return the tools that a server lists. Raise Invalid, or TooManyRequests if the tenant's share of listings
        is in use."""
        if not self._shares.try_acquire(tenant):
            raise self._too_many()
        try:
            listing = await self._list_tools(tenant, "", url, headers, LIST_S)
        finally:
            self._shares.release(tenant)
        if isinstance(listing, FieldError):
            raise Invalid(f"The MCP server cannot be used: {listing.message}", [listing])
        return listing

    def _share(self, tenant: str, places: Sequence[McpTransportPlace]) -> Iterator[Any]:
        until = asyncio.get_running_loop().time() + LIST_S

        async def list_server(place: McpTransportPlace) -> list[RemoteTool] | FieldError:
            try:
                async with asyncio.timeout_at(until):
                    await self._shares.acquire(tenant)
            except TimeoutError as error:
                raise self._too_many() from error
            try:
                left_s = until - asyncio.get_running_loop().time()
                headers = _HEADERS.validate_python(place.transport.get("headers", {}))
                return await self._list_tools(tenant, place.pointer, place.transport["url"], headers, left_s)
            finally:
                self._shares.release(tenant)

        return (list_server(place) for place in places)

    def _too_many(self) -> TooManyRequests:
        self._metrics.mcp_lists_rejected.inc()
        return TooManyRequests(
            "Too many MCP servers are being asked for their tools at the moment: at most "
            f"{self._shares.max_per_tenant} at once for a tenant. Retry."
        )

    async def _list_tools(
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


def _pin(place: McpTransportPlace, listing: Sequence[RemoteTool]) -> Iterator[FieldError]:
    """Write the digest of the definition into the transport, or return how the definition differs from the
    spec."""
    transport, name, url = place.transport, place.remote_name, place.transport["url"]
    if name is None:
        yield FieldError(
            f"{place.pointer}/tool", "a dispatcher names the tool of the MCP server that carries actions out"
        )
        return
    tool = next((t for t in listing if t.name == name), None)
    if tool is None:
        more = f" and {len(listing) - MAX_NAMED} more" if len(listing) > MAX_NAMED else ""
        has = ", ".join(tools.readable_text(t.name)[:100] for t in listing[:MAX_NAMED]) or "none"
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

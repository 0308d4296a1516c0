"""The transport `mcp` against the reference server, the official SDK's server, and the conformance suite."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict

import pytest
import pytest_asyncio
import uvicorn
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from app.deployment import Deployment
from tests.processes.mcp_programs.programs import judged, running_everything
from tests.support.client import eventually, inner, output_of
from tests.support.cluster import Cluster
from tests.support.specs import Spec, planning, script, scripted, store_and_execute
from tests.support.world import World, world

STATEFUL, STATELESS = "2025-11-25", "2026-07-28"  # versions of the protocol, of either kind the last one


@pytest.fixture(scope="module")
def everything() -> Iterator[str]:
    with running_everything() as url:
        yield url


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Deployment) -> AsyncIterator[World]:
    """A process whose operator allows loopback."""
    async with world(site, cluster.operator_key, allow_hosts=["127.0.0.1"]) as running:
        yield running


async def listed(plangate: World, url: str) -> dict[str, Spec]:
    found = (await plangate.api.do("/tools/mcp/list", {"url": url}))["tools"]
    return {tool["name"]: tool for tool in found}


async def told(plangate: World, tools: dict[str, Spec], *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """What a model is told of these calls."""
    runtime = await plangate.api.register(scripted(*tools.values()))
    query = await plangate.api.run(script(*calls), runtimeId=runtime["id"])
    return [entry.get("result", entry.get("error")) for entry in output_of(query)]


async def test_the_reference_server_from_listing_to_results(plangate: World, everything: str) -> None:
    tools = await listed(plangate, everything)
    assert tools["echo"]["annotations"] == {"readOnly": True, "idempotent": True}
    assert {"echo", "get-sum", "get-structured-content", "get-tiny-image"} < tools.keys()
    echoed, summed, weather, image, refused, long = await told(
        plangate,
        tools,
        ("echo", {"message": "grüezi"}),
        ("get-sum", {"a": 1.5, "b": 2}),
        ("get-structured-content", {"location": "New York"}),
        ("get-tiny-image", {}),
        ("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
        ("trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
    )
    assert echoed == "Echo: grüezi"
    assert summed == "The sum of 1.5 and 2 is 3.5."
    assert weather == {"temperature": 33, "conditions": "Cloudy", "humidity": 82}
    assert [block["type"] for block in image] == ["text", "image", "text"]
    assert refused == "Invalid resourceId: -1. Must be a finite positive integer."
    assert long == "Long running operation completed. Duration: 0.2 seconds, Steps: 2."


async def test_the_reference_mcp_server_carries_out_actions(plangate: World, everything: str) -> None:
    mcp = {"kind": "mcp", "url": everything, "tool": "get-tiny-image"}
    runtime = await plangate.api.register(planning(actionDispatcher=mcp))
    query = await plangate.api.submit(store_and_execute(), runtimeId=runtime["id"])
    await plangate.api.approve(query["id"])
    done = json.dumps(output_of(await plangate.api.ended(query["id"])))
    assert "the dispatcher must return None or an object {entitiesAffected, summary?, details?}" in done


# -- the other half of the SDK, which speaks the newest version of the protocol --------------------------------


@dataclass
class Shop:
    """A server made with the SDK, and what came along with each call of its tools."""

    url: str = ""
    versions: list[str | None] = field(default_factory=list)
    metas: list[dict[str, Any]] = field(default_factory=list)


class Carried(TypedDict):
    entitiesAffected: int
    summary: str


@contextlib.asynccontextmanager
async def running_shop() -> AsyncIterator[Shop]:
    shop, server = Shop(), MCPServer("shop", version="1")

    def note(ctx: Context) -> None:
        shop.versions.append(ctx.protocol_version)
        shop.metas.append(dict(ctx.request_context.meta or {}))

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True))
    async def price(item: str, ctx: Context, pieces: int = 1) -> dict[str, int]:
        """What so many pieces cost"""
        note(ctx)
        if item == "moon":
            raise ToolError("the moon is not for sale")
        await ctx.report_progress(0.5, 1, "asking the cashier")
        return {"cents": 250 * pieces}

    @server.tool()
    async def sell(actions: list[dict[str, Any]], planId: str, attempt: int, ctx: Context) -> Carried:
        note(ctx)
        return {"entitiesAffected": len(actions), "summary": f"{planId[:4]}, attempt {attempt}"}

    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(server.streamable_http_app(), log_config=None, access_log=False)
    http = uvicorn.Server(config)
    http.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(http.serve(sockets=[listening]))
    try:
        await eventually(lambda: asyncio.sleep(0, http.started), "uvicorn listens")
        shop.url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        yield shop
    finally:
        http.should_exit = True
        await task
        listening.close()


async def test_a_server_of_the_newest_protocol(plangate: World) -> None:
    async with running_shop() as shop:
        tools = await listed(plangate, shop.url)
        assert tools["price"]["description"] == "What so many pieces cost"
        assert tools["price"]["annotations"] == {"idempotent": True}
        assert "annotations" not in tools["sell"]
        calls = ("price", {"item": "apple", "pieces": 3}), ("price", {"item": "moon"})
        runtime = await plangate.api.register(scripted(*tools.values()))
        query = await plangate.api.run(script(*calls), runtimeId=runtime["id"])
        apples, moon = output_of(query)
        assert apples["result"] == {"cents": 750}
        assert moon["error"] == "Error executing tool price: the moon is not for sale"
        assert shop.versions == [STATELESS, STATELESS]
        records = (await plangate.api.read("/tool-calls", queryId=query["id"]))["items"]
        keys = [meta["plangate/idempotencyKey"] for meta in shop.metas]
        assert sorted(keys) == sorted(record["workId"] for record in records)


async def test_actions_carried_out_by_a_server_of_the_newest_protocol(plangate: World) -> None:
    async with running_shop() as shop:
        mcp = {"kind": "mcp", "url": shop.url, "tool": "sell"}
        runtime = await plangate.api.register(planning(actionDispatcher=mcp))
        query = await plangate.api.submit(store_and_execute(), runtimeId=runtime["id"])
        await plangate.api.approve(query["id"])
        executed = inner(output_of(await plangate.api.ended(query["id"]))[1])
        assert (executed["status"], executed["entitiesAffected"]) == ("executed", 2)
        assert executed["summary"] == "pln_, attempt 1"


# -- the conformance suite -------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "scenario", "proven"),
    [
        (STATEFUL, "initialize", "mcp-client-initialization"),
        (STATEFUL, "tools_call", "tool-add-numbers"),
        (STATEFUL, "sse-retry", "client-sse-last-event-id"),
        (STATEFUL, "json-schema-2020-12-preservation", "json-schema-2020-12-client-$defs-preserved"),
        (STATELESS, "tools_call", "tool-add-numbers"),
        (STATELESS, "request-metadata", "sep-2575-client-retry-supported-version"),
        (STATELESS, "http-standard-headers", "sep-2243-client-includes-standard-headers"),
        (STATELESS, "http-custom-headers", "sep-2243-client-mirrors-designated-params"),
        (STATELESS, "http-invalid-tool-headers", "sep-2243-client-reject-invalid-tool"),
        (STATELESS, "json-schema-ref-no-deref", "sep-2106-no-network-ref-deref"),
    ],
)
def test_conformance(version: str, scenario: str, proven: str) -> None:
    checks = judged(scenario, version)
    # How late a client comes back is a matter of the machine, too.
    failed = [c for c in checks if c["status"] == "FAILURE" and c["id"] != "client-sse-retry-timing"]
    assert failed == []
    assert "SUCCESS" in [c["status"] for c in checks if c["id"] == proven]

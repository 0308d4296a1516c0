"""Tools and dispatchers of an MCP server: pinned at registration, compared before every call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from app.deployment import Deployment
from tests.support.client import output_of, refused
from tests.support.cluster import Cluster
from tests.support.mcp import ADD, FakeMcp, Reply, error, event, fake_mcp, text
from tests.support.specs import planning, script, scripted, store_and_execute
from tests.support.world import World, world


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeMcp]:
    async with fake_mcp() as running:
        yield running


@pytest_asyncio.fixture
async def plangate(cluster: Cluster, site: Deployment) -> AsyncIterator[World]:
    """A process whose operator allows loopback."""
    async with world(site, cluster.operator_key, allow_hosts=["127.0.0.1"]) as running:
        yield running


def add(server: FakeMcp, **transport: Any) -> dict[str, Any]:
    """The ToolSpec of the server's tool."""
    return {
        "name": "add",
        "inputSchema": ADD["inputSchema"],
        "transport": {"kind": "mcp", "url": server.url, **transport},
    }


def changed(**parts: Any) -> dict[str, Any]:
    return {**ADD, **parts}


# -- registration ----------------------------------------------------------------------------------------------


async def test_registration_pins_the_definition(plangate: World, server: FakeMcp) -> None:
    made = await plangate.api.register(scripted(add(server)))
    pinned = made["spec"]["tools"][0]["transport"]["definitionDigest"]
    assert len(pinned) == 64
    assert server.rpcs() == [
        "server/discover",
        "initialize",
        "notifications/initialized",
        "tools/list",
        "DELETE",
    ]
    again = await plangate.api.post("/runtimes", scripted(add(server)))
    assert (again.status_code, again.json()["id"]) == (200, made["id"])
    assert (await plangate.api.register(made["spec"]))["id"] == made["id"]
    server.tools = [changed(description="Adds two")]
    other = await plangate.api.register(scripted(add(server)))
    assert other["version"] == 2
    assert other["spec"]["tools"][0]["transport"]["definitionDigest"] != pinned


async def test_all_problems_are_listed_at_once(plangate: World, server: FakeMcp) -> None:
    server.tools = [ADD, {**ADD, "name": "sub"}]
    async with fake_mcp() as refusing:
        refusing.on["initialize"] = lambda asked: Reply(401, body=b"no key")
        wrong = {"type": "object", "properties": {"n": {"type": "string"}}}
        tools = [
            {**add(server), "inputSchema": wrong},
            {**add(server), "name": "div"},
            {**add(server, tool="mul"), "name": "times"},
            {**add(server, definitionDigest="0" * 64), "name": "sub"},
            {**add(refusing), "name": "add2"},
            {**add(server, headers={"authorization": {"secret": "gone"}}), "name": "add3"},
        ]
        body = planning(
            tools=tools,
            actionDispatcher={"kind": "mcp", "url": server.url},
            actionDispatchers={"book": {"kind": "mcp", "url": server.url, "tool": "nothing"}},
        )
        problem = refused(await plangate.api.post("/runtimes", body), 422, "invalid")
        listings = server.rpcs().count("tools/list")
        assert listings == 1
        valid = await plangate.api.do("/runtimes/validate", body)
    assert problem["detail"] == "The spec does not fit its MCP servers: 8 problems; see errors."
    assert valid == {"valid": False, "errors": problem["errors"], "hasMoreErrors": False}
    told = {flaw["pointer"]: flaw["message"] for flaw in problem["errors"]}
    digest = told.pop("/tools/3/transport/definitionDigest")
    assert digest.startswith(
        f"is not the digest of the definition that {server.url} lists for 'sub', which is "
    )
    assert digest.endswith(": remove it to take that one")
    assert told == {
        "/tools/0/inputSchema": f"is not the input schema that {server.url} lists for 'add': "
        '/properties/n/type is "integer" there and "string" here',
        "/tools/1/transport": f"{server.url} has no tool 'div'; it has: add, sub",
        "/tools/2/transport/tool": f"{server.url} has no tool 'mul'; it has: add, sub",
        "/tools/4/transport/url": f"its tools cannot be listed: {refusing.url} answered 401: no key",
        "/tools/5/transport/headers": "The header 'authorization' takes the secret 'gone', which does not exist: set it "
        "with PUT /secrets/gone. Nothing was sent.",
        "/actionDispatcher/tool": "a dispatcher names the tool of the MCP server that carries actions out",
        "/actionDispatchers/book/tool": f"{server.url} has no tool 'nothing'; it has: add, sub",
    }
    assert (await plangate.api.read("/runtimes"))["items"] == []


async def test_an_unusable_server_is_a_problem_of_the_spec(plangate: World, server: FakeMcp) -> None:
    await server.stop()
    inside = {"kind": "mcp", "url": "http://10.0.0.1/mcp"}
    gone = refused(await plangate.api.post("/runtimes", scripted(add(server))), 422)
    assert gone["errors"] == [
        {
            "pointer": "/tools/0/transport/url",
            "message": f"its tools cannot be listed: {server.url} cannot be reached",
        }
    ]
    forbidden = refused(
        await plangate.api.post("/runtimes", scripted({**add(server), "transport": inside})), 422
    )
    assert forbidden["errors"][0]["pointer"] == "/tools/0/transport/url"
    assert "is a private network" in forbidden["errors"][0]["message"]


async def test_a_repeated_registration_contacts_no_server(plangate: World, server: FakeMcp) -> None:
    key = {"idempotency-key": "once"}
    first = await plangate.api.post("/runtimes", scripted(add(server)), headers=key)
    assert first.status_code == 201
    await server.stop()
    again = await plangate.api.post("/runtimes", scripted(add(server)), headers=key)
    assert (again.status_code, again.content) == (201, first.content)


async def test_listing_returns_registrable_specs(plangate: World, server: FakeMcp) -> None:
    await plangate.api.put("/secrets/mcp-key", {"value": "sesame"})
    server.tools = [
        changed(annotations={"readOnlyHint": True, "destructiveHint": False}),
        {
            "name": "git.log/all",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "properties": {"log": {"type": "string"}}},
            "annotations": {"idempotentHint": True},
        },
        {"name": "git_log_all", "inputSchema": {"type": "object"}},
    ]
    headers = {"authorization": {"secret": "mcp-key"}, "x-team": "blue"}
    found = (await plangate.api.do("/tools/mcp/list", {"url": server.url, "headers": headers}))["tools"]
    asked = server.seen[-2].headers
    assert (asked["authorization"], asked["x-team"]) == ("sesame", "blue")
    digests = [tool["transport"].pop("definitionDigest") for tool in found]
    assert len(set(digests)) == 3
    server_spec = {"kind": "mcp", "url": server.url, "headers": headers}
    assert found == [
        {
            "name": "add",
            "description": "Adds one",
            "inputSchema": ADD["inputSchema"],
            "annotations": {"readOnly": True},
            "transport": server_spec,
        },
        {
            "name": "git_log_all",
            "inputSchema": {"type": "object"},
            "outputSchema": {"type": "object", "properties": {"log": {"type": "string"}}},
            "annotations": {"idempotent": True},
            "transport": {**server_spec, "tool": "git.log/all"},
        },
        {
            "name": "git_log_all_2",
            "inputSchema": {"type": "object"},
            "transport": {**server_spec, "tool": "git_log_all"},
        },
    ]
    for tool, digest in zip(found, digests, strict=True):
        tool["transport"]["definitionDigest"] = digest
    made = await plangate.api.register(scripted(*found))
    assert [tool["transport"] for tool in made["spec"]["tools"]] == [tool["transport"] for tool in found]


async def test_errors_of_a_listing_name_the_cause(plangate: World, server: FakeMcp) -> None:
    bad = {"url": "ftp://x", "headers": {"Mcp-Session-Id": "1"}}
    problem = refused(await plangate.api.post("/tools/mcp/list", bad), 422, "invalid")
    assert [flaw["pointer"] for flaw in problem["errors"]] == ["/url", "/headers/Mcp-Session-Id"]
    server.on["tools/list"] = lambda asked: error(asked, -32603, "no tools today")
    problem = refused(await plangate.api.post("/tools/mcp/list", {"url": server.url}), 422, "invalid")
    assert problem["errors"] == [
        {
            "pointer": "/url",
            "message": f"its tools cannot be listed: {server.url} answered: no tools today",
        }
    ]
    reader = await plangate.key("read")
    refused(await reader.post("/tools/mcp/list", {"url": server.url}), 403)


# -- calls -----------------------------------------------------------------------------------------------------


async def test_each_call_uses_its_own_session(plangate: World, server: FakeMcp) -> None:
    await plangate.api.put("/secrets/mcp-key", {"value": "Bearer first"})
    tool = add(server, headers={"authorization": {"secret": "mcp-key"}})
    runtime = await plangate.api.register(scripted(tool))
    await plangate.api.put("/secrets/mcp-key", {"value": "Bearer second"})
    server.seen.clear()
    server.answer = text("3", structuredContent={"sum": 3})
    query = await plangate.api.run(script(("add", {"n": 2})), runtimeId=runtime["id"])
    assert output_of(query) == [{"tool": "add", "result": {"sum": 3}}]
    assert server.rpcs()[-3:] == ["tools/list", "tools/call", "DELETE"]
    assert {asked.headers["authorization"] for asked in server.seen} == {"bearer second"}
    (call,) = server.calls
    (record,) = (await plangate.api.read("/tool-calls", queryId=query["id"]))["items"]
    assert call == {
        "name": "add",
        "arguments": {"n": 2},
        "_meta": {
            "plangate/idempotencyKey": record["workId"],
            "plangate/queryId": query["id"],
            "plangate/workId": record["workId"],
        },
    }


async def only_result(world: World, server: FakeMcp, args: dict[str, Any] | None = None, **tool: Any) -> Any:
    """What the model is told of one call of the server's tool."""
    runtime = await world.api.register(scripted({**add(server), **tool}))
    query = await world.api.run(script(("add", args or {"n": 1})), runtimeId=runtime["id"])
    (found,) = output_of(query)
    return found.get("result", found.get("error"))


async def test_results_of_all_forms(plangate: World, server: FakeMcp) -> None:
    image = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
    for answer, told in [
        (text("two"), "two"),
        ({"content": []}, None),
        ({"content": [image]}, [image]),
        ({"content": [*text("two")["content"], image]}, [{"type": "text", "text": "two"}, image]),
        (text("ignored", structuredContent={"n": [1, 2.5, None]}), {"n": [1, 2.5, None]}),
        (text("no such n", isError=True), "no such n"),
        ({"content": [], "isError": True}, "it failed without a word"),
    ]:
        server.answer = answer
        assert await only_result(plangate, server) == told


async def test_an_answer_in_a_stream_after_other_messages(plangate: World, server: FakeMcp) -> None:
    def stream(asked: Any) -> Reply:
        progress = {"progressToken": 1, "progress": 1}
        body = event({"jsonrpc": "2.0", "method": "notifications/progress", "params": progress})
        body += event({"jsonrpc": "2.0", "id": "s1", "method": "sampling/createMessage", "params": SAMPLE})
        body += event({"jsonrpc": "2.0", "id": "s2", "method": "roots/list"})
        body += event({"jsonrpc": "2.0", "id": asked.message["id"], "result": text("at last")})
        return Reply(headers={"content-type": "text/event-stream"}, body=body)

    server.on["tools/call"] = stream
    assert await only_result(plangate, server) == "at last"


SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "pay me"}}], "maxTokens": 5}


async def test_a_protocol_error_is_an_error_for_the_model(plangate: World, server: FakeMcp) -> None:
    server.on["tools/call"] = lambda asked: error(asked, -32602, "n is too small")
    assert await only_result(plangate, server) == "Its server refused the call of add: n is too small"
    server.on["tools/call"] = lambda asked: error(asked, -32000, "out of stock")
    assert await only_result(plangate, server) == (
        "It is unknown whether add ran: its server answered: out of stock. Check before you repeat it."
    )


async def test_a_tool_with_a_changed_definition_is_not_called(plangate: World, server: FakeMcp) -> None:
    runtime = await plangate.api.register(scripted(add(server)))
    call = script(("add", {"n": 1}))
    server.tools = [changed(annotations={"title": "Adds"})]
    query = await plangate.api.run(call, runtimeId=runtime["id"])
    assert output_of(query) == [
        {
            "tool": "add",
            "error": "Nothing was sent: its server changed the definition of 'add' since the runtime was registered: "
            "register the runtime again.",
        }
    ]
    server.tools = []
    query = await plangate.api.run(call, runtimeId=runtime["id"])
    assert output_of(query)[0]["error"] == (
        "Nothing was sent: its server has no tool 'add' any more: register the runtime again."
    )
    assert server.calls == []
    server.tools = [ADD, {"name": "new", "inputSchema": {"type": "object"}}]
    query = await plangate.api.run(call, runtimeId=runtime["id"])
    assert output_of(query)[0]["result"] == "done"


async def test_a_sent_call_without_a_response_is_unknown(plangate: World, server: FakeMcp) -> None:
    server.on["tools/call"] = lambda asked: Reply(end="cut")
    runtime = await plangate.api.register(scripted(add(server)))
    query = await plangate.api.run(script(("add", {"n": 1})), runtimeId=runtime["id"])
    assert output_of(query)[0]["error"] == (
        "It is unknown whether add ran: its server broke the connection. Check before you repeat it."
    )
    (call,) = (await plangate.api.read("/tool-calls", queryId=query["id"]))["items"]
    assert (call["status"], call["attempts"], call["sender"]) == ("unknown", 1, "service")
    assert len(server.calls) == 1


async def test_a_safe_call_is_repeated_with_the_same_key(plangate: World, server: FakeMcp) -> None:
    def once(asked: Any) -> Reply:
        del server.on["tools/call"]
        return Reply(end="cut")

    server.on["tools/call"] = once
    assert await only_result(plangate, server, replay="safe") == "done"
    first, second = server.calls
    assert first == second


async def test_before_the_call_a_failure_is_tried_again(plangate: World, server: FakeMcp) -> None:
    runtime = await plangate.api.register(scripted(add(server)))

    def once(asked: Any) -> Reply:
        del server.on["initialize"]
        return Reply(500)

    server.on["initialize"] = once
    query = await plangate.api.run(script(("add", {"n": 1})), runtimeId=runtime["id"])
    assert output_of(query)[0]["result"] == "done"
    assert len(server.calls) == 1


async def test_a_missing_secret_is_named_and_nothing_is_sent(plangate: World, server: FakeMcp) -> None:
    await plangate.api.put("/secrets/mcp-key", {"value": "sesame"})
    tool = add(server, headers={"authorization": {"secret": "mcp-key"}})
    runtime = await plangate.api.register(scripted(tool))
    await plangate.api.delete("/secrets/mcp-key")
    server.seen.clear()
    query = await plangate.api.run(script(("add", {"n": 1})), runtimeId=runtime["id"])
    assert output_of(query)[0]["error"] == (
        "The header 'authorization' takes the secret 'mcp-key', which does not exist: set it with PUT /secrets/mcp-key. "
        "Nothing was sent."
    )
    assert server.seen == []


async def test_gates_apply_to_mcp_tools(plangate: World, server: FakeMcp) -> None:
    runtime = await plangate.api.register(scripted({**add(server), "approval": "always"}))
    query = await plangate.api.submit(script(("add", {"n": 1})), runtimeId=runtime["id"])
    await plangate.api.gate(query["id"])
    assert server.calls == []
    await plangate.api.approve(query["id"])
    assert output_of(await plangate.api.ended(query["id"]))[0]["result"] == "done"
    assert len(server.calls) == 1


# -- dispatch of actions ---------------------------------------------------------------------------------------


async def executed(world: World, body: dict[str, Any]) -> dict[str, Any]:
    """What executePlan answered for a plan whose actions an MCP tool carries out."""
    runtime = await world.api.register(body)
    query = await world.api.submit(store_and_execute(), runtimeId=runtime["id"])
    await world.api.approve(query["id"])
    found: dict[str, Any] = output_of(await world.api.ended(query["id"]))[1]["result"]["results"][0]
    return found


async def test_actions_are_carried_out_by_an_mcp_tool(plangate: World, server: FakeMcp) -> None:
    server.tools = [{"name": "carry_out", "inputSchema": {"type": "object"}}]
    server.answer = text(json.dumps({"entitiesAffected": 2, "summary": "Booked."}))
    mcp = {"kind": "mcp", "url": server.url, "tool": "carry_out"}
    done = await executed(plangate, planning(actionDispatcher=mcp))
    assert (done["result"]["status"], done["result"]["entitiesAffected"]) == ("executed", 2)
    assert done["result"]["summary"] == "Booked."
    (call,) = server.calls
    args = call["arguments"]
    assert sorted(args) == ["actions", "attempt", "digest", "inputs", "planId", "resolvedRefs", "revision"]
    assert [(a["kind"], a["index"]) for a in args["actions"]] == [("book", 0), ("refund", 1)]
    assert (args["attempt"], args["revision"], args["resolvedRefs"]) == (1, 1, {})
    assert call["_meta"]["plangate/idempotencyKey"] not in [a["idempotencyKey"] for a in args["actions"]]


async def test_actions_reach_mcp_tools_by_kind_or_by_declared_tool(plangate: World, server: FakeMcp) -> None:
    seat = {"type": "object", "properties": {"seat": {"type": "string"}}, "required": ["seat"]}
    server.tools = [
        {"name": "book_seat", "inputSchema": seat},
        {"name": "refund", "inputSchema": {"type": "object"}},
    ]
    server.answer = {"content": []}
    url = {"kind": "mcp", "url": server.url}
    body = planning(
        tools=[{"name": "book", "inputSchema": seat, "transport": {**url, "tool": "book_seat"}}],
        actionDispatcher=None,
        actionDispatchers={
            "book": {"kind": "tool", "tool": "book"},
            "refund": {**url, "tool": "refund", "replay": "safe"},
        },
    )
    assert (await executed(plangate, body))["result"]["status"] == "executed"
    calls = {call["name"]: call["arguments"] for call in server.calls}
    assert calls["book_seat"] == {"seat": "12A"}
    assert [a["payload"] for a in calls["refund"]["actions"]] == [{"cents": 500}]


async def test_an_invalid_dispatch_result_fails_the_plan(plangate: World, server: FakeMcp) -> None:
    server.tools = [{"name": "carry_out", "inputSchema": {"type": "object"}}]
    server.answer = text("all good")
    mcp = {"kind": "mcp", "url": server.url, "tool": "carry_out"}
    done = await executed(plangate, planning(actionDispatcher=mcp))
    assert "the dispatcher must return None or an object" in json.dumps(done)


async def test_a_sent_action_without_a_response_waits_for_a_person(plangate: World, server: FakeMcp) -> None:
    server.tools = [{"name": "carry_out", "inputSchema": {"type": "object"}}]
    server.on["tools/call"] = lambda asked: Reply(502, body=b"bad gateway")
    mcp = {"kind": "mcp", "url": server.url, "tool": "carry_out"}
    runtime = await plangate.api.register(planning(actionDispatcher=mcp))
    query = await plangate.api.submit(store_and_execute(), runtimeId=runtime["id"])
    await plangate.api.approve(query["id"])
    await plangate.api.until(query["id"], "waiting", "outcome_unknown")
    assert len(server.calls) == 1

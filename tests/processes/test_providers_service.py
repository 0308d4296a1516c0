"""A query answered by a vendor: registered, streamed, retried after a fault, priced."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import chain
from typing import Any

import pytest
import pytest_asyncio

from app.calls.arguments import TRUNCATED
from app.deployment import Deployment
from app.llm.messages import Usage
from app.llm.prices import price
from tests.processes.aimock.vendor_server import (
    CLAUDES,
    O_DONE,
    PATHS,
    PLACES,
    VENDORS,
    Answer,
    VendorServer,
    a_end,
    a_start,
    a_text,
    a_tool,
    o_call,
    o_chunk,
    refusal,
    whole,
)
from tests.processes.test_providers_bounds import Gate
from tests.support import specs
from tests.support.cluster import Cluster
from tests.support.world import World, world

LITERAL = "sk-literal-0815"
MODELS = {
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "vertex": "claude-sonnet-4-5@20250929",
    "openai": "gpt-4o",
}


@pytest.fixture
async def server() -> AsyncIterator[VendorServer]:
    running = VendorServer()
    await running.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def service(cluster: Cluster, site: Deployment, server: VendorServer) -> AsyncIterator[World]:
    async with world(site, cluster.operator_key, allow_hosts=[f"127.0.0.1:{server.port}"]) as running:
        yield running


def asking(kind: str, server: VendorServer, **parts: Any) -> dict[str, Any]:
    """One agent that a vendor answers for, at the address of the test's server."""
    provider = {"kind": kind, **PLACES.get(kind, {}), "baseUrl": server.url + PATHS.get(kind, "")}
    model = {"id": MODELS[kind], "provider": "p", "maxOutputTokens": 99, "extra": {"top_k": 5}}
    return specs.spec(specs.agent(model=model), providers={"p": {**provider, "apiKey": LITERAL}}, **parts)


@pytest.mark.parametrize("kind", VENDORS)
async def test_a_query_succeeds_after_a_fault_and_is_priced(
    kind: str, service: World, server: VendorServer
) -> None:
    registered = await service.api.register(asking(kind, server, limits={"maxCostUsd": 1.0}))
    assert registered["spec"]["providers"]["p"]["apiKey"].keys() == {"secret"}
    server.answers = [refusal(429, {"message": "slow"}), Answer(whole(kind))]
    query = await service.api.run("Hello")
    assert (query["status"], query["output"]) == ("succeeded", "Hello there")
    used = query["usage"]
    cost = price(kind, MODELS[kind], Usage(used["inputTokens"], 7, used["cacheReadTokens"]))
    assert cost is not None
    assert query["costUsd"] == pytest.approx(cost.usd)
    (retry,) = await service.api.events(query["id"], "step-retry")
    assert retry["reason"] == "provider_rate_limited: The provider returned 429: slow"
    texts = await service.api.events(query["id"], "text")
    assert "".join(event["text"] for event in texts) == "Hello there"
    assert [seen.headers["authorization"] for seen in server.seen] == [f"Bearer {LITERAL}"] * 2
    for seen in server.seen:
        assert seen.body["top_k"] == 5
        assert seen.body["max_tokens"] == 99
    assert LITERAL not in str(await service.api.events(query["id"]))


async def test_the_requested_model_prices_an_unknown_response_name(
    service: World, server: VendorServer
) -> None:
    """What answers is called `model-1-exact`. `maxCostUsd` would have nothing to count."""
    await service.api.register(asking("anthropic", server))
    server.answers = [Answer([a_start(), *a_text(0, "x"), *a_end()])]
    query = await service.api.run("Hello")
    cost = price("anthropic", MODELS["anthropic"], Usage(10, 7))
    assert cost is not None
    assert query["costUsd"] == pytest.approx(cost.usd)


def a_turn(kind: str, *uses: tuple[str, str], cut: bool = False) -> list[str | bytes]:
    """What a vendor sends of a turn that makes these calls; `cut` at the output limit, in the middle of the last."""
    if kind in CLAUDES:
        blocks = [
            a_tool(n, f"t{n}", name, written, stop=not cut or n < len(uses) - 1)
            for n, (name, written) in enumerate(uses)
        ]
        return [a_start(), *chain(*blocks), *a_end("max_tokens" if cut else "tool_use")]
    chunks = [o_call(n, f"t{n}", name, written) for n, (name, written) in enumerate(uses)]
    return [*chunks, o_chunk({}, "length" if cut else "tool_calls"), O_DONE]


def told(kind: str, body: Any) -> list[str]:
    """What a vendor is told of the calls of the turn before."""
    if kind in CLAUDES:
        assert all(block["is_error"] for block in body["messages"][-1]["content"])
        return [block["content"] for block in body["messages"][-1]["content"]]
    calls = next(m["tool_calls"] for m in reversed(body["messages"]) if "tool_calls" in m)
    return [message["content"] for message in body["messages"][-len(calls) :]]


@pytest.mark.parametrize("kind", VENDORS)
async def test_an_invalid_call_is_returned_to_the_vendors_model(
    kind: str, service: World, server: VendorServer
) -> None:
    """A tool that is not there, arguments that do not match, arguments that are no JSON; and a turn that was cut, with
    a call that looks whole beside the one that is cut."""
    spec = asking(kind, server, tools=[specs.tool("add", approval="always")])
    spec["agents"][0]["tools"] = ["add"]
    await service.api.register(spec)
    server.answers = [
        Answer(a_turn(kind, ("ad", '{"n": 1}'), ("add", '{"n": "1"}'), ("add", '{"n": tru'))),
        Answer(a_turn(kind, ("add", '{"n": 1}'), ("add", '{"n": '), cut=True)),
        Answer(whole(kind)),
    ]
    query = await service.api.run("Hello")
    assert (query["status"], query["output"]) == ("succeeded", "Hello there")
    unknown, invalid, malformed = told(kind, server.seen[1].body)
    assert unknown == "There is no tool 'ad'. You can call: add."
    assert invalid == (
        'The arguments do not match the tool\'s schema, so the call was not made: /n: must be integer, not "1"'
    )
    assert malformed.startswith("The arguments are not valid JSON, so the call was not made: ")
    assert told(kind, server.seen[2].body) == [TRUNCATED, TRUNCATED]
    assert (await service.api.read("/tool-calls"))["items"] == []
    assert (await service.api.read("/approvals"))["items"] == []
    events = await service.api.events(query["id"], "tool-invocation")
    assert sorted(e["error"]["code"] for e in events if e["state"] == "error") == [
        "bad_arguments",
        "bad_arguments",
        "turn_truncated",
        "turn_truncated",
        "unknown_tool",
    ]


async def test_a_platform_with_missing_fields_is_rejected(service: World) -> None:
    spec = specs.spec(providers={"v": {"kind": "vertex", "region": "us-east5", "apiKey": LITERAL}})
    answer = await service.api.post("/runtimes", spec)
    assert answer.status_code == 422
    assert [flaw["pointer"] for flaw in answer.json()["errors"]] == ["/providers/v/project"]
    assert LITERAL not in answer.text


@pytest.mark.long
async def test_300_queries_stream_from_a_model_at_once(
    cluster: Cluster, site: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the operator's address, where the client of the vendor kept the limits of its library."""
    gate = Gate("openai", 300)
    listening = await asyncio.start_server(gate, "127.0.0.1", 0, backlog=300)
    port = listening.sockets[0].getsockname()[1]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-operator")
    envs = {"OPENAI_API_KEY": "127.0.0.1"}
    async with world(site, cluster.operator_key, slots=300, provider_envs=envs) as running:
        model = {"id": MODELS["openai"], "provider": "openai"}
        await running.api.register(specs.spec(specs.agent(model=model)))
        queries = []
        for _ in range(
            15
        ):  # so that a busy machine is not too slow to accept them within the time of a request
            queries += await asyncio.gather(*(running.api.submit("Hello") for _ in range(20)))
        for query in queries:
            assert (await running.api.ended(query["id"]))["output"] == "Hello there"
    listening.close()


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
async def test_a_provider_that_sends_too_much_fails_its_query_once(
    kind: str, cluster: Cluster, site: Deployment, server: VendorServer
) -> None:
    settings = {
        "allow_hosts": [f"127.0.0.1:{server.port}"],
        "model_line_bytes": 2048,
        "model_bytes_per_token": 64,
    }
    async with world(site, cluster.operator_key, **settings) as running:
        await running.api.register(asking(kind, server))
        line, text = "data: " + "x" * 3000, whole(kind)[:2]
        too_long, too_much = Answer([line]), Answer([*text, *[": a comment\n\n"] * 1000])
        says = (
            "a line of more than 2048 bytes, which the service does not read (PLANGATE_MODEL_LINE_BYTES)",
            "more than 8384 bytes, which the service does not read (PLANGATE_MODEL_BYTES_PER_TOKEN)",
        )
        for answer, what in zip((too_long, too_much), says, strict=True):
            server.answers = [answer]
            error = (await running.api.run("Hello"))["error"]
            assert error == {"code": "provider_rejected_request", "message": f"The provider sent {what}."}
        numbers = (await running.operator().get("/metrics")).text
        assert 'plangate_model_streams_ended_total{bound="line"} 1.0' in numbers
        assert 'plangate_model_streams_ended_total{bound="bytes"} 1.0' in numbers
        assert "plangate_model_streams 0.0" in numbers


async def test_variables_of_the_operator_that_cannot_be_used_are_spec_errors(
    cluster: Cluster, site: Deployment
) -> None:
    envs = {"TEAM_KEY": "api.openai.com"}
    async with world(site, cluster.operator_key, provider_envs=envs) as running:
        for name, kind, message in (
            (
                "HOME_KEY",
                "openai",
                "the operator did not list 'HOME_KEY' in PLANGATE_PROVIDER_ENVS, so no spec may use it: set 'apiKey' to "
                '{"secret": ...}, or have the operator list it',
            ),
            (
                "TEAM_KEY",
                "anthropic",
                "the operator listed 'TEAM_KEY' for api.openai.com, and provider 'p' is at api.anthropic.com: set 'apiKey'",
            ),
        ):
            agent = specs.agent(model={"id": MODELS[kind], "provider": "p"})
            for size in (0, 200_000):  # a large spec is checked in a process of its own
                wanted = specs.spec(
                    {**agent, "systemPrompt": "x" * size}, providers={"p": {"kind": kind, "apiKeyEnv": name}}
                )
                answer = await running.api.post("/runtimes", wanted)
                assert answer.status_code == 422
                (flaw,) = answer.json()["errors"]
                assert (flaw["pointer"], flaw["message"]) == ("/providers/p/apiKeyEnv", message)
        allowed = {"kind": "openai", "apiKeyEnv": "TEAM_KEY"}
        agent = specs.agent(model={"id": MODELS["openai"], "provider": "p"})
        await running.api.register(specs.spec(agent, providers={"p": allowed}))

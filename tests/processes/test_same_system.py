"""A system written in Python and its JSON dump are one runtime, and its queries behave alike."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import plangate
import pytest
import pytest_asyncio
from plangate import (
    ActionDispatcher,
    DefinedRuntime,
    Runtime,
    TaggedUnion,
    define_coordinator,
    define_executor,
    define_plan,
    define_planner,
    define_reference,
    define_runtime,
    define_specialist,
    define_tenant,
    define_tool,
    layered_prompt,
)
from pydantic import BaseModel

from tests.support.service import Service, folder, serving

pytestmark = pytest.mark.skipif(not shutil.which("curl"), reason="real curl is what is tested")

PATIENCE_S = 60
TEMPORARY = re.compile(
    r"\b(?:qry|thr|wrk|pln|apr|rt|key)_[0-9a-z]{26}\b|\b[0-9a-f]{40,64}\b|\d{4}-\d\d-\d\dT[\d:.]+Z"
)
ENVELOPE = ("seq", "queryId", "threadId", "workId", "parentWorkId", "at")
Event = dict[str, Any]
Told = Callable[[Event], Awaitable[None]]


# -- the system


class Markdown(BaseModel):
    kind: Literal["markdown"]
    sku: str
    percent: int


class Headline(BaseModel):
    kind: Literal["headline"]
    text: str


class Campaign(BaseModel):
    season: str
    actions: list[TaggedUnion(Markdown, Headline)]  # type: ignore[valid-type]


Products = define_reference(
    "Products", {"rows": list[dict[str, Any]]}, ttl_ms=86_400_000, glimpse={"count": "length(rows)"}
)
Plan = define_plan("Campaign", Campaign, display_aliases={"draft": "proposed", "executed": "live"})


@define_tool("find_products", {"season": str}, "Finds products.", annotations={"read_only": True})
async def find_products(args: Any, ctx: Any) -> Any:
    await ctx.progress("looking", phase_index=1, total_phases=1)
    rows = [{"sku": f"{args['season']}-{n}", "price": Decimal("9.90")} for n in range(20)]
    return await ctx.references.create(Products, {"rows": rows})


@define_tool(
    "reserve",
    {"sku": str, "count": int},
    "Sets products aside.",
    approval={
        "kind": "dynamic",
        "value": "many",
        "approvalExpiresInMs": 3_600_000,
        "approvers": {"minimum": 1},
    },
    output_schema={
        "type": "object",
        "properties": {"reserved": {"type": "integer"}},
        "required": ["reserved"],
    },
    timeout_ms=30_000,
)
def reserve(args: Any, ctx: Any) -> Any:
    if args["sku"] == "none":
        raise LookupError("no such product")
    return {"reserved": args["count"]}


@define_tool("publish", {"text": str}, "Publishes a headline.")
def publish(args: Any, ctx: Any) -> Any:
    return {"entitiesAffected": 1, "summary": args["text"]}


def mark_down(actions: Any, ctx: Any) -> Any:
    rows = [row for held in ctx["resolved_refs"].get("Products", {}).values() for row in held["rows"]]
    return {"entitiesAffected": len(rows), "details": {"cheapest": min(row["price"] for row in rows)}}


def system(tenant: str) -> DefinedRuntime:
    model = {"id": "m-1", "provider": "house", "maxOutputTokens": 500, "extra": {"temperature": 0}}
    prompt = layered_prompt(
        identity="You plan campaigns of a shop.",
        operational_rules=["Look first.", "Then plan."],
        domain_knowledge={"largest_markdown": Decimal("0.30"), "seasons": ["winter", "spring"]},
        safety="Never plan what was not asked for.",
    )
    planner = define_planner(
        "planner", model, prompt, Plan, tools=[find_products], references=[Products], max_turns=9
    )
    executor = define_executor(
        "executor", model, "You execute.", Plan, approval={"plans": {"kind": "always", "onExpiry": "fail"}}
    )
    stock = define_specialist(
        "stock",
        model,
        "You keep stock.",
        tools=[reserve],
        stateful=True,
        output_schema={"type": "object", "required": ["results"]},
    )
    desk = define_coordinator(
        "desk", model, "You coordinate.", routes=[planner, stock, executor], approval={"tools": "never"}
    )
    return define_runtime(
        define_tenant(tenant, version="autumn"),
        [desk, planner, stock, executor],
        name="campaigns",
        tools=[publish],
        providers={
            "house": {"kind": "openai", "baseUrl": "https://llm.example.com/v1", "apiKey": {"secret": "h"}}
        },
        approval_policies={"plans": "always", "tools": "never"},
        approval_overrides={"tools": {"desk": {"call_agent": "never"}}},
        approval_predicates={"many": "args.count > 10 || ctx.spentUsd > 1.0"},
        action_dispatchers={
            "markdown": ActionDispatcher(mark_down, replay="safe"),
            "headline": {"kind": "tool", "tool": "publish"},
        },
        input_schema={"type": "object", "properties": {"note": {"type": "string"}}},
        limits={"maxTurns": 60, "maxParallelActions": 1},
        interpreter="scripted",
    )


def call(tool: str, **args: Any) -> dict[str, Any]:
    return {"tool": tool, "args": args}


def ask(agent: str, *calls: dict[str, Any]) -> dict[str, Any]:
    return call("call_agent", agent=agent, prompt=json.dumps({"script": calls}))


def prompt_for(season: str) -> str:
    handle = {"kind": "Products", "id": {"$result": "[0].id"}}
    body = {
        "season": season,
        "actions": [
            {"kind": "markdown", "sku": f"{season}-1", "percent": 20, "references": [handle]},
            {"kind": "headline", "text": f"The {season} sale"},
        ],
    }
    planned = ask(
        "planner",
        call("find_products", season=season),
        call("storePlan", specName="Campaign", planId="sale", body={"season": season}),  # refused: no actions
        call("storePlan", specName="Campaign", planId="sale", body=body),
    )
    stocked = ask(
        "stock",
        call("reserve", sku=f"{season}-1", count=3),
        call("reserve", sku=f"{season}-2", count=30),
        call("reserve", sku="none", count=1),
        call("publish", text="not mine"),
    )
    return json.dumps({"script": [planned, stocked, ask("executor", call("executePlan", planId="sale"))]})


# -- by the library and by curl


@pytest.fixture(scope="module")
def at() -> Iterator[Path]:
    with folder() as made:
        yield made


@pytest.fixture(scope="module")
def service(at: Path) -> Iterator[Service]:
    with serving(at) as running:
        yield running


class Curl:
    """The service as a shell sees it. `tenant` is the operator's word for whom he works."""

    def __init__(self, service: Service, at: Path, tenant: str) -> None:
        self._url = service.url
        self._at = at
        self._headers = [
            *("-H", f"Authorization: Bearer {service.key}"),
            *("-H", f"Plangate-Tenant: {tenant}"),
            *("-H", "Content-Type: application/json"),
        ]

    async def __call__(self, path: str, *arguments: str) -> tuple[int, Any]:
        process = await self._start(path, "-w", "\n%{http_code}", *arguments)
        out, errors = await process.communicate()
        assert process.returncode == 0, errors
        body, _, status = out.decode().rpartition("\n")
        return int(status), json.loads(body)

    async def register(self, wire: dict[str, Any]) -> tuple[int, Any]:
        file = self._at / "system.json"
        file.write_text(json.dumps(wire, indent=2), "utf-8")
        return await self("/runtimes", "-d", f"@{file}")

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[Event]:
        """Starts a query and follows it, in one request."""
        process = await self._start("/queries/stream", "-N", "-d", json.dumps(body))
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()

    async def _start(self, path: str, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "curl",
            *("-sS", *self._headers, *arguments, self._url + path),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=2**22,
        )


async def followed(events: AsyncIterator[Event], decide: Told) -> list[Event]:
    seen = []
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            seen.append(event)
            if event["type"] == "approval-required":
                await decide(event["data"])
    return seen


def life(events: list[Event], season: str) -> list[Event]:
    """What happened, without what belongs to one query alone: its ids, its times, its season; in how many pieces a
    text came, and whether the query slept while it waited."""
    out: list[Event] = []
    for event in events:
        if event["type"] == "query-status" and "waiting" in (event["from"], event["to"]):
            continue
        kept = {key: value for key, value in event.items() if key not in ENVELOPE}
        if event["type"] == "data-latency-summary":
            kept.pop("data")
        if event["type"] == "work-end":
            kept["data"] = {key: value for key, value in kept["data"].items() if key != "durationMs"}
        if event["type"] == "text" and out and out[-1]["type"] == "text":
            out[-1]["text"] += event["text"]
        else:
            out.append(kept)
    text = TEMPORARY.sub("...", json.dumps(out, sort_keys=True))
    lives: list[Event] = json.loads(text.replace(season, "season"))
    return lives


@pytest_asyncio.fixture
async def runtime(service: Service) -> AsyncIterator[Runtime]:
    """Registered by the library, whose functions serve the calls of everybody's queries."""
    made = plangate.create_runtime(system("by-library"), url=service.url, api_key=service.key)
    async with made as opened:
        yield opened


async def test_curl_registers_the_librarys_spec_as_the_same_version(
    runtime: Runtime, service: Service, at: Path
) -> None:
    written = system("by-library")
    assert written.wire == written.spec.to_wire()
    curl = Curl(service, at, "by-library")
    for wire in (written.wire, runtime.spec):
        status, again = await curl.register(wire)
        assert (status, again["id"], again["version"]) == (200, runtime.id, 1)
    status, read = await curl(f"/runtimes/{runtime.id}")
    assert (status, read["spec"]) == (200, written.wire)


async def test_the_library_registers_curls_spec_as_the_same_version(service: Service, at: Path) -> None:
    written = system("by-curl")
    status, first = await Curl(service, at, "by-curl").register(written.wire)
    assert (status, first["version"]) == (201, 1)
    async with plangate.create_runtime(written, url=service.url, api_key=service.key) as opened:
        assert (opened.id, opened.version, opened.spec) == (first["id"], 1, first["spec"])


async def test_a_handwritten_spec_is_the_same_version(runtime: Runtime, service: Service, at: Path) -> None:
    """Without what assembly fills in: it is filled in the same way, whoever wrote the spec."""
    by_hand: dict[str, Any] = json.loads(json.dumps(runtime.spec))
    for name in ("toolkits", "approvalPolicies"):
        del by_hand[name]
    for agent in by_hand["agents"]:
        del agent["toolkits"]
        agent["systemPrompt"] = agent["systemPrompt"].partition("\n\n# Tools")[0]
        if agent["name"] == "planner":
            agent["prompt"] = {
                "identity": "You plan campaigns of a shop.",
                "operationalRules": ["Look first.", "Then plan."],
                "domainKnowledge": {"seasons": ["winter", "spring"], "largest_markdown": "0.30"},
                "safety": "Never plan what was not asked for.",
            }
            del agent["systemPrompt"]
        if agent["name"] in ("desk", "planner"):
            del agent["stateful"]
    for tool in by_hand["tools"]:
        del tool["replay"]
    status, again = await Curl(service, at, "by-library").register(by_hand)
    assert (status, again["id"]) == (200, runtime.id)


async def test_a_change_is_the_next_version_for_both(service: Service, at: Path) -> None:
    curl = Curl(service, at, "changing")
    changed = {**system("changing").wire, "approvalPredicates": {"many": "args.count > 11"}}
    assert [(await curl.register(wire))[1]["version"] for wire in (system("changing").wire, changed)] == [
        1,
        2,
    ]
    async with plangate.create_runtime(changed, url=service.url, api_key=service.key) as opened:
        assert opened.version == 2


async def test_the_same_query_has_the_same_life(runtime: Runtime, service: Service, at: Path) -> None:
    curl = Curl(service, at, "by-library")

    async def decided_by_library(gate: Event) -> None:
        await runtime.respond_to_approval(gate["id"], "approve", "Go on.", digest=gate["digest"])

    async def decided_by_curl(gate: Event) -> None:
        said = {"decision": "approve", "feedback": "Go on.", "digest": gate["digest"]}
        status, row = await curl(f"/approvals/{gate['id']}", "-d", json.dumps(said))
        assert (status, row["status"]) == (200, "approved")

    inputs = {"note": "as discussed"}
    by_library = await followed(
        runtime.query(prompt_for("winter"), "by-library", inputs=inputs), decided_by_library
    )
    asked = {
        "runtimeId": runtime.id,
        "prompt": prompt_for("spring"),
        "threadKey": "by-curl",
        "inputs": inputs,
    }
    by_curl = await followed(curl.stream(asked), decided_by_curl)

    one, other = life(by_library, "winter"), life(by_curl, "spring")
    assert [event["type"] for event in one] == [event["type"] for event in other]
    assert one == other
    assert_rich(by_library)
    for events, season in ((by_library, "winter"), (by_curl, "spring")):
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        _, read = await curl(f"/queries/{events[0]['queryId']}")
        assert (read["status"], read["output"]) == ("succeeded", events[-1]["output"])
        assert f"The {season} sale" in read["output"]


def assert_rich(events: list[Event]) -> None:
    """The query went everywhere, or its sameness would say little."""
    types = {event["type"] for event in events}
    assert types >= {
        "action-status-change",
        "approval-decision",
        "approval-required",
        "finish",
        "plan-status-change",
        "reference-created",
        "tool-agent",
        "tool-progress",
    }
    ended = [e for e in events if e["type"] == "tool-invocation" and e["state"] != "call"]
    assert [(e["agent"], e["toolName"], e["state"]) for e in ended] == [
        ("planner", "find_products", "result"),
        ("planner", "storePlan", "error"),
        ("planner", "storePlan", "result"),
        ("desk", "call_agent", "result"),
        ("stock", "reserve", "result"),
        ("stock", "reserve", "result"),
        ("stock", "reserve", "error"),
        ("stock", "publish", "error"),
        ("desk", "call_agent", "result"),
        ("executor", "executePlan", "result"),
        ("desk", "call_agent", "result"),
    ]
    gates = [e["data"] for e in events if e["type"] == "approval-required"]
    assert [(gate["kind"], gate["agent"]) for gate in gates] == [("tool", "stock"), ("plan", "executor")]
    (executed,) = (e["result"] for e in ended if e["toolName"] == "executePlan")
    assert (executed["status"], executed["entitiesAffected"]) == ("executed", 21)

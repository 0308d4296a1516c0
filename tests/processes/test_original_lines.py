"""Lines that users of the original system type first, against a real service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, Literal, get_type_hints

import httpx
import plangate
import pytest
from plangate import (
    AgentSpec,
    TaggedUnion,
    create_runtime,
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

from tests.support.service import Service, copy_data_directory, folder, plain_environment, serving

Event = dict[str, Any]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


@pytest.fixture
def on_service(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service as programs find it, which name no address."""
    monkeypatch.setenv("PLANGATE_URL", service.url)
    monkeypatch.setenv("PLANGATE_API_KEY", service.key)
    return service


def http(service: Service, tenant: str) -> httpx.Client:
    headers = {"Authorization": f"Bearer {service.key}", "Plangate-Tenant": tenant}
    return httpx.Client(base_url=service.url, headers=headers, trust_env=False, timeout=60)


async def all_of(events: Any) -> list[Event]:
    return [event async for event in events]


class Refund(BaseModel):
    kind: Literal["refund"]
    order: str


class Note(BaseModel):
    kind: Literal["note"]
    text: str


class RefundPlan(BaseModel):
    actions: list[TaggedUnion(Refund, Note)]  # type: ignore[valid-type]


ProductSet = define_reference(
    "ProductSet", {"product_ids": list[str]}, ttl_ms=86_400_000, glimpse=lambda value: {"preview": 1}
)
greet = define_tool("greetUser", {"userName": str}, "Greets a user.")(
    lambda args, ctx: f"Hi {args['userName']}"
)


# -- dumps


async def test_dumps_are_the_wire_form(on_service: Service) -> None:
    planner = define_planner("planner", "m-1", "You plan.", references=[ProductSet], tools=[greet])
    runtime = define_runtime(
        define_tenant("dumps"), [planner], plans=[define_plan("Refunds", RefundPlan)], interpreter="noop"
    )
    assert ProductSet.model_dump(by_alias=True, mode="json").keys() == {"name", "schema", "ttlMs"}
    wire = json.dumps(runtime.model_dump(by_alias=True, mode="json"))
    assert "null" not in wire
    with http(on_service, "dumps") as client:
        registered = client.post("/runtimes", content=wire, headers={"Content-Type": "application/json"})
        assert (registered.status_code, registered.json()["spec"]) == (201, json.loads(wire))
        async with create_runtime(runtime) as opened:
            assert opened.id == registered.json()["id"]
        by_parts = {
            **json.loads(wire),
            "agents": [agent.model_dump(by_alias=True, mode="json") for agent in runtime.agents],
            "plans": [plan.model_dump(by_alias=True, mode="json") for plan in runtime.plans],
            "tools": [tool.model_dump(by_alias=True, mode="json") for tool in runtime.tools],
        }
        assert client.post("/runtimes", json=by_parts).json()["id"] == registered.json()["id"]


# -- what the define functions give


def test_agents_know_their_prompt_and_memory() -> None:
    prompt = layered_prompt(identity="You plan.", safety=["Never pay."])
    planner = define_planner("planner", "m-1", prompt, define_plan("Refunds", RefundPlan))
    assert (planner.system_prompt, planner.prompt_cache_key) == (prompt.text, prompt.cache_key)
    assert (planner.stateful, define_executor("e", "m-1", "You execute.", "Refunds").stateful) == (
        True,
        False,
    )
    runtime = define_runtime(define_tenant({"resourceId": "acme", "version": "1"}), [planner], tools=[greet])
    assert [agent.name for agent in runtime.agents] == ["planner"]
    assert [plan.name for plan in runtime.plans] == ["Refunds"]
    assert [tool.name for tool in runtime.tools] == ["greetUser"]
    assert define_tenant(resource_id="acme", version="1") == runtime.tenant


async def test_tools_of_an_agent_are_objects_or_names(on_service: Service) -> None:
    agent = AgentSpec(name="host", role="specialist", model="m-1", system_prompt="You greet.", tools=(greet,))
    spec = plangate.RuntimeSpec(tenant=define_tenant("objects"), agents=(agent,), interpreter="scripted")
    for system in (define_runtime("objects", [agent], interpreter="scripted"), spec):
        async with create_runtime(system) as runtime:
            prompt = {"tool": "greetUser", "args": {"userName": "Ada"}}
            events = await all_of(runtime.run_specialist("host", prompt))
            assert json.loads(events[-1]["output"])["results"] == [{"tool": "greetUser", "result": "Hi Ada"}]


async def test_a_function_is_a_dynamic_rule(on_service: Service) -> None:
    """The rule runs in this process, and so does the function that was bound to the tool."""
    asked: list[int] = []

    def is_large(args: Any, ctx: Any) -> bool:
        asked.append(args["cents"])
        return bool(args["cents"] > 100)

    pay = define_tool("pay", {"cents": int}, approval=is_large).bind(lambda args, ctx: args["cents"])
    system = define_runtime(
        "rules", [define_specialist("clerk", "m-1", "You pay.", tools=[pay])], interpreter="scripted"
    )
    async with create_runtime(system) as runtime:
        for cents, gates in ((50, 0), (500, 1)):
            approvals = []
            async for event in runtime.run_specialist("clerk", {"tool": "pay", "args": {"cents": cents}}):
                if event["type"] == "approval-required":
                    approvals.append(event["data"])
                    await runtime.respond_to_approval(
                        event["data"]["id"], "approve", digest=event["data"]["digest"]
                    )
            assert len(approvals) == gates
            assert json.loads(event["output"])["results"] == [{"tool": "pay", "result": cents}]
    assert set(asked) == {50, 500}


# -- what the wire accepts


def test_null_is_unset_on_the_wire(on_service: Service) -> None:
    spec: dict[str, Any] = {
        "tenant": {"resourceId": "unset", "version": None},
        "agents": [
            {
                "name": "helper",
                "role": "specialist",
                "stateful": None,
                "model": {
                    "id": "m-1",
                    "provider": None,
                    "maxOutputTokens": None,
                    "thinking": None,
                    "extra": None,
                },
                "systemPrompt": "You help.",
                "routes": None,
                "tools": None,
                "toolkits": None,
                "maxTurns": None,
                "plan": None,
                "approvalPolicies": None,
            }
        ],
        "name": None,
        "references": None,
        "plans": None,
        "approvalPolicies": {"plans": None, "tools": None},
        "providers": {"anthropic": None},
        "storageFactories": {"kv": None, "plans": None, "memory": None},
        "interpreter": "noop",
    }
    with http(on_service, "unset") as client:
        registered = client.post("/runtimes", json=spec)
        assert registered.status_code == 201, registered.text
        wire = registered.json()["spec"]
        assert wire["agents"][0]["model"] == {"id": "m-1", "provider": "anthropic"}
        assert "null" not in json.dumps(wire)
        query = client.post(
            "/queries",
            json={
                "prompt": "Hi",
                "runtime": None,
                "runtimeId": registered.json()["id"],
                "threadKey": None,
                "inputs": None,
                "limits": {"maxTurns": None},
                "ifBusy": None,
            },
        )
        assert query.status_code == 202, query.text


async def test_a_plan_without_actions_may_be_declared(on_service: Service) -> None:
    bare = define_plan("Bare", {"reason": str})
    planner = define_planner("planner", "m-1", "You plan.", bare)
    async with create_runtime(define_runtime("bare", [planner], interpreter="scripted")) as runtime:
        call = {"tool": "storePlan", "args": {"specName": "Bare", "body": {"reason": "none", "actions": []}}}
        events = await all_of(runtime.run_specialist("planner", call))
        (result,) = json.loads(events[-1]["output"])["results"]
        assert "'Bare' has no top-level array `actions`" in json.dumps(result["error"])


async def test_the_only_plan_needs_no_name(on_service: Service) -> None:
    refunds = define_plan("Refunds", RefundPlan)
    agents = [
        define_planner("planner", "m-1", "You plan."),
        define_executor("executor", "m-1", "You execute."),
    ]
    async with create_runtime(define_runtime("only", agents, plans=[refunds], interpreter="noop")) as runtime:
        assert [agent["plan"] for agent in runtime.spec["agents"]] == ["Refunds", "Refunds"]


async def test_a_query_chooses_among_several_coordinators(on_service: Service) -> None:
    helper = define_specialist("helper", "m-1", "You help.")
    fronts = [define_coordinator(name, "m-1", "You route.", routes=[helper]) for name in ("sales", "support")]
    async with create_runtime(define_runtime("fronts", [*fronts, helper], interpreter="noop")) as runtime:
        with pytest.raises(plangate.InvalidRequest, match="has 2 coordinators") as caught:
            await all_of(runtime.query("Hi", "thread-1"))
        assert caught.value.problem["errors"] == [{"pointer": "/agent", "message": "one of: sales, support"}]
        events = await all_of(runtime.run_specialist("support", "Hi"))
        assert events[-1]["output"] == "Hi"


# -- calls


async def test_a_scripted_call_may_be_flat(on_service: Service) -> None:
    host = define_specialist("host", "m-1", "You greet.", tools=[greet], toolkits=["variables"])
    async with create_runtime(define_runtime("flat", [host], interpreter="scripted")) as runtime:
        prompt = {"_tool": "greetUser", "userName": "†input.userName"}
        events = await all_of(runtime.run_specialist("host", prompt, inputs={"userName": "Ada"}))
        assert json.loads(events[-1]["output"])["results"] == [{"tool": "greetUser", "result": "Hi Ada"}]


async def test_ctx_is_a_mapping_that_names_call_and_tenant(on_service: Service) -> None:
    seen: dict[str, Any] = {}

    def look(args: Any, ctx: Any) -> None:
        seen.update(tool=dict(ctx))
        assert ctx.get("resolved_refs") is None

    def dispatch(actions: Any, ctx: Any) -> dict[str, int]:
        seen.update(dispatcher=dict(ctx))
        return {"entitiesAffected": len(actions)}

    refunds = define_plan("Refunds", RefundPlan)
    agents = [
        define_planner("planner", "m-1", "You plan.", tools=[define_tool("look", {}, handler=look)]),
        define_executor("executor", "m-1", "You execute.", approval={"plans": "never"}),
    ]
    system = define_runtime(
        "contexts", agents, plans=[refunds], references=[ProductSet], interpreter="scripted"
    )
    async with create_runtime(system, action_dispatcher=dispatch) as runtime:
        ref = await runtime.create_reference(ProductSet, {"product_ids": ["p-1"]})
        action = {"kind": "note", "text": "hello", "references": [{"kind": ref["kind"], "id": ref["id"]}]}
        store = {"_tool": "storePlan", "specName": "Refunds", "planId": "p", "body": {"actions": [action]}}
        prompt = {"script": [{"_tool": "look"}, store]}
        await all_of(runtime.run_specialist("planner", prompt, "thread-1"))
        await all_of(runtime.run_specialist("executor", {"_tool": "executePlan", "planId": "p"}, "thread-1"))
    assert (seen["tool"]["tool_use_id"], seen["tool"]["resource_id"]) == ("scripted-tool-1", "contexts")
    assert seen["tool"]["work_id"].startswith("wrk_")
    assert seen["dispatcher"]["resource_id"] == "contexts"
    assert seen["dispatcher"]["resolved_refs"] == {"ProductSet": {ref["id"]: {"product_ids": ["p-1"]}}}


async def test_a_reference_is_read_by_its_handle(on_service: Service) -> None:
    value = {"product_ids": ["p-1", "p-2"]}

    def read(args: Any, ctx: Any) -> Any:
        return [ctx.references.resolve(args["ref"]), ctx.references.glimpse(args["ref"])]

    tool = define_tool("read_both", {"ref": dict}, handler=read)
    reader = define_specialist("reader", "m-1", "You read.", tools=[tool])
    system = define_runtime("handles", [reader], references=[ProductSet], interpreter="scripted")
    async with create_runtime(system) as runtime:
        ref = await runtime.create_reference(ProductSet, value)
        assert await runtime.resolve_reference(ref) == value
        assert await runtime.resolve_reference(ref["kind"], ref["id"]) == value
        assert await runtime.reference_glimpse(ref) == ref["glimpse"] == {"preview": 1}
        events = await all_of(runtime.run_specialist("reader", {"_tool": "read_both", "ref": ref}))
        assert json.loads(events[-1]["output"])["results"][0]["result"] == [value, {"preview": 1}]
        with pytest.raises(TypeError, match="a reference is a handle such as"):
            await runtime.resolve_reference("ProductSet")


# -- opening and closing


HELLO = {"_tool": "greetUser", "userName": "Ada"}
GREETED = [{"tool": "greetUser", "result": "Hi Ada"}]


def greeter(tenant: str) -> plangate.DefinedRuntime:
    host = define_specialist("host", "m-1", "You greet.", tools=[greet])
    return define_runtime(tenant, [host], name="greeter", interpreter="scripted")


async def test_a_runtime_is_usable_at_once(on_service: Service) -> None:
    runtime = create_runtime(greeter("at-once"))
    events = await all_of(runtime.run_specialist("host", HELLO))
    assert json.loads(events[-1]["output"])["results"] == GREETED
    assert (await runtime.get_query(events[0]["queryId"]))["status"] == "succeeded"
    await runtime.aclose()


async def test_a_runtime_can_start_queries_without_serving_tools(on_service: Service) -> None:
    async with create_runtime(greeter("elsewhere")):
        async with create_runtime(greeter("elsewhere"), serve=False) as starter:
            runtime_id = starter.id
            events = await all_of(starter.run_specialist("host", HELLO))
        async with plangate.connect("greeter", tenant="elsewhere") as connected:
            assert connected.id == runtime_id
            again = await all_of(connected.run_specialist("host", HELLO))
    for event in (events[-1], again[-1]):
        assert json.loads(event["output"])["results"] == GREETED
    with pytest.raises(
        plangate.NotFound, match=r"No runtime 'greeters' is registered.*did you mean 'greeter'"
    ):
        await plangate.connect("greeters", tenant="elsewhere")


def test_scripts_work_without_an_event_loop(on_service: Service) -> None:
    with plangate.SyncRuntime(create_runtime(greeter("scripts"))) as runtime:
        events = list(runtime.run_specialist("host", HELLO))
        assert json.loads(events[-1]["output"])["results"] == GREETED
        assert runtime.get_query(events[0]["queryId"])["id"] == events[0]["queryId"]
        assert runtime.approvals() == runtime.artifacts.list() == []


DROPPED = """
import asyncio, sys
from plangate import SyncRuntime, create_runtime, define_runtime, define_specialist, define_tool
from plangate.local_service import LocalService

tool = define_tool("act", {}, handler=lambda args, ctx: 1)
helper = define_specialist("helper", "m-1", "You help.", tools=[tool])
system = define_runtime("dropped", [helper], interpreter="scripted")

async def main():
    runtime = create_runtime(system)
    return [event async for event in runtime.run_specialist("helper", {"_tool": "act"})]

def script():
    runtime = SyncRuntime(create_runtime(system))
    return list(runtime.run_specialist("helper", {"_tool": "act"}))

assert (script() if sys.argv[1] == "sync" else asyncio.run(main()))[-1]["type"] == "finish"
print(LocalService._running[0].pid)
"""


@pytest.mark.long
@pytest.mark.parametrize("kind", ["async", "sync"])
def test_a_dropped_runtime_warns_once_and_leaves_no_process(kind: str) -> None:
    with folder() as at:
        copy_data_directory(at / "data", {})
        environment = {**plain_environment(), "PLANGATE_DATA_DIR": str(at / "data")}
        done = subprocess.run(
            [sys.executable, "-c", DROPPED, kind],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        (line,) = done.stderr.splitlines()
        assert line.startswith("the runtime 'default' was dropped without being closed: ")
        with pytest.raises(ProcessLookupError):
            os.kill(int(done.stdout), 0)


# -- plans of tool calls


@pytest.mark.parametrize("name", ["†input.userName", "Ada"])
async def test_an_action_of_a_plan_may_be_flat(on_service: Service, name: str) -> None:
    trip = define_plan("trip", tools=[greet], variables=name.startswith("†"))
    agents = [
        define_planner("planner", "m-1", "You plan."),
        define_executor("executor", "m-1", "You execute.", approval={"plans": "never"}),
    ]
    system = define_runtime(f"trips-{len(name)}", agents, plans=[trip], tools=[greet], interpreter="scripted")
    action = {"_tool": "greetUser", "userName": name}
    async with create_runtime(system) as runtime:
        store = {"_tool": "storePlan", "specName": "trip", "planId": "p", "body": {"actions": [action]}}
        events = await all_of(runtime.run_specialist("planner", store, "t-1", inputs={"userName": "Ada"}))
        assert "result" in json.loads(events[-1]["output"])["results"][0], events[-1]["output"]
        execute = {"_tool": "executePlan", "planId": "p"}
        events = await all_of(runtime.run_specialist("executor", execute, "t-1", inputs={"userName": "Ada"}))
        (done,) = json.loads(events[-1]["output"])["results"]
        assert done["result"]["status"] == "executed", done
        host = await runtime.store_plan("trip", {"actions": [action]}, "t-2")
        assert host["status"] == "draft"


async def test_a_plan_may_require_references(on_service: Service) -> None:
    handle = {
        "type": "object",
        "properties": {"kind": {"const": "ProductSet"}, "id": {"type": "string"}},
        "required": ["kind", "id"],
        "additionalProperties": False,
    }
    send = {
        "type": "object",
        "properties": {
            "kind": {"const": "send"},
            "references": {"type": "array", "minItems": 1, "items": handle},
        },
        "required": ["kind", "references"],
        "additionalProperties": False,
    }
    actions = {"type": "array", "items": send}
    mailing = define_plan("Mailing", {"type": "object", "properties": {"actions": actions}})
    resolved: list[Any] = []

    def dispatch(actions: Any, ctx: Any) -> dict[str, int]:
        resolved.append(ctx["resolved_refs"])
        return {"entitiesAffected": len(actions)}

    agents = [
        define_planner("planner", "m-1", "You plan."),
        define_executor("executor", "m-1", "You execute.", approval={"plans": "never"}),
    ]
    system = define_runtime(
        "required", agents, plans=[mailing], references=[ProductSet], interpreter="scripted"
    )
    async with create_runtime(system, action_dispatcher=dispatch) as runtime:
        ref = await runtime.create_reference(ProductSet, {"product_ids": ["p-1"]})
        named = {"kind": ref["kind"], "id": ref["id"]}
        with pytest.raises(plangate.InvalidRequest, match="does not match the plan"):
            await runtime.store_plan("Mailing", {"actions": [{"kind": "send"}]}, "t-1")
        body = {"actions": [{"kind": "send", "references": [named]}]}
        store = {"_tool": "storePlan", "specName": "Mailing", "planId": "p", "body": body}
        await all_of(runtime.run_specialist("planner", store, "t-1"))
        events = await all_of(
            runtime.run_specialist("executor", {"_tool": "executePlan", "planId": "p"}, "t-1")
        )
    (done,) = json.loads(events[-1]["output"])["results"]
    assert done["result"]["status"] == "executed"
    assert resolved == [{"ProductSet": {ref["id"]: {"product_ids": ["p-1"]}}}]


async def test_a_plan_of_tools_needs_no_schema_and_no_dispatcher(on_service: Service) -> None:
    """A prescribed path is applied though the planner omits it, and whatever a tool returns is the action's result."""
    schema = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "_outputPath": {"const": "†state.flight"}},
        "required": ["to"],
    }
    search = define_tool("search_flights", schema, handler=lambda args, ctx: {"name": args["to"]})
    book = define_tool("book_hotel", {"flight": dict}, handler=lambda args, ctx: args["flight"]["name"])
    trip = define_plan("trip", tools=[search, book])
    executor = define_executor("executor", "m-1", "You execute.", trip, approval={"plans": "never"})
    system = define_runtime("tool-plans", [executor], plans=[trip], interpreter="scripted")
    async with create_runtime(system) as runtime:
        actions = [
            {"tool": "search_flights", "to": "Rome"},
            {"tool": "book_hotel", "flight": "†state.flight"},
        ]
        plan = await runtime.store_plan("trip", {"actions": actions}, "t-1")
        events = await all_of(
            runtime.run_specialist("executor", {"_tool": "executePlan", "planId": plan["id"]}, "t-1")
        )
        (done,) = json.loads(events[-1]["output"])["results"]
        assert done["result"]["status"] == "executed", done
        rows = await runtime.plan_actions(plan["id"])
        assert [row["result"]["details"] for row in rows] == [{"name": "Rome"}, "Rome"]


async def test_a_value_that_a_model_reads_is_in_no_event(on_service: Service) -> None:
    """Later queries of the thread have the handle and the glimpse, and a deletion stops nothing."""
    reader = define_specialist("reader", "m-1", "You read.", toolkits=["references"], stateful=True)
    system = define_runtime("values", [reader], references=[ProductSet], interpreter="scripted")
    async with create_runtime(system) as runtime:
        ref = await runtime.create_reference(ProductSet, {"product_ids": ["a-secret-product"]})
        read = {"_tool": "resolveRef", "kind": ref["kind"], "id": ref["id"]}
        events = await all_of(runtime.run_specialist("reader", read, "t-1"))
        (result,) = (e["result"] for e in events if e["type"] == "tool-invocation" and e["state"] == "result")
        assert (result["kind"], result["id"], result["glimpse"]) == (ref["kind"], ref["id"], {"preview": 1})
        assert result["sizeBytes"] == result["shownBytes"] > 0
        thread, query = events[0]["threadId"], events[0]["queryId"]
        with http(on_service, "values") as client:
            messages = client.get(f"/threads/{thread}/messages").text
            on_record = messages + client.get(f"/queries/{query}/work").text + json.dumps(events)
            assert "a-secret-product" not in on_record
            assert ref["id"] in messages and "no longer available" in messages
            client.delete(f"/references/{ref['kind']}/{ref['id']}").raise_for_status()
        events = await all_of(runtime.run_specialist("reader", read, "t-1"))
        assert events[-1]["type"] == "finish"
        (gone,) = json.loads(events[-1]["output"])["results"]
        assert "There is no reference" in gone["error"]


def test_a_claim_may_be_restricted(on_service: Service) -> None:
    with pytest.raises(plangate.SpecInvalid, match="tool 'actions' has a name under which"):
        actions = define_tool("actions", {})
        define_runtime("claims", [define_specialist("host", "m-1", "You act.", tools=[actions])])
    host = define_specialist("host", "m-1", "You greet.", tools=[greet])
    spec = define_runtime("claims", [host], interpreter="scripted").model_dump(by_alias=True, mode="json")
    with http(on_service, "claims") as client:
        runtime = client.post("/runtimes", json=spec).json()["id"]
        body = {"runtimeId": runtime, "prompt": json.dumps(HELLO)}
        first, second = (client.post("/queries", json=body).json() for _ in range(2))
        for query in (first, second):
            wait_for_call(client, query["id"])
        claim = {"tools": [{"name": "greetUser"}], "max": 10}
        for field, other in (("queryId", "qry_0"), ("threadId", "thr_0"), ("runtimeId", "rt_0")):
            assert client.post("/tool-calls/claim", json={**claim, field: other}).json()["calls"] == []
        assert client.post("/tool-calls/claim", json={**claim, "purpose": "action"}).json()["calls"] == []
        own = {"queryId": second["id"], "threadId": second["threadId"], "runtimeId": runtime}
        calls = client.post("/tool-calls/claim", json={**claim, **own, "purpose": "tool"}).json()["calls"]
        assert [call["queryId"] for call in calls] == [second["id"]]


def wait_for_call(client: httpx.Client, query_id: str) -> None:
    """Wait until a query has a call that can be claimed."""
    deadline = time.monotonic() + 30
    while not client.get("/tool-calls", params={"queryId": query_id}).json()["items"]:
        assert time.monotonic() < deadline, f"{query_id} makes no call"
        time.sleep(0.05)


# -- annotations


def test_names_for_annotations_are_exported() -> None:
    def label(status: plangate.PlanStatus, role: plangate.Role, rule: plangate.Rule) -> plangate.Quorum: ...

    assert get_type_hints(label)["status"] == Literal["draft", "approved", "executing", "executed", "failed"]
    assert issubclass(plangate.HttpTransport, BaseModel)

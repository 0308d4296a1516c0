"""The `ctx` of handlers: its fields, and reserved names."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import plangate
import pytest
from plangate import CallContext, define_runtime, define_specialist, define_tool
from plangate.context import Bridge

from tests.pure.sdk.fake_service import fake_service

RESERVED = (
    *("artifacts", "emit", "files", "memory", "progress", "references", "resolved_refs", "services", "state"),
    *("tool_use_id", "work_id"),
    *("get", "items", "keys", "values"),
)


def opened(**parts: Any) -> plangate.Runtime:
    helper = define_specialist("helper", "m-1", "You help.")
    return plangate.create_runtime(
        define_runtime("acme", [helper]), url="http://127.0.0.1:9", api_key="key", **parts
    )


def test_a_service_is_an_attribute_and_a_key_of_both() -> None:
    db = object()
    ctx = CallContext({"tool_use_id": "wrk_1"}, {"db": db, "clock": 1})
    assert ctx.db is ctx["db"] is ctx.services.db is ctx.services["db"] is ctx["services"]["db"] is db
    assert dict(ctx.services) == {"db": db, "clock": 1}
    assert "db" in ctx and "db" in ctx.services and "agent" not in ctx
    with pytest.raises(TypeError):
        ctx.services["db"] = 2
    with pytest.raises(
        AttributeError, match=r"^there is no service 'bd'; create_runtime was given db, clock$"
    ):
        _ = ctx.services.bd
    with pytest.raises(AttributeError, match=r"^there is no service 'db'; create_runtime was given none$"):
        _ = CallContext({}, {}).services.db
    with pytest.raises(KeyError, match="there is no service 'bd'; create_runtime was given db, clock"):
        _ = ctx["services"]["bd"]


def test_a_context_is_a_mapping() -> None:
    ctx = CallContext({"tool_use_id": "toolu_1", "resolved_refs": {"Orders": {}}}, {"db": 1})
    assert isinstance(ctx, Mapping)
    assert (ctx.get("resolved_refs"), ctx.get("absent"), ctx.get("absent", 3)) == ({"Orders": {}}, None, 3)
    assert sorted(ctx) == sorted(ctx.keys()) == ["db", "resolved_refs", "services", "tool_use_id"]
    assert dict(ctx)["db"] == 1 and len(ctx) == 4


def test_a_service_name_does_not_hide_a_field_of_the_call() -> None:
    ctx = CallContext({"agent": "helper", "inputs": {}}, {"agent": "the author's"})
    assert (ctx.agent, ctx["agent"], ctx.inputs) == ("the author's", "the author's", {})


@pytest.mark.parametrize("name", RESERVED)
def test_reserved_names_of_the_context_are_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="services cannot be called") as refused:
        opened(services={"db": 1, name: 2})
    assert str(refused.value) == (
        f"services cannot be called {name}: handlers find something else under {', '.join(sorted(RESERVED))}; "
        "rename them"
    )


@pytest.mark.parametrize("services", [["db"], {1: "db"}, "db"])
def test_services_are_a_mapping_of_names(services: Any) -> None:
    with pytest.raises(TypeError, match=r"^services is a mapping of names to objects$"):
        opened(services=services)


def test_a_missing_attribute_of_a_call_is_reported() -> None:
    ctx = CallContext({"tool_use_id": "wrk_1"}, {"db": 1})
    told = "this call has no 'cb'; it has db, services, tool_use_id. More is given to create_runtime(services=...)"
    with pytest.raises(AttributeError) as absent:
        _ = ctx.cb
    assert str(absent.value) == told
    with pytest.raises(KeyError) as missing:
        _ = ctx["cb"]
    assert missing.value.args == (told,)
    with pytest.raises(AttributeError):
        _ = ctx._private


async def test_a_tool_handler_gets_its_context() -> None:
    seen: list[CallContext] = []
    tool = define_tool("look", {"id": str}, handler=lambda args, ctx: seen.append(ctx))
    spec = define_runtime("acme", [define_specialist("helper", "m-1", "You help.", tools=[tool])])
    async with fake_service() as service, service.runtime(spec, services={"db": 7}):
        (claim,) = service.bodies("POST", "/tool-calls/claim")[:1]
        (served,) = claim["tools"]
        identity = {"toolUseId": "toolu_9", "threadId": "thr_1", "agent": "helper", "runtimeId": "rt_1"}
        call = {**served, "args": {"id": "a"}, "context": {**identity, "resourceId": "acme"}}
        assert await service.outcome(call) == {"output": None}
    (ctx,) = seen
    assert (ctx.work_id, ctx["resource_id"]) == ("wrk_0", "acme")
    assert (ctx.tool_use_id, ctx.query_id, ctx.thread_id, ctx.agent, ctx.runtime_id, ctx.db) == (
        "toolu_9",
        "qry_1",
        "thr_1",
        "helper",
        "rt_1",
        7,
    )
    assert "resolved_refs" not in ctx


async def test_a_dispatcher_gets_its_context() -> None:
    seen: list[tuple[Any, CallContext]] = []
    plan = plangate.define_plan("Refunds", {"actions": list[dict]})
    executor = plangate.define_executor("executor", "m-1", "You execute.", plan)
    spec = define_runtime("acme", [executor])
    dispatch = {
        "planId": "pln_1",
        "specName": "Refunds",
        "revision": 2,
        "digest": "d" * 64,
        "idempotencyKey": "k",
        "attempt": 1,
        "inputs": {"n": 1},
        "resolvedRefs": {"Orders": {"r1": [1]}},
        "actions": [{"kind": "refund", "payload": {}}],
    }
    async with fake_service() as service:
        kept = lambda actions, ctx: seen.append((actions, ctx))  # noqa: E731
        async with service.runtime(spec, action_dispatcher=kept):
            (served,) = service.bodies("POST", "/tool-calls/claim")[0]["tools"]
            call = {**served, "purpose": "action", "context": {"threadId": "thr_1"}, **dispatch}
            assert await service.outcome(call) == {"output": None}
    ((actions, ctx),) = seen
    assert actions == dispatch["actions"]
    assert ctx["resolved_refs"] == {"Orders": {"r1": [1]}}
    assert (ctx.plan_id, ctx.spec_name, ctx.revision, ctx.digest) == ("pln_1", "Refunds", 2, "d" * 64)
    assert (ctx.idempotency_key, ctx.attempt, ctx.inputs, ctx.agent) == ("k", 1, {"n": 1}, None)


@pytest.mark.parametrize("closed", ["before", "meanwhile"])
def test_a_thread_does_not_wait_for_an_event_loop_that_has_ended(closed: str) -> None:
    """The program waits for its threads at its end, so that both would stay for ever."""
    home = asyncio.new_event_loop()
    if closed == "before":
        home.close()

    async def asked() -> None:
        raise AssertionError("nobody runs the loop")

    with ThreadPoolExecutor(1) as pool:
        work = asked()
        waiting = pool.submit(Bridge(home).run, work)
        while closed == "meanwhile" and not home._ready:  # type: ignore[attr-defined]
            pass
        home.close()
        with pytest.raises(
            plangate.ServiceUnavailable, match=r"^The event loop of the runtime has ended, so"
        ):
            waiting.result(20)

"""Hostile requests: expensive expressions, huge bodies, stolen claims."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from app.base.json.offload import is_small
from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.world import World

PIPED = "|".join(["[@,@]"] * 40)
JOINED = "|".join(["join('',[@,@])"] * 40)


async def test_an_expression_that_doubles_a_value_is_rejected_before_it_runs(api: Caller) -> None:
    kinds = [
        {"name": "Piped", "schema": {}, "glimpse": {"g": PIPED}},
        {"name": "Joined", "schema": {}, "glimpse": {"g": JOINED}},
        {"name": "Odd", "schema": {}, "glimpse": {"g": "[?a < b]"}},
        {"name": "Infinite", "schema": {}, "glimpse": {"g": "sum(@)"}},
    ]
    await api.register(specs.mock(references=kinds))
    for kind, value in (("Piped", [1]), ("Joined", "abcd"), ("Infinite", [1e308, 1e308])):
        began = time.monotonic()
        refused(await api.post("/references", {"kind": kind, "value": value}), 422)
        assert time.monotonic() - began < 60, "the expression was evaluated instead of rejected"
    odd = await api.do("/references", {"kind": "Odd", "value": [{"a": "x", "b": 1}]})
    assert odd["glimpse"] == {"g": []}


@pytest.mark.parametrize(
    "expression", ["(" * 5000, "`" + "[" * 5000 + "`", "[" + "9" * 5000 + "]", "a" * 20_000]
)
async def test_an_unparsable_expression_is_a_validation_error(api: Caller, expression: str) -> None:
    kind = {"name": "K", "schema": {}, "glimpse": {"g": expression}}
    body = refused(await api.post("/runtimes", specs.mock(references=[kind])), 422)
    assert body["errors"][0]["pointer"] == "/references/0/glimpse/g"


async def test_a_script_whose_expression_doubles_a_result_fails_alone(api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("count")))
    prompt = specs.script(("count", {"n": 1}), ("count", {"n": {"$result": PIPED}}))
    query = (await api.submit(prompt))["id"]
    await api.serve("count", 1)
    assert (await api.ended(query))["status"] == "failed"


@pytest.mark.parametrize(
    ("expression", "args"),
    [
        ('args.l.all(a, !args.s.contains("aaaaaaaaaaaaaaab"))', {"l": list(range(3000)), "s": "a" * 60_000}),
        ('args.s.matches("(a?){1000}a{1000}b")', {"s": "a" * 60_000}),
        ("args.l.map(a, args.s + args.s).size() < 0", {"l": list(range(3000)), "s": "a" * 60_000}),
    ],
)
async def test_a_predicate_that_could_stall_requires_approval(
    api: Caller, expression: str, args: dict[str, Any]
) -> None:
    tool = specs.tool("t", inputSchema={"type": "object"}, approval={"kind": "dynamic", "value": "p"})
    await api.register(specs.scripted(tool, approvalPredicates={"p": expression}))
    began = time.monotonic()
    query = (await api.submit(specs.script(("t", args))))["id"]
    await api.gate(query)
    assert time.monotonic() - began < 8
    good(await api.post(f"/queries/{query}/cancel"))


async def test_a_dynamic_rule_is_evaluated_once_per_call(
    api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call whose approval is pending waits for it, and one that was offered is not asked for afterwards."""
    answers = {"gated": True, "free": False}
    tools = [specs.tool(name, approval={"kind": "dynamic", "value": name}) for name in answers]
    predicates = dict.fromkeys(answers, "args.n > 0")
    spec = specs.scripted(*tools, approvalPredicates=predicates)
    await api.register(spec)
    monkeypatch.setattr(
        "app.runtimes.predicate_pool.evaluate",
        lambda _expression, args, _ctx: answers["gated" if args["n"] else "free"],
    )
    gated = (await api.submit(specs.script(("gated", {"n": 1}))))["id"]
    approval = await api.gate(gated)
    await api.until(gated, "waiting", "approval")
    answers["gated"] = False
    good(await api.decide(approval["id"], "reject", feedback="No."))
    ended = await api.ended(gated)
    assert "rejected" in json.dumps(output_of(ended))
    assert (await api.read("/tool-calls", queryId=gated))["items"] == []
    free = (await api.submit(specs.script(("free", {"n": 0}))))["id"]
    (call,) = await api.claim("free")
    await api.until(free, "waiting", "client_call")
    answers["free"] = True
    good(await api.result(call, 7))
    assert output_of(await api.ended(free)) == [{"tool": "free", "result": 7}]
    assert (await api.read("/approvals", queryId=free))["items"] == []


async def test_execute_plan_can_have_its_own_gate_before_the_plans(api: Caller) -> None:
    overrides = {"tools": {"doer": {"executePlan": "always"}}}
    await api.register(specs.planning(approvalOverrides=overrides))
    query = (await api.submit(specs.store_and_execute()))["id"]
    first = await api.approve(query)
    second = await api.gate(query, not_=first["id"])
    assert (first["kind"], second["kind"]) == ("tool", "plan")
    good(await api.decide(second["id"], digest=second["digest"]))
    await api.serve("actions", {"entitiesAffected": 1})
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"


async def test_no_body_is_parsed_without_a_valid_key(plangate: World) -> None:
    nobody = Caller(plangate.http, None)
    refused(await nobody.post("/references", {"kind": "K", "value": "x" * 2_000_000}), 401)
    raw = await nobody.request("POST", "/queries", content=b"{", headers={"content-type": "application/json"})
    refused(raw, 401)


async def test_a_body_of_millions_of_arrays_is_rejected_without_blocking(api: Caller) -> None:
    body = b'{"kind":"K","value":[' + b"[]," * 1_500_000 + b"1]}"
    headers = {"content-type": "application/json"}
    sending = asyncio.create_task(api.request("POST", "/references", content=body, headers=headers))
    sent = time.monotonic()
    worst = 0.0
    while not sending.done():
        began = time.monotonic()
        good(await api.get("/healthz"))
        worst = max(worst, time.monotonic() - began)
        await asyncio.sleep(0.01)
    refused(await sending, 413)
    assert worst < max(1, (time.monotonic() - sent) / 2)


async def test_a_value_with_many_parts_is_checked_off_the_loop() -> None:
    assert is_small({"a": [1, 2, {"b": "c"}]})
    assert not is_small({"a": list(range(100_000))})
    assert not is_small("x" * 1_000_000)


async def test_a_claim_is_repeated_only_for_its_claimant_and_allowed_tools(
    plangate: World, api: Caller
) -> None:
    await api.register(specs.scripted(specs.tool("a"), specs.tool("b")))
    query = (await api.submit(specs.script(("a", {"n": 1}))))["id"]
    await api.until(query, "waiting", "client_call")
    token = "t" * 40
    ann = await plangate.key("tools:serve", principal="ann", tools=["a"])
    eve = await plangate.key("tools:serve", principal="eve", tools=["a"])
    narrow = await plangate.key("tools:serve", principal="ann", tools=["b"])

    async def claim(who: Caller, name: str) -> list[Any]:
        found: list[Any] = (
            await who.do("/tool-calls/claim", {"tools": [{"name": name}], "claimToken": token})
        )["calls"]
        return found

    (held,) = await claim(ann, "a")
    assert await claim(eve, "a") == []
    assert await claim(narrow, "b") == []
    assert await claim(ann, "a") == [held]

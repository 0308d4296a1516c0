"""Approval predicates in client processes: called once; any doubt requires approval."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import specs
from tests.support.client import Caller, good, output_of, refused
from tests.support.world import World

NAME = "predicates.large"
ADD = specs.script(("add", {"n": 41}))


@pytest.fixture
async def registered(api: Caller) -> dict[str, Any]:
    rule = {"kind": "dynamic", "value": "large"}
    described = specs.scripted(
        specs.tool("add", approval=rule), approvalPredicates={"large": {"kind": "client"}}
    )
    return await api.register(described)


async def test_a_process_can_waive_the_approval(api: Caller, registered: dict[str, Any]) -> None:
    query = (await api.submit(ADD))["id"]
    call = await api.serve(NAME, False)
    assert (call["purpose"], call["args"]) == ("predicate", {"n": 41})
    thread = (await api.read(f"/queries/{query}"))["threadId"]
    assert call["predicate"] == {
        "tool": "add",
        "agent": "solo",
        "threadId": thread,
        "queryId": query,
        "resourceId": "acme",
        "spentUsd": 0.0,
    }
    await api.serve("add", 42)
    assert output_of(await api.ended(query))[0]["result"] == 42
    assert (await api.read("/approvals"))["items"] == []
    works = {w["kind"]: w for w in (await api.read(f"/queries/{query}/work"))["items"]}
    assert (works["predicate"]["name"], works["predicate"]["status"]) == ("large", "succeeded")
    assert works["predicate"]["parentId"] == works["tool_call"]["id"]
    assert call["context"]["toolUseId"] == "scripted-tool-1"
    assert call["context"]["workId"] == works["tool_call"]["id"]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"output": True}, None),
        ({"output": "no"}, "it returned str, not a boolean"),
        ({"output": None}, "it returned NoneType, not a boolean"),
        ({"output": 0}, "it returned int, not a boolean"),
        ({"error": "KeyError: 'n'"}, "KeyError: 'n'"),
    ],
)
async def test_anything_but_false_requires_approval(
    api: Caller, registered: dict[str, Any], answer: dict[str, Any], why: str | None
) -> None:
    query = (await api.submit(ADD))["id"]
    (call,) = await api.claim(NAME)
    good(await api.post(f"/tool-calls/{call['workId']}/result", {"claimToken": call["claimToken"], **answer}))
    approval = await api.gate(query)
    assert approval["target"] == "add"
    (work,) = [w for w in (await api.read(f"/queries/{query}/work"))["items"] if w["kind"] == "predicate"]
    if why is None:
        assert (work["status"], work.get("error")) == ("succeeded", None)
    else:
        message = f"The predicate 'large' did not answer: {why}."
        assert work["error"] == {"code": "predicate_failed", "message": message}
    good(await api.decide(approval["id"]))
    await api.serve("add", 42)
    assert output_of(await api.ended(query))[0]["result"] == 42


async def test_a_predicate_without_an_answer_requires_approval(
    plangate: World, api: Caller, owner: Any, registered: dict[str, Any]
) -> None:
    query = (await api.submit(ADD))["id"]
    await api.until(query, "waiting", "client_call")
    left = await plangate.value("SELECT extract(epoch FROM claim_before - now()) FROM outgoing_calls")
    assert 20 < left <= 30
    await owner.execute("UPDATE outgoing_calls SET claim_before = now() - interval '1 s'")
    await plangate.services.calls.lapse_due()
    await api.gate(query)
    (work,) = [w for w in (await api.read(f"/queries/{query}/work"))["items"] if w["kind"] == "predicate"]
    assert work["error"]["message"] == "The predicate 'large' did not answer: no process answered in time."


async def test_a_process_that_dies_with_the_predicate_requires_approval(
    plangate: World, api: Caller, owner: Any, registered: dict[str, Any]
) -> None:
    query = (await api.submit(ADD))["id"]
    await api.claim(NAME)
    await owner.execute("UPDATE outgoing_calls SET claimed_until = now() - interval '1 s'")
    await plangate.services.calls.lapse_due()
    await api.gate(query)
    (work,) = [w for w in (await api.read(f"/queries/{query}/work"))["items"] if w["kind"] == "predicate"]
    assert work["error"]["message"] == "The predicate 'large' did not answer: no process answered in time."


async def test_a_predicate_is_evaluated_once_across_parking_and_takeover(
    plangate: World, second: World, api: Caller, registered: dict[str, Any]
) -> None:
    query = (await api.submit(ADD))["id"]
    await api.serve(NAME, False)
    await api.until(query, "waiting", "client_call")  # for `add`, which nobody serves yet
    await plangate.services.worker.drain(0)
    await second.api.serve("add", 42)
    assert output_of(await second.api.ended(query))[0]["result"] == 42
    calls = (await second.api.read("/tool-calls"))["items"]
    assert sorted(c["purpose"] for c in calls) == ["predicate", "tool"]


async def test_answering_needs_the_scope_for_actions(
    plangate: World, api: Caller, registered: dict[str, Any]
) -> None:
    await api.submit(ADD)
    (call,) = await api.claim(NAME)
    await api.do(f"/tool-calls/{call['workId']}/release", {"claimToken": call["claimToken"]})
    tools_only = await plangate.key("tools:serve")
    assert (await tools_only.do("/tool-calls/claim", {"tools": [{"name": NAME}]}))["calls"] == []
    both = await plangate.key("tools:serve", "actions:serve")
    assert len((await both.do("/tool-calls/claim", {"tools": [{"name": NAME}]}))["calls"]) == 1
    named = await plangate.key("tools:serve", "actions:serve", tools=["add"])
    refused(await named.post("/tool-calls/claim", {"tools": [{"name": NAME}]}), 403)

"""Approvals with the Python library against a real service: edits, grants, batches, signing secrets."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import plangate
import pytest
from plangate import define_runtime, define_specialist, define_tool

from tests.support.service import Service, folder, serving

PATIENCE_S = 20.0
Event = dict[str, Any]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with folder() as at, serving(at) as running:
        yield running


def opened(service: Service, tenant: str, *tools: plangate.DefinedTool) -> plangate.Runtime:
    clerk = define_specialist("clerk", "m-1", "You send money.", tools=list(tools))
    spec = define_runtime(tenant, [clerk], interpreter="scripted")
    return plangate.create_runtime(spec, url=service.url, api_key=service.key)


def sending(sent: list[Any], **approval: Any) -> plangate.DefinedTool:
    return define_tool(
        "send",
        {"to": str, "cents": int},
        approval={"kind": "always", **approval},
        handler=lambda args, ctx: sent.append(args),
    )


def asked(runtime: plangate.Runtime, cents: int, thread_id: str | None = None) -> plangate.QueryEvents:
    prompt = {"tool": "send", "args": {"to": "bob", "cents": cents}}
    return runtime.run_specialist("clerk", prompt, thread_id)


async def gate_of(events: AsyncIterator[Event]) -> Event:
    """The approval that a query waits for."""
    async with asyncio.timeout(PATIENCE_S):
        async for event in events:
            if event["type"] == "approval-required":
                data: Event = event["data"]
                return data
    raise AssertionError("nobody was asked")


async def end_of(events: AsyncIterator[Event]) -> list[Event]:
    async with asyncio.timeout(PATIENCE_S):
        return [event async for event in events]


async def test_an_approver_edits_remembers_and_revokes(service: Service) -> None:
    sent: list[Any] = []
    async with opened(service, "edits", sending(sent, rememberable={"free": ["cents"]})) as runtime:
        events = asked(runtime, 500_000, "savings")
        gate = await gate_of(events)
        assert gate in await runtime.approvals()
        subject = await runtime.approval_subject(gate["id"])
        assert (subject.value["kind"], subject.value["args"]) == ("tool", {"to": "bob", "cents": 500_000})
        assert json.loads(subject.data) == subject.value
        assert hashlib.sha256(subject.data).hexdigest() == subject.digest == gate["digest"]

        with pytest.raises(plangate.InvalidRequest) as invalid:
            await runtime.respond_to_approval(
                gate["id"], "approve", digest=subject.digest, args={"to": "bob", "cents": "less"}
            )
        assert invalid.value.errors[0]["pointer"] == "/args/cents"
        edited = {"to": "bob", "cents": 5_000}
        said = {"digest": gate["digest"], "args": edited, "scope": "thread"}
        decided = await runtime.respond_to_approval(gate["id"], "approve", **said)
        assert (decided["status"], decided["originalArgs"]) == ("approved", {"to": "bob", "cents": 500_000})
        assert decided["digest"] != gate["digest"]
        await end_of(events)
        assert sent == [edited]

        covered = await end_of(asked(runtime, 700, "savings"))
        assert "approval-required" not in {event["type"] for event in covered}
        assert sent == [edited, {"to": "bob", "cents": 700}]
        (grant,) = await runtime.grants(agent="clerk", tool="send")
        assert (grant["args"], grant["free"], grant["active"]) == ({"to": "bob"}, ["cents"], True)
        (used,) = await runtime.approvals("approved", query_id=covered[0]["queryId"])
        assert used["grantId"] == grant["id"]

        for _ in range(2):
            revoked = await runtime.revoke_grant(grant["id"])
            assert (revoked["id"], revoked["active"]) == (grant["id"], False)
        assert await runtime.grants() == []
        assert [one["id"] for one in await runtime.grants(active=False)] == [grant["id"]]
        last = asked(runtime, 800, "savings")
        gate = await gate_of(last)
        await runtime.respond_to_approval(gate["id"], "reject", "Enough.")
        await end_of(last)
        assert len(sent) == 2


async def test_several_decisions_apply_all_or_nothing(service: Service) -> None:
    sent: list[Any] = []
    async with opened(service, "many", sending(sent)) as runtime:
        queries = [asked(runtime, cents) for cents in (1, 2, 3)]
        gates = [await gate_of(events) for events in queries]
        said = [{"id": gate["id"], "decision": "approve", "digest": gate["digest"]} for gate in gates]
        said[2] = {"id": gates[2]["id"], "decision": "reject", "feedback": "Not this one."}

        wrong = [*said[:1], {**said[1], "digest": "0" * 64}, *said[2:]]
        with pytest.raises(
            plangate.Conflict, match=f"^{gates[1]['id']}: The digest does not match .* Nothing was decided"
        ):
            await runtime.respond_to_approvals(wrong)
        waiting = await runtime.approvals()
        assert [one["id"] for one in waiting] == [gate["id"] for gate in reversed(gates)]
        assert len(await runtime.approvals(limit=2)) == 2

        decided = await runtime.respond_to_approvals(said)
        assert [one["id"] for one in decided] == [gate["id"] for gate in gates]
        assert [one["status"] for one in decided] == ["approved", "approved", "rejected"]
        assert await runtime.approvals() == []
        for events in queries:
            await end_of(events)
        assert sorted(one["cents"] for one in sent) == [1, 2]


async def test_a_scope_that_the_rule_forbids_is_rejected(service: Service) -> None:
    async with opened(service, "once", sending([])) as runtime:
        events = asked(runtime, 1)
        gate = await gate_of(events)
        with pytest.raises(plangate.InvalidRequest, match="the rule of this gate is not 'rememberable'"):
            await runtime.respond_to_approval(gate["id"], "approve", digest=gate["digest"], scope="thread")
        await runtime.respond_to_approval(gate["id"], "reject")
        await end_of(events)


async def test_a_signing_secret_is_replaced(service: Service) -> None:
    look = define_tool("look", {}, transport={"kind": "http", "url": "https://tools.example.com/look"})
    async with opened(service, "signing", look) as runtime:
        first = runtime.signing_secret
        second = await runtime.rotate_signing_secret()
        assert first and first.startswith("whsec_") and second.startswith("whsec_") and first != second
        assert runtime.signing_secret == second
    async with opened(service, "signing", look) as runtime:
        assert runtime.signing_secret is None
        assert await runtime.rotate_signing_secret() not in (first, second)
    async with opened(service, "unsigned", define_tool("look", {})) as runtime:
        with pytest.raises(plangate.NotFound, match="no part of it uses the transport http"):
            await runtime.rotate_signing_secret()

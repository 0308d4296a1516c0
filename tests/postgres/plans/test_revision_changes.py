"""What reviewers compare and read in full: revisions of a plan, and the values that an approval stored."""

from __future__ import annotations

import hashlib
from typing import Any

import httpx
import pytest

from tests.postgres.variables.test_state import Pen, thread
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.graphs import SEATS, begun, flowing, make, seats, stored
from tests.support.world import World


async def store(api: Caller, *actions: specs.Spec, reason: str = "storm") -> dict[str, Any]:
    body = {"reason": reason, "actions": list(actions)}
    plan: dict[str, Any] = await api.do(
        "/plans", {"specName": "Routing", "planId": "p1", "threadKey": "t", "body": body}
    )
    return plan


async def test_revisions_are_compared_by_the_keys_that_their_plan_declares(
    plangate: World, api: Caller
) -> None:
    spec = specs.planning()
    await api.register(spec | {"plans": [specs.ROUTING | {"actionKeys": {"book": ["seat"]}}]})
    await store(api, {"kind": "book", "seat": "1A"}, {"kind": "refund", "cents": 5})
    await store(api, {"kind": "refund", "cents": 7}, {"kind": "book", "seat": "1A"}, reason="snow")
    plan = await store(api, {"kind": "refund", "cents": 7})
    changes = await api.read(f"/plans/{plan['id']}/revisions/2/changes")
    assert (changes["planId"], changes["from"], changes["to"]) == (plan["id"], 1, 2)
    assert changes["context"] == [{"pointer": "/reason", "before": "storm", "after": "snow"}]
    refund, book = changes["actions"]
    assert refund == {
        "change": "changed",
        "before": 1,
        "after": 0,
        "kind": "refund",
        "matchedBy": "position",
        "moved": False,
        "fields": [{"pointer": "/payload/cents", "before": 5, "after": 7}],
    }
    assert (book["change"], book["matchedBy"], book["moved"], book["fields"]) == ("changed", "key", True, [])
    changes = await api.read(f"/plans/{plan['id']}/revisions/3/changes", **{"from": 1})
    assert [(a["change"], a["before"], a["after"]) for a in changes["actions"]] == [
        ("removed", 0, None),
        ("changed", 1, 0),
    ]


async def test_a_revision_that_is_not_there_is_not_compared(plangate: World, api: Caller) -> None:
    await api.register(specs.planning())
    plan = await store(api, specs.BOOK)
    path = f"/plans/{plan['id']}/revisions"
    refused(await api.get(f"{path}/1/changes"), 422)
    refused(await api.get(f"{path}/2/changes"), 404)
    refused(await api.get(f"{path}/2/changes", **{"from": "2"}), 422)
    refused(await plangate.other.get(f"{path}/2/changes"), 404)


async def value(api: Caller, approval: dict[str, Any], variable: str, **parts: Any) -> httpx.Response:
    params = {"path": variable, **parts}
    return await api.request("GET", f"/approvals/{approval['id']}/values", params=params)


@pytest.fixture
async def gate(plangate: World, api: Caller) -> dict[str, Any]:
    """The gate of a plan that reads a large state and writes another part of it."""
    await api.register(flowing(references=[SEATS]))
    pen = Pen(plangate, await thread(api, "t"))
    await pen.write("†state.rows", [{"text": "é" * 50_000}, {"n": 1}])
    _, seat = await seats(api, [1])
    plan = await stored(
        api, make("†state.rows"), make(1, "†state.made"), make("†state.made"), make(seat), threadKey="t"
    )
    approval = await api.gate((await begun(api, plan))["id"])
    await pen.write("†state.rows", "gone")
    return approval


async def test_a_stored_value_is_read_in_full_and_is_what_was_approved(
    api: Caller, gate: dict[str, Any]
) -> None:
    subject = await api.read(f"/approvals/{gate['id']}/subject")
    (named,) = (v for v in subject["variables"] if v["variable"] == "†state.rows")
    pages = [good(await value(api, gate, "†state.rows", limit=30_000))]
    while pages[-1]["nextCursor"] is not None:
        cursor = pages[-1]["nextCursor"]
        pages.append(good(await value(api, gate, "†state.rows", limit=30_000, cursor=cursor)))
    assert len(pages) == 2
    text = "".join(page["text"] for page in pages)
    assert {page["digest"] for page in pages} == {named["digest"]}
    assert hashlib.sha256(text.encode()).hexdigest() == named["digest"]
    assert pages[0]["sizeBytes"] == len(text.encode()) == named["sizeBytes"]
    below = good(await value(api, gate, "†state.rows.1.n"))
    assert (below["text"], below["type"], below["nextCursor"]) == ("1", "an integer", None)


@pytest.mark.parametrize(
    ("variable", "status"),
    [
        ("†state.made", 404),  # a result: nothing of it was approved
        ("†state.other", 404),
        ("†state", 404),
        ("†state.rows.7", 404),
        ("state.rows", 422),
        ("†state.rows || †input.x", 422),
        ("†state..", 422),
        ("†ref.Seats.x", 422),
        ("†artifact", 422),
        ("†artifact.x.content", 422),
    ],
)
async def test_only_values_that_the_subject_names_are_read(
    api: Caller, gate: dict[str, Any], variable: str, status: int
) -> None:
    refused(await value(api, gate, variable), status)


async def test_values_belong_to_one_tenant_and_to_gates_of_plans(plangate: World, api: Caller) -> None:
    await api.register(specs.scripted(specs.tool("pay", approval="always")))
    query = await api.submit(specs.script(("pay", {"n": 1})))
    approval = await api.gate(query["id"])
    refused(await value(api, approval, "†state.rows"), 404)
    refused(await value(plangate.other, approval, "†state.rows"), 404)
    good(await api.decide(approval["id"], "reject"))

"""`Idempotency-Key`: one object, one response, byte for byte."""

from __future__ import annotations

import asyncio
from hashlib import sha256
from typing import Any

from app.tenancy import idempotency
from app.tenancy.models import IdempotencyKey
from tests.support import specs
from tests.support.client import Caller, good, refused
from tests.support.sse import frames, wire
from tests.support.world import World

KEY = {"idempotency-key": "k-1"}


async def test_a_repeated_request_gets_the_first_response_byte_for_byte(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    body = {"prompt": "hi"}
    first = await api.post("/queries", body, headers=KEY)
    await api.ended(good(first)["id"])
    again = await api.post("/queries", body, headers=KEY)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert again.headers["location"] == first.headers["location"]
    assert await plangate.value("SELECT count(*) FROM queries") == 1


async def test_a_key_with_a_different_body_is_a_conflict(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    good(await api.post("/queries", {"prompt": "one"}, headers=KEY))
    body = refused(await api.post("/queries", {"prompt": "two"}, headers=KEY), 409, "conflict")
    assert "another body" in body["detail"]
    assert await plangate.value("SELECT count(*) FROM queries") == 1


async def test_a_key_belongs_to_its_tenant_principal_and_path(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    await plangate.other.register(specs.mock(tenant="other"))
    ann, bob = await plangate.key("queries:write"), await plangate.key("queries:write", principal="bob")
    ids = {
        good(await caller.post("/queries", {"prompt": "x"}, headers=KEY))["id"]
        for caller in (api, ann, bob, plangate.other, api)
    }
    assert len(ids) == 4
    good(await api.post("/runtimes/validate", specs.mock(), headers=KEY))


async def test_a_failed_request_may_be_retried_with_its_key(api: Caller) -> None:
    refused(await api.post("/queries", {"prompt": "x"}, headers=KEY), 404)
    await api.register(specs.mock())
    assert (await api.post("/queries", {"prompt": "x"}, headers=KEY)).status_code == 202


async def test_a_repeat_during_the_first_request_gets_a_409_with_retry_after(
    plangate: World, api: Caller
) -> None:
    await api.register(specs.mock())
    answers = await asyncio.gather(*(api.post("/queries", {"prompt": "x"}, headers=KEY) for _ in range(6)))
    done = [a for a in answers if a.status_code == 202]
    assert len({a.content for a in done}) == 1
    for other in answers:
        if other not in done:
            refused(other, 409, "in_progress")
            assert other.headers["retry-after"] == "1"
    assert await plangate.value("SELECT count(*) FROM queries") == 1


async def test_requests_do_not_queue_behind_an_open_transaction(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    async with plangate.services.db.transaction("acme") as tx:
        key = IdempotencyKey("operator", "POST", "/queries", "k-1", sha256(b"x").digest())
        assert await idempotency.begin(tx, key) is None
        response = await api.post("/queries", {"prompt": "x"}, headers=KEY)
        refused(response, 409, "in_progress")
        assert response.headers["retry-after"] == "1"


async def test_a_secret_is_not_stored_for_repeats(plangate: World, api: Caller, owner: Any) -> None:
    body = {"principal": "x", "scopes": ["read"]}
    made = good(await api.post("/keys", body, headers=KEY))
    again = refused(await api.post("/keys", body, headers=KEY), 409)
    assert again["id"] == made["id"]
    rows = await owner.fetch("SELECT * FROM idempotency")
    assert len(rows) == 1
    assert rows[0]["body"] is None
    assert made["key"] not in str(rows)
    assert len((await api.read("/keys"))["items"]) == 1


async def test_a_repeated_streaming_post_replays_the_same_query(plangate: World, api: Caller) -> None:
    await api.register(specs.mock())
    async with wire(plangate) as client:
        first = await client.post("/queries/stream", json={"prompt": "x"}, headers=KEY)
        again = await client.post("/queries/stream", json={"prompt": "x"}, headers=KEY)
        assert frames(first.text) == frames(again.text) != []
        assert first.headers["location"] == again.headers["location"]
        other = await client.post("/queries/stream", json={"prompt": "y"}, headers=KEY)
        assert other.status_code == 409
    assert await plangate.value("SELECT count(*) FROM queries") == 1


async def test_after_a_day_a_key_is_forgotten(plangate: World, api: Caller, owner: Any) -> None:
    await api.register(specs.mock())
    first = good(await api.post("/queries", {"prompt": "x"}, headers=KEY))
    await owner.execute("UPDATE idempotency SET created_at = now() - interval '24 hours 1 second'")
    second = good(await api.post("/queries", {"prompt": "y"}, headers=KEY))
    assert first["id"] != second["id"]
    await owner.execute("UPDATE idempotency SET created_at = now() - interval '24 hours 1 second'")
    async with plangate.services.db.transaction("") as tx:
        assert await tx.value("SELECT sweep_idempotency(10)") in (0, 1)
    assert await owner.fetchval("SELECT count(*) FROM idempotency") == 0


async def test_a_key_is_1_to_255_characters(api: Caller) -> None:
    await api.register(specs.mock())
    for bad in ("", "k" * 256):
        refused(await api.post("/queries", {"prompt": "x"}, headers={"idempotency-key": bad}), 422)
    assert (await api.post("/queries", {"prompt": "x"}, headers={"idempotency-key": "k" * 255})).is_success


async def test_the_length_of_a_key_is_checked_on_every_route(api: Caller) -> None:
    for path, body in (("/runtimes/validate", specs.mock()), ("/tools/mcp/list", {"url": "https://x.test"})):
        for bad in ("", "k" * 256):
            answer = await api.post(path, body, headers={"idempotency-key": bad})
            assert refused(answer, 422)["errors"] == [
                {
                    "pointer": "header:Idempotency-Key",
                    "message": f"must have 1 to 255 characters; this one has {len(bad)}",
                }
            ]
    good(await api.post("/runtimes/validate", specs.mock(), headers={"idempotency-key": "k" * 255}))


async def test_decisions_results_and_plans_can_be_repeated(api: Caller) -> None:
    await api.register(specs.planning())
    body = {"specName": "Routing", "body": specs.BODY}
    first, again = [await api.post("/plans", body, headers=KEY) for _ in range(2)]
    assert (first.status_code, first.content) == (201, again.content)
    path = f"/plans/{good(first)['id']}/execute"
    started, repeated = [await api.post(path, {}, headers=KEY) for _ in range(2)]
    assert started.content == repeated.content
    approval = await api.gate(good(started)["id"])
    said = {"decision": "approve", "digest": approval["digest"]}
    decide = [await api.post(f"/approvals/{approval['id']}", said, headers=KEY) for _ in range(2)]
    assert decide[0].content == decide[1].content
    (call,) = await api.claim("actions")
    result = {"claimToken": call["claimToken"], "output": None}
    posted = [await api.post(f"/tool-calls/{call['workId']}/result", result, headers=KEY) for _ in range(2)]
    assert posted[0].content == posted[1].content
    await api.ended(good(started)["id"])

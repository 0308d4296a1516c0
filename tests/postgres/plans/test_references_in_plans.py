"""References that a plan names: pinned, shown, and sent only to the dispatcher."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import specs
from tests.support.client import Caller, good, inner, output_of, refused
from tests.support.endpoint import Received, endpoint, output
from tests.support.world import World, world

SEATS = {"name": "Seats", "schema": {"type": "array"}, "ttlMs": 3_600_000}
EXPIRE = "UPDATE reference_values SET expires_at = now() - interval '1 s'"
MIB = 1024 * 1024


async def seats(api: Caller, *values: Any) -> list[dict[str, str]]:
    made = [await api.do("/references", {"kind": "Seats", "value": [value]}) for value in values]
    return [{"kind": m["kind"], "id": m["id"]} for m in made]


def naming(*groups: list[dict[str, str]]) -> dict[str, Any]:
    """A body of an action for each list of references."""
    return {"actions": [{**specs.BOOK, "references": group} for group in groups]}


async def begun(api: Caller, *groups: list[dict[str, str]]) -> str:
    return (await api.submit(specs.store_and_execute(naming(*groups))))["id"]


async def planning(api: Caller, **parts: Any) -> None:
    await api.register(specs.planning(references=[SEATS], **parts))


# -- pins


@pytest.mark.parametrize("gone", ["missing", "expired", "deleted"])
async def test_a_plan_that_names_an_expired_reference_is_rejected(api: Caller, owner: Any, gone: str) -> None:
    await planning(api)
    (there,) = await seats(api, "1A")
    (handle,) = await seats(api, "2B")
    told = f"There is no reference Seats/{handle['id']}."
    if gone == "missing":
        handle = {"kind": "Other", "id": handle["id"]}
        told = f"There is no reference Other/{handle['id']}."
    elif gone == "expired":
        await owner.execute(f"{EXPIRE} WHERE id = $1", handle["id"])
        told = f"The reference Seats/{handle['id']} has expired; create it again."
    else:
        good(await api.delete(f"/references/Seats/{handle['id']}"))
    runtime = (await api.read("/runtimes"))["items"][0]["id"]
    body = {"runtimeId": runtime, "specName": "Routing", "body": naming([there], [handle]), "threadKey": "t"}
    answer = refused(await api.post("/plans", body), 410 if gone == "expired" else 404)
    assert answer["detail"] == told
    assert (await api.read("/plans"))["items"] == []


async def test_a_pinned_value_is_read_and_listed_normally(plangate: World, api: Caller, owner: Any) -> None:
    await planning(api)
    handle, other = await seats(api, "1A", "2B")
    query = await begun(api, [handle])
    await api.gate(query)
    await owner.execute(EXPIRE)
    assert await plangate.services.references.sweep() == 1
    assert [item["id"] for item in (await api.read("/references"))["items"]] == [handle["id"]]
    assert (await api.read(f"/references/Seats/{handle['id']}/glimpse"))["sizeBytes"] == 6
    refused(await api.get(f"/references/Seats/{other['id']}"), 410, "reference_expired")
    again = await api.post("/references", {"kind": "Seats", "value": ["1A"]})
    assert again.status_code == 200


async def test_a_draft_releases_its_pins_after_seven_days(plangate: World, api: Caller, owner: Any) -> None:
    await planning(api)
    (handle,) = await seats(api, "1A")
    runtime = (await api.read("/runtimes"))["items"][0]["id"]
    body = {"runtimeId": runtime, "specName": "Routing", "body": naming([handle]), "threadKey": "t"}
    good(await api.post("/plans", body))
    await owner.execute(EXPIRE)
    path = f"/references/Seats/{handle['id']}"
    left = await plangate.value("SELECT until - now() FROM reference_pins")
    assert 6.9 < left.total_seconds() / 86400 <= 7
    assert (await api.get(path)).json() == ["1A"]
    await owner.execute("UPDATE reference_pins SET until = until - interval '7 days'")
    refused(await api.get(path), 410, "reference_expired")
    assert await plangate.services.references.sweep() == 1


async def days_left(w: World) -> Any:
    """How long the pin holds; None: until its plan is over."""
    left = await w.value("SELECT until - now() FROM reference_pins")
    return None if left is None else left.total_seconds() / 86400


async def test_an_approved_plan_that_never_began_is_a_draft_again(site: Any, cluster: Any) -> None:
    """The process that was to begin it was gone when its query was canceled: nobody begins it under that approval."""
    async with world(site, cluster.operator_key) as working:
        await planning(working.api)
        (handle,) = await seats(working.api, "1A")
        query = await begun(working.api, [handle])
        await working.api.gate(query)
    async with world(site, cluster.operator_key, with_worker=False) as idle:
        await idle.api.approve(query)
        assert await days_left(idle) is None  # it may take its time to move on
        await idle.api.do(f"/queries/{query}/cancel")
        assert 6.9 < await days_left(idle) <= 7
        (plan,) = (await idle.api.read("/plans"))["items"]
        assert (plan["status"], plan["decision"]) == ("draft", None)
        again = await idle.api.do(f"/plans/{plan['id']}/execute", {})
        assert again["planId"] == plan["id"]
    async with world(site, cluster.operator_key) as working:
        await working.api.gate(again["id"])  # an approval of its own
        assert await days_left(working) is None
        await working.api.approve(again["id"])
        await working.api.until(again["id"], "waiting", "client_call")
        assert await days_left(working) is None
        await working.api.serve("actions", {"entitiesAffected": 1})
        await working.api.ended(again["id"])
        assert await working.value("SELECT count(*) FROM reference_pins") == 0


async def test_a_revision_can_name_references_pinned_by_the_previous_one(
    plangate: World, api: Caller, owner: Any
) -> None:
    await planning(api)
    kept, left = await seats(api, "1A", "2B")
    runtime = (await api.read("/runtimes"))["items"][0]["id"]
    body = {"runtimeId": runtime, "specName": "Routing", "threadKey": "t", "planId": "p"}
    await api.do("/plans", {**body, "body": naming([kept, left])})
    await owner.execute(EXPIRE)
    plan = await api.do("/plans", {**body, "body": naming([kept])})
    assert plan["revision"] == 2
    assert 6.9 < await days_left(plangate) <= 7
    good(await api.get(f"/references/Seats/{kept['id']}"))
    refused(await api.get(f"/references/Seats/{left['id']}"), 410, "reference_expired")
    refused(await api.post("/plans", {**body, "body": naming([kept, left])}), 410, "reference_expired")
    await owner.execute("UPDATE reference_pins SET until = until - interval '7 days'")
    refused(await api.post("/plans", {**body, "body": naming([kept])}), 410, "reference_expired")


async def test_a_sweep_and_a_pin_are_serialized(plangate: World, api: Caller, owner: Any) -> None:
    """While a plan is being stored, the sweeper leaves what it names alone."""
    await planning(api)
    (handle,) = await seats(api, "1A")
    named = [(handle["kind"], handle["id"])]
    references = plangate.services.references
    async with plangate.services.db.transaction("acme") as tx:
        await references.pin(tx, named, "pln_1")
        await owner.execute(EXPIRE)
        assert await references.sweep() == 0
    assert await references.sweep() == 0
    assert (await api.get(f"/references/Seats/{handle['id']}")).json() == ["1A"]


# -- dispatch


async def test_a_pinned_reference_outlives_its_expiry_until_dispatch(api: Caller, owner: Any) -> None:
    await planning(api)
    (handle,) = await seats(api, "1A")
    query = await begun(api, [handle])
    await api.gate(query)
    await owner.execute(EXPIRE)
    await api.approve(query)
    call = await api.serve("actions", {"entitiesAffected": 1})
    assert call["resolvedRefs"] == {"Seats": {handle["id"]: ["1A"]}}
    assert inner(output_of(await api.ended(query))[1])["status"] == "executed"


async def test_a_reference_deleted_before_the_approval_fails_the_plan(plangate: World, api: Caller) -> None:
    await planning(api)
    kept, lost = await seats(api, "1A", "2B")
    query = await begun(api, [kept, lost])
    await api.gate(query)
    good(await api.delete(f"/references/Seats/{lost['id']}"))
    await api.approve(query)
    missing = f"There is no reference Seats/{lost['id']}."
    assert inner(output_of(await api.ended(query))[1]) == f"{missing} /body/actions/0/references/1: {missing}"
    assert await plangate.value("SELECT count(*) FROM outgoing_calls") == 0


async def test_a_reference_deleted_before_the_claim_fails_the_plan(api: Caller) -> None:
    await planning(api)
    kept, lost = await seats(api, "1A", "2B")
    query = await begun(api, [kept, lost])
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    good(await api.delete(f"/references/Seats/{lost['id']}"))
    claimed = await api.do("/tool-calls/claim", {"tools": [{"name": "actions"}]})
    assert claimed == {"calls": []}
    answer = inner(output_of(await api.ended(query))[1])
    told = f"Nothing was sent: There is no reference Seats/{lost['id']}."
    assert (answer["status"], answer["actions"][0]["error"]["message"]) == ("failed", told)


async def test_a_tampered_value_is_not_sent(api: Caller, owner: Any) -> None:
    await planning(api)
    (handle,) = await seats(api, "1A")
    query = await begun(api, [handle])
    await owner.execute("UPDATE reference_values SET value = '[\"9F\"]'")
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    await api.do("/tool-calls/claim", {"tools": [{"name": "actions"}]})
    error = inner(output_of(await api.ended(query))[1])["actions"][0]["error"]["message"]
    assert "is not the one that was created" in error


async def test_references_too_large_for_one_dispatch_open_no_gate(
    plangate: World, api: Caller, owner: Any
) -> None:
    await planning(api)
    first, second, third = await seats(api, "1A", "2B", "3C")
    await owner.execute("UPDATE reference_values SET size_bytes = $1", 30 * MIB)
    query = await begun(api, [first], [second], [first, third])
    error = inner(output_of(await api.ended(query))[1])
    assert error == (
        f"One dispatch carries at most {64 * MIB} bytes of references: Seats/{third['id']} with its {30 * MIB} would "
        f"make it {90 * MIB}. Split the actions into several plans, or store less in a reference."
    )
    assert (await api.read("/approvals"))["items"] == []


async def test_separately_sent_actions_have_separate_limits(api: Caller, owner: Any) -> None:
    await planning(api, actionDispatcher=None, actionDispatchers={"book": "client", "refund": "client"})
    handles = await seats(api, "1A", "2B", "3C")
    await owner.execute("UPDATE reference_values SET size_bytes = $1", 30 * MIB)
    query = await begun(api, *([handle] for handle in handles))
    assert [r["id"] for r in (await api.gate(query))["glimpses"]["references"]] == [h["id"] for h in handles]


@pytest.mark.parametrize(("glimpse_bytes", "count", "shown"), [(4000, 40, 31), (1000, 100, 100)])
async def test_a_gate_shows_a_bounded_number_of_glimpses_and_counts_the_rest(
    api: Caller, glimpse_bytes: int, count: int, shown: int
) -> None:
    """In its event and in the inbox; what is approved has them all."""
    await planning(api)
    handles = []
    for n in range(count):
        asked = {"kind": "Seats", "value": [n], "glimpse": {"text": "x" * glimpse_bytes}}
        made = await api.do("/references", asked)
        handles.append({"kind": "Seats", "id": made["id"]})
    query = await begun(api, handles)
    gate = await api.gate(query)
    glimpses = gate["glimpses"]
    assert [r["id"] for r in glimpses["references"]] == [h["id"] for h in handles[:shown]]
    assert glimpses.get("referencesLeftOut", 0) == count - shown
    assert "referencesLeftOut" in glimpses or shown == count
    subject = await api.read(f"/approvals/{gate['id']}/subject")
    assert [r["id"] for r in subject["references"]] == [h["id"] for h in handles]


@pytest.mark.long
async def test_a_claim_has_a_size_limit(api: Caller) -> None:
    """What is too much for one answer is there for the next."""
    await planning(api, actionDispatcher=None, actionDispatchers={"book": "client", "refund": "client"})
    handles = await seats(api, *(str(n) + "x" * 13_000_000 for n in range(6)))
    query = await begun(api, *([handle] for handle in handles))
    await api.approve(query)
    await api.until(query, "waiting", "client_call")
    counts, sent = [], []
    while calls := (await api.do("/tool-calls/claim", {"tools": [{"name": "actions.book"}], "max": 10}))[
        "calls"
    ]:
        counts.append(len(calls))
        sent += [id for call in calls for id in call["resolvedRefs"]["Seats"]]
        for call in calls:
            good(await api.result(call, {"entitiesAffected": 1}))
    assert counts == [5, 1]
    assert sorted(sent) == sorted(h["id"] for h in handles)
    await api.ended(query)


async def test_an_http_dispatcher_gets_the_values_in_its_body(site: Any, cluster: Any) -> None:
    got: list[Any] = []

    def take(received: Received) -> Any:
        got.append(received.json["resolvedRefs"])
        return output({"entitiesAffected": 1})

    async with endpoint(take) as there:
        url = there.url.replace("127.0.0.1", "localhost")
        async with world(site, cluster.operator_key, allow_hosts=["localhost"]) as running:
            api = running.api
            await planning(api, actionDispatcher={"kind": "http", "url": f"{url}/dispatch"})
            (handle,) = await seats(api, {"deep": [1, None, "ü"]})
            query = await begun(api, [handle])
            await api.approve(query)
            assert inner(output_of(await api.ended(query))[1])["status"] == "executed"
    assert got == [{"Seats": {handle["id"]: [{"deep": [1, None, "ü"]}]}}]


async def test_a_reference_value_is_stored_nowhere_else(plangate: World, api: Caller, owner: Any) -> None:
    await planning(api)
    secret = "window-seat-4711"
    made = await api.do("/references", {"kind": "Seats", "value": [secret], "glimpse": {"count": 1}})
    query = await begun(api, [{"kind": "Seats", "id": made["id"]}])
    await api.approve(query)
    call = await api.serve("actions", {"entitiesAffected": 1})
    assert secret in json.dumps(call)
    await api.ended(query)
    tables = await owner.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1")
    held = []
    for (table,) in tables:
        found = await owner.fetchval(
            f'SELECT count(*) FROM "{table}" t WHERE t::text LIKE $1 OR t::text LIKE $2',
            f"%{secret}%",
            f"%{secret.encode().hex()}%",
        )
        held += [table] * bool(found)
    assert held == ["reference_values"]


async def test_a_plan_names_a_hundred_references_at_most(api: Caller) -> None:
    await planning(api)
    handles = await seats(api, *(str(n) for n in range(101)))
    body = {"actions": [{**specs.BOOK, "references": handles}]}
    problem = refused(await api.post("/plans", {"specName": "Routing", "body": body}), 422)
    assert problem["detail"] == (
        "A plan names at most 100 references, so that people can read what they approve; this one names 101. Put "
        "values that belong together into one reference, or make several plans."
    )
    body["actions"][0]["references"] = handles[:100]
    assert (await api.do("/plans", {"specName": "Routing", "body": body}))["status"] == "draft"
